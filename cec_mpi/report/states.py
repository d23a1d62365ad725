"""States of machines and descriptions of events for a page."""

from __future__ import annotations

from typing import NamedTuple

from cec_mpi.runtime.records.events import KINDS, Event, kind_and_machine
from cec_mpi.text import shorten

_MAX_CHARACTERS = 300  # of a description


class State(NamedTuple):
    """A state of a machine in a step.

    Attributes
    ----------
    name : str
    description : str
        Text of the legend.
    colour, dark : str
        Colours in the light and the dark theme.
    """

    name: str
    description: str
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
"""States in the map. Of several absences, and of several events, a cell shows the first listed."""

PREEMPTED, IDLE = 0, 1
_KIND_INDEX = {kind.name: index for index, kind in enumerate(KINDS)}
STATE_INDEX = {state.name: index for index, state in enumerate(STATES) if index > IDLE}
"""Index of each state other than preempted and idle."""


def describe_event(event: Event) -> tuple[int, int, str]:
    """Return the index of the kind of an event, the machine, and the details.

    Examples
    --------
    >>> describe_event({"lost": 3, "reason": "its process ended"})
    (0, 3, 'its process ended')
    """
    name, machine = kind_and_machine(event)
    if "reason" in event:
        text = event["reason"]
    else:
        text = ", ".join(f"{key} {shorten(value)}" for key, value in list(event.items())[1:])
    return _KIND_INDEX[name], machine, text[:_MAX_CHARACTERS]
