"""When machines left and came, and why they were not available, as far as the records tell.

A machine that is not available is `preempted` where nothing else is known of it. Of others the
records say more: it was lost, given up, left on a warning or is asked no more; or what it was last
asked for had not come in time, so that it may be at work on that still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from cec_mpi.report.reading.chunks import Chunk
from cec_mpi.report.reading.fields import Bounds, Ints
from cec_mpi.text import counted, listed

LATE, SILENT = "late", "silent"
"""Why a machine is away: after a late answer, or one that did not count (stragglers)."""

GOING = {
    "lost": "lost",
    "given up": "given up",
    "leaving": "left on a warning",
    "excluded": "asked no more",
}
"""Events after which a machine is away, and what it is called then."""

REASONS = {**GOING, LATE: "no answer yet", SILENT: "no answer yet"}
_OTHER: Ints = np.zeros(0, np.int64)
_LONG = 20  # steps without a machine of which nothing but a missing answer is known
_MOST = 20_000  # of these that are kept


@dataclass
class Absence:
    """A time without a machine.

    Attributes
    ----------
    machine : int
    why, first : str
        Keys of `REASONS`: what is known in the end, and when it began.
    step, index : int
        The first step without it, or in which it was lost: its number, and how many came before.
    after : int
        Number of the step in which it was available last.
    became : int or None
        Number of the step in which what is known in the end was known, where it began otherwise.
    back, steps : int or None
        Number of the step in which it was there again, and how many it missed; None: never.
    """

    machine: int
    why: str
    first: str
    step: int
    index: int
    after: int
    became: int | None = None
    back: int | None = None
    steps: int | None = None


class Absences:
    """Follows who is available from step to step.

    Attributes
    ----------
    left, came : int
        How often a machine left, and came or came again, those that were lost and replaced within
        a step included, those with an answer that did not count left out.
    unanswered : Counter of int
        In how many steps each machine had no answer that counted in time, though it had rows to
        compute and was not lost; of parts with stragglers.
    silent : Counter of int
        In how many steps each machine was not available after such an answer.
    known : list of Absence
        Those of which more is known than that machines were not available, by their steps.
    cut_short : dict of int to int
        In how many steps each machine was lost that had been available when they began.
    preempted : int
        How often machines left of which nothing is known.
    reasons : list of dict
        Of each stretch of the last chunk: why machines are away, without those preempted.
    """

    def __init__(self) -> None:
        self.left = self.came = self.preempted = 0
        self.unanswered: Counter[int] = Counter()
        self.silent: Counter[int] = Counter()
        self.known: list[Absence] = []
        self.cut_short: dict[int, int] = {}
        self.reasons: list[Mapping[int, str]] = []
        self._now: dict[int, str] = {}
        self._shown: Mapping[int, str] = MappingProxyType({})
        self._open: dict[int, Absence] = {}
        self._here: set[int] = set()
        self._listed: Ints | None = None
        self._last: dict[str, Any] = {}
        self._asked: tuple[Bounds | None, Ints] = None, _OTHER  # of an assignment: who has rows
        self._last_step = 0

    def add(self, chunk: Chunk) -> None:
        """Take the steps of a chunk, which follow those before."""
        if chunk.begins:
            self._now, self._shown, self._listed = {}, MappingProxyType({}), None
        self.reasons = []
        stragglers = chunk.header.get("stragglers")
        counts = not isinstance(stragglers, int) or stragglers < 1
        for stretch in chunk.stretches:
            step, index = stretch.step, chunk.first + stretch.begin
            self._look(step, index)
            for event in step["events"]:
                self._hear(event, step, index)
            if not counts:
                self._note_unanswered(step, stretch.end - stretch.begin)
            self.reasons.append(self._shown)
            self._last = step
            self._last_step = int(chunk.numbers["step"][stretch.end - 1])

    def settle(self, steps: int) -> None:
        """Tell which absences have no end, when all steps are there."""
        for absence in self._open.values():
            if absence.why == SILENT:
                self.silent[absence.machine] += steps - absence.index
                if steps - absence.index >= _LONG:
                    self.known.append(absence)
        self.known.sort(key=lambda each: each.index)

    def _note_unanswered(self, step: Mapping[str, Any], steps: int) -> None:
        bounds = step["assignment"]
        if bounds is not self._asked[0]:
            self._asked = bounds, np.flatnonzero(bounds.loads())
        rows = step["rows"]
        gone = {event.get("lost", event.get("given up")) for event in step["events"]}
        for at in self._asked[1].tolist():
            if at < len(rows) and not rows[at] and at + 1 not in gone:
                self.unanswered[at + 1] += steps

    def _look(self, step: Mapping[str, Any], index: int) -> None:
        available = step["available"]
        if available is self._listed:
            return
        here = set(available.tolist())
        if self._listed is not None:
            for machine in sorted(self._here - here):
                self._leave(machine, self._why(machine), step["step"], index)
            for machine in sorted(here - self._here):
                self._come(machine, step["step"], index)
        else:  # a part of a run begins, with whoever is there then
            for machine in sorted(here & self._open.keys()):
                self._return(machine, step["step"], index)
        self._listed, self._here = available, here

    def _why(self, machine: int) -> str:
        """Why a machine is not there that was in the step before, by that step."""
        last = self._last
        if any(event.get("late") == machine for event in last["events"]):
            return LATE
        at = machine - 1
        asked = at < len(last["rows"]) and last["assignment"].loads()[at] > 0
        return SILENT if asked and not last["rows"][at] else ""

    def _leave(self, machine: int, why: str, step: int, index: int) -> None:
        self.left += why != SILENT
        why = why or self._now.get(machine, "")
        if not why:
            self.preempted += 1
            return
        self._begin(machine, why, step, index)

    def _begin(self, machine: int, why: str, step: int, index: int) -> None:
        self._tell(machine, why)
        absence = Absence(machine, why, why, step, index, self._last_step)
        self._open[machine] = absence
        if why != SILENT:
            self.known.append(absence)

    def _come(self, machine: int, step: int, index: int, joined: bool = False) -> None:
        absence = self._open.get(machine)
        self.came += absence is None or absence.why != SILENT
        if machine in self._now and (joined or self._now[machine] not in ("lost", "given up")):
            self._now.pop(machine)
            self._shown = MappingProxyType(dict(self._now))
        self._return(machine, step, index)

    def _return(self, machine: int, step: int, index: int) -> None:
        absence = self._open.pop(machine, None)
        if absence is None:
            return
        absence.back, absence.steps = step, index - absence.index
        if absence.why == SILENT:
            self.silent[machine] += absence.steps
        if absence.why == SILENT and absence.steps >= _LONG and len(self.known) < _MOST:
            self.known.append(absence)

    def _hear(self, event: Mapping[str, Any], step: Mapping[str, Any], index: int) -> None:
        kind, machine = next(iter(event.items()), ("", 0))
        if type(machine) is not int or not 1 <= machine <= len(step["rows"]):
            return
        if kind == "joined":
            if machine not in self._here:
                self._here.add(machine)
                self._listed = _OTHER  # the next list is another one
                self._come(machine, step["step"], index, joined=True)
            elif self._now.pop(machine, None) is not None:  # it was available already
                self._shown = MappingProxyType(dict(self._now))
        elif kind in GOING:
            if machine in self._open:
                self._become(machine, kind, step["step"])
            elif machine not in self._here:
                self._begin(machine, kind, step["step"], index)
            elif kind in ("lost", "given up"):
                self._last_step = step["step"]
                self._here.discard(machine)
                self._listed = _OTHER
                self.cut_short[machine] = self.cut_short.get(machine, 0) + 1
                self._leave(machine, kind, step["step"], index)
            else:
                self._tell(machine, kind)

    def _become(self, machine: int, why: str, step: int) -> None:
        """More is known now of a machine that is away."""
        absence = self._open[machine]
        if absence.why == SILENT:
            self.left += 1
            self.known.append(absence)
        absence.why, absence.became = why, step
        self._tell(machine, why)

    def _tell(self, machine: int, why: str) -> None:
        self._now[machine] = why
        self._shown = MappingProxyType(dict(self._now))


def absence_words(each: Absence) -> str:
    """Which machine left when, why at that time, and what became known of it later.

    Examples
    --------
    >>> absence_words(Absence(4, "lost", "lost", 1200, 1200, 1200))
    'machine 4 in step 1,200 (lost)'
    >>> absence_words(Absence(5, "given up", "late", 1474, 1474, 1473, became=1684))
    'machine 5 after step 1,473 (late; given up in step 1,684)'
    """
    why = {LATE: "late", SILENT: "no answer in time"}.get(each.first, REASONS[each.first])
    if each.became is not None and each.why != each.first:
        why += f"; {REASONS[each.why]} in step {each.became:,}"
    if each.first in (LATE, SILENT):
        return f"machine {each.machine} after step {each.after:,} ({why})"
    return f"machine {each.machine} in step {each.step:,} ({why})"


def silence_words(absences: Absences, steps: int, most: int) -> str:
    """Which machines were not available while at work on earlier steps; empty for none.

    Parameters
    ----------
    absences : Absences
    steps : int
        Of the run.
    most : int
        Machines that are named.
    """
    found = absences.silent.most_common(most)
    if not found:
        return ""
    (machine, missed), *others = found
    parts = [f"machine {machine} was not available in {missed:,} of {counted(steps, 'step')}"]
    parts += [f"machine {n} in {count:,}" for n, count in others]
    more = len(absences.silent) - len(found)
    parts += [f"{counted(more, 'machine')} more"] if more > 0 else []
    return f"{listed(parts, most + 1)}, while an answer to an earlier step had not come"
