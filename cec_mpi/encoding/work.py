"""The work of encoding: read X, encode and write, one rectangle of blocks at a time."""

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
from cec_mpi.encoding.journal import read_checksums, read_exponents
from cec_mpi.encoding.reading import (
    NotEncodableError,
    measure_rows,
    non_finite_error,
    read_part,
)
from cec_mpi.encoding.rounding import NO_ROUNDING, Rounding
from cec_mpi.encoding.sources import Source
from cec_mpi.store.coded.grid import Block, Rectangle
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.files.durable import FileCache
from cec_mpi.store.files.replacing import sync
from cec_mpi.store.files.saving import convert_to_input_error
from cec_mpi.store.format.checksums import block_checksum
from cec_mpi.store.manifest_files import (
    INCOMPLETE_CHECKSUMS,
    INCOMPLETE_EXPONENTS,
    INCOMPLETE_MAXIMA,
)
from cec_mpi.store.operations.verify import compute_checksums
from cec_mpi.store.work import Runner, fit_memory

_BYTES_PER_ROW, _BYTES_PER_COLUMN = 32, 48  # scratch for a row exponent, for a column maximum
_PIECES_PER_THREAD = 4
_MAX_UNSYNCED_BYTES = 2 << 30  # more makes the last sync and a resume slow; less slows the disk


@dataclass
class EncodeWork:
    """Work that reads X, encodes it, and writes shards; pieces are rectangles of blocks.

    Attributes
    ----------
    directory : Path
    source : Source
    manifest : CodedManifest
    threads : int
    pieces : list of Rectangle
    blocks_per_read : int
        Number of vertically adjacent blocks to read at a time.
    is_verified : (blocks,) ndarray of bool
        Undamaged blocks that an earlier process has written, which are skipped.
    has_column_maxima : (bands, spans) ndarray of bool
        Bands whose column maxima an earlier process has written.
    exponents : (L, R) ndarray of int16, optional
        Exponents of the R rows of each part, if rows span several blocks; see `measure_long_rows`.
    """

    directory: Path
    source: Source
    manifest: CodedManifest
    threads: int
    pieces: list[Rectangle]
    blocks_per_read: int
    is_verified: NDArray[np.bool_]
    has_column_maxima: NDArray[np.bool_]
    exponents: NDArray[np.int16] | None = None

    def __post_init__(self) -> None:
        self._bands = Bands(self.manifest.grid)
        self._max_safe_entry = float(np.finfo(self.manifest.dtype).max) / (
            2 * float(np.abs(self.manifest.code.generator).sum(axis=1).max())
        )
        self._buffers = threading.local()
        self._unsynced_bytes = 0  # approximate, because threads count without a lock

    @classmethod
    def create(
        cls, directory: Path, source: Source, manifest: CodedManifest, memory: int, runner: Runner
    ) -> EncodeWork:
        """Return the work for a runner; each process may use `memory` bytes."""
        code, grid, itemsize = manifest.code, manifest.grid, manifest.itemsize
        block_bytes = grid.block_rows * grid.block_columns * itemsize
        min_pieces = runner.threads * runner.processes * _PIECES_PER_THREAD
        threads, read_bytes = fit_memory(
            memory,
            runner.threads,
            array_count=code.recovery + source.read_buffers,
            thread_bytes=(2 * code.recovery + code.machines + 1) * block_bytes
            + _block_overhead_bytes(manifest),
            min_bytes=block_bytes,
            useful_bytes=grid.rows * grid.columns * itemsize // min_pieces,
            process_bytes=source.fixed_bytes,
        )
        bands = Bands(grid)
        pieces = grid.rectangles(read_bytes // itemsize, bands.height)
        is_verified = np.zeros(grid.count, bool)
        has_column_maxima = np.zeros((bands.count, grid.blocks_across), bool)
        blocks_per_read = max(1, read_bytes // block_bytes)
        return cls(
            directory,
            source,
            manifest,
            threads,
            pieces,
            blocks_per_read,
            is_verified,
            has_column_maxima,
        )

    def skip_verified(self, runner: Runner) -> None:
        """Skip the undamaged blocks that an earlier process has written."""
        recorded_checksums, exponent_checksums = read_checksums(self.directory, self.manifest)
        is_written: NDArray[np.bool_] = np.all(recorded_checksums, axis=0)
        checksums = compute_checksums(
            self.directory, self.manifest, runner, is_written, self.threads
        )
        self.is_verified = is_written & np.all(checksums == recorded_checksums, axis=0)
        if exponent_checksums is not None:
            for block in map(self.manifest.grid.block, np.flatnonzero(self.is_verified).tolist()):
                exponents = read_exponents(self.directory, self.manifest, block)
                expected = int(exponent_checksums[block.number])
                self.is_verified[block.number] = exponents_checksum(exponents) == expected
        grid = self.manifest.grid
        self.has_column_maxima = self._bands.recorded_mask(self.directory / INCOMPLETE_MAXIMA)
        is_in_recorded_band = np.repeat(self.has_column_maxima, self._bands.height, axis=0)
        self.is_verified &= is_in_recorded_band[: grid.blocks_down].reshape(-1)
        self.pieces = [
            piece
            for piece in self.pieces
            if not all(self.is_verified[block.number] for block in grid.blocks(piece))
        ]

    def measure_long_rows(self, memory: int, runner: Runner) -> None:
        """Measure the exponents of rows that span several blocks, if rows are scaled."""
        grid = self.manifest.grid
        if self.manifest.row_exponents is not None and grid.blocks_across > 1:
            verified = self.is_verified.reshape(grid.blocks_down, grid.blocks_across)
            unverified_rows = np.logical_not(np.all(verified, axis=1))
            self.exponents = measure_rows(
                self.source, self.manifest, unverified_rows, memory, runner
            )

    def size(self, piece: Rectangle) -> int:
        """Return the number of bytes of a rectangle in all shards, including verified blocks."""
        entries = sum(block.size for block in self.manifest.grid.blocks(piece))
        return entries * self.manifest.itemsize * self.manifest.machines

    def process(self, piece: Rectangle) -> tuple[float, Rounding]:
        """Encode the blocks of a rectangle.

        Returns
        -------
        float
            Largest ratio of the magnitudes of two rows that are encoded together.
        Rounding
            Rounding of X.
        """
        column_maxima, magnitude_ratio, rounding = np.zeros(0), 0.0, NO_ROUNDING
        with convert_to_input_error(self.directory), FileCache(self.directory) as files:
            for top in range(piece.top, piece.bottom, self.blocks_per_read):
                bottom = min(top + self.blocks_per_read, piece.bottom)
                blocks = list(self.manifest.grid.blocks(Rectangle(top, bottom, piece.span)))
                parts = None
                for block_row, block in enumerate(blocks, start=top):
                    band, index_in_band = divmod(block_row, self._bands.height)
                    if not index_in_band:
                        column_maxima = np.zeros(block.right - block.left)
                    if not self.is_verified[block.number]:
                        if parts is None:
                            parts, read_rounding = self._read(blocks)
                            rounding += read_rounding
                        rows = slice(block.start - blocks[0].start, block.stop - blocks[0].start)
                        magnitude_ratio = max(
                            magnitude_ratio,
                            self._encode(block, parts[:, rows], files, column_maxima),
                        )
                    is_band_end = (
                        index_in_band == self._bands.height - 1
                        or block_row == self.manifest.grid.blocks_down - 1
                    )
                    if is_band_end and not self.has_column_maxima[band, piece.span]:
                        self._bands.write(files, band, piece.span, column_maxima)
        self._unsynced_bytes += self.size(piece)
        if self._unsynced_bytes > _MAX_UNSYNCED_BYTES:
            self._unsynced_bytes = 0
            self.flush()
        return magnitude_ratio, rounding

    def flush(self) -> None:
        """Sync all shards to disk, and then the journal of their blocks."""
        journal = [INCOMPLETE_MAXIMA, INCOMPLETE_CHECKSUMS]
        if self.manifest.row_exponents is not None:
            journal.insert(0, INCOMPLETE_EXPONENTS)
        with convert_to_input_error(self.directory):
            for name in (*(shard.file for shard in self.manifest.shards), *journal):
                sync(self.directory / name)

    def _read(self, blocks: list[Block]) -> tuple[NDArray[Any], Rounding]:
        """Return the rows of blocks in all parts of X, (L, rows, columns), padded with zeros."""
        rounding = NO_ROUNDING
        start, stop, left, right = blocks[0].start, blocks[-1].stop, blocks[0].left, blocks[0].right
        recovery = self.manifest.code.recovery
        shape = (recovery, stop - start, right - left)
        parts = self._buffer("parts", recovery * (stop - start) * (right - left)).reshape(shape)
        for part, rows in enumerate(parts):
            rounding += read_part(self.source, self.manifest, part, start, left, rows)
        return parts, rounding

    def _encode(
        self, block: Block, parts: NDArray[Any], files: FileCache, column_maxima: NDArray[Any]
    ) -> float:
        """Encode and write a block, update `column_maxima`; return the ratio of row magnitudes."""
        code = self.manifest.code
        # BLAS may round differently for other shapes and strides, so these must not vary.
        scaled = self._buffer("scaled", code.recovery * block.size).reshape(parts.shape)
        exponents = self._scale(block, parts, scaled)
        block_maxima = column_max_abs(scaled.reshape(-1, parts.shape[2]))
        np.maximum(column_maxima, block_maxima, out=column_maxima)
        largest = float(block_maxima.max())  # NaN is propagated
        if not np.isfinite(largest):
            raise non_finite_error(self.source, self.manifest, block.start, block.left, parts)
        coded = self._buffer("coded", code.machines * block.size).reshape(code.machines, block.size)
        with np.errstate(over="ignore", invalid="ignore"):
            code.encode(scaled, coded)
        if largest > self._max_safe_entry and not np.isfinite(coded).all():
            raise NotEncodableError(
                f"{self.source.name} has numbers too large to encode in {self.manifest.dtype}"
            )
        offset = self.manifest.entry_offset(block.offset)
        for shard, rows in zip(self.manifest.shards, coded, strict=True):
            files.write(shard.file, rows, offset)
        checksums = [block_checksum(rows) for rows in coded]
        if exponents is not None:
            for part, exponents_of_part in enumerate(exponents):
                first = part * self.manifest.grid.rows + block.start
                files.write(INCOMPLETE_EXPONENTS, exponents_of_part, 2 * first)
            checksums.append(exponents_checksum(exponents))
        record = np.array(checksums, "<u8")
        files.write(INCOMPLETE_CHECKSUMS, record, record.nbytes * block.number)
        if exponents is not None and largest < 2:  # all rows are scaled to a magnitude near 1
            return 1.0
        return self._row_magnitude_ratio(scaled)

    def _row_magnitude_ratio(self, scaled: NDArray[Any]) -> float:
        """Return the largest ratio of the magnitudes of two rows that are encoded together."""
        largest = row_max_abs(scaled, self._buffer("scratch", scaled.size).reshape(scaled.shape))
        smallest = largest.min(axis=0, where=largest > 0, initial=np.inf)
        with np.errstate(over="ignore"):
            return float((largest.max(axis=0) / smallest).max())

    def _scale(
        self, block: Block, parts: NDArray[Any], scaled: NDArray[Any]
    ) -> NDArray[np.int16] | None:
        """Write the scaled rows of a block to `scaled`, and return their exponents."""
        if self.manifest.row_exponents is None:
            scaled[...] = parts
            return None
        if self.exponents is not None:
            exponents = self.exponents[:, block.start : block.stop]
            divide_rows(parts, exponents, scaled)
            return exponents
        scratch = self._buffer("scratch", parts.size).reshape(parts.shape)
        row_exponents = equilibrate(parts, scaled, scratch)
        if row_exponents is None:
            raise non_finite_error(self.source, self.manifest, block.start, block.left, parts)
        return row_exponents

    def _buffer(self, name: str, size: int) -> NDArray[Any]:
        """Return an array that this thread reuses for all pieces."""
        array: NDArray[Any] | None = getattr(self._buffers, name, None)
        if array is None or array.size < size:
            # Release the old array before the new one is allocated.
            setattr(self._buffers, name, None)
            array = np.empty(size, self.manifest.dtype)
            setattr(self._buffers, name, array)
        return array[:size]


def _block_overhead_bytes(manifest: CodedManifest) -> int:
    """Return the memory for the row exponents and column maxima of a block."""
    rows, columns = manifest.grid.block_rows, manifest.grid.block_columns
    return _BYTES_PER_ROW * manifest.code.recovery * rows + _BYTES_PER_COLUMN * columns


def exponents_checksum(exponents: NDArray[np.int16]) -> int:
    """Return the checksum of the row exponents of a block."""
    return block_checksum(np.ascontiguousarray(exponents, "<i2"))
