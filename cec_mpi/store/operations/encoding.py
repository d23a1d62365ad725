"""The work of encoding: X read, multiplied and written, a rectangle of blocks at a time."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.files.durable import WriteHandles
from cec_mpi.files.replacing import sync
from cec_mpi.files.saving import storing
from cec_mpi.store.format.checksums import block_sum
from cec_mpi.store.format.grid import Block, Rectangle
from cec_mpi.store.format.manifest import INCOMPLETE_SUMS, Manifest
from cec_mpi.store.operations.journal import read_sums
from cec_mpi.store.rebuilding import Blocks
from cec_mpi.store.sources import Source
from cec_mpi.store.work import PerThread, Runner, fit_memory

_PIECES_PER_THREAD = 4
_MOST_UNSYNCED = 256 << 20  # bytes; more would make the last sync long, and a resume too


class NotEncodable(InputError):
    """No store can be made of this X."""


def read_source(
    source: Source, start: int, stop: int, left: int, right: int, out: NDArray[Any]
) -> None:
    """As `Source.read`; with bad input it is `NotEncodable`."""
    try:
        source.read(start, stop, left, right, out)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{source.name} cannot be read: {reason}") from None
    except InputError as error:
        raise NotEncodable(str(error)) from error.__cause__  # what a program's own array raised


@dataclass
class Encoding:
    """The work of encoding: reads X, multiplies, writes shards, one rectangle at a time."""

    directory: Path
    source: Source
    manifest: Manifest
    memory: int
    runner: InitVar[Runner]
    pieces: list[Rectangle] = field(init=False)
    threads: int = field(init=False)

    def __post_init__(self, runner: Runner) -> None:
        code, grid, itemsize = self.manifest.code, self.manifest.grid, self.manifest.itemsize
        block = grid.block_rows * grid.block_columns * itemsize
        workers = runner.threads * runner.processes * _PIECES_PER_THREAD
        self.threads, size = fit_memory(
            self.memory,
            runner.threads,
            arrays=code.recovery + self.source.copies,
            fixed=(code.recovery + code.machines + 1) * block,
            least=block,
            share=grid.rows * grid.columns * itemsize // workers,
            held=self.source.held,
        )
        self.pieces = grid.rectangles(size // itemsize)
        self._good = np.zeros(grid.count, dtype=bool)
        self._largest_safe = float(np.finfo(self.manifest.dtype).max) / (
            2 * float(np.abs(code.generator).sum(axis=1).max())
        )
        self._buffers = PerThread()
        self._unsynced = 0  # bytes, roughly: threads do not wait for each other to count

    def skip_what_is_good(self, runner: Runner) -> None:
        """Leave out the blocks that an earlier process has written, and that are as it did."""
        sums = read_sums(self.directory, self.manifest)
        blocks = Blocks(self.directory, self.manifest, sums)
        checking = Checking(blocks, list(self.pieces), self.threads)
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
        return self.manifest.size_of(self.manifest.grid.blocks(piece))

    def do(self, piece: Rectangle) -> None:
        """Encode the blocks of a rectangle."""
        blocks = list(self.manifest.grid.blocks(piece))
        parts = self._read(blocks)
        top = blocks[0].start
        with storing(self.directory), WriteHandles(self.directory) as files:
            for block in blocks:
                if not self._good[block.number]:
                    rows = slice(block.start - top, block.stop - top)
                    self._encode(block, parts[:, rows], files)
        self._unsynced += self.size(piece)
        if self._unsynced > _MOST_UNSYNCED:
            self._unsynced = 0
            self.flush()

    def flush(self) -> None:
        """Have all shards on the disk, and then what says which blocks they hold."""
        with storing(self.directory):
            for name in (*(shard.file for shard in self.manifest.shards), INCOMPLETE_SUMS):
                sync(self.directory / name)

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
                read_source(self.source, first, end, left, right, rows[: end - first])
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
            raise NotEncodable(
                f"{self.source.name} holds numbers too large to be encoded in {self.manifest.dtype}"
            )
        place = self.manifest.place(block.offset)
        for shard, rows in zip(self.manifest.shards, coded, strict=True):
            files.write(shard.file, rows, place)
        sums = np.array([block_sum(rows) for rows in coded], "<u8")
        files.write(INCOMPLETE_SUMS, sums, 8 * code.machines * block.number)

    def _not_finite(self, block: Block, parts: NDArray[Any]) -> NotEncodable:
        part, row, column = np.argwhere(~np.isfinite(parts))[0].tolist()
        found = parts[part, row, column]
        row += part * self.manifest.grid.rows + block.start
        column += block.left
        entry = np.empty((1, 1), self.source.dtype)
        read_source(self.source, row, row + 1, column, column + 1, entry)
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(entry.astype(found.dtype)).all():  # else it was changed meanwhile
                found = entry[0, 0]  # as it is written there: too large, perhaps
        return NotEncodable(
            f"{self.source.name} holds {found} at {self.source.where(row, column)}: "
            f"expected finite numbers that fit {self.manifest.dtype}"
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
class Checking:
    """The work of a resume: which blocks are on the disk as they were written."""

    blocks: Blocks
    pieces: list[Rectangle]
    threads: int

    def size(self, piece: Rectangle) -> int:
        """Bytes of the shards that are read."""
        manifest = self.blocks.manifest
        return manifest.size_of(manifest.grid.blocks(piece))

    def do(self, piece: Rectangle) -> list[int]:
        """Numbers of the blocks that are good in all shards."""
        manifest, sums = self.blocks.manifest, self.blocks.sums
        machines = range(1, manifest.code.machines + 1)
        return [
            block.number
            for block in manifest.grid.blocks(piece)
            if sums[:, block.number].all()
            and all(self.blocks.read(n, block) is not None for n in machines)
        ]

    def flush(self) -> None:
        """Nothing was written."""
