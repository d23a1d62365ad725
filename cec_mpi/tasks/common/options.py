"""Checks of common options of tasks."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.masks import reject_masked
from cec_mpi.errors import InputError, ScaleWarning, ToleranceWarning
from cec_mpi.store.files.npy import open_npy
from cec_mpi.store.files.paths import as_path
from cec_mpi.tasks.common.scaling import divide_operator
from cec_mpi.text import warn_caller

_PROBES = 7  # random vectors; with only 3, a wide X causes a false warning in 1 of 25 to 40 cases
_MAX_SCALE_RATIO = 300.0  # above this solvers are slow or stop too early
_MIN_VARIATION = 100.0  # times the error of a product; smaller ones may be rounding errors


def check_integer(name: str, value: object, minimum: int) -> int:
    """Return an integer of at least `minimum`, or raise."""
    if not isinstance(value, Integral) or value < minimum:
        raise InputError(f"{name} {value}: expected a whole number of at least {minimum}")
    return int(value)


def check_fraction(name: str, value: object, *, allow_zero: bool = False) -> float:
    """Return a number between 0 and 1, excluding 1 and (unless `allow_zero`) 0, or raise."""
    number = _to_float(value)
    if not (0 < number < 1 or (allow_zero and number == 0)):
        expected = "0 or a number between 0 and 1" if allow_zero else "a number between 0 and 1"
        raise InputError(f"{name} {value}: expected {expected}")
    return number


def check_positive(name: str, value: object, *, allow_zero: bool = False) -> float:
    """Return a finite number above 0, or at least 0 if `allow_zero` is True, or raise."""
    number = _to_float(value)
    if not (0 < number < math.inf or (allow_zero and number == 0)):
        expected = "a finite number of at least 0" if allow_zero else "a finite number above 0"
        raise InputError(f"{name} {value}: expected {expected}")
    return number


def _to_float(value: object) -> float:
    """Convert a real number to float; return NaN if that is not possible."""
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.nan


def check_bool(name: str, value: object) -> bool:
    """Return a bool, or raise; a text such as ``"false"`` would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} {value!r}: expected True or False")
    return bool(value)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return one of `choices`, or raise."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} {value!r}: expected one of {', '.join(choices)}")
    return value


def check_square(task: str, X: Any) -> int:
    """Return the number of rows of a square X, or raise."""
    rows, columns = X.shape
    if rows != columns:
        raise InputError(f"{task} needs a square matrix, found {rows} x {columns}")
    return int(rows)


def read_vector(name: str, value: ArrayLike | os.PathLike[str], length: int) -> NDArray[np.float64]:
    """Return a vector of finite real numbers, given as an array or as the path of an ``.npy`` file.

    Parameters
    ----------
    name : str
        Name of the option, for messages.
    value : array_like or path
    length : int
        Expected length.

    Returns
    -------
    (length,) ndarray of float64
        A copy.

    Raises
    ------
    InputError
        The file cannot be read, or the vector has another shape or entries that are not finite real
        numbers.
    """
    if isinstance(value, str | os.PathLike):
        array = open_npy(as_path(value))
        name = f"{name} ({os.fspath(value)})"
    else:
        array = check_real_array(name, value)
    if array.shape != (length,):
        raise InputError(f"{name} has shape {array.shape}, expected ({length},)")
    numbers = np.array(array, dtype=np.float64, subok=False)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise InputError(
            f"{name} holds {numbers[bad[0]]} at entry {bad[0]} (counted from 0), expected finite "
            "numbers"
        )
    return numbers


def check_real_array(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return an array of real numbers, in its own dtype.

    Raises
    ------
    InputError
        The value is not an array, does not have a real dtype, or an entry is masked.
    """
    value = reject_masked(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} is not an array: {error}") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} has dtype {array.dtype}, expected real numbers")
    return array


def warn_of_tolerance(X: Any, task: str, tol: float) -> None:
    """Warn if a tolerance is smaller than the differences between products of X.

    Parameters
    ----------
    X : operator
        Its attribute ``attainable_tol`` is used, if it has one.
    task : str
        Name of the task, for messages.
    tol : float
        Relative tolerance; 0 stands for the best possible.

    Warns
    -----
    ToleranceWarning
        `tol` is below ``X.attainable_tol``.
    """
    attainable_tol = float(getattr(X, "attainable_tol", 0.0))
    if 0 < tol < attainable_tol:
        text = (
            f"{task}: tol {tol:.0e} is below {attainable_tol:.0e}, the difference between products "
            "of X with different machines: the solver may not converge, or the result may be less "
            "accurate (a store of float64 is more accurate)"
        )
        warn_caller(text, ToleranceWarning)


def warn_of_scales(X: Any, task: str, *, has_intercept: bool, exponent: int) -> None:
    """Warn if columns of X differ in scale; makes one product with a block of eight vectors.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    task : str
        Name of the task, for messages.
    has_intercept : bool
        Whether an intercept is fitted. Then the scale of a column is its standard deviation, and
        there is also a warning if the mean of a column is much larger.
    exponent : int
        Exponent of a power of two near the magnitude of X.

    Warns
    -----
    ScaleWarning
        Scales differ. Estimates are accurate to a factor of about 4.

    Notes
    -----
    For v of random signs, the mean of ``(X' v)_j**2`` is ``||x_j||**2``. If v is orthogonal to the
    vector of ones, it is the squared norm of a column minus its mean.
    """
    rows, columns = X.shape
    probes = np.empty((rows, _PROBES + 1))
    probes[:, 0] = 1 / rows
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (rows, _PROBES))
    probes[:, 1:] = (signs - signs.mean(axis=0) if has_intercept else signs) / np.sqrt(rows)
    estimates = np.asarray(divide_operator(X, exponent).rmatmat(probes)).reshape(
        columns, _PROBES + 1
    )
    means, scales = np.abs(estimates[:, 0]), np.sqrt((estimates[:, 1:] ** 2).mean(axis=1))
    product_error = max(getattr(X, "product_error", 0.0), np.finfo(np.float64).eps)
    is_accurate = np.isfinite(scales) & (scales > _MIN_VARIATION * product_error * means)
    column_numbers = np.flatnonzero(is_accurate)
    if not column_numbers.size:
        return
    means, scales = means[column_numbers], scales[column_numbers]
    smallest, largest = scales.argmin(), scales.argmax()
    if scales[largest] > _MAX_SCALE_RATIO * scales[smallest]:
        problem = (
            f"column {column_numbers[smallest]} of X (counted from 0) has a scale of about "
            f"{np.ldexp(scales[smallest], exponent):.0e}, but column {column_numbers[largest]} has "
            f"one of {np.ldexp(scales[largest], exponent):.0e}"
        )
    elif has_intercept and (means > _MAX_SCALE_RATIO * scales).any():
        worst = (means / scales).argmax()
        problem = (
            f"column {column_numbers[worst]} of X (counted from 0) has a mean of about "
            f"{np.ldexp(means[worst], exponent):.0e}, but varies only by "
            f"{np.ldexp(scales[worst], exponent):.0e}"
        )
    else:
        return
    warn_caller(
        f"{task}: {problem}: scale columns to mean 0 and standard deviation 1 for a faster and "
        "more accurate solution",
        ScaleWarning,
    )
