"""A step by collectives: Bcast of W and Gatherv of the answers, or Scatterv and Reduce.

MPI checks next to nothing: a Fortran-ordered array, another dtype or a count that does
not match give silently wrong data, and a displacement beyond the buffer corrupts memory.
So this module owns all communication of a step and checks each buffer before it goes.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.core.assignment import Assignment
from cec_mpi.errors import CecError, InputError, MachineError
from cec_mpi.runtime.emulation import Emulation
from cec_mpi.runtime.exchange import (
    Announcement,
    AnswerBuffers,
    Answers,
    Opened,
    Opening,
    Product,
    Report,
)
from cec_mpi.runtime.leaving import end_job
from cec_mpi.runtime.packing import pack_error, unpack_error
from cec_mpi.runtime.signals import NotedSignals
from cec_mpi.runtime.waiting import wait_for
from cec_mpi.store.manifest import Manifest

__all__ = [
    "CollectiveHub",
    "CollectiveMachineEnd",
    "CollectiveMasterEnd",
    "check_message_sizes",
]

log = logging.getLogger(__name__)

_MASTER = 0
_STEP, _REPORT, _OPEN, _CLOSE, _STOP = 1, 2, 3, 4, 5
_HEADER = 6  # kind, store, step, adjoint, columns, length of what follows
_REPORTED = 5  # numbers of a machine's report
_MOST = 2**31 - 1  # numbers in one message: Open MPI 5 fails beyond


def check_message_sizes(manifest: Manifest, columns: int = 1) -> None:
    """Refuse what is too long for one MPI message.

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
                f"{what} would have {size * columns} numbers: MPI carries at most {_MOST}"
            )


def _check_buffer(name: str, array: NDArray[Any], dtype: np.dtype[Any], size: int) -> None:
    if array.dtype != dtype or array.size != size or not array.flags.c_contiguous:
        raise InputError(
            f"{name} of shape {array.shape} and dtype {array.dtype}"
            f"{'' if array.flags.c_contiguous else ', not contiguous'}: "
            f"expected {size} numbers of {dtype}, contiguous"
        )


class _End:
    """What both ends share: the communicator and the header."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._header = np.zeros(_HEADER, dtype=np.int64)

    def _broadcast(self, array: NDArray[Any], transfer: int = 0) -> None:
        wait_for([self._comm.Ibcast(array, root=_MASTER)], transfer)


class CollectiveHub(_End):
    """Rank 0's end of the default exchange, for all stores that the machines serve.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master and one rank per machine.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__(comm)
        self._stores = 0
        self._opening: Opening | None = None
        self._stopped = False
        self.between_verbs = False

    def open(self, opening: Opening) -> list[Opened]:
        """Bcast of the opening, Gather of what the machines say."""
        check_message_sizes(opening.manifest)
        self._say_bytes(_OPEN, self._stores, pickle.dumps(opening))
        if opening.measured:
            wait_for([self._comm.Ibarrier()])
        opened: list[Opened] = (self._comm.gather(None, root=_MASTER) or [])[1:]
        self._opening = opening
        return opened

    def admit(self, emulation: Emulation | None) -> CollectiveMasterEnd:
        """Bcast of the emulation."""
        self._comm.bcast(emulation, root=_MASTER)
        self.between_verbs = False
        assert self._opening is not None
        end = CollectiveMasterEnd(self, self._comm, self._stores, self._opening)
        self._stores += 1
        return end

    def refuse(self, error: CecError) -> None:
        """Bcast of what is wrong."""
        self._comm.bcast(error, root=_MASTER)
        self.between_verbs = False

    def stop(self, error: BaseException | None) -> None:
        """Bcast of the order to leave; ends the job when a step was cut off half-way."""
        if self.between_verbs:
            log.critical("the master stopped in the middle of a step", exc_info=True)
            traceback.print_exc()
            end_job(getattr(error, "exit_code", 1))
        self._say_bytes(_STOP, 0, pack_error(error))
        self.between_verbs = False
        self._stopped = True

    @property
    def listened_to(self) -> bool:
        """Whether the machines wait for what the master says next."""
        return not (self._stopped or self.between_verbs)

    def say(self, kind: int, store: int, *numbers: int) -> int:
        """Bcast of the header; returns its bytes.

        Raises
        ------
        MachineError
            The machines have left, or wait for the rest of a step that was cut off.
        """
        if not self.listened_to:
            raise MachineError(
                "the machines have left"
                if self._stopped
                else "the step before was cut off half-way: the job has to end"
            )
        self.between_verbs = True
        self._header[:] = 0
        self._header[: 2 + len(numbers)] = kind, store, *numbers
        self._broadcast(self._header, self._header.nbytes)
        return self._header.nbytes

    def _say_bytes(self, kind: int, store: int, content: bytes) -> None:
        message = np.frombuffer(content, dtype=np.uint8)
        self.say(kind, store, 0, 0, 0, message.size)
        self._broadcast(message, message.nbytes)


class CollectiveMasterEnd(_End):
    """Rank 0's end of the default exchange, for the steps of one store."""

    def __init__(
        self, hub: CollectiveHub, comm: MPI.Intracomm, store: int, opening: Opening
    ) -> None:
        super().__init__(comm)
        manifest = opening.manifest
        self._hub = hub
        self._store = store
        self._manifest = manifest
        self._ranks = np.flatnonzero(opening.machines)  # that take part, counted from rank 1
        self._machines = np.array(opening.machines)[self._ranks] - 1
        self._dtype = np.dtype(manifest.dtype)
        self._answers = manifest.code.recovery * manifest.rows_per_shard
        self._product = Product()
        self._values = AnswerBuffers(manifest)
        self._nothing = np.empty(0, self._dtype)
        self._no_report = np.zeros(_REPORTED)
        self._reports = np.zeros((comm.size, _REPORTED))
        self._reported = np.zeros((_REPORTED, manifest.code.machines))
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
        sent = self._hub.say(_STEP, self._store, step, *product, length)
        if plan is not None:
            self._broadcast(plan, plan.nbytes)
            self._assignment, self._rows = assignment, rows
            sent += plan.nbytes
        np.multiply(self._rows, product.columns, out=self._counts, casting="unsafe")
        np.cumsum(self._counts[:-1], out=self._displacements[1:])
        return sent

    def share(self, values: NDArray[Any]) -> int:
        """Bcast of W, or Scatterv of what the machines multiply their rows with."""
        product = self._product
        if not product.adjoint:
            _check_buffer("W", values, self._dtype, self._manifest.columns * product.columns)
            self._broadcast(values, values.nbytes)
            return values.nbytes
        _check_buffer("V", values, self._dtype, self._answers * product.columns)
        parts = [values, (self._counts, self._displacements)]
        wait_for([self._comm.Iscatterv(parts, self._nothing, root=_MASTER)], values.nbytes)
        return values.nbytes

    def collect(self) -> Answers:
        """Gatherv or Reduce of the values, Gather of seconds and failures."""
        values = self._values.of(self._product)
        self._reports.fill(0)
        if self._product.adjoint:
            values.fill(0)
            answered = self._comm.Ireduce(MPI.IN_PLACE, values, op=MPI.SUM, root=_MASTER)
        else:
            values.fill(np.nan)
            parts = [values, (self._counts, self._displacements)]
            answered = self._comm.Igatherv(self._nothing, parts, root=_MASTER)
        reported = self._comm.Igather(self._no_report, self._reports, root=_MASTER)
        wait_for([reported])  # once all have reported, all answers are on their way
        wait_for([answered], values.nbytes)
        self._hub.between_verbs = False
        self._reported[:, self._machines] = self._reports[1:][self._ranks].T
        seconds, load_seconds, load_bytes, *flags = self._reported
        failed, leaving = ((np.flatnonzero(flag) + 1).tolist() for flag in flags)
        return Answers(values, seconds, load_seconds, load_bytes, failed, leaving)

    def reports(self) -> dict[int, str]:
        """Gather of texts, for the rare case."""
        self._hub.say(_REPORT, self._store)
        texts = (self._comm.gather("", root=_MASTER) or [])[1:]
        self._hub.between_verbs = False
        told = zip(self._machines, (texts[rank] for rank in self._ranks), strict=True)
        return {int(n) + 1: text for n, text in told if text}

    def close(self) -> None:
        """Bcast of the order to forget this store, if anyone listens."""
        if self._hub.listened_to:
            self._hub.say(_CLOSE, self._store)
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


class CollectiveMachineEnd(_End):
    """A machine's end of the default exchange.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__(comm)
        self._report = np.zeros(_REPORTED)
        self._stores: dict[int, _Served] = {}
        self._opening: tuple[int, Opening] | None = None

    def announced(self, signals: NotedSignals) -> Announcement:
        """Receive the header, and the assignment if it is new; reports tell of signals."""
        self._broadcast(self._header)
        kind, store, step, adjoint, columns, length = self._header.tolist()
        if kind == _REPORT:
            return Announcement(store, report=True)
        if kind == _CLOSE:
            del self._stores[store]
            return Announcement(store, close=True)
        if kind in (_OPEN, _STOP):
            message = np.empty(length, dtype=np.uint8)
            self._broadcast(message, message.nbytes)
            if kind == _STOP:
                return Announcement(stop=unpack_error(message.tobytes()) or True)
            opening: Opening = pickle.loads(message.tobytes())
            self._opening = store, opening
            return Announcement(store, open=opening)
        product = Product(bool(adjoint), columns)
        intervals = None
        if length:
            plan = np.empty(length, dtype=np.int64)
            self._broadcast(plan, plan.nbytes)
            assignment = Assignment.from_array(plan)
            served = self._stores[store]
            served.count = assignment.count(served.machine)
            intervals = assignment.intervals(served.machine)
        return Announcement(store, step, product, intervals)

    def together(self) -> None:
        """Barrier."""
        wait_for([self._comm.Ibarrier()])

    def opened(self, opened: Opened) -> Emulation | CecError | None:
        """Gather of what machines say, Bcast of the verdict."""
        self._comm.gather(opened, root=_MASTER)
        verdict: Emulation | CecError | None = self._comm.bcast(None, root=_MASTER)
        assert self._opening is not None
        store, opening = self._opening
        if not isinstance(verdict, CecError):
            self._stores[store] = _Served(opening, opening.machines[self._comm.rank - 1])
        return verdict

    def shared(self, order: Announcement) -> NDArray[Any]:
        """Receive W, or the part of this machine."""
        served, product = self._stores[order.store], order.product
        values = served.shared(product)
        if product.adjoint:
            wait_for([self._comm.Iscatterv(None, values, root=_MASTER)], values.nbytes)
        else:
            self._broadcast(values, values.nbytes)
        return values

    def answer(self, order: Announcement, values: NDArray[Any], report: Report) -> None:
        """Send values and report."""
        served, product = self._stores[order.store], order.product
        loaded = report.loaded
        self._report[:3] = report.seconds, loaded.seconds, loaded.bytes
        self._report[3:] = report.failed, report.leaving
        if product.adjoint:
            size = served.columns * product.columns
            _check_buffer("the answer", values, np.dtype(np.float64), size)
            answered = self._comm.Ireduce(values, None, op=MPI.SUM, root=_MASTER)
        else:
            _check_buffer("the answer", values, served.dtype, served.count * product.columns)
            answered = self._comm.Igatherv(values, None, root=_MASTER)
        wait_for([answered, self._comm.Igather(self._report, None, root=_MASTER)], values.nbytes)

    def report(self, text: str) -> None:
        """Send what went wrong."""
        self._comm.gather(text, root=_MASTER)


class _Served:
    """What a machine's end knows of a store: sizes, and a buffer for what is shared."""

    def __init__(self, opening: Opening, machine: int) -> None:
        self.machine = machine
        self.columns = opening.manifest.columns
        self.dtype = np.dtype(opening.manifest.dtype)
        self.count = 0
        self._buffer = np.empty(self.columns, self.dtype)

    def shared(self, product: Product) -> NDArray[Any]:
        k = product.columns
        shape = (self.count, k) if product.adjoint else (k, self.columns)
        size = shape[0] * shape[1]
        if self._buffer.size < size:
            self._buffer = np.empty(size, self.dtype)
        return self._buffer[:size].reshape(shape)
