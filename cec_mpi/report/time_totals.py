"""Times of steps, summed: measured, with the cyclic assignment, and lost to each machine.

The records have the seconds per row of each machine in each step. At these rates the *cyclic*
assignment takes the time of the slowest machine with equal loads. With stragglers this time is
unknown, because the records lack unused answers.

A step takes longer than its makespan if machines read rows, or are lost, unresponsive, late or
wrong. The records contain this delay. Later steps take longer without an absent machine. *Time
lost* is the excess over the time with the machines that were available at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.demand import optimal_loads
from cec_mpi.core.plan.schemes import cyclic_loads
from cec_mpi.report.chunks import Chunk, Floats, Ints
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.step import Waiting

_CATEGORIES = {
    "lost": "losses",
    "unresponsive": "losses",
    "left": "losses",
    "excluded": "losses",
    "wrong": "losses",
    "late": "lateness",
    "slow": "lateness",
    "preempted": "preemption",
}
"""Categories of lost time, by kind of event or reason for absence."""

_MIN_DELAY = 0.1  # seconds; shorter delays count only if the machine had an event
_SLOW_FACTOR = 2.0  # slow: above this multiple of the planned makespan or first seconds per row
_MIN_LOAD_FRACTION = 0.1  # of the equal load; steps with a smaller load are not compared


def cyclic_rows(available: NDArray[np.bool_], machines_per_row: int, rows: int) -> Floats:
    """Return the rows of each machine in each stretch if the available machines have equal loads.

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
    loads_by_count: dict[int, Ints] = {}
    for stretch, count in enumerate(available.sum(axis=1).tolist()):
        if count >= machines_per_row:
            if count not in loads_by_count:
                loads_by_count[count] = cyclic_loads(count, machines_per_row, rows)
            loads[stretch, available[stretch]] = loads_by_count[count]
    return loads


class TimeTotals:
    """Times and delays, summed over the steps of a run.

    Attributes
    ----------
    hindsight_steps : int
        Number of steps with a known optimum in hindsight.
    computing_seconds, hindsight_seconds : float
        Seconds of computing in these steps: measured, and with the optimal assignment.
    compared_steps : int
        Number of steps in which each available machine computed at least a tenth of its equal load
        in a nonzero time, which is enough to measure its rate.
    measured_seconds, cyclic_seconds : float
        Seconds of computing in these steps: measured, and with the cyclic assignment.
    slowest_steps : (N,) ndarray
        Number of steps in which each machine finished computing last.
    slowness_delays : (N,) ndarray
        Seconds lost to the slowness of each machine: the excess of the steps that it finished last
        over the optimum in hindsight (over the plan if a step took twice as long as planned), and
        an estimate for later steps if its speed fell below half.
    plan_excess : (N,) ndarray
        Seconds by which the steps that each machine finished last exceeded the plan.
    reading_delays : (N,) ndarray
        Seconds lost to the reading of each machine, except in first steps of parts.
    read_seconds : (K,) ndarray
        Seconds by which reading delayed each step of the last chunk.
    stall_delays : (N,) ndarray
        Seconds lost to stalls of each machine, beyond reading and computing: delays with an event,
        and delays above 0.1 s that take most of a step.
    lost_seconds : dict of str to float
        Seconds lost to ``losses``, ``preemption``, ``waiting`` (for machines) and ``lateness``.
    stall_seconds : (K,) ndarray
        Seconds by which each step of the last chunk was stalled.
    shortage_seconds : (K,) ndarray
        Seconds that each step of the last chunk waited for other machines after a loss.
    absence_delays : (N,) ndarray
        Seconds lost to the absence of each machine: longer steps (for later steps an estimate), and
        waits for machines.
    stragglers : int
        S of the last part with stragglers; 0 if no part has stragglers.
    seconds_per_row : list of (N,) ndarray
        Last measured seconds per row before each stretch of the last chunk; NaN without a
        measurement.
    """

    def __init__(self) -> None:
        self.hindsight_steps = self.compared_steps = 0
        self.stragglers = 0
        self.computing_seconds = self.hindsight_seconds = 0.0
        self.measured_seconds = self.cyclic_seconds = 0.0
        self.slowest_steps: Floats = np.zeros(0)
        self.slowness_delays: Floats = np.zeros(0)
        self.plan_excess: Floats = np.zeros(0)
        self.reading_delays: Floats = np.zeros(0)
        self.stall_delays: Floats = np.zeros(0)
        self.absence_delays: Floats = np.zeros(0)
        self.lost_seconds = dict.fromkeys(("losses", "preemption", "waiting", "lateness"), 0.0)
        self._initial_machines: frozenset[int] = frozenset()
        self._cache_key: tuple[bytes, tuple[int, ...]] | None = None  # present machines, and causes
        self._cached_loss = 0.0, np.zeros(0)  # lost fraction of a step, and lost speeds
        self.read_seconds: Floats = np.zeros(0)
        self.stall_seconds: Floats = np.zeros(0)
        self.shortage_seconds: Floats = np.zeros(0)
        self._waited_steps: set[int] = set()  # steps that waited for machines
        self._last_seconds_per_row = np.zeros(0)  # NaN if not measured yet
        self._first_seconds_per_row = np.zeros(0)  # of the part
        self._zero_loads: Floats | None = None  # the last array of load seconds with only zeros
        self.seconds_per_row: list[Floats] = []

    def add(self, chunk: Chunk, recovery: int, rows_per_shard: int) -> None:
        """Add the steps of the next chunk."""
        machines = chunk.machines
        if chunk.begins_part or len(self._last_seconds_per_row) != machines:
            self._last_seconds_per_row = np.full(machines, np.nan)
            self._first_seconds_per_row = np.full(machines, np.nan)
        self._add_machines(machines)
        self.seconds_per_row = []
        self.read_seconds, self.stall_seconds, self.shortage_seconds = np.zeros((3, chunk.steps))
        self._waited_steps.update(step for step, note in chunk.notes if isinstance(note, Waiting))
        if not chunk.steps:
            return
        stragglers = chunk.header.get("stragglers", 0)
        has_all_answers = not stragglers
        self.stragglers = stragglers or self.stragglers
        if not self._initial_machines:
            self._initial_machines = frozenset(chunk.stretches[0].first_step["available"].tolist())
        makespans = chunk.step_columns["measured_makespan"]
        hindsight = chunk.step_columns["hindsight_makespan"]
        hindsight = hindsight if has_all_answers else np.full(chunk.steps, np.nan)
        optimum = self._add_excess(chunk, makespans, hindsight, has_all_answers)
        has_hindsight = ~np.isnan(hindsight)
        self.hindsight_steps += int(has_hindsight.sum())
        self.computing_seconds += float(makespans[has_hindsight].sum())
        self.hindsight_seconds += float(hindsight[has_hindsight].sum())
        self._add_reading(chunk)
        self._add_stalls(chunk)
        if has_all_answers:
            self._add_cyclic(chunk, recovery, rows_per_shard)
        self._record_rates(chunk)
        self._add_absences(chunk, optimum, recovery + stragglers, rows_per_shard)
        waited = chunk.step_columns["waited_seconds"].sum() + self.shortage_seconds.sum()
        self.lost_seconds["waiting"] += float(waited)

    @property
    def total_delays(self) -> Floats:
        """Total seconds lost to each machine, of shape (N,)."""
        delays = self.reading_delays + self.stall_delays + self.absence_delays
        return np.maximum(self.slowness_delays, 0.0) + delays

    def add_wait(self, seconds: float, waiting: Waiting) -> None:
        """Charge a wait to the machines that were absent."""
        absent = [
            n
            for n, reason in waiting.absence_reasons.items()
            if reason != "not joined" and n <= len(self.absence_delays)
        ]
        for machine in absent:
            self.absence_delays[machine - 1] += seconds / len(absent)

    def _charge(self, causes: Mapping[int, str], seconds: float, lost_speeds: Floats) -> None:
        """Charge seconds to machines in proportion to their lost speeds.

        Parameters
        ----------
        causes : mapping of int to str
            Reason for the time lost to each machine.
        seconds : float
        lost_speeds : (N,) ndarray
        """
        weights = {n: float(lost_speeds[n - 1]) for n in causes}
        total = sum(weights.values())
        for machine, reason in causes.items():
            share = seconds * weights[machine] / total if total else 0.0
            delays = self.slowness_delays if reason == "slow" else self.absence_delays
            delays[machine - 1] += share
            self.lost_seconds[_CATEGORIES[reason]] += share

    def _add_excess(
        self, chunk: Chunk, makespans: Floats, hindsight: Floats, has_all_answers: bool
    ) -> Floats:
        """Charge each step's excess over the optimum to a machine; return the optimum of each step.

        If machines left or were late during a step, they are charged; otherwise the machine that
        finished last. The returned optimum is 0 for a step that took more than twice as long as
        planned, and the makespan for a step with an unknown optimum.
        """
        plan = chunk.step_columns["predicted_makespan"]
        excess, over_plan = np.nan_to_num(makespans - hindsight), np.nan_to_num(makespans - plan)
        for stretch in chunk.stretches:
            if missing := _missing_machines(stretch.first_step):
                first = stretch.begin
                self._charge(missing, max(float(excess[first]), 0.0), np.ones(chunk.machines))
                excess[first] = over_plan[first] = 0.0
        is_late = has_all_answers & (over_plan > (_SLOW_FACTOR - 1) * plan)
        excess = np.where(is_late, over_plan, excess)
        self.lost_seconds["lateness"] += float(excess[is_late].sum())
        has_computed = chunk.compute_seconds.any(axis=1)
        slowest = chunk.compute_seconds.argmax(axis=1)[has_computed]
        count = len(self.slowest_steps)
        self.slowest_steps += np.bincount(slowest, minlength=count)
        self.slowness_delays += _sum_by_machine(slowest, excess[has_computed], count)
        self.plan_excess += _sum_by_machine(slowest, over_plan[has_computed], count)
        return np.where(is_late, 0.0, np.where(np.isnan(hindsight), makespans, hindsight))

    def _add_absences(
        self, chunk: Chunk, optimum: Floats, machines_per_row: int, rows: int
    ) -> None:
        """Estimate by how much absent and slow machines lengthen steps.

        The estimate compares the optimal makespans with and without these machines, at the last
        measured speeds, or at the first speeds of slow machines. Preempted machines count only if
        they were available at the start.

        Parameters
        ----------
        chunk : Chunk
        optimum : (K,) ndarray
            Seconds of each step with the optimal assignment.
        machines_per_row, rows : int
            Number of machines that compute each row, and rows of a shard.
        """
        first = self._first_seconds_per_row
        is_slow = chunk.available & (np.array(self.seconds_per_row) > _SLOW_FACTOR * first)
        for index, (stretch, seconds_per_row) in enumerate(
            zip(chunk.stretches, self.seconds_per_row, strict=True)
        ):
            step = stretch.first_step
            departed = _missing_machines(step, chunk.compute_seconds[stretch.begin])
            if not (step["absent_since"] or departed or is_slow[index].any()):
                continue
            causes = {
                n: reason
                for reason, machines in step["absent_since"].items()
                if reason in _CATEGORIES
                for n in machines
                if reason != "preempted" or n in self._initial_machines
            } | departed
            is_measured = ~np.isnan(seconds_per_row)
            causes = {n: reason for n, reason in causes.items() if is_measured[n - 1]}
            present = chunk.available[index] & is_measured
            present[np.array([*departed], np.intp) - 1] = False
            if (present & is_slow[index]).any():
                slowdown = seconds_per_row / first
                # All machines are slower if a step has more columns, for example.
                common_slowdown = float(np.median(slowdown[present]))
                is_slower = present & (slowdown > _SLOW_FACTOR * max(common_slowdown, 1.0))
                causes |= dict.fromkeys((np.flatnonzero(is_slower) + 1).tolist(), "slow")
            if not causes:
                continue
            key = present.tobytes(), tuple(causes)
            if key != self._cache_key:
                speeds = np.where(present, 1 / seconds_per_row, 0.0)
                full_speeds = speeds.copy()
                for n, reason in causes.items():
                    expected = common_slowdown * first if reason == "slow" else seconds_per_row
                    full_speeds[n - 1] = max(speeds[n - 1], 1 / expected[n - 1])
                makespan = _optimal_makespan(speeds, machines_per_row, rows)
                full_makespan = _optimal_makespan(full_speeds, machines_per_row, rows)
                lost_fraction = max(1 - full_makespan / makespan, 0.0) if makespan else 0.0
                self._cache_key = key
                self._cached_loss = lost_fraction, full_speeds - speeds
            lost_fraction, lost_speeds = self._cached_loss
            seconds = float(optimum[stretch.begin : stretch.end].sum())
            self._charge(causes, lost_fraction * seconds, lost_speeds)

    def _add_cyclic(self, chunk: Chunk, recovery: int, rows_per_shard: int) -> None:
        """Add the times of the steps in which the time of the cyclic assignment is known."""
        rows, available, stretch_of_step = chunk.rows, chunk.available, chunk.stretch_index
        count = available.sum(axis=1)
        equal_load = recovery * rows_per_shard / np.maximum(count, 1)
        min_rows = np.min(rows, axis=1, where=available, initial=np.inf)
        has_enough_rows = (count >= recovery) & (min_rows >= _MIN_LOAD_FRACTION * equal_load)
        has_rates = ((chunk.compute_seconds > 0) | ~available[stretch_of_step]).all(axis=1)
        is_compared = has_enough_rows[stretch_of_step] & has_rates
        if not is_compared.any():
            return
        self.compared_steps += int(is_compared.sum())
        self.measured_seconds += float(chunk.step_columns["measured_makespan"][is_compared].sum())
        stretches = stretch_of_step[is_compared]
        measured_rows = np.where(available, rows, np.inf)[stretches]
        seconds_per_row = chunk.compute_seconds[is_compared] / measured_rows
        seconds = seconds_per_row * cyclic_rows(available, recovery, rows_per_shard)[stretches]
        self.cyclic_seconds += float(seconds.max(axis=1).sum())

    def _record_rates(self, chunk: Chunk) -> None:
        """Record the last measured seconds per row before each stretch."""
        last_seconds = chunk.compute_seconds[np.append(chunk.stretch_starts[1:], chunk.steps) - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds_per_row = last_seconds / chunk.rows
        has_rate = (chunk.rows > 0) & (last_seconds > 0)
        for measured, is_measured in zip(seconds_per_row, has_rate, strict=True):
            self.seconds_per_row.append(self._last_seconds_per_row.copy())
            np.copyto(self._last_seconds_per_row, measured, where=is_measured)
            is_first = is_measured & np.isnan(self._first_seconds_per_row)
            np.copyto(self._first_seconds_per_row, measured, where=is_first)

    def _add_reading(self, chunk: Chunk) -> None:
        """Add the delays caused by reading."""
        for stretch in chunk.stretches:
            loads = stretch.first_step["load_seconds"]
            if loads is self._zero_loads:
                continue
            if not loads.any():
                self._zero_loads = loads
                continue
            steps = slice(stretch.begin, stretch.end)
            ends = chunk.compute_seconds[steps] + loads
            delays = np.round(ends.max(axis=1) - chunk.compute_seconds[steps].max(axis=1), 9)
            self.read_seconds[steps] = delays
            skipped = int(chunk.begins_part and stretch.begin == 0)  # the first reads of a part
            self.reading_delays += _sum_by_machine(
                ends.argmax(axis=1)[skipped:], delays[skipped:], len(self.reading_delays)
            )

    def _add_stalls(self, chunk: Chunk) -> None:
        """Add the delays caused by machines with an event, and other long delays."""
        events = {stretch.begin: stretch.first_step["events"] for stretch in chunk.stretches}
        collect = chunk.step_columns["collect_seconds"]
        remaining = collect - chunk.compute_seconds.max(axis=1) - self.read_seconds
        for index, delays in chunk.delays:
            step_events = map(kind_and_machine, events.get(index, ()))
            categories = {n: _CATEGORIES[kind] for kind, n in step_events if kind in _CATEGORIES}
            counted_delays = {
                n: seconds
                for n, seconds in delays.items()
                if n <= len(self.stall_delays) and (n in categories or seconds > _MIN_DELAY)
            }
            total = sum(counted_delays.values())
            stall = min(total, float(remaining[index]))
            if stall <= 0 or (not categories and stall < collect[index] / 2):
                continue
            has_waited = chunk.steps_before + index in self._waited_steps
            delays_of_machines = self.absence_delays if has_waited else self.stall_delays
            for machine, seconds in counted_delays.items():
                share = stall * seconds / total
                delays_of_machines[machine - 1] += share
                if not has_waited:
                    self.lost_seconds[categories.get(machine, "lateness")] += share
            (self.shortage_seconds if has_waited else self.stall_seconds)[index] = stall

    def _add_machines(self, machines: int) -> None:
        missing = machines - len(self.slowest_steps)
        if missing > 0:
            for name in (
                "slowest_steps",
                "slowness_delays",
                "plan_excess",
                "reading_delays",
                "stall_delays",
                "absence_delays",
            ):
                setattr(self, name, np.append(getattr(self, name), np.zeros(missing)))


def _missing_machines(step: Mapping[str, Any], seconds: Floats | None = None) -> dict[int, str]:
    """Return the machines that left or were late during a step, with reasons.

    With `seconds`, of shape (N,), return only the machines that did not compute.
    """
    if not step["events"]:
        return {}
    available = set(step["available"].tolist())
    return {
        n: reason
        for reason, n in map(kind_and_machine, step["events"])
        if reason in _CATEGORIES
        and reason != "wrong"
        and n in available
        and (seconds is None or not seconds[n - 1])
    }


def _optimal_makespan(speeds: Floats, machines_per_row: int, rows: int) -> float:
    """Return the optimal makespan of machines with nonzero speeds; 0 if they are too few."""
    positive = speeds[speeds > 0]
    if len(positive) < machines_per_row:
        return 0.0
    return optimal_loads(positive, np.zeros(len(positive)), machines_per_row, rows)[0]


def _sum_by_machine(machine_indices: Ints, values: Floats, machines: int) -> Floats:
    sums = np.bincount(machine_indices, weights=np.nan_to_num(values), minlength=machines)
    return np.asarray(sums, np.float64)
