"""Jobs: parts of a step that machines answer one by one, and the master's end that sends them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.elastic.events import MachineUnavailable, Request, RosterChange
from cec_mpi.core.elastic.terms import Term
from cec_mpi.core.plan.assignment import Intervals, count_rows
from cec_mpi.runtime.processes.waiting import Clock
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.wire.orders import Opening, ReportFields

_NO_REPORT = ReportFields(0, *(7 * [math.nan]))


@dataclass(eq=False, slots=True)
class Job:
    """A job of a machine: the rows of a request.

    Attributes
    ----------
    request : Request
    step : int
    product : Product
    content : ndarray
        What the rows are multiplied with: W, shape (k, r), or coefficients, (count, k).
    sent_at : float
        When the job was sent, in seconds of the hub's clock.
    count : int
        The number of rows.
    report_fields : ReportFields
        The report of the machine, once it has answered.
    pieces : list of ndarray
        The answer, in one or more vectors: count * k numbers of X W, or the r * k numbers of
        float64 of the part of the sum X' V, which is that of several jobs if a host sums their
        parts.
    tracker : zmq.MessageTracker or None
        Whether ZeroMQ has released `content`.
    is_held : bool
        Whether the hub reads `content` until the answer, or until `tracker` is done.
    """

    request: Request
    step: int
    product: Product
    content: NDArray[Any]
    sent_at: float
    report_fields: ReportFields[float] = _NO_REPORT
    pieces: list[NDArray[Any]] = field(default_factory=list)
    tracker: Any = None
    is_held: bool = False
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = count_rows(self.request.intervals)

    @property
    def machine(self) -> int:  # noqa: D102
        return self.request.machine

    @property
    def intervals(self) -> Intervals:
        """The rows, ascending."""
        return self.request.intervals

    @property
    def failed(self) -> bool:
        """Whether the machine raised an exception, or answered for another machine."""
        fields = self.report_fields
        return bool(fields.failed) or fields.shard != self.machine

    @property
    def is_sending(self) -> bool:
        """Whether the hub may still read `content`."""
        return self.is_held and not (self.tracker and self.tracker.done)


@dataclass(frozen=True)
class JobsAnswered:
    """The answer to the jobs of one message, which belong to this step or an earlier one."""

    jobs: tuple[Job, ...]


Event = JobsAnswered | RosterChange


class ElasticHub(Protocol):
    """A hub whose machines get jobs one by one, and may be late, lost or new.

    Attributes
    ----------
    clock, roster
        See `wire.protocol.Hub`.
    is_poisoned : bool
        A call was interrupted or has not returned: the hub must not be used any more.
    """

    clock: Clock
    roster: Roster
    is_poisoned: bool

    def events(self, until: float = -math.inf) -> Iterator[Event]:
        """Yield what has happened since the last call.

        Waits for it until this moment of the clock at most, and for a fraction of a second, after
        which the caller looks at other things.
        """

    def expected_machines(self) -> set[int]:
        """Return the machines that are expected: they open their shards, or may still join."""

    def busy(self) -> dict[int, Job]:
        """Return the unanswered jobs by machine, without those of machines that were given up."""

    def send_jobs(self, rank: int, jobs: tuple[Job, ...]) -> None:
        """Send jobs to the host of their machines, which must be idle."""

    def mark_late(self, machine: int) -> None:
        """Note that the step does not wait for a machine any longer."""

    def give_up(self, machine: int, reason: str) -> None:
        """Treat the host of a machine that does not answer as lost; spares replace it.

        If it answers later, it has those of its machines that no spare has taken, and is a spare.
        """

    def exclude(self, machine: int, reason: str, change: type[MachineUnavailable]) -> None:
        """Give a machine no more jobs, and its host none if its answers were wrong."""

    def carry(self, rank: int, machine: int) -> None:
        """Make a host also carry a machine whose host is lost or unresponsive."""

    def last_error(self, machine: int) -> str:
        """Return the last error of a machine."""


class JobsEnd:
    """The master's end for steps whose machines answer one by one.

    Parameters
    ----------
    hub : ElasticHub
    opening : Opening

    Attributes
    ----------
    path : Path
        Path of the store.
    """

    def __init__(self, hub: ElasticHub, opening: Opening) -> None:
        self.hub = hub
        self.path = opening.store
        self._sent: list[Job] = []  # jobs whose content may still be sent

    def send_jobs(
        self, step: int, product: Product, contents: Mapping[Request, NDArray[Any]]
    ) -> list[tuple[Job, ...]]:
        """Send jobs to idle machines; those of a host go together.

        Terms of X' V that replace the same term are summed by their host.

        Parameters
        ----------
        step : int
        product : Product
        contents : mapping of Request to ndarray
            W, shape (k, r), or what the rows of the request are multiplied with, (count, k);
            contiguous, in the dtype in which products are computed. It is not copied, and must not
            change as long as `is_sending`.

        Returns
        -------
        list of tuple of Job
            The jobs, as they were sent together.
        """
        groups: dict[tuple[int, Term | None], list[Request]] = {}
        for request in contents:
            rank = self.hub.roster.host_of(request.machine).rank
            replaced = request.term.replaces if request.term else None
            groups.setdefault((rank, replaced), []).append(request)
        found = []
        for (rank, _), requests in groups.items():
            now = self.hub.clock.monotonic()
            jobs = tuple(
                Job(request, step, product, contents[request], now) for request in requests
            )
            self.hub.send_jobs(rank, jobs)
            self._sent += [job for job in jobs if job.is_held]
            found.append(jobs)
        return found

    def is_sending(self, content: NDArray[Any]) -> bool:
        """Whether an array shares memory with what may still be sent, to lost machines too."""
        self._sent = [job for job in self._sent if job.is_sending]
        return any(np.may_share_memory(job.content, content) for job in self._sent)
