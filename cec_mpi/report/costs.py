"""Time of steps: measured, with the cyclic assignment, and lost to each machine.

Each step measures the seconds per row of machine n. At these rates the *cyclic* assignment takes
the time of the slowest machine with equal loads. With stragglers this is unknown, because the
records lack the answers that were not used.

Reading, and machines that are lost, given up, late or wrong, delay a step beyond its makespan; the
records contain this delay. Later steps take longer without a lost machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.demand import optimal_loads
from cec_mpi.core.plan.schemes import cyclic_loads
from cec_mpi.report.absences import DEPARTURES
from cec_mpi.report.chunks import Chunk, Floats
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.step import Waiting

Counts = NDArray[np.int64]
_STALLING = "lost", "given up", "left", "excluded", "late", "wrong"  # events
_LONG = 0.1  # seconds: a longer delay counts even without an event of the machine
_MIN_LOAD_FRACTION = 0.1  # fraction of its equal load from which a machine's rate is extrapolated


def cyclic_rows(available: NDArray[np.bool_], machines_per_row: int, rows: int) -> Floats:
    """Return the rows of each machine by stretch with equal loads of all available machines.

    Parameters
    ----------
    available : (K, N) ndarray of bool
        Which machines are available.
    machines_per_row, rows : int
        Machines that compute each row, and rows of a shard.

    Examples
    --------
    >>> cyclic_rows(np.array([[True, True, True, False]]), 2, 60)
    array([[40., 40., 40.,  0.]])
    """
    loads = np.zeros(available.shape)
    known: dict[int, Counts] = {}
    for stretch, count in enumerate(available.sum(axis=1).tolist()):
        if count >= machines_per_row:
            if count not in known:
                known[count] = cyclic_loads(count, machines_per_row, rows)
            loads[stretch, available[stretch]] = known[count]
    return loads


class Costs:
    """Sums over the steps of a run.

    Attributes
    ----------
    hindsight_steps : int
        Number of steps whose optimum in hindsight is known.
    computing, hindsight : float
        Seconds of computing in these steps: measured, and with the best assignment.
    compared : int
        Number of steps in which each available machine computed at least a tenth of its equal
        load in a nonzero time; a smaller part does not give its rate.
    measured, cyclic : float
        Seconds of computing in these steps: measured, and with the cyclic assignment.
    slowest : (N,) ndarray
        Number of steps in which each machine finished computing last.
    excess, over_plan : (N,) ndarray
        Seconds by which these steps exceeded the optimum in hindsight, and the plan.
    loads : (N,) ndarray
        Seconds by which each machine's reading delayed steps, without the first of a part.
    read_delays : (K,) ndarray
        Seconds by which reading delayed each step of the last chunk.
    stalls : (N,) ndarray
        Seconds by which each machine stalled steps, beyond reading and computing: delays of
        machines with an event, and delays above 0.1 s that are most of a step.
    stall_seconds : (K,) ndarray
        The same by step of the last chunk.
    shortage_seconds : (K,) ndarray
        Seconds that each step of the last chunk waited for other machines after a loss.
    away : (N,) ndarray
        Seconds lost because each machine was lost, given up, excluded or had left: longer steps
        (an estimate), and waits for machines.
    slower : float
        The part of `away` due to longer steps.
    stragglers : int
        S of a part with each row on L + S machines, whose unused answers are unknown; 0 if none.
    seconds_per_row : list of (N,) ndarray
        The last measured seconds per row at each stretch of the last chunk, NaN if none.
    """

    def __init__(self) -> None:
        self.hindsight_steps = self.compared = 0
        self.stragglers = 0
        self.computing = self.hindsight = self.measured = self.cyclic = 0.0
        self.slowest: Floats = np.zeros(0)
        self.excess: Floats = np.zeros(0)
        self.over_plan: Floats = np.zeros(0)
        self.loads: Floats = np.zeros(0)
        self.stalls: Floats = np.zeros(0)
        self.away: Floats = np.zeros(0)
        self.slower = 0.0
        self._absence_key: tuple[bytes, list[int]] | None = (
            None  # available machines, and those gone
        )
        self._absence_share = 0.0  # fraction of a step lost to machines that are gone
        self.read_delays: Floats = np.zeros(0)
        self.stall_seconds: Floats = np.zeros(0)
        self.shortage_seconds: Floats = np.zeros(0)
        self._waited_steps: set[int] = set()  # steps before or in which the run waited
        self._last_seconds_per_row = np.zeros(0)  # NaN if not measured yet
        self._no_reads: Floats | None = None  # the last array of load seconds that was all zero
        self.seconds_per_row: list[Floats] = []

    def add(self, chunk: Chunk, recovery: int, rows_per_shard: int) -> None:
        """Add the steps of the next chunk."""
        machines = chunk.seconds.shape[1]
        if chunk.is_first:
            self._last_seconds_per_row = np.full(machines, np.nan)
        self._add_machines(machines)
        self.seconds_per_row = []
        self.read_delays, self.stall_seconds, self.shortage_seconds = np.zeros((3, chunk.steps))
        self._waited_steps.update(after for after, note in chunk.notes if isinstance(note, Waiting))
        if not chunk.steps:
            return
        stragglers = chunk.header.get("stragglers", 0)
        counts = not stragglers
        self.stragglers = self.stragglers if counts else stragglers
        last = chunk.seconds.argmax(axis=1)
        makespans = chunk.numbers["measured_makespan"]
        best, plan = chunk.numbers["hindsight_makespan"], chunk.numbers["predicted_makespan"]
        best = best if counts else np.full(chunk.steps, np.nan)
        late, over = np.nan_to_num(makespans - best), np.nan_to_num(makespans - plan)
        for (
            stretch
        ) in chunk.stretches:  # a loss is charged to the lost machine, not to the last one
            at, here = stretch.begin, set(stretch.step["available"].tolist())
            events = map(kind_and_machine, stretch.step["events"])
            gone = [n for kind, n in events if kind in DEPARTURES and n in here]
            if gone:
                self._charge_absence(gone, max(float(late[at]), 0.0))
                late[at] = over[at] = 0.0
        any_last = chunk.seconds.any(axis=1)
        last_machines, late, over = last[any_last], late[any_last], over[any_last]
        self.slowest += np.bincount(last_machines, minlength=len(self.slowest))
        self.excess += _sums(last_machines, late, len(self.excess))
        self.over_plan += _sums(last_machines, over, len(self.over_plan))
        known = ~np.isnan(best)
        self.hindsight_steps += int(known.sum())
        self.computing += float(makespans[known].sum())
        self.hindsight += float(best[known].sum())
        self._add_loads(chunk)
        self._add_stalls(chunk)
        self._add_cyclic(chunk, makespans, recovery, rows_per_shard, counts)
        self._record_rates(chunk)
        self._add_absences(chunk, makespans, recovery + stragglers, rows_per_shard)

    @property
    def cost(self) -> Floats:
        """(N,) total seconds lost to each machine."""
        return np.maximum(self.excess, 0.0) + self.loads + self.stalls + self.away

    def wait(self, seconds: float, missing: Waiting) -> None:
        """Charge a wait to the machines that were away during it."""
        gone = [n for n, why in missing.away.items() if why in DEPARTURES and n <= len(self.away)]
        for machine in gone:
            self.away[machine - 1] += seconds / len(gone)

    def _charge_absence(self, gone: Sequence[int], seconds: float) -> None:
        self.slower += seconds
        for machine in gone:
            self.away[machine - 1] += seconds / len(gone)

    def _add_absences(
        self, chunk: Chunk, makespans: Floats, machines_per_row: int, rows: int
    ) -> None:
        """Estimate how much longer steps took without the machines that are gone.

        The estimate is the ratio of the optimal makespans with and without them, at the last
        measured speeds.
        """
        for at, (stretch, pace) in enumerate(
            zip(chunk.stretches, self.seconds_per_row, strict=True)
        ):
            away = stretch.step["away"]
            gone = [n for why in DEPARTURES for n in away.get(why, ()) if not np.isnan(pace[n - 1])]
            if not gone:
                continue
            key = chunk.available[at].tobytes(), gone
            if key != self._absence_key:
                self._absence_key, mask = key, chunk.available[at] & ~np.isnan(pace)
                optima = []
                for _ in range(2):
                    speeds = 1 / pace[mask]
                    enough, no_loads = len(speeds) >= machines_per_row, np.zeros(len(speeds))
                    optima.append(
                        optimal_loads(speeds, no_loads, machines_per_row, rows)[0]
                        if enough
                        else 0.0
                    )
                    mask[np.array(gone) - 1] = True
                without, best = optima
                self._absence_share = max(1 - best / without, 0.0) if without else 0.0
            self._charge_absence(
                gone, self._absence_share * float(makespans[stretch.begin : stretch.end].sum())
            )

    def _add_cyclic(
        self,
        chunk: Chunk,
        makespans: Floats,
        recovery: int,
        rows_per_shard: int,
        counts: bool,
    ) -> None:
        """Add the time of the cyclic assignment in the steps for which it is known."""
        rows, available, stretch_of_step = chunk.rows, chunk.available, chunk.stretch_index
        count = available.sum(axis=1)
        share = recovery * rows_per_shard / np.maximum(count, 1)
        least = np.min(rows, axis=1, where=available, initial=np.inf)
        has_enough_rows = (count >= recovery) & (least >= _MIN_LOAD_FRACTION * share)
        is_compared: NDArray[np.bool_] = (counts & has_enough_rows)[stretch_of_step]
        is_compared[is_compared] = ((chunk.seconds > 0) | ~available[stretch_of_step])[
            is_compared
        ].all(axis=1)
        if not is_compared.any():
            return
        self.compared += int(is_compared.sum())
        self.measured += float(makespans[is_compared].sum())
        stretches = stretch_of_step[is_compared]
        paces = chunk.seconds[is_compared] / np.where(available, rows, np.inf)[stretches]
        paces *= cyclic_rows(available, recovery, rows_per_shard)[stretches]
        self.cyclic += float(paces.max(axis=1).sum())

    def _record_rates(self, chunk: Chunk) -> None:
        """Record the seconds per row measured before each stretch."""
        last = chunk.seconds[np.append(chunk.stretch_begins[1:], chunk.steps) - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            paces = last / chunk.rows
        shown = (chunk.rows > 0) & (last > 0)
        for rates_of_stretch, known in zip(paces, shown, strict=True):
            self.seconds_per_row.append(self._last_seconds_per_row.copy())
            np.copyto(self._last_seconds_per_row, rates_of_stretch, where=known)

    def _add_loads(self, chunk: Chunk) -> None:
        """Add the time by which reading delayed steps."""
        for stretch in chunk.stretches:
            loads = stretch.step["load_seconds"]
            if loads is self._no_reads:
                continue
            if not loads.any():
                self._no_reads = loads
                continue
            steps = slice(stretch.begin, stretch.end)
            ends = chunk.seconds[steps] + loads
            waited = np.round(ends.max(axis=1) - chunk.seconds[steps].max(axis=1), 9)
            self.read_delays[steps] = waited  # as times are recorded
            after = int(chunk.is_first and stretch.begin == 0)  # without the first reads of a part
            self.loads += _sums(ends.argmax(axis=1)[after:], waited[after:], len(self.loads))

    def _add_stalls(self, chunk: Chunk) -> None:
        """Add the delays of machines with an event, and other long ones."""
        events = {stretch.begin: stretch.step["events"] for stretch in chunk.stretches}
        collect = chunk.numbers["collect_seconds"]
        # Neither reading nor computing:
        other_seconds = collect - chunk.seconds.max(axis=1) - self.read_delays
        for at, delays in chunk.delays:
            happened = map(kind_and_machine, events.get(at, ()))
            troubled = {n for kind, n in happened if kind in _STALLING}
            delayed = {
                n: seconds
                for n, seconds in delays.items()
                if n <= len(self.stalls) and (n in troubled or seconds > _LONG)
            }
            whole, most = sum(delayed.values()), float(other_seconds[at])
            stall = min(whole, most)
            if stall <= 0 or (not troubled and stall < collect[at] / 2):
                continue
            waited = chunk.steps_before + at in self._waited_steps
            charged = self.away if waited else self.stalls
            for machine, seconds in delayed.items():
                charged[machine - 1] += stall * seconds / whole
            (self.shortage_seconds if waited else self.stall_seconds)[at] = stall

    def _add_machines(self, machines: int) -> None:
        more = machines - len(self.slowest)
        if more > 0:
            for name in ("slowest", "excess", "over_plan", "loads", "stalls", "away"):
                setattr(self, name, np.append(getattr(self, name), np.zeros(more)))
        if len(self._last_seconds_per_row) != machines:
            self._last_seconds_per_row = np.full(machines, np.nan)


def _sums(which: NDArray[np.int64], values: Floats, machines: int) -> Floats:
    sums = np.bincount(which, weights=np.nan_to_num(values), minlength=machines)
    return np.asarray(sums, np.float64)
