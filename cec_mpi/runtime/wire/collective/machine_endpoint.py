"""A machine's endpoint in lockstep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Assignment, Intervals
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.processes.packing import broadcast as broadcast_object
from cec_mpi.runtime.processes.packing import gather
from cec_mpi.runtime.processes.waiting import WaitHistory, wait_for
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.collective.packets import (
    MAX_EXCHANGES,
    AnswerMessage,
    Orders,
    Sizes,
    broadcast,
    broadcast_vector,
    check_buffer,
    free_requests,
)
from cec_mpi.runtime.wire.orders import (
    MASTER,
    Multiply,
    Open,
    Opening,
    OpenReport,
    Order,
    OrderContent,
    OrderKind,
    Part,
    ReportFields,
    Stop,
    Verdict,
    pack_report,
    parse_order,
)

_FLOAT64 = np.dtype(np.float64)


class CollectiveMachineEndpoint:
    """A machine's endpoint in lockstep.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._orders = Orders(comm)
        self._exchange = _Exchange(None, None)  # of the current step
        self._report = np.zeros(ReportFields.size())
        self._sent: list[MPI.Prequest] = []  # an answer that may be on its way
        self._history = WaitHistory()
        self._store_buffers: _StoreBuffers | None = None
        self._opening: Open | None = None
        self._problem = ""  # the last error

    def receive_order(self, signals: SignalRecorder) -> OrderContent:
        """Receive the order, and the assignment if it has changed."""
        # Before the store is open, rank 0 may load libraries for a second.
        order = self._orders.receive(idle=self._store_buffers is None, sent=self._sent)
        if order.kind > OrderKind.MULTIPLY_TRANSPOSED:
            return self._receive_payload(order, signals)
        served, intervals, product = self._buffers, None, order.product
        if order.length:
            plan = np.empty(order.length, dtype=np.int64)
            broadcast(self._comm, plan, plan.nbytes)
            intervals = served.assign(Assignment.from_array(plan))
        self._exchange = served.exchange_of(product)
        return Multiply(order.step, product, (Part(served.machine, intervals),))

    def _receive_payload(self, order: Order, signals: SignalRecorder) -> OrderContent:
        """Receive the rest of an order that is not a step."""
        if order.kind == OrderKind.LAST_ERRORS:
            gather(self._comm, self._problem, str)
            return self.receive_order(signals)
        message = np.empty(order.length, dtype=np.uint8)
        if order.length:
            broadcast(self._comm, message, message.nbytes)
        received = parse_order(order, message.tobytes(), self._comm.rank)
        if isinstance(received, Open):
            self._opening = received
        elif isinstance(received, Stop):
            self._orders.free()
            if self._store_buffers is not None:
                self._store_buffers.free()
        return received

    def wait_for_all(self) -> None:
        """Barrier."""
        wait_for([self._comm.Ibarrier()])

    def check_connection(self) -> None:
        """Do nothing: all ranks end together."""

    def send_open_report(self, report: OpenReport) -> Verdict:
        """Gather the reports of machines, and Bcast the master's verdict."""
        gather(self._comm, report, OpenReport)
        verdict = broadcast_object(self._comm, None, Verdict)
        order = self._opening
        assert order is not None
        if verdict.failure is None:
            given = self._comm, self._orders, order.opening, order.machine
            self._store_buffers = _StoreBuffers(*given)
        return verdict

    def receive_vector(self, order: Multiply) -> NDArray[Any]:
        """Receive W, or the part of this machine."""
        if self._exchange.vector is not None:
            return self._exchange.vector
        served, product = self._buffers, order.product
        values = served.receive_buffer(product)
        if product.adjoint:
            wait_for([self._comm.Iscatterv(None, values, root=MASTER)], values.nbytes)
        else:
            broadcast_vector(self._comm, values, served.several_nodes)
        return values

    def send_answer(
        self, order: Multiply, values: Sequence[NDArray[Any]], reports: Sequence[Report]
    ) -> None:
        """Send values and report of the machine; short ones in one message, not waiting for it."""
        (answers,), (report,) = values, reports
        served, product = self._buffers, order.product
        finite = not product.adjoint or bool(np.isfinite(answers).all())
        fields = pack_report(report, served.machine, finite)
        self._problem = report.problem or self._problem
        message = self._exchange.message
        if message is None:
            self._report[:] = fields
            self._send_separately(product, answers)
            return
        message.start(fields, answers if served.count else answers[:0])
        self._sent = [message.request]

    @property
    def _buffers(self) -> _StoreBuffers:
        assert self._store_buffers is not None
        return self._store_buffers

    def _send_separately(self, product: Product, values: NDArray[Any]) -> None:
        """Send answers and report in two collectives."""
        served = self._buffers
        if product.adjoint:
            check_buffer("the answer", values, _FLOAT64, served.columns * product.columns)
            value_request = self._comm.Ireduce(values, None, op=MPI.SUM, root=MASTER)
        else:
            check_buffer("the answer", values, served.dtype, served.count * product.columns)
            value_request = self._comm.Igatherv(values, None, root=MASTER)
        report_request = self._comm.Igather(self._report, None, root=MASTER)
        wait_for([value_request, report_request], values.nbytes, history=self._history)


class _Exchange(NamedTuple):
    """The short data of a machine in steps of one product, with the same rows.

    Attributes
    ----------
    vector : ndarray or None
        W, or the coefficients of this machine, in the order; None if they are sent separately.
    message : AnswerMessage or None
        For answers and report; None if they are sent separately.
    """

    vector: NDArray[Any] | None
    message: AnswerMessage | None


class _StoreBuffers:
    """The sizes and buffers of a store."""

    def __init__(self, comm: MPI.Intracomm, orders: Orders, opening: Opening, machine: int) -> None:
        self._comm, self._orders = comm, orders
        self.machine = machine
        self.columns = opening.manifest.columns
        self.dtype = opening.arithmetic
        self._sizes = Sizes(opening)
        self.several_nodes = opening.several_nodes
        self.count = 0
        self._before = 0  # rows of the machines before it
        self._buffer = np.empty(self.columns, self.dtype)
        self._exchanges: dict[Product, _Exchange] = {}  # for the rows of this machine

    def assign(self, assignment: Assignment) -> Intervals:
        """Use this assignment from now on; returns the rows of this machine."""
        self.free()
        self.count = assignment.count(self.machine)
        before = np.array(assignment.available) < self.machine
        self._before = int(assignment.loads[before].sum())
        return assignment.intervals(self.machine)

    def exchange_of(self, product: Product) -> _Exchange:
        """Return the short data of this product; those of a few products are kept."""
        exchange = self._exchanges.get(product)
        if exchange is None:
            if len(self._exchanges) == MAX_EXCHANGES:
                self.free()
            exchange = _Exchange(self._short_vector(product), self._answer_message(product))
            self._exchanges[product] = exchange
        return exchange

    def _short_vector(self, product: Product) -> NDArray[Any] | None:
        """Return the place of the vector in the order; None if it is sent separately."""
        content = self._orders.buffer(self._sizes.shared(product))
        if content is None:
            return None
        values = content.view(self.dtype)
        if product.adjoint:
            return values.reshape(-1, product.columns)[self._before : self._before + self.count]
        return values.reshape(product.columns, self.columns)

    def receive_buffer(self, product: Product) -> NDArray[Any]:
        """Return a buffer for W or the coefficients."""
        k = product.columns
        shape = (self.count, k) if product.adjoint else (k, self.columns)
        size = shape[0] * shape[1]
        if self._buffer.size < size:
            self._buffer = np.empty(size, self.dtype)
        return self._buffer[:size].reshape(shape)

    def _answer_message(self, product: Product) -> AnswerMessage | None:
        """Return the message for answers and report; None if they are sent separately."""
        if not self._sizes.answers_are_short(product):
            return None
        rows, dtype = (self.columns, _FLOAT64) if product.adjoint else (self.count, self.dtype)
        return AnswerMessage(self._comm, rows * product.columns if self.count else 0, dtype)

    def free(self) -> None:
        """Free the requests of messages, none of which is active."""
        messages = [exchange.message for exchange in self._exchanges.values()]
        free_requests([message.request for message in messages if message is not None])
        self._exchanges.clear()
