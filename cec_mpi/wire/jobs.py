"""Jobs, which are asked and answered one by one: what an elastic step needs of the wire."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.step.product import Product
from cec_mpi.roster.changes import Change, Gone
from cec_mpi.roster.roster import Roster
from cec_mpi.store.shard import Mended
from cec_mpi.wire.orders import Reported

Intervals = tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Job:
    """Rows that a machine was asked for.

    Attributes
    ----------
    machine, store, step : int
    shard : int
        Whose rows, by its machine: its own today.
    product : Product
    intervals : tuple of (int, int)
        The rows, ascending.
    values : ndarray
        For X W its answers, (count * k,); for X' V its part of the sum, (r * k,) of float64.
    begun : float
        When it was asked, in seconds of `time.monotonic`.
    report : (11,) ndarray of float64
        What the machine says of it, as it comes.
    room : object
        What `report` and `values` lie in.
    content : object
        What it multiplies with, which must not change until the answer is there.
    asked : bool
        Whether it was sent; False if that was interrupted: then it is never answered.
    adopted : tuple of int or None
        No product is asked for: these are the shards that the machine has behind its own ones
        from now on, which it reads where it has not.
    allowance : float
        Seconds that this may take beyond what an answer may.
    """

    machine: int
    store: int
    step: int
    shard: int
    product: Product
    intervals: Intervals
    values: NDArray[Any]
    begun: float = field(default_factory=time.monotonic)
    report: NDArray[np.float64] = field(default_factory=lambda: np.zeros(Reported.size()))
    room: Any = None
    content: Any = None
    asked: bool = False
    adopted: tuple[int, ...] | None = None
    allowance: float = 0.0

    @property
    def count(self) -> int:
        """Rows."""
        return sum(stop - start for start, stop in self.intervals)

    @property
    def reported(self) -> Reported[float]:
        """What the machine says of it."""
        return Reported(*self.report.tolist())

    @property
    def failed(self) -> bool:
        """The machine raised an exception, or answered for another shard."""
        reported = self.reported
        return bool(reported.failed) or reported.shard != self.shard

    @property
    def leaving(self) -> bool:
        """The machine has to leave soon."""
        return bool(self.reported.leaving)

    @property
    def mended(self) -> Mended:
        """Rows that it has computed from other shards; none where what it says can be none."""
        *_, rows, first, last, bound = self.reported
        if not (
            0 <= first <= last < 2**62
            and 0 <= rows <= last - first + 1
            and 0 <= bound < float("inf")
        ):
            return Mended()
        return Mended(int(rows), int(first), int(last), bound)


@dataclass(frozen=True)
class Answered:
    """A job was answered, of this step or of an earlier one."""

    job: Job


Event = Answered | Change


class JobsHub(Protocol):
    """The master's end of jobs, for all stores that the same machines serve.

    Attributes
    ----------
    roster : Roster
        Which process is which machine, and in what state.
    is_cut_off : bool
        The last call was interrupted, or is still under way: it must not be asked for more.
    """

    roster: Roster
    is_cut_off: bool

    def ask(self, job: Job, content: NDArray[Any]) -> None:
        """Give a job to its machine, which is idle."""

    def busy(self) -> dict[int, Job]:
        """The jobs that are not answered, by machine; without those of machines given up."""

    def awaited(self) -> set[int]:
        """Machines that the run waits for: processes open their shards, or are still to come."""

    def events(self) -> Iterator[Event]:
        """What has happened since the last time, as it shows in the roster; never waits."""

    def late(self, machine: int) -> None:
        """The step that waits for a machine waits for it no more."""

    def give_up(self, machine: int, reason: str) -> None:
        """Treat a machine that does not answer as lost; a spare takes its place.

        If its process answers after all, it becomes a spare, or the same machine again if
        there was no spare.
        """

    def exclude(self, machine: int, reason: str, change: type[Gone]) -> None:
        """Stop asking a machine; a spare takes its place."""

    def report(self, machine: int) -> str:
        """Ask a machine what went wrong."""

    def close(self, store: int) -> None:
        """The machines need not serve this store any more; those that are busy keep it open."""


class Jobs(Protocol):
    """The master's end of jobs, for the steps of one store.

    Attributes
    ----------
    hub : JobsHub
    path : Path
        Of the store.
    """

    hub: JobsHub
    path: Path

    def ask(
        self,
        machine: int,
        step: int,
        product: Product,
        intervals: Intervals,
        content: NDArray[Any],
    ) -> Job:
        """Give a machine that is idle a job on its shard.

        Parameters
        ----------
        machine, step : int
        product : Product
        intervals : tuple of (int, int)
        content : ndarray
            W, shape (k, r), or what its rows are multiplied with, (count, k); contiguous, in
            the dtype that products are computed in. It has to stay as it is until the answer is
            there.
        """

    def adopt(self, machine: int, step: int, shards: Sequence[int], allowance: float) -> Job:
        """Have a machine that is idle take over shards, which lie behind its own ones then.

        Parameters
        ----------
        machine, step : int
        shards : sequence of int
            All that it is to have beside its own.
        allowance : float
            Seconds that it may take to read them.
        """

    def gave(self, job: Job) -> bool:
        """Whether a job is of this store."""

    def release(self, jobs: Iterable[Job]) -> None:
        """The values of these jobs, all answered, are not needed any more."""

    def close(self) -> None:
        """The machines need not serve this store any more."""
