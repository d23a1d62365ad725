"""Rejection of masked input, because NumPy drops masks silently when it converts arrays."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard

import numpy as np

from cec_mpi.errors import InputError


def reject_masked(name: str, value: Any) -> Any:
    """Return an array or sequence without its mask; raise if an entry is masked.

    Parameters
    ----------
    name : str
        Name of the array, for messages.
    value : object
        Objects with an ``__array__`` method are converted to arrays.

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
    cec_mpi.errors.InputError: y is masked at entry 1 (counted from 0): expected numbers...
    """
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        # NumPy's conversion of a Dask array drops the mask; `compute` keeps it.
        computed = value.compute() if hasattr(value, "compute") else value
        value = np.asanyarray(computed)
    index = _first_masked_index(value)
    if index is not None:
        axes = ("entry",) if len(index) == 1 else ("row", "column")
        position = ", ".join(f"{axis} {k}" for axis, k in zip(axes, index, strict=False))
        suffix = f" at {position} (counted from 0)" if position else ""
        raise InputError(
            f"{name} is masked{suffix}: expected numbers everywhere; leave masked entries out, or "
            "fill them (numpy.ma.filled)"
        )
    return value.data if is_masked_array(value) else value


def is_masked_array(value: Any) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    """Return whether a value is a masked array, without the slow import of `numpy.ma`."""
    return isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def _first_masked_index(value: Any) -> list[int] | None:
    """Return the indices of the first masked entry, one for each axis, or None."""
    if isinstance(value, list | tuple):
        for k, entry in enumerate(value):
            index = _first_masked_index(entry)
            if index is not None:
                return [k, *index]
    elif is_masked_array(value):
        masked = np.argwhere(np.ma.getmaskarray(value))
        if len(masked):
            return masked[0].tolist()  # type: ignore[no-any-return]
    return None
