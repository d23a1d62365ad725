"""How small a wrong answer the parity of L + 1 machines can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from cec_mpi.core.checks.parity import ParityChecker
from cec_mpi.core.code.conditioning import sample_subsets

_MAX_EXHAUSTIVE = 2_000  # sets of machines
_LEAST_SAMPLE = 32
_WORK = 4e8  # sets times L**3: seconds


@dataclass(frozen=True)
class Sensitivity:
    """The errors of an answer that a code shows.

    Attributes
    ----------
    error : float
        Any L + 1 machines disagree if one answer has an error larger than this, relative to S;
        infinite where there are no L + 1 machines, or where some of them show nothing.
    machines : tuple of int
        The machines that show least.
    measured : int
        How many sets of L + 1 machines were measured.
    complete : bool
        Whether that is all of them. Otherwise some of the others may show less.
    """

    error: float
    machines: tuple[int, ...]
    measured: int
    complete: bool


def measure_sensitivity(
    checker: ParityChecker, machines: int, worst_conditioned: Sequence[int] = ()
) -> Sensitivity:
    """Measure which errors any L + 1 machines show.

    Parameters
    ----------
    checker : ParityChecker
    machines : int
        N.
    worst_conditioned : sequence of int
        L machines to measure in any case, with each other one.

    Returns
    -------
    Sensitivity

    Notes
    -----
    An error E of a machine with weight p makes ``norm(C a) >= p E - t S`` with t the tolerance, and
    the answers disagree if that exceeds t S. So E is seen if ``E > 2 t S / p``.

    Examples
    --------
    >>> from cec_mpi.core.checks.parity import answer_checker
    >>> from cec_mpi.core.code.mds import make_code
    >>> generator = make_code(6, 3).generator
    >>> found = measure_sensitivity(answer_checker(generator, "float32", 100), 6)
    >>> f"{found.error:.0e}", found.measured, found.complete
    ('2e-04', 15, True)
    """
    count = checker.recovery + 1
    complete = comb(machines, count) <= _MAX_EXHAUSTIVE
    where: tuple[int, ...] = ()
    worst, measured = 0.0, 0
    for some in _sets(machines, count, complete, worst_conditioned):
        checks, tolerances = checker.checks(some)
        weight = float(np.abs(checks).min())
        error = 2 * float(tolerances[0, 0]) / weight if weight else np.inf
        measured += 1
        if error > worst:
            worst, where = error, some
    return Sensitivity(worst if measured else np.inf, where, measured, complete)


def _sets(
    machines: int, count: int, complete: bool, known: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Yield sets of L + 1 machines, ascending."""
    everybody = range(1, machines + 1)
    if complete:
        yield from combinations(everybody, count)
        return
    yield from (tuple(sorted((*known, n))) for n in everybody if known and n not in known)
    size = min(_MAX_EXHAUSTIVE, max(_LEAST_SAMPLE, int(_WORK / count**3)))
    yield from (tuple(k + 1 for k in some) for some in sample_subsets(machines, count, size))
