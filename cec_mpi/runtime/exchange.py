"""What a step needs from the wire.

The master's end and a machine's end of the same three verbs: *announce* a step, *share*
w, *collect* the answers. Each verb is collective: the master and all machines call it in
the same order, preempted machines too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.assignment import Assignment
from cec_mpi.store.reader import Loaded

__all__ = ["Announcement", "Answers", "MachineEnd", "MasterEnd", "Report"]


@dataclass(frozen=True)
class Answers:
    """What the machines answered to a step.

    Attributes
    ----------
    values : (copies * R,) ndarray
        All answers, machine after machine, as `Assignment.positions` counts them; NaN
        where an answer was short. Overwritten by the next step.
    seconds : (N,) ndarray of float64
        Computation time of machines 1..N, 0 for the preempted.
    load_seconds, load_bytes : (N,) ndarray of float64
        What machines 1..N spent on reading rows that they had not read before, and how
        many bytes that was.
    failed : list of int
        Machines that raised an exception.
    """

    values: NDArray[Any]
    seconds: NDArray[np.float64]
    load_seconds: NDArray[np.float64]
    load_bytes: NDArray[np.float64]
    failed: list[int]


@dataclass(frozen=True)
class Report:
    """What a machine says of its answer.

    Attributes
    ----------
    seconds : float
        Of the computation.
    loaded : Loaded
        What was read first.
    failed : bool
        It raised an exception.
    """

    seconds: float = 0.0
    loaded: Loaded = field(default_factory=Loaded)
    failed: bool = False


@dataclass(frozen=True)
class Announcement:
    """What the master says first.

    Attributes
    ----------
    step : int
        The step that begins, counted from 0.
    assignment : Assignment or None
        The new assignment; None when the last one still holds.
    report : bool
        No step: say what went wrong.
    stop : int or None
        No step: leave, with this exit code.
    """

    step: int = 0
    assignment: Assignment | None = None
    report: bool = False
    stop: int | None = None


class MasterEnd(Protocol):
    """The master's end."""

    def announce(self, step: int, assignment: Assignment) -> int:
        """Begin a step; sends the assignment if it is not the last one. Returns bytes."""

    def share(self, w: NDArray[Any]) -> int:
        """Give w to all machines. Returns bytes."""

    def collect(self) -> Answers:
        """Wait for the answers of all available machines."""

    def reports(self) -> dict[int, str]:
        """Ask the machines what went wrong: machine number to text."""

    def stop(self, code: int) -> None:
        """Tell all machines to leave with this exit code."""


class MachineEnd(Protocol):
    """A machine's end."""

    def announced(self) -> Announcement:
        """Wait for what the master says next, without burning a core."""

    def shared(self) -> NDArray[Any]:
        """Receive w; overwritten by the next step."""

    def answer(self, values: NDArray[Any], report: Report) -> None:
        """Send the answers of a step; no values when preempted."""

    def report(self, text: str) -> None:
        """Answer a request for a report, with an empty text when nothing went wrong."""
