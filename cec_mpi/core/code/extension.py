"""A further machine: one more row of G that is well conditioned with the others."""

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

_WORK = 2e8  # of subsets times L**3: seconds
_MOST_SUBSETS = 200_000
_LEAST_SUBSETS = 64
_BATCH = 2_000_000  # numbers in one batch of subsets
_RANDOM = 256  # rows that are tried, beside those of harmonics
_MOST_POINTS = 512
_STARTS, _MAX_PUSHES = 6, 150  # candidates that are improved, and how often each
_NEAREST = 4  # subsets that a row is pushed away from at a time


def add_row(code: MDSCode, dtype: DTypeLike, seed: int = 0) -> MDSCode:
    """Return the code with one more machine; its other rows do not change.

    The smallest singular value of the new row g with any L - 1 rows of G is at most the length of
    the part of g that is orthogonal to them. So g is chosen to make the shortest of these parts
    long: the best rows of real harmonics and random rows are pushed away from the nearest subsets.

    Parameters
    ----------
    code : MDSCode
    dtype : dtype
        Dtype of the shards: the entries of the new row are numbers of this dtype.
    seed : int
        Seed of random rows.

    Returns
    -------
    MDSCode
        For N + 1 machines, measured.

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

    def cut(rows: Floats) -> Floats:
        scaled = rows * (length / np.linalg.norm(rows, axis=-1, keepdims=True))
        rounded: Floats = scaled.astype(dtype).astype(np.float64)
        return rounded

    points = np.arange(4 * min(code.machines, _MOST_POINTS // 4)) + 0.5
    between = np.arange(min(code.machines, _MOST_POINTS)) + 0.5
    rows = cut(
        np.vstack(
            (
                harmonics(2 * np.pi * points / len(points), code.recovery),
                harmonics(2 * np.pi * between / code.machines, code.recovery),
                rng.standard_normal((_RANDOM, code.recovery)),
            )
        )
    )
    shortest = np.concatenate(
        [np.abs(normals @ some.T).min(axis=0) for some in np.array_split(rows, len(rows) // 16)]
    )
    starts = rows[np.argsort(shortest)[::-1][:_STARTS]]
    pushed = np.array([_push_away(normals, start, cut) for start in starts])
    finalists = np.vstack((starts, pushed))
    # Rows that were pushed away from a sample of subsets are compared on another sample.
    others = _normals(code.generator, rng)
    shortest = np.abs(np.vstack((normals, others)) @ finalists.T).min(axis=0)
    generator = np.vstack((code.generator, finalists[int(shortest.argmax())]))
    conditioning = measure_conditioning(generator, known=[code.conditioning.worst_machines])
    return MDSCode(generator, code.family, code.systematic, conditioning)


def _push_away(normals: Floats, row: Floats, cut: Callable[[Floats], Floats]) -> Floats:
    """Push a row away from the nearest subsets; returns the best row on the way."""
    nearest = min(_NEAREST, len(normals))
    best, place = 0.0, row
    for k in range(_MAX_PUSHES):
        parts = normals @ row
        sizes = np.abs(parts)
        closest = np.argpartition(sizes, nearest - 1)[:nearest]
        if sizes[closest].min() > best:
            best, place = float(sizes[closest].min()), row
        away = (np.sign(parts[closest])[:, None] * normals[closest]).sum(axis=0)
        step = float(np.linalg.norm(row)) * 0.1 / (1 + k / 10)
        row = cut(row + step * away / max(float(np.linalg.norm(away)), 1e-300))
    return place


def _normals(generator: Floats, rng: np.random.Generator) -> Floats:
    """Return unit vectors orthogonal to L - 1 rows, for all such sets or a sample."""
    machines, recovery = generator.shape
    if recovery == 1:
        return np.ones((1, 1))
    most = max(_LEAST_SUBSETS, min(_MOST_SUBSETS, int(_WORK / recovery**3)))
    if comb(machines, recovery - 1) <= most:
        subsets = np.array(list(combinations(range(machines), recovery - 1)))
    else:
        firsts = np.linspace(0, machines, min(machines, most // 2), endpoint=False).astype(int)
        runs = (firsts[:, None] + np.arange(recovery - 1)) % machines
        random = rng.random((most - len(runs), machines)).argsort(axis=1)[:, : recovery - 1]
        subsets = np.concatenate((runs, random))
    batches = np.array_split(subsets, -(-len(subsets) * recovery**2 // _BATCH))
    return np.concatenate([np.linalg.svd(generator[some])[2][:, -1] for some in batches])
