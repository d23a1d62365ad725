"""Assignments of a run on a page, and the rows that are new to machines."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cec_mpi.report.bins import to_json_numbers
from cec_mpi.report.chunks import Floats, Stretch
from cec_mpi.report.drawing.drawn_assignment import Intervals, subtract_intervals
from cec_mpi.runtime.records.step import AbsenceTable, IntervalBounds, Ints, reasons_by_machine

_MAX_SHOWN = 200  # assignments
_MAX_BUFFERED = 400  # assignments, while steps are read
_MAX_NUMBERS = 150_000  # in all assignments of a page, to limit its size
_MAX_BOUNDS = _MAX_NUMBERS // 2  # of one assignment


@dataclass
class RecordedAssignment:
    """An assignment of a run.

    Attributes
    ----------
    index : int
        Index of its first step, from 0.
    step : int
        Number of its first step.
    available : (N_t,) ndarray
    bounds : IntervalBounds
    previous_bounds : IntervalBounds or None
        Bounds of the previous assignment; None if there is none or it is too large to show.
    seconds_per_row : (N,) ndarray
        Last measured seconds per row of each machine; NaN if there is no measurement.
    is_notable : bool
        Whether one of its steps has an event, or `previous_bounds` is None.
    is_requested : bool
        Whether the user requested one of its steps.
    absent : dict
        Absent machines by reason.
    """

    index: int
    step: int
    available: Ints
    bounds: IntervalBounds
    previous_bounds: IntervalBounds | None
    seconds_per_row: Floats
    is_notable: bool
    is_requested: bool
    absent: AbsenceTable


class Assignments:
    """Collects assignments while steps are read; drops some of them if there are many.

    Parameters
    ----------
    requested_steps : set of int
        Numbers of steps whose assignments are always shown.

    Attributes
    ----------
    first_steps : list of int
        Index of the first step of each assignment.
    too_large_count : int
        Number of assignments that are too large to show.
    """

    def __init__(self, requested_steps: frozenset[int] = frozenset()) -> None:
        self.first_steps: list[int] = []
        self.too_large_count = 0
        self._requested_steps = requested_steps
        self._assignments: list[RecordedAssignment] = []
        self._last_bounds: IntervalBounds | None = None

    def add(self, steps_before: int, stretch: Stretch, seconds_per_row: Floats) -> None:
        """Add a stretch of a chunk, before which the run has `steps_before` steps."""
        step = stretch.first_step
        index, bounds = steps_before + stretch.begin, step["assignment"]
        is_notable, count = bool(step["events"]), stretch.end - stretch.begin
        is_requested = any(0 <= number - step["step"] < count for number in self._requested_steps)
        if bounds is self._last_bounds or bounds == self._last_bounds:
            if self._assignments and self._assignments[-1].index == self.first_steps[-1]:
                self._assignments[-1].is_notable |= is_notable
                self._assignments[-1].is_requested |= is_requested
            return
        previous_bounds, self._last_bounds = self._last_bounds, bounds
        self.first_steps.append(index)
        if len(bounds.bounds) > _MAX_BOUNDS:
            self.too_large_count += 1
            return
        if previous_bounds is not None and len(previous_bounds.bounds) > _MAX_BOUNDS:
            previous_bounds = None
        is_notable |= previous_bounds is None
        assignment = RecordedAssignment(
            index=index,
            step=step["step"],
            available=step["available"],
            bounds=bounds,
            previous_bounds=previous_bounds,
            seconds_per_row=seconds_per_row,
            is_notable=is_notable,
            is_requested=is_requested,
            absent=step["absent_since"],
        )
        self._assignments.append(assignment)
        if len(self._assignments) > _MAX_BUFFERED:
            self._thin_out()

    def _thin_out(self) -> None:
        """Drop every second assignment; keep requested ones and, if possible, those with events."""
        *earlier, newest = self._assignments
        kept = [a for k, a in enumerate(earlier) if a.is_requested or a.is_notable or k % 2 == 0]
        if len(kept) > _MAX_BUFFERED * 3 // 4:
            kept = [a for k, a in enumerate(kept) if a.is_requested or k % 2 == 0]
        self._assignments = [*kept, newest]

    def select(self) -> list[RecordedAssignment]:
        """Return the assignments to show, all or a selection; count those that are too large."""
        fitting = [a for a in self._assignments if _count_numbers(a.bounds) <= _MAX_NUMBERS]
        self.too_large_count += len(self._assignments) - len(fitting)
        self._assignments = fitting
        sizes = (_count_numbers(a.bounds) for a in _sample_evenly(fitting, 3))
        limit = max(2, min(_MAX_SHOWN, _MAX_NUMBERS // max([1, *sizes])))
        if len(fitting) <= limit:
            return fitting
        requested = [a for a in fitting if a.is_requested]
        with_events = _sample_evenly([a for a in fitting if a.is_notable], max(limit // 2, 1))
        rest = _sample_evenly(fitting, max(limit - len(with_events) - len(requested), 1))
        selected = {a.index: a for a in (*requested, *with_events, *rest)}
        return [selected[index] for index in sorted(selected)]


def _sample_evenly(assignments: list[RecordedAssignment], count: int) -> list[RecordedAssignment]:
    """Return `count` evenly spaced assignments, including the first and the last."""
    if len(assignments) <= count:
        return assignments
    if count == 1:
        return assignments[:1]
    return [assignments[k * (len(assignments) - 1) // (count - 1)] for k in range(count)]


def _count_numbers(bounds: IntervalBounds) -> int:
    """Return how many numbers an assignment has on a page: bounds, and machines of blocks."""
    positions = np.searchsorted(np.unique(bounds.bounds), bounds.bounds)
    return int((positions[1::2] - positions[::2]).sum()) + len(positions)


def find_blocks(bounds: list[list[int]]) -> list[tuple[int, int, list[int]]]:
    """Return the blocks of rows that the same machines compute: start, stop and machines.

    Examples
    --------
    >>> find_blocks([[0, 3], [1, 3], [], [0, 1]])
    [(0, 1, [1, 4]), (1, 3, [1, 2])]
    """
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for machine, machine_bounds in enumerate(bounds, start=1):
        for start, stop in _to_intervals(machine_bounds):
            begins.setdefault(start, []).append(machine)
            ends.setdefault(stop, []).append(machine)
    positions = sorted(begins.keys() | ends.keys())
    current_machines: set[int] = set()
    blocks = []
    for start, stop in pairwise(positions):
        current_machines.difference_update(ends.get(start, ()))
        current_machines.update(begins.get(start, ()))
        if current_machines:
            blocks.append((start, stop, sorted(current_machines)))
    return blocks


def new_rows_by_machine(
    bounds: list[list[int]], previous_bounds: list[list[int]]
) -> dict[str, Intervals]:
    """Return the rows of each machine that it did not compute with the previous bounds.

    Without previous bounds, the result is empty.

    Examples
    --------
    >>> new_rows_by_machine([[0, 4], [2, 6]], [[2, 6], [2, 6]])
    {'1': [(0, 2)]}
    """
    new_rows: dict[str, Intervals] = {}
    if not previous_bounds:
        return new_rows
    for machine, after in enumerate(bounds, start=1):
        before = previous_bounds[machine - 1] if machine <= len(previous_bounds) else []
        if new := subtract_intervals(_to_intervals(after), _to_intervals(before)):
            new_rows[str(machine)] = new
    return new_rows


def _to_intervals(bounds: list[int]) -> Intervals:
    return list(zip(bounds[::2], bounds[1::2], strict=True))


def assignment_data(
    assignment: RecordedAssignment, last_step: int, default_speeds: Floats | None
) -> dict[str, Any]:
    """Return the data of an assignment for a page.

    Parameters
    ----------
    assignment : RecordedAssignment
    last_step : int
        Number of its last step.
    default_speeds : (N,) ndarray or None
        Rows per second for machines without a measured speed.
    """
    speeds = 1 / assignment.seconds_per_row
    if default_speeds is not None and len(default_speeds) == len(speeds):
        speeds = np.where(np.isnan(speeds), default_speeds, speeds)
    bounds, available = assignment.bounds.to_lists(), assignment.available.tolist()
    return {
        "step": assignment.step,
        "last_step": last_step,
        "available": available,
        "blocks": find_blocks(bounds),
        "loads": assignment.bounds.loads().tolist(),
        "new_rows": new_rows_by_machine(
            bounds, assignment.previous_bounds.to_lists() if assignment.previous_bounds else []
        ),
        "speeds": to_json_numbers(speeds),
        "absence_reasons": {
            str(n): reason for n, reason in sorted(reasons_by_machine(assignment.absent).items())
        },
    }
