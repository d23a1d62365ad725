"""What answers say of two machines that are wrong at once: whether they can be it.

Parity sees ``C a = sum_n c_n E_n``, with c_n the column of C of machine n and E_n its error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.holders import Shards
from cec_mpi.core.checks.parity import Parity

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_ROWS = 64  # that are looked at of each observation: those with the largest errors
_CLEAR = 1e-5  # of what the checks leave: more than rounding makes of a projection
_PARALLEL = 1e-8  # squares of sines below this are not told from 0


class Evidence:
    """What the rows of one observation that are farthest off say of pairs of machines.

    Parameters
    ----------
    parity_of : callable
        The `Parity` of these machines.
    machines : tuple of int
        P, more than L.
    answers : (m, rows) ndarray of float
    scale : (rows,) ndarray of float
        S of each row.
    least : float
        As in `Parity.inconsistent`.
    """

    def __init__(
        self,
        parity_of: Callable[[tuple[int, ...]], Parity],
        machines: tuple[int, ...],
        answers: NDArray[np.floating],
        scale: Floats,
        least: float,
    ) -> None:
        self._parity_of = parity_of
        self._machines = machines
        self._places = {n: k for k, n in enumerate(machines)}
        self._parity = parity_of(machines)
        values = np.asarray(answers, dtype=np.float64)
        finite = np.isfinite(values).all(axis=0)
        left = self._parity.residuals(np.where(finite, values, 0.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            excess = np.nan_to_num(left / (self._parity.tolerance * scale + least), nan=0.0)
        excess[~finite] = np.inf
        self._rows = np.argsort(excess, kind="stable")[::-1][:_ROWS]
        self._answers, self._scale, self._least = values[:, self._rows], scale[self._rows], least

    def excludes(self, pair: tuple[Shards, Shards]) -> bool:
        """Whether the others disagree without these two, so that somebody else is wrong.

        A machine is named by all of its shards; here answers are of shards.
        """
        gone = {*pair[0], *pair[1]} & self._places.keys()
        kept = [k for k, n in enumerate(self._machines) if n not in gone]
        if len(kept) <= self._parity.recovery:
            return False
        if len(gone) == 2:
            first, second = (self._places[n] for n in gone)
            if self._clear[first, second]:
                return True
        rest = self._parity_of(tuple(self._machines[k] for k in kept))
        return bool(rest.inconsistent(self._answers[kept], self._scale, self._least).any())

    @cached_property
    def _clear(self) -> Bools:
        """Pairs without which the checks are so far off that no rounding is to be thought of."""
        count = len(self._machines)
        clear = np.zeros((count, count), dtype=bool)
        usable = np.isfinite(self._answers).all(axis=0)
        left = self._parity.checks @ self._answers[:, usable]
        sizes = np.hypot.reduce(np.abs(left), axis=0, initial=0.0)
        usable_sizes = np.where(sizes > 0, sizes, 1.0)
        left = left / usable_sizes  # of unit length, so that squares are harmless
        columns = self._parity.checks
        products = columns.T @ columns
        along = columns.T @ left
        limits = 2 * (self._parity.tolerance * self._scale[usable] + self._least) / usable_sizes
        for i in range(count):
            if products[i, i] < _PARALLEL:
                continue
            share = products[i] / products[i, i]
            own = np.diag(products) - share * products[i]
            rest = along - share[:, None] * along[i]
            total = 1.0 - along[i] ** 2 / products[i, i]
            good = own > _PARALLEL * np.diag(products)
            taken = np.divide(rest**2, own[:, None], out=np.ones_like(rest), where=good[:, None])
            remains = np.sqrt(np.clip(total - taken, 0.0, None))
            clear[i] = good & (remains > limits + _CLEAR).any(axis=1)
        return clear | clear.T


def pairs_besides(named: Shards, machines: list[Shards]) -> list[tuple[Shards, Shards]]:
    """All pairs of machines of which none is the one named."""
    return list(combinations([n for n in machines if n != named], 2))
