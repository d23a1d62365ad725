"""Condition numbers of the L-row submatrices of G, which amplify rounding errors in decoding.

If there are few submatrices, all are measured; otherwise a sample of random sets of machines and of
runs of consecutive machines, which are the worst sets for `fourier`. Unmeasured sets may be worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, islice
from math import comb

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.text import plural

Floats = NDArray[np.float64]

MAX_EXHAUSTIVE = 200_000  # submatrices
_SAMPLE_SIZE, _MIN_SAMPLE = 2_000, 32  # submatrices
_MAX_SAMPLE_WORK = 4e8  # number of submatrices times L**3; takes seconds for L up to a few hundred
_MAX_COMPLETE_WORK = 4e9  # the same for all N submatrices of N = L + 1 machines
_BATCH = 2_000_000  # entries in one batch of submatrices
_MAX_EXCHANGE_RATIO = 1 - 1e-6  # of the squared norm after an exchange to that before


class Conditioning(Struct, frozen=True, forbid_unknown_fields=True):
    """Condition numbers (2-norm) of the L-row submatrices of a generator matrix.

    Attributes
    ----------
    median, worst : float
        Over the measured submatrices. The condition number of a singular one is infinite.
    worst_machines : tuple of int
        The machines of the worst submatrix, numbered from 1.
    measured : int
        Number of measured submatrices.
    complete : bool
        Whether all submatrices were measured, so that `worst` is exact.
    """

    median: float
    worst: float
    worst_machines: tuple[int, ...]
    measured: int
    complete: bool


def measure_conditioning(
    generator: NDArray[np.float64],
    max_exhaustive: int = MAX_EXHAUSTIVE,
    include: Sequence[Sequence[int]] = (),
) -> Conditioning:
    """Measure all L-row submatrices if there are few, otherwise a sample.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    max_exhaustive : int
        Largest number of submatrices that are all measured, unless L is large or N = L + 1.
    include : sequence of (L,) sequences of int, optional
        Sets of machines, numbered from 1, to include in the sample.

    Returns
    -------
    Conditioning

    Examples
    --------
    >>> measured = measure_conditioning(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> measured.measured, measured.complete, round(measured.worst, 3)
    (3, True, 2.618)
    """
    machine_count, recovery = generator.shape
    budget = max(_MIN_SAMPLE, int(_MAX_SAMPLE_WORK / recovery**3))
    # If N = L + 1, there are only N submatrices, which are all measured up to a larger L.
    min_exhaustive = machine_count if machine_count * recovery**3 <= _MAX_COMPLETE_WORK else 0
    complete = comb(machine_count, recovery) <= max(min(max_exhaustive, budget), min_exhaustive)
    subsets = (
        combinations(range(machine_count), recovery)
        if complete
        else chain(
            (tuple(n - 1 for n in subset) for subset in include),
            sample_subsets(machine_count, recovery, min(_SAMPLE_SIZE, budget)),
        )
    )
    batches: list[Floats] = []
    worst, worst_rows = -1.0, tuple(range(recovery))
    while batch := list(islice(subsets, max(1, _BATCH // recovery**2))):
        values = condition_numbers(generator[np.array(batch)])
        batches.append(values)
        if values.max() > worst:
            worst, worst_rows = float(values.max()), batch[int(values.argmax())]
    measured = np.concatenate(batches)
    return Conditioning(
        median=float(np.median(measured)),
        worst=worst,
        worst_machines=tuple(n + 1 for n in worst_rows),
        measured=measured.size,
        complete=complete,
    )


def sample_subsets(machine_count: int, subset_size: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield runs of consecutive machines, then random subsets; machines are numbered from 0."""
    run_count = min(machine_count, count // 2)
    firsts = np.linspace(0, machine_count, run_count, endpoint=False).astype(int)
    for first in firsts.tolist():
        yield tuple(sorted((first + k) % machine_count for k in range(subset_size)))
    rng = np.random.default_rng(0)
    for _ in range(count - run_count):
        yield tuple(np.sort(rng.choice(machine_count, subset_size, replace=False)).tolist())


def condition_numbers(matrices: Floats) -> Floats:
    """Return the condition numbers (2-norm) of square matrices; infinite for singular ones.

    Parameters
    ----------
    matrices : (K, L, L) ndarray of float

    Returns
    -------
    (K,) ndarray of float
    """
    singular_values = np.linalg.svd(matrices, compute_uv=False)
    largest, smallest = singular_values[:, 0], singular_values[:, -1]
    ratios = np.full(len(matrices), np.inf)
    with np.errstate(over="ignore"):
        np.divide(largest, smallest, out=ratios, where=smallest > 0)
    return ratios


def choose_machines(generator: Floats, machines: Sequence[int]) -> tuple[int, ...]:
    """Choose L of these machines whose rows of G form a well-conditioned matrix.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    machines : sequence of int
        At least L different machines, numbered from 1.

    Returns
    -------
    (L,) tuple of int
        Ascending. No exchange of one machine noticeably reduces the Frobenius norm of the inverse,
        so for L + 1 machines the choice is optimal in this norm.

    Raises
    ------
    InputError
        There are fewer than L machines.

    Notes
    -----
    Rows are chosen greedily: the next row has the longest component orthogonal to the chosen rows.
    Then single machines are exchanged as long as that reduces the norm of the inverse.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])
    >>> choose_machines(generator, (1, 2, 3))
    (1, 3)
    """
    candidates = np.array(sorted(machines), dtype=int)
    rows = generator[candidates - 1]
    count, recovery = rows.shape
    if count < recovery:
        raise InputError(f"{plural(count, 'machine')}: expected at least {recovery}")
    if count == recovery:
        return tuple(candidates.tolist())
    chosen = _pivots(rows)
    for _ in range(count * recovery):
        try:
            new_norms, old_norm = _exchange_norms(rows, chosen)
        except np.linalg.LinAlgError:
            break  # the chosen rows are singular
        best = int(new_norms.argmin())
        if not new_norms.flat[best] < old_norm * _MAX_EXCHANGE_RATIO:
            break
        row, position = divmod(best, recovery)
        chosen[position] = row
    return tuple(np.sort(candidates[chosen]).tolist())


def _pivots(rows: Floats) -> NDArray[np.int64]:
    """Return the pivots of a QR factorisation of the transpose: indices of L rows."""
    remainder = rows.copy()
    chosen: list[int] = []
    for _ in range(rows.shape[1]):
        norms = np.linalg.norm(remainder, axis=1)
        norms[chosen] = -1.0
        chosen.append(int(norms.argmax()))
        if norms.max() > 0:
            unit = remainder[chosen[-1]] / norms.max()
            remainder = remainder - np.outer(remainder @ unit, unit)
    return np.array(chosen)


def _exchange_norms(rows: Floats, chosen: NDArray[np.int64]) -> tuple[Floats, float]:
    """Return the squared Frobenius norms of the inverse after and before each exchange of one row.

    Parameters
    ----------
    rows : (n, L) ndarray of float
    chosen : (L,) ndarray of int
        Indices of the rows that form the matrix to invert.

    Returns
    -------
    new_norms : (n, L) ndarray of float
        ``new_norms[i, j]`` is the norm if row i replaces ``chosen[j]``; infinite for chosen rows.
    old_norm : float

    Raises
    ------
    numpy.linalg.LinAlgError
        The chosen rows are singular.

    Notes
    -----
    With B the inverse and c = g B, replacing row j by g changes column k of B to
    ``b_k - b_j c_k / c_j``, and column j to ``b_j / c_j`` (the Sherman-Morrison formula).

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    >>> new_norms, old_norm = _exchange_norms(rows, np.array([0, 1]))
    >>> old_norm, new_norms[2].tolist()
    (2.0, [inf, 1.25])
    """
    inverse = np.linalg.inv(rows[chosen])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gram = inverse.T @ inverse
        column_norms = np.diag(gram)
        old_norm = float(column_norms.sum())
        c = rows @ inverse
        squares = c**2
        cross_terms = 2 * (c @ gram - c * column_norms) / c
        new_norms = old_norm - column_norms - cross_terms
        new_norms += (squares.sum(axis=1, keepdims=True) - squares + 1) * (column_norms / squares)
    new_norms[~np.isfinite(new_norms)] = np.inf
    new_norms[chosen] = np.inf
    return new_norms, old_norm
