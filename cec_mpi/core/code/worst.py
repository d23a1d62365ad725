"""The L machines whose answers decode worst, searched where there are too many sets to measure.

A random sample hides them: of 155 million sets of 15 of 30 machines, 2,000 random ones had
condition numbers up to 1.3e4, and others have more than 6e7.
"""

from __future__ import annotations

from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.choosing import norms_after

Floats = NDArray[np.float64]
Sets = NDArray[np.int64]

_WORK = 1e10  # multiplications of a search, about: half a second
_STARTS, _LEAST_STARTS = 1_000, 2
_ALTERNATING = 0.25  # of the work
_ROUNDS = 30  # of the alternation, which has ended after ten of them nearly always
_SOLVING = 20  # cubes of L that singular values of a set take, or one start
_LOOKING = 400  # multiplications that one look at a number takes, beside matrix products
_KEPT = 64  # sets, the worst, and how many are made of them at a time
_PARENTS = 16  # sets that others are made of
_VARIED = 3  # rows at most that these have of their own
_EXCHANGES = 40  # from one set, at most
_GAIN = 1 + 1e-6  # by which an exchange makes a set worse, or no set near it is
_ENOUGH = 50  # times as many sets as there are, and the search ends
_BATCH = 300_000  # numbers in one array, so that it stays in a cache
_HOPELESS = 1 / float(np.finfo(np.float64).eps)  # from here on a set is as good as singular


class Found(NamedTuple):
    """What a search came to.

    Attributes
    ----------
    rows : tuple of int
        Of the worst set, ascending, counted from 0.
    number : float
        Its condition number (2-norm).
    compared : int
        How many sets were compared, with those that are one exchange away from others.
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
        1 is about half a second. It is counted in work, so that what is found does not depend
        on how fast a computer is.
    known : (K, L) ndarray of int, optional
        Sets of rows that the search begins with too, counted from 0.

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
    left = effort * _WORK
    starts = int(np.clip(_ALTERNATING * left / start, _LEAST_STARTS, _STARTS))
    left -= start * starts
    directions = rng.standard_normal((starts, recovery))
    pieces = -(-starts * max(machines, recovery**2) // _BATCH)
    new = np.vstack([_alternate(generator, some) for some in np.array_split(directions, pieces)])
    if known is not None:
        new = np.vstack((known, new))
    sets, numbers = _worst_first(generator, new)
    compared = len(new)
    most = min(max(1, _BATCH // (machines * recovery)), int(np.clip(left / (10 * each), 1, _KEPT)))
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
    """Condition numbers (2-norm) of square matrices, infinite where one is singular.

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
    """New sets, and others with their condition numbers: each once, the worst first."""
    all_sets, all_numbers = np.sort(new, axis=1), condition_numbers(generator[new])
    if sets is not None and numbers is not None:
        all_sets = np.vstack((sets, all_sets))
        all_numbers = np.concatenate((numbers, all_numbers))
    _, first = np.unique(all_sets, axis=0, return_index=True)
    order = first[np.argsort(-all_numbers[first], kind="stable")]
    return all_sets[order], all_numbers[order]


def _alternate(generator: Floats, directions: Floats) -> Sets:
    """Sets of rows that belong to directions, and directions to sets, in turn."""
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
    """Directions that these matrices make small: two steps of inverse iteration on G_P' G_P."""
    try:
        inverse = np.linalg.inv(matrices)
    except np.linalg.LinAlgError:  # one is singular
        return np.asarray(np.linalg.svd(matrices)[2][:, -1])
    vectors = directions[:, :, np.newaxis]
    with np.errstate(over="ignore", invalid="ignore"):  # nearly singular: that set is worst
        for _ in range(2):
            vectors = inverse @ (inverse.mT @ vectors)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors[:, :, 0])


def _exchange(generator: Floats, sets: Sets, most: int) -> tuple[Sets, int]:
    """Exchange single rows of sets while the norm of their inverse grows; how many were tried."""
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
        grows = flat[np.arange(len(going)), best] > now * _GAIN
        going, best = going[grows], best[grows]
        rows, places = np.divmod(best, sets.shape[1])
        sets[going, places] = rows
    return sets, tried


def _varied(sets: Sets, machines: int, rng: np.random.Generator) -> Sets:
    """These sets with up to three of their rows exchanged for random others."""
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
