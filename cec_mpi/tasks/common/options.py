"""Checks of the options that several tasks have."""

from __future__ import annotations

import math
import os
import warnings
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError, ScaleWarning, ToleranceWarning
from cec_mpi.files.npy import open_npy
from cec_mpi.tasks.common.units import divided

_PROBES = 7  # random vectors: with 3, one of 25 to 40 wide X was warned of for nothing
_FAR_APART = 300.0  # of scales, from where on solvers are slow or end too early
_CONSTANT = 100.0  # accuracies of products: what varies less is rounding


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


def warn_of_tolerance(X: Any, task: str, tol: float) -> None:
    """Warn where a tolerance is smaller than what products of X can differ by.

    Parameters
    ----------
    X : operator
        With an attribute ``attainable``, or nothing is known of it.
    task : str
        For whom.
    tol : float
        Relative; 0 asks for the best there is, whatever that is.

    Warns
    -----
    ToleranceWarning
        Once, where `tol` is below ``X.attainable``.
    """
    attainable = float(getattr(X, "attainable", 0.0))
    if 0 < tol < attainable:
        text = (
            f"{task}: tol {tol:.0e} is below {attainable:.0e}, by which products of X differ from "
            "each other: it may not be met, or not hold when other machines are available (a "
            "store of float64 has more digits)"
        )
        warnings.warn(text, ToleranceWarning, stacklevel=3)


def warn_of_scales(X: Any, task: str, *, centred: bool, exponent: int) -> None:
    """Warn where columns of X differ in scale: one step, with a block of eight vectors.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    task : str
        For whom.
    centred : bool
        Whether a constant is fitted too: then a column is as large as it deviates from its
        mean, and a mean that is far larger is warned of as well.
    exponent : int
        Of the power of two that is about as large as X.

    Warns
    -----
    ScaleWarning
        The scales are estimated, within a factor of about 4 each.

    Notes
    -----
    For v of random signs the mean of ``(X' v)_j**2`` is ``||x_j||**2``; without its part along
    the vector of ones v sees what is left of a column without its mean.
    """
    rows, columns = X.shape
    probes = np.empty((rows, _PROBES + 1))
    probes[:, 0] = 1 / rows
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (rows, _PROBES))
    probes[:, 1:] = (signs - signs.mean(axis=0) if centred else signs) / np.sqrt(rows)
    found = np.asarray(divided(X, exponent).rmatmat(probes)).reshape(columns, _PROBES + 1)
    means, scales = np.abs(found[:, 0]), np.sqrt((found[:, 1:] ** 2).mean(axis=1))
    accuracy = max(getattr(X, "accuracy", 0.0), np.finfo(np.float64).eps)
    varies = np.isfinite(scales) & (scales > _CONSTANT * accuracy * means) & (scales > 0)
    if not varies.any():
        return
    names = np.flatnonzero(varies)
    least, most = names[scales[varies].argmin()], names[scales[varies].argmax()]
    sizes, centres = np.ldexp(scales, exponent), np.ldexp(means, exponent)
    advice = "with columns of mean 0 and standard deviation 1 it is faster and more exact"
    if scales[most] > _FAR_APART * scales[least]:
        _warn(
            f"{task}: column {least} of X (from 0) has a scale of about {sizes[least]:.0e}, "
            f"column {most} of {sizes[most]:.0e}: {advice}"
        )
    elif centred and (means > _FAR_APART * scales)[varies].any():
        worst = names[(means[varies] / scales[varies]).argmax()]
        _warn(
            f"{task}: column {worst} of X (from 0) has a mean of about {centres[worst]:.0e} and "
            f"varies by {sizes[worst]:.0e}: {advice}"
        )


def _warn(text: str) -> None:
    warnings.warn(text, ScaleWarning, stacklevel=4)
