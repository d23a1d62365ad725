"""Matrix Market files, which SciPy reads into memory as a whole."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.sources.source import Unread, stamps_of, unreadable
from cec_mpi.errors import InputError

MARKET_DTYPES = {
    "real": np.float64,
    "double": np.float64,
    "integer": np.int64,
    "unsigned-integer": np.uint64,
    "pattern": np.float64,
}
_TOGETHER_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class MarketMatrix(Unread):
    """A matrix in a Matrix Market file."""

    path: Path

    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Yield some rows at a time, dense."""
        from scipy.io import mmread

        try:
            with warnings.catch_warnings():
                # SciPy 1.18 expects an argument that SciPy before 1.16 does not have.
                warnings.simplefilter("ignore", DeprecationWarning)
                matrix = mmread(self.path)
        except (ValueError, OverflowError, StopIteration) as error:
            raise unreadable(self.path, error) from None
        rows = matrix if isinstance(matrix, np.ndarray) else matrix.tocsr()
        together = max(1, _TOGETHER_BYTES // (self.shape[1] * self.dtype.itemsize))
        for start in range(0, self.shape[0], together):
            stop = min(start + together, self.shape[0])
            shape = (stop - start, self.shape[1])
            yield start, 0, self.checked(rows[start:stop], start, 0, shape)


def market_matrix(path: Path) -> MarketMatrix:
    """Read the header of a Matrix Market file."""
    from scipy.io import mminfo

    try:
        stamps = stamps_of(path)
        rows, columns, entries, form, field, _ = mminfo(path)
    except (OSError, ValueError, OverflowError, StopIteration) as error:
        raise unreadable(path, error) from None
    if field not in MARKET_DTYPES:
        raise InputError(
            f"{path} holds {field} numbers, which are not supported: codes, shards and answers "
            "are real"
        )
    warning = ""
    if form == "coordinate":
        share = entries / max(1, rows * columns)
        warning = (
            f"{path} is sparse ({share:.2%} of {rows} x {columns} entries are stored), but shards "
            f"are dense: the store needs {{bytes}} bytes"
        )
    return MarketMatrix(
        name=str(path),
        path=path,
        shape=(rows, columns),
        dtype=np.dtype(MARKET_DTYPES[field]),
        stamps=stamps,
        stamps_now=partial(stamps_of, path),
        warning=warning,
    )
