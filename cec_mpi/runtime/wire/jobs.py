"""Jobs: parts of a step that machines answer one by one, and the endpoint that sends them."""

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
from cec_mpi.runtime.wire.orders import ReportFields

INTERVAL_BYTES = 16
"""Size of the bounds of an interval in a message."""

_NO_REPORT = ReportFields(0, *(7 * [math.nan]))


@dataclass(eq=False, slots=True)
class Job:
    """A job: a request that was sent to a machine.

    Attributes
    ----------
    request : Request
    step : int
    product : Product
    operand : ndarray
        W', shape (k, r), or the coefficients of the rows, (row_count, k).
    sent_at : float
        Time at which the job was sent, in seconds of the hub's clock.
    row_count : int
        Number of rows.
    report_fields : ReportFields
        The report of the machine; NaN until it has answered.
    pieces : list of ndarray
        The answer, in one or more vectors: row_count * k values of X W, or r * k values of float64
        of the term of X' V. If a host sums the terms of several jobs, each of them has the sum.
    tracker : zmq.MessageTracker or None
        Tells whether ZeroMQ has released `operand`.
    is_borrowed : bool
        Whether the hub may read `operand` until the answer arrives or `tracker` is done.
    """

    request: Request
    step: int
    product: Product
    operand: NDArray[Any]
    sent_at: float
    report_fields: ReportFields[float] = _NO_REPORT
    pieces: list[NDArray[Any]] = field(default_factory=list)
    tracker: Any = None
    is_borrowed: bool = False
    row_count: int = field(init=False)

    def __post_init__(self) -> None:
        self.row_count = count_rows(self.request.intervals)

    @property
    def machine(self) -> int:  # noqa: D102
        return self.request.machine

    @property
    def intervals(self) -> Intervals:
        """The rows, ascending."""
        return self.request.intervals

    @property
    def has_failed(self) -> bool:
        """Whether the machine raised an exception, or answered for another machine."""
        fields = self.report_fields
        return bool(fields.failed) or fields.machine != self.machine

    @property
    def is_sending(self) -> bool:
        """Whether the hub may still read `operand`."""
        return self.is_borrowed and not (self.tracker and self.tracker.done)


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
        Whether a call is in progress or was interrupted. After an interrupt, the hub cannot be used
        again.
    """

    clock: Clock
    roster: Roster
    is_poisoned: bool

    def events(self, until: float = -math.inf) -> Iterator[Event]:
        """Yield the events since the last call.

        If there are none, wait for events until this time on the clock, but at most for a fraction
        of a second, so that the caller can check whether the run was stopped.
        """

    def expected_machines(self) -> set[int]:
        """Return the machines that open their shards or may still join."""

    def pending_jobs(self) -> dict[int, Job]:
        """Return the unanswered jobs by machine, without those of unresponsive machines."""

    def send_jobs(self, rank: int, jobs: tuple[Job, ...]) -> None:
        """Send jobs to the host of their machines, which must be idle."""

    def mark_late(self, machine: int) -> None:
        """Record that the step no longer waits for a machine."""

    def mark_unresponsive(self, machine: int, reason: str) -> None:
        """Treat the host of an unresponsive machine as lost; spares replace it.

        If it answers later, it keeps the machines that no spare has taken over, and is a spare for
        others.
        """

    def exclude(self, machine: int, reason: str, event_type: type[MachineUnavailable]) -> None:
        """Send no more jobs to a machine, nor to its host if the answers were wrong."""

    def adopt(self, rank: int, machine: int) -> None:
        """Make a host also carry a machine whose own host is lost or unresponsive."""

    def last_error(self, machine: int) -> str:
        """Return the last error of a machine."""


class JobsEndpoint:
    """The master's endpoint for steps whose machines answer one by one.

    Parameters
    ----------
    hub : ElasticHub
    """

    def __init__(self, hub: ElasticHub) -> None:
        self.hub = hub
        self._borrowing_jobs: list[Job] = []

    def send_jobs(
        self, step: int, product: Product, operands: Mapping[Request, NDArray[Any]]
    ) -> list[tuple[Job, ...]]:
        """Send jobs to idle machines.

        The jobs of a host are sent in one message, and the host sums their terms of X' V. Jobs
        whose terms replace different earlier terms are sent separately.

        Parameters
        ----------
        step : int
        product : Product
        operands : mapping of Request to ndarray
            W', shape (k, r), or the coefficients of the rows of the request, (row_count, k);
            contiguous, in the dtype in which products are computed. It is not copied, and must not
            change while `is_sending` returns True.

        Returns
        -------
        list of tuple of Job
            The jobs of each message.
        """
        groups: dict[tuple[int, Term | None], list[Request]] = {}
        for request in operands:
            rank = self.hub.roster.host_of(request.machine).rank
            replaced = request.term.replaces if request.term else None
            groups.setdefault((rank, replaced), []).append(request)
        batches = []
        for (rank, _), requests in groups.items():
            now = self.hub.clock.monotonic()
            jobs = tuple(
                Job(request, step, product, operands[request], now) for request in requests
            )
            self.hub.send_jobs(rank, jobs)
            self._borrowing_jobs += [job for job in jobs if job.is_borrowed]
            batches.append(jobs)
        return batches

    def is_sending(self, array: NDArray[Any]) -> bool:
        """Whether an array shares memory with an operand that may still be sent to a machine."""
        self._borrowing_jobs = [job for job in self._borrowing_jobs if job.is_sending]
        return any(np.may_share_memory(job.operand, array) for job in self._borrowing_jobs)
