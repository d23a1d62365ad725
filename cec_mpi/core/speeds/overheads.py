"""Time that machines take besides that for their rows."""

from __future__ import annotations

import math

import numpy as np

from cec_mpi.core.plan.numbers import Ints
from cec_mpi.core.speeds.given import Floats
from cec_mpi.core.speeds.medians import DEVIATION, median

# What these numbers do is said in `Overheads`.
_MEMORY = 0.96
_MOST_PAIRS = 200.0  # pairs that the noise is of
_CLIP = 3.0  # standard deviations
_ERRORS = 3.0  # standard errors: less is no overhead,
_CHANCE = 1.0  # and less than this, if there is a common one, no difference between machines
_MOST = 4.0  # times the mean load
_ROUNDS = 4  # of Newton's method
_NEAR = 0.02  # of the mean load, between two of these
_FEWEST = 3


class Overheads:
    """The overhead of each machine, from pairs of its steps with different rows.

    Of ``seconds = (overhead + m) / speed`` two steps show ``log((o + m') / (o + m))``, which is
    linear in the overhead o for small changes of it. All machines together are fitted by least
    squares, with older pairs counting for less. Only what they do not have in common counts: a
    step in which everything is slow tells nothing of overheads. The common overhead shrinks by the
    share ``(3 standard errors / overhead)**2``, so that noise is not taken for one; pairs in
    which a machine differs by more than three standard deviations from the others count as three,
    since then it is likely its speed that has changed.

    Then each machine is fitted for itself, as far as machines differ by more than chance, and
    drawn to the common overhead by how uncertain its own is.

    Parameters
    ----------
    machines : int
        N.
    mean : float
        Rows of a machine when all have equally many. No overhead is more than 4 times this.

    Attributes
    ----------
    rows : (N,) ndarray
        The time for so many rows.
    known : bool
        Whether any machine has one.
    """

    def __init__(self, machines: int, mean: float) -> None:
        self.rows = np.zeros(machines)
        self.known = False
        self._mean = mean
        self._weights = np.zeros(machines)  # of the fits: sums of squared slopes,
        self._sums = np.zeros(machines)  # and of slopes times what overheads should explain
        self._variance = 0.0  # of a pair
        self._pairs = 0.0  # that it is of

    @property
    def columns(self) -> list[Floats]:
        """What is known of each machine."""
        return [self.rows, self._weights, self._sums]

    def moved(self) -> None:
        """What is known of machines has been replaced."""
        self.known = bool(self.rows.any())

    def take(self, which: Ints, before: Floats, rows: Floats, longer: Floats) -> None:
        """Take a pair of steps of each of these machines.

        Parameters
        ----------
        which : (n,) ndarray of int
            From 0.
        before, rows : (n,) ndarray
            Rows in the earlier and in the later step.
        longer : (n,) ndarray
            By how much the logs of seconds differ.
        """
        if which.size < _FEWEST:
            return
        old_weights, old_sums = self._weights[which], self._sums[which]
        others = self._weights.sum() - old_weights.sum(), self._sums.sum() - old_sums.sum()
        overheads = self.rows[which]
        own = np.divide(old_sums, old_weights, out=overheads.copy(), where=old_weights > 0)
        own = np.clip(own, 0.0, _MOST * self._mean)
        left = longer - np.log((own + rows) / (own + before))
        alone = DEVIATION * median(np.abs(left - median(left)))
        for _ in range(_ROUNDS):
            slopes = 1 / (overheads + rows) - 1 / (overheads + before)
            slopes -= slopes.mean()
            left = longer - np.log((overheads + rows) / (overheads + before))
            left -= median(left)
            spread = min(DEVIATION * median(np.abs(left)), alone)
            left = np.minimum(np.maximum(left, -_CLIP * spread), _CLIP * spread)
            pairs = self._pairs + which.size
            variance = (self._pairs * self._variance + which.size * spread**2) / pairs
            weights = _MEMORY * old_weights + slopes**2
            sums = _MEMORY * old_sums + slopes * (left + slopes * overheads)
            all_weights, all_sums = others[0] + weights.sum(), others[1] + sums.sum()
            if all_weights <= 0:
                return
            last, common = overheads, self._common(all_weights, all_sums, variance)
            overheads = self._of_each(common, weights, sums, variance)
            if np.abs(overheads - last).max() <= _NEAR * self._mean:
                break
        self._weights[which], self._sums[which] = weights, sums
        self._variance, self._pairs = variance, min(pairs, _MOST_PAIRS)
        self.rows[which] = overheads
        self.known = bool(self.rows.any())

    def _common(self, weight: float, total: float, variance: float) -> float:
        found = min(total / weight, _MOST * self._mean)
        least = _ERRORS * math.sqrt(variance / weight)
        return found * (1 - (least / found) ** 2) if found > least else 0.0

    def _of_each(self, common: float, weights: Floats, sums: Floats, variance: float) -> Floats:
        own = np.divide(sums, weights, out=np.full(weights.size, common), where=weights > 0)
        own -= common
        chance = weights.size + (_CHANCE if common else _ERRORS) * math.sqrt(2 * weights.size)
        between = (weights @ own**2 - variance * chance) / weights.sum()
        if between <= 0:
            return np.full(weights.size, common)
        found: Floats = common + own * (between * weights / (between * weights + variance))
        return np.minimum(np.maximum(found, 0.0), _MOST * self._mean)
