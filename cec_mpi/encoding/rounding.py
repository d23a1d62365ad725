"""Numbers of X that shards cannot hold exactly: their count, and one warning."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.text import plural


@dataclass(frozen=True)
class Rounding:
    """Integers and long doubles that were rounded.

    Attributes
    ----------
    count : int
    largest : float
        Largest absolute error.

    Examples
    --------
    >>> Rounding(1, 2.0) + Rounding(3, 1.0)
    Rounding(count=4, largest=2.0)
    """

    count: int = 0
    largest: float = 0.0

    def __add__(self, other: Rounding) -> Rounding:
        return Rounding(self.count + other.count, max(self.largest, other.largest))


NO_ROUNDING = Rounding()


def measure_rounding(values: NDArray[Any], stored: NDArray[np.floating]) -> Rounding:
    """Count the numbers that differ from their stored values.

    Parameters
    ----------
    values : ndarray
        Only integers and long doubles are compared: users choose the precision of other floats.
    stored : ndarray of float32 or float64
        The same numbers, converted.

    Examples
    --------
    >>> found = np.array([2**53, 2**53 + 1, -(2**63) + 1])
    >>> measure_rounding(found, found.astype(np.float64))
    Rounding(count=2, largest=1.0)
    """
    if values.dtype.kind in "iu":
        most = 1 << (np.finfo(stored.dtype).nmant + 1)
        if np.iinfo(values.dtype).max <= most or not values.size:
            return NO_ROUNDING
        if -most <= int(values.min()) and int(values.max()) <= most:
            return NO_ROUNDING
        # In two halves, because a difference of 64-bit integers and floats is not exact.
        wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
        low, high = wide & 0xFFFFFFFF, np.ldexp((wide >> 32).astype(np.float64), 32)
        errors = np.abs((high - stored.astype(np.float64)) + low)
    elif values.dtype.kind == "f" and values.dtype.itemsize > 8:
        with np.errstate(invalid="ignore"):  # other messages name infinity and NaN
            errors = np.abs(values - stored.astype(values.dtype))
        errors = errors[np.isfinite(errors)]
    else:
        return NO_ROUNDING
    return Rounding(int(np.count_nonzero(errors)), float(errors.max(initial=0)))


def warn_of_rounding(name: object, rounding: Rounding, dtype: str) -> None:
    """Warn, if numbers of X were rounded.

    Parameters
    ----------
    name : object
        X for the message: mostly its file.
    rounding : Rounding
    dtype : str
        Dtype of the store.
    """
    if rounding.count:
        warnings.warn(
            f"{name}: {plural(rounding.count, 'number', 'was', 'were')} rounded, by at most "
            f"{rounding.largest:.3g}, because {dtype} holds neither all integers beyond "
            f"2^{np.finfo(dtype).nmant + 1} nor all long doubles",
            stacklevel=2,
        )
