"""The smallest error of an answer that parity checks of L + 1 machines always detect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from cec_mpi.core.checks.parity import ParityChecker
from cec_mpi.core.code.conditioning import sample_subsets

_MAX_EXHAUSTIVE = 2_000  # sets of machines
_MIN_SAMPLE = 32
_MAX_SAMPLE_WORK = 4e8  # number of sets times L**3; takes seconds


@dataclass(frozen=True)
class Sensitivity:
    """The sensitivity of the parity checks of a code.

    Attributes
    ----------
    error : float
        Any L + 1 machines disagree if one answer has a larger error than this, relative to S.
        Infinite if there are fewer than L + 1 machines, or if a machine has weight 0 in a check.
    machines : tuple of int
        The least sensitive set of L + 1 machines.
    measured : int
        Number of sets that were measured.
    complete : bool
        Whether all sets were measured. If not, an unmeasured set may be less sensitive.
    """

    error: float
    machines: tuple[int, ...]
    measured: int
    complete: bool


def measure_sensitivity(
    checker: ParityChecker, machines: int, worst_conditioned: Sequence[int] = ()
) -> Sensitivity:
    """Measure the smallest error that every set of L + 1 machines detects.

    Parameters
    ----------
    checker : ParityChecker
    machines : int
        N.
    worst_conditioned : sequence of int
        L machines. A sample includes their union with each other machine.

    Returns
    -------
    Sensitivity

    Notes
    -----
    An error E of a machine with weight p gives ``|c' a| >= p E - t S``, where t is the tolerance.
    The answers disagree if that exceeds t S. So E is detected if ``E > 2 t S / p``.

    Examples
    --------
    >>> from cec_mpi.core.checks.parity import make_checker
    >>> from cec_mpi.core.code.mds import make_code
    >>> generator = make_code(6, 3).generator
    >>> sensitivity = measure_sensitivity(make_checker(generator, "float32", 100), 6)
    >>> f"{sensitivity.error:.0e}", sensitivity.measured, sensitivity.complete
    ('2e-04', 15, True)
    """
    count = checker.recovery + 1
    complete = comb(machines, count) <= _MAX_EXHAUSTIVE
    worst_machines: tuple[int, ...] = ()
    worst, measured = 0.0, 0
    for subset in _machine_sets(machines, count, complete, worst_conditioned):
        checks, tolerances = checker.checks(subset)
        weight = float(np.abs(checks).min())
        error = 2 * float(tolerances[0, 0]) / weight if weight else np.inf
        measured += 1
        if error > worst:
            worst, worst_machines = error, subset
    return Sensitivity(worst if measured else np.inf, worst_machines, measured, complete)


def _machine_sets(
    machines: int, count: int, complete: bool, worst_conditioned: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Yield sets of `count` machines, ascending."""
    all_machines = range(1, machines + 1)
    if complete:
        yield from combinations(all_machines, count)
        return
    if worst_conditioned:
        others = [n for n in all_machines if n not in worst_conditioned]
        yield from (tuple(sorted((*worst_conditioned, n))) for n in others)
    size = min(_MAX_EXHAUSTIVE, max(_MIN_SAMPLE, int(_MAX_SAMPLE_WORK / count**3)))
    yield from (tuple(k + 1 for k in subset) for subset in sample_subsets(machines, count, size))
