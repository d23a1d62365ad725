"""The ledger of X W: expected, answered, compared and decoded rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from cec_mpi.core.elastic.events import (
    Compare,
    Decode,
    Disagreement,
    FaultUndetermined,
    IdentifyFaults,
    Request,
    RowsAgree,
    RowsDisagree,
)
from cec_mpi.core.elastic.terms import Term
from cec_mpi.core.plan.assignment import Intervals
from cec_mpi.core.plan.replan import MissingAnswers, replan

_MAX_GOOD_CONDITION = 10.0  # condition number of a decoder whose rows are not decoded again
_MIN_IMPROVEMENT = 2.0  # factor by which decoding again must reduce the condition number
_EXTRA_ANSWERS_TO_IDENTIFY_FAULT = 3  # answers beyond L that identify a faulty machine


class DecoderChooser(Protocol):
    """Chooses the machines from whose answers rows are decoded."""

    def choose_machines(self, machines: tuple[int, ...]) -> tuple[int, ...]:
        """Return L of these machines whose decoder is well conditioned."""

    def condition(self, machines: tuple[int, ...]) -> float:
        """Return the condition number of the decoder of L machines."""


class RowLedger:
    """The state of the rows of X W: expected, answered, compared or decoded.

    Rows are decoded from L answers. If answers are compared, L + 1 must agree. If they disagree,
    more machines get requests until a faulty machine is identified.

    Parameters
    ----------
    rows : int
        Rows per shard, R.
    recovery : int
        L.
    speeds : (N,) sequence of float
        Missing rows are divided in proportion to the speeds.
    decoders : DecoderChooser
    compare : bool
        Whether answers are compared.
    holders_of : callable, optional
        Returns the machines that hold a row. By default all machines hold all rows.
    cuts : sequence of int
        Rows at which the holders change.

    Attributes
    ----------
    undecoded_rows : int
        Number of rows that are not decoded.
    may_have_unassigned_work : bool
        Whether there may be missing answers that are not assigned to a machine.

    Examples
    --------
    Two of three machines suffice. Machine 2 is lost, and machine 3 gets its rows:

    >>> class FirstTwo:
    ...     def choose_machines(self, machines):
    ...         return machines[:2]
    ...     def condition(self, machines):
    ...         return 1.0
    >>> ledger = RowLedger(4, 2, (1.0, 1.0, 1.0), FirstTwo())
    >>> ledger.assign_plan({1: ((0, 4),), 2: ((0, 2),), 3: ((2, 4),)})
    >>> first = [ledger.next_request(n) for n in (1, 2, 3)]
    >>> ledger.release(2)
    >>> ledger.reassign({1, 3}, idle_machines={1, 3})
    >>> ledger.may_have_unassigned_work
    False
    >>> ledger.record_answer(first[0])
    >>> ledger.record_answer(first[2])
    >>> ledger.instructions()
    [Decode(start=2, stop=4, machines=(1, 3))]
    >>> second = ledger.next_request(3)
    >>> second.intervals
    ((0, 2),)
    >>> ledger.record_answer(second)
    >>> ledger.instructions(), ledger.is_done
    ([Decode(start=0, stop=2, machines=(1, 3))], True)
    """

    def __init__(
        self,
        rows: int,
        recovery: int,
        speeds: Sequence[float],
        decoders: DecoderChooser,
        compare: bool = False,
        holders_of: Callable[[int], Collection[int]] | None = None,
        cuts: Sequence[int] = (),
    ) -> None:
        self._recovery, self._speeds, self._decoders = recovery, speeds, decoders
        self._compare, self._holders_of = compare, holders_of
        self._min_answers = recovery + compare
        self._starts = [0]
        self._segments = [_Segment(0, rows, self._min_answers)]
        self._assigned: dict[int, list[tuple[int, int]]] = {}  # rows not requested yet
        self._complete_segments: list[_Segment] = []  # not decoded yet, with enough answers
        self._undiagnosed_segments: list[_Segment] = []  # with disagreeing answers
        self.undecoded_rows = rows
        self.may_have_unassigned_work = True  # until `reassign` has checked the plan
        for row in cuts:
            self._split_at(row)

    @property
    def is_done(self) -> bool:
        """Whether all rows are decoded."""
        return not self.undecoded_rows

    @property
    def condition(self) -> float:
        """The largest condition number of the decoders of decoded rows; 1 if none are decoded."""
        machine_sets = {s.decoded_from for s in self._segments if s.decoded_from}
        return max(map(self._decoders.condition, machine_sets), default=1.0)

    # Assignment.

    def assign_plan(self, rows: Mapping[int, Intervals]) -> None:
        """Assign the rows of a plan to its machines."""
        for machine, intervals in rows.items():
            for start, stop in intervals:
                self._assign(machine, start, stop)

    @property
    def assigned_machines(self) -> Collection[int]:
        """Machines with assigned rows that have not been requested yet."""
        return self._assigned.keys()

    def next_request(self, machine: int) -> Request | None:
        """Return a request for all rows that are assigned to a machine and not decoded yet."""
        assigned = self._assigned.pop(machine, ())
        if assigned and self.undecoded_rows == self._segments[-1].stop:  # nothing is decoded yet
            return Request(machine, merge_intervals(assigned))
        segments = [
            segment for start, stop in assigned for segment in self._segments_of(start, stop)
        ]
        rows = [(segment.start, segment.stop) for segment in segments if not segment.is_decoded]
        return Request(machine, merge_intervals(rows)) if rows else None

    def reassign(self, helpers: Collection[int], idle_machines: Collection[int]) -> None:
        """Assign rows with missing answers to these machines."""
        missing = self._missing_answers(helpers)
        assignable = [m for m in missing if len(m.eligible_machines) >= m.answers_per_row]
        self.may_have_unassigned_work = len(assignable) < len(missing)
        for machine, start, stop in replan(assignable, self._speeds):
            self._assign(machine, start, stop)

    def release(self, machine: int, may_answer: bool = False) -> None:
        """Stop waiting for a machine; answers that it has sent, or sends later, still count.

        `may_answer` is used only for X' V.
        """
        self._assigned.pop(machine, None)
        for segment in self._segments:
            if machine in segment.expected:
                segment.expected.discard(machine)
                self.may_have_unassigned_work |= not segment.is_decoded

    def drop(self, machine: int) -> None:
        """Stop waiting for a machine, and discard the answers that it sent."""
        self.release(machine)
        for segment in self._segments:
            if machine not in segment.answered:
                continue
            segment.answered.discard(machine)
            if segment.is_decoded:
                segment.answers_considered = min(segment.answers_considered, len(segment.answered))
                continue
            segment.min_answers = self._min_answers
            segment.is_disputed, segment.dispute = False, None
            self.may_have_unassigned_work = True
            self._handle_changed_answers(segment)
        self._undiagnosed_segments = [s for s in self._undiagnosed_segments if s.is_disputed]

    # Answers.

    def record_answer(self, request: Request, added_terms: Sequence[Term] = ()) -> None:
        """Record an answer; `added_terms` is used only for X' V."""
        for start, stop in request.intervals:
            for segment in self._segments_of(start, stop):
                segment.expected.discard(request.machine)
                if segment.is_decoded and self._compare:
                    continue  # uncompared answers are not used
                segment.answered.add(request.machine)
                segment.dispute = None
                self._handle_changed_answers(segment)

    def record_comparison(self, event: RowsAgree | RowsDisagree | FaultUndetermined) -> None:
        """Record the outcome of a comparison."""
        for segment in self._segments_of(event.start, event.stop):
            if segment.is_decoded or segment.answered != set(event.machines):
                continue  # answers have changed since, and will be compared again
            if isinstance(event, RowsAgree):
                segment.is_agreed, segment.is_disputed = True, False
                self._complete_segments.append(segment)
                continue
            segment.is_disputed, count = True, len(segment.answered)
            segment.min_answers = max(count + 1, self._recovery + _EXTRA_ANSWERS_TO_IDENTIFY_FAULT)
            self.may_have_unassigned_work = True
            if isinstance(event, FaultUndetermined):
                segment.dispute = event
            elif count >= self._recovery + _EXTRA_ANSWERS_TO_IDENTIFY_FAULT:
                self._undiagnosed_segments.append(segment)

    def instructions(self) -> list[Compare | IdentifyFaults | Decode]:
        """Return instructions to compare and decode answers."""
        instructions: list[Compare | IdentifyFaults | Decode] = []
        complete_segments, self._complete_segments = self._complete_segments, []
        for segment in dict.fromkeys(complete_segments):
            if segment.is_decoded or len(segment.answered) < segment.min_answers:
                continue
            if self._compare and not segment.is_agreed:
                instructions.append(Compare(segment.start, segment.stop, segment.machines))
                continue
            instructions.append(
                self._decode_from(segment, self._decoders.choose_machines(segment.machines))
            )
            self.undecoded_rows -= segment.stop - segment.start
            segment.is_decoded, segment.answers_considered = True, len(segment.answered)
        undiagnosed, self._undiagnosed_segments = self._undiagnosed_segments, []
        return instructions + [
            IdentifyFaults(segment.start, segment.stop, segment.machines) for segment in undiagnosed
        ]

    def redecode(self) -> Decode | None:
        """Return an instruction to decode rows again if late answers make them more accurate."""
        candidates = [
            segment
            for segment in self._segments
            if segment.decoded_from
            and len(segment.answered) >= max(segment.answers_considered + 1, self._recovery)
        ]
        for segment in sorted(
            candidates, key=lambda segment: -self._decoders.condition(segment.decoded_from)
        ):
            old_condition = self._decoders.condition(segment.decoded_from)
            if old_condition <= _MAX_GOOD_CONDITION:
                return None
            segment.answers_considered = len(segment.answered)
            machines = self._decoders.choose_machines(segment.machines)
            if self._decoders.condition(machines) * _MIN_IMPROVEMENT < old_condition:
                return self._decode_from(segment, machines)
        return None

    def conclude_dispute(self) -> IdentifyFaults | Disagreement | None:
        """Return what to do if no further machine can answer in a dispute; None without a dispute.

        The first call returns an instruction to identify faulty machines. If that has failed, the
        next call returns the disagreement.
        """
        disputed = [segment for segment in self._segments if segment.is_disputed]
        if not disputed:
            return None
        segment = max(disputed, key=lambda segment: len(segment.answered))
        if segment.dispute is None:
            return IdentifyFaults(segment.start, segment.stop, segment.machines)
        return Disagreement(segment.dispute, len(disputed) - 1)

    # Segments.

    def _assign(self, machine: int, start: int, stop: int) -> None:
        for segment in self._segments_of(start, stop):
            segment.expected.add(machine)
        self._assigned.setdefault(machine, []).append((start, stop))

    def _missing_answers(self, helpers: Iterable[int]) -> list[MissingAnswers]:
        candidates, missing = sorted(helpers), []
        for segment in self._segments:
            counted = segment.answered | segment.expected
            needed = segment.min_answers - len(counted)
            if segment.is_decoded or needed <= 0:
                continue
            eligible = [n for n in candidates if n not in counted]
            if self._holders_of is not None:
                holders = self._holders_of(segment.start)
                eligible = [n for n in eligible if n in holders]
            if segment.is_disputed:
                if segment.expected and not eligible:
                    continue
                needed = min(needed, max(1, len(eligible)))
            missing.append(MissingAnswers(segment.start, segment.stop, needed, tuple(eligible)))
        return missing

    def _segments_of(self, start: int, stop: int) -> list[_Segment]:
        """Return the segments of exactly these rows; split segments if necessary."""
        if start >= stop:
            return []
        first, last = self._split_at(start), self._split_at(stop)
        return self._segments[first:last]

    def _split_at(self, row: int) -> int:
        """Split a segment so that one starts at this row, and return its index."""
        index = bisect_left(self._starts, row)
        if index < len(self._starts) and self._starts[index] == row:
            return index
        before = self._segments[index - 1]
        if row == before.stop:
            return index
        after = before.split(row)
        self._starts.insert(index, row)
        self._segments.insert(index, after)
        for group in (self._complete_segments, self._undiagnosed_segments):
            if before in group:
                group.append(after)
        return index

    def _handle_changed_answers(self, segment: _Segment) -> None:
        segment.is_agreed = False
        if not segment.is_decoded and len(segment.answered) >= segment.min_answers:
            self._complete_segments.append(segment)
        elif segment.is_disputed and not segment.expected:
            self.may_have_unassigned_work = True

    @staticmethod
    def _decode_from(segment: _Segment, machines: tuple[int, ...]) -> Decode:
        segment.decoded_from = machines
        return Decode(segment.start, segment.stop, machines)


@dataclass(eq=False, slots=True)
class _Segment:
    """Rows ``start <= row < stop`` with answers of the same machines."""

    start: int
    stop: int
    min_answers: int  # to compare and decode
    expected: set[int] = field(default_factory=set)  # machines
    answered: set[int] = field(default_factory=set)  # machines
    is_agreed: bool = False  # whether all answers agree
    is_disputed: bool = False
    dispute: FaultUndetermined | None = None  # of the last attempt to find the fault
    is_decoded: bool = False
    decoded_from: tuple[int, ...] = ()  # machines
    answers_considered: int = 0  # number of answers when `decoded_from` was chosen

    @property
    def machines(self) -> tuple[int, ...]:
        return tuple(sorted(self.answered))

    def split(self, row: int) -> _Segment:
        """Keep the rows before `row`, and return a new segment with the rows from `row`."""
        after = replace(self, start=row, expected=set(self.expected), answered=set(self.answered))
        self.stop = row
        return after


def merge_intervals(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Return the rows of disjoint intervals in as few intervals as possible, ascending.

    Examples
    --------
    >>> merge_intervals([(5, 7), (0, 2), (2, 4)])
    ((0, 4), (5, 7))
    """
    ordered = sorted(intervals)
    merged = ordered[:1]
    for _, (start, stop) in pairwise(ordered):
        if start == merged[-1][1]:
            merged[-1] = merged[-1][0], stop
        else:
            merged.append((start, stop))
    return tuple(merged)
