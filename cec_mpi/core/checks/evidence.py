"""What answers say of two machines that are wrong at once: whether they can be it, and how likely.

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
    columns : int
        Numbers that each row of the shards has in `answers`, k.
    """

    def __init__(
        self,
        parity_of: Callable[[tuple[int, ...]], Parity],
        machines: tuple[int, ...],
        answers: NDArray[np.floating],
        scale: Floats,
        least: float,
        columns: int,
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
        self._columns = columns

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

    def luck(self, named: Shards, pair: tuple[Shards, Shards]) -> float:
        """How likely errors of these two, being wrong, look like an error of the one named.

        1 where one of them has answered for several shards, or for none.

        Notes
        -----
        Of L + 2 answers two checks are left, and with errors E_i, E_j in them one direction
        in which c_n has nothing: there ``e_i + e_j``, the parts of both, is below the
        tolerance t of the checks without n. For one e_i, that is an interval of length 2 t of
        the numbers that e_j may be. Errors of two machines that know nothing of each other are
        of all sizes: if ``log|e_j|`` is spread over a decade or more, the interval has a share
        of at most ``2 t / |e_j|`` of them. Rows multiply; the k numbers of one row do not,
        since one wrong entry of a shard spoils all of them.
        """
        answered = [[n for n in mine if n in self._places] for mine in (named, *pair)]
        if any(len(mine) != 1 for mine in answered) or not self._rows.size:
            return 1.0
        (one,), *others = answered
        if len(self._machines) != self._parity.recovery + 2:
            return 1.0  # more are excluded by checks or not at all, and fewer never
        checks = self._parity.checks
        own = checks[:, self._places[one]]
        both = checks[:, [self._places[n] for (n,) in others]]
        across = np.array([-own[1], own[0]])
        length = float(np.linalg.norm(across))
        if not length or np.linalg.cond(both) > 1 / _CLEAR:
            return 1.0
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            errors = np.linalg.solve(both, checks @ self._answers)
            parts = np.abs((across @ both)[:, None] * errors).max(axis=0) / length
            rest = self._parity_of(tuple(n for n in self._machines if n != one))
            share = 2 * (rest.tolerance * self._scale + self._least) / parts
        share = np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0)
        least: dict[int, float] = {}
        for row, part in zip((self._rows // self._columns).tolist(), share.tolist(), strict=True):
            least[row] = min(part, least.get(row, 1.0))
        return float(np.prod(list(least.values())))

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
