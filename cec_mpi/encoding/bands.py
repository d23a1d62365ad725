"""Sizes of columns, which are recorded for some rows at a time during an encode.

Floating-point sums depend on their order. A band consists of blocks below each other, whose columns
one thread sums in order; at the end bands are added in order. So the bytes of a store depend
neither on the distribution of work nor on interruptions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.scaling import ColumnSizes
from cec_mpi.errors import InputError
from cec_mpi.files.durable import WriteHandles, read_at
from cec_mpi.files.regular import open_regular
from cec_mpi.store.format.checksums import block_sum
from cec_mpi.store.format.grid import Grid
from cec_mpi.store.format.manifest import INCOMPLETE_SIZES, Manifest

_ROWS = 64  # at least, so that what is written down is small beside the shards

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bands:
    """The bands of a grid, and what is written down of each in the journal.

    Of a band and a span of columns that is a checksum, the largest absolute values, and the root
    mean squares; the checksum is 0 until it is there.
    """

    grid: Grid

    @property
    def height(self) -> int:
        """Blocks of a band, from the first row to the last."""
        return min(self.grid.down, -(-_ROWS // self.grid.block_rows))

    @property
    def count(self) -> int:
        """Bands, from the first row to the last."""
        return -(-self.grid.down // self.height)

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self._place(self.count, 0)

    def rows(self, band: int) -> int:
        """Rows of a shard in a band."""
        height = self.height * self.grid.block_rows
        return min(height, self.grid.rows - band * height)

    def write(
        self, files: WriteHandles, band: int, span: int, sizes: ColumnSizes, parts: int
    ) -> None:
        """Write down the sizes of columns of a band, of so many parts of X."""
        both = np.stack((sizes.largest, sizes.typical(parts * self.rows(band)))).astype("<f8")
        place = self._place(band, span)
        files.write(INCOMPLETE_SIZES, np.array([block_sum(both)], "<u8"), place)
        files.write(INCOMPLETE_SIZES, both, place + 8)

    def known(self, path: Path) -> NDArray[np.bool_]:
        """Which of them are written down, (bands, spans)."""
        known = np.zeros((self.count, self.grid.across), dtype=bool)
        with _opened(path) as descriptor:
            for band, span in np.ndindex(known.shape):
                known[band, span] = self._read(descriptor, band, span) is not None
        return known

    def totals(self, path: Path, manifest: Manifest) -> Iterator[Floats]:
        """The largest absolute values of all columns, span by span, then root mean squares."""
        recovery = manifest.code.recovery
        with _opened(path) as descriptor:
            for span in range(self.grid.across):
                yield self._largest(descriptor, span)
            for span in range(self.grid.across):
                largest = self._largest(descriptor, span)
                squares = np.zeros(len(largest))
                for band in range(self.count):
                    typical = self._sizes(descriptor, band, span)[1]
                    parts = np.divide(typical, largest, out=typical, where=largest > 0)
                    squares += recovery * self.rows(band) * parts**2
                # Squares of very small numbers are lost; one of q is as large as the largest.
                means = np.clip(squares / manifest.rows, 1 / manifest.rows, 1)
                yield np.sqrt(means) * largest

    def _largest(self, descriptor: int, span: int) -> Floats:
        largest: Floats = self._sizes(descriptor, 0, span)[0]
        for band in range(1, self.count):
            np.maximum(largest, self._sizes(descriptor, band, span)[0], out=largest)
        return largest

    def _sizes(self, descriptor: int, band: int, span: int) -> Floats:
        sizes = self._read(descriptor, band, span)
        if sizes is None:
            raise InputError(
                f"{INCOMPLETE_SIZES} was altered during the encode: remove the store and encode X "
                "again"
            )
        return sizes

    def _read(self, descriptor: int, band: int, span: int) -> Floats | None:
        """Sizes of the columns of a span in a band, (2, w); None where they are not there."""
        block = self.grid.block(span)
        width = block.right - block.left
        found = np.empty(1 + 2 * width, "<u8")
        read_at(descriptor, found, self._place(band, span))
        if not found[0] or block_sum(found[1:]) != found[0]:
            return None
        return found[1:].view("<f8").reshape(2, width)

    def _place(self, band: int, span: int) -> int:
        numbers = self.grid.across + 2 * self.grid.columns  # of a band
        return 8 * (band * numbers + span * (1 + 2 * self.grid.block_columns))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = open_regular(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
