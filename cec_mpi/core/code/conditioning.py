"""How much decoding amplifies rounding errors: condition numbers of the L-row submatrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

ALL_SUBSETS = 200_000  # a random matrix hides its worst submatrices from a sample
_SAMPLE = 2_000
_LEAST_SAMPLE = 32
_WORK = 4e8  # submatrices times L**3: seconds, up to an L of some hundreds
_BATCH = 2_000_000  # numbers in one batch of submatrices


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
        Whether that is all of them. Otherwise runs of consecutive machines and random
        ones were taken, and `worst` is an underestimate.
    """

    median: float
    worst: float
    worst_machines: tuple[int, ...]
    measured: int
    complete: bool


def measure_conditioning(
    generator: NDArray[np.float64], largest: int = ALL_SUBSETS
) -> Conditioning:
    """Measure all L-row submatrices where there are few, a repeatable sample otherwise.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    largest : int
        How many submatrices are few: all of them are measured up to here.

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
    complete = comb(machines, recovery) <= min(largest, max(budget, machines))
    subsets = (
        combinations(range(machines), recovery)
        if complete
        else sample_subsets(machines, recovery, min(_SAMPLE, budget))
    )
    numbers: list[NDArray[np.float64]] = []
    worst, where = -1.0, (0,) * recovery
    while batch := list(islice(subsets, max(1, _BATCH // recovery**2))):
        values = _condition_numbers(generator[np.array(batch)])
        numbers.append(values)
        if values.max() > worst:
            worst, where = float(values.max()), batch[int(values.argmax())]
    measured = np.concatenate(numbers)
    return Conditioning(
        median=float(np.median(measured)),
        worst=worst,
        worst_machines=tuple(n + 1 for n in where),
        measured=measured.size,
        complete=complete,
    )


def _condition_numbers(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    singular = np.linalg.svd(matrices, compute_uv=False)
    smallest = singular[:, -1]
    numbers = np.full(len(matrices), np.inf)
    np.divide(singular[:, 0], smallest, out=numbers, where=smallest > 0)
    return numbers


def sample_subsets(machines: int, recovery: int, size: int) -> Iterator[tuple[int, ...]]:
    """Runs of consecutive machines (the harmonic code's worst), then random subsets."""
    runs = np.linspace(0, machines, min(machines, size // 2), endpoint=False).astype(int)
    for first in runs.tolist():
        yield tuple(sorted((first + k) % machines for k in range(recovery)))
    rng = np.random.default_rng(0)
    for _ in range(size - len(runs)):
        yield tuple(np.sort(rng.choice(machines, recovery, replace=False)).tolist())
