"""Times, rates and events as text."""

from __future__ import annotations

from cec_mpi.runtime.records.events import KINDS_BY_NAME, Event, kind_and_machine
from cec_mpi.runtime.records.step import Waiting
from cec_mpi.text import plural, printable

_MAX_CHARACTERS = 200  # of a description


def format_clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours, minutes and seconds.

    Examples
    --------
    >>> format_clock(7.9), format_clock(75), format_clock(3 * 3600 + 62), format_clock(50 * 3600)
    ('0:07', '1:15', '3:01:02', '50:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_rate(rate: float) -> str:
    """Return a number of steps per second or, if low, per minute or hour.

    Examples
    --------
    >>> format_rate(1234.6), format_rate(2.5), format_rate(0.05), format_rate(1 / 1800)
    ('1235 steps/s', '2.5 steps/s', '3.0 steps/min', '2.0 steps/h')
    """
    for seconds, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if rate * seconds >= 1 or unit == "h":
            break
    value = rate * seconds
    return f"{value:.0f} steps/{unit}" if value >= 100 else f"{value:.1f} steps/{unit}"


def describe_wait(waiting: Waiting, seconds: float) -> str:
    """Return a description of a wait for machines.

    Examples
    --------
    >>> describe_wait(Waiting(time="", missing=1, available=(1, 2)), 12.3)
    'waiting for 1 more machine, 0:12: 2 available'
    """
    text = f"waiting for {plural(waiting.missing, 'more machine')}, {format_clock(seconds)}"
    return f"{text}: {len(waiting.available)} available"


def describe_host(rank: int, name: str, machines: int, device: str = "") -> str:
    """Return the host, the device and, if its process serves several machines, the rank.

    Parameters
    ----------
    rank : int
    name : str
    machines : int
        Number of machines that the process serves.
    device : str
        Name of the device; empty for the CPU.

    Examples
    --------
    >>> describe_host(3, "desk", 1), describe_host(3, "desk", 2)
    ('desk', 'desk (rank 3)')
    >>> describe_host(3, "desk", 2, "torch:cuda:0")
    'desk torch:cuda:0 (rank 3)'
    """
    name = f"{name} {device}" if device else name
    return f"{name} (rank {rank})" if machines > 1 else name


def describe_machine_event(event: Event) -> str:
    """Return a description of an event, without control characters.

    Examples
    --------
    >>> describe_machine_event({"lost": 3, "reason": "its connection ended"})
    'machine 3 was lost: its connection ended'
    """
    kind, machine = kind_and_machine(event)
    text = f"machine {machine} {KINDS_BY_NAME[kind].predicate}"
    if event.get("reason"):
        text += f": {event['reason']}"
    text = printable(text)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."
