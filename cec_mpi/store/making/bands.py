"""Sizes of columns, written down for some rows at a time while a store is made.

Floating-point sums depend on their order. A band is some blocks, one below the other, whose
columns are summed by one thread, from the first row to the last; bands are added up at the end,
in their order. So the bytes of a store do not depend on who did what, nor on a crash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.equilibration import ColumnSizes
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
        return 8 * self.count * self._numbers

    @property
    def _numbers(self) -> int:
        """Of a band."""
        return self.grid.across + 2 * self.grid.columns

    def rows(self, band: int) -> int:
        """Rows of a shard in a band."""
        height = self.height * self.grid.block_rows
        return min(height, self.grid.rows - band * height)

    def write(
        self, files: WriteHandles, band: int, span: int, sizes: ColumnSizes, parts: int
    ) -> None:
        """Write down the sizes of columns of a band, of so many parts of X."""
        both = np.stack((sizes.largest, sizes.typical(parts * self.rows(band)))).astype("<f8")
        place = 8 * (band * self._numbers + span * (1 + 2 * self.grid.block_columns))
        files.write(INCOMPLETE_SIZES, np.array([block_sum(both)], "<u8"), place)
        files.write(INCOMPLETE_SIZES, both, place + 8)

    def known(self, path: Path) -> NDArray[np.bool_]:
        """Which of them are written down, (bands, spans)."""
        known = np.zeros((self.count, self.grid.across), dtype=bool)
        for band, span, _, sizes in self._read(path):
            known[band, span] = sizes is not None
        return known

    def total(self, path: Path, manifest: Manifest) -> Floats:
        """The largest absolute values of all columns, and the root mean squares: (2, r)."""
        total = np.zeros((2, self.grid.columns))
        largest, squares = total
        for _, _, columns, sizes in self._read(path):
            assert sizes is not None
            np.maximum(largest[columns], sizes[0], out=largest[columns])
        for band, _, columns, sizes in self._read(path):
            assert sizes is not None
            parts = np.zeros(sizes.shape[1])
            np.divide(sizes[1], largest[columns], out=parts, where=largest[columns] > 0)
            squares[columns] += manifest.code.recovery * self.rows(band) * parts**2
        # Squares of very small numbers are lost; one of q is as large as the largest.
        np.sqrt(np.clip(squares / manifest.rows, 1 / manifest.rows, 1), out=squares)
        squares *= largest
        return total

    def _read(self, path: Path) -> Iterator[tuple[int, int, slice, Floats | None]]:
        """Band, span, its columns and their sizes; None where these are not written down."""
        descriptor = open_regular(path)
        try:
            place = 0
            for band in range(self.count):
                for span in range(self.grid.across):
                    block = self.grid.block(span)
                    width = block.right - block.left
                    found = np.empty(1 + 2 * width, "<u8")
                    read_at(descriptor, found, place)
                    place += found.nbytes
                    good = found[0] and block_sum(found[1:]) == found[0]
                    sizes = found[1:].view("<f8").reshape(2, width) if good else None
                    yield band, span, slice(block.left, block.right), sizes
        finally:
            os.close(descriptor)
