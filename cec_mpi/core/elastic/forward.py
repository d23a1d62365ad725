"""The ledger of X W: which rows have fewer answers than they need."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from cec_mpi.core.elastic.events import (
    Compare,
    Decode,
    Disagreement,
    FaultUndetermined,
    IdentifyFaulty,
    Request,
    RowsAgree,
    RowsDisagree,
)
from cec_mpi.core.elastic.terms import Term
from cec_mpi.core.plan.assignment import Intervals
from cec_mpi.core.plan.replan import MissingAnswers, replan

_WELL_CONDITIONED = 10.0  # up to here another set of machines is not worth looking for
_MIN_IMPROVEMENT = 2.0  # times the condition number, for which rows are decoded again
_EXTRA_TO_IDENTIFY = 3  # answers beyond L with which a wrong machine can be named


class DecodingSets(Protocol):
    """The sets of machines from which rows can be decoded."""

    def choose(self, machines: tuple[int, ...]) -> tuple[int, ...]:
        """Return the L of these machines whose decoder has the smallest condition number."""

    def condition(self, machines: tuple[int, ...]) -> float:
        """Return the condition number of the decoder of L machines."""


class RowLedger:
    """Which rows are expected of whom, answered, compared and decoded.

    Rows are decoded when L machines have answered. If answers are compared, L + 1 must agree. If
    they disagree, more machines are asked until a wrong one is named.

    Parameters
    ----------
    rows : int
        Rows per shard, R.
    recovery : int
        L.
    speeds : (N,) sequence of float
        By which missing rows are divided.
    sets : DecodingSets
    compares : bool
        Whether answers are compared.
    holders : callable, optional
        From a row to the machines that hold it, if not all do.
    cuts : sequence of int
        Rows at which the holders change.

    Attributes
    ----------
    undecoded : int
        Number of rows that are not decoded.
    is_lacking : bool
        Whether rows may lack machines that are asked for them.

    Examples
    --------
    Two of three machines are enough. Machine 2 is lost, and machine 3 gets its rows:

    >>> class Sets:
    ...     def choose(self, machines):
    ...         return machines[:2]
    ...     def condition(self, machines):
    ...         return 1.0
    >>> ledger = RowLedger(4, 2, (1.0, 1.0, 1.0), Sets())
    >>> ledger.plan({1: ((0, 4),), 2: ((0, 2),), 3: ((2, 4),)})
    >>> first = [ledger.next_request(n) for n in (1, 2, 3)]
    >>> ledger.release(2)
    >>> ledger.reassign({1, 3}, idle={1, 3})
    >>> ledger.is_lacking
    False
    >>> ledger.answered(first[0])
    >>> ledger.answered(first[2])
    >>> ledger.instructions()
    [Decode(start=2, stop=4, machines=(1, 3))]
    >>> second = ledger.next_request(3)
    >>> second.intervals
    ((0, 2),)
    >>> ledger.answered(second)
    >>> ledger.instructions(), ledger.is_done
    ([Decode(start=0, stop=2, machines=(1, 3))], True)
    """

    def __init__(
        self,
        rows: int,
        recovery: int,
        speeds: Sequence[float],
        sets: DecodingSets,
        compares: bool = False,
        holders: Callable[[int], Collection[int]] | None = None,
        cuts: Sequence[int] = (),
    ) -> None:
        self._recovery, self._speeds, self._sets = recovery, speeds, sets
        self._compares, self._holders = compares, holders
        self._min_answers = recovery + compares  # answers that each row needs
        self._starts = [0]
        self._segments = [_Segment(0, rows, self._min_answers)]
        self._assigned: dict[int, list[tuple[int, int]]] = {}  # rows not asked for yet
        self._answered_segments: list[_Segment] = []  # with as many answers as they need
        self._undiagnosed: list[_Segment] = []  # whose answers disagree
        self.undecoded = rows
        self.is_lacking = True  # until `reassign` finds that the plan is enough
        for row in cuts:
            self._split_at(row)

    @property
    def is_done(self) -> bool:
        """Whether all rows are decoded."""
        return not self.undecoded

    @property
    def condition(self) -> float:
        """The largest condition number with which a row was decoded; at first 1."""
        used = {segment.used for segment in self._segments if segment.used}
        return max(map(self._sets.condition, used), default=1.0)

    # Who is asked.

    def plan(self, rows: Mapping[int, Intervals]) -> None:
        """Expect the rows of a plan, by machine."""
        for machine, intervals in rows.items():
            for start, stop in intervals:
                self._assign(machine, start, stop)

    @property
    def assigned(self) -> Collection[int]:
        """Machines that are to be asked for rows."""
        return self._assigned.keys()

    def next_request(self, machine: int) -> Request | None:
        """Return the request for all rows that are assigned to a machine and not decoded yet."""
        assigned = self._assigned.pop(machine, ())
        if assigned and self.undecoded == self._segments[-1].stop:  # as at the begin of each step
            return Request(machine, merged(assigned))
        segments = [
            segment for start, stop in assigned for segment in self._segments_of(start, stop)
        ]
        rows = [(segment.start, segment.stop) for segment in segments if not segment.is_decoded]
        return Request(machine, merged(rows)) if rows else None

    def reassign(self, helpers: Collection[int], idle: Collection[int]) -> None:
        """Assign rows that lack answers to these machines."""
        missing = self._missing_answers(helpers)
        possible = [rows for rows in missing if len(rows.eligible) >= rows.needed]
        self.is_lacking = len(possible) < len(missing)
        for machine, start, stop in replan(possible, self._speeds):
            self._assign(machine, start, stop)

    def release(self, machine: int, may_answer: bool = False) -> None:
        """Expect nothing more of a machine, whose answers are kept.

        Later answers count too, also those of a machine that `may_answer`.
        """
        self._assigned.pop(machine, None)
        for segment in self._segments:
            if machine in segment.expected:
                segment.expected.discard(machine)
                self.is_lacking |= not segment.is_decoded

    def drop(self, machine: int) -> None:
        """Expect nothing more of a machine, and do not use its answers."""
        self.release(machine)
        for segment in self._segments:
            if machine not in segment.answered:
                continue
            segment.answered.discard(machine)
            if segment.is_decoded:
                segment.seen = min(segment.seen, len(segment.answered))
                continue
            segment.needed, segment.is_disputed, segment.verdict = self._min_answers, False, None
            self.is_lacking = True
            self._update_state(segment)
        self._undiagnosed = [segment for segment in self._undiagnosed if segment.is_disputed]

    # Answers.

    def answered(self, request: Request, summed: Sequence[Term] = ()) -> None:
        """Note an answer."""
        for start, stop in request.intervals:
            for segment in self._segments_of(start, stop):
                segment.expected.discard(request.machine)
                if segment.is_decoded and self._compares:
                    continue  # it was not compared
                segment.answered.add(request.machine)
                segment.verdict = None
                self._update_state(segment)

    def judged(self, event: RowsAgree | RowsDisagree | FaultUndetermined) -> None:
        """Take the outcome of a comparison."""
        for segment in self._segments_of(event.start, event.stop):
            if segment.is_decoded or segment.answered != set(event.machines):
                continue  # an answer was dropped: the others are compared again
            if isinstance(event, RowsAgree):
                segment.agrees, segment.is_disputed = True, False
                self._answered_segments.append(segment)
                continue
            segment.is_disputed, count = True, len(segment.answered)
            segment.needed = max(count + 1, self._recovery + _EXTRA_TO_IDENTIFY)
            self.is_lacking = True
            if isinstance(event, FaultUndetermined):
                segment.verdict = event
            elif count >= self._recovery + _EXTRA_TO_IDENTIFY:
                self._undiagnosed.append(segment)

    def instructions(self) -> list[Compare | IdentifyFaulty | Decode]:
        """Return what is to be compared and decoded."""
        found: list[Compare | IdentifyFaulty | Decode] = []
        complete, self._answered_segments = self._answered_segments, []
        for segment in dict.fromkeys(complete):
            if segment.is_decoded or len(segment.answered) < segment.needed:
                continue
            if self._compares and not segment.agrees:
                found.append(Compare(segment.start, segment.stop, segment.machines))
                continue
            found.append(self._mark_decoded(segment, self._sets.choose(segment.machines)))
            self.undecoded -= segment.stop - segment.start
            segment.is_decoded, segment.seen = True, len(segment.answered)
        to_name, self._undiagnosed = self._undiagnosed, []
        return found + [
            IdentifyFaulty(segment.start, segment.stop, segment.machines) for segment in to_name
        ]

    def refine(self) -> Decode | None:
        """Return the rows that are decoded worst, if later answers make them more exact."""
        new = [
            segment
            for segment in self._segments
            if segment.used and segment.has_new_answers(self._recovery)
        ]
        for segment in sorted(new, key=lambda segment: -self._sets.condition(segment.used)):
            before = self._sets.condition(segment.used)
            if before <= _WELL_CONDITIONED:
                return None
            segment.seen = len(segment.answered)
            machines = self._sets.choose(segment.machines)
            if self._sets.condition(machines) * _MIN_IMPROVEMENT < before:
                return self._mark_decoded(segment, machines)
        return None

    def conclude(self) -> IdentifyFaulty | Disagreement | None:
        """Return what is left to do, or wrong, if nobody else can be asked."""
        disputed = [segment for segment in self._segments if segment.is_disputed]
        if not disputed:
            return None
        most = max(disputed, key=lambda segment: len(segment.answered))
        if most.verdict is None:
            return IdentifyFaulty(most.start, most.stop, most.machines)
        return Disagreement(most.verdict, len(disputed) - 1)

    # Segments.

    def _assign(self, machine: int, start: int, stop: int) -> None:
        for segment in self._segments_of(start, stop):
            segment.expected.add(machine)
        self._assigned.setdefault(machine, []).append((start, stop))

    def _missing_answers(self, helpers: Iterable[int]) -> list[MissingAnswers]:
        able, found = sorted(helpers), []
        for segment in self._segments:
            there = segment.answered | segment.expected
            needed = segment.needed - len(there)
            if segment.is_decoded or needed <= 0:
                continue
            others = [n for n in able if n not in there]
            if self._holders is not None:
                holders = self._holders(segment.start)
                others = [n for n in others if n in holders]
            if segment.is_disputed:
                if segment.expected and not others:
                    continue
                needed = min(needed, max(1, len(others)))
            found.append(MissingAnswers(segment.start, segment.stop, needed, tuple(others)))
        return found

    def _segments_of(self, start: int, stop: int) -> list[_Segment]:
        """Return the segments of exactly these rows; segments are cut if necessary."""
        if start >= stop:
            return []
        first, last = self._split_at(start), self._split_at(stop)
        return self._segments[first:last]

    def _split_at(self, row: int) -> int:
        """Return the index of the segment that begins with this row, after cutting one."""
        place = bisect_left(self._starts, row)
        if place < len(self._starts) and self._starts[place] == row:
            return place
        before = self._segments[place - 1]
        if row == before.stop:
            return place
        after = before.cut(row)
        self._starts.insert(place, row)
        self._segments.insert(place, after)
        for group in (self._answered_segments, self._undiagnosed):
            if before in group:
                group.append(after)
        return place

    def _update_state(self, segment: _Segment) -> None:
        segment.agrees = False
        if not segment.is_decoded and len(segment.answered) >= segment.needed:
            self._answered_segments.append(segment)
        elif segment.is_disputed and not segment.expected:
            self.is_lacking = True

    @staticmethod
    def _mark_decoded(segment: _Segment, machines: tuple[int, ...]) -> Decode:
        segment.used = machines
        return Decode(segment.start, segment.stop, machines)


class _Segment:
    """Rows ``start <= row < stop`` that have the same answers throughout."""

    __slots__ = (
        *("agrees", "answered", "expected", "is_decoded", "is_disputed"),
        *("needed", "seen", "start", "stop", "used", "verdict"),
    )

    def __init__(self, start: int, stop: int, needed: int) -> None:
        self.start, self.stop = start, stop
        self.needed = needed  # answers, before they are compared and decoded
        self.expected: set[int] = set()
        self.answered: set[int] = set()
        self.agrees = False  # all that have answered
        self.is_disputed = False
        self.verdict: FaultUndetermined | None = (
            None  # on the answers that disagree, once it is known
        )
        self.is_decoded = False
        self.used: tuple[int, ...] = ()  # machines from whose answers it is decoded
        self.seen = 0  # number of answers when these were chosen

    @property
    def machines(self) -> tuple[int, ...]:
        return tuple(sorted(self.answered))

    def has_new_answers(self, least: int) -> bool:
        """Whether at least so many have answered, some after it was decoded."""
        return len(self.answered) > self.seen and len(self.answered) >= least

    def cut(self, row: int) -> _Segment:
        """Keep the rows before this one; returns the segment of the others."""
        after = _Segment(row, self.stop, self.needed)
        after.expected, after.answered = set(self.expected), set(self.answered)
        for name in ("agrees", "is_disputed", "verdict", "is_decoded", "used", "seen"):
            setattr(after, name, getattr(self, name))
        self.stop = row
        return after


def merged(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Return the same rows in as few intervals as possible, ascending.

    Examples
    --------
    >>> merged([(5, 7), (0, 2), (2, 4)])
    ((0, 4), (5, 7))
    """
    cuts = sorted(intervals)
    found = cuts[:1]
    for _, (start, stop) in pairwise(cuts):
        if start == found[-1][1]:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return tuple(found)
