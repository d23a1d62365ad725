"""The error of a product: a certified bound, and an estimate.

Both figures are relative to the largest entry of a result, in the worst column of a block. The
bound adds up the sizes of all roundings, so it always holds (Higham, Accuracy and Stability of
Numerical Algorithms, chapter 3). The estimate assumes that roundings are independent: instead of a
sum of sizes it has the root of a sum of squares, and ``sqrt(k) u`` instead of ``gamma_k`` (Higham
and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019). `docs/ideas/errors.md`
says how close both are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.accuracy.recombine import Recombination
from cec_mpi.core.accuracy.rounding import answer_error, encoding_error, gamma, unit_roundoff
from cec_mpi.core.code.decoder import Decoder

Floats = NDArray[np.float64]

_ROUNDED = 0.41  # root mean square of a number's rounding, in unit roundoffs: 1/3 to 0.58
_ALIKE = 2.2  # times more, as rows of X have numbers, and so errors, in common
_WALK = 0.27  # root mean square of partial sums over the largest, times that of roundings
_BIAS = 1.8  # of terms of one sign: their partial sums are larger, and rounded with a bias
_OWN_ROUNDING = 1 + 1e-6  # of the bound itself, which is computed from up to 10**9 numbers
_PIECES, _LANES = 16, 8  # of a sum, whose partial sums are looked at
_SQUARABLE = 2.0**-400  # of sums from here to its reciprocal, terms can be squared
_SMALLEST = -1074  # log2 of the smallest number of float64
_AT_ONCE = 1 << 20  # numbers in the matrices of several sets of machines


class AnswerErrors(NamedTuple):
    """Errors of the answers of machines 1..N.

    Attributes
    ----------
    worst : (N,) ndarray of float
        Certified, relative to the scale S: see `answer_error`.
    stored : (N,) ndarray of float
        Expected rounding of the shard, relative to the length of a row's terms.
    lengths : (N,) ndarray of float
        Lengths of the rows of G.
    source, likely_source : float
        Rounding of X to the dtype of the shards, relative to S and to lengths. It is the same in
        all shards, so that decoding does not amplify it.
    unit : float
        Unit roundoff of the arithmetic.
    terms : int
        Number of terms of each sum.
    products, entries : float
        Errors of an answer from underflow, of products, and of entries for each unit of
        ``norm1(w)``.
    """

    worst: Floats
    stored: Floats
    lengths: Floats
    source: float
    likely_source: float
    unit: float
    terms: int
    products: float
    entries: float


def answer_errors(
    generator: Floats,
    dtype: DTypeLike,
    arithmetic: DTypeLike,
    terms: int,
    shard_errors: ArrayLike | None = None,
    *,
    rounded: bool = True,
) -> AnswerErrors:
    """Return the errors of the answers of each machine from rounding.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype, arithmetic : dtype
        Dtype of the shards, and arithmetic of products.
    terms : int
        Number of roundings of each term: r for X W. For X' V the largest number of rows of a
        machine, plus the number of parts, plus one for the coefficient.
    shard_errors : (N,) array_like of float, optional
        See `answer_error`.
    rounded : bool
        Whether X was rounded to the dtype of the shards.

    Notes
    -----
    The L roundings of a number of shard n are assumed to be independent, with partial sums that
    grow like the square root of their number: ``0.41 u sqrt((L + 1) / 2) norm(G[n])``.
    """
    exact = encoding_error(generator, dtype)
    given = exact if shard_errors is None else np.asarray(shard_errors, dtype=np.float64)
    lengths = np.linalg.norm(generator, axis=1)
    likely = _ROUNDED * unit_roundoff(dtype)
    stored = likely * np.sqrt((np.count_nonzero(generator, axis=1) + 1) / 2) * lengths
    stored = np.where(given > exact, np.maximum(given, stored), np.where(exact > 0, stored, 0.0))
    return AnswerErrors(
        worst=answer_error(generator, dtype, arithmetic, terms, given, certain=True),
        stored=stored,
        lengths=lengths,
        source=unit_roundoff(dtype) * rounded,
        likely_source=likely * rounded,
        unit=unit_roundoff(arithmetic),
        terms=terms,
        products=(terms + generator.shape[1]) * float(np.finfo(arithmetic).tiny),
        entries=(generator.shape[1] + 1) * float(np.finfo(dtype).tiny),
    )


class Amplification(NamedTuple):
    """How decoding amplifies errors: for a set of L machines, or the largest of several sets.

    Attributes
    ----------
    worst : float
        Certified error of the decoded numbers by the errors of answers, relative to S.
    growth : float
        Largest error from an absolute error of 1 in each answer.
    decoding : float
        Certified error that decoding adds, relative to the largest decoded number; for X' V
        the transposed decoder's, relative to the 1-norm of V.
    stored, lengths : float
        Expected errors from `AnswerErrors.stored`, and from errors like `AnswerErrors.lengths`.
    decoded : float
        Expected error of decoding, relative to the decoded numbers.
    """

    worst: float = 0.0
    growth: float = 0.0
    decoding: float = 0.0
    stored: float = 0.0
    lengths: float = 0.0
    decoded: float = 0.0


def largest_of_all(found: Iterable[Amplification]) -> Amplification:
    """Return the largest of each figure.

    Examples
    --------
    >>> found = largest_of_all([Amplification(worst=1.0), Amplification(worst=0.5, growth=2.0)])
    >>> found.worst, found.growth
    (1.0, 2.0)
    """
    return Amplification(*map(max, zip(*found, strict=True)))


def amplification(
    generator: Floats, errors: AnswerErrors, decoders: Sequence[Decoder], sets: ArrayLike
) -> Amplification:
    """Return how decoders amplify the errors of their machines.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    errors : AnswerErrors
    decoders : (K,) sequence of Decoder
    sets : (K, L) array_like of int
        Machines of each decoder.

    Notes
    -----
    With ``D = inv(G_P)`` and e the errors of the answers, decoding makes D e of them: at
    worst ``max_l sum_n |D[l, n]| e_n``, and with independent e_n of these deviations
    ``max_l sqrt(sum_n D[l, n]**2 e_n**2)``.

    With Z the computed inverse, and R a bound of ``|I - Z G_P|``, of which the product is
    computed in float64 and its rounding added: ``|D| <= |Z| + R |Z| + R**2 |Z| + ..``, where no
    term ``R**k |Z|`` is above ``rho**k`` times the largest entry of |Z| in its column, rho
    being the largest row sum of R. A product with Z is at most ``B = R + gamma_L |Z| |G_P|``
    from exact, relative to the exact numbers (Higham, section 3.5).

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> errors = answer_errors(generator, np.float64, np.float64, 10)
    >>> found = amplification(generator, errors, [Decoder(generator, (1, 2))], [(1, 2)])
    >>> round(found.growth, 6)
    2.0
    >>> bool(found.stored < found.worst)
    True
    """
    rows = np.asarray(sets) - 1
    at_once = max(1, _AT_ONCE // rows.shape[1] ** 2)
    parts = [slice(first, first + at_once) for first in range(0, len(rows), at_once)]
    return largest_of_all(_amplified(generator, errors, decoders[p], rows[p]) for p in parts)


def _amplified(
    generator: Floats,
    errors: AnswerErrors,
    decoders: Sequence[Decoder],
    rows: NDArray[np.integer],
) -> Amplification:
    matrices, recovery = generator[rows], rows.shape[1]
    inverses = np.array([decoder.inverse for decoder in decoders])
    sizes = np.abs(inverses)
    products = sizes @ np.abs(matrices)
    left = np.abs(inverses @ matrices - np.eye(recovery))
    left += float(gamma(recovery + 2, np.float64)) * products
    rho = left.sum(axis=2).max(axis=1)
    further = _geometric(rho)[:, np.newaxis, np.newaxis]
    most = sizes + further * sizes.max(axis=1, keepdims=True)
    growth = float(gamma(recovery, np.float64)) * products.sum(axis=2)
    decoding = _geometric(np.maximum(rho, (left.sum(axis=2) + growth).max(axis=1)))
    squares = sizes**2
    lengths = _largest_product(squares, errors.lengths[rows] ** 2) ** 0.5
    return Amplification(
        worst=_largest_product(most, errors.worst[rows]),
        growth=float(most.sum(axis=2).max()),
        decoding=float(decoding.max()),
        stored=_largest_product(squares, errors.stored[rows] ** 2) ** 0.5,
        lengths=lengths,
        decoded=unit_roundoff(np.float64) * recovery**0.5 * lengths,
    )


def _geometric(first: Floats) -> Floats:
    """Return ``x + x**2 + x**3 + ..``, infinite for x >= 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(first < 1, first / (1 - first), np.inf)


def _largest_product(matrices: Floats, vectors: Floats) -> float:
    return float((matrices @ vectors[:, :, np.newaxis]).max())


class PartErrors(NamedTuple):
    """Errors of parts of X' V, relative to the coefficients of machines.

    Attributes
    ----------
    worst, stored, lengths : float
        See `AnswerErrors`; of several parts the largest.
    """

    worst: float
    stored: float
    lengths: float


def part_errors(errors: AnswerErrors, machines: Sequence[int]) -> PartErrors:
    """Return the largest errors of these machines."""
    rows = np.asarray(machines) - 1
    return PartErrors(*(float(each[rows].max()) for each in errors[:3]))


def stand_in_errors(made: Recombination, parts: Sequence[PartErrors]) -> PartErrors:
    """Return the errors of a part that was computed from those of other machines.

    Parameters
    ----------
    made : Recombination
        Of the machine's row of G from those of the others.
    parts : (L,) sequence of PartErrors
        Errors of the others' parts.

    Returns
    -------
    PartErrors
        Relative to the coefficients of the part.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> part = PartErrors(1e-8, 1e-9, 0.0)
    >>> made = Recombination(generator, (1, 2), generator[[2]])
    >>> round(stand_in_errors(made, (part, part)).worst, 12)
    2e-08
    """
    sizes, left = np.abs(made.coefficients[0]), float(made.residual[0])
    worst, stored, lengths = np.array(parts).T
    return PartErrors(
        float(sizes @ worst) + left,
        float(np.linalg.norm(sizes * stored)) + left,
        float(np.linalg.norm(sizes * lengths)),
    )


class Lengths(NamedTuple):
    """The sizes of the terms of a product with a vector.

    Attributes
    ----------
    plain : float
        ``sum_j |w_j|``.
    total : float
        ``sum_j c_j |w_j|``, with c the largest entries of what the numbers are multiplied with.
    typical : float
        ``sqrt(sum_j (d_j w_j)**2)``, with d their root mean squares.
    partial : float
        The part of partial sums that cancels later, if all entries of X have one sign and the size
        d_j: ``sum_s |p_s| - |sum_s p_s|``, where p_s are the sums of ``d_j w_j`` over pieces, or
        over every eighth j, as processors sum. The larger of both.
    terms : int
        Number of terms that are not 0.
    """

    plain: float
    total: float
    typical: float
    partial: float
    terms: int

    def longest(self, count: int) -> float:
        """Return the largest of this number of sums of independent terms."""
        return math.sqrt(2 * math.log(4 * count)) * self.typical


class TermSizes:
    """The sizes of terms of products, from the sizes of the columns of X.

    Vectors must be scaled: neither they nor their products with these sizes overflow (see
    `Scales`).

    Parameters
    ----------
    largest, typical : (r,) array_like of float
        Largest absolute value and root mean square of each column.
    arithmetic : dtype
        Dtype in which vectors are sent.

    Attributes
    ----------
    lost : float
        Largest error of an entry of X w from numbers of w that have underflowed.

    Examples
    --------
    >>> sizes = TermSizes([4.0, 1.0], [2.0, 1.0], np.float64)
    >>> [found] = sizes.of(np.array([[3.0], [-3.0]]))
    >>> found.total, round(found.typical, 3)
    (15.0, 6.708)
    """

    def __init__(self, largest: ArrayLike, typical: ArrayLike, arithmetic: DTypeLike) -> None:
        self._largest: Floats = np.asarray(largest, dtype=np.float64)
        self._typical: Floats = np.asarray(typical, dtype=np.float64)
        self._most = self._largest.max(initial=0.0), self._typical.max(initial=0.0)
        self._work = np.empty(0)
        info = np.finfo(arithmetic)
        half = int(info.minexp - info.nmant) - 1  # log2 of half of the smallest number
        self.lost = math.ldexp(float((self._largest * 2.0**-64).sum()), half + 64)

    def of(self, W: NDArray[np.floating]) -> list[Lengths]:
        """Return the sizes of the terms of X W, with W of shape (r, k)."""
        work = self._room(len(W))
        return [_lengths(w, self._largest, self._typical, work) for w in W.T]

    def of_transposed(self, V: NDArray[np.floating]) -> list[Lengths]:
        """Return the sizes of the terms of any column of X' V, with V of shape (m, k)."""
        work = self._room(len(V))
        return [_lengths(v, *self._most, work) for v in V.T]

    def _room(self, length: int) -> Floats:
        """Return a scratch array, which is kept."""
        if len(self._work) < length:
            self._work = np.empty(length)
        return self._work[:length]


def _lengths(
    vector: NDArray[np.floating], largest: ArrayLike, typical: ArrayLike, work: Floats
) -> Lengths:
    sizes = np.abs(vector, out=work)
    plain, terms = float(sizes.sum()), int(np.count_nonzero(sizes))
    total = float(np.multiply(sizes, largest, out=sizes).sum())
    signed, scale = np.multiply(vector, typical, out=sizes), 1.0
    if not _SQUARABLE < total < 1 / _SQUARABLE:  # squares could underflow
        scale = total or 1.0
        signed /= scale
    length, partial = math.sqrt(signed @ signed), _partial(signed)
    return Lengths(plain, total, scale * length, scale * partial, terms)


def _partial(terms: Floats) -> float:
    """Return the part of partial sums that cancels later: see `Lengths.partial`."""
    length = len(terms) // (_PIECES * _LANES)
    if not length:
        return float(np.abs(terms).sum() - abs(terms.sum()))
    whole = terms[: _PIECES * length * _LANES].reshape(_PIECES, length, _LANES)
    sums = np.ones(length) @ whole
    pieces, lanes = sums.sum(axis=1), sums.sum(axis=0)
    return float(max(np.abs(pieces).sum(), np.abs(lanes).sum()) - abs(lanes.sum()))


class Largest(NamedTuple):
    """The largest absolute value in each column of a result.

    Attributes
    ----------
    decoded, result : (k,) list of float
        Of the decoded numbers, and of the result without the common power of two.
    exponents : (k,) list of int
        Exponents of the powers of two by which the latter is multiplied.
    """

    decoded: list[float]
    result: list[float]
    exponents: list[int]


class Deviation(NamedTuple):
    """The error figures of a result, relative to its largest entry; of a block the worst column.

    They are infinite if a column is zero and that of W is not, and 0 only if W is zero.

    Attributes
    ----------
    bound : float
        Certified bound of the error.
    estimate : float
        The error is rarely larger, and rarely much smaller.
    """

    bound: float
    estimate: float


def of_product(
    found: Amplification,
    errors: AnswerErrors,
    sizes: TermSizes,
    lengths: Sequence[Lengths],
    largest: Largest,
    rows: int,
) -> Deviation:
    """Return the error figures of X W.

    Parameters
    ----------
    found : Amplification
        Of the decoders that were used.
    errors : AnswerErrors
        Of sums of r terms.
    sizes : TermSizes
        Of what was encoded.
    lengths : (k,) sequence of Lengths
        Of W.
    largest : Largest
        Of X W.
    rows : int
        Of X.

    Notes
    -----
    With S the scale of a column and x the largest decoded number, ``(a + u) S + b x`` bounds
    the error, where a is `Amplification.worst`, u S the rounding of X itself, and b
    `Amplification.decoding`. What underflow makes is added.
    """
    figures = []
    for w, decoded, result, exponent in zip(lengths, *largest, strict=True):
        underflow = (errors.products + errors.entries * w.plain) * (1 + found.growth) + sizes.lost
        bound = (found.worst + errors.source) * w.total + found.decoding * decoded + underflow
        stored, summed = found.stored + errors.likely_source, errors.unit * found.lengths
        estimate = _likely(stored, summed, w, errors.terms, decoded, rows)
        estimate += found.decoded * decoded + underflow
        figures.append(_relative(bound, estimate, w, result, exponent))
    return Deviation(*map(max, zip(*figures, strict=True)))


def of_transposed_product(
    found: Amplification,
    parts: PartErrors,
    errors: AnswerErrors,
    given: Sequence[Lengths],
    coded: Sequence[Lengths],
    largest: Largest,
    columns: int,
) -> Deviation:
    """Return the error figures of X' V.

    Parameters
    ----------
    found : Amplification
        Of the decoders that were used.
    parts : PartErrors
        Of the parts that were added up.
    errors : AnswerErrors
        Of sums of the rows that a machine computes, and of all machines.
    given, coded : (k,) sequence of Lengths
        Of V, as it is multiplied with what was encoded, and of the machines' coefficients: see
        `TermSizes.of_transposed`.
    largest : Largest
        Of X' V.
    columns : int
        Of X.

    Notes
    -----
    With u the coefficients, ``e norm1(u) + b norm1(v)`` bounds the error over the largest
    entry of a column of X, where e is `PartErrors.worst` and b `Amplification.decoding`.
    """
    figures = []
    for v, u, decoded, result, exponent in zip(given, coded, *largest, strict=True):
        underflow = (errors.products + errors.entries * u.plain) * len(errors.worst)
        bound = parts.worst * u.total + (found.decoding + errors.source) * v.total + underflow
        summed = errors.unit * parts.lengths
        # Parts of machines are sums of one sign, and cancel as they are added up.
        biased = u._replace(partial=_BIAS * u.partial)
        estimate = _likely(parts.stored, summed, biased, errors.terms, decoded, columns)
        of_given = _ALIKE * (errors.likely_source + found.decoded)
        estimate += of_given * max(v.longest(columns), decoded) + underflow
        figures.append(_relative(bound, estimate, u, result, exponent))
    return Deviation(*map(max, zip(*figures, strict=True)))


def _likely(
    stored: float, summed: float, lengths: Lengths, terms: int, largest: float, count: int
) -> float:
    """Return the likely error of the worst sum, from shards and the rounding of partial sums."""
    reached = max(lengths.longest(count), largest)
    walk = _WALK * max(reached, lengths.partial) + _BIAS * (reached - lengths.longest(count))
    roundings = 1 + math.sqrt(min(lengths.terms, terms)) * walk / reached if reached else 1.0
    return (_ALIKE * stored + summed * roundings) * reached


def _relative(
    bound: float, estimate: float, lengths: Lengths, result: float, exponent: int
) -> tuple[float, float]:
    """Return both figures relative to the largest number of a result."""
    if not lengths.plain:
        return 0.0, 0.0
    digits, place = math.frexp(result)
    if not result or place + exponent <= _SMALLEST:
        return math.inf, math.inf
    # What is too small for all digits of float64 is rounded once more.
    lost = math.ldexp(0.5 / digits, _SMALLEST - place - exponent)
    bound = (bound * _OWN_ROUNDING / result + lost) / (1 - lost)
    bound = bound if bound < math.inf else math.inf  # NaN: infinite times 0
    return bound, min(bound, (estimate / result + lost) / (1 - lost))
