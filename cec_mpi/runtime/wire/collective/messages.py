"""Messages in lockstep: an order with a short operand, an answer with its report, long vectors.

Messages determine the time of a small step. Therefore a short operand is sent with the order, in
one message to each machine, and a short answer with its report, in one message back. Unlike in a
collective along a tree, no rank waits for a third one. Rank 0 creates persistent requests for these
messages and starts them in one call, which takes a third of the time of new requests.

If ranks are on several nodes, the master sends a long vector only once: each machine gets a part,
which it sends to the others while the master sends the next parts. On one node a vector is sent by
Bcast, which copies from shared memory.
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
    MAX_INLINE_ANSWERS,
    MAX_INLINE_OPERAND,
    MAX_INLINE_TOTAL,
    Opening,
    Order,
    ReportFields,
)

_NUMBER_BYTES = 8
_HEADER_LENGTH = len(Order._fields)
ORDER_BYTES = _HEADER_LENGTH * _NUMBER_BYTES
_REPORT_LENGTH = ReportFields.size()
_REPORT_STRUCT = struct.Struct(f"={_REPORT_LENGTH}d")
_ORDER_TAG, _ANSWER_TAG = 1, 2
MAX_EXCHANGES = 4  # products whose persistent requests are kept
_MAX_ORDER_SIZES = 4  # sizes of orders whose persistent requests are kept
_MIN_PART_BYTES = 1 << 13  # of a vector, to each machine in each round
_MAX_ROUNDS = 16


class StepSizes:
    """Sizes of operands and answers of steps, in bytes.

    Parameters
    ----------
    opening : Opening
    """

    def __init__(self, opening: Opening) -> None:
        manifest = opening.manifest
        self._machine_count = sum(map(bool, opening.machines))
        self._columns, self._itemsize = manifest.columns, opening.arithmetic.itemsize
        self._answer_rows = manifest.code.recovery * manifest.rows_per_shard

    def operand_bytes(self, product: Product) -> int:
        """Return the size of W or of all coefficients."""
        rows = self._answer_rows if product.adjoint else self._columns
        return rows * product.columns * self._itemsize

    def are_answers_inline(self, product: Product) -> bool:
        """Whether answers are sent in the messages of their reports."""
        if product.adjoint:
            term_bytes = self._columns * product.columns * _NUMBER_BYTES
            return self._machine_count * term_bytes <= MAX_INLINE_ANSWERS
        return self._answer_rows * product.columns * self._itemsize <= MAX_INLINE_ANSWERS


class OrderChannel:
    """Sends orders, which may contain a short operand, from the master to each machine.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm

    Attributes
    ----------
    header : (5,) ndarray of int64
        Header of the current order.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm, self._machine_ranks = comm, range(1, comm.size)
        max_bytes = min(MAX_INLINE_OPERAND, MAX_INLINE_TOTAL // max(1, comm.size - 1))
        self._message = np.zeros(_HEADER_LENGTH + max_bytes // _NUMBER_BYTES, dtype=np.int64)
        self.header = self._message[:_HEADER_LENGTH]
        self._operand = self._message[_HEADER_LENGTH:].view(np.uint8)
        self._send_requests: dict[int, list[MPI.Prequest]] = {}  # to all machines, by size
        self._active_sends: list[MPI.Prequest] = []
        self._receive_request: MPI.Prequest | None = None  # on a machine
        self._history = WaitHistory()

    def operand_buffer(self, size: int) -> NDArray[np.uint8] | None:
        """Return the buffer for an operand; None if the operand is sent separately."""
        return self._operand[:size] if size <= self._operand.size else None

    def send(self, size: int = 0) -> None:
        """Begin to send the order with this number of bytes of the operand."""
        length = _HEADER_LENGTH + -(-size // _NUMBER_BYTES)
        if length not in self._send_requests:
            if len(self._send_requests) == _MAX_ORDER_SIZES:
                self.free()
            message, send_init = self._message[:length], self._comm.Send_init
            self._send_requests[length] = [
                send_init(message, rank, _ORDER_TAG) for rank in self._machine_ranks
            ]
        self._active_sends = self._send_requests[length]
        MPI.Prequest.Startall(self._active_sends)

    def finish(self) -> None:
        """Wait until the order is sent, so that the message can be overwritten."""
        if not MPI.Request.Testall(self._active_sends):
            wait_for(self._active_sends)

    def free(self) -> None:
        """Free the requests; none may be active."""
        for requests in self._send_requests.values():
            free_requests(requests)
        self._send_requests.clear()
        if self._receive_request is not None:
            self._receive_request.Free()

    def receive(self, answer_requests: Sequence[MPI.Prequest], is_idle: bool) -> Order:
        """Receive an order on a machine, and complete the requests of its previous answer.

        A machine that has not opened a store yet (`is_idle`) sleeps longer between polls.
        """
        if self._receive_request is None:
            self._receive_request = self._comm.Recv_init(self._message, MASTER, _ORDER_TAG)
        self._receive_request.Start()
        max_sleep = MAX_ORDER_SLEEP if is_idle else MAX_SLEEP_SECONDS
        requests = [self._receive_request, *answer_requests]
        wait_for(requests, max_sleep=max_sleep, history=self._history)
        return Order(*self.header.tolist())


class Layout:
    """Counts and displacements of the values of each rank in the steps of an assignment.

    Parameters
    ----------
    rows : (P,) ndarray of int
        Number of rows of each rank.
    columns : int
        Columns of W or V, k.
    dtype : numpy.dtype
        Dtype of operands, and of answers to X W.

    Attributes
    ----------
    counts_and_displs : tuple of (P,) ndarray of int
        Number and displacement of the values of each rank.
    last_indices : ndarray of int
        Index of the last value of each rank that has values.
    """

    def __init__(self, rows: NDArray[np.int64], columns: int, dtype: np.dtype[Any]) -> None:
        self._counts = (rows * columns).tolist()
        self._columns, self._dtype = columns, dtype
        self.counts_and_displs = _counts_and_displs(self._counts)
        self.last_indices = (np.cumsum(rows * columns) - 1)[rows > 0]

    def gather_buffer(self, adjoint: bool, x_columns: int) -> GatherBuffer:
        """Return a buffer for answers with their reports; X has `x_columns` columns, r.

        For X' V each machine with rows answers with r * k values of float64.
        """
        if not adjoint:
            return GatherBuffer(self._counts, self._dtype)
        counts = [x_columns * self._columns if n else 0 for n in self._counts]
        return GatherBuffer(counts, np.dtype(np.float64))


class GatherBuffer:
    """Buffer for the messages of all machines, each a report with its answer, ordered by rank.

    Parameters
    ----------
    counts : list of int
        Number of values of each rank's answer.
    dtype : numpy.dtype
        Dtype of the answers.

    Attributes
    ----------
    messages : list of ndarray of float64
        The part of the buffer for each rank, from rank 1.
    requests : list of mpi4py.MPI.Prequest
        Persistent requests that receive the messages.
    """

    def __init__(self, counts: list[int], dtype: np.dtype[Any]) -> None:
        sizes, starts = _counts_and_displs([packed_size(n, dtype) for n in counts[1:]])
        self._buffer = np.empty(int(sizes.sum()))
        self.messages = np.split(self._buffer, starts[1:])
        self.requests: list[MPI.Prequest] = []
        self._report_indices = starts[:, np.newaxis] + np.arange(_REPORT_LENGTH)
        pairs = zip(self.messages, counts[1:], strict=True)
        self._answers = [
            message[_REPORT_LENGTH:].view(dtype)[:count] for message, count in pairs if count
        ]

    def receive(self, comm: MPI.Intracomm) -> None:
        """Begin to receive; missing values are NaN, which counts as failed."""
        self.fill_with_nan()
        if not self.requests:
            by_rank = enumerate(self.messages, start=1)
            self.requests = [comm.Recv_init(buffer, rank, _ANSWER_TAG) for rank, buffer in by_rank]
        MPI.Prequest.Startall(self.requests)

    def fill_with_nan(self) -> None:
        """Fill the buffer with NaN, which counts as failed."""
        self._buffer.fill(np.nan)
        if self._answers[0].itemsize != _NUMBER_BYTES:
            for answer in self._answers:
                answer.fill(np.nan)

    def copy_reports(self, out: NDArray[np.float64]) -> None:
        """Copy the reports of the machines, ordered by rank."""
        self._buffer.take(self._report_indices, out=out, mode="clip")

    def concatenate_into(self, out: NDArray[Any]) -> None:
        """Concatenate the answers, in the order of ranks."""
        np.concatenate(self._answers, out=out)

    def sum_into(self, out: NDArray[Any]) -> None:
        """Sum the answers, in the order of ranks."""
        first, *others = self._answers
        out[:] = first
        for answer in others:
            out += answer


class AnswerMessage:
    """The message of a machine with a report and a short answer, and its request.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    count : int
        Number of values of the answer.
    dtype : numpy.dtype
        Dtype of the answer.

    Attributes
    ----------
    request : mpi4py.MPI.Prequest
        Persistent request that sends the message.
    """

    def __init__(self, comm: MPI.Intracomm, count: int, dtype: np.dtype[Any]) -> None:
        self._buffer = np.zeros(packed_size(count, dtype))
        self._answer = self._buffer[_REPORT_LENGTH:].view(dtype)[:count]
        self.request = comm.Send_init(self._buffer, MASTER, _ANSWER_TAG)

    def start(self, report: ReportFields[float], values: NDArray[Any]) -> None:
        """Begin to send; the previous send must be complete."""
        _REPORT_STRUCT.pack_into(self._buffer.data, 0, *report)
        self._answer[:] = values
        self.request.Start()


def free_requests(requests: list[MPI.Prequest]) -> None:
    """Free persistent requests."""
    for request in requests:
        request.Free()
    requests.clear()


def packed_size(count: int, dtype: np.dtype[Any]) -> int:
    """Return the size of a message with a report and `count` values, in numbers of float64."""
    return _REPORT_LENGTH + -(-count * dtype.itemsize // _NUMBER_BYTES)


def _counts_and_displs(sizes: list[int]) -> tuple[NDArray[np.intc], NDArray[np.intc]]:
    counts = np.array(sizes, dtype=np.intc)
    displs = np.zeros_like(counts)
    np.cumsum(counts[:-1], out=displs[1:])
    return counts, displs


def broadcast(comm: MPI.Intracomm, array: NDArray[Any], transfer: int = 0) -> None:
    """Broadcast from the master (collective); see `wait_for` for `transfer`."""
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


def broadcast_vector(comm: MPI.Intracomm, array: NDArray[Any], is_multi_node: bool) -> None:
    """Broadcast a vector from the master (collective).

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    array : ndarray
        Contiguous, of the same size and dtype on all ranks; overwritten except on the master.
    is_multi_node : bool
        Whether ranks are on several nodes; the same on all ranks.
    """
    vector, machines = array.reshape(-1), comm.size - 1
    rounds = min(_MAX_ROUNDS, vector.nbytes // (machines * _MIN_PART_BYTES))
    if machines == 1 or not is_multi_node or not rounds:
        broadcast(comm, array, array.nbytes)
        return
    layouts = split_into_rounds(vector.size, machines, rounds)
    if comm.rank == MASTER:
        no_data = [vector[:0], (np.zeros_like(layouts[0][0]), np.zeros_like(layouts[0][0]))]
        scatters = [comm.Iscatterv([vector, layout], no_data[0], root=MASTER) for layout in layouts]
        exchanges = [comm.Ialltoallv(no_data, no_data) for _ in layouts]
        wait_for([*scatters, *exchanges], array.nbytes)
        return
    own_parts = [np.empty(counts[comm.rank], vector.dtype) for counts, _ in layouts]
    scatters = [comm.Iscatterv(None, part, root=MASTER) for part in own_parts]
    exchanges = []
    for scatter, part, layout in zip(scatters, own_parts, layouts, strict=True):
        wait_for([scatter], array.nbytes)
        send_counts = np.full_like(layout[0], part.size)
        send_counts[MASTER] = 0
        exchanges.append(
            comm.Ialltoallv([part, (send_counts, np.zeros_like(send_counts))], [vector, layout])
        )
    wait_for(exchanges, array.nbytes)


def split_into_rounds(
    size: int, machines: int, rounds: int
) -> list[tuple[NDArray[np.intc], NDArray[np.intc]]]:
    """Return the counts and displacements of the parts of all ranks in each round.

    Examples
    --------
    >>> [(counts.tolist(), displs.tolist()) for counts, displs in split_into_rounds(11, 2, 2)]
    [([0, 3, 3], [0, 0, 3]), ([0, 2, 3], [6, 6, 8])]
    """
    bounds = np.linspace(0, size, rounds * machines + 1).round().astype(np.intc)
    layouts = []
    for first in range(0, rounds * machines, machines):
        edges = bounds[first : first + machines + 1]
        layouts.append((np.diff(edges, prepend=edges[:1]), np.concatenate((edges[:1], edges[:-1]))))
    return layouts
