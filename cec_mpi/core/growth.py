"""A further machine: one more row of G that goes well with all that are there."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.conditioning import Conditioning, measure_conditioning
from cec_mpi.core.mds import MDSCode, harmonics

__all__ = ["add_row"]

Floats = NDArray[np.float64]

_MOST_CANDIDATES = 96  # rows that are tried first
_LEAST_CANDIDATES = 8
_WORK = 60_000  # of candidates times L**2: seconds
_FIRST_LOOK = 500  # submatrices measured of each
_ROUNDS = 4  # of smaller and smaller changes to the best so far
_SPREAD = 0.3  # relative size of the first of these changes


def add_row(code: MDSCode, dtype: DTypeLike, seed: int = 0) -> MDSCode:
    """The code with one machine more; the rows that it has stay as they are.

    Candidates are rows of L real harmonics at equally spaced points and random rows, of
    the length that the others have; then the best of them is varied at random.

    Parameters
    ----------
    code : MDSCode
    dtype : dtype
        Of the shards: the entries of the new row are numbers of this kind.
    seed : int
        For the random rows.

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
    >>> from cec_mpi.core.mds import make_code
    >>> bigger = add_row(make_code(6, 3), np.float64)
    >>> bigger.machines, bigger.conditioning.worst < 30
    (7, True)
    """
    rng = np.random.default_rng(seed)
    length = float(np.median(np.linalg.norm(code.generator, axis=1)))
    count = min(_MOST_CANDIDATES, max(_LEAST_CANDIDATES, _WORK // code.recovery**2))

    def measured(row: Floats) -> tuple[Conditioning, Floats]:
        scaled = (row * (length / np.linalg.norm(row))).astype(dtype).astype(np.float64)
        matrix = np.vstack((code.generator, scaled))
        return measure_conditioning(matrix, _FIRST_LOOK), scaled

    points = 2 * np.pi * (np.arange(count // 2) + 0.5) / (count // 2)
    rows = [*harmonics(points, code.recovery)]
    rows.extend(rng.standard_normal((count - len(rows), code.recovery)))
    best = min(map(measured, rows), key=_badness)
    for k in range(_ROUNDS):
        spread = _SPREAD / 2**k * length / np.sqrt(code.recovery)
        changes = spread * rng.standard_normal((count // 4, code.recovery))
        best = min([best, *map(measured, best[1] + changes)], key=_badness)
    return MDSCode(np.vstack((code.generator, best[1])), code.family, code.systematic)


def _badness(candidate: tuple[Conditioning, Floats]) -> tuple[float, float]:
    return candidate[0].worst, candidate[0].median
