"""Absences of machines with their reasons, from the records of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cec_mpi.report.chunks import Chunk
from cec_mpi.runtime.records.events import Event, kind_and_machine
from cec_mpi.runtime.records.step import AbsenceTable, Ints, reasons_by_machine

DEPARTURES = "lost", "unresponsive", "left", "excluded"
"""Events after which a machine is absent."""


@dataclass
class Absence:
    """A period in which a machine was unavailable after it had been available.

    Attributes
    ----------
    machine : int
    reason : str
        Reason, or successive reasons separated by commas.
    step : int
        Step in which the machine left or was late for the first time; if it became unavailable
        between steps, the first step without it.
    return_step : int or None
        Step in which it returned; if it returned between steps, the first step with it. None if it
        did not return.
    """

    machine: int
    reason: str
    step: int
    return_step: int | None = None


class Absences:
    """Collects absences from the steps of a run.

    Attributes
    ----------
    late_steps : Counter of int
        Number of steps that each machine missed because it was still computing an earlier step.
    unanswered_steps : Counter of int
        Number of steps that ended without the answer of each machine.
    departure_steps : Counter of int
        Number of steps during which each machine left.
    periods : list of Absence
        In the order of their first steps.
    """

    def __init__(self) -> None:
        self.late_steps: Counter[int] = Counter()
        self.unanswered_steps: Counter[int] = Counter()
        self.departure_steps: Counter[int] = Counter()
        self.periods: list[Absence] = []
        self._absent: AbsenceTable | None = None
        self._ongoing: dict[int, Absence] = {}
        self._ever_available: set[int] = set()
        self._available: Ints | None = None
        self._late_since: dict[int, int] = {}  # last step in which each machine became late

    def add(self, chunk: Chunk) -> None:
        """Add the steps of the next chunk."""
        for _, machines in chunk.unanswered:
            self.unanswered_steps.update(machines)
        for stretch in chunk.stretches:
            step = stretch.first_step
            if step["absent_since"] is not self._absent:
                self._absent = step["absent_since"]
                self._update_ongoing(reasons_by_machine(self._absent), step["step"])
            if step["available"] is not self._available:
                self._available = step["available"]
                self._ever_available.update(self._available.tolist())
            for machine in self._absent.get("late", ()):
                self.late_steps[machine] += stretch.end - stretch.begin
            available = set(step["available"].tolist()) if step["events"] else ()
            for kind, machine in map(kind_and_machine, step["events"]):
                if machine in available:
                    self._add_event(kind, machine, step["step"])
                    if kind == "late":
                        self._late_since[machine] = step["step"]
                    if kind in DEPARTURES:
                        self.departure_steps[machine] += 1

    def add_unfinished(self, events: Sequence[Event], step: int) -> None:
        """Add the events of the last step, which did not end."""
        for kind, machine in map(kind_and_machine, events):
            self._add_event(kind, machine, step)

    def _update_ongoing(self, reasons: dict[int, str], step: int) -> None:
        """Begin and end absences; `reasons` has the machines absent when the step starts."""
        for machine in self._ongoing.keys() - reasons.keys():
            self._ongoing.pop(machine).return_step = step
        for machine, reason in reasons.items():
            if reason == "not joined":
                continue
            if machine in self._ongoing:
                absence = self._ongoing[machine]
                if reason not in absence.reason.split(", "):
                    absence.reason += f", {reason}"
            elif machine in self._ever_available:
                was_late = self._late_since.get(machine) == step - 1
                self._begin(machine, reason, step - 1 if was_late else step)

    def _add_event(self, kind: str, machine: int, step: int) -> None:
        if kind in DEPARTURES and machine not in self._ongoing:
            self._begin(machine, kind, step)
        elif kind == "joined" and machine in self._ongoing:
            self._ongoing.pop(machine).return_step = step

    def _begin(self, machine: int, reason: str, step: int) -> None:
        self._ongoing[machine] = Absence(machine, reason, step)
        self.periods.append(self._ongoing[machine])
