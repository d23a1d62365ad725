"""What steps cost, what others would have cost at the speeds that machines showed, and who cost it.

In each step machine n showed so many seconds per row. At these, the *cyclic* assignment takes the
time of the slowest of its equal loads; *equal shares without a code* take as long to compute, since
each of N_t machines has 1/N_t of X either way, and further time for reading: whenever machines come
or go, the shares change, and what a machine does not hold it reads anew. With stragglers the
records lack the answers that did not count, and none of this can be told.

A step takes longer than its makespan where reading holds it up, and where machines stall it: those
that are lost, given up, late or wrong.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.schemes import cyclic_loads
from cec_mpi.report.kinds import MARKED, said_of
from cec_mpi.report.stream import Chunk, Stretch

Floats = NDArray[np.float64]

_STALLING = {"lost": "lost", "given up": "lost", "late": "late", "wrong": "wrong"}
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
        Steps in which each available machine computed at least a tenth of its equal load, in a
        time that is not 0: of less it cannot be told what more rows would have taken.
    measured, cyclic, equal : float
        Seconds of computing in these, as they were, and with the cyclic assignment and equal
        shares.
    slowest : (N,) ndarray
        In how many steps each machine was the last to have computed.
    excess, over_plan : (N,) ndarray
        Seconds by which those steps were longer than the optimum in hindsight, and than planned.
    loads : (N,) ndarray
        Seconds by which reading held up the steps, but the first of a part, in which each machine
        was the last to have read and computed.
    waited_for_loads : float
        Seconds of these in the steps that are compared.
    held_up : (K,) ndarray
        Seconds by which reading held up each step of the last chunk.
    stalls : (N,) ndarray
        Seconds for which machines stalled steps: what the collection took longer than reading and
        computing, less what that usually is (the median of the steps without such events), in
        equal parts.
    stall_seconds : (T,) ndarray
        The same by steps.
    stalled : dict of str to (int, float)
        In how many steps that was more than 0, and how many seconds in all, by what happened:
        ``"lost"`` (or given up), ``"late"``, ``"wrong"``, the first of these in a step.
    uncounted : int
        S of a part in which each row was on L + S machines, and answers did not count; 0 for none.
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
        self.uncounted = 0
        self.computing = self.hindsight = self.measured = self.cyclic = self.equal = 0.0
        self.waited_for_loads = self.load_bytes = self.load_seconds = self.reload_rows = 0.0
        self.slowest: Floats = np.zeros(0)
        self.excess: Floats = np.zeros(0)
        self.over_plan: Floats = np.zeros(0)
        self.loads: Floats = np.zeros(0)
        self.stalls: Floats = np.zeros(0)
        self.held_up: Floats = np.zeros(0)
        self._beyond: list[Floats] = []  # of each step what its collection took beyond all that
        self._steps = 0
        self.stall_seconds: Floats = np.zeros(0)
        self.stalled: dict[str, tuple[int, float]] = {}
        # Machines, counted from 0, and what happened, by step.
        self._stalling: dict[int, tuple[NDArray[np.int64], str]] = {}
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
        self.held_up = np.zeros(chunk.steps)
        if not chunk.steps:
            return
        found = chunk.header.get("stragglers")
        stragglers = found if isinstance(found, int) else 0
        counts = stragglers < 1
        self.uncounted = self.uncounted if counts else int(stragglers)
        last = chunk.seconds.argmax(axis=1)
        took = chunk.numbers["measured_makespan"]
        best, plan = chunk.numbers["hindsight_makespan"], chunk.numbers["predicted_makespan"]
        best = best if counts else np.full(chunk.steps, np.nan)
        any_last = chunk.seconds.any(axis=1)
        who, late, over = last[any_last], (took - best)[any_last], (took - plan)[any_last]
        self.slowest += np.bincount(who, minlength=len(self.slowest))
        self.excess += _sums(who, late, len(self.excess))
        self.over_plan += _sums(who, over, len(self.over_plan))
        known = ~np.isnan(best)
        self.known += int(known.sum())
        self.computing += float(took[known].sum())
        self.hindsight += float(best[known].sum())
        for stretch in chunk.stretches:
            self.paces.append(self._pace.copy())
            steps = slice(stretch.begin, stretch.end)
            self._add_loads(chunk, stretch)
            self._note_stalls(stretch)
            waited = self.held_up[steps].copy()
            if chunk.begins and stretch.begin == 0:
                waited[0] = 0.0
            told = self._compare(
                chunk.seconds[steps], took[steps], stretch, recovery, rows_per_shard, counts
            )
            self.waited_for_loads += float(waited[told].sum())
        ended = chunk.seconds.max(axis=1) + self.held_up
        self._beyond.append(chunk.numbers["collect_seconds"] - ended)
        self._steps += chunk.steps

    @property
    def cost(self) -> Floats:
        """What each machine cost in all, in seconds."""
        return self.excess + self.loads + self.stalls

    def settle(self) -> None:
        """Tell stalls from what is usual, when all steps are there."""
        self.stall_seconds = np.zeros(self._steps)
        if not self._stalling:
            return
        beyond = np.concatenate(self._beyond)
        which = np.array(list(self._stalling))
        others = np.delete(beyond, which)
        usual = max(float(np.median(others)), 0.0) if len(others) else 0.0
        for step, (machines, kind) in self._stalling.items():
            stall = float(beyond[step]) - usual
            if stall > 0:
                often, seconds = self.stalled.get(kind, (0, 0.0))
                self.stalled[kind] = often + 1, seconds + stall
                self.stalls[machines] += stall / len(machines)
                self.stall_seconds[step] = stall

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
        counts: bool,
    ) -> NDArray[np.bool_]:
        """Add up what others would have taken; in which of the steps that can be told."""
        step = stretch.step
        rows = np.array(step["rows"], np.float64)
        here = np.array(sorted(step["available"]), np.int64) - 1
        copies = recovery
        if step["store"]:  # a further store, of which the records say no more than this
            bounds = [each for each in step["assignment"] if each]
            rows_per_shard = max((each[-1] for each in bounds), default=0)
            copies = round(sum(sum(b[1::2]) - sum(b[::2]) for b in bounds) / (rows_per_shard or 1))
        changed, read = self._change(here, copies * rows_per_shard)
        told = np.zeros(len(seconds), np.bool_)
        if len(here) < max(copies, 1) or not rows_per_shard:
            return told
        share = copies * rows_per_shard / len(here)
        if counts and rows[here].min() >= _LEAST * share:
            told |= (seconds[:, here] > 0).all(axis=1)
        if told.any():
            cyclic, equal = np.zeros((2, len(rows)), np.float64)
            cyclic[here] = cyclic_loads(len(here), copies, rows_per_shard) / rows[here]
            equal[here] = share / rows[here]
            self.compared += int(told.sum())
            if told[0]:  # in which they changed
                self.shared_anew += changed
                self.reload_rows += read
            self.measured += float(took[told].sum())
            self.cyclic += float((seconds[told] * cyclic).max(axis=1).sum())
            self.equal += float((seconds[told] * equal).max(axis=1).sum())
        shown = np.flatnonzero((rows > 0) & (seconds[-1] > 0))
        self._pace[shown] = seconds[-1][shown] / rows[shown]
        return told

    def _change(self, here: NDArray[np.int64], rows: int) -> tuple[bool, float]:
        """Whether others are available than in the step before, and rows that equal shares read."""
        now = frozenset(here.tolist()), rows / max(len(here), 1)
        before, self._before = self._before, now
        if before is None or before[0] == now[0]:
            return False, 0.0
        self.changes += 1
        joined = now[0] - before[0]
        return True, now[1] if joined else max(now[1] - before[1], 0.0)

    def _add_loads(self, chunk: Chunk, stretch: Stretch) -> None:
        """Take what machines read, and whom steps waited for on account of it."""
        loads = np.array(stretch.step["load_seconds"], np.float64)
        if not loads.any():
            return
        count = stretch.end - stretch.begin
        self.load_seconds += count * float(loads.sum())
        self.load_bytes += count * float(sum(stretch.step["load_bytes"]))
        seconds = chunk.seconds[stretch.begin : stretch.end]
        ends = seconds + loads
        waited = np.round(ends.max(axis=1) - seconds.max(axis=1), 9)  # as times are recorded
        self.held_up[stretch.begin : stretch.end] = waited
        after = int(chunk.begins and stretch.begin == 0)  # not what the first step of a part reads
        self.loads += _sums(ends.argmax(axis=1)[after:], waited[after:], len(self.loads))

    def _note_stalls(self, stretch: Stretch) -> None:
        machines, kinds = set(), set()
        for event in stretch.step["events"]:
            index, machine, _ = said_of(event)
            kind = _STALLING.get(MARKED[index].kind)
            if kind and 1 <= machine <= len(stretch.step["rows"]):
                machines.add(machine - 1)
                kinds.add(kind)
        if machines:
            kind = next(each for each in _STALLING.values() if each in kinds)
            self._stalling[self._steps + stretch.begin] = np.array(sorted(machines)), kind

    def _grow(self, machines: int) -> None:
        more = machines - len(self.slowest)
        if more > 0:
            for name in ("slowest", "excess", "over_plan", "loads", "stalls"):
                setattr(self, name, np.append(getattr(self, name), np.zeros(more)))
        if len(self._pace) != machines:
            self._pace = np.full(machines, np.nan)


def _sums(which: NDArray[np.int64], values: Floats, machines: int) -> Floats:
    sums = np.bincount(which, weights=np.nan_to_num(values), minlength=machines)
    return np.asarray(sums, np.float64)
