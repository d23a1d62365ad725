"""Who computed what: the assignments of a run that a page shows, and what moved in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cec_mpi.report.absences import REASONS
from cec_mpi.report.bins import Floats, listed
from cec_mpi.report.stream import Stretch

_MOST = 200
_MOST_HELD = 400  # while steps are read
_NUMBERS = 150_000  # of all that are shown: a page has an end
Intervals = list[tuple[int, int]]


@dataclass
class Held:
    """An assignment that was made.

    Attributes
    ----------
    index : int
        Of the first step with it, counted from 0.
    step : int
        Its number.
    available : list of int
    bounds : list of list of int
        As recorded, of machines 1..N.
    before : list of list of int
        Those of the assignment before it; empty for the first.
    paces : (N,) ndarray
        Seconds per row that machines had shown, NaN for none.
    wanted : bool
        Whether it is of a step with an event, or the first.
    asked : bool
        Whether it is of a step that was asked for.
    reasons : mapping of int to str
        Why machines are away that are not preempted.
    """

    index: int
    step: int
    available: list[int]
    bounds: list[list[int]]
    before: list[list[int]]
    paces: Floats
    wanted: bool
    asked: bool
    reasons: Mapping[int, str]


class Assignments:
    """Holds assignments while steps are read: all, or those that matter and evenly spaced ones.

    Parameters
    ----------
    asked : set of int
        Numbers of steps whose assignments are shown in any case.

    Attributes
    ----------
    made : list of int
        Index of the first step of each assignment.
    """

    def __init__(self, asked: frozenset[int] = frozenset()) -> None:
        self.made: list[int] = []
        self._asked = asked
        self._held: list[Held] = []
        self._last: list[list[int]] | None = None

    def add(self, first: int, stretch: Stretch, paces: Floats, reasons: Mapping[int, str]) -> None:
        """Take a stretch that begins with this step of the run; other stores are passed over."""
        step = stretch.step
        if step["store"]:
            return
        index, bounds = first + stretch.begin, step["assignment"]
        wanted, numbers = bool(step["events"]), stretch.end - stretch.begin
        asked = any(0 <= number - step["step"] < numbers for number in self._asked)
        if bounds is self._last or bounds == self._last:
            if self._held and self._held[-1].index == self.made[-1]:
                self._held[-1].wanted |= wanted
                self._held[-1].asked |= asked
            return
        available = step["available"]
        before, self._last = self._last or [], bounds
        self.made.append(index)
        self._held.append(
            Held(
                index,
                step["step"],
                available,
                bounds,
                before,
                paces,
                wanted or not before,
                asked,
                reasons,
            )
        )
        if len(self._held) > _MOST_HELD:
            self._thin()

    def _thin(self) -> None:
        """Drop each second one that nothing speaks for; of too many, any that nobody asked for."""
        *held, newest = self._held
        kept = [x for at, x in enumerate(held) if x.asked or x.wanted or at % 2 == 0]
        if len(kept) > _MOST_HELD * 3 // 4:
            kept = [x for at, x in enumerate(kept) if x.asked or at % 2 == 0]
        self._held = [*kept, newest]

    def chosen(self) -> list[Held]:
        """Those that are shown: all, or at most as many as a page has room for."""
        sample = _spread(self._held, 3)
        size = max((_numbers_in(each) for each in sample), default=1)
        room = max(2, min(_MOST, _NUMBERS // max(size, 1)))
        asked = [each for each in self._held if each.asked]
        found = _spread([each for each in self._held if each.wanted], max(room // 2, 1))
        rest = _spread(self._held, max(room - len(found) - len(asked), 1))
        if len(self._held) <= room:
            return self._held
        chosen = {each.index: each for each in (*asked, *found, *rest)}
        return [chosen[index] for index in sorted(chosen)]


def _spread(held: list[Held], count: int) -> list[Held]:
    """So many of them, evenly spaced, the first and the last among them."""
    if len(held) <= count:
        return held
    if count == 1:
        return held[:1]
    return [held[at * (len(held) - 1) // (count - 1)] for at in range(count)]


def _numbers_in(held: Held) -> int:
    blocks = blocks_of(held.bounds)
    return sum(len(machines) for _, _, machines in blocks) + sum(map(len, held.bounds))


def blocks_of(bounds: list[list[int]]) -> list[tuple[int, int, list[int]]]:
    """The blocks along the rows: where other machines begin or end, another one begins.

    Examples
    --------
    >>> blocks_of([[0, 3], [1, 3], [], [0, 1]])
    [(0, 1, [1, 4]), (1, 3, [1, 2])]
    """
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for machine, each in enumerate(bounds, start=1):
        for start, stop in zip(each[::2], each[1::2], strict=True):
            begins.setdefault(start, []).append(machine)
            ends.setdefault(stop, []).append(machine)
    places = sorted(begins.keys() | ends.keys())
    now: set[int] = set()
    blocks = []
    for start, stop in pairwise(places):
        now.difference_update(ends.get(start, ()))
        now.update(begins.get(start, ()))
        if now:
            blocks.append((start, stop, sorted(now)))
    return blocks


def moved(bounds: list[list[int]], before: list[list[int]]) -> dict[str, Intervals]:
    """Rows that machines compute and did not in the assignment before, by machine.

    Examples
    --------
    >>> moved([[0, 4], [2, 6]], [[2, 6], [2, 6]])
    {'1': [(0, 2)]}
    """
    found = {}
    for machine, mine in enumerate(bounds, start=1):
        old = before[machine - 1] if machine <= len(before) else []
        if mine != old and before:
            new = _without(mine, old)
            if new:
                found[str(machine)] = new
    return found


def _without(mine: list[int], old: list[int]) -> Intervals:
    left = []
    for start, stop in zip(mine[::2], mine[1::2], strict=True):
        at = start
        for first, last in zip(old[::2], old[1::2], strict=True):
            if last <= at or first >= stop:
                continue
            if first > at:
                left.append((at, first))
            at = max(at, last)
        if at < stop:
            left.append((at, stop))
    return left


def shown(held: Held, until: int, given: Floats | None) -> dict[str, Any]:
    """An assignment as the page has it.

    Parameters
    ----------
    held : Held
    until : int
        The last step with it.
    given : (N,) ndarray or None
        Rows per second that were given beforehand, for machines that had shown none.
    """
    speeds = 1 / held.paces
    if given is not None and len(given) == len(speeds):
        speeds = np.where(np.isnan(speeds), given, speeds)
    available = set(held.available)
    loads = [sum(each[1::2]) - sum(each[::2]) for each in held.bounds]
    return {
        "step": held.step,
        "until": until,
        "available": held.available,
        "blocks": blocks_of(held.bounds),
        "loads": loads,
        "moved": moved(held.bounds, held.before),
        "speeds": listed(speeds),
        "away": {
            str(n): REASONS[why] for n, why in sorted(held.reasons.items()) if n not in available
        },
    }
