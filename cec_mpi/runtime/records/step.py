"""Schema of the lines of ``steps.jsonl``.

The line of a step holds only changed fields. An omitted field has its default or, without a
default, the value of the previous step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import fields
from numpy.typing import ArrayLike, NDArray

from cec_mpi.runtime.records.events import (
    KINDS_BY_NAME,
    MAX_MACHINES,
    Count,
    Event,
    MachineNumber,
    Magnitude,
    Seconds,
    kind_and_machine,
)
from cec_mpi.text import plural, shorten

Ints = NDArray[np.int64]

VERSION = 4
"""Version of the format of ``steps.jsonl``."""

AbsenceReason = Literal[
    "preempted", "late", "lost", "unresponsive", "left", "excluded", "not joined"
]
"""Reason why a machine is unavailable."""

AbsenceTable = dict[AbsenceReason, dict[MachineNumber, Count]]
"""Unavailable machines by reason, each with the first step of its absence."""

MachineCount = Annotated[int, Meta(ge=1, le=MAX_MACHINES)]
"""Number of machines."""


def reasons_by_machine(absent: AbsenceTable) -> dict[int, str]:
    """Return the reason for the absence of each machine.

    Examples
    --------
    >>> reasons_by_machine({"lost": {3: 7}, "preempted": {1: 2, 5: 2}})
    {3: 'lost', 1: 'preempted', 5: 'preempted'}
    """
    return {machine: reason for reason, machines in absent.items() for machine in machines}


class Header(Struct, kw_only=True, tag="header", tag_field="kind"):
    """First line of a part of a run, with the fields that readers use.

    Attributes
    ----------
    content : dict
        All fields of the line.
    """

    version: Literal[4] = 4
    started: str | UnsetType = UNSET
    task: str | UnsetType = UNSET
    planned_steps: Count | None = None
    machines: MachineCount | UnsetType = UNSET
    recovery: MachineCount | UnsetType = UNSET
    rows_per_shard: Annotated[int, Meta(ge=1, lt=2**48)] | UnsetType = UNSET
    rows: Count | UnsetType = UNSET
    columns: Count | UnsetType = UNSET
    dtype: Literal["float32", "float64"] | UnsetType = UNSET
    code: str | UnsetType = UNSET
    scheme: str | UnsetType = UNSET
    shards: str | UnsetType = UNSET
    mpi_library: str | UnsetType = UNSET
    stragglers: Annotated[int, Meta(ge=0, le=MAX_MACHINES)] = 0
    speeds: Literal["learn"] | list[Magnitude] | dict[str, Magnitude] | None = None
    participants: list[MachineNumber] | UnsetType = UNSET
    machine_of_rank: list[Annotated[int, Meta(ge=0, le=MAX_MACHINES)]] | UnsetType = UNSET
    hosts: list[str] | UnsetType = UNSET
    pids: list[Count] | UnsetType = UNSET
    devices: list[str] | UnsetType = UNSET
    content: dict[str, Any] = {}


class Progress(Struct, frozen=True, tag="progress", tag_field="kind"):
    """Values that the task reported after the previous step."""

    values: dict[str, Annotated[float, Meta(ge=-1e308, le=1e308)]]


class Checkpoint(Struct, frozen=True, tag="checkpoint", tag_field="kind"):
    """A checkpoint, from which a run can continue after the previous step."""


class Unfinished(Struct, frozen=True, tag="unfinished", tag_field="kind"):
    """Events of machines in an incomplete last step."""

    events: list[Event]


class Waiting(Struct, frozen=True, kw_only=True, tag="waiting", tag_field="kind"):
    """A wait for machines, because the next step needs more.

    Attributes
    ----------
    time : str
        Time since which the other fields hold, in the format of `StepRecord.time`.
    missing : int
        Number of missing machines.
    available : tuple of int
        Numbers of the available machines.
    absence_reasons : dict of int to str
        Known reasons why other machines are unavailable.
    """

    time: str
    missing: Count
    available: tuple[MachineNumber, ...] = ()
    absence_reasons: dict[MachineNumber, AbsenceReason] = field(default_factory=dict)


# gc=False: records form no cycles, so the garbage collector need not visit millions of them.
class StepRecord(Struct, frozen=True, gc=False, tag="step", tag_field="kind"):
    """Record of a step.

    Attributes
    ----------
    step, tick : int
        Numbers from 0. They are equal if each step is a tick, and the run has not waited.
    time : str
        End of the step in UTC, in ISO 8601 with milliseconds.
    waited_ticks : int
        Ticks with too few machines before this step.
    available : tuple of int
        Numbers of the available machines.
    adjoint : bool
        Whether the product is X' V instead of X W.
    columns : int
        Number of columns of W or V.
    rows : list of int
        Rows computed by machines 1..N; 0 for unavailable machines.
    compute_seconds : list of float
        Compute times that machines 1..N measured; 0 for unavailable machines.
    load_seconds : list of float
        Times of machines 1..N, before `compute_seconds`, for reading and checking rows that they
        had not read before: in the first step, and after a new assignment.
    load_bytes : list of int
        Bytes that they read in this time.
    predicted_makespan : float or None
        Makespan of the computed rows, in seconds, at the speeds known before the step. None before
        the first measurement of this kind of product (X W or X' V).
    measured_makespan : float
        The largest of `compute_seconds`.
    makespan_bound : float or None
        Lower bound on the makespan of any assignment at the expected speeds, in seconds. None
        before the first measurement of this kind of product.
    hindsight_makespan : float or None
        Lower bound on the makespan of any assignment at the speeds measured in this step. The
        regret of the step is ``measured_makespan / hindsight_makespan - 1``. None with
        `stragglers` or `check`, because the speeds of machines without an answer are unknown, or if
        the machines with a measured speed cannot do all the work.
    announce_seconds, share_seconds, collect_seconds, decode_seconds : float
        Time of each part of the step on the master. The collection includes the computation. An
        adjoint step applies the transposed decoder before it shares. Short vectors are sent with
        the announcement.
    payload_bytes : dict of str to int
        Payload of the master in announce, share and collect.
    plan_changed : bool
        Whether the step has a new assignment.
    condition_number : float or None
        Largest condition number (1-norm) of the decoding. An infinite one is null in the file, and
        None in a record that was read.
    cancellation : float or None
        Magnitude of the terms relative to the result, ``norm(c * w) / max(abs(y))`` with c the
        largest entry of each column of X; for a block, of the worst column. None if w or the result
        is zero.
    events : list of Event
        Events of machines: ``{"lost": n, "reason": text}``, ``{"late": n}``,
        ``{"unresponsive": n, "reason": text}``, ``{"left": n, "reason": text}``,
        ``{"excluded": n, "reason": text}`` after wrong answers, ``{"wrong": n}``, with a
        ``"reason"`` if an answer was not finite, ``{"joined": n, "rank": r}``, with ``"host"``,
        ``"device"`` and ``"pid"`` if they are set.
    absent_since : dict of str to (dict of int to int)
        Machines that take part and were unavailable when the step began, by reason, each with the
        first step of its absence. The reasons are ``"preempted"`` (by the availability), ``"late"``
        (the machine still computes for an earlier step), ``"lost"``, ``"unresponsive"``,
        ``"left"``, ``"excluded"`` and ``"not joined"``.
    unanswered : list of int
        Machines that had not answered their requests when the step ended.
    delays : dict of int to float
        Seconds by which machines delayed the step. If all machines answered, it holds only the last
        one, with the time between the last two answers. Otherwise it holds the lost, late and wrong
        machines, each with an equal share of the time from the last answer of the others to the end
        of the step.
    waited_seconds : float
        Seconds that the master waited for more machines before the step.
    assignment : list of list of int
        Assigned rows of the shard of each machine, as the bounds of intervals (``[0, 180, 240,
        420]`` means 0..179 and 240..419); empty for unavailable machines.
    """

    step: Count
    tick: Count
    time: str
    available: tuple[MachineNumber, ...]
    adjoint: bool
    columns: Count
    rows: list[Count]
    compute_seconds: list[Seconds]
    load_seconds: list[Seconds]
    load_bytes: list[Count]
    predicted_makespan: Seconds | None
    measured_makespan: Seconds
    makespan_bound: Seconds | None
    hindsight_makespan: Seconds | None
    announce_seconds: Seconds
    share_seconds: Seconds
    collect_seconds: Seconds
    decode_seconds: Seconds
    payload_bytes: dict[str, Count]
    condition_number: Magnitude | None
    cancellation: Magnitude | None
    assignment: list[list[Count]]
    absent_since: AbsenceTable
    waited_ticks: Count = 0
    waited_seconds: Seconds = 0.0
    plan_changed: bool = False
    events: list[Event] = field(default_factory=list)
    unanswered: list[MachineNumber] = field(default_factory=list)
    delays: dict[MachineNumber, Seconds] = field(default_factory=dict)


FIELDS = tuple(field.name for field in fields(StepRecord))

DEFAULTS: dict[str, Any] = {
    field.name: field.default_factory() if callable(field.default_factory) else field.default
    for field in fields(StepRecord)
    if not field.required
}
"""Defaults of fields; omitted fields without a default keep their previous value."""

MACHINE_FIELDS = "rows", "compute_seconds", "load_seconds", "load_bytes", "assignment"
"""Fields with an entry for each machine of the store."""

StepLine: Any = msgspec.defstruct(
    "StepLine",
    [(field.name, field.type | UnsetType, UNSET) for field in fields(StepRecord)],
    tag="step",
    tag_field="kind",
    gc=False,
)
"""The line of a step: a `StepRecord` with omitted fields."""


@dataclass(frozen=True, eq=False, slots=True)
class IntervalBounds:
    """An assignment, as the concatenated bounds of the intervals of machines 1..N.

    Attributes
    ----------
    bounds : (B,) ndarray
    ends : (N,) ndarray
        Position after the last bound of each machine.
    """

    bounds: Ints
    ends: Ints

    @classmethod
    def from_lists(cls, assignment: Sequence[Sequence[int]]) -> IntervalBounds:
        """Return the bounds of the recorded assignment of a step.

        Raises
        ------
        ValueError
            The bounds of a machine are not ascending, or their number is odd.
        """
        ends = np.cumsum(np.fromiter(map(len, assignment), np.int64, len(assignment)))
        count = int(ends[-1]) if len(ends) else 0
        bounds = np.fromiter(chain.from_iterable(assignment), np.int64, count)
        is_ascending = bounds[1:] > bounds[:-1]
        is_ascending[ends[(ends > 0) & (ends < count)] - 1] = True  # between two machines
        if not is_ascending.all() or (ends % 2).any():
            raise ValueError("Expected ascending bounds of intervals - at `$.assignment`")
        return cls(bounds, ends)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntervalBounds):
            return NotImplemented
        return np.array_equal(self.ends, other.ends) and np.array_equal(self.bounds, other.bounds)

    __hash__ = None  # type: ignore[assignment]

    def to_lists(self) -> list[list[int]]:
        """Return the bounds as a list for each machine, as in records."""
        bounds, ends = self.bounds.tolist(), self.ends.tolist()
        return [bounds[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def loads(self) -> Ints:
        """Return the number of rows of each machine."""
        sums = np.concatenate(([0], np.cumsum(self.bounds[1::2] - self.bounds[::2])))
        return np.diff(sums[self.ends // 2], prepend=0)


def check_events(events: Sequence[Event]) -> None:
    """Raise ValueError if the first key of an event is not a kind of event."""
    for event in events:
        kind = kind_and_machine(event)[0] if event else ""
        if kind not in KINDS_BY_NAME:
            raise ValueError("Expected a kind of event first - at `$.events`")


def parse_timestamp(text: str) -> float:
    """Convert a time in ISO 8601 to seconds since the epoch.

    Examples
    --------
    >>> parse_timestamp("1970-01-01T00:01:00.500+00:00")
    60.5
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"Expected a time in ISO 8601, got {shorten(text)}") from None


def check_machines(
    lengths: Mapping[str, int], available: ArrayLike, absent_since: AbsenceTable
) -> None:
    """Raise ValueError if the fields of a step do not describe the same machines.

    Parameters
    ----------
    lengths : mapping of str to int
        Lengths of the fields with an entry for each machine.
    available : (N_t,) array_like of int
    absent_since : dict
    """
    machines = min(lengths.values())
    if machines < 1 or max(lengths.values()) > min(machines, MAX_MACHINES):
        name = max(lengths, key=lambda name: abs(lengths[name] - machines))
        expected = plural(machines, "entry")
        if lengths[name] == machines:  # all lengths are equal, but out of range
            expected = f"1 to {MAX_MACHINES} entries"
        raise ValueError(
            f"Expected {expected} (one per machine), got {lengths[name]} - at `$.{name}`"
        )
    numbers = np.asarray(available, np.int64)
    if np.bincount(numbers, minlength=1).max(initial=0) > 1 or numbers.max(initial=0) > machines:
        raise ValueError(f"Expected distinct machines of 1..{machines} - at `$.available`")
    if any(machine > machines for since in absent_since.values() for machine in since):
        raise ValueError(f"Expected machines of 1..{machines} - at `$.absent_since`")
