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
from cec_mpi.runtime.wire.collective.messages import (
    MAX_EXCHANGES,
    AnswerMessage,
    OrderChannel,
    StepSizes,
    broadcast,
    broadcast_vector,
    check_buffer,
    free_requests,
)
from cec_mpi.runtime.wire.orders import (
    MASTER,
    Admission,
    Multiply,
    Open,
    Opening,
    OpenReport,
    Order,
    OrderKind,
    ParsedOrder,
    Part,
    ReportFields,
    Stop,
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
        self._orders = OrderChannel(comm)
        self._exchange = _Exchange(None, None)  # of this step
        self._report = np.zeros(ReportFields.size())
        self._active_sends: list[MPI.Prequest] = []  # of the last answer
        self._history = WaitHistory()
        self._store_buffers: _StoreBuffers | None = None
        self._open_order: Open | None = None
        self._last_error = ""

    def receive_order(self, signals: SignalRecorder) -> ParsedOrder:
        """Receive the order, and the assignment if it has changed."""
        # Before the store is opened, rank 0 may take a second to import libraries.
        order = self._orders.receive(self._active_sends, is_idle=self._store_buffers is None)
        if order.kind > OrderKind.MULTIPLY_TRANSPOSED:
            return self._receive_payload(order, signals)
        buffers, intervals, product = self._buffers, None, order.product
        if order.length:
            encoded_assignment = np.empty(order.length, dtype=np.int64)
            broadcast(self._comm, encoded_assignment, encoded_assignment.nbytes)
            intervals = buffers.assign(Assignment.from_array(encoded_assignment))
        self._exchange = buffers.exchange_of(product)
        return Multiply(order.step_or_threads, product, (Part(buffers.machine, intervals),))

    def _receive_payload(self, order: Order, signals: SignalRecorder) -> ParsedOrder:
        """Receive the payload of an order other than a step."""
        if order.kind == OrderKind.LAST_ERRORS:
            gather(self._comm, self._last_error, str)
            return self.receive_order(signals)
        payload = np.empty(order.length, dtype=np.uint8)
        if order.length:
            broadcast(self._comm, payload, payload.nbytes)
        parsed = parse_order(order, payload.tobytes(), self._comm.rank)
        if isinstance(parsed, Open):
            self._open_order = parsed
        elif isinstance(parsed, Stop):
            self._orders.free()
            if self._store_buffers is not None:
                self._store_buffers.free()
        return parsed

    def wait_for_all(self) -> None:
        """See `MachineEndpoint.wait_for_all`."""
        wait_for([self._comm.Ibarrier()])

    def check_connection(self) -> None:
        """Do nothing: if the master is lost, the launcher ends all ranks."""

    def send_open_report(self, report: OpenReport) -> Admission:
        """Send the report to the master, and receive the admission."""
        gather(self._comm, report, OpenReport)
        admission = broadcast_object(self._comm, None, Admission)
        order = self._open_order
        assert order is not None
        if admission.failure is None:
            self._store_buffers = _StoreBuffers(
                self._comm, self._orders, order.opening, order.machine
            )
        return admission

    def receive_operand(self, order: Multiply) -> NDArray[Any]:
        """Receive W, or the coefficients of this machine."""
        if self._exchange.operand is not None:
            return self._exchange.operand
        buffers, product = self._buffers, order.product
        values = buffers.receive_buffer(product)
        if product.adjoint:
            wait_for([self._comm.Iscatterv(None, values, root=MASTER)], values.nbytes)
        else:
            broadcast_vector(self._comm, values, buffers.is_multi_node)
        return values

    def send_answer(
        self, order: Multiply, values: Sequence[NDArray[Any]], reports: Sequence[Report]
    ) -> None:
        """Send the answer and report.

        If the answer is short, this only begins to send both in one message.
        """
        (answer,), (report,) = values, reports
        buffers, product = self._buffers, order.product
        is_finite = not product.adjoint or bool(np.isfinite(answer).all())
        fields = pack_report(report, buffers.machine, is_finite)
        self._last_error = report.problem or self._last_error
        message = self._exchange.message
        if message is None:
            self._report[:] = fields
            self._send_separately(product, answer)
            return
        message.start(fields, answer if buffers.row_count else answer[:0])
        self._active_sends = [message.request]

    @property
    def _buffers(self) -> _StoreBuffers:
        assert self._store_buffers is not None
        return self._store_buffers

    def _send_separately(self, product: Product, values: NDArray[Any]) -> None:
        """Send the answer and report in two collectives."""
        buffers = self._buffers
        if product.adjoint:
            check_buffer("the answer", values, _FLOAT64, buffers.columns * product.columns)
            value_request = self._comm.Ireduce(values, None, op=MPI.SUM, root=MASTER)
        else:
            check_buffer("the answer", values, buffers.dtype, buffers.row_count * product.columns)
            value_request = self._comm.Igatherv(values, None, root=MASTER)
        report_request = self._comm.Igather(self._report, None, root=MASTER)
        wait_for([value_request, report_request], values.nbytes, history=self._history)


class _Exchange(NamedTuple):
    """Buffers of a machine for steps of one product with the same rows.

    Attributes
    ----------
    operand : ndarray or None
        W, or the coefficients of this machine, in the buffer of the order's message; None if they
        are sent separately.
    message : AnswerMessage or None
        Message for the report with the answer; None if they are sent separately.
    """

    operand: NDArray[Any] | None
    message: AnswerMessage | None


class _StoreBuffers:
    """Sizes and buffers for the steps of a store."""

    def __init__(
        self, comm: MPI.Intracomm, orders: OrderChannel, opening: Opening, machine: int
    ) -> None:
        self._comm, self._orders = comm, orders
        self.machine = machine
        self.columns = opening.manifest.columns
        self.dtype = opening.arithmetic
        self._sizes = StepSizes(opening)
        self.is_multi_node = opening.is_multi_node
        self.row_count = 0
        self._first_coefficient = 0  # index of its first row in the coefficients of all machines
        self._buffer = np.empty(self.columns, self.dtype)
        self._exchanges: dict[Product, _Exchange] = {}  # for the current assignment

    def assign(self, assignment: Assignment) -> Intervals:
        """Use another assignment; return the rows of this machine."""
        self.free()
        self.row_count = assignment.row_count(self.machine)
        is_before = np.array(assignment.available) < self.machine
        self._first_coefficient = int(assignment.loads[is_before].sum())
        return assignment.intervals(self.machine)

    def exchange_of(self, product: Product) -> _Exchange:
        """Return the buffers for a product; those of the last few products are kept."""
        exchange = self._exchanges.get(product)
        if exchange is None:
            if len(self._exchanges) == MAX_EXCHANGES:
                self.free()
            exchange = _Exchange(self._inline_operand(product), self._answer_message(product))
            self._exchanges[product] = exchange
        return exchange

    def _inline_operand(self, product: Product) -> NDArray[Any] | None:
        """Return this machine's operand in an order's message; None if it is sent separately."""
        octets = self._orders.operand_buffer(self._sizes.operand_bytes(product))
        if octets is None:
            return None
        values = octets.view(self.dtype)
        if product.adjoint:
            return values.reshape(-1, product.columns)[
                self._first_coefficient : self._first_coefficient + self.row_count
            ]
        return values.reshape(product.columns, self.columns)

    def receive_buffer(self, product: Product) -> NDArray[Any]:
        """Return a buffer for an operand that is sent separately."""
        k = product.columns
        shape = (self.row_count, k) if product.adjoint else (k, self.columns)
        size = shape[0] * shape[1]
        if self._buffer.size < size:
            self._buffer = np.empty(size, self.dtype)
        return self._buffer[:size].reshape(shape)

    def _answer_message(self, product: Product) -> AnswerMessage | None:
        """Return the message for the report and answer; None if they are sent separately."""
        if not self._sizes.are_answers_inline(product):
            return None
        rows, dtype = (self.columns, _FLOAT64) if product.adjoint else (self.row_count, self.dtype)
        return AnswerMessage(self._comm, rows * product.columns if self.row_count else 0, dtype)

    def free(self) -> None:
        """Free the requests of messages; none may be active."""
        messages = [exchange.message for exchange in self._exchanges.values()]
        free_requests([message.request for message in messages if message is not None])
        self._exchanges.clear()
