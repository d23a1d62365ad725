"""The master's end of a step by collectives: Bcast and Gatherv, or Scatterv and Reduce."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.step.product import Product
from cec_mpi.errors import CecError, InputError, MachineError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.processes.ending.leaving import end_job
from cec_mpi.processes.waiting import wait_for
from cec_mpi.terminal import tell
from cec_mpi.wire.answers import AnswerBuffers, Answers, check_message_sizes
from cec_mpi.wire.collective.buffers import broadcast, check_buffer
from cec_mpi.wire.opening import Opened, Opening
from cec_mpi.wire.orders import MASTER, Kind, Order, Reported, Stop

log = logging.getLogger(__name__)

_CUT_OFF = "the step before was cut off half-way: the job has to end"


class CollectiveHub:
    """Rank 0's end of the default exchange, for all stores that the machines serve.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master and one rank per machine.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._header = np.zeros(len(Order._fields), dtype=np.int64)
        self._stores = 0
        self._opening: Opening | None = None
        self._stopped = False
        self.between_verbs = False

    def open(self, opening: Opening) -> list[Opened]:
        """Bcast of the opening, Gather of what the machines say."""
        check_message_sizes(opening.manifest)
        self.say(Order(Kind.OPEN, self._stores), pickle.dumps(opening))
        if opening.measured:
            wait_for([self._comm.Ibarrier()])
        opened: list[Opened] = (self._comm.gather(None, root=MASTER) or [])[1:]
        self._opening = opening
        return opened

    def admit(self, emulation: Emulation | None) -> CollectiveMasterEnd:
        """Bcast of the emulation."""
        self._comm.bcast(emulation, root=MASTER)
        self.between_verbs = False
        assert self._opening is not None
        end = CollectiveMasterEnd(self, self._comm, self._stores, self._opening)
        self._stores += 1
        return end

    def refuse(self, error: CecError) -> None:
        """Bcast of what is wrong."""
        self._comm.bcast(error, root=MASTER)
        self.between_verbs = False

    def stop(self, error: BaseException | None) -> None:
        """Bcast of the order to leave; ends the job when a step was cut off half-way."""
        if self.between_verbs:
            log.critical("the master stopped in the middle of a step", exc_info=True)
            if error is None:  # what cut the step off was caught, as an interrupt in a loop
                error = MachineError(_CUT_OFF)
                tell(f"cec-mpi: error: {error}")
            else:
                traceback.print_exc()
            end_job(getattr(error, "exit_code", 1))
        self.say(Order(Kind.STOP), Stop(error).packed())
        self.between_verbs = False
        self._stopped = True

    @property
    def listened_to(self) -> bool:
        """Whether the machines wait for what the master says next."""
        return not (self._stopped or self.between_verbs)

    def say(self, order: Order, content: bytes = b"") -> int:
        """Bcast of an order, and of bytes that belong to it; returns the bytes of the order.

        Raises
        ------
        MachineError
            The machines have left, or wait for the rest of a step that was cut off.
        """
        if not self.listened_to:
            raise MachineError("the machines have left" if self._stopped else _CUT_OFF)
        self.between_verbs = True
        self._header[:] = order._replace(length=len(content)) if content else order
        broadcast(self._comm, self._header, self._header.nbytes)
        if content:
            broadcast(self._comm, np.frombuffer(content, dtype=np.uint8), len(content))
        return self._header.nbytes


class CollectiveMasterEnd:
    """Rank 0's end of the default exchange, for the steps of one store."""

    def __init__(
        self, hub: CollectiveHub, comm: MPI.Intracomm, store: int, opening: Opening
    ) -> None:
        self._comm = comm
        manifest = opening.manifest
        self._hub = hub
        self._store = store
        self._manifest = manifest
        self._ranks = np.flatnonzero(opening.machines)  # that take part, counted from rank 1
        self._machines = np.array(opening.machines)[self._ranks] - 1
        self._dtype = opening.arithmetic
        self._answers = manifest.code.recovery * manifest.rows_per_shard
        self._product = Product()
        self._values = AnswerBuffers(manifest, self._dtype)
        self._nothing = np.empty(0, self._dtype)
        self._no_report = np.zeros(Reported.size())
        self._reports = np.zeros((comm.size, Reported.size()))
        self._reported = np.zeros((Reported.size(), manifest.code.machines))
        self._assignment: Assignment | None = None
        self._rows: NDArray[np.int64] = np.zeros(comm.size, dtype=np.int64)  # of each rank
        self._counts = np.zeros(comm.size, dtype=np.intc)
        self._displacements = np.zeros(comm.size, dtype=np.intc)

    def announce(self, step: int, product: Product, assignment: Assignment) -> int:
        """Begin a step: Bcast of the header, and of the assignment if it is new."""
        if product != self._product:
            check_message_sizes(self._manifest, product.columns)
        plan = None
        if assignment is not self._assignment:
            plan = assignment.to_array()
            rows = self._rows_of(assignment)
        self._product = product
        self._values.of(product)  # what can fail fails before the machines hear of the step
        length = 0 if plan is None else plan.size
        sent = self._hub.say(Order.of(product, self._store, step=step, length=length))
        if plan is not None:
            broadcast(self._comm, plan, plan.nbytes)
            self._assignment, self._rows = assignment, rows
            sent += plan.nbytes
        np.multiply(self._rows, product.columns, out=self._counts, casting="unsafe")
        np.cumsum(self._counts[:-1], out=self._displacements[1:])
        return sent

    def share(self, values: NDArray[Any]) -> int:
        """Bcast of W, or Scatterv of what the machines multiply their rows with."""
        product = self._product
        if not product.adjoint:
            check_buffer("W", values, self._dtype, self._manifest.columns * product.columns)
            broadcast(self._comm, values, values.nbytes)
            return values.nbytes
        check_buffer("V", values, self._dtype, self._answers * product.columns)
        parts = [values, (self._counts, self._displacements)]
        wait_for([self._comm.Iscatterv(parts, self._nothing, root=MASTER)], values.nbytes)
        return values.nbytes

    def collect(self) -> Answers:
        """Gatherv or Reduce of the values, Gather of seconds and failures."""
        values = self._values.of(self._product)
        self._reports.fill(0)
        if self._product.adjoint:
            values.fill(0)
            answered = self._comm.Ireduce(MPI.IN_PLACE, values, op=MPI.SUM, root=MASTER)
        else:
            values.fill(np.nan)
            parts = [values, (self._counts, self._displacements)]
            answered = self._comm.Igatherv(self._nothing, parts, root=MASTER)
        reported = self._comm.Igather(self._no_report, self._reports, root=MASTER)
        wait_for([reported])  # once all have reported, all answers are on their way
        wait_for([answered], values.nbytes)
        self._hub.between_verbs = False
        self._reported[:, self._machines] = self._reports[1:][self._ranks].T
        told = Reported(*self._reported)
        flags = told.failed, told.leaving, told.not_finite
        found = [(np.flatnonzero(flag) + 1).tolist() for flag in flags]
        return Answers(values, told.seconds, told.load_seconds, told.load_bytes, *found)

    def reports(self) -> dict[int, str]:
        """Gather of texts, for the rare case."""
        self._hub.say(Order(Kind.EXPLAIN, self._store))
        texts = (self._comm.gather("", root=MASTER) or [])[1:]
        self._hub.between_verbs = False
        told = zip(self._machines, (texts[rank] for rank in self._ranks), strict=True)
        return {int(n) + 1: text for n, text in told if text}

    def close(self) -> None:
        """Bcast of the order to forget this store, if anyone listens."""
        if self._hub.listened_to:
            self._hub.say(Order(Kind.CLOSE, self._store))
            self._hub.between_verbs = False

    def _rows_of(self, assignment: Assignment) -> NDArray[np.int64]:
        """Rows of each rank."""
        counts = assignment.counts(self._manifest.code.machines)
        others = np.delete(counts, self._machines)
        if others.any() or counts.sum() != self._answers:
            raise InputError(f"{assignment!r} does not fit the ranks or the store")
        rows = np.zeros(self._comm.size, dtype=np.int64)
        rows[1:][self._ranks] = counts[self._machines]
        return rows
