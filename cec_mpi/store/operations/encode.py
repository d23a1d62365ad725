"""X to coded shards, block by block, so that a crash loses at most what was in work."""

from __future__ import annotations

import csv
import io
import os
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cec_mpi.core.accuracy.sensitivity import measure_sensitivity
from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import CecError, InputError
from cec_mpi.files.appearing import check_new
from cec_mpi.files.durable import locked
from cec_mpi.store.format.grid import make_grid
from cec_mpi.store.format.manifest import (
    INCOMPLETE,
    MANIFEST,
    Manifest,
    ShardEntry,
    checksums_name,
    rows_per_shard,
    shard_header,
    shard_name,
    store_dtype,
)
from cec_mpi.store.format.manifest_file import read_manifest
from cec_mpi.store.operations import journal
from cec_mpi.store.operations.encoding import Encoding, NotEncodable
from cec_mpi.store.operations.targets import publishing_targets
from cec_mpi.store.sources import Source, TableSource, open_source, table_options
from cec_mpi.store.work import MEMORY, LocalRunner, Runner

_DELIMITER_NAMES = {"\t": "tab", " ": "space"}


def encode(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    machines: int,
    recovery: int,
    *,
    code: str = "auto",
    systematic: bool = False,
    seed: int = 0,
    dtype: str | None = None,
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
    """Encode a matrix into a new store.

    Parameters
    ----------
    source : path
        X, two-dimensional and real, in a format of `cec_mpi.store.sources.open_source`.
    store : path
        The directory to make. Until all is on disk it says that it is incomplete.
    machines, recovery : int
        N shards, any L of which give X back.
    code : str
        A code family or ``"auto"``; see `cec_mpi.core.code.mds.make_code`.
    systematic : bool
        The first L shards are plain rows of X.
    seed : int
        For the random code families.
    dtype : {"float32", "float64"}, optional
        Of the shards; by default float32 for floats of 32 bits and less, else float64.
    shape : (int, int), optional
        The source is raw binary of this shape.
    input_dtype : str, optional
        Of raw binary, by default `dtype`.
    header : bool, optional
        Of a text table: whether its first row has the names of its columns. By default it
        has when none of its cells is a number; a row of both is refused.
    delimiter : str, optional
        Of a text table: one character, or ``"tab"``, ``"semicolon"``, ``"space"`` (any white
        space). By default a comma, in ``.tsv`` a tab.
    columns, drop : sequence of str or int, optional
        Of a text table: the columns that are X, in this order (by default all), and those that
        are not. By their names, or as in a spreadsheet by their numbers from 1.
    target : mapping of str or int to path, optional
        Of a text table: columns that are not X, and the ``.npy`` files that they go to, as y
        of the tasks `ridge` and `logistic`. The files appear with the store.
    memory : int
        Bytes that each process may take above the bare interpreter.
    resume : bool
        Go on where an interrupted encode with the same arguments stopped, if there is one;
        when it came to its end, nothing is left to do.
    runner : Runner, optional
        Who does the work; by default the threads of this process. The bytes of the store
        do not depend on it.

    Returns
    -------
    Manifest

    Raises
    ------
    InputError
        The source is not such a matrix or holds NaN or infinity, the store exists, the
        code would lose all digits, or there is no room.
    """
    runner = runner or LocalRunner()
    arguments = {
        "machines": machines,
        "recovery": recovery,
        "code": code,
        "systematic": systematic,
        "seed": seed,
        "dtype": dtype,
        "shape": None if shape is None else list(shape),
        "input_dtype": input_dtype,
        "header": None if header is None else ("yes" if header else "no"),
        "delimiter": _DELIMITER_NAMES.get(delimiter or "", delimiter),
        "columns": list(map(str, columns or ())) or None,
        "drop": list(map(str, drop or ())) or None,
        "target": [f"{name}:{os.fspath(file)}" for name, file in (target or {}).items()] or None,
    }
    table = table_options(header, delimiter, columns, drop, target)
    directory = Path(store)
    again = _command(source, directory, arguments)
    found = directory.exists() or directory.is_symlink()
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
    matrix = open_source(source, shape, input_dtype or (dtype if shape else None), table)
    if found and (directory / MANIFEST).exists():
        journal.check_same(directory, matrix, arguments)
        if not all(file.exists() for _, file in table.targets):
            with publishing_targets(matrix, memory, runner, again=True):
                pass
        return read_manifest(directory)
    try:
        if not found:
            skeleton = _skeleton(matrix, machines, recovery, code, systematic, seed, dtype)
            if matrix.warning:
                size = skeleton.shard_bytes * machines
                warnings.warn(matrix.warning.replace("{bytes}", str(size)), stacklevel=2)
            encoding = Encoding(directory, matrix, skeleton, memory, runner)
            journal.begin(directory, skeleton, matrix, arguments, again)
        with locked(directory, f"{directory} is being written by another process"):
            if found:
                skeleton = journal.go_on(directory, matrix, arguments)
                encoding = Encoding(directory, matrix, skeleton, memory, runner)
            with _explaining(directory, skeleton, again):
                with publishing_targets(matrix, memory, runner, again=found):
                    if found:
                        encoding.skip_what_is_good(runner)
                    runner.run(encoding)
                return journal.finish(directory, skeleton)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error.strerror or error}") from None
    except (KeyboardInterrupt, SystemExit) as error:
        if (directory / INCOMPLETE).exists() and not (directory / MANIFEST).exists():
            error.add_note(f"{directory} is incomplete, resume with: {again}")
        raise


def _command(source: Any, target: Path, arguments: dict[str, Any]) -> str:
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
        code=code,
        grid=make_grid(per_shard, columns, kind.itemsize, machines + recovery),
        header=header,
        checksums=checksums_name(1),
        shards=tuple(ShardEntry(shard_name(n), size, "") for n in range(1, machines + 1)),
        sensitivity=measure_sensitivity(
            code.generator, kind, columns, code.conditioning.worst_machines
        ),
        column_names=matrix.column_names if isinstance(matrix, TableSource) else (),
    )


@contextmanager
def _explaining(target: Path, skeleton: Manifest, again: str) -> Iterator[None]:
    """Leave nothing of a store that can never be, and say how to go on with one that can."""
    try:
        yield
    except NotEncodable:
        journal.discard(target, skeleton)
        raise
    except (CecError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{reason}; {target} is incomplete, resume with: {again}") from None
