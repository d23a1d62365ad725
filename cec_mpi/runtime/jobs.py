"""What master and machines say to each other by messages: jobs, and what becomes of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.runtime.exchange import Product

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Answered", "Event", "GivenUp", "Intervals", "Job", "Joined", "Left", "Lost"]

Intervals = tuple[tuple[int, int], ...]

MASTER = 0
ORDER, CONTENT, REPORT, VALUES, OBJECT, NOTE = 21, 22, 23, 24, 25, 26  # tags
STEP, ASK, OPEN, CLOSE, STOP = 1, 2, 3, 4, 5  # orders
HEADER = 6  # kind, store, step, adjoint, columns, bytes of an object that follows
REPORTED = 5  # seconds, seconds and bytes of loading, whether it failed, and is leaving


@dataclass(eq=False)
class Job:
    """Rows that a machine was asked for.

    Attributes
    ----------
    machine, store, step : int
    product : Product
    intervals : tuple of (int, int)
        The rows, ascending.
    values : ndarray
        For X W its answers, (count * k,); for X' V its part of the sum, (r * k,) of float64.
    begun : float
        When it was asked, in seconds of `time.monotonic`.
    report : (5,) ndarray of float64
        What the machine says of it.
    requests : list of mpi4py.MPI.Request
        Messages that are on their way.
    sent : tuple
        What must stay as it is until then.
    """

    machine: int
    store: int
    step: int
    product: Product
    intervals: Intervals
    values: NDArray[Any]
    begun: float = field(default_factory=time.monotonic)
    report: NDArray[np.float64] = field(default_factory=lambda: np.zeros(REPORTED))
    requests: list[MPI.Request] = field(default_factory=list)
    sent: tuple[Any, ...] = ()

    @property
    def count(self) -> int:
        """Rows."""
        return sum(stop - start for start, stop in self.intervals)

    @property
    def seconds(self) -> float:
        """Of the computation."""
        return float(self.report[0])

    @property
    def load_seconds(self) -> float:
        """Of reading rows for the first time."""
        return float(self.report[1])

    @property
    def load_bytes(self) -> float:
        """That were read for the first time."""
        return float(self.report[2])

    @property
    def failed(self) -> bool:
        """The machine raised an exception."""
        return bool(self.report[3])

    @property
    def leaving(self) -> bool:
        """The machine has to leave soon."""
        return bool(self.report[4])


@dataclass(frozen=True)
class Answered:
    """A job was answered, of this step or of an earlier one."""

    job: Job


@dataclass(frozen=True)
class Lost:
    """A machine has no process any more."""

    machine: int
    reason: str


@dataclass(frozen=True)
class GivenUp:
    """A machine has not answered for so long that it counts as lost, until it does."""

    machine: int
    reason: str


@dataclass(frozen=True)
class Left:
    """A machine is asked no more, though its process lives."""

    machine: int
    reason: str


@dataclass(frozen=True)
class Joined:
    """A spare process has become this machine, or one that was given up is back."""

    machine: int
    rank: int


Event = Answered | Lost | GivenUp | Left | Joined
