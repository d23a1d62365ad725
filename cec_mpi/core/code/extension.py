"""Extension of a code by one machine: a row of G that is well conditioned with all others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.code.conditioning import measure_conditioning
from cec_mpi.core.code.families import harmonics
from cec_mpi.core.code.mds import MDSCode

Floats = NDArray[np.float64]

_MAX_WORK = 2e8  # number of subsets times L**3; takes seconds
_MAX_SUBSETS = 200_000
_MIN_SUBSETS = 64
_BATCH = 2_000_000  # entries in one batch of subsets
_RANDOM_CANDIDATES = 256
_MAX_HARMONIC_CANDIDATES = 512
_FINALISTS, _IMPROVEMENT_STEPS = 6, 150
_NEAREST_SUBSETS = 4  # a step moves a row away from this many subsets


def add_row(code: MDSCode, dtype: DTypeLike, seed: int = 0) -> MDSCode:
    """Return the code with one more machine; the other rows do not change.

    The smallest singular value of the new row g with any L - 1 rows of G is at most the length of
    the component of g that is orthogonal to them, its distance from this subset. So g is chosen to
    maximise the smallest distance: candidates are real harmonics and random rows, and the best are
    moved away from the nearest subsets.

    Parameters
    ----------
    code : MDSCode
    dtype : dtype
        Dtype of the shards. The entries of the new row are exact in it.
    seed : int
        Seed of random rows.

    Returns
    -------
    MDSCode
        For N + 1 machines, with measured conditioning.

    Raises
    ------
    InputError
        The matrix with the best row found is not MDS in float64.

    Examples
    --------
    >>> from cec_mpi.core.code.mds import make_code
    >>> bigger = add_row(make_code(6, 3), np.float64)
    >>> bigger.machines, bigger.conditioning.worst < 15
    (7, True)
    """
    rng = np.random.default_rng(seed)
    length = float(np.median(np.linalg.norm(code.generator, axis=1)))
    normals = _subset_normals(code.generator, rng)

    def normalise(rows: Floats) -> Floats:  # to the median length, rounded to `dtype`
        scaled = rows * (length / np.linalg.norm(rows, axis=-1, keepdims=True))
        rounded: Floats = scaled.astype(dtype).astype(np.float64)
        return rounded

    points = np.arange(4 * min(code.machines, _MAX_HARMONIC_CANDIDATES // 4)) + 0.5
    midpoints = np.arange(min(code.machines, _MAX_HARMONIC_CANDIDATES)) + 0.5
    candidates = normalise(
        np.vstack(
            (
                harmonics(2 * np.pi * points / len(points), code.recovery),
                harmonics(2 * np.pi * midpoints / code.machines, code.recovery),
                rng.standard_normal((_RANDOM_CANDIDATES, code.recovery)),
            )
        )
    )
    batches = np.array_split(candidates, len(candidates) // 16)
    distances = np.concatenate([np.abs(normals @ batch.T).min(axis=0) for batch in batches])
    best_candidates = candidates[np.argsort(distances)[::-1][:_FINALISTS]]
    moved = np.array([_move_away(normals, row, normalise) for row in best_candidates])
    finalists = np.vstack((best_candidates, moved))
    # The finalists were fitted to the first sample of subsets, so a second one is used as well.
    other_normals = _subset_normals(code.generator, rng)
    distances = np.abs(np.vstack((normals, other_normals)) @ finalists.T).min(axis=0)
    generator = np.vstack((code.generator, finalists[int(distances.argmax())]))
    conditioning = measure_conditioning(generator, include=[code.conditioning.worst_machines])
    return MDSCode(generator, code.family, code.systematic, conditioning)


def _move_away(normals: Floats, row: Floats, normalise: Callable[[Floats], Floats]) -> Floats:
    """Move a row away from the nearest subsets step by step, and return the best row reached."""
    count = min(_NEAREST_SUBSETS, len(normals))
    best_distance, best_row = 0.0, row
    for k in range(_IMPROVEMENT_STEPS):
        components = normals @ row
        distances = np.abs(components)
        nearest = np.argpartition(distances, count - 1)[:count]
        if distances[nearest].min() > best_distance:
            best_distance, best_row = float(distances[nearest].min()), row
        direction = (np.sign(components[nearest])[:, None] * normals[nearest]).sum(axis=0)
        step = float(np.linalg.norm(row)) * 0.1 / (1 + k / 10)
        row = normalise(row + step * direction / max(float(np.linalg.norm(direction)), 1e-300))
    return best_row


def _subset_normals(generator: Floats, rng: np.random.Generator) -> Floats:
    """Return a unit vector orthogonal to L - 1 rows, for each such subset or a sample of them."""
    machines, recovery = generator.shape
    if recovery == 1:
        return np.ones((1, 1))
    max_subsets = max(_MIN_SUBSETS, min(_MAX_SUBSETS, int(_MAX_WORK / recovery**3)))
    if comb(machines, recovery - 1) <= max_subsets:
        subsets = np.array(list(combinations(range(machines), recovery - 1)))
    else:
        firsts = np.linspace(0, machines, min(machines, max_subsets // 2), endpoint=False).astype(
            int
        )
        runs = (firsts[:, None] + np.arange(recovery - 1)) % machines
        permutations = rng.random((max_subsets - len(runs), machines)).argsort(axis=1)
        subsets = np.concatenate((runs, permutations[:, : recovery - 1]))
    batches = np.array_split(subsets, -(-len(subsets) * recovery**2 // _BATCH))
    return np.concatenate([np.linalg.svd(generator[batch])[2][:, -1] for batch in batches])
