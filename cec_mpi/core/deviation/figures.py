"""How far the product of a step can be from exact, and how far it is likely to be.

Both figures are relative to the largest entry of a result, column by column of a block. The
bound is certain: it holds for any roundings. The estimate takes them for independent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.deviation.amplification import Amplification, AnswerErrors, TransposedErrors
from cec_mpi.core.deviation.lengths import Columns, Lengths, TermSizes, least, most

_OWN_ROUNDING = 1 + 1e-6  # of the bound itself, which is computed from up to 10**9 numbers
_NORMAL, _SMALLEST = -1022, -1074  # exponents of the smallest numbers with all digits, and of all
_LARGEST = 1024  # no number is as large as two to this power
_DEVIATIONS = 2.2  # of errors of shards: rows have the same numbers, and the same errors
_GROWING = 0.27  # of a random walk's end: the root mean square of what it passes, rounded
_COHERENT = 1.8  # terms of one sign: their partial sums grow faster, and round with a bias


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


def of_product(
    found: Amplification,
    errors: AnswerErrors,
    sizes: TermSizes,
    lengths: Lengths,
    decoded: Columns,
    result: Columns,
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
        Infinite where a column is zeros, and that of W is not. It is 0 only where W is zeros.

    Notes
    -----
    With S the scale of a column and x the largest decoded number, ``(a + u) S + b x`` bounds
    the error, where a is `Amplification.worst`, u S the rounding of X itself, and b
    `Amplification.decoding`. What underflow makes is added.
    """
    shift = -sizes.exponent
    each = _ldexp(1 / lengths.unit, shift)
    numbers = decoded * each
    underflow = each * errors.products + _ldexp(errors.entries, shift) * lengths.plain
    underflow = (underflow + lengths.lost) * (1 + found.growth)
    bound = (found.worst + errors.source) * lengths.total + found.decoding * numbers + underflow
    length = _likely_length(lengths, numbers, rows)
    summed = _likely_sums(length, lengths.partial, lengths, numbers, errors.terms)
    estimate = (
        _DEVIATIONS * (found.stored + errors.likely_source) * most(length, numbers)
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
    result: Columns,
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
    each = _ldexp(1 / coded.unit, shift)
    numbers = result * each
    per_unit = given.unit / coded.unit
    underflow = each * errors.products + _ldexp(errors.entries, shift) * coded.plain
    underflow = underflow * len(errors.worst)
    bound = (
        (terms.worst + found.coded) * coded.total
        + (found.given + errors.source) * per_unit * given.total
        + underflow
    )
    length = _likely_length(coded, numbers, columns)
    of_given = per_unit * _likely_length(given, numbers / per_unit, columns)
    # Parts of machines are sums of one sign, and cancel as they are added up.
    partial = _COHERENT * errors.aligned * coded.partial
    summed = _likely_sums(length, partial, coded, numbers, errors.terms)
    estimate = (
        _DEVIATIONS * terms.stored * most(length, numbers)
        + terms.summed * summed
        + _DEVIATIONS * (errors.likely_source + found.decoded) * most(of_given, numbers)
        + underflow
    )
    return _over(result, bound, estimate, coded, sizes.exponent)


def of_subnormals(found: Deviation, result: Columns, exponents: NDArray[np.int64]) -> Deviation:
    """With the rounding of results that are too small for all digits of float64.

    Parameters
    ----------
    found : Deviation
        Of a result.
    result : (k,) ndarray of float
        Its largest number in each column.
    exponents : (k,) ndarray of int
        By which power of two it is then multiplied.

    Returns
    -------
    Deviation
        Infinite where a column becomes zeros.

    Examples
    --------
    >>> of_subnormals(Deviation(1e-15, 1e-16), 1.0, np.array([-1070]))
    Deviation(bound=0.031250000000001, estimate=0.0312500000000001)
    """
    if isinstance(result, np.ndarray):
        lowest = int((np.frexp(result)[1] + exponents)[result > 0].min(initial=0))
    else:
        lowest = math.frexp(result)[1] + int(exponents[0]) if result > 0 else 0
    if lowest > _NORMAL:
        return found
    rounded = math.ldexp(1.0, _SMALLEST - lowest) if lowest > _SMALLEST else math.inf
    return Deviation(found.bound + rounded, found.estimate + rounded)


def fits(result: Columns, exponents: NDArray[np.int64]) -> bool:
    """Whether the largest numbers of columns, times powers of two, are numbers of float64.

    Parameters
    ----------
    result : (k,) ndarray of float
        Infinite, or no number, where the largest of a column is not finite.
    exponents : (k,) ndarray of int
        Of the powers.

    Examples
    --------
    >>> fits(1.0, np.array([1023])), fits(1.0, np.array([1024])), fits(np.inf, np.array([-1]))
    (True, False, False)
    """
    if isinstance(result, np.ndarray):
        places = (np.frexp(result)[1] + exponents)[result != 0]
        return bool(np.isfinite(result).all()) and int(places.max(initial=0)) <= _LARGEST
    is_within = math.frexp(result)[1] + int(exponents[0]) <= _LARGEST
    return not result or (math.isfinite(result) and is_within)


def _likely_length(lengths: Lengths, numbers: Columns, count: int) -> Columns:
    """The length that the longest of so many rows of terms is likely to have."""
    of_many = math.sqrt(2 * math.log(4 * count))  # the largest of normal numbers, in deviations
    # No row is longer than all together.
    longest = least(lengths.longest, math.sqrt(count) * lengths.typical)
    return most(of_many * lengths.typical, longest)


def _likely_sums(
    length: Columns, partial: Columns, lengths: Lengths, numbers: Columns, terms: int
) -> Columns:
    """What roundings of a product and its partial sums come to, for a rounding of 1."""
    roundings = least(lengths.terms, terms) ** 0.5
    largest_sum = most(length, numbers)
    coherent = _COHERENT * most(numbers - length, 0.0)
    return largest_sum + roundings * (_GROWING * most(largest_sum, partial) + coherent)


def _over(
    result: Columns, bound: Columns, estimate: Columns, lengths: Lengths, exponent: int
) -> Deviation:
    """Relative to the results; the worst of all columns."""
    if not isinstance(result, np.ndarray):
        return _of_one(result, bound, estimate, lengths, exponent)
    used = lengths.plain > 0
    if not (result[used] > 0).all():
        return Deviation(math.inf, math.inf)
    above, upper = np.frexp(lengths.unit)
    below, lower = np.frexp(np.where(used, result, 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        factor = np.ldexp(above / below, upper - lower + exponent)
        factor[~used] = 0.0
        return _known(float((bound * factor).max()), float((estimate * factor).max()))


def _of_one(
    result: float, bound: float, estimate: float, lengths: Lengths, exponent: int
) -> Deviation:
    if not lengths.plain:
        return Deviation(0.0, 0.0)
    if not result:
        return Deviation(math.inf, math.inf)
    above, upper = math.frexp(lengths.unit)
    below, lower = math.frexp(result)
    factor = _ldexp(above / below, upper - lower + exponent)
    return _known(float(bound * factor), float(estimate * factor))


def _known(bound: float, estimate: float) -> Deviation:
    """Infinite if the product of a number that underflowed and one that overflowed is NaN."""
    if math.isnan(bound + estimate):
        return Deviation(math.inf, math.inf)
    bound *= _OWN_ROUNDING
    return Deviation(bound, min(bound, estimate))


def _ldexp(value: Columns, exponent: int) -> Columns:
    if not isinstance(value, float):
        with np.errstate(over="ignore"):
            return np.ldexp(value, exponent)
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf
