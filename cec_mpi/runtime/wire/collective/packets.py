"""Messages of lockstep: an order with a short vector, an answer with its report, long vectors.

The time of a small step is that of its messages. So short data goes with the order, in one message
to each machine, and an answer with its report in one message back: no rank waits for a third one,
as it would in a collective along a tree. Rank 0 makes the requests of these messages once and
starts them all in one call, which takes a third of the time of new requests.

A long vector to ranks on several nodes is sent by the master only once: each machine gets a part,
and passes it on to the others while the master sends the next parts. On one node it is a Bcast,
which copies from shared memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.waiting import MAX_SLEEP_SECONDS, WaitHistory, wait_for
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.times import MAX_ORDER_SLEEP
from cec_mpi.runtime.wire.orders import (
    MASTER,
    SHORT_ANSWERS,
    SHORT_IN_ALL,
    SHORT_VECTOR,
    Opening,
    Order,
    ReportFields,
)

_NUMBER = 8  # bytes
_HEADER = len(Order._fields)
ORDER_BYTES = _HEADER * _NUMBER
_REPORT = ReportFields.size()
_REPORT_NUMBERS = struct.Struct(f"={_REPORT}d")
Floats = NDArray[np.float64]
_ORDER, _ANSWER = 1, 2  # tags
MAX_EXCHANGES = 4  # products whose messages are kept
_MAX_REQUESTS = 4  # sizes of orders whose requests are kept
_MIN_PART = 1 << 13  # bytes
_MAX_ROUNDS = 16


class Sizes:
    """The sizes of shared data and answers of a step, in bytes.

    Parameters
    ----------
    opening : Opening
    """

    def __init__(self, opening: Opening) -> None:
        manifest = opening.manifest
        self._machines = sum(map(bool, opening.machines))
        self._columns, self._itemsize = manifest.columns, opening.arithmetic.itemsize
        self._answers = manifest.code.recovery * manifest.rows_per_shard

    def shared(self, product: Product) -> int:
        """Return the size of W, or of the coefficients of all machines."""
        numbers = self._answers if product.adjoint else self._columns
        return numbers * product.columns * self._itemsize

    def answers_are_short(self, product: Product) -> bool:
        """Whether answers are sent with the reports."""
        if product.adjoint:
            sums = self._columns * product.columns * _NUMBER
            return self._machines * sums <= SHORT_ANSWERS
        return self._answers * product.columns * self._itemsize <= SHORT_ANSWERS


class Orders:
    """Orders with short data, from the master to each machine.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm

    Attributes
    ----------
    order : (5,) ndarray of int64
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm, self._machines = comm, range(1, comm.size)
        most = min(SHORT_VECTOR, SHORT_IN_ALL // max(1, comm.size - 1))
        self._numbers = np.zeros(_HEADER + most // _NUMBER, dtype=np.int64)
        self.order = self._numbers[:_HEADER]
        self._content = self._numbers[_HEADER:].view(np.uint8)
        self._requests: dict[int, list[MPI.Prequest]] = {}  # to all machines, by size
        self._sent: list[MPI.Prequest] = []
        self._received: MPI.Prequest | None = None  # the request of a machine
        self._history = WaitHistory()

    def buffer(self, size: int) -> NDArray[np.uint8] | None:
        """Return the buffer for the shared data of a step; None if it is sent on its own."""
        return self._content[:size] if size <= self._content.size else None

    def send(self, size: int = 0) -> None:
        """Begin to send the order with so many bytes of shared data."""
        length = _HEADER + -(-size // _NUMBER)
        if length not in self._requests:
            if len(self._requests) == _MAX_REQUESTS:
                self.free()
            message, send_init = self._numbers[:length], self._comm.Send_init
            self._requests[length] = [send_init(message, rank, _ORDER) for rank in self._machines]
        self._sent = self._requests[length]
        MPI.Prequest.Startall(self._sent)

    def finish(self) -> None:
        """Wait until the order is sent, so that the next one can be written."""
        if not MPI.Request.Testall(self._sent):
            wait_for(self._sent)

    def free(self) -> None:
        """Free the requests, none of which is active."""
        for requests in self._requests.values():
            free_requests(requests)
        self._requests.clear()
        if self._received is not None:
            self._received.Free()

    def receive(self, idle: bool, sent: Sequence[MPI.Prequest]) -> Order:
        """Receive an order on a machine, and complete the answer that was sent before.

        A machine that is `idle` sleeps longer.
        """
        if self._received is None:
            self._received = self._comm.Recv_init(self._numbers, MASTER, _ORDER)
        self._received.Start()
        max_sleep = MAX_ORDER_SLEEP if idle else MAX_SLEEP_SECONDS
        wait_for([self._received, *sent], max_sleep=max_sleep, history=self._history)
        return Order(*self.order.tolist())


class Layout:
    """The parts of each rank in the steps of an assignment with this number of columns.

    Parameters
    ----------
    rows : (P,) ndarray of int
        Number of rows of each rank.
    columns : int
        Columns of W or V, k.
    dtype : numpy.dtype
        Dtype of shared data, and of answers to X W.

    Attributes
    ----------
    parts : tuple of (P,) ndarray of int
        Number of values of each rank, and where they begin.
    last_indices : ndarray of int
        Index of the last value of each rank that has values.
    """

    def __init__(self, rows: NDArray[np.int64], columns: int, dtype: np.dtype[Any]) -> None:
        self._numbers = (rows * columns).tolist()
        self._columns, self._dtype = columns, dtype
        self.parts = _counts_and_displs(self._numbers)
        self.last_indices = (np.cumsum(rows * columns) - 1)[rows > 0]

    def gather_buffer(self, adjoint: bool, columns: int) -> GatherBuffer:
        """Return a buffer for answers with their reports.

        For X' V each machine with rows answers with r * k numbers of float64, where r is `columns`.
        """
        if not adjoint:
            return GatherBuffer(self._numbers, self._dtype)
        numbers = [columns * self._columns if n else 0 for n in self._numbers]
        return GatherBuffer(numbers, np.dtype(np.float64))


class GatherBuffer:
    """The buffer for answers and reports, ordered by rank, without the master.

    Parameters
    ----------
    numbers : list of int
        Of each rank's answers.
    dtype : numpy.dtype
        Of these.

    Attributes
    ----------
    messages : list of ndarray of float64
        The parts of the buffer that each rank from 1 on fills.
    requests : list of mpi4py.MPI.Prequest
        Those that receive the messages.
    """

    def __init__(self, numbers: list[int], dtype: np.dtype[Any]) -> None:
        sizes, starts = _counts_and_displs([packed_size(n, dtype) for n in numbers[1:]])
        self._buffer = np.empty(int(sizes.sum()))
        self.messages = np.split(self._buffer, starts[1:])
        self.requests: list[MPI.Prequest] = []
        self._reports = starts[:, np.newaxis] + np.arange(_REPORT)
        answers = zip(self.messages, numbers[1:], strict=True)
        self._answers = [part[_REPORT:].view(dtype)[:count] for part, count in answers if count]

    def receive(self, comm: MPI.Intracomm) -> None:
        """Begin to receive; what does not come is NaN, which counts as failed."""
        self.clear()
        if not self.requests:
            numbered = enumerate(self.messages, start=1)
            self.requests = [comm.Recv_init(part, rank, _ANSWER) for rank, part in numbered]
        MPI.Prequest.Startall(self.requests)

    def clear(self) -> None:
        """Fill the buffer with NaN, which counts as failed."""
        self._buffer.fill(np.nan)
        if self._answers[0].itemsize != _NUMBER:
            for answer in self._answers:
                answer.fill(np.nan)

    def reports(self, out: Floats) -> None:
        """Copy the reports of ranks from 1 on."""
        self._buffer.take(self._reports, out=out, mode="clip")

    def concatenate_into(self, out: NDArray[Any]) -> None:
        """Copy all answers."""
        np.concatenate(self._answers, out=out)

    def sum_into(self, out: NDArray[Any]) -> None:
        """Add up the answers, in the order of ranks."""
        first, *others = self._answers
        out[:] = first
        for answer in others:
            out += answer


class AnswerMessage:
    """The message of a machine with a report and short answers, and its request.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    numbers : int
        Number of the answers.
    dtype : numpy.dtype
        Dtype of the answers.

    Attributes
    ----------
    request : mpi4py.MPI.Prequest
    """

    def __init__(self, comm: MPI.Intracomm, numbers: int, dtype: np.dtype[Any]) -> None:
        self._buffer = np.zeros(packed_size(numbers, dtype))
        self._answers = self._buffer[_REPORT:].view(dtype)[:numbers]
        self.request = comm.Send_init(self._buffer, MASTER, _ANSWER)

    def start(self, report: ReportFields[float], values: NDArray[Any]) -> None:
        """Begin to send; the last message must have been sent."""
        _REPORT_NUMBERS.pack_into(self._buffer.data, 0, *report)
        self._answers[:] = values
        self.request.Start()


def free_requests(requests: list[MPI.Prequest]) -> None:
    """Free persistent requests."""
    for request in requests:
        request.Free()
    requests.clear()


def packed_size(numbers: int, dtype: np.dtype[Any]) -> int:
    """Return the size of a report and its answers, in numbers of float64."""
    return _REPORT + -(-numbers * dtype.itemsize // _NUMBER)


def _counts_and_displs(numbers: list[int]) -> tuple[NDArray[np.intc], NDArray[np.intc]]:
    counts = np.array(numbers, dtype=np.intc)
    places = np.zeros_like(counts)
    np.cumsum(counts[:-1], out=places[1:])
    return counts, places


def broadcast(
    comm: MPI.Intracomm,
    array: NDArray[Any],
    transfer: int = 0,
) -> None:
    """Collective: send from the master to all; see `wait_for` for `transfer`."""
    wait_for([comm.Ibcast(array, root=MASTER)], transfer)


def check_buffer(name: str, array: NDArray[Any], dtype: np.dtype[Any], size: int) -> None:
    """Raise if MPI would misread an array.

    Raises
    ------
    InputError
    """
    if array.dtype != dtype or array.size != size or not array.flags.c_contiguous:
        raise InputError(
            f"{name} of shape {array.shape} and dtype {array.dtype}"
            f"{'' if array.flags.c_contiguous else ', not contiguous'}: "
            f"expected {size} numbers of {dtype}, contiguous"
        )


def broadcast_vector(comm: MPI.Intracomm, array: NDArray[Any], several_nodes: bool) -> None:
    """Collective: from the master to all.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    array : ndarray
        Contiguous, of the same size and dtype on all ranks; overwritten but on the master.
    several_nodes : bool
        The same on all ranks.
    """
    numbers, machines = array.reshape(-1), comm.size - 1
    rounds = min(_MAX_ROUNDS, numbers.nbytes // (machines * _MIN_PART))
    if machines == 1 or not several_nodes or not rounds:
        broadcast(comm, array, array.nbytes)
        return
    cuts = split_into_rounds(numbers.size, machines, rounds)
    if comm.rank == MASTER:
        no_data = [numbers[:0], (np.zeros_like(cuts[0][0]), np.zeros_like(cuts[0][0]))]
        scattered = [comm.Iscatterv([numbers, parts], no_data[0], root=MASTER) for parts in cuts]
        exchanges = [comm.Ialltoallv(no_data, no_data) for _ in cuts]
        wait_for([*scattered, *exchanges], array.nbytes)
        return
    mine = [np.empty(counts[comm.rank], numbers.dtype) for counts, _ in cuts]
    scattered = [comm.Iscatterv(None, part, root=MASTER) for part in mine]
    exchanges = []
    for scatter, part, (counts, starts) in zip(scattered, mine, cuts, strict=True):
        wait_for([scatter], array.nbytes)
        sent = np.full_like(counts, part.size)
        sent[MASTER] = 0
        exchanges.append(
            comm.Ialltoallv([part, (sent, np.zeros_like(sent))], [numbers, (counts, starts)])
        )
    wait_for(exchanges, array.nbytes)


def split_into_rounds(
    size: int, machines: int, rounds: int
) -> list[tuple[NDArray[np.intc], NDArray[np.intc]]]:
    """Return for each round how many numbers each rank gets, and where they begin.

    Examples
    --------
    >>> [(counts.tolist(), starts.tolist()) for counts, starts in split_into_rounds(11, 2, 2)]
    [([0, 3, 3], [0, 0, 3]), ([0, 2, 3], [6, 6, 8])]
    """
    bounds = np.linspace(0, size, rounds * machines + 1).round().astype(np.intc)
    found = []
    for first in range(0, rounds * machines, machines):
        edges = bounds[first : first + machines + 1]
        found.append((np.diff(edges, prepend=edges[:1]), np.concatenate((edges[:1], edges[:-1]))))
    return found
