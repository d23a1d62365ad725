"""Which machines were away, when and why, according to the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cec_mpi.report.chunks import Chunk
from cec_mpi.runtime.records.events import Event, kind_and_machine
from cec_mpi.runtime.records.step import AbsenceTable

DEPARTURES = "lost", "given up", "left", "excluded"
"""Events after which a machine is away."""


def reason_by_machine(away: AbsenceTable) -> dict[int, str]:
    """Return why each machine is away.

    Examples
    --------
    >>> reason_by_machine({"lost": {3: 7}, "preempted": {1: 2, 5: 2}})
    {3: 'lost', 1: 'preempted', 5: 'preempted'}
    """
    return {machine: reason for reason, machines in away.items() for machine in machines}


@dataclass
class Absence:
    """A period in which a machine was away, other than preempted or late.

    Attributes
    ----------
    machine : int
    reason : str
    step : int
        The step in which it left.
    return_step : int or None
        The first step after its return; None if it did not return.
    """

    machine: int
    reason: str
    step: int
    return_step: int | None = None


class Absences:
    """Collects absences step by step.

    Attributes
    ----------
    late : Counter of int
        Number of steps each machine missed because it was still computing an earlier one.
    unanswered : Counter of int
        Number of steps that did not wait for each machine's answer.
    cut_short : Counter of int
        Number of steps during which each machine left.
    entries : list of Absence
        In the order of their steps.
    """

    def __init__(self) -> None:
        self.late: Counter[int] = Counter()
        self.unanswered: Counter[int] = Counter()
        self.cut_short: Counter[int] = Counter()
        self.entries: list[Absence] = []
        self._away: AbsenceTable | None = None
        self._open: dict[int, Absence] = {}

    def add(self, chunk: Chunk) -> None:
        """Add the steps of the next chunk."""
        for _, machines in chunk.unanswered:
            self.unanswered.update(machines)
        for stretch in chunk.stretches:
            step = stretch.step
            if step["away"] is not self._away:
                self._away = step["away"]
                self._compare_with_open(reason_by_machine(self._away), step["step"])
            for machine in self._away.get("late", ()):
                self.late[machine] += stretch.end - stretch.begin
            available = set(step["available"].tolist()) if step["events"] else ()
            for kind, machine in map(kind_and_machine, step["events"]):
                if machine in available:
                    self._apply(kind, machine, step["step"])
                    if kind in DEPARTURES:
                        self.cut_short[machine] += 1

    def end(self, events: Sequence[Event], step: int) -> None:
        """Add the events of a last step that did not finish."""
        for kind, machine in map(kind_and_machine, events):
            self._apply(kind, machine, step)

    def _compare_with_open(self, away: dict[int, str], step: int) -> None:
        """Open and close absences by who is away at the start of a step."""
        for machine in self._open.keys() - {n for n, reason in away.items() if reason != "late"}:
            self._open.pop(machine).return_step = step
        for machine, reason in away.items():
            if machine in self._open:
                self._open[machine].reason = reason
            elif reason in DEPARTURES:
                self._apply(reason, machine, step)

    def _apply(self, kind: str, machine: int, step: int) -> None:
        if kind in DEPARTURES and machine not in self._open:
            self._open[machine] = Absence(machine, kind, step)
            self.entries.append(self._open[machine])
        elif kind == "joined" and machine in self._open:
            self._open.pop(machine).return_step = step
