"""States of machines in a step, and events, as a page shows them."""

from __future__ import annotations

from typing import NamedTuple

from cec_mpi.runtime.records.events import KINDS, Event, kind_and_machine
from cec_mpi.text import shown

_LONGEST = 300  # characters of what an event says


class State(NamedTuple):
    """A state of a machine in a step."""

    state: str
    words: str
    colour: str
    dark: str


STATES = (
    State("preempted", "preempted", "#d9d9d9", "#3a3a3a"),
    State("idle", "available, no rows counted", "#f4f0e6", "#55503f"),
    State("lost", "lost", "#b3261e", "#ff8a80"),
    State("wrong", "answered wrongly", "#8b0000", "#ff6e6e"),
    State("late", "late", "#c9a800", "#e6d15c"),
    State("left", "left", "#e0a862", "#8a5f22"),
    State("excluded", "excluded", "#a1887f", "#6d4c41"),
    State("not joined", "not joined yet", "#b9a8c4", "#5d4d69"),
)
"""What a cell of the map can be; those further down matter less where a cell has several steps."""

PREEMPTED, IDLE = 0, 1
_INDEX = {kind.kind: index for index, kind in enumerate(KINDS)}
STATE_OF = {state.state: index for index, state in enumerate(STATES) if index > IDLE}
"""States other than those of a machine that is preempted or has no rows."""


def said_of(event: Event) -> tuple[int, int, str]:
    """Return the index of the kind of an event, the machine, and the details.

    Examples
    --------
    >>> said_of({"lost": 3, "reason": "its process ended"})
    (0, 3, 'its process ended')
    """
    name, machine = kind_and_machine(event)
    if "reason" in event:
        text = event["reason"]
    else:
        text = ", ".join(f"{key} {shown(value)}" for key, value in list(event.items())[1:])
    return _INDEX[name], machine, text[:_LONGEST]
