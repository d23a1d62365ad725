"""Masked arrays of users: NumPy drops a mask silently, and the numbers under it are no data."""

from __future__ import annotations

from typing import Any

import numpy as np

from cec_mpi.errors import InputError


def reject_masked(name: str, value: Any) -> Any:
    """Return an array or sequence of a user without its mask; raise if an entry is masked.

    Parameters
    ----------
    name : str
        Name of the array, for messages.
    value : object
        Objects of other libraries that convert to an array are converted.

    Raises
    ------
    InputError
        An entry is masked.

    Examples
    --------
    >>> reject_masked("y", [1.0, 2.0])
    [1.0, 2.0]
    >>> reject_masked("y", np.ma.masked_equal([1.0, -999.0], -999.0))
    Traceback (most recent call last):
    cec_mpi.errors.InputError: y is masked at entry 1 (counted from 0), expected numbers...
    """
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        computed = value.compute() if hasattr(value, "compute") else value  # Dask drops masks, too
        value = np.asanyarray(computed)
    place = _first_masked_index(value)
    if place is not None:
        words = ("entry",) if len(place) == 1 else ("row", "column")
        where = ", ".join(f"{word} {at}" for word, at in zip(words, place, strict=False))
        at = f" at {where} (counted from 0)" if where else ""
        raise InputError(
            f"{name} is masked{at}, expected numbers everywhere: leave masked entries out, or "
            "fill them (numpy.ma.filled)"
        )
    return value.data if isinstance(value, np.ma.MaskedArray) else value


def _first_masked_index(value: Any) -> list[int] | None:
    """Return the indices of the first masked entry."""
    if isinstance(value, list | tuple):
        for at, each in enumerate(value):
            place = _first_masked_index(each)
            if place is not None:
                return [at, *place]
    elif isinstance(value, np.ma.MaskedArray):
        masked = np.argwhere(np.ma.getmaskarray(value))
        if len(masked):
            return masked[0].tolist()  # type: ignore[no-any-return]
    return None
