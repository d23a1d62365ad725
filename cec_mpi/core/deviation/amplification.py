"""From the errors of answers to those of the numbers that they are decoded to, block by block.

What does not change from step to step: how much the decoders of a plan make of the errors of
these machines. Each figure is worked out once for a set of L machines; a plan has the largest
of its blocks, and `deviation` multiplies them with the sizes of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import answer_error, encoding_error, gamma, unit_roundoff

Floats = NDArray[np.float64]

_ROUNDED = 0.41  # root mean square of a number's rounding, in unit roundoffs: 1/3 to 0.58


class AnswerErrors(NamedTuple):
    """Errors of the answers of machines 1..N.

    Attributes
    ----------
    worst : (N,) ndarray of float
        Certified, relative to the scale S: see `answer_error`.
    stored : (N,) ndarray of float
        What to expect of the shard's rounding, relative to the length of a row's terms.
    summed : (N,) ndarray of float
        One rounding of a partial sum, relative to the size of those of X.
    coded, likely_coded : (N,) ndarray of float
        Of rounding the coefficients of X' V: relative as `worst`, and as `stored`.
    source, likely_source : float
        Of rounding X to the dtype of the shards, relative to S and to lengths: the same in all
        shards, so that no decoder enlarges it.
    terms : int
        Of each sum.
    aligned : float
        How many times longer than usual a row of a shard is at most where the L rows of X that
        it is made of are alike.
    products, entries : float
        What underflow can make of an answer, and of one with shards times w for each unit of
        ``norm1(w)``.
    """

    worst: Floats
    stored: Floats
    summed: Floats
    coded: Floats
    likely_coded: Floats
    source: float
    likely_source: float
    terms: int
    aligned: float
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
    """What rounding makes of the answers of each machine, at worst and as it is likely to.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype, arithmetic : dtype
        Of the shards, and in which products are summed.
    terms : int
        Of each sum: r for X W, for X' V the most rows that a machine computes, and the
        machines that are added up.
    shard_errors : (N,) array_like of float, optional
        As in `answer_error`.
    rounded : bool
        Whether X was rounded to the dtype of the shards.

    Notes
    -----
    The L roundings of a number of shard n are taken to be independent, of partial sums that
    grow like the square root of their number: ``0.41 u sqrt((L + 1) / 2) norm(G[n])``.
    """
    exact = encoding_error(generator, dtype)
    given = exact if shard_errors is None else np.asarray(shard_errors, dtype=np.float64)
    lengths = np.linalg.norm(generator, axis=1)
    terms_of_shards = np.count_nonzero(generator, axis=1)
    stored = _ROUNDED * unit_roundoff(dtype) * np.sqrt((terms_of_shards + 1) / 2) * lengths
    stored = np.where(given > exact, np.maximum(given, stored), np.where(exact > 0, stored, 0.0))
    return AnswerErrors(
        worst=answer_error(generator, dtype, arithmetic, terms, given, certain=True),
        stored=stored,
        summed=unit_roundoff(arithmetic) * lengths,
        coded=unit_roundoff(arithmetic) * (np.abs(generator).sum(axis=1) + given),
        likely_coded=_ROUNDED * unit_roundoff(arithmetic) * lengths,
        source=unit_roundoff(dtype) * rounded,
        likely_source=_ROUNDED * unit_roundoff(dtype) * rounded,
        terms=terms,
        aligned=float((np.abs(generator).sum(axis=1) / lengths).max()),
        products=(terms + generator.shape[1]) * float(np.finfo(arithmetic).tiny),
        entries=(generator.shape[1] + 1) * float(np.finfo(dtype).tiny),
    )


class Amplification(NamedTuple):
    """What decoding makes of errors: of one set of L machines, or the largest of several.

    Attributes
    ----------
    worst : float
        Certified error of the decoded numbers by the errors of answers, relative to S.
    growth : float
        The most that an absolute error of 1 in each answer can become.
    decoding : float
        Certified error by decoding itself, relative to the decoded numbers.
    given, coded : float
        Certified error by the transposed decoder, relative to the 1-norms of V and of the
        machines' coefficients.
    stored, summed, decoded : float
        What to expect, relative to the lengths of rows, to partial sums, and to the decoded
        numbers.
    """

    worst: float = 0.0
    growth: float = 0.0
    decoding: float = 0.0
    given: float = 0.0
    coded: float = 0.0
    stored: float = 0.0
    summed: float = 0.0
    decoded: float = 0.0


def largest(found: Iterable[Amplification]) -> Amplification:
    """The largest of each figure.

    Examples
    --------
    >>> found = largest([Amplification(worst=1.0), Amplification(worst=0.5, growth=2.0)])
    >>> found.worst, found.growth
    (1.0, 2.0)
    """
    return Amplification(*map(max, zip(*found, strict=True)))


class TransposedErrors(NamedTuple):
    """Errors of parts of X' V, relative to the coefficients that machines multiplied rows with.

    Attributes
    ----------
    worst, stored, summed : float
        See `AnswerErrors`; of several parts the largest.
    """

    worst: float
    stored: float
    summed: float


def transposed_errors(errors: AnswerErrors, machines: Sequence[int]) -> TransposedErrors:
    """The largest errors of these machines, with the rounding of their coefficients.

    Parameters
    ----------
    errors : AnswerErrors
        Of sums of the rows that a machine computes, and of all that is added up.
    machines : sequence of int
    """
    rows = np.asarray(machines) - 1
    return TransposedErrors(
        float((errors.worst + errors.coded)[rows].max()),
        float(np.hypot(errors.stored, errors.likely_coded)[rows].max()),
        float(errors.summed[rows].max()),
    )


def stand_in_errors(
    generator: Floats,
    machine: int,
    others: Sequence[int],
    weights: Floats,
    parts: Sequence[TransposedErrors],
) -> TransposedErrors:
    """Errors of a part that was made of those of others, relative to its own coefficients.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    machine : int
        Whose part it is.
    others : (L,) sequence of int
    weights : (L,) ndarray of float
        ``shard_machine = sum over m of weights[m] * shard_m``: see `MDSCode.stand_in_weights`.
    parts : (L,) sequence of TransposedErrors
        Of the others' parts.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> part = TransposedErrors(1e-8, 1e-9, 0.0)
    >>> round(stand_in_errors(generator, 3, (1, 2), np.ones(2), (part, part)).worst, 12)
    2e-08
    """
    rows, wanted, sizes = generator[np.asarray(others) - 1], generator[machine - 1], np.abs(weights)
    left = np.abs(weights @ rows - wanted) + float(gamma(len(rows) + 2, np.float64)) * (
        sizes @ np.abs(rows) + np.abs(wanted)
    )
    worst, stored, summed = np.array(parts).T
    return TransposedErrors(
        float(sizes @ worst + left.sum()),
        float(np.linalg.norm(sizes * stored) + np.linalg.norm(left)),
        float(np.linalg.norm(sizes * summed)),
    )
