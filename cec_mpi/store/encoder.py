"""X on disk to coded shards on disk, a few rows of every part at a time."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cec_mpi
from cec_mpi.core.mds import MDSCode, make_code
from cec_mpi.errors import InputError
from cec_mpi.store.arrays import open_npy
from cec_mpi.store.manifest import (
    MANIFEST,
    Manifest,
    ShardEntry,
    rows_per_shard,
    shard_name,
    store_dtype,
)

__all__ = ["HEAD_BYTES", "encode"]

HEAD_BYTES = 1 << 16  # what the head checksum covers
_MEMORY = 256 << 20  # bytes for the rows that are encoded at a time


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
) -> Manifest:
    """Encode a matrix into a new store.

    Parameters
    ----------
    source : path
        X, a two-dimensional ``.npy`` file of real numbers, of any size: it is
        memory-mapped.
    store : path
        The directory to make. It appears under this name when all is on disk.
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

    Returns
    -------
    Manifest

    Raises
    ------
    InputError
        The source is not such a file or holds NaN or infinity, the store exists, or the
        code would lose all digits.
    """
    source, target = Path(source), Path(store)
    if target.exists() or target.is_symlink():
        raise InputError(f"{target} exists: give the store a new name")
    if not target.absolute().parent.is_dir():
        raise InputError(f"{target.absolute().parent} is not a directory: cannot make {target}")
    matrix = open_npy(source)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"{source} has shape {matrix.shape}: expected (q, r), both at least 1")
    kind = store_dtype(dtype, matrix.dtype)
    generator = make_code(machines, recovery, code, systematic=systematic, seed=seed, dtype=kind)
    generator.check_precision(kind)
    try:
        with _new_directory(target) as directory:
            shards = _write_shards(matrix, generator, kind, directory, source)
            manifest = Manifest(
                rows=matrix.shape[0],
                columns=matrix.shape[1],
                rows_per_shard=rows_per_shard(matrix.shape[0], recovery),
                dtype=kind.name,
                code=generator,
                shards=shards,
            )
            text = manifest.to_json(f"cec_mpi {cec_mpi.__version__}")
            _write_synced(directory / MANIFEST, text.encode())
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from None
    return manifest


@contextmanager
def _new_directory(target: Path) -> Iterator[Path]:
    """A directory beside `target` that takes its name on success and goes on failure."""
    partial = target.absolute().with_name(f".{target.absolute().name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        yield partial
        _sync(partial)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _sync(target.absolute().parent)


def _write_shards(
    matrix: NDArray[Any], code: MDSCode, dtype: np.dtype[Any], directory: Path, source: Path
) -> tuple[ShardEntry, ...]:
    rows, columns = matrix.shape
    per_shard = rows_per_shard(rows, code.recovery)
    files = [_ShardFile(directory / shard_name(n + 1)) for n in range(code.machines)]
    for file in files:
        file.start((per_shard, columns), dtype)
    row_bytes = (code.recovery + code.machines) * columns * dtype.itemsize
    step = max(1, min(per_shard, _MEMORY // row_bytes))
    parts = coded = np.empty((0, 0, 0), dtype)
    for start in range(0, per_shard, step):
        size = min(step, per_shard - start)
        if size != parts.shape[1]:
            del parts, coded  # before there are new ones: they are most of the memory
            parts = np.empty((code.recovery, size, columns), dtype)
            coded = np.empty((code.machines, size, columns), dtype)
        for part, block in enumerate(parts):
            first = part * per_shard + start
            _read_rows(matrix, first, block, source)
        with np.errstate(over="ignore", invalid="ignore"):
            code.encode(parts, coded)
        if not np.isfinite(coded).all():
            raise InputError(f"{source} holds numbers too large to be encoded in {dtype}")
        for file, block in zip(files, coded, strict=True):
            file.append(block)
    return tuple(file.finish() for file in files)


def _read_rows(matrix: NDArray[Any], first: int, block: NDArray[Any], source: Path) -> None:
    """Fill `block` with the rows from `first` on, and with zeros where X has ended."""
    found = matrix[first : first + len(block)]
    with np.errstate(over="ignore"):
        block[: len(found)] = found
    block[len(found) :] = 0
    finite = np.isfinite(block[: len(found)])
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        raise InputError(
            f"{source} holds {found[row, column]} at row {first + row}, column {column} "
            f"(counted from 0): expected finite numbers that fit {block.dtype}"
        )


class _ShardFile:
    """One ``.npy`` file that grows by rows, with its checksums."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.sum = hashlib.sha256()
        self.head = b""

    def start(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": shape,
        }
        with self.path.open("xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
        self._count(self.path.read_bytes())

    def append(self, rows: NDArray[Any]) -> None:
        # Opened anew each time: a store can have more shards than a process may have files.
        data = rows.data.cast("B")
        with self.path.open("ab", buffering=0) as file:
            written = 0
            while written < len(data):
                written += file.write(data[written:])
        self._count(data)

    def finish(self) -> ShardEntry:
        _sync(self.path)
        head = hashlib.sha256(self.head).hexdigest()
        return ShardEntry(self.path.name, self.size, self.sum.hexdigest(), head)

    def _count(self, data: bytes | memoryview) -> None:
        self.sum.update(data)
        self.head += bytes(data[: HEAD_BYTES - len(self.head)])
        self.size += len(data)


def _write_synced(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
