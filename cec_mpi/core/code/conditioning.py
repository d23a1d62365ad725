"""How much decoding amplifies rounding errors: condition numbers of the L-row submatrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.worst import condition_numbers, search_worst

ALL_SUBSETS = 200_000
_SAMPLE = 2_000
_LEAST_SAMPLE, _FEWEST = 32, 8  # with an effort of 1, and with a small one
_WORK = 4e8  # submatrices times L**3: seconds, up to an L of some hundreds
_WORK_AT_ONCE = 4e9
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
    """Measure all L-row submatrices where there are few; otherwise a sample, and search the worst.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    largest : int
        How many submatrices are few: all of them are measured up to here.
    effort : float
        Of sample and search where there are more; by default they take about a second.
    known : sequence of (L,) sequences of int, optional
        Machines, from 1, that the search begins with too.

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
    """Runs of consecutive machines (the harmonic code's worst), then random subsets."""
    runs = np.linspace(0, machines, min(machines, size // 2), endpoint=False).astype(int)
    for first in runs.tolist():
        yield tuple(sorted((first + k) % machines for k in range(recovery)))
    rng = np.random.default_rng(0)
    for _ in range(size - len(runs)):
        yield tuple(np.sort(rng.choice(machines, recovery, replace=False)).tolist())
