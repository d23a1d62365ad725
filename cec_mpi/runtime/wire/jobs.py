"""Jobs: parts of a step that machines answer one by one, and the master's end that sends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.elastic.events import Change, MachineUnavailable, Request
from cec_mpi.core.elastic.terms import Term
from cec_mpi.core.plan.assignment import Intervals, count_rows
from cec_mpi.runtime.processes.waiting import Clock
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.wire.orders import Opening, ReportFields

_REPORT = ReportFields.size()  # numbers of a report
# Bytes of buffers that are kept: 4 times those of a step, at least 16 MiB.
_STEPS, _MIN_KEPT_BYTES = 4, 16 << 20
_OVERHEAD = 1024  # bytes of a buffer beside its numbers


@dataclass(eq=False)
class Job:
    """A job of a machine: the rows of a request.

    Attributes
    ----------
    request : Request
    step : int
    product : Product
    content : ndarray
        What the rows are multiplied with: W, shape (k, r), or coefficients, (count, k).
    values : ndarray
        Receives the answers to X W, (count * k,), or the part of the sum X' V, (r * k,) of
        float64, which is that of several jobs if a host sums their parts.
    sent_at : float
        When the job was sent, in seconds of the hub's clock.
    report : (8,) ndarray of float64
        Receives the report; NaN counts as failed.
    tracker : zmq.MessageTracker or None
        Whether ZeroMQ has released `content`.
    is_held : bool
        Whether the hub reads `content` until the answer, or until `tracker` is done.
    """

    request: Request
    step: int
    product: Product
    content: NDArray[Any]
    values: NDArray[Any]
    sent_at: float
    report: NDArray[np.float64] = field(default_factory=lambda: np.full(_REPORT, np.nan))
    tracker: Any = None
    is_held: bool = False

    @property
    def machine(self) -> int:  # noqa: D102
        return self.request.machine

    @property
    def intervals(self) -> Intervals:
        """The rows, ascending."""
        return self.request.intervals

    @property
    def count(self) -> int:
        """The number of rows."""
        return count_rows(self.request.intervals)

    @property
    def report_fields(self) -> ReportFields[float]:
        """The report of the machine."""
        return ReportFields(*self.report.tolist())

    @property
    def failed(self) -> bool:
        """Whether the machine raised an exception, or answered for another machine."""
        fields = self.report_fields
        return bool(fields.failed) or fields.shard != self.machine

    @property
    def leaving(self) -> bool:
        """Whether the host must leave soon."""
        return bool(self.report_fields.leaving)

    def bound_report(self, seconds: float, size: int) -> None:
        """Bound the reported times and bytes by what is possible.

        Parameters
        ----------
        seconds : float
            Since the job was sent.
        size : int
            Bytes of the shard.
        """
        found = self.report_fields
        for place, number, most in (
            (1, found.seconds, seconds),
            (2, found.load_seconds, seconds),
            (3, found.load_bytes, size),
        ):
            if not 0.0 <= number <= most:
                self.report[place] = most if number > most else 0.0

    @property
    def is_sending(self) -> bool:
        """Whether the hub may still read `content`."""
        return self.is_held and not (self.tracker and self.tracker.done)


@dataclass(frozen=True)
class JobsAnswered:
    """Jobs that a host was sent together, in this step or an earlier one, were answered."""

    jobs: tuple[Job, ...]


Event = JobsAnswered | Change


class ElasticHub(Protocol):
    """What a hub does with machines that get jobs one by one, and may be late, lost or new.

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

    def events(self) -> Iterator[Event]:
        """Yield what has happened since the last call; never waits."""

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
        """Have a host carry a machine as well that has no host, or a silent one."""

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
        self._manifest = opening.manifest
        self._arithmetic = opening.arithmetic
        self._buffers: dict[tuple[int, np.dtype[Any]], list[NDArray[Any]]] = {}
        self._kept = 0  # bytes of these
        self._sent: list[Job] = []

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
            values = self._values(product, requests)
            now = self.hub.clock.monotonic()
            jobs = tuple(
                Job(request, step, product, contents[request], array, now)
                for request, array in zip(requests, values, strict=True)
            )
            self.hub.send_jobs(rank, jobs)
            self._sent += [job for job in jobs if job.is_sending]
            found.append(jobs)
        return found

    def is_sending(self, content: NDArray[Any]) -> bool:
        """Whether an array shares memory with what may still be sent, to lost machines too."""
        self._sent = [job for job in self._sent if job.is_sending]
        return any(np.may_share_memory(job.content, content) for job in self._sent)

    def release(self, jobs: Iterable[Job]) -> None:
        """Reuse the arrays of these jobs, which have been answered."""
        released = distinct(job.values for job in jobs)
        size = sum(map(_size_of, released))
        if self._kept + size > max(_MIN_KEPT_BYTES, _STEPS * size):  # of earlier plans
            self._buffers.clear()
            self._kept = 0
        self._kept += size
        for values in released:
            self._buffers.setdefault((values.size, values.dtype), []).append(values)

    def _values(self, product: Product, requests: Sequence[Request]) -> list[NDArray[Any]]:
        """Return arrays for the answers to requests; terms that are summed have one."""
        if product.adjoint:
            size = self._manifest.columns * product.columns
            return [self._array(size, np.dtype(np.float64))] * len(requests)
        counts = (count_rows(request.intervals) for request in requests)
        return [self._array(count * product.columns, self._arithmetic) for count in counts]

    def _array(self, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        kept = self._buffers.get((size, dtype))
        if not kept:
            return np.full(size, np.nan, dtype)
        values = kept.pop()
        self._kept -= _size_of(values)
        values.fill(np.nan)  # so that a short answer is not taken for a whole one
        return values


def distinct(arrays: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return arrays without repetitions of the same one."""
    return list({id(array): array for array in arrays}.values())


def _size_of(values: NDArray[Any]) -> int:
    return int(values.nbytes) + _OVERHEAD
