"""Kinds of events, in records and in messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypedDict

from msgspec import Meta

from cec_mpi.core.elastic.events import MachineEvent, MachineJoined, MachineLate, MachineUnavailable

MAX_COUNT = 2**53
"""Limit of integers: floats represent all smaller integers exactly."""

MAX_MACHINES = 100_000

Count = Annotated[int, Meta(ge=0, lt=MAX_COUNT)]
MachineNumber = Annotated[int, Meta(ge=1, le=MAX_MACHINES)]
Seconds = Annotated[float, Meta(ge=0, le=1e30)]
"""Time in seconds, limited so that sums are finite."""

Magnitude = Annotated[float, Meta(ge=0, le=1e300)]
"""A nonnegative magnitude."""


class EventKind(NamedTuple):
    """A kind of event.

    Attributes
    ----------
    name : str
        Name of the kind in records.
    predicate : str
        Predicate of a sentence about a machine.
    singular, plural : str
        Text after a count of events, such as "lost" or "missed deadlines".
    colour, dark : str
        Colours in light and dark mode.
    mark : str
        Marker in charts.
    """

    name: str
    predicate: str
    singular: str
    plural: str
    colour: str
    dark: str
    mark: str

    def label(self, count: int) -> str:
        """Return the text after this count of events."""
        return self.singular if count == 1 else self.plural


KINDS = (
    EventKind("lost", "was lost", "lost", "lost", "#b3261e", "#ff8a80", "x"),
    EventKind("joined", "joined", "joined", "joined", "#1b6e3c", "#7bd99b", "+"),
    EventKind(
        "unresponsive",
        "became unresponsive",
        "unresponsive",
        "unresponsive",
        "#7d1f5c",
        "#f2a1d4",
        "d",
    ),
    EventKind("left", "left", "left", "left", "#8a5200", "#ffc26b", "v"),
    EventKind("excluded", "was excluded", "excluded", "excluded", "#5c4033", "#d7b8a8", "!"),
    EventKind(
        "late",
        "missed its deadline",
        "missed deadline",
        "missed deadlines",
        "#6b5b00",
        "#e6d15c",
        "o",
    ),
    EventKind(
        "wrong", "answered wrongly", "wrong answer", "wrong answers", "#8b0000", "#ff6e6e", "s"
    ),
)
"""Table of all kinds of events."""

KINDS_BY_NAME = {kind.name: kind for kind in KINDS}


class Event(TypedDict, total=False):
    """Event of a machine: the first key is the kind, with the machine number; then details."""

    lost: MachineNumber
    joined: MachineNumber
    unresponsive: MachineNumber
    left: MachineNumber
    excluded: MachineNumber
    late: MachineNumber
    wrong: MachineNumber
    reason: str
    rank: Count
    host: str
    device: str
    pid: Count


def event_record(event: MachineEvent) -> Event:
    """Return the record of an event.

    Examples
    --------
    >>> event_record(MachineLate(3)), event_record(MachineJoined(2, rank=7))
    ({'late': 3}, {'joined': 2, 'rank': 7})
    """
    if isinstance(event, MachineJoined):
        record: Event = {"joined": event.machine, "rank": event.rank}
        if event.host:
            record["host"] = event.host
        if event.device:
            record["device"] = event.device
        if event.pid:
            record["pid"] = event.pid
        return record
    if isinstance(event, MachineUnavailable):
        return {event.kind: event.machine, "reason": event.reason}  # type: ignore[misc]
    if isinstance(event, MachineLate):
        return {"late": event.machine}
    return {"wrong": event.machine, **({"reason": event.reason} if event.reason else {})}


def kind_and_machine(event: Event | Mapping[str, Any]) -> tuple[str, int]:
    """Return the kind of an event and the number of the machine.

    Examples
    --------
    >>> kind_and_machine({"lost": 3, "reason": "its process ended"})
    ('lost', 3)
    """
    return next(iter(event.items()))
