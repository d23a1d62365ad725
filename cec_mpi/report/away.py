"""When machines left and came, and why they were away, as the records say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cec_mpi.records.events import Event, kind_and_machine
from cec_mpi.records.step import Away
from cec_mpi.report.reading import Chunk
from cec_mpi.text import counted, listed

GOING = "lost", "given up", "left", "excluded"
"""Events after which a machine is away."""


def whys(away: Away) -> dict[int, str]:
    """Why each machine is away.

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
    step, index : int
        The step in which it left: its number, and how many came before.
    back : int or None
        Number of the first step that it was back in; None for never.
    """

    machine: int
    why: str
    step: int
    index: int
    back: int | None = None


class Absences:
    """Follows who is away from step to step.

    Attributes
    ----------
    left, came : int
        How often a machine left, and came or came again; one that is late does neither.
    preempted : int
        How often one left since it was preempted.
    late : Counter of int
        In how many steps each machine was not available, as it still computed for an earlier one.
    unanswered : Counter of int
        In how many steps each machine was asked, and its answer was not waited for.
    cut_short : Counter of int
        In how many steps each machine went that had been available when they began.
    known : list of Absence
        By their steps.
    """

    def __init__(self) -> None:
        self.left = self.came = self.preempted = 0
        self.late: Counter[int] = Counter()
        self.unanswered: Counter[int] = Counter()
        self.cut_short: Counter[int] = Counter()
        self.known: list[Absence] = []
        self._away: Away | None = None
        self._gone: dict[int, str] = {}  # why each machine is away that is not late
        self._open: dict[int, Absence] = {}

    def add(self, chunk: Chunk) -> None:
        """Take the steps of a chunk, which follow those before."""
        for _, machines in chunk.unanswered:
            self.unanswered.update(machines)
        for at, stretch in enumerate(chunk.stretches):
            step, index = stretch.step, chunk.first + stretch.begin
            if step["away"] is not self._away:
                self._away = step["away"]
                gone = {n: why for n, why in whys(self._away).items() if why != "late"}
                self._look(gone, step["step"], index, begins=chunk.begins and at == 0)
            for machine in self._away.get("late", ()):
                self.late[machine] += stretch.end - stretch.begin
            for kind, machine in map(kind_and_machine, step["events"]):
                if kind in GOING and machine in step["available"]:
                    self.cut_short[machine] += 1
                    self._go(machine, kind, step["step"], index)
                elif kind == "joined" and machine in self._gone and machine in step["available"]:
                    self._come(machine, step["step"])

    def end(self, events: Sequence[Event], step: int, steps: int) -> None:
        """Take what happened in a step that did not end, after so many steps."""
        for kind, machine in map(kind_and_machine, events):
            if kind in GOING:
                self._go(machine, kind, step, steps)
            elif kind == "joined" and machine in self._gone:
                self._come(machine, step)

    def _look(self, gone: dict[int, str], step: int, index: int, begins: bool) -> None:
        """See who is away when a step begins; of the first one of a part nobody left or came."""
        counts = self.left, self.came, self.preempted
        for machine in self._gone.keys() - gone.keys():
            self._come(machine, step)
        for machine, why in gone.items():
            if self._gone.get(machine) in (None, "preempted"):
                self._go(machine, why, step, index)
            elif machine in self._open:
                self._open[machine].why = self._gone[machine] = why
        if begins:
            self.left, self.came, self.preempted = counts

    def _go(self, machine: int, why: str, step: int, index: int) -> None:
        self.left += machine not in self._gone
        self.preempted += why == "preempted" and machine not in self._gone
        self._gone[machine] = why
        if why in GOING and machine not in self._open:
            self._open[machine] = Absence(machine, why, step, index)
            self.known.append(self._open[machine])

    def _come(self, machine: int, step: int) -> None:
        self.came += 1
        del self._gone[machine]
        if machine in self._open:
            self._open.pop(machine).back = step


def late_words(late: Mapping[int, int], steps: int, most: int) -> str:
    """Which machines were late so that they were not available; empty for none.

    Examples
    --------
    >>> late_words({4: 28}, 30, 5)
    'machine 4 was not available in 28 of 30 steps, as it was late with an earlier one'
    """
    order = sorted(late, key=lambda n: (-late[n], n))
    if not order:
        return ""
    machine, *others = order[:most]
    parts = [
        f"machine {machine} was not available in {late[machine]:,} of {counted(steps, 'step')}"
    ]
    parts += [f"machine {n} in {late[n]:,}" for n in others]
    if len(order) > most:
        parts.append(f"{counted(len(order) - most, 'machine')} more")
    who = "it was" if len(order) == 1 else "they were"
    return f"{listed(parts, most + 1)}, as {who} late with an earlier one"
