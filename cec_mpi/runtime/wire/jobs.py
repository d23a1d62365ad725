"""Jobs: parts of a step that machines answer one by one, and the end that sends them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.elastic.events import Change, Request
from cec_mpi.core.elastic.terms import Term
from cec_mpi.core.plan.assignment import Intervals, count_rows
from cec_mpi.errors import InputError
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.orders import Opening, Reported
from cec_mpi.store.format.manifest import Manifest

if TYPE_CHECKING:
    from cec_mpi.runtime.wire.protocol import ElasticHub

_MOST = 2**31 - 1  # numbers in one message: Open MPI 5 fails beyond
_MOST_REPORTED = 2.0**62  # seconds or bytes: more than either can be
_REPORT = Reported.size()  # numbers of a report
# Bytes of buffers that are kept: 4 times those of a step, at least 16 MiB.
_STEPS, _LEAST = 4, 16 << 20
_OVERHEAD = 1024  # bytes of a buffer beside its numbers


@dataclass(frozen=True)
class Answers:
    """The answers of the machines to a step.

    Attributes
    ----------
    values : ndarray
        For X W all answers, (machines_per_row * R * k,), in the order of machines (see
        `Assignment.positions`); NaN if an answer was short. For X' V the sum of all answers,
        (r * k,), float64. The next step overwrites it.
    seconds : (N,) ndarray of float64
        Computation time of machines 1..N, 0 if preempted.
    load_seconds, load_bytes : (N,) ndarray of float64
        Time and bytes for reading rows that machines 1..N had not read before.
    failed : list of int
        Machines that raised an exception.
    leaving : list of int
        Machines that must leave soon.
    not_finite : list of int
        Machines whose part of the sum X' V has NaN or infinity.
    damaged : list of int
        Machines that failed because their shards are damaged.
    """

    values: NDArray[Any]
    seconds: NDArray[np.float64]
    load_seconds: NDArray[np.float64]
    load_bytes: NDArray[np.float64]
    failed: list[int]
    leaving: list[int] = field(default_factory=list)
    not_finite: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


def credible(reported: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace reported seconds and bytes that are out of range with 0, in place.

    Examples
    --------
    >>> credible(np.array([0.5, -1.0, np.nan, np.inf]))
    array([0.5, 0. , 0. , 0. ])
    """
    if not (reported.min() >= 0 and reported.max() < _MOST_REPORTED):  # as in hardly any step
        reported[~((reported >= 0) & (reported < _MOST_REPORTED))] = 0
    return reported


class AnswerBuffers:
    """Arrays for the `Answers.values` of a store; the last array of each kind is kept.

    Parameters
    ----------
    manifest : Manifest
    arithmetic : dtype
        Of answers to X W.
    """

    def __init__(self, manifest: Manifest, arithmetic: np.dtype[Any]) -> None:
        self._forward = manifest.code.recovery * manifest.rows_per_shard, arithmetic
        self._adjoint = manifest.columns, np.dtype(np.float64)
        self._kept: dict[Product, NDArray[Any]] = {}

    def of(self, product: Product) -> NDArray[Any]:
        """Return the array for the answers to this product; its content is undefined."""
        if product not in self._kept:
            others = {p: v for p, v in self._kept.items() if p.adjoint != product.adjoint}
            self._kept = {p: v for p, v in self._kept.items() if p.columns == 1} | others
            rows, dtype = self._adjoint if product.adjoint else self._forward
            self._kept[product] = np.empty(rows * product.columns, dtype)
        return self._kept[product]


def check_message_sizes(manifest: Manifest, columns: int = 1) -> None:
    """Raise if a vector or the answers are too long for one MPI message.

    Raises
    ------
    InputError
        W or V, or the answers of a step, have 2**31 numbers or more.
    """
    for what, size in (
        ("W", manifest.columns),
        ("the answers of a step", manifest.code.recovery * manifest.rows_per_shard),
    ):
        if size * columns > _MOST:
            raise InputError(
                f"{what} would have {size * columns} numbers: an MPI message has at most {_MOST}"
            )


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
    begun : float
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
    begun: float
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
    def reported(self) -> Reported[float]:
        """The report of the machine."""
        return Reported(*self.report.tolist())

    @property
    def failed(self) -> bool:
        """Whether the machine raised an exception, or answered for another machine."""
        reported = self.reported
        return bool(reported.failed) or reported.shard != self.machine

    @property
    def leaving(self) -> bool:
        """Whether the host must leave soon."""
        return bool(self.reported.leaving)

    def bound_report(self, seconds: float, size: int) -> None:
        """Bound the reported times and bytes by what is possible.

        Parameters
        ----------
        seconds : float
            Since the job was sent.
        size : int
            Bytes of the shard.
        """
        found = self.reported
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
class Answered:
    """Jobs that a host was sent together, in this step or an earlier one, were answered."""

    jobs: tuple[Job, ...]


Event = Answered | Change


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

    def ask(
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
            self.hub.ask(rank, jobs)
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
        if self._kept + size > max(_LEAST, _STEPS * size):  # of earlier plans
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
