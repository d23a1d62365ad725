"""What steps cost, what the cyclic assignment would have cost, and which machines cost it.

In each step machine n showed so many seconds per row. At these, the *cyclic* assignment takes the
time of the slowest of its equal loads. With stragglers the records lack the answers that did not
count, and this cannot be told.

A step takes longer than its makespan if reading delays it, or machines that are lost, given up,
late or wrong: the records say by how much. Later steps take longer without a lost machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.demand import optimum
from cec_mpi.core.plan.schemes import cyclic_loads
from cec_mpi.report.away import GOING
from cec_mpi.report.chunks import Chunk, Floats
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.step import Waiting

Counts = NDArray[np.int64]
_STALLING = "lost", "given up", "left", "excluded", "late", "wrong"  # events
_LONG = 0.1  # seconds of a delay that counts though nothing is known of the machine
_LEAST = 0.1  # of the rows that a machine would have had, so that its time says something of them


def cyclic_rows(here: NDArray[np.bool_], machines_per_row: int, rows: int) -> Floats:
    """Return rows of each machine by stretch if all available machines had equal loads.

    Parameters
    ----------
    here : (K, N) ndarray of bool
        Which machines are available.
    machines_per_row, rows : int
        Machines that compute each row, and rows of a shard.

    Examples
    --------
    >>> cyclic_rows(np.array([[True, True, True, False]]), 2, 60)
    array([[40., 40., 40.,  0.]])
    """
    loads = np.zeros(here.shape)
    known: dict[int, Counts] = {}
    for at, count in enumerate(here.sum(axis=1).tolist()):
        if count >= machines_per_row:
            if count not in known:
                known[count] = cyclic_loads(count, machines_per_row, rows)
            loads[at, here[at]] = known[count]
    return loads


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
    measured, cyclic : float
        Seconds of computing in these, as they were, and with the cyclic assignment.
    slowest : (N,) ndarray
        In how many steps each machine was the last to have computed.
    excess, over_plan : (N,) ndarray
        Seconds by which those steps were longer than the optimum in hindsight, and than planned.
    loads : (N,) ndarray
        Seconds by which reading held up the steps, but the first of a part, in which each machine
        was the last to have read and computed.
    held_up : (K,) ndarray
        Seconds by which reading held up each step of the last chunk.
    stalls : (N,) ndarray
        Seconds for which machines stalled steps: the recorded delays of those to which something
        happened, and delays above 0.1 s that are most of a step, as far as they were neither
        reading nor computing.
    stall_seconds : (K,) ndarray
        The same by steps of the last chunk.
    short_seconds : (K,) ndarray
        Seconds for which each step of the last chunk waited for other machines after a loss.
    away : (N,) ndarray
        Seconds that the run lost because each machine was away after it was lost, given up or
        excluded, or left: steps took longer (an estimate), and the run waited for machines.
    slower : float
        Seconds of these by which steps took longer.
    uncounted : int
        S of a part in which each row was on L + S machines, and answers did not count; 0 for none.
    paces : list of (N,) ndarray
        Of each stretch of the last chunk: seconds per row that machines had shown, NaN for none.
    """

    def __init__(self) -> None:
        self.known = self.compared = 0
        self.uncounted = 0
        self.computing = self.hindsight = self.measured = self.cyclic = 0.0
        self.slowest: Floats = np.zeros(0)
        self.excess: Floats = np.zeros(0)
        self.over_plan: Floats = np.zeros(0)
        self.loads: Floats = np.zeros(0)
        self.stalls: Floats = np.zeros(0)
        self.away: Floats = np.zeros(0)
        self.slower = 0.0
        self._without: tuple[bytes, list[int]] | None = None  # who is here, and who is gone
        self._share = 0.0  # of a step, that those who are gone cost
        self.held_up: Floats = np.zeros(0)
        self.stall_seconds: Floats = np.zeros(0)
        self.short_seconds: Floats = np.zeros(0)
        self._waits: set[int] = set()  # steps before which, or in which, the run waited
        self._pace = np.zeros(0)  # seconds per row that machines showed last, NaN for none
        self._idle: Floats | None = None  # reads that were none
        self.paces: list[Floats] = []

    def add(self, chunk: Chunk, recovery: int, rows_per_shard: int) -> None:
        """Take the steps of a chunk, which follow those before."""
        machines = chunk.seconds.shape[1]
        if chunk.begins:
            self._pace = np.full(machines, np.nan)
        self._grow(machines)
        self.paces = []
        self.held_up, self.stall_seconds, self.short_seconds = np.zeros((3, chunk.steps))
        self._waits.update(after for after, note in chunk.notes if isinstance(note, Waiting))
        if not chunk.steps:
            return
        stragglers = chunk.header.get("stragglers", 0)
        counts = not stragglers
        self.uncounted = self.uncounted if counts else stragglers
        last = chunk.seconds.argmax(axis=1)
        took = chunk.numbers["measured_makespan"]
        best, plan = chunk.numbers["hindsight_makespan"], chunk.numbers["predicted_makespan"]
        best = best if counts else np.full(chunk.steps, np.nan)
        late, over = np.nan_to_num(took - best), np.nan_to_num(took - plan)
        for stretch in chunk.stretches:  # what a loss costs in its step is not of whoever was last
            at, here = stretch.begin, set(stretch.step["available"].tolist())
            events = map(kind_and_machine, stretch.step["events"])
            gone = [n for kind, n in events if kind in GOING and n in here]
            if gone:
                self._charge(gone, max(float(late[at]), 0.0))
                late[at] = over[at] = 0.0
        any_last = chunk.seconds.any(axis=1)
        who, late, over = last[any_last], late[any_last], over[any_last]
        self.slowest += np.bincount(who, minlength=len(self.slowest))
        self.excess += _sums(who, late, len(self.excess))
        self.over_plan += _sums(who, over, len(self.over_plan))
        known = ~np.isnan(best)
        self.known += int(known.sum())
        self.computing += float(took[known].sum())
        self.hindsight += float(best[known].sum())
        self._add_loads(chunk)
        self._add_stalls(chunk)
        self._compare(chunk, took, recovery, rows_per_shard, counts)
        self._note_paces(chunk)
        self._add_absences(chunk, took, recovery + stragglers, rows_per_shard)

    @property
    def cost(self) -> Floats:
        """What each machine cost in all, in seconds."""
        return np.maximum(self.excess, 0.0) + self.loads + self.stalls + self.away

    def wait(self, seconds: float, missing: Waiting) -> None:
        """Charge a wait to the machines that were away then."""
        gone = [n for n, why in missing.away.items() if why in GOING and n <= len(self.away)]
        for machine in gone:
            self.away[machine - 1] += seconds / len(gone)

    def _charge(self, gone: Sequence[int], seconds: float) -> None:
        self.slower += seconds
        for machine in gone:
            self.away[machine - 1] += seconds / len(gone)

    def _add_absences(self, chunk: Chunk, took: Floats, machines_per_row: int, rows: int) -> None:
        """Estimate how much longer steps took without the machines that are gone.

        It is the ratio of the optimal makespans with and without them, at the speeds that machines
        showed last when somebody left or came.
        """
        for at, (stretch, pace) in enumerate(zip(chunk.stretches, self.paces, strict=True)):
            away = stretch.step["away"]
            gone = [n for why in GOING for n in away.get(why, ()) if not np.isnan(pace[n - 1])]
            if not gone:
                continue
            key = chunk.here[at].tobytes(), gone
            if key != self._without:
                self._without, with_them = key, chunk.here[at] & ~np.isnan(pace)
                optima = []
                for _ in range(2):
                    speeds = 1 / pace[with_them]
                    enough, none = len(speeds) >= machines_per_row, np.zeros(len(speeds))
                    optima.append(
                        optimum(speeds, none, machines_per_row, rows)[0] if enough else 0.0
                    )
                    with_them[np.array(gone) - 1] = True
                without, best = optima
                self._share = max(1 - best / without, 0.0) if without else 0.0
            self._charge(gone, self._share * float(took[stretch.begin : stretch.end].sum()))

    def _compare(
        self,
        chunk: Chunk,
        took: Floats,
        recovery: int,
        rows_per_shard: int,
        counts: bool,
    ) -> None:
        """Add up what the cyclic assignment would have taken in the steps that tell it."""
        rows, here, which = chunk.rows, chunk.here, chunk.stretch_of
        count = here.sum(axis=1)
        share = recovery * rows_per_shard / np.maximum(count, 1)
        least = np.min(rows, axis=1, where=here, initial=np.inf)
        can = (count >= recovery) & (least >= _LEAST * share)
        told: NDArray[np.bool_] = (counts & can)[which]
        told[told] = ((chunk.seconds > 0) | ~here[which])[told].all(axis=1)
        if not told.any():
            return
        self.compared += int(told.sum())
        self.measured += float(took[told].sum())
        of = which[told]
        paces = chunk.seconds[told] / np.where(here, rows, np.inf)[of]
        paces *= cyclic_rows(here, recovery, rows_per_shard)[of]
        self.cyclic += float(paces.max(axis=1).sum())

    def _note_paces(self, chunk: Chunk) -> None:
        """Take seconds per row that machines have shown, as each stretch ends."""
        last = chunk.seconds[np.append(chunk.begins_of[1:], chunk.steps) - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            paces = last / chunk.rows
        shown = (chunk.rows > 0) & (last > 0)
        for mine, known in zip(paces, shown, strict=True):
            self.paces.append(self._pace.copy())
            np.copyto(self._pace, mine, where=known)

    def _add_loads(self, chunk: Chunk) -> None:
        """Take what machines read, and by how much that delayed steps."""
        for stretch in chunk.stretches:
            loads = stretch.step["load_seconds"]
            if loads is self._idle:
                continue
            if not loads.any():
                self._idle = loads
                continue
            steps = slice(stretch.begin, stretch.end)
            ends = chunk.seconds[steps] + loads
            waited = np.round(ends.max(axis=1) - chunk.seconds[steps].max(axis=1), 9)
            self.held_up[steps] = waited  # as times are recorded
            after = int(chunk.begins and stretch.begin == 0)  # not what a part reads first
            self.loads += _sums(ends.argmax(axis=1)[after:], waited[after:], len(self.loads))

    def _add_stalls(self, chunk: Chunk) -> None:
        """Take delays of machines to which something happened, and other long ones."""
        events = {stretch.begin: stretch.step["events"] for stretch in chunk.stretches}
        collect = chunk.numbers["collect_seconds"]
        beyond = collect - chunk.seconds.max(axis=1) - self.held_up  # neither read nor computed
        for at, delays in chunk.delays:
            happened = map(kind_and_machine, events.get(at, ()))
            troubled = {n for kind, n in happened if kind in _STALLING}
            delayed = {
                n: seconds
                for n, seconds in delays.items()
                if n <= len(self.stalls) and (n in troubled or seconds > _LONG)
            }
            whole, most = sum(delayed.values()), float(beyond[at])
            stall = min(whole, most)
            if stall <= 0 or (not troubled and stall < collect[at] / 2):
                continue
            waited = chunk.first + at in self._waits
            charged = self.away if waited else self.stalls
            for machine, seconds in delayed.items():
                charged[machine - 1] += stall * seconds / whole
            (self.short_seconds if waited else self.stall_seconds)[at] = stall

    def _grow(self, machines: int) -> None:
        more = machines - len(self.slowest)
        if more > 0:
            for name in ("slowest", "excess", "over_plan", "loads", "stalls", "away"):
                setattr(self, name, np.append(getattr(self, name), np.zeros(more)))
        if len(self._pace) != machines:
            self._pace = np.full(machines, np.nan)


def _sums(which: NDArray[np.int64], values: Floats, machines: int) -> Floats:
    sums = np.bincount(which, weights=np.nan_to_num(values), minlength=machines)
    return np.asarray(sums, np.float64)
