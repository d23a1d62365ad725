"""The master's end of a step by collectives: Bcast and Gatherv, or Scatterv and Reduce.

Short messages go together (`packets`): a step of little is one Bcast and one Gatherv or Reduce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.step.product import Product
from cec_mpi.errors import InputError
from cec_mpi.processes.waiting import Rhythm, wait_for
from cec_mpi.wire.collective.packets import ORDER_BYTES, Layout, Sizes, broadcast, check_buffer
from cec_mpi.wire.collective.spreading import spread
from cec_mpi.wire.jobs import AnswerBuffers, Answers, check_message_sizes, credible
from cec_mpi.wire.orders import MASTER, Kind, Opening, Order, Reported

if TYPE_CHECKING:
    from cec_mpi.wire.collective.hub import CollectiveHub


class CollectiveMasterEnd:
    """Rank 0's end of the default exchange, for the steps of one store."""

    def __init__(
        self, hub: CollectiveHub, comm: MPI.Intracomm, store: int, opening: Opening
    ) -> None:
        self._comm = comm
        manifest = opening.manifest
        self.hub = hub
        self._store = store
        self._manifest = manifest
        self._ranks = np.flatnonzero(opening.machines)  # that take part, counted from rank 1
        self._machines = np.array(opening.machines)[self._ranks] - 1
        self._dtype = opening.arithmetic
        self._answers = manifest.code.recovery * manifest.rows_per_shard
        self._product = Product()
        self._sizes = Sizes(opening)
        self._several_nodes = opening.several_nodes
        self._values = AnswerBuffers(manifest, self._dtype)
        self._nothing = np.empty(0, self._dtype)
        self._no_report = np.zeros(Reported.size())
        self._reports = np.zeros((comm.size, Reported.size()))
        self._placement = opening.placement
        self._reported = np.zeros((Reported.size(), self._placement.machines))
        told = Reported(*range(Reported.size()))
        self._sizes_reported = self._reported[told.seconds : told.load_bytes + 1]
        self._flags = self._reported[told.failed : told.not_finite + 1]  # with leaving between
        self._assignment: Assignment | None = None
        self._rows: NDArray[np.int64] = np.zeros(comm.size, dtype=np.int64)  # of each rank
        self._layouts: dict[int, Layout] = {}  # of the assignment, by columns
        self._is_shared = False
        self._rhythm = Rhythm()

    def announce(
        self, step: int, product: Product, assignment: Assignment, values: NDArray[Any]
    ) -> int:
        """Begin a step: Bcast of the header, with what is shared where that is short.

        And of the assignment if it is new.
        """
        if product != self._product:
            check_message_sizes(self._manifest, product.columns)
        self._check(product, values)
        plan = None
        if assignment is not self._assignment:
            plan = assignment.to_array()
            rows = self._rows_of(assignment)
        self._product = product
        self._values.of(product)  # what can fail fails before the machines hear of the step
        length = 0 if plan is None else plan.size
        order = Order.of(product, self._store, step=step, length=length)
        self.hub.begin_order(order)
        packet = self.hub.packet
        room = packet.room(values.nbytes)
        self._is_shared = room is not None
        if room is not None:
            room[:] = values.reshape(-1).view(np.uint8)
        packet.broadcast()
        packet.shared(values.nbytes)
        if plan is None:
            return ORDER_BYTES
        broadcast(self._comm, plan, plan.nbytes)
        self._assignment, self._rows, self._layouts = assignment, rows, {}
        return ORDER_BYTES + plan.nbytes

    def share(self, values: NDArray[Any]) -> int:
        """Give W to all (`spread`), or Scatterv of what the machines multiply their rows with.

        Nothing where they went with the header.
        """
        if not self._is_shared:
            self._check(self._product, values)
            if self._product.adjoint:
                parts = [values, self._layout.parts]
                wait_for([self._comm.Iscatterv(parts, self._nothing, root=MASTER)], values.nbytes)
            else:
                spread(self._comm, values, self._several_nodes)
        return values.nbytes

    def collect(self) -> Answers:
        """Gatherv of the values with seconds and failures; these apart where values are long.

        Then answers to X' V are added up on the way: Reduce.
        """
        short = self._sizes.answers_are_short(self._product)
        values = self._together() if short else self._beside()
        self.hub.between_verbs = False
        self._reported[:, self._machines] = self._reports[1:][self._ranks].T
        seconds, load_seconds, load_bytes = credible(self._sizes_reported)
        if not self._flags.any():  # as in nearly every step
            return Answers(values, seconds, load_seconds, load_bytes, [])
        flags = ((np.flatnonzero(flag) + 1).tolist() for flag in self._flags)
        return self.hub.told(Answers(values, seconds, load_seconds, load_bytes, *flags))

    def _together(self) -> NDArray[Any]:
        """Answers with their reports in one Gatherv, also where they are to be added up."""
        product = self._product
        gathered = self._layout.gathered(product.adjoint, self._manifest.columns)
        gathered.clear()
        self._wait([self._comm.Igatherv(self._nothing, gathered.parts, root=MASTER)])
        values = self._values.of(product)
        gathered.reports(self._reports[1:])
        if product.adjoint:
            gathered.added_up(values)
        else:
            gathered.one_after_the_other(values)
        return values

    def _beside(self) -> NDArray[Any]:
        """Answers, and reports beside them."""
        values = self._values.of(self._product)
        self._reports.fill(0)
        if self._product.adjoint:
            values.fill(0)
            answered = self._comm.Ireduce(MPI.IN_PLACE, values, op=MPI.SUM, root=MASTER)
        else:
            values.fill(np.nan)
            parts = [values, self._layout.parts]
            answered = self._comm.Igatherv(self._nothing, parts, root=MASTER)
        reported = self._comm.Igather(self._no_report, self._reports, root=MASTER)
        self._wait([reported])  # once all have reported, all answers are on their way
        wait_for([answered], values.nbytes)
        return values

    def _wait(self, requests: list[MPI.Request]) -> None:
        wait_for(requests, rhythm=self._rhythm)

    @property
    def _layout(self) -> Layout:
        """Of this step; of an assignment that of one column and the last are kept."""
        columns = self._product.columns
        if columns not in self._layouts:
            self._layouts = {k: kept for k, kept in self._layouts.items() if k == 1}
            self._layouts[columns] = Layout(self._rows, columns, self._dtype)
        return self._layouts[columns]

    def _check(self, product: Product, values: NDArray[Any]) -> None:
        """Refuse what is to be shared, if it does not fit."""
        name = "V" if product.adjoint else "W"
        size = self._sizes.shared(product) // self._dtype.itemsize
        check_buffer(name, values, self._dtype, size)

    def reports(self) -> dict[int, str]:
        """Gather of texts, for the rare case."""
        self.hub.say(Order(Kind.EXPLAIN, self._store))
        texts = (self._comm.gather("", root=MASTER) or [])[1:]
        self.hub.between_verbs = False
        told = zip(self._machines, (texts[rank] for rank in self._ranks), strict=True)
        return {int(n) + 1: text for n, text in told if text}

    def close(self) -> None:
        """Bcast of the order to forget this store, if anyone listens."""
        if self.hub.listened_to:
            self.hub.say(Order(Kind.CLOSE, self._store))
            self.hub.between_verbs = False

    def _rows_of(self, assignment: Assignment) -> NDArray[np.int64]:
        """Rows of each rank."""
        counts = self._placement.rows(assignment.counts(self._placement.shards))
        others = np.delete(counts, self._machines)
        if others.any() or counts.sum() != self._answers:
            raise InputError(f"{assignment!r} does not fit the ranks or the store")
        rows = np.zeros(self._comm.size, dtype=np.int64)
        rows[1:][self._ranks] = counts[self._machines]
        return rows
