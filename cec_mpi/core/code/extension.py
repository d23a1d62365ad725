"""Extension of a code by one machine: a new row of G that is well conditioned with the others."""

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

_MAX_WORK = 2e8  # number of subsets times L**3; takes some seconds
_MAX_SUBSETS = 200_000
_MIN_SUBSETS = 64
_BATCH = 2_000_000  # entries in one batch of subsets
_RANDOM_CANDIDATES = 256
_MAX_POINTS = 512  # points on the unit circle, for candidates that are harmonics
_STARTS, _MAX_PUSHES = 6, 150  # candidates to improve, and the steps of each
_NEAREST = 4  # subsets that push a row away in one step


def add_row(code: MDSCode, dtype: DTypeLike, seed: int = 0) -> MDSCode:
    """Return the code with one more machine; the rows of the others do not change.

    The smallest singular value of the new row g with any L - 1 rows of G is at most the length of
    the component of g that is orthogonal to them. So g is chosen to maximise the shortest of these
    components: candidates are real harmonics and random rows, and the best are pushed away from the
    subsets that are nearest to them.

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
        No candidate gives an MDS matrix in float64.

    Examples
    --------
    >>> from cec_mpi.core.code.mds import make_code
    >>> bigger = add_row(make_code(6, 3), np.float64)
    >>> bigger.machines, bigger.conditioning.worst < 15
    (7, True)
    """
    rng = np.random.default_rng(seed)
    length = float(np.median(np.linalg.norm(code.generator, axis=1)))
    normals = _normals(code.generator, rng)

    def round_to_dtype(rows: Floats) -> Floats:
        scaled = rows * (length / np.linalg.norm(rows, axis=-1, keepdims=True))
        rounded: Floats = scaled.astype(dtype).astype(np.float64)
        return rounded

    points = np.arange(4 * min(code.machines, _MAX_POINTS // 4)) + 0.5
    midpoints = np.arange(min(code.machines, _MAX_POINTS)) + 0.5
    rows = round_to_dtype(
        np.vstack(
            (
                harmonics(2 * np.pi * points / len(points), code.recovery),
                harmonics(2 * np.pi * midpoints / code.machines, code.recovery),
                rng.standard_normal((_RANDOM_CANDIDATES, code.recovery)),
            )
        )
    )
    batches = np.array_split(rows, len(rows) // 16)
    shortest = np.concatenate([np.abs(normals @ batch.T).min(axis=0) for batch in batches])
    starts = rows[np.argsort(shortest)[::-1][:_STARTS]]
    pushed = np.array([_push_away(normals, start, round_to_dtype) for start in starts])
    finalists = np.vstack((starts, pushed))
    # Finalists are compared on a second sample of subsets, because they were fitted to the first.
    other_normals = _normals(code.generator, rng)
    shortest = np.abs(np.vstack((normals, other_normals)) @ finalists.T).min(axis=0)
    generator = np.vstack((code.generator, finalists[int(shortest.argmax())]))
    conditioning = measure_conditioning(generator, include=[code.conditioning.worst_machines])
    return MDSCode(generator, code.family, code.systematic, conditioning)


def _push_away(normals: Floats, row: Floats, round_to_dtype: Callable[[Floats], Floats]) -> Floats:
    """Push a row away from the subsets nearest to it, and return the best row of all steps."""
    nearest = min(_NEAREST, len(normals))
    best, best_row = 0.0, row
    for k in range(_MAX_PUSHES):
        components = normals @ row
        distances = np.abs(components)
        closest = np.argpartition(distances, nearest - 1)[:nearest]
        if distances[closest].min() > best:
            best, best_row = float(distances[closest].min()), row
        away = (np.sign(components[closest])[:, None] * normals[closest]).sum(axis=0)
        step = float(np.linalg.norm(row)) * 0.1 / (1 + k / 10)
        row = round_to_dtype(row + step * away / max(float(np.linalg.norm(away)), 1e-300))
    return best_row


def _normals(generator: Floats, rng: np.random.Generator) -> Floats:
    """Return unit vectors orthogonal to L - 1 rows, for all such sets or a sample."""
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
        random = rng.random((max_subsets - len(runs), machines)).argsort(axis=1)[:, : recovery - 1]
        subsets = np.concatenate((runs, random))
    batches = np.array_split(subsets, -(-len(subsets) * recovery**2 // _BATCH))
    return np.concatenate([np.linalg.svd(generator[batch])[2][:, -1] for batch in batches])
