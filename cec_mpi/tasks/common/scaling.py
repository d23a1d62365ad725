"""Scaling of X and vectors by powers of two, so that solvers compute with numbers near 1.

Division by a power of two is exact. So a task makes the same iterations for X and ``2**k X``, and
multiplies its result by a power of two at the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError, ScaleWarning
from cec_mpi.text import warn_caller

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

# Of magnitudes of rows or columns; with a larger ratio, sums of squares lose the smaller one.
_MAX_RATIO_LOG10 = 100
_MIN_EXPONENT, _MAX_EXPONENT = -1021, 1024  # of normal numbers, see `binary_exponent`


def binary_exponent(values: ArrayLike) -> int:
    """Return e with ``2**(e - 1) <= max(abs(values)) < 2**e``, or 0 if all values are 0."""
    return int(np.frexp(np.abs(values).max(initial=0.0))[1])


def normalise_vector(vector: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Divide a vector by a power of two near its largest absolute value.

    Returns
    -------
    vector : ndarray
    exponent : int
        Exponent of the power of two.
    """
    exponent = binary_exponent(vector)
    return np.ldexp(vector, -exponent), exponent


def normalise_operator(
    X: Any, task: str, *, warn_of_ratios: bool = False
) -> tuple[LinearOperator, int]:
    """Divide X by a power of two near the root mean square of its entries; makes one product.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    task : str
        Name of the task, for messages.
    warn_of_ratios : bool
        Whether to warn if magnitudes of rows or columns differ too much for sums in float64.
        This makes one product with X'.

    Returns
    -------
    operator : LinearOperator
    exponent : int
        Exponent of the power of two.

    Raises
    ------
    InputError
        Entries of X are not finite, or too large for products.
    """
    columns = X.shape[1]
    rng = np.random.default_rng(0)
    # Magnitudes are at least 1, so that products with subnormal numbers do not underflow.
    probe = rng.uniform(1.0, 2.0, columns) * rng.choice((-1.0, 1.0), columns)
    with np.errstate(over="ignore", invalid="ignore"):
        product = X.matvec(probe)
    if not np.isfinite(product).all():
        raise InputError(
            f"{task}: X is too large or not finite: its product with a vector of entries of "
            "magnitude 1 to 2 contains infinity or NaN"
        )
    scaled, product_exponent = normalise_vector(product)
    exponent = product_exponent + binary_exponent(
        np.linalg.norm(scaled) / math.sqrt(math.prod(X.shape))
    )
    operator = divide_operator(X, exponent)
    if warn_of_ratios:
        signs = rng.choice((-1.0, 1.0), X.shape[0])
        _warn_of_ratio(task, "row", np.abs(product))
        _warn_of_ratio(task, "column", np.abs(operator.rmatvec(signs)))
    return operator, exponent


def _warn_of_ratio(task: str, axis: str, magnitudes: NDArray[np.float64]) -> None:
    """Warn if the ratio of the nonzero magnitudes of rows or columns is too large."""
    nonzero = np.flatnonzero(magnitudes)
    if not nonzero.size:
        return
    smallest, largest = (
        nonzero[find(np.log(magnitudes[nonzero]))] for find in (np.argmin, np.argmax)
    )
    if np.log10(magnitudes[largest]) - np.log10(magnitudes[smallest]) > _MAX_RATIO_LOG10:
        warn_caller(
            f"{task}: {axis} {smallest} of X (counted from 0) is more than 1e{_MAX_RATIO_LOG10} "
            f"times smaller than {axis} {largest} and may be ignored in the solution: scale X",
            ScaleWarning,
        )


def factors_of_division(exponent: int) -> tuple[float, float]:
    """Return a factor for vectors and one for products, to divide X by ``2**exponent``.

    Each divides by about the square root of the power, so that neither vectors nor products
    underflow if X is very large or very small.
    """
    return 2.0 ** -(exponent // 2), 2.0 ** (exponent // 2 - exponent)


def divide_operator(X: Any, exponent: int) -> LinearOperator:
    """Return the operator ``X / 2**exponent``."""
    from scipy.sparse.linalg import LinearOperator

    input_factor, output_factor = factors_of_division(exponent)
    return LinearOperator(
        X.shape,
        matvec=lambda w: output_factor * X.matvec(input_factor * w),
        rmatvec=lambda u: output_factor * X.rmatvec(input_factor * u),
        matmat=lambda W: output_factor * X.matmat(input_factor * W),
        rmatmat=lambda U: output_factor * X.rmatmat(input_factor * U),
        dtype=np.dtype(np.float64),
    )


def rescale(
    name: str,
    values: ArrayLike,
    exponent: int,
    input_exponents: dict[str, int],
    *,
    may_underflow: bool = False,
) -> Any:
    """Multiply a result by a power of two.

    Parameters
    ----------
    name : str
        Name of the result, for messages.
    values : float or ndarray
    exponent : int
        Exponent of the power of two.
    input_exponents : dict of str to int
        Names and exponents of the quantities from which the result is computed, for messages.
    may_underflow : bool
        Whether a result that is too small may become 0.

    Returns
    -------
    float or ndarray

    Raises
    ------
    InputError
        See `check_range`.
    """
    check_range(name, values, exponent, input_exponents, may_underflow=may_underflow)
    result = np.ldexp(values, exponent)
    return result if np.ndim(values) else float(result)


def check_range(
    name: str,
    values: ArrayLike,
    exponent: int = 0,
    input_exponents: dict[str, int] | None = None,
    *,
    may_underflow: bool = False,
) -> None:
    """Check that float64 can represent a result; see `rescale`.

    Raises
    ------
    InputError
        The largest absolute value is not finite, too large for float64, or would be subnormal.
    """
    result_exponent = binary_exponent(values) + exponent
    is_finite = np.isfinite(values).all()
    is_out_of_range = result_exponent > _MAX_EXPONENT or (
        result_exponent < _MIN_EXPONENT and not may_underflow
    )
    if not is_finite or (is_out_of_range and np.any(values)):
        reason = "not finite, or too large for float64"
        if is_finite:
            problem = "large" if result_exponent > 0 else "small"
            reason = f"about {_format_power(result_exponent)}, which is too {problem} for float64"
        causes = ", ".join(
            f"{quantity} is about {_format_power(exponent)}"
            for quantity, exponent in (input_exponents or {}).items()
        )
        raise InputError(f"{name} is {reason}{': ' if causes else ''}{causes}")


def _format_power(exponent: int) -> str:
    return f"1e{round(exponent * math.log10(2)):+03d}"
