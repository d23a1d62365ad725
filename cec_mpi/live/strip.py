"""The machines of a step as a strip of marks, one for each, or for several where they are many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cec_mpi.live.seen import Seen

_LOADS, _PLAIN_LOADS = "▁▂▃▄▅▆▇█", "-=#"
PREEMPTED, IDLE, WORKS, LATE, GONE = "preempted", "idle", "works", "late", "gone"
SILENT = "no answer yet"
STATES = {  # from the one that matters least: the mark, in plain letters, and the style
    IDLE: ("_", "_", "green"),
    WORKS: ("", "", "green"),  # a height
    PREEMPTED: ("·", ".", "dim"),
    SILENT: ("?", "?", "yellow"),
    LATE: ("!", "!", "bold yellow"),
    GONE: ("x", "x", "bold red"),
}
_RANK = {state: rank for rank, state in enumerate(STATES)}

Mark = tuple[str, str]
"""A letter and its style."""


def states_of(seen: Seen) -> dict[int, str]:
    """What each machine that takes part is in the last step."""
    step: Mapping[str, Any] = seen.last or {"available": (), "events": (), "rows": ()}
    available = set(step["available"])
    late = [event.get(kind) for event in step["events"] for kind in ("late", "wrong")]
    gone_now = [
        event.get(kind) for event in step["events"] for kind in ("lost", "given up", "excluded")
    ]
    silent = _silent(seen, {machine for machine in seen.taking_part if machine not in available})
    found = {}
    for machine in seen.taking_part:
        is_there = machine in available and 1 <= machine <= len(step["rows"])
        if machine in gone_now or (not is_there and seen.gone.get(machine, "leaving") != "leaving"):
            found[machine] = GONE
        elif not is_there:
            found[machine] = SILENT if machine in silent else PREEMPTED
        elif machine in late:
            found[machine] = LATE
        else:
            found[machine] = WORKS if step["rows"][machine - 1] else IDLE
    return found


def _silent(seen: Seen, away: set[int]) -> set[int]:
    """Which machines that are away had not answered what they were asked for last."""
    found = set()
    for step in reversed(seen.recent):
        if not away:
            break
        late = {event.get("late") for event in step["events"]}
        for machine in away.intersection(step["available"]):
            at = machine - 1
            asked = at < len(step["assignment"]) and bool(step["assignment"][at])
            if machine in late or (asked and not step["rows"][at]):
                found.add(machine)
            away.discard(machine)
    return found


def strip(seen: Seen, width: int, is_plain: bool) -> tuple[list[Mark], int]:
    """Marks of the machines of the last step, and of how many machines each one is.

    The height of a mark is the load. A mark of several machines shows what is worst among
    them.

    Parameters
    ----------
    seen : Seen
    width : int
        The most marks.
    is_plain : bool
        No other letters than those of ASCII.
    """
    states = states_of(seen)
    machines = list(states)
    each = max(1, -(-len(machines) // max(1, width)))
    rows = seen.last["rows"] if seen.last is not None else []
    most = max(rows, default=0)
    heights = _PLAIN_LOADS if is_plain else _LOADS
    marks = []
    for first in range(0, len(machines), each):
        some = machines[first : first + each]
        worst = max((states[machine] for machine in some), key=_RANK.__getitem__)
        letter, plain, style = STATES[worst]
        if worst == WORKS:
            load = max(rows[machine - 1] for machine in some if states[machine] == WORKS)
            letter = plain = heights[-(-load * len(heights) // most) - 1]
        marks.append((plain if is_plain else letter, style))
    return marks, each


def legend(each: int, is_short: bool) -> str:
    """What is to be said of a strip whose marks stand for several machines.

    Examples
    --------
    >>> legend(13, False), legend(13, True)
    ('a mark is the worst of 13 machines', 'worst of 13 each')
    """
    return f"worst of {each} each" if is_short else f"a mark is the worst of {each} machines"
