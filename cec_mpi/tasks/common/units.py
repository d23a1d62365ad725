"""Scale X and vectors by powers of two, so that solvers compute with numbers near 1.

Division by a power of two is exact. So a task makes the same iterations for X and ``2**k X``, and
its result is multiplied by a power of two at the end.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError, ScaleWarning

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

_MAX_SPAN = 100  # log10: rows or columns that are smaller by more are lost in sums of squares
_MIN_EXPONENT, _MOST = -1021, 1024  # exponents of normal numbers, as in `binary_exponent`


def binary_exponent(values: ArrayLike) -> int:
    """Return e such that the largest absolute value is from ``2**(e - 1)`` to below ``2**e``.

    It is 0 if all values are 0.
    """
    return int(np.frexp(np.abs(values).max(initial=0.0))[1])


def normalise(vector: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Divide a vector by the power of two that is about as large as its largest number.

    Returns
    -------
    vector : ndarray
    exponent : int
        Exponent of the power of two.
    """
    exponent = binary_exponent(vector)
    return np.ldexp(vector, -exponent), exponent


def scaled(X: Any, task: str, *, spans: bool = False) -> tuple[LinearOperator, int]:
    """Divide X by a power of two near the root mean square of its entries; takes one product.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    task : str
        For whom.
    spans : bool
        Whether to warn if rows or columns differ too much for sums in float64. This takes one
        product with X'.

    Returns
    -------
    operator : LinearOperator
    exponent : int
        Of the power of two.

    Raises
    ------
    InputError
        X has numbers that are not finite, or too large for products.
    """
    columns = X.shape[1]
    random = np.random.default_rng(0)  # not below 1, so that subnormal numbers do not underflow
    probe = random.uniform(1.0, 2.0, columns) * random.choice((-1.0, 1.0), columns)
    with np.errstate(over="ignore", invalid="ignore"):
        product = X.matvec(probe)
    if not np.isfinite(product).all():
        raise InputError(
            f"{task}: X is too large or not finite: its product with a vector of numbers from 1 "
            "to 2 holds infinity or NaN"
        )
    image, size = normalise(product)
    exponent = size + binary_exponent(np.linalg.norm(image) / math.sqrt(math.prod(X.shape)))
    operator = divided(X, exponent)
    if spans:
        signs = random.choice((-1.0, 1.0), X.shape[0])
        for what, sizes in (("row", product), ("column", operator.rmatvec(signs))):
            _warn_of_span(f"{task}: {what}", np.abs(sizes))
    return operator, exponent


def _warn_of_span(what: str, sizes: NDArray[np.float64]) -> None:
    """Warn if the sizes of rows or columns that are not 0 differ by more than the widest span."""
    nonzero = np.flatnonzero(sizes)
    if not nonzero.size:
        return
    least, most = (nonzero[choose(np.log(sizes[nonzero]))] for choose in (np.argmin, np.argmax))
    if np.log10(sizes[most]) - np.log10(sizes[least]) > _MAX_SPAN:
        warnings.warn(
            f"{what} {least} of X (counted from 0) is more than 1e{_MAX_SPAN} times smaller than "
            f"{what.split()[-1]} {most}, so that it may not count in the solution: scale X",
            ScaleWarning,
            stacklevel=4,
        )


def divided(X: Any, exponent: int) -> LinearOperator:
    """Return the operator ``X / 2**exponent``.

    Vectors are divided by one half of the power and products by the other, so that neither
    underflows if X is very large or very small.
    """
    from scipy.sparse.linalg import LinearOperator

    before = 2.0 ** -(exponent // 2)
    after = 2.0 ** (exponent // 2 - exponent)
    return LinearOperator(
        X.shape,
        matvec=lambda w: after * X.matvec(before * w),
        rmatvec=lambda u: after * X.rmatvec(before * u),
        matmat=lambda W: after * X.matmat(before * W),
        rmatmat=lambda U: after * X.rmatmat(before * U),
        dtype=np.dtype(np.float64),
    )


def rescale(
    what: str, values: ArrayLike, exponent: int, sizes: dict[str, int], *, zero: bool = False
) -> Any:
    """Multiply a result by a power of two.

    Parameters
    ----------
    what : str
        Name of the result, for messages.
    values : float or ndarray
    exponent : int
        Of the power of two.
    sizes : dict of str to int
        Names and exponents of the quantities that determine the size of the result, for messages.
    zero : bool
        Whether results that are too small may become 0.

    Returns
    -------
    float or ndarray

    Raises
    ------
    InputError
        The largest absolute value is too large for float64, or too small for all its digits.
    """
    size = binary_exponent(values) + exponent
    finite = np.isfinite(values).all()
    beyond = size > _MOST or (size < _MIN_EXPONENT and not zero)
    if not finite or (beyond and np.any(values)):
        found = f"about {_text(size)}, which is too {'large' if size > 0 else 'small'} for float64"
        others = ", ".join(f"{name} is about {_text(size)}" for name, size in sizes.items())
        reason = found if finite else "not finite, or too large for float64"
        raise InputError(f"{what} is {reason}{': ' if others else ''}{others}")
    result = np.ldexp(values, exponent)
    return result if np.ndim(values) else float(result)


def _text(exponent: int) -> str:
    return f"1e{round(exponent * math.log10(2)):+03d}"
