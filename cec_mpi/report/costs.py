"""Time of steps: measured, with the cyclic assignment, and lost to each machine.

Each step measures the seconds per row of each machine. At these rates the *cyclic* assignment takes
the time of the slowest machine with equal loads. With stragglers this is unknown, because the
records lack unused answers.

Reading, and machines that are lost, given up, late or wrong, delay a step beyond its makespan; the
records contain this delay. Later steps take longer without an absent machine. *Time lost* is the
excess over the time with the machines that were available at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.demand import optimal_loads
from cec_mpi.core.plan.schemes import cyclic_loads
from cec_mpi.report.chunks import Chunk, Floats
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.step import Waiting

Counts = NDArray[np.int64]
_KINDS_OF_LOSS = {
    "lost": "losses",
    "given up": "losses",
    "left": "losses",
    "excluded": "losses",
    "wrong": "losses",
    "late": "lateness",
    "slow": "lateness",
    "preempted": "preemption",
}
"""Categories of lost time, by event or reason of absence."""

_MIN_DELAY = 0.1  # seconds from which a delay counts without an event of the machine
_SLOW_FACTOR = 2.0  # of the planned or first time per row, above which a machine counts as late
_MIN_LOAD_FRACTION = 0.1  # of its equal load, from which the rate of a machine is extrapolated


def cyclic_rows(available: NDArray[np.bool_], machines_per_row: int, rows: int) -> Floats:
    """Return the rows of each machine in each stretch with equal loads of available machines.

    Parameters
    ----------
    available : (K, N) ndarray of bool
        Whether each machine is available.
    machines_per_row, rows : int
        Number of machines that compute each row, and rows of a shard.

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
    """Times and delays, summed over the steps of a run.

    Attributes
    ----------
    hindsight_steps : int
        Number of steps with a known optimum in hindsight.
    computing, hindsight : float
        Seconds of computing in these steps: measured, and with the best assignment.
    compared : int
        Number of steps in which each available machine computed at least a tenth of its equal load
        in a nonzero time, which is enough to measure its rate.
    measured, cyclic : float
        Seconds of computing in these steps: measured, and with the cyclic assignment.
    slowest : (N,) ndarray
        Number of steps in which each machine finished computing last.
    excess : (N,) ndarray
        Seconds by which these steps exceeded the optimum in hindsight, or the plan if they took
        twice as long; and an estimate of the seconds by which later steps were longer because the
        machine had become less than half as fast.
    over_plan : (N,) ndarray
        Seconds by which these steps exceeded the plan.
    loads : (N,) ndarray
        Seconds by which the reading of each machine delayed steps, except first steps of parts.
    read_delays : (K,) ndarray
        Seconds by which reading delayed each step of the last chunk.
    stalls : (N,) ndarray
        Seconds by which each machine stalled steps, beyond reading and computing: delays of
        machines with an event, and delays above 0.1 s that take most of a step.
    lost : dict of str to float
        Seconds lost to ``losses``, ``preemption``, ``waiting`` (for machines) and ``lateness``.
    stall_seconds : (K,) ndarray
        Seconds by which each step of the last chunk was stalled.
    shortage_seconds : (K,) ndarray
        Seconds that each step of the last chunk waited for other machines after a loss.
    away : (N,) ndarray
        Seconds lost to the absence of each machine: longer steps (for later steps an estimate), and
        waits for machines.
    stragglers : int
        S of a part in which each row is computed by L + S machines; 0 if there is none.
    seconds_per_row : list of (N,) ndarray
        Last measured seconds per row at each stretch of the last chunk; NaN without a measurement.
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
        self.lost = dict.fromkeys(("losses", "preemption", "waiting", "lateness"), 0.0)
        self._at_start: frozenset[int] = frozenset()  # machines of the first step
        self._absence_key: tuple[bytes, tuple[int, ...]] | None = None  # available and absent
        self._absence = 0.0, np.zeros(0)  # fraction of a step that is lost, missing speeds
        self.read_delays: Floats = np.zeros(0)
        self.stall_seconds: Floats = np.zeros(0)
        self.shortage_seconds: Floats = np.zeros(0)
        self._waited_steps: set[int] = set()  # steps with a wait before or in them
        self._last_seconds_per_row = np.zeros(0)  # NaN if not measured yet
        self._first_seconds_per_row = np.zeros(0)  # since the beginning of the part
        self._no_reads: Floats | None = None  # last array of load seconds with only zeros
        self.seconds_per_row: list[Floats] = []

    def add(self, chunk: Chunk, recovery: int, rows_per_shard: int) -> None:
        """Add the steps of the next chunk."""
        machines = chunk.seconds.shape[1]
        if chunk.is_first:
            self._last_seconds_per_row = np.full(machines, np.nan)
            self._first_seconds_per_row = np.full(machines, np.nan)
        self._add_machines(machines)
        self.seconds_per_row = []
        self.read_delays, self.stall_seconds, self.shortage_seconds = np.zeros((3, chunk.steps))
        self._waited_steps.update(after for after, note in chunk.notes if isinstance(note, Waiting))
        if not chunk.steps:
            return
        stragglers = chunk.header.get("stragglers", 0)
        is_counted = not stragglers
        self.stragglers = self.stragglers if is_counted else stragglers
        if not self._at_start:
            self._at_start = frozenset(chunk.stretches[0].step["available"].tolist())
        last = chunk.seconds.argmax(axis=1)
        makespans = chunk.numbers["measured_makespan"]
        hindsight, plan = chunk.numbers["hindsight_makespan"], chunk.numbers["predicted_makespan"]
        hindsight = hindsight if is_counted else np.full(chunk.steps, np.nan)
        late, over = np.nan_to_num(makespans - hindsight), np.nan_to_num(makespans - plan)
        for stretch in chunk.stretches:  # its own excess is charged to a machine with an event
            if absent := _absent_from(stretch.step):
                at = stretch.begin
                self._charge(absent, max(float(late[at]), 0.0), np.ones(machines))
                late[at] = over[at] = 0.0
        any_last = chunk.seconds.any(axis=1)
        is_late = is_counted & (over > (_SLOW_FACTOR - 1) * plan)
        late = np.where(is_late, over, late)
        self.lost["lateness"] += float(late[is_late].sum())
        best = np.where(is_late, 0.0, np.where(np.isnan(hindsight), makespans, hindsight))
        last_machines, late, over = last[any_last], late[any_last], over[any_last]
        self.slowest += np.bincount(last_machines, minlength=len(self.slowest))
        self.excess += _sums(last_machines, late, len(self.excess))
        self.over_plan += _sums(last_machines, over, len(self.over_plan))
        known = ~np.isnan(hindsight)
        self.hindsight_steps += int(known.sum())
        self.computing += float(makespans[known].sum())
        self.hindsight += float(hindsight[known].sum())
        self._add_loads(chunk)
        self._add_stalls(chunk)
        self._add_cyclic(chunk, makespans, recovery, rows_per_shard, is_counted)
        self._record_rates(chunk)
        self._add_absences(chunk, best, recovery + stragglers, rows_per_shard)
        waited = chunk.numbers["waited_seconds"].sum() + self.shortage_seconds.sum()
        self.lost["waiting"] += float(waited)

    @property
    def cost(self) -> Floats:
        """Total seconds lost to each machine, of shape (N,)."""
        return np.maximum(self.excess, 0.0) + self.loads + self.stalls + self.away

    def wait(self, seconds: float, missing: Waiting) -> None:
        """Charge a wait to the machines that were absent."""
        absent = [
            n
            for n, reason in missing.away.items()
            if reason != "not joined" and n <= len(self.away)
        ]
        for machine in absent:
            self.away[machine - 1] += seconds / len(absent)

    def _charge(self, causes: Mapping[int, str], seconds: float, lost_speeds: Floats) -> None:
        """Charge seconds to machines in proportion to their lost speeds; `causes` has reasons."""
        weights = {n: max(float(lost_speeds[n - 1]), 0.0) for n in causes}
        total = sum(weights.values())
        for machine, reason in causes.items():
            charged = seconds * weights[machine] / total if total else 0.0
            (self.excess if reason == "slow" else self.away)[machine - 1] += charged
            self.lost[_KINDS_OF_LOSS[reason]] += charged

    def _add_absences(self, chunk: Chunk, best: Floats, machines_per_row: int, rows: int) -> None:
        """Estimate the excess of steps that is due to absent or slow machines.

        The estimate uses the ratio of the optimal makespans with and without these machines, at the
        last measured speeds, or at the first speeds of slow machines. `best` holds the (K,) seconds
        with the optimal assignment. Preempted machines count only if they were available at the
        start.
        """
        first = self._first_seconds_per_row
        slow = chunk.available & (np.array(self.seconds_per_row) > _SLOW_FACTOR * first)
        for at, (stretch, pace) in enumerate(
            zip(chunk.stretches, self.seconds_per_row, strict=True)
        ):
            step = stretch.step
            in_step = _absent_from(step, chunk.seconds[stretch.begin])
            if not (step["away"] or in_step or slow[at].any()):
                continue
            causes = {
                n: reason
                for reason, machines in step["away"].items()
                if reason in _KINDS_OF_LOSS
                for n in machines
                if reason != "preempted" or n in self._at_start
            } | in_step
            causes = {n: reason for n, reason in causes.items() if not np.isnan(pace[n - 1])}
            present = chunk.available[at] & ~np.isnan(pace)
            present[np.array([*in_step], np.intp) - 1] = False
            if (present & slow[at]).any():  # unless all are slower, for example with more columns
                slowed = pace / first
                factor = float(np.median(slowed[present]))
                more_than_others = present & (slowed > _SLOW_FACTOR * max(factor, 1.0))
                causes |= dict.fromkeys((np.flatnonzero(more_than_others) + 1).tolist(), "slow")
            if not causes:
                continue
            key = present.tobytes(), tuple(causes)
            if key != self._absence_key:
                speeds, more = np.where(present, 1 / pace, 0.0), np.zeros(len(pace))
                for n, reason in causes.items():
                    more[n - 1] = 1 / (factor * first[n - 1] if reason == "slow" else pace[n - 1])
                without, with_them = (
                    optimal_loads(some, np.zeros(len(some)), machines_per_row, rows)[0]
                    if len(some := each[each > 0]) >= machines_per_row
                    else 0.0
                    for each in (speeds, np.maximum(speeds, more))
                )
                lost_share = max(1 - with_them / without, 0.0) if without else 0.0
                self._absence_key, self._absence = key, (lost_share, more - speeds)
            lost_share, lost_speeds = self._absence
            seconds = float(best[stretch.begin : stretch.end].sum())
            self._charge(causes, lost_share * seconds, lost_speeds)

    def _add_cyclic(
        self,
        chunk: Chunk,
        makespans: Floats,
        recovery: int,
        rows_per_shard: int,
        is_counted: bool,
    ) -> None:
        """Add the time of the cyclic assignment in steps for which it is known."""
        rows, available, stretch_of_step = chunk.rows, chunk.available, chunk.stretch_index
        count = available.sum(axis=1)
        share = recovery * rows_per_shard / np.maximum(count, 1)
        min_rows = np.min(rows, axis=1, where=available, initial=np.inf)
        has_enough_rows = (count >= recovery) & (min_rows >= _MIN_LOAD_FRACTION * share)
        is_compared: NDArray[np.bool_] = (is_counted & has_enough_rows)[stretch_of_step]
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
        """Record the last measured seconds per row at each stretch."""
        last = chunk.seconds[np.append(chunk.stretch_begins[1:], chunk.steps) - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            paces = last / chunk.rows
        is_measured = (chunk.rows > 0) & (last > 0)
        for rates_of_stretch, known in zip(paces, is_measured, strict=True):
            self.seconds_per_row.append(self._last_seconds_per_row.copy())
            np.copyto(self._last_seconds_per_row, rates_of_stretch, where=known)
            is_new = known & np.isnan(self._first_seconds_per_row)
            np.copyto(self._first_seconds_per_row, rates_of_stretch, where=is_new)

    def _add_loads(self, chunk: Chunk) -> None:
        """Add the delays of steps by reading."""
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
            self.read_delays[steps] = waited
            skipped = int(chunk.is_first and stretch.begin == 0)  # first reads of a part
            self.loads += _sums(ends.argmax(axis=1)[skipped:], waited[skipped:], len(self.loads))

    def _add_stalls(self, chunk: Chunk) -> None:
        """Add the delays by machines with an event, and other long delays."""
        events = {stretch.begin: stretch.step["events"] for stretch in chunk.stretches}
        collect = chunk.numbers["collect_seconds"]
        # Neither reading nor computing:
        other_seconds = collect - chunk.seconds.max(axis=1) - self.read_delays
        for at, delays in chunk.delays:
            step_events = map(kind_and_machine, events.get(at, ()))
            troubled = {
                n: _KINDS_OF_LOSS[kind] for kind, n in step_events if kind in _KINDS_OF_LOSS
            }
            delayed = {
                n: seconds
                for n, seconds in delays.items()
                if n <= len(self.stalls) and (n in troubled or seconds > _MIN_DELAY)
            }
            total, limit = sum(delayed.values()), float(other_seconds[at])
            stall = min(total, limit)
            if stall <= 0 or (not troubled and stall < collect[at] / 2):
                continue
            waited = chunk.steps_before + at in self._waited_steps
            charged = self.away if waited else self.stalls
            for machine, seconds in delayed.items():
                charged[machine - 1] += stall * seconds / total
                if not waited:
                    self.lost[troubled.get(machine, "lateness")] += stall * seconds / total
            (self.shortage_seconds if waited else self.stall_seconds)[at] = stall

    def _add_machines(self, machines: int) -> None:
        more = machines - len(self.slowest)
        if more > 0:
            for name in ("slowest", "excess", "over_plan", "loads", "stalls", "away"):
                setattr(self, name, np.append(getattr(self, name), np.zeros(more)))
        if len(self._last_seconds_per_row) != machines:
            self._last_seconds_per_row = np.full(machines, np.nan)
            self._first_seconds_per_row = np.full(machines, np.nan)


def _absent_from(step: Mapping[str, Any], seconds: Floats | None = None) -> dict[int, str]:
    """Return the machines that left or were late in a step, with reasons.

    Machines that computed for nonzero `seconds`, of shape (N,), are excluded.
    """
    if not step["events"]:
        return {}
    available = set(step["available"].tolist())
    return {
        n: reason
        for reason, n in map(kind_and_machine, step["events"])
        if reason in _KINDS_OF_LOSS
        and reason != "wrong"
        and n in available
        and (seconds is None or not seconds[n - 1])
    }


def _sums(machine_indices: NDArray[np.int64], values: Floats, machines: int) -> Floats:
    sums = np.bincount(machine_indices, weights=np.nan_to_num(values), minlength=machines)
    return np.asarray(sums, np.float64)
