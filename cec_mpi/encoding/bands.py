"""Recording of column maxima (largest absolute values) during an encode, in bands of rows.

A band consists of vertically adjacent blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.coded.grid import Grid
from cec_mpi.store.files.durable import FileCache, read_at
from cec_mpi.store.files.regular import open_regular
from cec_mpi.store.format.checksums import block_checksum
from cec_mpi.store.manifest_files import INCOMPLETE_MAXIMA

_MIN_ROWS = 64  # keeps the record small compared to the shards

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bands:
    """The bands of a grid, and their column maxima in the journal.

    The record of a band and a span of columns is a checksum, 0 until the record is written, and the
    largest absolute values.
    """

    grid: Grid

    @property
    def height(self) -> int:
        """Number of blocks of a band in each span of columns."""
        return min(self.grid.blocks_down, -(-_MIN_ROWS // self.grid.block_rows))

    @property
    def count(self) -> int:
        """Number of bands."""
        return -(-self.grid.blocks_down // self.height)

    @property
    def file_bytes(self) -> int:
        """Size of `INCOMPLETE_MAXIMA` in bytes."""
        return self._offset(self.count, 0)

    def write(self, files: FileCache, band: int, span: int, largest: Floats) -> None:
        """Record the column maxima of a band and a span."""
        maxima = largest.astype("<f8")
        offset = self._offset(band, span)
        files.write(INCOMPLETE_MAXIMA, np.array([block_checksum(maxima)], "<u8"), offset)
        files.write(INCOMPLETE_MAXIMA, maxima, offset + 8)

    def recorded_mask(self, path: Path) -> NDArray[np.bool_]:
        """Return a mask of the bands and spans that are recorded, (bands, spans)."""
        recorded = np.zeros((self.count, self.grid.blocks_across), dtype=bool)
        with _open(path) as descriptor:
            for band, span in np.ndindex(recorded.shape):
                recorded[band, span] = self._read_maxima(descriptor, band, span) is not None
        return recorded

    def column_maxima(self, path: Path) -> Iterator[Floats]:
        """Yield the largest absolute values of all columns, span by span."""
        with _open(path) as descriptor:
            for span in range(self.grid.blocks_across):
                largest: Floats = self._read_maxima_or_raise(descriptor, 0, span)
                for band in range(1, self.count):
                    np.maximum(
                        largest, self._read_maxima_or_raise(descriptor, band, span), out=largest
                    )
                yield largest

    def _read_maxima_or_raise(self, descriptor: int, band: int, span: int) -> Floats:
        maxima = self._read_maxima(descriptor, band, span)
        if maxima is None:
            raise InputError(
                f"{INCOMPLETE_MAXIMA} was altered during the encode: remove the store and encode X "
                "again"
            )
        return maxima

    def _read_maxima(self, descriptor: int, band: int, span: int) -> Floats | None:
        """Return the column maxima of a band and a span; None if they are not recorded."""
        block = self.grid.block(span)
        width = block.right - block.left
        record = np.empty(1 + width, "<u8")
        read_at(descriptor, record, self._offset(band, span))
        if not record[0] or block_checksum(record[1:]) != record[0]:
            return None
        return record[1:].view("<f8")

    def _offset(self, band: int, span: int) -> int:
        words_per_band = self.grid.blocks_across + self.grid.columns
        return 8 * (band * words_per_band + span * (1 + self.grid.block_columns))


@contextmanager
def _open(path: Path) -> Iterator[int]:
    descriptor = open_regular(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
