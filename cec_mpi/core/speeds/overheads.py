"""Time that machines take besides that for their rows, and the best loads with it."""

from __future__ import annotations

import math

import numpy as np

from cec_mpi.core.plan.assignment import Ints
from cec_mpi.core.speeds.given import Floats
from cec_mpi.core.speeds.medians import DEVIATION, upper_median

SPREAD = math.log(1.25)
"""By this the logs of the rows of two steps that can show an overhead differ."""

_PAIRS = 24  # pairs of such steps that are kept
_FEWEST_PAIRS = 8  # before an overhead is looked for
_LEAST_ELASTICITY = 0.2  # an overhead is at most 4 times the time for the rows


class Overheads:
    """The overhead of each machine, from pairs of its steps with different rows.

    Attributes
    ----------
    rows : (N,) ndarray
        The time for so many rows.
    """

    def __init__(self, machines: int) -> None:
        self.rows = np.zeros(machines)
        self._pairs = np.full((machines, _PAIRS), np.nan)  # elasticities, of which `_paired`
        self._pair_rows = np.full((machines, _PAIRS), np.nan)  # log of the rows they belong to
        self._paired = np.zeros(machines, dtype=np.int64)

    def take(self, which: Ints, more: Floats, longer: Floats, log_rows: Floats) -> None:
        """Take a pair of steps of each of these machines.

        Parameters
        ----------
        which : (n,) ndarray of int
            From 0.
        more, longer : (n,) ndarray
            By how much the logs of rows and of seconds differ.
        log_rows : (n,) ndarray
            Log of the rows in between.
        """
        slot = self._paired[which] % _PAIRS
        self._pairs[which, slot] = longer / more
        self._pair_rows[which, slot] = log_rows
        self._paired[which] += 1

    def fit(self) -> tuple[Ints, Floats]:
        """Overheads from the elasticities; robust: medians throughout.

        Returns
        -------
        which : (n,) ndarray of int
            Machines with enough pairs, from 0.
        shift : (n,) ndarray
            By how much their log speeds grow, so that the time of the rows of the pairs stays.
        """
        which = np.flatnonzero(self._paired >= _FEWEST_PAIRS)
        if not which.size:
            return which, np.zeros(0)
        held = np.minimum(self._paired[which], _PAIRS)
        pairs = self._pairs[which]  # NaN where there is none yet, which sorts last
        elasticity = np.clip(upper_median(pairs, held), _LEAST_ELASTICITY, 1.0)
        rows = np.exp(upper_median(self._pair_rows[which], held))
        overhead = rows * (1 - elasticity) / elasticity
        # Elasticity grows with the rows, so look at what is left of it, not at its spread.
        pair_rows = np.exp(self._pair_rows[which])
        left = pairs - pair_rows / (pair_rows + overhead[:, None])
        spread = upper_median(np.abs(left), held)
        error = DEVIATION * 1.2533 * spread / np.sqrt(held)  # of a median of normal numbers
        largest = elasticity + upper_median(left, held) + 3 * error
        largest = np.clip(largest, _LEAST_ELASTICITY, 1.0)
        old = self.rows[which]
        new = rows * (1 - largest) / largest
        self.rows[which] = new
        return which, np.log(rows + new) - np.log(rows + old)


def optimum(speeds: Floats, overheads: Floats, copies: int, rows: int) -> tuple[float, Floats]:
    """The least makespan with overheads, and its loads, in fractions of rows.

    The time T at which ``sum(clip(speeds * T - overheads, 0, rows)) == copies * rows``.
    Without overheads this is Theorem 1: ``T = c* rows``.
    """
    if speeds.size == copies:
        return float(np.max((overheads + rows) / speeds)), np.full(copies, float(rows))
    # The sum grows along straight lines between the times at which machines begin and end.
    times = np.concatenate((overheads, overheads + rows)) / np.concatenate((speeds, speeds))
    order = np.argsort(times)
    times = times[order]
    slopes = np.cumsum(np.concatenate((speeds, -speeds))[order])[:-1]
    done = np.cumsum(slopes * np.diff(times))
    line = int(np.searchsorted(done[:-1], copies * rows))
    before = done[line - 1] if line else 0.0
    finish = float(times[line] + (copies * rows - before) / slopes[line])
    return finish, np.clip(speeds * finish - overheads, 0.0, rows)
