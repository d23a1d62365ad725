"""Parity: wrong answers seen with one answer to spare, and their machine named with two.

The answers of machines P at one row are ``a = G_P x`` with x = (X_1 w .. X_L w) at that row.
More than L of them are redundant: with C an orthonormal basis of the left null space of G_P,
``C a = 0``. In floating point C a is as large as rounding makes it, and an error E of machine
n adds E times the length of column n of C, the weight of n in P. Weights are from 0 to 1, and
those of some codes are so small that rounding hides any error; so how small an error can be
seen is measured, as conditioning is. Whose error it is tells the direction of C a, or what
is the same: without the wrong machine, and only then, the rest agree.

Units are those of `recombine`: all errors are relative to the scale S of a row, which is
``S = sum_j max_l |X_l[j]| |w_j|`` or a bound of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.recombine import Verdict, encoding_error
from cec_mpi.errors import InputError

__all__ = [
    "Observation",
    "Parity",
    "ParityChecker",
    "Sensitivity",
    "answer_error",
    "decode_error_bound",
    "likely_scale",
    "measure_sensitivity",
]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_DEVIATIONS = 8.0  # standard deviations of a sum's rounding that are taken for a bound
_LUCK = 6.0  # one in 10**6 samples of answers may all be smaller than they are taken to be
_LARGEST = float(np.finfo(np.float64).max)
_KEPT = 1024  # parities
_MOST_SUSPECTS = 5_000  # sets of machines that are tried before nobody is named
_UNDERESTIMATE = 3.0  # at most by this factor LAPACK's condition number is too small
_WORK = 4e8  # subsets times L**2 N: a few seconds
_LEAST_SAMPLE = 32
_MOST_SUBSETS = 200_000
_BATCH = 2_000_000  # numbers in one batch of subsets


def answer_error(
    generator: ArrayLike,
    dtype: DTypeLike,
    columns: int,
    shard_errors: ArrayLike | None = None,
) -> Floats:
    """Bound the error of each machine's answers: rounding of its shard, and of the product.

    Parameters
    ----------
    generator : (N, L) array_like of float
        Its entries are numbers of the dtype.
    dtype : dtype
        Of the shards, in which products are summed.
    columns : int
        Terms of each sum, r.
    shard_errors : (N,) array_like of float, optional
        Error bounds of the shards, relative as in `encoding_error`, which is the default.

    Returns
    -------
    (N,) ndarray of float
        Relative to the scale S.

    Notes
    -----
    With d_n the shard error and ``g_n = sum_l |G[n, l]|``, the row s of shard n has
    ``|s_j| <= (g_n + d_n) max_l |X_l[j]|``. Its error alone gives at most d_n S. A sum of r
    products adds at most ``gamma_r |s| |w| <= gamma_r (g_n + d_n) S``, in any order of
    summation. Rounding errors of many terms mostly cancel: where r > 64, 8 sqrt(r) u takes
    the place of gamma_r, which is exceeded with probability 2 r exp(-32) (Higham and Mary,
    A New Approach to Probabilistic Rounding Error Analysis, 2019, Theorem 2.4).

    Examples
    --------
    >>> answer_error([[1.0, 0.0], [1.0, 1.0]], np.float64, columns=1)
    array([1.11022302e-16, 6.66133815e-16])
    """
    matrix = np.asarray(generator, dtype=np.float64)
    given = encoding_error(matrix, dtype) if shard_errors is None else np.asarray(shard_errors)
    sizes = np.abs(matrix).sum(axis=1) + given
    return np.asarray(given + _summing(columns, dtype) * sizes, dtype=np.float64)


def likely_scale(parts: Floats, work: Floats | None = None) -> float:
    """Estimate S from what a step came to, pooled over its rows.

    Parameters
    ----------
    parts : (L, rows) ndarray of float
        X_1 w .. X_L w, as decoded.
    work : (L, rows) ndarray of float64, optional
        Receives their absolute values.

    Returns
    -------
    float
        The largest of these numbers; where they are few, more than that.

    Notes
    -----
    Terms of changing sign sum up to about the length of their vector, and their rounding
    errors to about sqrt(r) u times that: then the largest sum of many bounds them as S
    does. Of m numbers that are not 0, all can be small by chance: the largest is below q
    times the typical one with a probability of about ``q ** m``, so it is divided by
    ``q = 10 ** (-6 / m)``.

    Where w is such that all of X w is much smaller than its terms, rounding does not
    shrink with it, and the estimate is too small. Who sees many steps can give a floor:
    the largest quotient of the scale and norm(w) in steps that passed, times norm(w) of
    this step. That fails only where all steps so far have cancelled.

    Examples
    --------
    >>> round(likely_scale(np.array([[3.0] * 50, [-4.0] * 50])), 2)
    4.59
    """
    sizes = np.abs(parts, out=work)
    samples = int(np.count_nonzero(sizes))
    if not samples:
        return 0.0
    return min(float(sizes.max()) * float(10.0 ** (_LUCK / samples)), _LARGEST)


class Parity:
    """The parity checks of one set of machines.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    machines : (m,) sequence of int
        P: more than L different machines, numbered from 1.
    errors : (N,) ndarray of float
        Of the answers of machines 1..N, relative to S: see `answer_error`.

    Attributes
    ----------
    machines : tuple of int
    checks : (m - L, m) ndarray of float
        C: orthonormal rows with ``C G_P = 0``.
    weights : (m,) ndarray of float
        How much of an error of each machine the checks see, from 0 to 1.
    tolerance : float
        The most that rounding makes of ``norm(C a)``, relative to S.
    detectable : (m,) ndarray of float
        An error of each machine larger than this is seen, relative to S; infinite where none
        is. See `measure_sensitivity`.

    Raises
    ------
    InputError
        There are not more than L different machines of the code.

    Notes
    -----
    With e the errors of the answers, ``norm(C a) = norm(C e) <= norm(e)``, as the rows of C
    are orthonormal. That C is not exact and the product with it rounds adds terms of float64.

    Examples
    --------
    >>> parity = Parity(np.array([[1.0], [1.0], [1.0]]), (1, 2, 3), np.zeros(3))
    >>> parity.checks.shape, parity.weights.round(3).tolist()
    ((2, 3), [0.816, 0.816, 0.816])
    """

    def __init__(self, generator: Floats, machines: Sequence[int], errors: Floats) -> None:
        rows = np.asarray(machines, dtype=int) - 1
        recovery = generator.shape[1]
        count = len(rows)
        if (
            len(set(rows.tolist())) != count
            or count <= recovery
            or rows.min() < 0
            or rows.max() >= len(generator)
        ):
            raise InputError(
                f"parity of machines {list(machines)}: expected more than {recovery} different "
                f"machines from 1 to {len(generator)}"
            )
        matrix = generator[rows]
        basis, _ = np.linalg.qr(matrix, mode="complete")
        self.machines = tuple(int(n) for n in machines)
        self.checks: Floats = np.ascontiguousarray(basis[:, recovery:].T)
        self.weights: Floats = np.linalg.norm(self.checks, axis=0)
        sizes = np.abs(matrix).sum(axis=1)
        self.tolerance = float(
            np.linalg.norm(errors[rows]) + _checking(count, recovery) * np.linalg.norm(sizes)
        )
        self._parts = np.linalg.pinv(matrix)
        self.detectable = _detectable(
            self.weights, np.abs(self._parts).max(axis=0), np.full(count, self.tolerance)
        )

    def scale(self, answers: Floats) -> float:
        """Estimate S from the answers to a step, pooled over its rows.

        Parameters
        ----------
        answers : (m, rows) ndarray of float
            Finite.

        Returns
        -------
        float
            Of what the answers are decoded to: see `likely_scale`.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return likely_scale(self._parts @ answers)

    def residuals(self, answers: Floats) -> Floats:
        """What the checks leave of each row: ``norm(C a)``.

        Parameters
        ----------
        answers : (m, rows) ndarray of float

        Returns
        -------
        (rows,) ndarray of float
        """
        with np.errstate(over="ignore", invalid="ignore"):
            # hypot, since squares of what is no error would overflow from 1e154 on
            left: Floats = np.hypot.reduce(np.abs(self.checks @ answers), axis=0)
        return left

    def inconsistent(
        self,
        answers: NDArray[np.floating],
        scale: ArrayLike | None = None,
        floor: float = 0.0,
        least: float = 0.0,
    ) -> Bools:
        """Which rows fail the checks.

        Parameters
        ----------
        answers : (m, rows) ndarray of float
            Of the machines, in their order.
        scale : float or (rows,) array_like of float, optional
            S, or a bound of it; estimated from the answers when left out.
        floor : float
            What S is at least, for the estimate.
        least : float
            What underflow can make of ``norm(C a)``.

        Returns
        -------
        (rows,) ndarray of bool
            True where ``norm(C a) > tolerance * S + least``, and where an answer is NaN or
            infinite.

        Notes
        -----
        An estimated scale is too large where answers are wrong. So it is estimated again
        from the rows that have passed, until no more fail.

        Examples
        --------
        >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> parity = Parity(generator, (1, 2, 3), answer_error(generator, np.float64, 1))
        >>> answers = generator @ [[5.0, 5.0, 5.0], [7.0, 7.0, 7.0]]
        >>> answers[2] += [0, 1e-9, np.nan]
        >>> parity.inconsistent(answers)
        array([False,  True,  True])
        """
        values = np.asarray(answers, dtype=np.float64)
        if values.ndim != 2 or len(values) != len(self.machines):
            raise InputError(
                f"answers of shape {values.shape}: expected a row for each of "
                f"{len(self.machines)} machines"
            )
        failed: Bools = np.asarray(~np.isfinite(values).all(axis=0), dtype=bool)
        if failed.any():
            values = np.where(failed, 0.0, values)
        left = self.residuals(values)
        if scale is not None:
            bounds = np.asarray(scale, dtype=np.float64)
            return np.asarray(failed | ~(left <= self.tolerance * bounds + least), dtype=bool)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = self._parts @ values
        failed |= ~np.isfinite(parts).all(axis=0)  # no X that is finite gives such answers
        while not failed.all():
            estimate = max(likely_scale(parts[:, ~failed]), floor)
            found = failed | ~(left <= self.tolerance * estimate + least)
            if not (found & ~failed).any():
                break
            failed = np.asarray(found, dtype=bool)
        return failed


@dataclass(frozen=True)
class Observation:
    """The answers of some machines to the same rows.

    Attributes
    ----------
    machines : tuple of int
        P, at least L machines.
    answers : (m, rows) ndarray of float
        In the order of the machines.
    scale : float or (rows,) ndarray of float, optional
        S, or a bound of it.
    floor : float
        What S is at least, where it is estimated.
    """

    machines: tuple[int, ...]
    answers: NDArray[np.floating]
    scale: float | Floats | None = None
    floor: float = 0.0


class ParityChecker:
    """Parity checks of one code, each set of machines made ready once.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype : dtype
        Of the shards.
    columns : int
        Of X, r.
    shard_errors : (N,) array_like of float, optional
        As in `answer_error`.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    >>> checker = ParityChecker(generator, np.float64, columns=1)
    >>> answers = generator @ [[5.0], [7.0]]
    >>> answers[2] += 0.5
    >>> checker.inconsistent((1, 2, 3), answers[:3])
    array([ True])
    >>> checker.locate([Observation((1, 2, 3, 4), answers)])
    Verdict(agree=False, wrong=(3,))
    """

    def __init__(
        self,
        generator: Floats,
        dtype: DTypeLike,
        columns: int,
        shard_errors: ArrayLike | None = None,
    ) -> None:
        self._generator = generator
        self._errors = answer_error(generator, dtype, columns, shard_errors)
        self._tiny = float(np.finfo(dtype).tiny) * (columns + 1)
        self.parity = lru_cache(_KEPT)(self._parity)

    def _parity(self, machines: tuple[int, ...]) -> Parity:
        return Parity(self._generator, machines, self._errors)

    def inconsistent(
        self,
        machines: Sequence[int],
        answers: NDArray[np.floating],
        scale: ArrayLike | None = None,
        floor: float = 0.0,
    ) -> Bools:
        """Which rows fail the checks of these machines: see `Parity.inconsistent`.

        Parameters
        ----------
        machines : (m,) sequence of int
            More than L.
        answers : (m, rows) ndarray of float
        scale : float or (rows,) array_like of float, optional
        floor : float

        Returns
        -------
        (rows,) ndarray of bool
        """
        least = self._tiny * len(machines) ** 0.5
        return self.parity(tuple(machines)).inconsistent(answers, scale, floor, least)

    def locate(self, observations: Sequence[Observation], most: int = 1) -> Verdict:
        """Name the machine without which all observations are consistent.

        Parameters
        ----------
        observations : sequence of Observation
            Blocks of a step, or of several steps: the same machine must explain them all.
        most : int
            How many machines may be wrong at once.

        Returns
        -------
        Verdict
            Nobody is named where no machine explains it or several would, nor where the
            failing observations have fewer than 2 answers to spare for each wrong machine.

        Notes
        -----
        Two observations of L + 1 machines each that fail may have one machine in common, but
        two others may as well be wrong, one in each. So they can clear machines, not name
        one. An error that any L + 1 machines detect (`Sensitivity`) is named by any L + 2:
        without another machine these are L + 1 with the wrong one among them, and fail.
        """
        failing: dict[tuple[int, frozenset[int]], bool] = {}

        def fails(index: int, without: Collection[int]) -> bool:
            seen = observations[index]
            gone = frozenset(without) & frozenset(seen.machines)
            if (index, gone) not in failing:
                failing[index, gone] = self._fails(seen, gone)
            return failing[index, gone]

        everything = range(len(observations))
        present = sorted({n for seen in observations for n in seen.machines})
        alarmed = any(fails(index, ()) for index in everything)
        for size in range(1, most + 1):
            if comb(len(present), size) > _MOST_SUSPECTS:
                break
            suspects, cleared = [], 0
            for wrong in combinations(present, size):
                if any(fails(index, wrong) for index in everything):
                    cleared += 1
                else:
                    suspects.append(wrong)
            if not alarmed and not cleared:
                return Verdict(agree=True)
            alarmed = True
            if suspects:
                named = len(suspects) == 1 and self._witnessed(observations, suspects[0])
                return Verdict(agree=False, wrong=suspects[0] if named else ())
        return Verdict(agree=not alarmed)

    def _fails(self, seen: Observation, without: Collection[int]) -> bool:
        """Whether the rest of the machines disagree; L cannot."""
        kept = [k for k, n in enumerate(seen.machines) if n not in without]
        if len(kept) <= self._generator.shape[1]:
            return False
        machines = tuple(seen.machines[k] for k in kept)
        failed = self.inconsistent(machines, seen.answers[kept], seen.scale, seen.floor)
        return bool(failed.any())

    def _witnessed(self, observations: Sequence[Observation], wrong: tuple[int, ...]) -> bool:
        """Whether each is among the machines of an observation that can name as many."""
        enough = self._generator.shape[1] + 2 * len(wrong)
        witnesses = [set(seen.machines) for seen in observations if len(seen.machines) >= enough]
        return all(any(n in machines for machines in witnesses) for n in wrong)


@dataclass(frozen=True)
class Sensitivity:
    """How small an error of one answer a code can see.

    Attributes
    ----------
    median : float
        What half of the sets of L machines see, each with any further one; in the units of
        `detectable`.
    detectable : float
        An error larger than this, in units of S times the machine epsilon of the shards, is
        seen by any L + 1 machines; infinite where there are no L + 1 machines, or where some
        of them see nothing.
    locatable : float
        From here on any L + 2 machines name the wrong one; infinite where there are none.
    least_weight : float
        The smallest weight of a machine among L + 1.
    machines : tuple of int
        The machines that see least, from 1; the first is the one whose error they miss.
    measured : int
        How many sets of L machines were measured, each with any further machine.
    complete : bool
        Whether that is all of them. Otherwise `detectable` and `locatable` are
        underestimates.
    """

    median: float
    detectable: float
    locatable: float
    least_weight: float
    machines: tuple[int, ...]
    measured: int
    complete: bool


def measure_sensitivity(
    generator: Floats,
    dtype: DTypeLike,
    columns: int,
    badly_conditioned: Sequence[int] | None = None,
    largest: int = _MOST_SUBSETS,
) -> Sensitivity:
    """Measure what any L + 1 machines detect, and any L + 2 locate.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype : dtype
        Of the shards.
    columns : int
        Of X, r.
    badly_conditioned : (L,) sequence of int, optional
        A set of machines to measure in any case: the worst of `Conditioning`.
    largest : int
        How many sets of L machines are few: all are measured up to here, and of more a
        sample, the same each time.

    Returns
    -------
    Sensitivity

    Notes
    -----
    Let W be L machines, n a further one and ``h = g_n inv(G_W)``. The only check of W and n
    is ``(-h, 1) / sqrt(1 + norm(h)**2)``, so n has weight ``p = 1 / sqrt(1 + norm(h)**2)``.
    An error E of n makes ``norm(C a) >= p E - t S`` with t the tolerance, and fails if that
    exceeds t S' where S' is the scale that is used. A scale that is estimated from the
    answers grows with E: ``S' <= S + k E`` with k the largest entry of column n of
    ``pinv(G_P)``, which is ``p**2 inv(G_W) h'``. So E is seen if ``E > 2 t S / (p - k t)``.

    Examples
    --------
    >>> from cec_mpi.core.mds import make_code
    >>> found = measure_sensitivity(make_code(6, 3).generator, np.float32, columns=100)
    >>> round(found.least_weight, 3), round(found.detectable)
    (0.236, 1400)
    """
    machines, recovery = generator.shape
    if machines <= recovery:
        return Sensitivity(np.inf, np.inf, np.inf, 0.0, (), 0, True)
    errors = answer_error(generator, dtype, columns)
    sizes = np.abs(generator).sum(axis=1)
    every = comb(machines, recovery)
    budget = max(_LEAST_SAMPLE, int(_WORK / (recovery**2 * machines)))
    complete = every <= min(largest, max(budget, machines))
    subsets = (
        combinations(range(machines), recovery)
        if complete
        else _sample(machines, recovery, min(largest, budget, 2_000), badly_conditioned)
    )
    worst, where, least_weight = -1.0, (0,) * (recovery + 1), 1.0
    sizes_seen: list[Floats] = []
    while batch := list(islice(subsets, max(1, _BATCH // (recovery * machines)))):
        chosen = np.array(batch)
        weights, gains = _weights(generator, chosen)
        inside = np.zeros(weights.shape, dtype=bool)
        np.put_along_axis(inside, chosen, True, axis=1)
        squares = (errors[chosen] ** 2).sum(axis=1)[:, None] + errors**2
        computing = (sizes[chosen] ** 2).sum(axis=1)[:, None] + sizes**2
        tolerance = np.sqrt(squares) + _checking(recovery + 1, recovery) * np.sqrt(computing)
        size = _detectable(weights, gains, tolerance)
        size[inside] = 0.0
        sizes_seen.append(size.max(axis=1))
        least_weight = min(least_weight, float(weights[~inside].min()))
        if size.max() > worst:
            worst = float(size.max())
            row, n = divmod(int(size.argmax()), machines)
            where = (n, *batch[row])
    found = np.concatenate(sizes_seen) / float(np.finfo(dtype).eps)
    detectable = float(found.max())
    return Sensitivity(
        median=float(np.median(found)),
        detectable=detectable,
        locatable=detectable if machines >= recovery + 2 else np.inf,
        least_weight=least_weight,
        machines=tuple(n + 1 for n in where),
        measured=found.size,
        complete=complete,
    )


def decode_error_bound(
    condition: float, gain: float, errors: ArrayLike, largest: float, scale: float
) -> float:
    """Bound the relative error of what the answers of L machines are decoded to.

    Parameters
    ----------
    condition : float
        `Decoder.condition`; of several decoders the largest.
    gain : float
        `Decoder.gain`, the 1-norm of ``inv(G_P)``; of several decoders the largest.
    errors : (L,) array_like of float
        Of the answers, relative to S: see `answer_error`. Of several blocks the largest.
    parts : (L, rows) ndarray of float
        X_1 w .. X_L w, as decoded.
    scale : float
        The largest S of the rows, or a bound of it; with `likely_scale` the result is as
        likely a bound as that.

    Returns
    -------
    float
        Bound of ``max_i norm1(x_i - exact x_i) / max_i norm1(exact x_i)``, where x_i are the
        L numbers at row i; infinite where they are no more than rounding.

    Notes
    -----
    ``x - exact x = inv(G_P) e`` with ``norm1(e) <= S sum(errors)``, and decoding in float64
    adds about L**2 roundings times the condition number. LAPACK estimates condition number
    and norm, at most about 3 times too small.

    Examples
    --------
    >>> bound = decode_error_bound(2.0, 1.0, [1e-8, 1e-8], largest=3.0, scale=5.0)
    >>> round(bound, 12)
    1e-07
    """
    each = np.asarray(errors, dtype=np.float64)
    decoding = condition * _gamma(4 * each.size**2, np.float64) * each.size * largest
    wrong = _UNDERESTIMATE * (scale * gain * float(each.sum()) + decoding)
    if not wrong:
        return 0.0
    return wrong / (largest - wrong) if wrong < largest < np.inf else float("inf")


def _weights(generator: Floats, chosen: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Weights of all machines beside each L of them, and how an error of theirs is decoded."""
    matrices = generator[chosen]
    with np.errstate(all="ignore"):
        try:
            inverses = np.linalg.inv(matrices)
        except np.linalg.LinAlgError:  # singular: beside these no machine is seen
            inverses = np.linalg.pinv(matrices)
            singular = np.linalg.matrix_rank(matrices) < generator.shape[1]
            inverses[singular] = np.inf
        coefficients = generator @ inverses
        squares = 1 + (coefficients**2).sum(axis=2)
        parts = np.abs(coefficients @ inverses.transpose(0, 2, 1)).max(axis=2)
        weights, gains = 1 / np.sqrt(squares), parts / squares
    return np.nan_to_num(weights, nan=0.0), np.nan_to_num(gains, nan=0.0)


def _detectable(weights: Floats, gains: Floats, tolerance: Floats) -> Floats:
    """``2 t / (p - k t)``, infinite where that is no size."""
    seen = weights - gains * tolerance
    sizes = np.full(weights.shape, np.inf)
    np.divide(2 * tolerance, seen, out=sizes, where=seen > 0)
    return sizes


def _sample(
    machines: int, recovery: int, size: int, always: Sequence[int] | None
) -> Iterator[tuple[int, ...]]:
    """What is to be measured anyway, runs of consecutive machines, then random subsets."""
    if always is not None:
        yield tuple(sorted(n - 1 for n in always))
        size -= 1
    runs = np.linspace(0, machines, min(machines, size // 2), endpoint=False).astype(int)
    for first in runs.tolist():
        yield tuple(sorted((first + k) % machines for k in range(recovery)))
    rng = np.random.default_rng(0)
    for _ in range(size - len(runs)):
        yield tuple(np.sort(rng.choice(machines, recovery, replace=False)).tolist())


def _summing(terms: int, dtype: DTypeLike) -> float:
    """Relative error of a sum of products, in the dtype."""
    likely = _DEVIATIONS * terms**0.5 * float(np.finfo(dtype).eps) / 2
    return min(_gamma(terms, dtype), likely) if terms > 1 else _gamma(terms, dtype)


def _checking(count: int, recovery: int) -> float:
    """Relative error of C a in float64, and of C itself."""
    return float((count - recovery) ** 0.5) * _gamma(4 * count, np.float64)


def _gamma(terms: int, dtype: DTypeLike) -> float:
    roundings = terms * float(np.finfo(dtype).eps) / 2
    return roundings / (1 - roundings) if roundings < 1 else float("inf")
