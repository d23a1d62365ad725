"""X to coded shards, block by block, so that a crash loses at most what was in work."""

from __future__ import annotations

import csv
import io
import operator
import os
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cec_mpi.core.accuracy.rounding import is_exact
from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import CecError, InputError
from cec_mpi.files.appearing import check_new, is_there
from cec_mpi.files.durable import check_room, locked
from cec_mpi.files.saving import reason_of
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
from cec_mpi.store.making import journal
from cec_mpi.store.making.encoding import Encoding
from cec_mpi.store.making.reading import NotEncodable, check_unchanged
from cec_mpi.store.making.targets import publishing_targets
from cec_mpi.store.sources import (
    ArraySource,
    Source,
    TableOptions,
    open_array,
    open_source,
    table_options,
)
from cec_mpi.store.work import MEMORY, LocalRunner, Runner

SCALINGS = ("rows", "none")
_DELIMITER_NAMES = {"\t": "tab", " ": "space"}


def encode(
    source: Any,
    store: str | os.PathLike[str],
    machines: int,
    recovery: int,
    *,
    code: str = "auto",
    systematic: bool = False,
    seed: int = 0,
    dtype: str | None = None,
    scaling: str | None = None,
    shape: tuple[int, int] | None = None,
    input_dtype: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] | None = None,
    target: Mapping[str | int, str | os.PathLike[str]] | None = None,
    memory: int = MEMORY,
    resume: bool = False,
    runner: Runner | None = None,
) -> Manifest:
    """Encode a matrix into a new store: `cec_mpi.encode`, whoever does the work.

    Parameters
    ----------
    source : path, array or ArraySource
    store, machines, recovery, code, systematic, seed, dtype, scaling, shape, input_dtype, \
header, delimiter, columns, drop, target, memory, resume
        As of `cec_mpi.encode`.
    runner : Runner, optional
        Who does the work; by default the threads of this process. The bytes of the store
        do not depend on it.

    Returns
    -------
    Manifest

    Raises
    ------
    InputError
        As of `cec_mpi.encode`.
    """
    runner = runner or LocalRunner()
    machines, recovery = _whole("machines", machines), _whole("recovery", recovery)
    seed, memory = _whole("seed", seed), _whole("memory", memory)
    arguments = {
        "machines": machines,
        "recovery": recovery,
        "code": code,
        "systematic": systematic,
        "seed": seed,
        "dtype": dtype,
        "scaling": scaling,
        "shape": None if shape is None else list(shape),
        "input_dtype": input_dtype,
        "header": None if header is None else ("yes" if header else "no"),
        "delimiter": _DELIMITER_NAMES.get(delimiter or "", delimiter),
        "columns": list(map(str, columns or ())) or None,
        "drop": list(map(str, drop or ())) or None,
        "target": [f"{name}:{os.fspath(file)}" for name, file in (target or {}).items()] or None,
    }
    if scaling not in (None, *SCALINGS):
        raise InputError(f"scaling {scaling!r}: expected one of {', '.join(SCALINGS)}")
    scales = scaling == "rows" or (scaling is None and not systematic)
    table = table_options(header, delimiter, columns, drop, target)
    directory = Path(store)
    again = _command(source, directory, arguments)
    found = is_there(directory)
    if found and not resume:
        _refuse_existing(directory, again)
    if found and not directory.is_dir():
        raise InputError(f"{directory} is no directory: there is nothing to resume")
    found = found and any(directory.iterdir())
    if not directory.absolute().parent.is_dir():
        raise InputError(
            f"{directory.absolute().parent} is not a directory: cannot make {directory}"
        )
    if not found:
        for _, file in table.targets:
            check_new(file)
    if isinstance(source, str | os.PathLike):
        matrix = open_source(source, shape, input_dtype or (dtype if shape else None), table)
    else:
        matrix = _opened(source, shape, input_dtype, table, memory, recovery)
    if found and (directory / MANIFEST).exists():
        if not matrix.stamps:
            raise InputError(
                f"{directory} is complete, and nothing says whether it was made of "
                f"{matrix.name} as it is now: give the store a new name"
            )
        journal.check_same(directory, matrix, arguments)
        if not all(file.exists() for _, file in table.targets):
            with publishing_targets(matrix, memory, runner, again=True):
                check_unchanged(matrix)
        return read_manifest(directory)
    try:
        if not found or not matrix.stamps:
            skeleton = _skeleton(matrix, machines, recovery, code, systematic, seed, dtype, scales)
            check_room(directory, skeleton.shard_bytes * machines)  # before its blocks are listed
            encoding = Encoding(directory, matrix, skeleton, memory, runner)
        if not found:
            if matrix.warning:
                size = skeleton.shard_bytes * machines
                warnings.warn(matrix.warning.replace("{bytes}", str(size)), stacklevel=3)
            journal.begin(directory, skeleton, matrix, arguments, again)
        with locked(directory, f"{directory} is being written by another process"):
            if found:
                begun = journal.go_on(directory, matrix, arguments)
                if matrix.stamps:
                    skeleton = begun
                    encoding = Encoding(directory, matrix, skeleton, memory, runner)
                elif begun.to_json() != skeleton.to_json():
                    raise InputError(f"{directory} was begun with another X: remove it")
            with _explaining(directory, skeleton, again if matrix.stamps else ""):
                with publishing_targets(matrix, memory, runner, again=found):
                    if found and matrix.stamps:  # else all is done anew
                        encoding.skip_what_is_good(runner)
                    encoding.measure(runner)
                    runner.run(encoding)
                    check_unchanged(matrix)
                return journal.finish(directory, skeleton)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error.strerror or error}") from None
    except (KeyboardInterrupt, SystemExit) as error:
        if (directory / INCOMPLETE).exists() and not (directory / MANIFEST).exists():
            error.add_note(f"{directory} is incomplete, resume with: {again}")
        raise


def _whole(name: str, value: Any) -> int:
    """A whole number of any kind, NumPy's too, as one of Python's."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} {value!r}: expected a whole number") from None


def _opened(
    source: Any,
    shape: tuple[int, int] | None,
    input_dtype: str | None,
    table: TableOptions,
    memory: int,
    recovery: int,
) -> Source:
    """An array as a source, if it is none yet."""
    matrix = source if isinstance(source, ArraySource) else open_array(source, memory, recovery)
    given = {"shape": shape, "input_dtype": input_dtype, table.given: table.given}
    for name, value in given.items():
        if value:
            raise InputError(
                f"{name} is for files: {matrix.name} is a matrix of {matrix.dtype} already, of "
                "which slices and columns are taken beforehand"
            )
    return matrix


def _command(source: Any, target: Path, arguments: dict[str, Any]) -> str:
    if not isinstance(source, str | os.PathLike):
        given = {name: value for name, value in arguments.items() if value and value != "auto"}
        words = [f"{name}={value!r}" for name, value in (given | {"resume": True}).items()]
        return f"cec_mpi.encode(X, {str(target)!r}, {', '.join(words)})"
    words = ["cec-mpi", "encode", os.fspath(source), str(target)]
    for name, value in arguments.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif name == "target" and value:
            words += [word for each in value for word in (option, each)]
        elif value and value != "auto":
            words += [option, _listed(value) if isinstance(value, list) else str(value)]
    return shlex.join([*words, "--resume"])


def _listed(values: list[object]) -> str:
    """Values with commas between them, in quotes where they have commas of their own."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def _refuse_existing(target: Path, again: str) -> None:
    if (target / INCOMPLETE).exists() and not (target / MANIFEST).exists():
        raise InputError(f"{target} exists and is incomplete: remove it, or go on with: {again}")
    raise InputError(f"{target} exists: give the store a new name")


def _skeleton(
    matrix: Source,
    machines: int,
    recovery: int,
    family: str,
    systematic: bool,
    seed: int,
    dtype: str | None,
    scales: bool,
) -> Manifest:
    """The manifest of a store whose shards have no checksums yet."""
    rows, columns = matrix.shape
    kind = store_dtype(dtype, matrix.dtype)
    code = make_code(machines, recovery, family, systematic=systematic, seed=seed, dtype=kind)
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
        row_exponents=ArrayEntry(ROW_EXPONENTS) if scales else None,
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
