"""The master's endpoint in lockstep.

A small step is one message to each machine and one back (`messages`). Long operands and answers are
sent by collectives: Bcast and Gatherv for X W, Scatterv and Reduce for X' V.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.errors import CecError, InputError, MachineError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.processes.ending import report_and_abort
from cec_mpi.runtime.processes.packing import Failure, gather, pack_fields
from cec_mpi.runtime.processes.packing import broadcast as broadcast_object
from cec_mpi.runtime.processes.waiting import WaitHistory, wait_for
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.answers import (
    AnswerBuffers,
    Answers,
    check_message_sizes,
    zero_invalid_reports,
)
from cec_mpi.runtime.wire.collective.messages import (
    MAX_EXCHANGES,
    ORDER_BYTES,
    GatherBuffer,
    Layout,
    OrderChannel,
    StepSizes,
    broadcast,
    broadcast_vector,
    check_buffer,
    free_requests,
)
from cec_mpi.runtime.wire.orders import (
    HUB_POISONED,
    MASTER,
    Admission,
    Opening,
    OpenReport,
    Order,
    OrderKind,
    ReportFields,
    Stop,
)
from cec_mpi.runtime.wire.protocol import StaticHub


class CollectiveHub(StaticHub):
    """Rank 0's hub in lockstep.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Communicator of the master and one rank per machine.

    Attributes
    ----------
    orders : OrderChannel
        Sends orders to all machines.
    is_mid_step : bool
        Whether the machines wait for the rest of a step, or of another order.
    is_stopped : bool
        Whether the machines have left.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__()
        self._comm = comm
        self.orders = OrderChannel(comm)
        self.is_mid_step = False
        self.is_stopped = False
        self._opening: Opening | None = None
        self._endpoint: CollectiveMasterEndpoint | None = None

    def open(self, opening: Opening) -> list[OpenReport]:
        """Broadcast the opening, and gather the reports of the machines."""
        check_message_sizes(opening.manifest)
        self.broadcast_order(Order(OrderKind.OPEN), pack_fields(opening))
        if opening.measures_speed:
            wait_for([self._comm.Ibarrier()])
        reports = gather(self._comm, OpenReport(), OpenReport)[1:]
        self._opening = opening
        return reports

    def admit(self, emulation: Emulation | None) -> CollectiveMasterEndpoint:
        """Broadcast the admission, with the emulation."""
        broadcast_object(self._comm, Admission(emulation), Admission)
        self.is_mid_step = False
        assert self._opening is not None
        self.fill_roster(self._opening.machines)
        self._endpoint = CollectiveMasterEndpoint(self, self._comm, self._opening)
        return self._endpoint

    def refuse(self, error: CecError) -> None:
        """Broadcast an `Admission` with the error, which refuses the machines."""
        broadcast_object(self._comm, Admission(failure=Failure.from_exception(error)), Admission)
        self.is_mid_step = False

    def stop(self, error: BaseException | None) -> None:
        """Broadcast the order to leave; abort the job if a step was interrupted."""
        if self.is_mid_step:
            # Without an error, the program caught the exception that interrupted the step.
            report_and_abort(self._comm, error or MachineError(HUB_POISONED))
        self.broadcast_order(Order(OrderKind.STOP), Stop(error).pack_payload())
        self.is_mid_step = False
        self.is_stopped = True
        self.orders.free()
        if self._endpoint is not None:
            self._endpoint.free()

    def broadcast_order(self, order: Order, payload: bytes = b"") -> None:
        """Send an order to all machines, and broadcast its payload.

        Raises
        ------
        MachineError
            The machines have left, or wait for the rest of a step that was interrupted.
        """
        self.begin_order(order._replace(length=len(payload)) if payload else order)
        self.orders.send()
        self.orders.finish()
        if payload:
            broadcast(self._comm, np.frombuffer(payload, dtype=np.uint8), len(payload))

    def begin_order(self, order: Order) -> None:
        """Write the header of an order into the message for machines.

        Raises
        ------
        MachineError
            See `broadcast_order`.
        """
        if self.is_stopped or self.is_mid_step:
            raise MachineError("the machines have left" if self.is_stopped else HUB_POISONED)
        self.is_mid_step = True
        self.orders.header[:] = order


class _Exchange(NamedTuple):
    """Buffers for steps of one product with the same assignment.

    Attributes
    ----------
    layout : Layout
        Counts and displacements of operands and answers that are sent separately.
    operand : ndarray or None
        Buffer for the operand in the order's message; None if it is sent separately.
    answers : GatherBuffer or None
        Buffer for answers in the messages of reports; None if they are sent separately.
    """

    layout: Layout
    operand: NDArray[Any] | None
    answers: GatherBuffer | None


class CollectiveMasterEndpoint:
    """Rank 0's endpoint for steps in lockstep."""

    def __init__(self, hub: CollectiveHub, comm: MPI.Intracomm, opening: Opening) -> None:
        self._comm = comm
        manifest = opening.manifest
        self.hub = hub
        self._manifest = manifest
        self._ranks = np.flatnonzero(opening.machines) + 1  # with machines
        self._machine_indices = np.take(opening.machines, self._ranks - 1) - 1  # 0 for machine 1
        self._dtype = opening.arithmetic
        self._answer_rows = manifest.code.recovery * manifest.rows_per_shard
        self._product = Product()
        self._sizes = StepSizes(opening)
        self._is_multi_node = opening.is_multi_node
        self._answer_buffers = AnswerBuffers(manifest, self._dtype)
        self._empty = np.empty(0, self._dtype)
        self._no_report = np.zeros(ReportFields.size())
        self._reports = np.zeros((comm.size, ReportFields.size()))
        total = manifest.code.machines
        self._ranks_are_machines = opening.machines[:total] == tuple(range(1, total + 1))
        self._report_table = np.zeros((ReportFields.size(), total))
        if self._ranks_are_machines:  # rank n is machine n
            self._report_table = self._reports[1 : total + 1].T
        fields = ReportFields(*range(ReportFields.size()))
        self._times_and_bytes = self._report_table[fields.seconds : fields.load_bytes + 1]
        self._flags = self._report_table[fields.failed : fields.damaged + 1]
        self._assignment: Assignment | None = None
        self._rows: NDArray[np.int64] = np.zeros(comm.size, dtype=np.int64)  # assigned to each rank
        self._exchanges: dict[Product, _Exchange] = {}  # for the current assignment
        self._exchange: _Exchange  # of this step
        self._history = WaitHistory()

    def announce(
        self, step: int, product: Product, assignment: Assignment, operand: NDArray[Any]
    ) -> int:
        """Send the order, with a short operand, and broadcast a new assignment."""
        if product not in self._exchanges:
            check_message_sizes(self._manifest, product.columns)
        self._check_operand(product, operand)
        encoded_assignment = None
        if assignment is not self._assignment:
            encoded_assignment = assignment.to_array()
            rows = self._rows_of(assignment)
        self._product = product
        self._answer_buffers.get(product)  # allocate before the order is sent: this may fail
        length = 0 if encoded_assignment is None else encoded_assignment.size
        self.hub.begin_order(Order.for_step(product, step, length))
        if encoded_assignment is not None:
            self.free()
            self._assignment, self._rows = assignment, rows
        self._exchange = exchange = self._exchange_of(product)
        if exchange.answers is not None:
            exchange.answers.receive(self._comm)
        if exchange.operand is None:
            self.hub.orders.send()
        else:
            exchange.operand[:] = operand.reshape(-1)
            self.hub.orders.send(operand.nbytes)
        if encoded_assignment is None:
            return ORDER_BYTES
        broadcast(self._comm, encoded_assignment, encoded_assignment.nbytes)
        return ORDER_BYTES + encoded_assignment.nbytes

    def share(self, operand: NDArray[Any]) -> int:
        """Broadcast W or scatter the coefficients, unless the order contained them."""
        if self._exchange.operand is None:
            self._check_operand(self._product, operand)
            if self._product.adjoint:
                send_buffer = [operand, self._exchange.layout.counts_and_displs]
                request = self._comm.Iscatterv(send_buffer, self._empty, root=MASTER)
                wait_for([request], operand.nbytes)
            else:
                broadcast_vector(self._comm, operand, self._is_multi_node)
        return operand.nbytes

    def collect(self) -> Answers:
        """Receive answers and reports; long answers by Gatherv, those of X' V by Reduce."""
        answers = self._exchange.answers
        values = self._gather_separately() if answers is None else self._receive_inline(answers)
        self.hub.orders.finish()
        self.hub.is_mid_step = False
        if not self._ranks_are_machines:
            self._report_table[:, self._machine_indices] = self._reports[self._ranks].T
        seconds, load_seconds, load_bytes = zero_invalid_reports(self._times_and_bytes)
        if not self._flags.item(self._flags.argmax()):  # in nearly every step
            return Answers(values, seconds, load_seconds, load_bytes, [])
        flags = ((np.flatnonzero(flag) + 1).tolist() for flag in self._flags)
        return self.hub.exclude_leaving(Answers(values, seconds, load_seconds, load_bytes, *flags))

    def _receive_inline(self, answers: GatherBuffer) -> NDArray[Any]:
        """Receive answers with their reports."""
        wait_for(answers.requests, history=self._history)
        values = self._answer_buffers.take(self._product)
        answers.copy_reports(self._reports[1:])
        if self._product.adjoint:
            answers.sum_into(values)
        else:
            answers.concatenate_into(values)
        return values

    def _gather_separately(self) -> NDArray[Any]:
        """Receive answers and reports in two collectives."""
        values, layout = self._answer_buffers.take(self._product), self._exchange.layout
        self._reports.fill(0)
        if self._product.adjoint:
            values.fill(0)
            value_request = self._comm.Ireduce(MPI.IN_PLACE, values, op=MPI.SUM, root=MASTER)
        else:
            values[layout.last_indices] = np.nan  # a missing answer counts as failed
            receive_buffer = [values, layout.counts_and_displs]
            value_request = self._comm.Igatherv(self._empty, receive_buffer, root=MASTER)
        report_request = self._comm.Igather(self._no_report, self._reports, root=MASTER)
        # A machine sends its answer before its report: after the reports, answers are on the way.
        wait_for([report_request], history=self._history)
        wait_for([value_request], values.nbytes)
        return values

    def free(self) -> None:
        """Free the requests for the current assignment."""
        for exchange in self._exchanges.values():
            if exchange.answers is not None:
                free_requests(exchange.answers.requests)
        self._exchanges.clear()

    def _exchange_of(self, product: Product) -> _Exchange:
        """Return the buffers for a product; those of the last few products are kept."""
        exchange = self._exchanges.get(product)
        if exchange is None:
            if len(self._exchanges) == MAX_EXCHANGES:
                self.free()
            layout = Layout(self._rows, product.columns, self._dtype)
            octets = self.hub.orders.operand_buffer(self._sizes.operand_bytes(product))
            operand = None if octets is None else octets.view(self._dtype)
            answers = None
            if self._sizes.are_answers_inline(product):
                answers = layout.gather_buffer(product.adjoint, self._manifest.columns)
            exchange = self._exchanges[product] = _Exchange(layout, operand, answers)
        return exchange

    def _check_operand(self, product: Product, operand: NDArray[Any]) -> None:
        """Raise if an operand has the wrong size or dtype."""
        name = "V" if product.adjoint else "W"
        size = self._sizes.operand_bytes(product) // self._dtype.itemsize
        check_buffer(name, operand, self._dtype, size)

    def last_errors(self) -> dict[int, str]:
        """See `LockstepEndpoint.last_errors`."""
        self.hub.broadcast_order(Order(OrderKind.LAST_ERRORS))
        texts = gather(self._comm, "", str)
        self.hub.is_mid_step = False
        pairs = zip(self._machine_indices, self._ranks, strict=True)
        return {int(index) + 1: texts[rank] for index, rank in pairs if texts[rank]}

    def _rows_of(self, assignment: Assignment) -> NDArray[np.int64]:
        """Return the number of rows of each rank."""
        counts = assignment.row_counts(self._manifest.code.machines)
        rankless_counts = np.delete(counts, self._machine_indices)
        if rankless_counts.any() or counts.sum() != self._answer_rows:
            raise InputError(f"{assignment!r} does not fit the ranks or the store")
        rows = np.zeros(self._comm.size, dtype=np.int64)
        rows[self._ranks] = counts[self._machine_indices]
        return rows
