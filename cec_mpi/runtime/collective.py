"""A step by collectives: Bcast of the announcement and of w, Gatherv of the answers.

MPI checks next to nothing: a Fortran-ordered array, another dtype or a count that does
not match give silently wrong data, and a displacement beyond the buffer corrupts memory.
So this module owns all communication of a step and checks each buffer before it goes.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.core.assignment import Assignment
from cec_mpi.errors import InputError
from cec_mpi.runtime.exchange import Announcement, Answers, Report
from cec_mpi.runtime.waiting import wait_for

__all__ = ["CollectiveMachineEnd", "CollectiveMasterEnd", "check_message_sizes"]

log = logging.getLogger(__name__)

_MASTER = 0
_STEP, _REPORT, _STOP = 1, 2, 3
_REPORTED = 4  # numbers of a machine's report
_MOST = 2**31 - 1  # numbers in one message: Open MPI 5 fails beyond


def check_message_sizes(columns: int, answers: int) -> None:
    """Refuse a store whose vectors are too long for one MPI message.

    Raises
    ------
    InputError
        w or the answers of a step have 2**31 numbers or more.
    """
    for what, size in (("w", columns), ("the answers of a step", answers)):
        if size > _MOST:
            raise InputError(f"{what} would have {size} numbers: MPI carries at most {_MOST}")


def _check_buffer(name: str, array: NDArray[Any], dtype: np.dtype[Any], size: int) -> None:
    if array.dtype != dtype or array.shape != (size,) or not array.flags.c_contiguous:
        raise InputError(
            f"{name} of shape {array.shape} and dtype {array.dtype}"
            f"{'' if array.flags.c_contiguous else ', not contiguous'}: "
            f"expected ({size},) of {dtype}, contiguous"
        )


class _End:
    """What both ends share: the communicator and the header."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._header = np.zeros(3, dtype=np.int64)  # kind, step or code, length of the plan

    def _broadcast(self, array: NDArray[Any], transfer: int = 0) -> None:
        wait_for([self._comm.Ibcast(array, root=_MASTER)], transfer)


class CollectiveMasterEnd(_End):
    """Rank 0's end of the default exchange.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The master and one rank per machine.
    machines : list of int
        The machine of each rank from 1 on, ascending; other machines of the store take
        no part.
    total : int
        Machines of the store, N.
    columns : int
        Length r of w.
    answers : int
        Numbers that a step collects: copies times the rows per shard.
    dtype : numpy.dtype
        Of w and the answers.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        machines: list[int],
        total: int,
        columns: int,
        answers: int,
        dtype: np.dtype[Any],
    ) -> None:
        super().__init__(comm)
        check_message_sizes(columns, answers)
        self._ranks = np.array(machines) - 1  # index among machines 1..N of rank 1, 2, ..
        self._total = total
        self._columns = columns
        self._values = np.empty(answers, dtype)
        self._nothing = np.empty(0, dtype)
        self._no_report = np.zeros(_REPORTED)
        self._reports = np.zeros((comm.size, _REPORTED))
        self._machines = np.zeros((_REPORTED, total))
        self._assignment: Assignment | None = None
        self._counts = np.zeros(comm.size, dtype=np.intc)
        self._displacements = np.zeros(comm.size, dtype=np.intc)
        self._between_verbs = False

    def announce(self, step: int, assignment: Assignment) -> int:
        """Begin a step: Bcast of the header, and of the assignment if it is new."""
        if assignment is self._assignment:
            self._say(_STEP, step)
            return self._header.nbytes
        plan = assignment.to_array()
        self._set(assignment)
        self._say(_STEP, step, plan.size)
        self._broadcast(plan, plan.nbytes)
        return self._header.nbytes + plan.nbytes

    def share(self, w: NDArray[Any]) -> int:
        """Bcast of w."""
        _check_buffer("w", w, self._values.dtype, self._columns)
        self._broadcast(w, w.nbytes)
        return w.nbytes

    def collect(self) -> Answers:
        """Gatherv of the values, Gather of seconds and failures."""
        self._values.fill(np.nan)
        self._reports.fill(0)
        values = [self._values, (self._counts, self._displacements)]
        answered = self._comm.Igatherv(self._nothing, values, root=_MASTER)
        reported = self._comm.Igather(self._no_report, self._reports, root=_MASTER)
        wait_for([reported])  # once all have reported, all answers are on their way
        wait_for([answered], self._values.nbytes)
        self._between_verbs = False
        self._machines[:, self._ranks] = self._reports[1:].T
        seconds, load_seconds, load_bytes, failures = self._machines
        failed = [int(n) + 1 for n in np.flatnonzero(failures)]
        return Answers(self._values, seconds, load_seconds, load_bytes, failed)

    def reports(self) -> dict[int, str]:
        """Gather of texts, for the rare case."""
        self._say(_REPORT, 0)
        texts = self._comm.gather("", root=_MASTER) or []
        self._between_verbs = False
        return {int(n) + 1: text for n, text in zip(self._ranks, texts[1:], strict=True) if text}

    def stop(self, code: int) -> None:
        """Bcast of the order to leave; ends the job when a step was cut off half-way."""
        if self._between_verbs:
            log.critical("the master stopped in the middle of a step", exc_info=True)
            traceback.print_exc()
            self._comm.Abort(code or 1)
        self._say(_STOP, code)
        self._between_verbs = False

    def _say(self, kind: int, number: int, plan: int = 0) -> None:
        self._between_verbs = True
        self._header[:] = kind, number, plan
        self._broadcast(self._header, self._header.nbytes)

    def _set(self, assignment: Assignment) -> None:
        counts = assignment.counts(self._total)
        others = np.delete(counts, self._ranks)
        if others.any() or counts.sum() != self._values.size:
            raise InputError(f"{assignment!r} does not fit the ranks or the store")
        self._counts[1:] = counts[self._ranks]
        self._displacements[1:] = np.cumsum(self._counts[:-1])
        self._assignment = assignment


class CollectiveMachineEnd(_End):
    """A machine's end of the default exchange.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
    machine : int
        Number of the machine.
    columns : int
        Length r of w.
    dtype : numpy.dtype
        Of w and the answers.
    """

    def __init__(self, comm: MPI.Comm, machine: int, columns: int, dtype: np.dtype[Any]) -> None:
        super().__init__(comm)
        self._machine = machine
        self._count = 0
        self._w = np.empty(columns, dtype)
        self._report = np.zeros(_REPORTED)

    def announced(self) -> Announcement:
        """Receive the header, and the assignment if it is new."""
        self._broadcast(self._header)
        kind, number, length = self._header.tolist()
        if kind == _STOP:
            return Announcement(stop=number)
        if kind == _REPORT:
            return Announcement(report=True)
        if not length:
            return Announcement(step=number)
        plan = np.empty(length, dtype=np.int64)
        self._broadcast(plan, plan.nbytes)
        assignment = Assignment.from_array(plan)
        self._count = assignment.count(self._machine)
        return Announcement(step=number, assignment=assignment)

    def shared(self) -> NDArray[Any]:
        """Receive w."""
        self._broadcast(self._w, self._w.nbytes)
        return self._w

    def answer(self, values: NDArray[Any], report: Report) -> None:
        """Send values and report."""
        _check_buffer("the answer", values, self._w.dtype, self._count)
        loaded = report.loaded
        self._report[:] = report.seconds, loaded.seconds, loaded.bytes, report.failed
        requests = [
            self._comm.Igatherv(values, None, root=_MASTER),
            self._comm.Igather(self._report, None, root=_MASTER),
        ]
        wait_for(requests, values.nbytes)

    def report(self, text: str) -> None:
        """Send what went wrong."""
        self._comm.gather(text, root=_MASTER)
