"""Whether all numbers of a file can be computed with, found before anything is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.store.sources.binary import npy_source

_TOGETHER_BYTES = 8 << 20


def check_finite(path: Path, rows: int) -> None:
    """Look for numbers that are not finite, a few rows in memory at a time.

    Parameters
    ----------
    path : Path
        An ``.npy`` file with a matrix of real numbers.
    rows : int
        How many of the first rows are looked at, at most.

    Raises
    ------
    InputError
        Names file, row and column of the first number that is NaN, infinite, or too large
        for float64; or the file cannot be read.
    """
    source = npy_source(path)
    columns = source.shape[1]
    together = max(1, _TOGETHER_BYTES // (columns * source.dtype.itemsize))
    for start in range(0, min(rows, source.shape[0]), together):
        stop = min(start + together, rows, source.shape[0])
        slab = np.empty((stop - start, columns), source.dtype)
        source.read(start, stop, 0, columns, slab)
        with np.errstate(over="ignore", invalid="ignore"):
            good = np.isfinite(slab.astype(np.float64))
        if not good.all():
            row, column = np.argwhere(~good)[0].tolist()
            raise InputError(
                f"{path} holds {slab[row, column]} at row {start + row}, column {column} (counted "
                "from 0): expected finite numbers that fit float64"
            )
