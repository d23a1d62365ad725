"""Arrays of whole numbers that say what an assignment is: checked, and frozen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError

Ints = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.generic)

_PIECE = 1 << 18  # numbers


def whole_numbers(name: str, values: ArrayLike) -> Ints:
    """An int64 array, or an `InputError` where rounding would be needed."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} of an assignment are {array.dtype}: expected whole numbers")
    return array.astype(np.int64, copy=False)


def frozen(
    name: str, values: ArrayLike, dtype: type[np.signedinteger]
) -> NDArray[np.signedinteger]:
    """Whole numbers in this dtype, which nobody can change."""
    array = values if isinstance(values, np.ndarray) and values.dtype == dtype else None
    if array is None:
        whole = whole_numbers(name, values)
        if whole.size and not np.can_cast(np.min_scalar_type(int(whole.max())), dtype):
            raise InputError(f"{name} of an assignment are up to {whole.max()}: too large")
        array = whole.astype(dtype, copy=False)
    if _may_change(array.base) or (array is values and array.flags.writeable):
        array = array.copy()
    array.flags.writeable = False
    return array


def _may_change(owner: object) -> bool:
    """Whether somebody may still write to the numbers that an array is a part of."""
    if isinstance(owner, np.ndarray):
        return owner.flags.writeable or _may_change(owner.base)
    return owner is not None


def pieces(array: NDArray[_Number]) -> Iterator[NDArray[_Number]]:
    """Some rows at a time: of so few numbers that they stay in the caches."""
    rows = max(1, _PIECE // array.shape[1])
    return (array[first : first + rows] for first in range(0, len(array), rows))


def check_available(machines: Sequence[int]) -> Ints:
    """Machine numbers as an array, or an `InputError` if they are not ascending from 1."""
    try:
        available = np.asarray(machines, dtype=np.int64)
    except OverflowError:
        raise InputError(f"available machines {tuple(machines)}: too large a number") from None
    if not available.size or available[0] < 1 or (np.diff(available) <= 0).any():
        raise InputError(f"available machines {tuple(machines)}: expected ascending numbers from 1")
    return available
