"""Matrix Market files, which SciPy reads whole: as much memory as the matrix needs."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.sources.base import FileSource, fill, stamp, unreadable

_LOADING = threading.Lock()  # one thread reads it for all
_DTYPES = {"real": np.float64, "double": np.float64, "integer": np.int64, "pattern": np.float64}


@dataclass(frozen=True, kw_only=True)
class MarketSource(FileSource):
    """A matrix in a Matrix Market file."""

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        """Read a rectangle, dense."""
        try:
            with _LOADING:
                matrix = self._matrix
        except (ValueError, OverflowError, StopIteration) as error:
            raise unreadable(self.path, error) from None
        rows = matrix[start:stop]
        fill(
            out, rows[:, left:right] if isinstance(rows, np.ndarray) else _dense(rows, left, right)
        )

    @cached_property
    def _matrix(self) -> Any:
        from scipy.io import mmread

        with warnings.catch_warnings():
            # SciPy 1.18 wants to be told of matrix or array; before 1.16 it could not be.
            warnings.simplefilter("ignore", DeprecationWarning)
            matrix = mmread(self.path)
        return matrix if isinstance(matrix, np.ndarray) else matrix.tocsr()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the matrix behind: another process reads the file itself."""
        return {name: value for name, value in vars(self).items() if name != "_matrix"}


def market_source(path: Path) -> MarketSource:
    """Look at the header of a Matrix Market file."""
    from scipy.io import mminfo

    try:
        stamps = (stamp(path),)
        rows, columns, entries, form, field, _ = mminfo(path)
    except (OSError, ValueError, OverflowError, StopIteration) as error:
        raise unreadable(path, error) from None
    if field not in _DTYPES:
        raise InputError(
            f"{path} holds {field} numbers: only real ones are supported, because codes, shards "
            "and answers are real"
        )
    warning = ""
    if form == "coordinate":
        share = entries / max(1, rows * columns)
        warning = (
            f"{path} is sparse, {share:.2%} of {rows} x {columns} are stored, but shards are "
            "dense: the store takes {bytes} bytes"
        )
    return MarketSource(
        path=path,
        shape=(rows, columns),
        dtype=np.dtype(_DTYPES[field]),
        stamps=stamps,
        warning=warning,
    )


def _dense(rows: Any, left: int, right: int) -> NDArray[Any]:
    dense: NDArray[Any] = rows[:, left:right].toarray()
    return dense
