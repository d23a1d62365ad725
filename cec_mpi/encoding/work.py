"""The work of encoding: read X, multiply and write, one rectangle of blocks at a time."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.scaling import (
    column_max_abs,
    divide_rows,
    equilibrate,
    row_max_abs,
)
from cec_mpi.encoding.bands import Bands
from cec_mpi.encoding.journal import read_exponents, read_sums
from cec_mpi.encoding.reading import (
    NotEncodableError,
    describe_non_finite,
    measure_rows,
    read_part,
)
from cec_mpi.encoding.rounding import NO_ROUNDING, Rounding
from cec_mpi.encoding.sources import Source
from cec_mpi.store.coded.grid import Block, Rectangle
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.files.durable import FileCache
from cec_mpi.store.files.replacing import sync
from cec_mpi.store.files.saving import input_errors
from cec_mpi.store.format.checksums import block_sum
from cec_mpi.store.manifest_files import (
    INCOMPLETE_EXPONENTS,
    INCOMPLETE_SIZES,
    INCOMPLETE_SUMS,
)
from cec_mpi.store.operations.verify import compute_checksums
from cec_mpi.store.work import Runner, fit_memory

_BYTES_OF_A_ROW, _BYTES_OF_A_COLUMN = 32, 48
_PIECES_PER_THREAD = 4
_MOST_UNSYNCED = 2 << 30  # bytes; more would make the last sync and a resume slow, less the disk


@dataclass
class EncodeWork:
    """Work that reads X, multiplies, and writes shards, some bands of blocks at a time.

    Attributes
    ----------
    directory : Path
    source : Source
    manifest : CodedManifest
    threads : int
    pieces : list of Rectangle
    stacked : int
        Number of blocks below each other to read at a time.
    good : (blocks,) ndarray of bool
        Blocks that an earlier process has written.
    measured : (bands, across) ndarray of bool
        Bands whose sizes of columns it has written.
    exponents : (L, R) ndarray of int16, optional
        Of long rows, measured before.
    """

    directory: Path
    source: Source
    manifest: CodedManifest
    threads: int
    pieces: list[Rectangle]
    stacked: int
    good: NDArray[np.bool_]
    measured: NDArray[np.bool_]
    exponents: NDArray[np.int16] | None = None

    def __post_init__(self) -> None:
        self._bands = Bands(self.manifest.grid)
        self._largest_safe = float(np.finfo(self.manifest.dtype).max) / (
            2 * float(np.abs(self.manifest.code.generator).sum(axis=1).max())
        )
        self._buffers = threading.local()
        self._unsynced = 0  # bytes, approximately, because threads count without a lock

    @classmethod
    def of(
        cls, directory: Path, source: Source, manifest: CodedManifest, memory: int, runner: Runner
    ) -> EncodeWork:
        """Return the work for a runner whose processes may use `memory` bytes each."""
        code, grid, itemsize = manifest.code, manifest.grid, manifest.itemsize
        block = grid.block_rows * grid.block_columns * itemsize
        workers = runner.threads * runner.processes * _PIECES_PER_THREAD
        threads, size = fit_memory(
            memory,
            runner.threads,
            arrays=code.recovery + source.copies,
            fixed=(2 * code.recovery + code.machines + 1) * block + _array_bytes(manifest),
            least=block,
            share=grid.rows * grid.columns * itemsize // workers,
            held=source.held,
        )
        bands = Bands(grid)
        pieces = grid.rectangles(size // itemsize, bands.height)
        good, measured = np.zeros(grid.count, bool), np.zeros((bands.count, grid.across), bool)
        stacked = max(1, size // block)
        return cls(directory, source, manifest, threads, pieces, stacked, good, measured)

    def skip_verified(self, runner: Runner) -> None:
        """Skip the good blocks that an earlier process has written."""
        written, exponent_sums = read_sums(self.directory, self.manifest)
        begun: NDArray[np.bool_] = np.all(written, axis=0)
        now = compute_checksums(self.directory, self.manifest, runner, begun, self.threads)
        self.good = begun & np.all(now == written, axis=0)
        if exponent_sums is not None:
            for block in map(self.manifest.grid.block, np.flatnonzero(self.good).tolist()):
                found = exponents_sum(read_exponents(self.directory, self.manifest, block))
                self.good[block.number] = found == int(exponent_sums[block.number])
        grid = self.manifest.grid
        self.measured = self._bands.recorded(self.directory / INCOMPLETE_SIZES)
        measured = np.repeat(self.measured, self._bands.height, axis=0)[: grid.down]
        self.good &= measured.reshape(-1)
        self.pieces = [
            piece
            for piece in self.pieces
            if not all(self.good[block.number] for block in grid.blocks(piece))
        ]

    def measure(self, memory: int, runner: Runner) -> None:
        """Find the exponents of rows that are longer than a block."""
        grid = self.manifest.grid
        if self.manifest.row_exponents is not None and grid.across > 1:
            known = self.good.reshape(grid.down, grid.across)
            wanted = np.logical_not(np.all(known, axis=1))
            self.exponents = measure_rows(self.source, self.manifest, wanted, memory, runner)

    def size(self, piece: Rectangle) -> int:
        """Return the number of bytes of shards to write."""
        numbers = sum(block.size for block in self.manifest.grid.blocks(piece))
        return numbers * self.manifest.itemsize * self.manifest.machines

    def do(self, piece: Rectangle) -> tuple[float, Rounding]:
        """Encode the blocks of a rectangle.

        Returns
        -------
        float
            Largest ratio of sizes of rows in them.
        Rounding
            Of X.
        """
        sizes, spread, rounding = np.zeros(0), 0.0, NO_ROUNDING
        with input_errors(self.directory), FileCache(self.directory) as files:
            for top in range(piece.top, piece.bottom, self.stacked):
                bottom = min(top + self.stacked, piece.bottom)
                blocks = list(self.manifest.grid.blocks(Rectangle(top, bottom, piece.span)))
                parts = None
                for row, block in enumerate(blocks, start=top):
                    band, within = divmod(row, self._bands.height)
                    if not within:
                        sizes = np.zeros(block.right - block.left)
                    if not self.good[block.number]:
                        if parts is None:
                            parts, rounded = self._read(blocks)
                            rounding += rounded
                        rows = slice(block.start - blocks[0].start, block.stop - blocks[0].start)
                        spread = max(spread, self._encode(block, parts[:, rows], files, sizes))
                    ends = within == self._bands.height - 1 or row == self.manifest.grid.down - 1
                    if ends and not self.measured[band, piece.span]:
                        self._bands.write(files, band, piece.span, sizes)
        self._unsynced += self.size(piece)
        if self._unsynced > _MOST_UNSYNCED:
            self._unsynced = 0
            self.flush()
        return spread, rounding

    def flush(self) -> None:
        """Write all shards to disk, and then the journal of their blocks."""
        notes = [INCOMPLETE_SIZES, INCOMPLETE_SUMS]
        if self.manifest.row_exponents is not None:
            notes.insert(0, INCOMPLETE_EXPONENTS)
        with input_errors(self.directory):
            for name in (*(shard.file for shard in self.manifest.shards), *notes):
                sync(self.directory / name)

    def _read(self, blocks: list[Block]) -> tuple[NDArray[Any], Rounding]:
        """Return rows of all parts of X, with zeros after its end: (L, rows, columns)."""
        rounding = NO_ROUNDING
        start, stop, left, right = blocks[0].start, blocks[-1].stop, blocks[0].left, blocks[0].right
        recovery = self.manifest.code.recovery
        shape = (recovery, stop - start, right - left)
        parts = self._array("parts", recovery * (stop - start) * (right - left)).reshape(shape)
        for part, rows in enumerate(parts):
            rounding += read_part(self.source, self.manifest, part, start, left, rows)
        return parts, rounding

    def _encode(
        self, block: Block, parts: NDArray[Any], files: FileCache, sizes: NDArray[Any]
    ) -> float:
        code = self.manifest.code
        # Contiguous and always of the same shape, because BLAS may round differently otherwise.
        plain = self._array("plain", code.recovery * block.size).reshape(parts.shape)
        exponents = self._scale(block, parts, plain)
        column_sizes = column_max_abs(plain.reshape(-1, parts.shape[2]))
        np.maximum(sizes, column_sizes, out=sizes)
        largest = float(column_sizes.max())  # NaN is propagated
        if not np.isfinite(largest):
            raise describe_non_finite(self.source, self.manifest, block.start, block.left, parts)
        coded = self._array("coded", code.machines * block.size).reshape(code.machines, block.size)
        with np.errstate(over="ignore", invalid="ignore"):
            code.encode(plain, coded)
        if largest > self._largest_safe and not np.isfinite(coded).all():
            raise NotEncodableError(
                f"{self.source.name} holds numbers too large to be encoded in {self.manifest.dtype}"
            )
        place = self.manifest.place(block.offset)
        for shard, rows in zip(self.manifest.shards, coded, strict=True):
            files.write(shard.file, rows, place)
        found = [block_sum(rows) for rows in coded]
        if exponents is not None:
            for part, exponents_of_part in enumerate(exponents):
                first = part * self.manifest.grid.rows + block.start
                files.write(INCOMPLETE_EXPONENTS, exponents_of_part, 2 * first)
            found.append(exponents_sum(exponents))
        sums = np.array(found, "<u8")
        files.write(INCOMPLETE_SUMS, sums, sums.nbytes * block.number)
        if exponents is not None and largest < 2:  # no row is far from 1
            return 1.0
        return self._spread(plain)

    def _spread(self, plain: NDArray[Any]) -> float:
        """Return the largest ratio of the sizes of two rows that are encoded together."""
        largest = row_max_abs(plain, self._array("work", plain.size).reshape(plain.shape))
        least = largest.min(axis=0, where=largest > 0, initial=np.inf)
        with np.errstate(over="ignore"):
            return float((largest.max(axis=0) / least).max())

    def _scale(
        self, block: Block, parts: NDArray[Any], plain: NDArray[Any]
    ) -> NDArray[np.int16] | None:
        """Return the scaled rows of a block, and their exponents."""
        if self.manifest.row_exponents is None:
            plain[...] = parts
            return None
        if self.exponents is not None:
            exponents = self.exponents[:, block.start : block.stop]
            divide_rows(parts, exponents, plain)
            return exponents
        work = self._array("work", parts.size).reshape(parts.shape)
        found = equilibrate(parts, plain, work)
        if found is None:
            raise describe_non_finite(self.source, self.manifest, block.start, block.left, parts)
        return found

    def _array(self, name: str, numbers: int) -> NDArray[Any]:
        """Return an array that this thread reuses from piece to piece."""
        array: NDArray[Any] | None = getattr(self._buffers, name, None)
        if array is None or array.size < numbers:
            # Release the old array before the new one is allocated.
            setattr(self._buffers, name, None)
            array = np.empty(numbers, self.manifest.dtype)
            setattr(self._buffers, name, array)
        return array[:numbers]


def _array_bytes(manifest: CodedManifest) -> int:
    """Return the memory needed to find exponents of rows and sizes of columns of a block."""
    rows, columns = manifest.grid.block_rows, manifest.grid.block_columns
    return _BYTES_OF_A_ROW * manifest.code.recovery * rows + _BYTES_OF_A_COLUMN * columns


def exponents_sum(exponents: NDArray[np.int16]) -> int:
    """Return the checksum of the exponents of the rows of a block, in all parts of X."""
    return block_sum(np.ascontiguousarray(exponents, "<i2"))
