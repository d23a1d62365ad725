"""Checks of the options that several tasks have."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError
from cec_mpi.files.npy import open_npy


def whole(name: str, value: object, least: int) -> int:
    """A whole number of at least `least`."""
    if not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} {value}: expected a whole number of at least {least}")
    return int(value)


def fraction(name: str, value: object, *, zero: bool = False) -> float:
    """A number between 0 and 1; 0 itself only with `zero`."""
    number = _real(value)
    if not (0 < number < 1 or (zero and number == 0)):
        expected = "0 or a number between 0 and 1" if zero else "a number between 0 and 1"
        raise InputError(f"{name} {value}: expected {expected}")
    return number


def positive(name: str, value: object, *, zero: bool = False) -> float:
    """A finite number above 0; 0 itself only with `zero`."""
    number = _real(value)
    if not (0 < number < math.inf or (zero and number == 0)):
        expected = "a finite number of at least 0" if zero else "a finite number above 0"
        raise InputError(f"{name} {value}: expected {expected}")
    return number


def _real(value: object) -> float:
    """As a float; NaN if it is no real number, or too large for one."""
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.nan


def flag(name: str, value: object) -> bool:
    """True or False: text such as ``"false"`` would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} {value!r}: expected True or False")
    return bool(value)


def one_of(name: str, value: object, names: tuple[str, ...]) -> str:
    """One of some names."""
    if not isinstance(value, str) or value not in names:
        raise InputError(f"{name} {value!r}: expected one of {', '.join(names)}")
    return value


def square(task: str, X: Any) -> int:
    """The number of rows of X, which has as many columns."""
    rows, columns = X.shape
    if rows != columns:
        raise InputError(f"{task} on a {rows} x {columns} matrix: expected a square one")
    return int(rows)


def vector(name: str, value: ArrayLike | os.PathLike[str], length: int) -> NDArray[np.float64]:
    """A vector of finite real numbers, or what the ``.npy`` file of this path holds.

    Parameters
    ----------
    name : str
        Of the option, for errors.
    value : array_like or path
    length : int
        Its expected length.

    Returns
    -------
    (length,) ndarray of float64
        A copy.

    Raises
    ------
    InputError
        The file cannot be read, or the vector has another shape, or other than finite real
        numbers: names the file and the first of them.
    """
    if isinstance(value, str | os.PathLike):
        array = open_npy(Path(value))
        name = f"{name} ({os.fspath(value)})"
    else:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InputError(f"{name} is no array: {error}") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} holds {array.dtype}: expected real numbers")
    if array.shape != (length,):
        raise InputError(f"{name} has shape {array.shape}: expected ({length},)")
    numbers = np.array(array, dtype=np.float64, subok=False)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise InputError(
            f"{name} holds {numbers[bad[0]]} at entry {bad[0]} (counted from 0): expected finite "
            "numbers"
        )
    return numbers
