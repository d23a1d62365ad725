"""The master's endpoint in lockstep.

A small step is one message to each machine and one back (`packets`). Longer data is sent by
collectives: Bcast and Gatherv, or Scatterv and Reduce.
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
from cec_mpi.runtime.wire.collective.packets import (
    MAX_EXCHANGES,
    ORDER_BYTES,
    GatherBuffer,
    Layout,
    Orders,
    Sizes,
    broadcast,
    broadcast_vector,
    check_buffer,
    free_requests,
)
from cec_mpi.runtime.wire.orders import (
    HUB_POISONED,
    MASTER,
    Opening,
    OpenReport,
    Order,
    OrderKind,
    ReportFields,
    Stop,
    Verdict,
)
from cec_mpi.runtime.wire.protocol import StaticHub


class CollectiveHub(StaticHub):
    """Rank 0's hub in lockstep.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master and one rank per machine.

    Attributes
    ----------
    orders : Orders
        The order for all machines.
    is_mid_step : bool
        Whether the machines wait for the rest of a step.
    stopped : bool
        Whether the machines have left.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__()
        self._comm = comm
        self.orders = Orders(comm)
        self.is_mid_step = False
        self.stopped = False
        self._opening: Opening | None = None
        self._end: CollectiveMasterEndpoint | None = None

    def open(self, opening: Opening) -> list[OpenReport]:
        """Bcast the opening, and Gather the reports of the machines."""
        check_message_sizes(opening.manifest)
        self.broadcast_order(Order(OrderKind.OPEN), pack_fields(opening))
        if opening.measures_speed:
            wait_for([self._comm.Ibarrier()])
        reports = gather(self._comm, OpenReport(), OpenReport)[1:]
        self._opening = opening
        return reports

    def admit(self, emulation: Emulation | None) -> CollectiveMasterEndpoint:
        """Bcast the emulation."""
        broadcast_object(self._comm, Verdict(emulation), Verdict)
        self.is_mid_step = False
        assert self._opening is not None
        self.fill_roster(self._opening.machines)
        self._end = CollectiveMasterEndpoint(self, self._comm, self._opening)
        return self._end

    def refuse(self, error: CecError) -> None:
        """Bcast the error."""
        broadcast_object(self._comm, Verdict(failure=Failure.from_exception(error)), Verdict)
        self.is_mid_step = False

    def stop(self, error: BaseException | None) -> None:
        """Bcast the order to leave; ends the job if a step was interrupted."""
        if self.is_mid_step:
            # Without an error, the program caught the exception that interrupted the step.
            report_and_abort(self._comm, error or MachineError(HUB_POISONED))
        self.broadcast_order(Order(OrderKind.STOP), Stop(error).packed())
        self.is_mid_step = False
        self.stopped = True
        self.orders.free()
        if self._end is not None:
            self._end.free()

    @property
    def is_ready_for_order(self) -> bool:
        """Whether the machines wait for an order."""
        return not (self.stopped or self.is_mid_step)

    def broadcast_order(self, order: Order, content: bytes = b"") -> None:
        """Send an order to all machines, and Bcast the bytes that belong to it.

        Raises
        ------
        MachineError
            The machines have left, or wait for the rest of a step that was interrupted.
        """
        self.begin_order(order._replace(length=len(content)) if content else order)
        self.orders.send()
        self.orders.finish()
        if content:
            broadcast(self._comm, np.frombuffer(content, dtype=np.uint8), len(content))

    def begin_order(self, order: Order) -> None:
        """Put an order into the message, if the machines wait for one.

        Raises
        ------
        MachineError
            See `broadcast_order`.
        """
        if not self.is_ready_for_order:
            raise MachineError("the machines have left" if self.stopped else HUB_POISONED)
        self.is_mid_step = True
        self.orders.order[:] = order


class _Exchange(NamedTuple):
    """The messages of steps of one product with the same assignment.

    Attributes
    ----------
    layout : Layout
        Of long data.
    content : ndarray or None
        Place of W, or of the coefficients, in the order; None if they are sent separately.
    answers : GatherBuffer or None
        For short answers with their reports; None if they are sent separately.
    """

    layout: Layout
    content: NDArray[Any] | None
    answers: GatherBuffer | None


class CollectiveMasterEndpoint:
    """Rank 0's endpoint for steps in lockstep."""

    def __init__(self, hub: CollectiveHub, comm: MPI.Intracomm, opening: Opening) -> None:
        self._comm = comm
        manifest = opening.manifest
        self.hub = hub
        self._manifest = manifest
        self._ranks = np.flatnonzero(opening.machines)  # that take part, counted from rank 1
        self._machines = np.array(opening.machines)[self._ranks] - 1
        self._dtype = opening.arithmetic
        self._answers = manifest.code.recovery * manifest.rows_per_shard
        self._product = Product()
        self._sizes = Sizes(opening)
        self._several_nodes = opening.several_nodes
        self._values = AnswerBuffers(manifest, self._dtype)
        self._empty = np.empty(0, self._dtype)
        self._no_report = np.zeros(ReportFields.size())
        self._reports = np.zeros((comm.size, ReportFields.size()))
        all_machines = np.arange(manifest.code.machines)
        self._is_identity_order = all(
            np.array_equal(n, all_machines) for n in (self._ranks, self._machines)
        )
        self._report_table = np.zeros((ReportFields.size(), manifest.code.machines))
        if self._is_identity_order:
            self._report_table = self._reports[1 : all_machines.size + 1].T
        fields = ReportFields(*range(ReportFields.size()))
        self._measured_rows = self._report_table[fields.seconds : fields.load_bytes + 1]
        self._flags = self._report_table[fields.failed : fields.damaged + 1]  # with those between
        self._assignment: Assignment | None = None
        self._rows: NDArray[np.int64] = np.zeros(comm.size, dtype=np.int64)  # of each rank
        self._exchanges: dict[Product, _Exchange] = {}  # of the assignment
        self._exchange: _Exchange  # of this step
        self._history = WaitHistory()

    def announce(
        self, step: int, product: Product, assignment: Assignment, values: NDArray[Any]
    ) -> int:
        """Send the order, with short data, and Bcast the assignment if it has changed."""
        if product not in self._exchanges:
            check_message_sizes(self._manifest, product.columns)
        self._check(product, values)
        plan = None
        if assignment is not self._assignment:
            plan = assignment.to_array()
            rows = self._rows_of(assignment)
        self._product = product
        self._values.get(product)  # allocated before the order is sent: it may fail
        length = 0 if plan is None else plan.size
        self.hub.begin_order(Order.of(product, step=step, length=length))
        if plan is not None:
            self.free()
            self._assignment, self._rows = assignment, rows
        self._exchange = exchange = self._exchange_of(product)
        if exchange.answers is not None:
            exchange.answers.receive(self._comm)
        if exchange.content is None:
            self.hub.orders.send()
        else:
            exchange.content[:] = values.reshape(-1)
            self.hub.orders.send(values.nbytes)
        if plan is None:
            return ORDER_BYTES
        broadcast(self._comm, plan, plan.nbytes)
        return ORDER_BYTES + plan.nbytes

    def share(self, values: NDArray[Any]) -> int:
        """Broadcast W, or scatter the coefficients, unless the order contained them."""
        if self._exchange.content is None:
            self._check(self._product, values)
            if self._product.adjoint:
                parts = [values, self._exchange.layout.parts]
                wait_for([self._comm.Iscatterv(parts, self._empty, root=MASTER)], values.nbytes)
            else:
                broadcast_vector(self._comm, values, self._several_nodes)
        return values.nbytes

    def collect(self) -> Answers:
        """Receive values and reports; long values by Gatherv, those of X' V by Reduce."""
        answers = self._exchange.answers
        values = self._gather_separately() if answers is None else self._receive(answers)
        self.hub.orders.finish()
        self.hub.is_mid_step = False
        if not self._is_identity_order:
            self._report_table[:, self._machines] = self._reports[1:][self._ranks].T
        seconds, load_seconds, load_bytes = zero_invalid_reports(self._measured_rows)
        if not self._flags.item(self._flags.argmax()):  # as in nearly every step
            return Answers(values, seconds, load_seconds, load_bytes, [])
        flags = ((np.flatnonzero(flag) + 1).tolist() for flag in self._flags)
        return self.hub.exclude_leaving(Answers(values, seconds, load_seconds, load_bytes, *flags))

    def _receive(self, answers: GatherBuffer) -> NDArray[Any]:
        """Receive answers with their reports."""
        wait_for(answers.requests, history=self._history)
        values = self._values.take(self._product)
        answers.reports(self._reports[1:])
        if self._product.adjoint:
            answers.sum_into(values)
        else:
            answers.concatenate_into(values)
        return values

    def _gather_separately(self) -> NDArray[Any]:
        """Receive answers and reports in two collectives."""
        values, layout = self._values.take(self._product), self._exchange.layout
        self._reports.fill(0)
        if self._product.adjoint:
            values.fill(0)
            value_request = self._comm.Ireduce(MPI.IN_PLACE, values, op=MPI.SUM, root=MASTER)
        else:
            values[layout.last_indices] = np.nan  # missing answers count as failed
            parts = [values, layout.parts]
            value_request = self._comm.Igatherv(self._empty, parts, root=MASTER)
        report_request = self._comm.Igather(self._no_report, self._reports, root=MASTER)
        # Once all have reported, all answers are on their way.
        wait_for([report_request], history=self._history)
        wait_for([value_request], values.nbytes)
        return values

    def free(self) -> None:
        """Free the requests of this assignment."""
        for exchange in self._exchanges.values():
            if exchange.answers is not None:
                free_requests(exchange.answers.requests)
        self._exchanges.clear()

    def _exchange_of(self, product: Product) -> _Exchange:
        """Return the messages of a product; those of a few products are kept."""
        exchange = self._exchanges.get(product)
        if exchange is None:
            if len(self._exchanges) == MAX_EXCHANGES:
                self.free()
            layout = Layout(self._rows, product.columns, self._dtype)
            content, answers = self.hub.orders.buffer(self._sizes.shared(product)), None
            if self._sizes.answers_are_short(product):
                answers = layout.gather_buffer(product.adjoint, self._manifest.columns)
            content = None if content is None else content.view(self._dtype)
            exchange = self._exchanges[product] = _Exchange(layout, content, answers)
        return exchange

    def _check(self, product: Product, values: NDArray[Any]) -> None:
        """Raise if shared data does not fit."""
        name = "V" if product.adjoint else "W"
        size = self._sizes.shared(product) // self._dtype.itemsize
        check_buffer(name, values, self._dtype, size)

    def last_errors(self) -> dict[int, str]:
        """Gather the last errors of machines."""
        self.hub.broadcast_order(Order(OrderKind.LAST_ERRORS))
        texts = gather(self._comm, "", str)[1:]
        self.hub.is_mid_step = False
        pairs = zip(self._machines, (texts[rank] for rank in self._ranks), strict=True)
        return {int(n) + 1: text for n, text in pairs if text}

    def _rows_of(self, assignment: Assignment) -> NDArray[np.int64]:
        """Return the number of rows of each rank."""
        counts = assignment.counts(self._manifest.code.machines)
        others = np.delete(counts, self._machines)
        if others.any() or counts.sum() != self._answers:
            raise InputError(f"{assignment!r} does not fit the ranks or the store")
        rows = np.zeros(self._comm.size, dtype=np.int64)
        rows[1:][self._ranks] = counts[self._machines]
        return rows
