"""Which machines were away, when and why, as the records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cec_mpi.report.chunks import Chunk
from cec_mpi.runtime.records.events import Event, kind_and_machine
from cec_mpi.runtime.records.step import Away

GOING = "lost", "given up", "left", "excluded"
"""Events after which a machine is away."""


def whys(away: Away) -> dict[int, str]:
    """Return why each machine is away.

    Examples
    --------
    >>> whys({"lost": {3: 7}, "preempted": {1: 2, 5: 2}})
    {3: 'lost', 1: 'preempted', 5: 'preempted'}
    """
    return {machine: why for why, those in away.items() for machine in those}


@dataclass
class Absence:
    """A time without a machine that was neither preempted nor late.

    Attributes
    ----------
    machine : int
    why : str
    step : int
        The step in which it left.
    back : int or None
        The first step that it was back in; None if it did not come back.
    """

    machine: int
    why: str
    step: int
    back: int | None = None


class Absences:
    """Follows who is away from step to step.

    Attributes
    ----------
    late : Counter of int
        In how many steps each machine was away because it still computed for an earlier one.
    unanswered : Counter of int
        In how many steps each machine was asked and its answer was not waited for.
    cut_short : Counter of int
        In how many steps each machine left that was available when they began.
    known : list of Absence
        By their steps.
    """

    def __init__(self) -> None:
        self.late: Counter[int] = Counter()
        self.unanswered: Counter[int] = Counter()
        self.cut_short: Counter[int] = Counter()
        self.known: list[Absence] = []
        self._away: Away | None = None
        self._open: dict[int, Absence] = {}

    def add(self, chunk: Chunk) -> None:
        """Take the steps of a chunk, which follow those before."""
        for _, machines in chunk.unanswered:
            self.unanswered.update(machines)
        for stretch in chunk.stretches:
            step = stretch.step
            if step["away"] is not self._away:
                self._away = step["away"]
                self._look(whys(self._away), step["step"])
            for machine in self._away.get("late", ()):
                self.late[machine] += stretch.end - stretch.begin
            available = set(step["available"].tolist()) if step["events"] else ()
            for kind, machine in map(kind_and_machine, step["events"]):
                if machine in available:
                    self._hear(kind, machine, step["step"])
                    if kind in GOING:
                        self.cut_short[machine] += 1

    def end(self, events: Sequence[Event], step: int) -> None:
        """Take what happened in a last step, which did not end."""
        for kind, machine in map(kind_and_machine, events):
            self._hear(kind, machine, step)

    def _look(self, away: dict[int, str], step: int) -> None:
        """See who is away when a step begins."""
        for machine in self._open.keys() - {n for n, why in away.items() if why != "late"}:
            self._open.pop(machine).back = step
        for machine, why in away.items():
            if machine in self._open:
                self._open[machine].why = why
            elif why in GOING:
                self._hear(why, machine, step)

    def _hear(self, kind: str, machine: int, step: int) -> None:
        if kind in GOING and machine not in self._open:
            self._open[machine] = Absence(machine, kind, step)
            self.known.append(self._open[machine])
        elif kind == "joined" and machine in self._open:
            self._open.pop(machine).back = step
