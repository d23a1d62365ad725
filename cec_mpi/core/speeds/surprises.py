"""Measurements too far from what was expected to be noise: changes, or hiccups."""

from __future__ import annotations

import math

import numpy as np

from cec_mpi.core.plan.numbers import Ints
from cec_mpi.core.speeds.given import Bools, Floats

# What these numbers do is said in `Surprises`.
_WILD = math.log(8.0)
_FADES = 0.98  # per surprise: how long it is remembered how they ended
_REAL, _ALL = 2.0, 3.0  # surprises that were changes, and all, before there are any
_TRUSTED = 0.2


class Surprises:
    """What has surprised of each machine, until the next measurement tells what it was.

    If the next one is nearer to it than to what was expected, the machine has changed; of both
    the faster speed is taken, since what disturbs makes slower. Else it was a hiccup. A machine
    that is back at the speed that it had before its last change, be it after a burst of hiccups,
    is believed at once. No change makes a machine slower by a factor of more than 8: it has to have
    rows enough to show that it is faster, and one that is so slow takes long to answer once more.

    Until that is known the plan counts with the surprise: to hold up everybody for one more step
    costs far more than to give a machine too few rows. It does not where the surprise is by a
    factor of 8 or more, nor where of the last 50 or so fewer than a fifth have been changes.

    Parameters
    ----------
    machines : int
        N.

    Attributes
    ----------
    pending : bool
        Whether there are any of which it is not known yet.
    """

    def __init__(self, machines: int) -> None:
        self.pending = False
        self._odd = np.full(machines, np.nan)  # log speeds
        self._former = np.full(machines, np.nan)
        self._real, self._all = _REAL, _ALL

    @property
    def columns(self) -> list[Floats]:
        """What is known of each machine."""
        return [self._odd, self._former]

    def moved(self) -> None:
        """What is known of machines has been replaced."""
        self.pending = not np.isnan(self._odd).all()

    def shift(self, which: Ints, by: Floats | float) -> None:
        """The unit of speeds has changed by this log."""
        self._odd[which] += by
        self._former[which] += by

    def to_plan_with(self, logs: Floats, limits: Floats) -> Floats:
        """Log speeds of all machines, with what may have changed as if it had."""
        change = np.abs(self._odd - logs)
        back = np.abs(self._odd - self._former) < limits
        trusted = self._real > _TRUSTED * self._all
        return np.where(back | ((change < _WILD) & trusted), self._odd, logs)

    def take(
        self, which: Ints, logs: Floats, shown: Floats, errors: Floats, limits: Floats, sure: Bools
    ) -> tuple[Ints, Floats, Floats]:
        """Take measurements, of which some are or were surprises.

        Parameters
        ----------
        which : (n,) ndarray of int
            Machines, from 0.
        logs, shown : (n,) ndarray
            Log speeds, and how far they are above what was expected.
        errors, limits : (n,) ndarray
            The part of that which nothing excuses; it is a surprise beyond the limit.
        sure : (n,) ndarray of bool
            Whether a surprise is a change in any case.

        Returns
        -------
        changed : (c,) ndarray of int
            Places in `which` of machines that have changed.
        levels : (c,) ndarray
            Their log speeds now.
        seen : (c,) ndarray
            How many measurements have shown these.
        """
        odd = self._odd[which]
        far = np.abs(errors) > limits
        again = np.abs(logs - odd) < np.abs(shown)  # False where there is none
        back = far & (np.abs(logs - self._former[which]) < limits)
        changed = again | back | (far & sure)
        new = far & ~changed
        fades = _FADES ** np.count_nonzero(new)
        self._real = fades * self._real + np.count_nonzero(again)
        self._all = fades * self._all + np.count_nonzero(new)
        self._odd[which] = np.where(new, logs, np.nan)
        self.pending = bool(new.any()) or not np.isnan(self._odd).all()
        levels = np.where(again & ~back, np.fmax(odd, logs), logs)
        levels = np.maximum(levels, logs - shown - _WILD)[changed]
        self._former[which[changed]] = (logs - shown)[changed]
        return np.flatnonzero(changed), levels, 1.0 + again[changed]
