"""What happened to machines, and what they were in a step, as a page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cec_mpi.records.events import KINDS, Kind
from cec_mpi.text import counted, shown

_LONGEST = 300  # characters of what an event says


class State(NamedTuple):
    """What a machine can be in a step, beside the rows that it computed."""

    state: str
    words: str
    colour: str
    dark: str


OTHER = "other"

AWAY = "away"

_MISSED = "was not available"
MARKED = (
    *KINDS,
    Kind(OTHER, "", OTHER, OTHER, "#555555", "#bbbbbb", "o"),
    Kind(AWAY, _MISSED, _MISSED, _MISSED, "#54606e", "#b9c3cf", "_"),
)
"""Kinds of events as the page shows them, with one for those that it does not know, and one that
the records do not have: a machine is away after an answer that did not come in time.
"""

STATES = (
    State("preempted", "preempted", "#d9d9d9", "#3a3a3a"),
    State("idle", "available, no rows counted", "#f4f0e6", "#55503f"),
    State("lost", "lost", "#b3261e", "#ff8a80"),
    State("wrong", "answered wrongly", "#8b0000", "#ff6e6e"),
    State("late", "answered late", "#c9a800", "#e6d15c"),
    State("leaving", "left on a warning", "#e0a862", "#8a5f22"),
    State("away", "not available: no answer yet, or asked no more", "#b9a8c4", "#5d4d69"),
)
"""What a cell of the map can be; those further down matter less where a cell has several steps."""

PREEMPTED, IDLE = 0, 1
_INDEX = {kind.kind: index for index, kind in enumerate(MARKED) if kind.kind != AWAY}
INDEX_AWAY = len(MARKED) - 1
STATE_OF = {state.state: index for index, state in enumerate(STATES) if index > IDLE}
"""States other than those of a machine that is preempted or has no rows."""


def said_of(event: Mapping[str, Any]) -> tuple[int, int, str]:
    """Index of the kind of an event, the machine that it happened to, and what else is known.

    Examples
    --------
    >>> said_of({"lost": 3, "reason": "its process ended"})
    (0, 3, 'its process ended')
    >>> said_of({"moved": 2, "to": "node4"})
    (10, 2, "moved, to 'node4'")
    """
    items = list(event.items())
    name, machine = items[0] if items else (OTHER, 0)
    index = _INDEX.get(name, _INDEX[OTHER])
    number = machine if type(machine) is int else 0
    parts = [name] if index == _INDEX[OTHER] else []
    if "reason" in event:
        parts.append(str(event["reason"]))
    elif name == "rebuilt":
        parts.append(_rebuilt(event))
    else:
        parts += [f"{key} {shown(value)}" for key, value in items[1:]]
    return index, number, ", ".join(part for part in parts if part)[:_LONGEST]


def _rebuilt(event: Mapping[str, Any]) -> str:
    count, first, last = (event.get(name) for name in ("rows", "first", "last"))
    if type(count) is not int:
        return ""
    return f"{counted(count, 'row')} of {shown(first)}..{shown(last)}"
