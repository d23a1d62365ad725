"""The assignments of a run that a page shows, and what moved between them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cec_mpi.report.away import whys
from cec_mpi.report.bins import listed
from cec_mpi.report.chunks import Floats, Stretch
from cec_mpi.runtime.records.step import Away, Bounds, Ints

_MOST = 200
_MOST_HELD = 400  # while steps are read
_NUMBERS = 150_000  # of all that are shown: a page has an end
_MOST_BOUNDS = _NUMBERS // 2  # of one that is held
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
    available : (N_t,) ndarray
    bounds : Bounds
    before : Bounds or None
        Those of the assignment before it; None for the first.
    paces : (N,) ndarray
        Seconds per row that machines had shown, NaN for none.
    wanted : bool
        Whether it is of a step with an event, or the first.
    asked : bool
        Whether it is of a step that was asked for.
    away : dict
        Why machines are away, as a step has it.
    """

    index: int
    step: int
    available: Ints
    bounds: Bounds
    before: Bounds | None
    paces: Floats
    wanted: bool
    asked: bool
    away: Away


class Assignments:
    """Holds assignments while steps are read: all, or those of events and evenly spaced ones.

    Parameters
    ----------
    asked : set of int
        Numbers of steps whose assignments are shown in any case.

    Attributes
    ----------
    made : list of int
        Index of the first step of each assignment.
    too_large : int
        How many are left out, since one of them would fill a page.
    """

    def __init__(self, asked: frozenset[int] = frozenset()) -> None:
        self.made: list[int] = []
        self.too_large = 0
        self._asked = asked
        self._held: list[Held] = []
        self._last: Bounds | None = None

    def add(self, first: int, stretch: Stretch, paces: Floats) -> None:
        """Take a stretch that begins with this step of the run."""
        step = stretch.step
        index, bounds = first + stretch.begin, step["assignment"]
        wanted, numbers = bool(step["events"]), stretch.end - stretch.begin
        asked = any(0 <= number - step["step"] < numbers for number in self._asked)
        if bounds is self._last or bounds == self._last:
            if self._held and self._held[-1].index == self.made[-1]:
                self._held[-1].wanted |= wanted
                self._held[-1].asked |= asked
            return
        available = step["available"]
        before, self._last = self._last, bounds
        self.made.append(index)
        if len(bounds.bounds) > _MOST_BOUNDS:
            self.too_large += 1
            return
        if before is not None and len(before.bounds) > _MOST_BOUNDS:
            before = None
        wanted |= before is None
        held = Held(
            index, step["step"], available, bounds, before, paces, wanted, asked, step["away"]
        )
        self._held.append(held)
        if len(self._held) > _MOST_HELD:
            self._thin()

    def _thin(self) -> None:
        """Drop every second assignment that is neither asked for nor of an event."""
        *held, newest = self._held
        kept = [x for at, x in enumerate(held) if x.asked or x.wanted or at % 2 == 0]
        if len(kept) > _MOST_HELD * 3 // 4:
            kept = [x for at, x in enumerate(kept) if x.asked or at % 2 == 0]
        self._held = [*kept, newest]

    def chosen(self) -> list[Held]:
        """Return those that are shown: all, or as many as a page has room for."""
        held = [each for each in self._held if _numbers_in(each.bounds) <= _NUMBERS]
        self.too_large += len(self._held) - len(held)
        self._held = held
        sample = _spread(self._held, 3)
        size = max((_numbers_in(each.bounds) for each in sample), default=1)
        room = max(2, min(_MOST, _NUMBERS // max(size, 1)))
        asked = [each for each in self._held if each.asked]
        found = _spread([each for each in self._held if each.wanted], max(room // 2, 1))
        rest = _spread(self._held, max(room - len(found) - len(asked), 1))
        if len(self._held) <= room:
            return self._held
        chosen = {each.index: each for each in (*asked, *found, *rest)}
        return [chosen[index] for index in sorted(chosen)]


def _spread(held: list[Held], count: int) -> list[Held]:
    """Return so many of them, evenly spaced, with the first and the last."""
    if len(held) <= count:
        return held
    if count == 1:
        return held[:1]
    return [held[at * (len(held) - 1) // (count - 1)] for at in range(count)]


def _numbers_in(bounds: Bounds) -> int:
    """Return how many numbers a page has of it: bounds, and machines of blocks."""
    places = np.searchsorted(np.unique(bounds.bounds), bounds.bounds)
    return int((places[1::2] - places[::2]).sum()) + len(places)


def blocks_of(bounds: list[list[int]]) -> list[tuple[int, int, list[int]]]:
    """Return the blocks along the rows, each computed by the same machines.

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
    """Return rows that machines compute and did not compute before, by machine.

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
    others = list(zip(old[::2], old[1::2], strict=True))
    next_ = 0
    for start, stop in zip(mine[::2], mine[1::2], strict=True):
        at = start
        while next_ < len(others) and others[next_][0] < stop:
            first, last = others[next_]
            if first > at:
                left.append((at, first))
            at = max(at, last)
            if last > stop:
                break  # it may be in the way of the next one too
            next_ += 1
        if at < stop:
            left.append((at, stop))
    return left


def shown(held: Held, until: int, given: Floats | None) -> dict[str, Any]:
    """Return an assignment as the page has it.

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
    bounds, available = held.bounds.lists(), held.available.tolist()
    return {
        "step": held.step,
        "until": until,
        "available": available,
        "blocks": blocks_of(bounds),
        "loads": held.bounds.loads().tolist(),
        "moved": moved(bounds, held.before.lists() if held.before else []),
        "speeds": listed(speeds),
        "away": {str(n): why for n, why in sorted(whys(held.away).items())},
    }
