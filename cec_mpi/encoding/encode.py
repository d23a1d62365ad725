"""Encoding of X block by block; an interruption loses only the blocks in progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cec_mpi.core.accuracy.rounding import is_lossless_cast
from cec_mpi.core.code.mds import make_code
from cec_mpi.encoding import journal
from cec_mpi.encoding.options import GROUPS, EncodeOptions
from cec_mpi.encoding.reading import MissingValuesError, NotEncodableError, check_unchanged
from cec_mpi.encoding.rounding import NO_ROUNDING, warn_of_rounding
from cec_mpi.encoding.sources import (
    Source,
    StreamedMatrix,
    copy_to_file,
    open_array,
    open_source,
    stream_rows,
    summarise_missing,
)
from cec_mpi.encoding.work import EncodeWork
from cec_mpi.errors import CecError, InputError, ScaleWarning
from cec_mpi.runtime.options.option import rename_flags_in_errors, with_keywords
from cec_mpi.store.coded.grid import make_grid
from cec_mpi.store.coded.manifest import ROW_EXPONENTS, CodedManifest, rows_per_shard
from cec_mpi.store.files.creating import check_new, path_exists
from cec_mpi.store.files.durable import check_free_space, locked
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.saving import reason_of
from cec_mpi.store.format.manifest import (
    ArrayEntry,
    Manifest,
    MissingValues,
    store_dtype,
)
from cec_mpi.store.manifest_files import INCOMPLETE, MANIFEST, remove_journal
from cec_mpi.store.reader import open_store
from cec_mpi.store.work import LocalRunner, Runner
from cec_mpi.text import warn_caller

if TYPE_CHECKING:
    from mpi4py import MPI

_KEYWORDS = {field.name for field in fields(EncodeOptions)}
_MAX_ROW_ERROR = 1e-3  # relative error of a row above which encode warns


@with_keywords(*GROUPS)
def encode(
    source: Any,
    store: str | os.PathLike[str],
    machines: int,
    recovery: int | None = None,
    *,
    runner: Runner | None = None,
    comm: MPI.Intracomm | None = None,
    **options: Any,
) -> Manifest:
    """Encode a matrix into a new store. Collective if `comm` is given.

    Parameters
    ----------
    source : path or array
        Real two-dimensional matrix X: a file or directory in a format of
        `cec_mpi.encoding.sources.open_source`, or an object with a shape, a dtype and slices of
        rows, such as a `numpy.ndarray` or `numpy.memmap`, an h5py dataset, a Zarr or xarray array,
        a `dask.array.Array` (each chunk is computed once), a pandas DataFrame, or a
        `scipy.sparse.csr_array`. The store keeps the column names if all of them are text. Without
        `recovery`, a sparse X is stored as copies of its rows.
    store : path
        Directory to create. It is marked as incomplete until all data is on disk.
    **options
    runner : Runner, optional
        Runner of the work, by default the threads of this process. The bytes of the store do not
        depend on it.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator whose ranks call this function and share the work, instead of a runner. All
        ranks need access to the files and to `store`, and each passes the same X: shapes and dtypes
        must agree, values are not compared, and each row is read on one rank. Without `recovery`,
        rank 0 stores its X, and the others wait.

    Returns
    -------
    Manifest

    Raises
    ------
    InputError
        The source is not a real matrix or contains NaN or infinity, the store exists, the code is
        too ill-conditioned, or the disk is full. All ranks raise the error. If the source is an
        array, the incomplete store is removed.
    DamagedStoreError
        The new store cannot be opened.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> import cec_mpi
    >>> directory = tempfile.TemporaryDirectory()
    >>> manifest = cec_mpi.encode(np.eye(4, 3), f"{directory.name}/store", 3, 2)
    >>> manifest.rows, manifest.columns, manifest.dtype
    (4, 3, 'float64')
    >>> directory.cleanup()
    """
    for name in options:
        if name not in _KEYWORDS:
            raise InputError(f"encode got an unexpected keyword argument {name!r}")
    with rename_flags_in_errors(*GROUPS, EncodeOptions):
        encode_options = EncodeOptions(machines=machines, recovery=recovery, **options).validate()
        if comm is None:
            return encode_matrix(source, as_path(store), encode_options, runner or LocalRunner())
        if runner is not None:
            raise InputError("encode got both a runner and comm, expected only one of them")
        if encode_options.recovery is None:
            from cec_mpi.runtime.processes.start import call_on_master, start_and_check_ranks

            start_and_check_ranks(comm)
            return call_on_master(
                comm,
                lambda: encode_matrix(source, as_path(store), encode_options, LocalRunner()),
                Manifest,
            )
        from cec_mpi.encoding.collective import encode_on_all_ranks

        return encode_on_all_ranks(
            comm,
            source,
            encode_options,
            lambda shared_source, runner: encode_matrix(
                shared_source, as_path(store), encode_options, runner
            ),
        )


def encode_matrix(source: Any, directory: Path, options: EncodeOptions, runner: Runner) -> Manifest:
    """Encode a matrix into a new store with validated options; see `encode`.

    Parameters
    ----------
    source : path, array or Matrix
    directory : Path
    options : EncodeOptions
    runner : Runner

    Raises
    ------
    InputError
        See `encode`.
    DamagedStoreError
        The new store cannot be opened.
    """
    if options.recovery is None:
        from cec_mpi.encoding.replicas import encode_replicas  # imports SciPy

        encode_replicas(source, directory, options, runner.on_progress)
    else:
        _start_or_resume(source, directory, options, runner)
    store = open_store(directory)
    store.check_files()
    return store.manifest


def _start_or_resume(source: Any, directory: Path, options: EncodeOptions, runner: Runner) -> None:
    """Start a coded store, resume an interrupted one, or check a complete one."""
    resume_command = options.resume_command(source, directory)
    exists = path_exists(directory)
    if exists and not options.resume:
        raise _exists_error(directory, resume_command)
    if exists and not directory.is_dir():
        raise InputError(f"{directory} is not a directory: there is nothing to resume")
    is_resumed = exists and any(directory.iterdir())
    if not directory.absolute().parent.is_dir():
        raise InputError(
            f"{directory} cannot be created: {directory.absolute().parent} is not a directory"
        )
    if not is_resumed:
        for _, file in options.target:
            check_new(file)
    matrix = _open_matrix(source, options)
    if isinstance(matrix, Source) and options.missing != "refuse" and matrix.dtype.kind == "f":
        matrix = stream_rows(matrix)
    if isinstance(matrix, StreamedMatrix) and runner.on_progress is not None:
        matrix = replace(matrix, on_progress=runner.on_progress)
    try:
        if is_resumed and (directory / MANIFEST).exists():
            journal.check_same_origin(directory, matrix, options.to_arguments())
            remove_journal(directory)  # exists if an encode was killed at its end
            if not all(file.exists() for _, file in options.target):
                # Copying X again writes the missing target files.
                with _as_source(matrix, directory, options, is_resumed=True):
                    check_unchanged(matrix)
            return
        if is_resumed:
            # Raise before a long copy if the store cannot be resumed.
            journal.read_skeleton(directory, matrix, options.to_arguments())
        with _as_source(matrix, directory, options, is_resumed) as matrix_source:
            _encode_blocks(directory, matrix_source, options, runner, is_resumed, resume_command)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error.strerror or error}") from None
    except (KeyboardInterrupt, SystemExit) as error:
        if (directory / INCOMPLETE).exists() and not (directory / MANIFEST).exists():
            error.add_note(f"{directory} is incomplete, resume with: {resume_command}")
        raise


def _exists_error(directory: Path, resume_command: str) -> InputError:
    if (directory / INCOMPLETE).exists() and not (directory / MANIFEST).exists():
        return InputError(
            f"{directory} exists and is incomplete: remove it, or resume with: {resume_command}"
        )
    return InputError(
        f"{directory} exists already: choose another name for the store, or remove it"
    )


def _open_matrix(source: Any, options: EncodeOptions) -> Source | StreamedMatrix:
    if isinstance(source, str | os.PathLike):
        return open_source(source, options)
    matrix = source if isinstance(source, Source | StreamedMatrix) else open_array(source, options)
    if options.file_options:
        raise InputError(
            f"{options.file_options[0]} is only for files, not for {matrix.name}: select rows and "
            "columns of the array before encode"
        )
    return matrix


def _as_source(
    matrix: Source | StreamedMatrix, directory: Path, options: EncodeOptions, is_resumed: bool
) -> AbstractContextManager[Source]:
    """Return a context manager that yields a matrix as a source, copied if it has no slices."""
    if isinstance(matrix, Source):
        missing = None if options.missing == "refuse" else MissingValues(options.missing)
        return nullcontext(replace(matrix, missing=missing))
    dtype = store_dtype(options.dtype, matrix.dtype)
    return copy_to_file(matrix, directory, dtype, is_resumed, options.missing)


def _encode_blocks(
    directory: Path,
    matrix: Source,
    options: EncodeOptions,
    runner: Runner,
    is_resumed: bool,
    resume_command: str,
) -> None:
    """Encode a matrix into a new or an incomplete store."""
    if not is_resumed or not matrix.stamps:
        skeleton = _make_skeleton(matrix, options)
        # Check the disk first: a list of the blocks of too large a store could exceed the memory.
        check_free_space(directory, skeleton.shard_bytes * options.machines)
        work = EncodeWork.create(directory, matrix, skeleton, options.memory, runner)
    if not is_resumed:
        if matrix.warning:
            size = skeleton.shard_bytes * options.machines
            warn_caller(matrix.warning.replace("{bytes}", str(size)))
        journal.create_store(directory, skeleton, matrix, options.to_arguments(), resume_command)
    with locked(directory, f"{directory} is being written by another process"):
        if is_resumed:
            resumed_skeleton = journal.resume(directory, matrix, options.to_arguments())
            if matrix.stamps:
                skeleton = resumed_skeleton
                work = EncodeWork.create(directory, matrix, skeleton, options.memory, runner)
            elif resumed_skeleton != skeleton:
                raise InputError(
                    f"{directory} was started with another X: remove it and encode again"
                )
        with _handle_failure(directory, skeleton, resume_command if matrix.stamps else ""):
            if is_resumed and matrix.stamps:  # without stamps all blocks are encoded again
                work.skip_verified(runner)
            try:
                work.measure_long_rows(options.memory, runner)
                results = runner.run(work)
            except MissingValuesError as error:
                # Empty if only another rank's X has the value, or a file has changed.
                reason = summarise_missing(matrix, np.dtype(skeleton.dtype)) or str(error)
                raise NotEncodableError(reason) from None
            check_unchanged(matrix)
            rounding = sum((rounding for _, rounding in results), NO_ROUNDING)
            is_rounded = skeleton.rounded or bool(rounding.count)
            manifest = journal.finish(directory, skeleton, is_rounded)
    magnitude_ratio = max((ratio for ratio, _ in results), default=0.0)
    warn_of_rounding(matrix.name, rounding, manifest.dtype)
    if magnitude_ratio * float(np.finfo(manifest.dtype).eps) > _MAX_ROW_ERROR:
        _warn_of_small_rows(matrix.name, manifest, magnitude_ratio)


def _warn_of_small_rows(name: str, manifest: CodedManifest, magnitude_ratio: float) -> None:
    """Warn of rows that lose digits because much larger rows are encoded with them."""
    advice = "use scaling rows (--scaling rows)"
    if manifest.row_exponents is not None:
        advice = (
            f"the entries of a row differ too much in magnitude to be scaled in {manifest.dtype}"
        )
    warn_caller(
        f"{name} has rows in one code word that differ in magnitude by a factor of "
        f"{magnitude_ratio:.0e}, so the smaller ones lose most or all of their digits: {advice}",
        ScaleWarning,
    )


def _make_skeleton(matrix: Source, options: EncodeOptions) -> CodedManifest:
    """Return the manifest of a new store, without checksums."""
    rows, columns = matrix.shape
    machines, recovery = options.machines, options.recovery
    assert recovery is not None
    dtype = store_dtype(options.dtype, matrix.dtype)
    code = make_code(
        machines,
        recovery,
        options.code,
        systematic=options.systematic,
        seed=options.seed,
        dtype=dtype,
    )
    code.check_precision(dtype)
    shard_rows = rows_per_shard(rows, recovery)
    blocks_at_once = machines + recovery
    return CodedManifest.create(
        code,
        make_grid(shard_rows, columns, dtype.itemsize, blocks_at_once, options.block_bytes),
        rows,
        dtype.name,
        rounded=not is_lossless_cast(matrix.dtype, dtype),
        row_exponents=ArrayEntry(ROW_EXPONENTS) if options.scales_rows else None,
        column_names=matrix.column_names,
        missing=matrix.missing,
    )


@contextmanager
def _handle_failure(
    directory: Path, skeleton: CodedManifest, resume_command: str
) -> Iterator[None]:
    """On errors, remove a store that cannot be resumed, or add the command that resumes it.

    If `resume_command` is empty, the store cannot be resumed.
    """
    try:
        yield
    except BaseException as error:
        is_unresumable = not resume_command or isinstance(error, NotEncodableError)
        if is_unresumable and not (directory / MANIFEST).exists():
            journal.discard(directory, skeleton)
        if is_unresumable or not isinstance(error, CecError | OSError):
            raise
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"{directory} cannot be written: {reason_of(error)}"
        raise InputError(
            f"{reason}; {directory} is incomplete, resume with: {resume_command}"
        ) from None
