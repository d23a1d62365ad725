"""X to coded shards, block by block, so that a crash loses at most what was in work."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.mds import make_code
from cec_mpi.errors import CecError, InputError, StoreError
from cec_mpi.store.checksums import block_sum, publish_checksums, row_sum
from cec_mpi.store.files import WriteHandles, locked, publish, read_at, sync
from cec_mpi.store.grid import Block, Rectangle, make_grid
from cec_mpi.store.manifest import (
    INCOMPLETE,
    INCOMPLETE_MANIFEST,
    INCOMPLETE_SUMS,
    JOURNAL,
    MANIFEST,
    Manifest,
    ShardEntry,
    checksums_name,
    parse_manifest,
    publish_manifest,
    remove_journal,
    rows_per_shard,
    shard_header,
    shard_name,
    store_dtype,
)
from cec_mpi.store.sources import Source, open_source
from cec_mpi.store.work import MEMORY, LocalRunner, PerThread, Runner, fit_memory

__all__ = ["encode"]

_PIECES_PER_THREAD = 4
_MOST_UNSYNCED = 256 << 20  # bytes; more would make the last sync long, and a resume too


class _NotEncodable(InputError):
    """No store can be made of this X."""


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
        Go on where an interrupted encode with the same arguments stopped, if there is one.
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
    if not target.absolute().parent.is_dir():
        raise InputError(f"{target.absolute().parent} is not a directory: cannot make {target}")
    matrix = open_source(source, shape, input_dtype or (dtype if shape else None))
    try:
        if not found:
            skeleton = _skeleton(matrix, machines, recovery, code, systematic, seed, dtype)
            if matrix.warning:
                size = skeleton.shard_bytes * machines
                warnings.warn(matrix.warning.replace("{bytes}", str(size)), stacklevel=2)
            encoding = _Encoding(target, matrix, skeleton, memory, runner)
            _begin(target, skeleton, matrix, arguments, again)
        with locked(target, f"{target} is being written by another process"):
            if found:
                if (target / MANIFEST).exists():
                    remove_journal(target)  # if it was stopped between the two
                    raise InputError(f"{target} is complete: there is nothing to resume")
                skeleton = _continue(target, matrix, arguments)
                encoding = _Encoding(target, matrix, skeleton, memory, runner)
            with _explaining(target, skeleton, again):
                if found:
                    encoding.skip_what_is_good(runner)
                runner.run(encoding)
                return _finish(target, skeleton)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from None


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
    )


def _begin(
    target: Path, skeleton: Manifest, matrix: Source, arguments: dict[str, Any], again: str
) -> None:
    """Make the directory with all that a resume needs; it appears at once."""
    parent = target.absolute().parent
    needed = skeleton.shard_bytes * skeleton.code.machines
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise InputError(f"{target} needs {needed} bytes, and {parent} has {free} bytes free")
    new = parent / f".{target.name}.new-{os.getpid()}"
    new.mkdir()
    try:
        header = skeleton.header.encode("latin-1")
        for shard in skeleton.shards:
            with (new / shard.file).open("xb") as file:
                file.write(header)
                file.truncate(skeleton.shard_bytes)
        with (new / INCOMPLETE_SUMS).open("xb") as file:
            file.truncate(8 * skeleton.code.machines * skeleton.grid.count)
        publish(new / INCOMPLETE_MANIFEST, skeleton.to_json().encode())
        journal = {
            "what": "an interrupted encode, or one that is going on",
            "resume_with": again,
            "arguments": arguments,
            "source": list(matrix.stamps),
        }
        publish(new / INCOMPLETE, json.dumps(journal, indent=2).encode())
        new.rename(target)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    sync(parent)


def _continue(target: Path, matrix: Source, arguments: dict[str, Any]) -> Manifest:
    """The skeleton of an encode that has begun, if it is one of this X and these arguments."""
    try:
        journal = json.loads((target / INCOMPLETE).read_text(encoding="utf-8"))
        begun, stamps = dict(journal["arguments"]), list(journal["source"])
        skeleton = parse_manifest(target / INCOMPLETE_MANIFEST)
    except FileNotFoundError:
        raise InputError(f"{target} exists, and is no store that an encode began") from None
    except (StoreError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{target} cannot be resumed, its journal is damaged: remove it") from None
    for name, value in arguments.items():
        if begun.get(name) != value:
            raise InputError(
                f"{target} was begun with {name} {begun.get(name)}, not {value}: "
                "give the same arguments, or remove it"
            )
    if stamps != list(matrix.stamps) or matrix.shape != (skeleton.rows, skeleton.columns):
        raise InputError(
            f"{matrix.name} has changed since {target} was begun: remove {target} and encode anew"
        )
    return skeleton


@contextmanager
def _explaining(target: Path, skeleton: Manifest, again: str) -> Iterator[None]:
    """Leave nothing of a store that can never be, and say how to go on with one that can."""
    try:
        yield
    except _NotEncodable:
        _discard(target, skeleton)
        raise
    except (CecError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{reason}; {target} is incomplete, resume with: {again}") from None
    except BaseException as error:
        error.add_note(f"{target} is incomplete, resume with: {again}")
        raise


def _discard(target: Path, skeleton: Manifest) -> None:
    names = [shard.file for shard in skeleton.shards]
    for name in (*names, *JOURNAL, ".lock"):
        (target / name).unlink(missing_ok=True)
    with suppress(OSError):  # files that are not ours stay, and the directory with them
        target.rmdir()


def _finish(target: Path, skeleton: Manifest) -> Manifest:
    """All blocks are on the disk: write their checksums, and the manifest last."""
    machines = skeleton.code.machines
    sums = np.fromfile(target / INCOMPLETE_SUMS, "<u8").reshape(-1, machines).T
    shards = tuple(
        ShardEntry(shard_name(n), skeleton.shard_bytes, row_sum(row))
        for n, row in enumerate(sums, start=1)
    )
    manifest = replace(skeleton, shards=shards)
    sync(target)
    publish_checksums(target, manifest.checksums, sums)
    publish_manifest(target, manifest)
    return manifest


@dataclass
class _Encoding:
    """The work of encoding: reads X, multiplies, writes shards, one rectangle at a time."""

    directory: Path
    source: Source
    manifest: Manifest
    memory: int
    runner: Any = field(repr=False)
    pieces: list[Rectangle] = field(init=False)
    threads: int = field(init=False)

    def __post_init__(self) -> None:
        code, grid, itemsize = self.manifest.code, self.manifest.grid, self.manifest.itemsize
        block = grid.block_rows * grid.block_columns * itemsize
        workers = self.runner.threads * self.runner.processes * _PIECES_PER_THREAD
        self.threads, size = fit_memory(
            self.memory,
            self.runner.threads,
            arrays=code.recovery + self.source.copies,
            fixed=(code.recovery + code.machines + 1) * block,
            least=block,
            share=grid.rows * grid.columns * itemsize // workers,
        )
        self.pieces = grid.rectangles(size // itemsize)
        self._good = np.zeros(grid.count, dtype=bool)
        self._largest_safe = float(np.finfo(self.manifest.dtype).max) / (
            2 * float(np.abs(code.generator).sum(axis=1).max())
        )
        self.runner = None  # stays in this process
        self._buffers = PerThread()
        self._unsynced = 0  # bytes, roughly: threads do not wait for each other to count

    def skip_what_is_good(self, runner: Runner) -> None:
        """Leave out the blocks that an earlier process has written, and that are as it did."""
        checking = _Checking(self.directory, self.manifest, list(self.pieces), self.threads)
        for good in runner.run(checking):
            self._good[good] = True
        grid = self.manifest.grid
        self.pieces = [
            piece
            for piece in self.pieces
            if not all(self._good[block.number] for block in grid.blocks(piece))
        ]

    def size(self, piece: Rectangle) -> int:
        """Bytes of the shards that are written."""
        numbers = sum(block.size for block in self.manifest.grid.blocks(piece))
        return numbers * self.manifest.itemsize * self.manifest.code.machines

    def do(self, piece: Rectangle) -> None:
        """Encode the blocks of a rectangle."""
        blocks = list(self.manifest.grid.blocks(piece))
        parts = self._read(blocks)
        top = blocks[0].start
        try:
            with WriteHandles(self.directory) as files:
                for block in blocks:
                    if not self._good[block.number]:
                        rows = slice(block.start - top, block.stop - top)
                        self._encode(block, parts[:, rows], files)
        except OSError as error:
            raise InputError(f"{self.directory} cannot be written: {error.strerror}") from None
        self._unsynced += self.size(piece)
        if self._unsynced > _MOST_UNSYNCED:
            self._unsynced = 0
            self.flush()

    def flush(self) -> None:
        """Have all shards on the disk, and then what says which blocks they hold."""
        try:
            for shard in self.manifest.shards:
                sync(self.directory / shard.file)
            sync(self.directory / INCOMPLETE_SUMS)
        except OSError as error:
            raise InputError(f"{self.directory} cannot be written: {error.strerror}") from None

    def _read(self, blocks: list[Block]) -> NDArray[Any]:
        """The rows of all parts of X, with zeros where X has ended: (L, rows, columns)."""
        start, stop, left, right = blocks[0].start, blocks[-1].stop, blocks[0].left, blocks[0].right
        recovery = self.manifest.code.recovery
        shape = (recovery, stop - start, right - left)
        parts = self._array("parts", recovery * (stop - start) * (right - left)).reshape(shape)
        for part, rows in enumerate(parts):
            first = min(part * self.manifest.grid.rows + start, self.manifest.rows)
            end = min(first + len(rows), self.manifest.rows)
            if first < end:
                try:
                    self.source.read(first, end, left, right, rows[: end - first])
                except OSError as error:
                    reason = error.strerror or error
                    raise InputError(f"{self.source.name} cannot be read: {reason}") from None
                except InputError as error:
                    raise _NotEncodable(str(error)) from None
            rows[end - first :] = 0
        return parts

    def _encode(self, block: Block, parts: NDArray[Any], files: WriteHandles) -> None:
        code = self.manifest.code
        # Contiguous and of the same shape every time: BLAS may round by layout too.
        plain = self._array("plain", code.recovery * block.size).reshape(parts.shape)
        plain[...] = parts
        largest = max(float(plain.max()), -float(plain.min()))  # NaN comes through both
        if not np.isfinite(largest):
            raise self._not_finite(block, plain)
        coded = self._array("coded", code.machines * block.size).reshape(code.machines, block.size)
        with np.errstate(over="ignore", invalid="ignore"):
            code.encode(plain, coded)
        if largest > self._largest_safe and not np.isfinite(coded).all():
            raise _NotEncodable(
                f"{self.source.name} holds numbers too large to be encoded in {self.manifest.dtype}"
            )
        place = len(self.manifest.header) + block.offset * self.manifest.itemsize
        for shard, rows in zip(self.manifest.shards, coded, strict=True):
            files.write(shard.file, rows, place)
        sums = np.array([block_sum(rows) for rows in coded], "<u8")
        files.write(INCOMPLETE_SUMS, sums, 8 * code.machines * block.number)

    def _not_finite(self, block: Block, parts: NDArray[Any]) -> _NotEncodable:
        part, row, column = np.argwhere(~np.isfinite(parts))[0].tolist()
        row += part * self.manifest.grid.rows + block.start
        column += block.left
        entry = np.empty((1, 1), self.source.dtype)
        self.source.read(row, row + 1, column, column + 1, entry)
        return _NotEncodable(
            f"{self.source.name} holds {entry[0, 0]} at row {row}, column {column} "
            f"(counted from 0): expected finite numbers that fit {self.manifest.dtype}"
        )

    def _array(self, name: str, numbers: int) -> NDArray[Any]:
        """Numbers that this thread keeps from piece to piece."""
        array: NDArray[Any] | None = getattr(self._buffers, name, None)
        if array is None or array.size < numbers:
            setattr(self._buffers, name, None)  # before there is a new one
            array = np.empty(numbers, self.manifest.dtype)
            setattr(self._buffers, name, array)
        return array[:numbers]


@dataclass
class _Checking:
    """The work of a resume: which blocks are on the disk as they were written."""

    directory: Path
    manifest: Manifest
    pieces: list[Rectangle]
    threads: int

    def size(self, piece: Rectangle) -> int:
        """Bytes of the shards that are read."""
        numbers = sum(block.size for block in self.manifest.grid.blocks(piece))
        return numbers * self.manifest.itemsize * self.manifest.code.machines

    def do(self, piece: Rectangle) -> list[int]:
        """Numbers of the blocks that are good in all shards."""
        machines, header = self.manifest.code.machines, len(self.manifest.header)
        blocks = list(self.manifest.grid.blocks(piece))
        sums = np.fromfile(self.directory / INCOMPLETE_SUMS, "<u8").reshape(-1, machines)
        good = {block.number for block in blocks if sums[block.number].all()}
        for n, shard in enumerate(self.manifest.shards):
            descriptor = os.open(self.directory / shard.file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for block in blocks:
                    if block.number in good:
                        rows = np.empty(block.size, self.manifest.dtype)
                        place = header + block.offset * self.manifest.itemsize
                        read_at(descriptor, rows, place)
                        if block_sum(rows) != sums[block.number, n]:
                            good.remove(block.number)
            finally:
                os.close(descriptor)
        return sorted(good)

    def flush(self) -> None:
        """Nothing was written."""
