"""How much decoding amplifies rounding errors: condition numbers of the L-row submatrices.

They are measured where there are few, and the worst is searched where there are too many. A random
sample hides it: of 155 million sets of 15 of 30 machines, 2,000 random ones had condition numbers
up to 1.3e4, and others have more than 6e7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.text import plural

ALL_SUBSETS = 200_000
_SAMPLE = 2_000
_LEAST_SAMPLE, _FEWEST = 32, 8  # with an effort of 1, and with a small one
_WORK = 4e8  # submatrices times L**3: seconds, up to an L of some hundreds
_WORK_AT_ONCE = 4e9
_BATCH = 2_000_000  # numbers in one batch of submatrices
Floats = NDArray[np.float64]
Sets = NDArray[np.int64]
_SEARCH_WORK = 1e10  # multiplications of a search, about: half a second
_STARTS, _LEAST_STARTS = 1_000, 2
_ALTERNATING = 0.25  # of the work
_ROUNDS = 30  # of the alternation, which has ended after ten of them nearly always
_SOLVING = 20  # cubes of L that singular values of a set take, or one start
_LOOKING = 400  # multiplications that one look at a number takes, beside matrix products
_KEPT = 64  # sets, the worst, and how many are made of them at a time
_PARENTS = 16  # sets that others are made of
_VARIED = 3  # rows at most that these have of their own
_EXCHANGES = 40  # from one set, at most
_WORSE = 1 + 1e-6  # by which an exchange makes a set worse, or no set near it is
_ENOUGH = 50  # times as many sets as there are, and the search ends
_SEARCH_BATCH = 300_000  # numbers in one array, so that it stays in a cache
_HOPELESS = 1 / float(np.finfo(np.float64).eps)  # from here on a set is as good as singular
_BETTER = 1 - 1e-6  # by which an exchange makes the norm smaller, or no set near it is better


@dataclass(frozen=True)
class Conditioning:
    """Condition numbers (2-norm) of the L-row submatrices of a generator matrix.

    Attributes
    ----------
    median, worst : float
        Over the submatrices measured; infinite when one is singular.
    worst_machines : tuple of int
        The machines of the worst submatrix, from 1.
    measured : int
        How many submatrices were measured.
    complete : bool
        Whether that is all of them, and `worst` exact. Otherwise the median is that of runs of
        consecutive machines and of random submatrices, and `worst` the largest that was found
        (`search_worst`): others may be larger.
    searched : int
        The effort of that search: how many submatrices it compared. 0 where all were measured.
    """

    median: float
    worst: float
    worst_machines: tuple[int, ...]
    measured: int
    complete: bool
    searched: int = 0


def measure_conditioning(
    generator: NDArray[np.float64],
    largest: int = ALL_SUBSETS,
    effort: float = 1.0,
    known: Sequence[Sequence[int]] = (),
) -> Conditioning:
    """Measure all L-row submatrices if there are few, otherwise a sample, and search the worst.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    largest : int
        Up to this number all submatrices are measured.
    effort : float
        Effort of sample and search if there are more; by default they take about a second.
    known : sequence of (L,) sequences of int, optional
        Sets of machines, from 1, with which the search begins too.

    Returns
    -------
    Conditioning

    Examples
    --------
    >>> measured = measure_conditioning(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> measured.measured, measured.complete, round(measured.worst, 3)
    (3, True, 2.618)
    """
    machines, recovery = generator.shape
    budget = max(_LEAST_SAMPLE, int(_WORK / recovery**3))
    at_once = machines if machines * recovery**3 <= _WORK_AT_ONCE else 0  # as with N = L + 1
    complete = comb(machines, recovery) <= max(min(largest, budget), at_once)
    subsets = (
        combinations(range(machines), recovery)
        if complete
        else sample_subsets(machines, recovery, max(_FEWEST, int(effort * min(_SAMPLE, budget))))
    )
    numbers: list[NDArray[np.float64]] = []
    worst: list[tuple[float, tuple[int, ...]]] = []
    while batch := list(islice(subsets, max(1, _BATCH // recovery**2))):
        values = condition_numbers(generator[np.array(batch)])
        numbers.append(values)
        worst.append((float(values.max()), batch[int(values.argmax())]))
    searched = 0
    if not complete:
        begin = [rows for _, rows in worst] + [tuple(n - 1 for n in rows) for rows in known]
        found = search_worst(generator, effort, np.array(begin))
        worst, searched = [(found.number, found.rows)], found.compared
    measured = np.concatenate(numbers)
    number, where = max(worst, key=lambda one: one[0])
    return Conditioning(
        median=float(np.median(measured)),
        worst=number,
        worst_machines=tuple(n + 1 for n in where),
        measured=measured.size,
        complete=complete,
        searched=searched,
    )


def sample_subsets(machines: int, recovery: int, size: int) -> Iterator[tuple[int, ...]]:
    """Yield runs of consecutive machines (the worst ones of harmonics), then random subsets."""
    runs = np.linspace(0, machines, min(machines, size // 2), endpoint=False).astype(int)
    for first in runs.tolist():
        yield tuple(sorted((first + k) % machines for k in range(recovery)))
    rng = np.random.default_rng(0)
    for _ in range(size - len(runs)):
        yield tuple(np.sort(rng.choice(machines, recovery, replace=False)).tolist())


class Found(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    rows : tuple of int
        Rows of the worst set, ascending, from 0.
    number : float
        Its condition number (2-norm).
    compared : int
        Number of sets that were compared, including those that are one exchange away from others.
    """

    rows: tuple[int, ...]
    number: float
    compared: int


def search_worst(generator: Floats, effort: float = 1.0, known: Sets | None = None) -> Found:
    """Search for L rows of a generator with the largest condition number.

    Parameters
    ----------
    generator : (N, L) ndarray of float
        More rows than columns.
    effort : float
        1 is about half a second. It counts work, so that the result does not depend on the
        computer.
    known : (K, L) ndarray of int, optional
        Sets of rows, from 0, with which the search begins too.

    Returns
    -------
    Found
        At least as bad as all known sets.

    Notes
    -----
    The smallest singular value is the minimum of ``|G_P x|`` over sets P and unit vectors x. With
    x fixed, P has the L rows with the smallest ``|G x|``; with P fixed, x is brought closer
    to the last right singular vector: each step makes the value smaller, until the set stays.
    From there rows are exchanged one for another, as long as the Frobenius norm of the inverse
    grows. Then the worst sets found are varied in a few rows, and exchanges go on.

    Examples
    --------
    >>> search_worst(np.array([[1.0, 0.0], [0.0, 1.0], [0.01, 1.0]])).rows
    (1, 2)
    """
    machines, recovery = generator.shape
    _, exponent = np.frexp(np.abs(generator).max())
    generator = np.ldexp(generator, -exponent)  # the condition numbers are the same
    rng = np.random.default_rng(0)
    cube = float(recovery**3)
    start = _SOLVING * cube + _LOOKING * machines
    each = 4 * cube + machines * recovery * (4 * recovery + _LOOKING)  # exchange in a set
    left = effort * _SEARCH_WORK
    starts = int(np.clip(_ALTERNATING * left / start, _LEAST_STARTS, _STARTS))
    left -= start * starts
    directions = rng.standard_normal((starts, recovery))
    pieces = -(-starts * max(machines, recovery**2) // _SEARCH_BATCH)
    new = np.vstack([_alternate(generator, some) for some in np.array_split(directions, pieces)])
    if known is not None:
        new = np.vstack((known, new))
    sets, numbers = _worst_first(generator, new)
    compared = len(new)
    most = min(
        max(1, _SEARCH_BATCH // (machines * recovery)), int(np.clip(left / (10 * each), 1, _KEPT))
    )
    new = sets[:most]
    enough = _ENOUGH * comb(machines, recovery)
    while left >= each and numbers[0] < _HOPELESS and compared < enough:
        new, exchanged = _exchange(generator, new, int(left / each))
        left -= exchanged * each + len(new) * start
        compared += exchanged * recovery * (machines - recovery)
        sets, numbers = _worst_first(generator, new, sets[:_KEPT], numbers[:_KEPT])
        new = _varied(sets[rng.integers(0, min(len(sets), _PARENTS), most)], machines, rng)
    return Found(tuple(sets[0].tolist()), float(numbers[0]), compared)


def condition_numbers(matrices: Floats) -> Floats:
    """Return the condition numbers (2-norm) of square matrices; infinite for singular ones.

    Parameters
    ----------
    matrices : (K, L, L) ndarray of float

    Returns
    -------
    (K,) ndarray of float
    """
    singular = np.linalg.svd(matrices, compute_uv=False)
    smallest = singular[:, -1]
    numbers = np.full(len(matrices), np.inf)
    with np.errstate(over="ignore"):
        np.divide(singular[:, 0], smallest, out=numbers, where=smallest > 0)
    return numbers


def _worst_first(
    generator: Floats, new: Sets, sets: Sets | None = None, numbers: Floats | None = None
) -> tuple[Sets, Floats]:
    """Merge new sets into known ones, each once, the worst first; with condition numbers."""
    all_sets, all_numbers = np.sort(new, axis=1), condition_numbers(generator[new])
    if sets is not None and numbers is not None:
        all_sets = np.vstack((sets, all_sets))
        all_numbers = np.concatenate((numbers, all_numbers))
    _, first = np.unique(all_sets, axis=0, return_index=True)
    order = first[np.argsort(-all_numbers[first], kind="stable")]
    return all_sets[order], all_numbers[order]


def _alternate(generator: Floats, directions: Floats) -> Sets:
    """Alternate between the sets of rows for directions and the directions for sets."""
    recovery = generator.shape[1]
    sets = np.zeros((len(directions), recovery), np.int64)
    going = np.arange(len(directions))
    for _ in range(_ROUNDS):
        sizes = np.abs(directions @ generator.T)
        rows = np.sort(np.argpartition(sizes, recovery - 1, axis=1)[:, :recovery], axis=1)
        changed = (rows != sets[going]).any(axis=1)
        going, rows = going[changed], rows[changed]
        if not going.size:
            break
        sets[going] = rows
        directions = _smallest(generator[rows], directions[changed])
    return sets


def _smallest(matrices: Floats, directions: Floats) -> Floats:
    """Return last singular vectors, by two steps of inverse iteration on G_P' G_P."""
    try:
        inverse = np.linalg.inv(matrices)
    except np.linalg.LinAlgError:  # one is singular
        return np.asarray(np.linalg.svd(matrices)[2][:, -1])
    vectors = directions[:, :, np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):  # nearly singular: that set is the worst
        for _ in range(2):
            vectors = inverse @ (inverse.mT @ vectors)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors[:, :, 0])


def _exchange(generator: Floats, sets: Sets, most: int) -> tuple[Sets, int]:
    """Exchange rows of sets while the norm of the inverse grows; also returns the tries."""
    going = np.arange(len(sets))
    sets, tried = sets.copy(), 0
    for _ in range(_EXCHANGES):
        if not going.size or tried >= most:
            break
        tried += going.size
        try:
            norms, now = norms_after(generator, sets[going], 0.0)
        except np.linalg.LinAlgError:
            break  # one is singular, and none is worse
        flat = norms.reshape(len(going), -1)
        best = flat.argmax(axis=1)
        grows = flat[np.arange(len(going)), best] > now * _WORSE
        going, best = going[grows], best[grows]
        rows, places = np.divmod(best, sets.shape[1])
        sets[going, places] = rows
    return sets, tried


def _varied(sets: Sets, machines: int, rng: np.random.Generator) -> Sets:
    """Return sets with up to three of their rows exchanged for random others."""
    count, recovery = sets.shape
    most = min(_VARIED, recovery, machines - recovery)
    out = rng.random((count, recovery)).argsort(axis=1)[:, :most]
    keys = rng.random((count, machines))
    np.put_along_axis(keys, sets, 2.0, axis=1)
    into = keys.argpartition(most - 1, axis=1)[:, :most]
    kept = np.arange(most) >= rng.integers(1, most + 1, (count, 1))
    varied = sets.copy()
    others = np.where(kept, np.take_along_axis(sets, out, axis=1), into)
    np.put_along_axis(varied, out, others, axis=1)
    return varied


def choose_machines(generator: Floats, machines: Sequence[int]) -> tuple[int, ...]:
    """Choose L of these machines with a small norm of the inverse, so a small condition number.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    machines : sequence of int
        At least L different machines, from 1.

    Returns
    -------
    (L,) tuple of int
        Ascending. With L + 1 machines this is the best choice in the Frobenius norm; with more, no
        choice that differs in one machine is better.

    Raises
    ------
    InputError
        There are fewer than L machines.

    Notes
    -----
    Rows are chosen one by one, each the one with the longest part orthogonal to those before. Then
    single machines are exchanged as long as that is better.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])
    >>> choose_machines(generator, (1, 2, 3))
    (1, 3)
    """
    numbers = np.array(sorted(machines), dtype=int)
    rows = generator[numbers - 1]
    count, recovery = rows.shape
    if count < recovery:
        raise InputError(f"{plural(count, 'machine')}: expected at least {recovery}")
    if count == recovery:
        return tuple(numbers.tolist())
    chosen = _pivots(rows)
    for _ in range(count * recovery):
        try:
            after, before = norms_after(rows, chosen[np.newaxis], np.inf)
        except np.linalg.LinAlgError:
            break  # all sets are singular, or the pivots were others
        best = int(after.argmin())
        if not after.flat[best] < before[0] * _BETTER:
            break
        row, place = divmod(best, recovery)
        chosen[place] = row
    return tuple(np.sort(numbers[chosen]).tolist())


def _pivots(rows: Floats) -> NDArray[np.int64]:
    """Return L rows: the pivots of a QR factorisation of the transpose."""
    left = rows.copy()
    chosen: list[int] = []
    for _ in range(rows.shape[1]):
        lengths = np.linalg.norm(left, axis=1)
        lengths[chosen] = -1.0
        chosen.append(int(lengths.argmax()))
        if lengths.max() > 0:
            unit = left[chosen[-1]] / lengths.max()
            left = left - np.outer(left @ unit, unit)
    return np.array(chosen)


def norms_after(generator: Floats, sets: NDArray[np.int64], untold: float) -> tuple[Floats, Floats]:
    """Return squared Frobenius norms of inverses, before and after each exchange of one row.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    sets : (K, L) ndarray of int
        Rows of G, from 0.
    untold : float
        The value for a set's own rows, and for results that are not finite.

    Returns
    -------
    after : (K, N, L) ndarray of float
        With row n of G in the place j of the set.
    before : (K,) ndarray of float

    Raises
    ------
    numpy.linalg.LinAlgError
        The rows of one of the sets are singular.

    Notes
    -----
    With B = inv(G_P) and c = g B, replacing row j by g changes column k of B to
    ``b_k - b_j c_k / c_j``, and column j to ``b_j / c_j`` (Sherman and Morrison).

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    >>> after, before = norms_after(generator, np.array([[0, 1]]), np.inf)
    >>> before.tolist(), after[0, 2].tolist()
    ([2.0], [inf, 1.25])
    """
    inverse = np.linalg.inv(generator[sets])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gram = inverse.mT @ inverse
        sizes = np.einsum("kjj->kj", gram)[:, np.newaxis]
        before = sizes.sum(axis=2)
        c = generator @ inverse
        squares = c**2
        after = before[:, np.newaxis] - sizes - 2 * (c @ gram - c * sizes) / c
        after += (squares.sum(axis=2, keepdims=True) - squares + 1) * (sizes / squares)
    after[~np.isfinite(after)] = untold
    np.put_along_axis(after, sets[:, :, np.newaxis], untold, axis=1)
    return after, before[:, 0]
