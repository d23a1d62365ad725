"""What steps cost, what others would have cost at the speeds that machines showed, and who cost it.

In each step machine n showed so many seconds per row. At these, the *cyclic* assignment takes the
time of the slowest of its equal loads; *equal shares without a code* take as long to compute, since
each of N_t machines has 1/N_t of X either way, and further time for reading: whenever machines come
or go, the shares change, and what a machine does not hold it reads anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.schemes import cyclic_loads
from cec_mpi.report.stream import Chunk, Stretch

Floats = NDArray[np.float64]


_LEAST = 0.1  # of the rows that a machine would have had, so that its time says something of them


class Costs:
    """Sums over the steps of a run.

    Attributes
    ----------
    known : int
        Steps whose optimum in hindsight is known.
    computing, hindsight : float
        Seconds of computing in these, as they were and as the best assignment would have had them.
    compared : int
        Steps in which each available machine computed at least a tenth of its equal load: of less
        rows it cannot be told what more of them would have taken.
    measured, cyclic, equal : float
        Seconds of computing in these, as they were, and with the cyclic assignment and equal
        shares.
    slowest : (N,) ndarray
        In how many steps each machine was the last.
    excess, over_plan : (N,) ndarray
        Seconds by which those steps were longer than the optimum in hindsight, and than planned.
    loads : (N,) ndarray
        Seconds that each spent on reading rows after the first step of a part.
    waited_for_loads : float
        Seconds of these that the steps that are compared took.
    load_bytes, load_seconds : float
        All that was read, and how long that took.
    changes : int
        How often other machines were available than in the step before.
    shared_anew : int
        How often that was so in steps that are compared.
    reload_rows : float
        Rows of X that a machine would have read then for its new equal share: the most of each
        time, added up.
    paces : list of (N,) ndarray
        Of each stretch of the last chunk: seconds per row that machines had shown, NaN for none.
    """

    def __init__(self) -> None:
        self.known = self.compared = self.changes = self.shared_anew = 0
        self.computing = self.hindsight = self.measured = self.cyclic = self.equal = 0.0
        self.waited_for_loads = self.load_bytes = self.load_seconds = self.reload_rows = 0.0
        self.slowest: Floats = np.zeros(0)
        self.excess: Floats = np.zeros(0)
        self.over_plan: Floats = np.zeros(0)
        self.loads: Floats = np.zeros(0)
        self._pace = np.zeros(0)  # seconds per row that machines showed last, NaN for none
        self._before: tuple[frozenset[int], float] | None = None
        self.paces: list[Floats] = []

    def add(self, chunk: Chunk, recovery: int, rows_per_shard: int) -> None:
        """Take the steps of a chunk, which follow those before."""
        machines = chunk.seconds.shape[1]
        if chunk.begins:
            self._before = None
            self._pace = np.full(machines, np.nan)
        self._grow(machines)
        self.paces = []
        if not chunk.steps:
            return
        last = chunk.seconds.argmax(axis=1)
        took = chunk.numbers["measured_makespan"]
        best, plan = chunk.numbers["hindsight_makespan"], chunk.numbers["predicted_makespan"]
        self.slowest += np.bincount(last, minlength=len(self.slowest))
        self.excess += _sums(last, took - best, len(self.excess))
        self.over_plan += _sums(last, took - plan, len(self.over_plan))
        known = ~np.isnan(best)
        self.known += int(known.sum())
        self.computing += float(took[known].sum())
        self.hindsight += float(best[known].sum())
        for stretch in chunk.stretches:
            self.paces.append(self._pace.copy())
            waited = self._add_loads(stretch, chunk.begins and stretch.begin == 0)
            steps = slice(stretch.begin, stretch.end)
            before = self.compared
            self._compare(chunk.seconds[steps], took[steps], stretch, recovery, rows_per_shard)
            self.waited_for_loads += waited if self.compared > before else 0.0

    def reload_seconds(self, bytes_per_row: int) -> float | None:
        """What reading `reload_rows` takes at the pace of a machine's reads; None if not known."""
        if not self.load_bytes or not self.load_seconds:
            return 0.0 if not self.reload_rows else None
        return self.reload_rows * bytes_per_row * self.load_seconds / self.load_bytes

    def _compare(
        self,
        seconds: Floats,
        took: Floats,
        stretch: Stretch,
        recovery: int,
        rows_per_shard: int,
    ) -> None:
        step = stretch.step
        rows = np.array(step["rows"], np.float64)
        here = np.array(sorted(step["available"]), np.int64) - 1
        copies = recovery
        if step["store"]:  # a further store, of which the records say no more than this
            bounds = [each for each in step["assignment"] if each]
            rows_per_shard = max((each[-1] for each in bounds), default=0)
            copies = round(sum(sum(b[1::2]) - sum(b[::2]) for b in bounds) / (rows_per_shard or 1))
        changed, read = self._change(here, copies * rows_per_shard)
        if len(here) < max(copies, 1) or not rows_per_shard:
            return
        share = copies * rows_per_shard / len(here)
        if rows[here].min() >= _LEAST * share:
            cyclic, equal = np.zeros((2, len(rows)), np.float64)
            cyclic[here] = cyclic_loads(len(here), copies, rows_per_shard) / rows[here]
            equal[here] = share / rows[here]
            self.compared += len(seconds)
            self.shared_anew += changed
            self.reload_rows += read
            self.measured += float(took.sum())
            self.cyclic += float((seconds * cyclic).max(axis=1).sum())
            self.equal += float((seconds * equal).max(axis=1).sum())
        shown = np.flatnonzero((rows > 0) & (seconds[-1] > 0))
        self._pace[shown] = seconds[-1][shown] / rows[shown]

    def _change(self, here: NDArray[np.int64], rows: int) -> tuple[bool, float]:
        """Whether others are available than in the step before, and rows that equal shares read."""
        now = frozenset(here.tolist()), rows / max(len(here), 1)
        before, self._before = self._before, now
        if before is None or before[0] == now[0]:
            return False, 0.0
        self.changes += 1
        joined = now[0] - before[0]
        return True, now[1] if joined else max(now[1] - before[1], 0.0)

    def _add_loads(self, stretch: Stretch, begins: bool) -> float:
        """Take what machines read; seconds that steps took longer for it, not to begin with."""
        seconds = np.array(stretch.step["load_seconds"], np.float64)
        if not seconds.any():
            return 0.0
        steps = stretch.end - stretch.begin
        self.load_seconds += steps * float(seconds.sum())
        self.load_bytes += steps * float(sum(stretch.step["load_bytes"]))
        steps -= begins
        self.loads[: len(seconds)] += steps * seconds
        return steps * float(seconds.max())

    def _grow(self, machines: int) -> None:
        more = machines - len(self.slowest)
        if more > 0:
            for name in ("slowest", "excess", "over_plan", "loads"):
                setattr(self, name, np.append(getattr(self, name), np.zeros(more)))
        if len(self._pace) != machines:
            self._pace = np.full(machines, np.nan)


def _sums(which: NDArray[np.int64], values: Floats, machines: int) -> Floats:
    sums = np.bincount(which, weights=np.nan_to_num(values), minlength=machines)
    return np.asarray(sums, np.float64)
