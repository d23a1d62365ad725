"""Count of the numbers of X that shards cannot represent exactly, and a warning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.text import plural, warn_caller


@dataclass(frozen=True)
class Rounding:
    """Rounding of integers and long doubles.

    Attributes
    ----------
    count : int
        Number of rounded values.
    max_error : float
        Largest absolute error.

    Examples
    --------
    >>> Rounding(1, 2.0) + Rounding(3, 1.0)
    Rounding(count=4, max_error=2.0)
    """

    count: int = 0
    max_error: float = 0.0

    def __add__(self, other: Rounding) -> Rounding:
        return Rounding(self.count + other.count, max(self.max_error, other.max_error))


NO_ROUNDING = Rounding()


def measure_rounding(values: NDArray[Any], stored: NDArray[np.floating]) -> Rounding:
    """Count the numbers that differ from their stored values.

    Parameters
    ----------
    values : ndarray
        Other dtypes than integers and long doubles are not compared, because users choose the
        precision of floats.
    stored : ndarray of float32 or float64
        The converted values.

    Examples
    --------
    >>> values = np.array([2**53, 2**53 + 1, -(2**63) + 1])
    >>> measure_rounding(values, values.astype(np.float64))
    Rounding(count=2, max_error=1.0)
    """
    if values.dtype.kind in "iu":
        largest_exact = 1 << (np.finfo(stored.dtype).nmant + 1)
        if np.iinfo(values.dtype).max <= largest_exact or not values.size:
            return NO_ROUNDING
        if -largest_exact <= int(values.min()) and int(values.max()) <= largest_exact:
            return NO_ROUNDING
        # Two halves, because the difference of a 64-bit integer and a float is not exact.
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
    """Warn if numbers of X were rounded.

    Parameters
    ----------
    name : object
        Name of X, for the message.
    rounding : Rounding
    dtype : str
        Dtype of the store.
    """
    if rounding.count:
        warn_caller(
            f"{name}: {plural(rounding.count, 'number', 'was', 'were')} rounded, by at most "
            f"{rounding.max_error:.3g}, because {dtype} can represent neither all integers beyond "
            f"2^{np.finfo(dtype).nmant + 1} nor all long doubles"
        )
