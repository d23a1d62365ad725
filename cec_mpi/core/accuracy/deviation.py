"""How far the product of a step can be from exact, and how far it is likely to be.

Both figures are relative to the largest entry of a result, column by column of a block. The
bound is certain: it holds for any roundings. The estimate takes them for independent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.accuracy.amplification import Amplification, AnswerErrors, TransposedErrors

Floats = NDArray[np.float64]

_OWN_ROUNDING = 1 + 1e-6  # of the bound itself, which is computed from up to 10**9 numbers
_DEVIATIONS = 3.0  # of errors of shards: rows have the same numbers, and the same errors
_COHERENT = 3.0  # sums of terms of one sign round with a bias
_PARTIAL = 0.2  # of the sum of all sizes: what partial sums come to that cancel in the end


class Deviation(NamedTuple):
    """Of the result of a step, over its largest entry; of a block the worst column.

    Attributes
    ----------
    bound : float
        The error is not larger, whatever the roundings were.
    estimate : float
        The error is hardly ever larger, and hardly ever much smaller.
    """

    bound: float
    estimate: float


class Lengths(NamedTuple):
    """Norms of the columns of a block, (k,) arrays: all but the first relative to it.

    Attributes
    ----------
    unit : ndarray of float
        The largest number of the column, 1 where that is 0.
    plain : ndarray of float
        ``sum_j |w_j|``.
    total, typical_total : ndarray of float
        ``sum_j c_j |w_j|``, with c the largest entries of what the numbers are multiplied with,
        and with their root mean squares.
    longest, typical : ndarray of float
        ``sqrt(sum_j (c_j w_j)**2)``, and with root mean squares.
    """

    unit: Floats
    plain: Floats
    total: Floats
    typical_total: Floats
    longest: Floats
    typical: Floats


class TermSizes:
    """How large the terms of products are, from the sizes of the columns of X.

    Parameters
    ----------
    largest, typical : (r,) array_like of float
        The largest size of an entry of each column, and the root mean square.

    Attributes
    ----------
    exponent : int
        What is computed with them is relative to two to this power.

    Examples
    --------
    >>> sizes = TermSizes([4.0, 1.0], [2.0, 1.0])
    >>> found = sizes.of(np.array([[3.0], [-3.0]]))
    >>> scale = found.unit[0] * 2.0**sizes.exponent
    >>> float(found.total[0] * scale), float(found.typical_total[0] * scale)
    (15.0, 9.0)
    """

    def __init__(self, largest: ArrayLike, typical: ArrayLike) -> None:
        sizes = np.array([largest, typical], dtype=np.float64)
        self.exponent = int(np.frexp(sizes[0].max(initial=0.0))[1])
        sizes = np.ldexp(sizes, -self.exponent)
        self._sums: Floats = np.vstack((np.ones(sizes.shape[1]), sizes))
        self._squares: Floats = sizes**2
        self._most = sizes.max(axis=1, initial=0.0)[:, None]

    def of(self, W: NDArray[np.floating], work: Floats | None = None) -> Lengths:
        """The sizes of the terms of X W, of which each column of X has its own.

        Parameters
        ----------
        W : (r, k) ndarray of float
        work : (r, k) ndarray of float64, optional
            Scratch.

        Returns
        -------
        Lengths
        """
        sizes, unit = _relative(W, work)
        plain, total, typical_total = self._sums @ sizes
        longest, typical = np.sqrt(self._squares @ np.multiply(sizes, sizes, out=sizes))
        return Lengths(unit, plain, total, typical_total, longest, typical)

    def of_transposed(self, V: NDArray[np.floating], work: Floats | None = None) -> Lengths:
        """The sizes of the terms of any column of X' V.

        Parameters
        ----------
        V : (m, k) ndarray of float
        work : (m, k) ndarray of float64, optional
            Scratch.

        Returns
        -------
        Lengths
        """
        sizes, unit = _relative(V, work)
        plain = sizes.sum(axis=0)
        totals = self._most * plain
        longest, typical = self._most * np.sqrt(np.einsum("ij,ij->j", sizes, sizes))
        # No column is longer than its root mean square says, and no number larger than the unit.
        longest = np.minimum(longest, len(V) ** 0.5 * self._most[1])
        return Lengths(unit, plain, *totals, longest, typical)


def of_product(
    found: Amplification,
    errors: AnswerErrors,
    sizes: TermSizes,
    lengths: Lengths,
    decoded: Floats,
    result: Floats,
    rows: int,
) -> Deviation:
    """How far X W is from exact.

    Parameters
    ----------
    found : Amplification
        Of the decoders that were used.
    errors : AnswerErrors
        Of sums of r terms.
    sizes : TermSizes
        Of what was encoded.
    lengths : Lengths
        Of W: see `TermSizes.of`.
    decoded, result : (k,) ndarray of float
        The largest number of each column as it was decoded; and of X W, over the most that a
        row was divided by before it was encoded.
    rows : int
        Of X W.

    Returns
    -------
    Deviation
        A column of zeros is compared with the largest number of the others; infinite where all
        are zeros, and W is not. It is 0 only where W is zeros.

    Notes
    -----
    With S the scale of a column and x the largest decoded number, ``(a + u) S + b x`` bounds
    the error, where a is `Amplification.worst`, u S the rounding of X itself, and b
    `Amplification.decoding`. What underflow makes is added.
    """
    shift = -sizes.exponent
    each = np.ldexp(1 / lengths.unit, shift)
    numbers = decoded * each
    underflow = each * errors.products + math.ldexp(errors.entries, shift) * lengths.plain
    underflow *= 1 + found.growth
    bound = (found.worst + errors.source) * lengths.total + found.decoding * numbers + underflow
    stored, summed = _likely(lengths, numbers, rows)
    estimate = (
        (found.stored + errors.likely_source) * stored
        + found.summed * summed
        + found.decoded * numbers
        + underflow
    )
    return _over(result, bound, estimate, lengths, sizes.exponent)


def of_transposed_product(
    found: Amplification,
    terms: TransposedErrors,
    errors: AnswerErrors,
    sizes: TermSizes,
    given: Lengths,
    coded: Lengths,
    result: Floats,
    columns: int,
) -> Deviation:
    """How far X' V is from exact.

    Parameters
    ----------
    found : Amplification
        Of the decoders that were used.
    terms : TransposedErrors
        Of the machines that computed.
    errors : AnswerErrors
        Of sums of the rows that a machine computes, and of all machines.
    sizes : TermSizes
        Of what was encoded.
    given, coded : Lengths
        Of V, as it is multiplied with what was encoded, and of the machines' coefficients: see
        `TermSizes.of_transposed`.
    result : (k,) ndarray of float
        The largest number of each column of X' V.
    columns : int
        Of X.

    Returns
    -------
    Deviation
        As `of_product`.

    Notes
    -----
    With u the coefficients, ``e norm1(u) + a norm1(v) + b norm1(u)`` bounds the error over
    the largest entry of a column of X, where e is the largest error of a machine, and a and b
    are those of the transposed decoders.
    """
    shift = -sizes.exponent
    each = np.ldexp(1 / coded.unit, shift)
    numbers = result * each
    per_unit = given.unit / coded.unit
    underflow = each * errors.products + math.ldexp(errors.entries, shift) * coded.plain
    underflow *= len(errors.worst)
    bound = (
        (terms.worst + found.coded) * coded.total
        + (found.given + errors.source) * per_unit * given.total
        + underflow
    )
    stored, summed = _likely(coded, numbers, columns)
    length, _ = _likely(given, numbers / per_unit, columns)
    estimate = (
        terms.stored * stored
        + terms.summed * summed
        + (errors.likely_source + found.decoded) * per_unit * length
        + underflow
    )
    return _over(result, bound, estimate, coded, sizes.exponent)


def _likely(lengths: Lengths, numbers: Floats, count: int) -> tuple[Floats, Floats]:
    """How large errors of shards, and partial sums, are likely to be in one of so many sums."""
    of_many = math.sqrt(2 * math.log(4 * count))  # the largest of normal numbers, in deviations
    length = np.maximum(of_many * lengths.typical, lengths.longest)
    summed = np.maximum(_COHERENT * numbers - (_COHERENT - 1) * length, length)
    summed = np.maximum(summed, _PARTIAL * lengths.typical_total)
    return _DEVIATIONS * np.maximum(length, numbers), summed


def _over(
    result: Floats, bound: Floats, estimate: Floats, lengths: Lengths, exponent: int
) -> Deviation:
    """Relative to the results; the worst of all columns."""
    compared = np.where(result > 0, result, result.max())
    above, upper = np.frexp(lengths.unit)
    below, lower = np.frexp(compared)
    with np.errstate(divide="ignore", over="ignore"):
        factor = np.ldexp(above / below, upper - lower + exponent)
        factor[lengths.plain == 0] = 0.0
        most = float((bound * factor).max()) * _OWN_ROUNDING
        likely = float((estimate * factor).max())
    return Deviation(most, min(most, likely))


def _relative(columns: NDArray[np.floating], work: Floats | None) -> tuple[Floats, Floats]:
    sizes: Floats = np.abs(columns, out=work) if work is not None else abs(columns.astype(float))
    unit = sizes.max(axis=0, initial=0.0)
    unit[unit == 0] = 1.0
    sizes /= unit
    return sizes, unit
