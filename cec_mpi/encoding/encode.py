"""The way in for X: encoded block by block, so that a crash loses at most what was in work."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cec_mpi.core.accuracy.rounding import is_exact
from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.core.code.mds import make_code
from cec_mpi.encoding import journal
from cec_mpi.encoding.options import GROUPS, EncodeOptions
from cec_mpi.encoding.reading import NotEncodable, check_unchanged
from cec_mpi.encoding.sources import Matrix, Source, Unread, open_array, open_source, read_once
from cec_mpi.encoding.work import Encoding
from cec_mpi.errors import CecError, InputError
from cec_mpi.files.appearing import check_new, is_there
from cec_mpi.files.durable import check_room, locked
from cec_mpi.files.saving import reason_of
from cec_mpi.options.option import with_keywords
from cec_mpi.store.format.grid import make_grid
from cec_mpi.store.format.manifest import (
    COLUMN_SIZES,
    INCOMPLETE,
    MANIFEST,
    ROW_EXPONENTS,
    ArrayEntry,
    Manifest,
    ShardEntry,
    checksums_name,
    read_manifest,
    rows_per_shard,
    shard_header,
    shard_name,
    store_dtype,
)
from cec_mpi.store.work import LocalRunner, Runner

if TYPE_CHECKING:
    from mpi4py import MPI


@with_keywords(*GROUPS)
def encode(
    source: Any,
    store: str | os.PathLike[str],
    machines: int,
    recovery: int,
    *,
    runner: Runner | None = None,
    comm: MPI.Intracomm | None = None,
    **options: Any,
) -> Manifest:
    """Encode a matrix into a new store. Collective, if there is a communicator.

    Parameters
    ----------
    source : path or array
        X, two-dimensional and real: a file or directory in a format of
        `cec_mpi.encoding.sources.open_source`, or whatever has a shape, a dtype and rows by
        slices: an ndarray or memmap, a dataset of h5py, an array of Zarr, Dask (each chunk is
        computed once) or xarray, a DataFrame of pandas, a sparse matrix of SciPy (its shards are
        dense). The store keeps the names of columns if all of them are text.
    store : path
        The directory to make. Until all is on disk it says that it is incomplete.
    **options
    runner : Runner, optional
        Who does the work; by default the threads of this process. The bytes of the store
        do not depend on it.
    comm : mpi4py.MPI.Intracomm, optional
        In the place of a runner: all ranks call this and share the work; files, and `store`,
        have to be visible to all. Each has its own X, and their shapes and dtypes have to
        agree; that their numbers do is not checked: each row is that of one rank.

    Returns
    -------
    Manifest

    Raises
    ------
    InputError
        The source is not such a matrix or holds NaN or infinity, the store exists, the
        code would lose all digits, or there is no room. Of a store that an array was to
        become nothing is left then. All ranks raise it.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> import cec_mpi
    >>> place = tempfile.TemporaryDirectory()
    >>> made = cec_mpi.encode(np.eye(4, 3), f"{place.name}/store", 3, 2)
    >>> made.rows, made.columns, made.dtype
    (4, 3, 'float64')
    >>> place.cleanup()
    """
    checked = EncodeOptions(machines=machines, recovery=recovery, **options).checked()
    if comm is None:
        return encode_with(source, Path(store), checked, runner or LocalRunner())
    if runner is not None:
        raise InputError("encode got a runner and a communicator: expected one of them")
    from cec_mpi.encoding.together import on_all_ranks

    return on_all_ranks(
        comm, source, lambda own, runner: encode_with(own, Path(store), checked, runner)
    )


def encode_with(source: Any, directory: Path, options: EncodeOptions, runner: Runner) -> Manifest:
    """Encode a matrix into a new store, whoever does the work: `encode` with checked options.

    Parameters
    ----------
    source : path, array or Matrix
    directory : Path
    options : EncodeOptions
    runner : Runner

    Raises
    ------
    InputError
        As `encode`.
    """
    again = options.resuming(source, directory)
    found = is_there(directory)
    if found and not options.resume:
        _refuse_existing(directory, again)
    if found and not directory.is_dir():
        raise InputError(f"{directory} is no directory: there is nothing to resume")
    found = found and any(directory.iterdir())
    if not directory.absolute().parent.is_dir():
        raise InputError(
            f"{directory.absolute().parent} is not a directory: cannot make {directory}"
        )
    if not found:
        for _, file in options.target:
            check_new(file)
    matrix = _opened(source, options)
    try:
        if found and (directory / MANIFEST).exists():
            _check_complete(directory, matrix, options)
            if not all(file.exists() for _, file in options.target):
                with _as_array(matrix, directory, options, again=True):
                    check_unchanged(matrix)
            return read_manifest(directory)
        if found:
            journal.begun(directory, matrix, options.written())
        with _as_array(matrix, directory, options, again=found) as array:
            return _make(directory, array, options, runner, found, again)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error.strerror or error}") from None
    except (KeyboardInterrupt, SystemExit) as error:
        if (directory / INCOMPLETE).exists() and not (directory / MANIFEST).exists():
            error.add_note(f"{directory} is incomplete, resume with: {again}")
        raise


def _refuse_existing(target: Path, again: str) -> None:
    if (target / INCOMPLETE).exists() and not (target / MANIFEST).exists():
        raise InputError(f"{target} exists and is incomplete: remove it, or go on with: {again}")
    raise InputError(f"{target} exists: give the store a new name")


def _opened(source: Any, options: EncodeOptions) -> Source | Unread:
    if isinstance(source, str | os.PathLike):
        return open_source(source, options)
    matrix = source if isinstance(source, Source | Unread) else open_array(source)
    if options.of_files:
        raise InputError(
            f"{options.of_files[0]} is for files: {matrix.name} is a matrix of {matrix.dtype} "
            "already, of which slices and columns are taken beforehand"
        )
    return matrix


def _check_complete(directory: Path, matrix: Matrix, options: EncodeOptions) -> None:
    if not matrix.stamps:
        raise InputError(
            f"{directory} is complete, and nothing says whether it was made of "
            f"{matrix.name} as it is now: give the store a new name"
        )
    journal.check_same(directory, matrix, options.written())


def _as_array(
    matrix: Source | Unread, directory: Path, options: EncodeOptions, again: bool
) -> AbstractContextManager[Source]:
    """Give the matrix as an array with slices, which may be there in the block alone."""
    if isinstance(matrix, Source):
        return nullcontext(matrix)
    return read_once(matrix, directory, store_dtype(options.dtype, matrix.dtype), again)


def _make(
    directory: Path,
    matrix: Source,
    options: EncodeOptions,
    runner: Runner,
    found: bool,
    again: str,
) -> Manifest:
    """Encode an array into a store, of which some is found, or nothing."""
    if not found or not matrix.stamps:
        skeleton = _skeleton(matrix, options)
        check_room(directory, skeleton.shard_bytes * options.machines)  # before blocks are listed
        encoding = Encoding(directory, matrix, skeleton, options.memory, runner)
    if not found:
        if matrix.warning:
            size = skeleton.shard_bytes * options.machines
            warnings.warn(matrix.warning.replace("{bytes}", str(size)), stacklevel=4)
        journal.begin(directory, skeleton, matrix, options.written(), again)
    with locked(directory, f"{directory} is being written by another process"):
        if found:
            begun = journal.go_on(directory, matrix, options.written())
            if matrix.stamps:
                skeleton = begun
                encoding = Encoding(directory, matrix, skeleton, options.memory, runner)
            elif begun.to_json() != skeleton.to_json():
                raise InputError(f"{directory} was begun with another X: remove it")
        with _explaining(directory, skeleton, again if matrix.stamps else ""):
            if found and matrix.stamps:  # else all is done anew
                encoding.skip_what_is_good(runner)
            encoding.measure(runner)
            runner.run(encoding)
            check_unchanged(matrix)
            return journal.finish(directory, skeleton)


def _skeleton(matrix: Source, options: EncodeOptions) -> Manifest:
    """The manifest of a store whose shards have no checksums yet."""
    rows, columns = matrix.shape
    machines, recovery = options.machines, options.recovery
    kind = store_dtype(options.dtype, matrix.dtype)
    code = make_code(
        machines,
        recovery,
        options.code,
        systematic=options.systematic,
        seed=options.seed,
        dtype=kind,
    )
    code.check_precision(kind)
    per_shard = rows_per_shard(rows, recovery)
    header = shard_header(per_shard, columns, kind.name)
    size = len(header) + per_shard * columns * kind.itemsize
    return Manifest(
        rows=rows,
        columns=columns,
        dtype=kind.name,
        rounded=not is_exact(matrix.dtype, kind),
        code=code,
        grid=make_grid(per_shard, columns, kind.itemsize, machines + recovery),
        header=header,
        checksums=checksums_name(1),
        shards=tuple(ShardEntry(shard_name(n), size, "") for n in range(1, machines + 1)),
        column_sizes=ArrayEntry(COLUMN_SIZES),
        row_exponents=ArrayEntry(ROW_EXPONENTS) if options.scales else None,
        sensitivity=measure_sensitivity(
            code.generator, kind, columns, code.conditioning.worst_machines
        ),
        column_names=matrix.column_names,
    )


@contextmanager
def _explaining(target: Path, skeleton: Manifest, again: str) -> Iterator[None]:
    """Leave nothing of a store that can never be, and say how to go on with one that can.

    One that cannot be gone on with, since `again` is empty, is not left either.
    """
    try:
        yield
    except BaseException as error:
        hopeless = not again or isinstance(error, NotEncodable)
        if hopeless and not (target / MANIFEST).exists():
            journal.discard(target, skeleton)
        if hopeless or not isinstance(error, CecError | OSError):
            raise
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"{target} cannot be written: {reason_of(error)}"
        raise InputError(f"{reason}; {target} is incomplete, resume with: {again}") from None
