"""X to coded shards, block by block, so that a crash loses at most what was in work."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cec_mpi.core.mds import make_code
from cec_mpi.core.sensitivity import measure_sensitivity
from cec_mpi.errors import CecError, InputError
from cec_mpi.store import journal
from cec_mpi.store.encoding import Encoding, NotEncodable
from cec_mpi.store.files import locked
from cec_mpi.store.grid import make_grid
from cec_mpi.store.manifest import (
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
from cec_mpi.store.manifest_file import read_manifest
from cec_mpi.store.sources import Source, open_source
from cec_mpi.store.work import MEMORY, LocalRunner, Runner

__all__ = ["encode"]


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
        A code family or ``"auto"``; see `cec_mpi.core.mds.make_code`.
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
    }
    target = Path(store)
    again = _command(source, target, arguments)
    found = target.exists() or target.is_symlink()
    if found and not resume:
        _refuse_existing(target, again)
    if found and not target.is_dir():
        raise InputError(f"{target} is no directory: there is nothing to resume")
    found = found and any(target.iterdir())
    if not target.absolute().parent.is_dir():
        raise InputError(f"{target.absolute().parent} is not a directory: cannot make {target}")
    matrix = open_source(source, shape, input_dtype or (dtype if shape else None))
    if found and (target / MANIFEST).exists():
        journal.check_same(target, matrix, arguments)
        return read_manifest(target)
    try:
        if not found:
            skeleton = _skeleton(matrix, machines, recovery, code, systematic, seed, dtype)
            if matrix.warning:
                size = skeleton.shard_bytes * machines
                warnings.warn(matrix.warning.replace("{bytes}", str(size)), stacklevel=2)
            encoding = Encoding(target, matrix, skeleton, memory, runner)
            journal.begin(target, skeleton, matrix, arguments, again)
        with locked(target, f"{target} is being written by another process"):
            if found:
                skeleton = journal.go_on(target, matrix, arguments)
                encoding = Encoding(target, matrix, skeleton, memory, runner)
            with _explaining(target, skeleton, again):
                if found:
                    encoding.skip_what_is_good(runner)
                runner.run(encoding)
                return journal.finish(target, skeleton)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from None
    except (KeyboardInterrupt, SystemExit) as error:
        if (target / INCOMPLETE).exists() and not (target / MANIFEST).exists():
            error.add_note(f"{target} is incomplete, resume with: {again}")
        raise


def _command(source: Any, target: Path, arguments: dict[str, Any]) -> str:
    words = ["cec-mpi", "encode", os.fspath(source), str(target)]
    for name, value in arguments.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value and value != "auto":
            words += [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return shlex.join([*words, "--resume"])


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
