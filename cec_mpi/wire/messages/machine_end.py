"""A machine's end of the exchange by messages."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.core.plan.numbers import Ints
from cec_mpi.errors import CecError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.processes.ending.signals import NotedSignals
from cec_mpi.processes.waiting import Patience, Rhythm
from cec_mpi.wire.lifelines.lifelines import Lifeline
from cec_mpi.wire.messages.packing import (
    AnswerRoom,
    asked_for,
    goes_with_report,
    shape_for,
    unpacked_job,
)
from cec_mpi.wire.messages.tags import CONTENT, NOTE, OBJECT, ORDER, REPORT, VALUES
from cec_mpi.wire.opening import Opened, Opening
from cec_mpi.wire.orders import (
    MASTER,
    Announced,
    Close,
    Kind,
    Multiply,
    Open,
    Report,
    Stop,
    announced,
    reported,
)

log = logging.getLogger(__name__)

_IDLE_SLEEP = 5e-3  # seconds, of a machine that was not asked for long
_LOOK_SECONDS = 0.05  # between two looks whether rank 0 is there


def meet_master(comm: MPI.Intracomm, leave: Callable[[], object]) -> MessagesMachineEnd:
    """Collective with `MessagesHub`: a machine's end for a process of the session's own."""
    address = comm.bcast(None, root=MASTER)
    lifeline = None if address is None else Lifeline(address, comm.rank)
    comm.gather(whereabouts(lifeline), root=MASTER)
    return MessagesMachineEnd(comm, lifeline, leave)


def whereabouts(lifeline: Lifeline | None) -> tuple[str, int, bool]:
    """Host and number of this process, and whether rank 0 has a connection to it."""
    return socket.gethostname(), os.getpid(), lifeline is not None and lifeline.is_up


class MessagesMachineEnd:
    """A machine's end.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        Rank 0 of it, or of its remote group, is the master.
    lifeline : Lifeline or None
    leave : callable
        Called when the master is gone; does not return.
    """

    def __init__(
        self, comm: MPI.Comm, lifeline: Lifeline | None, leave: Callable[[], object]
    ) -> None:
        self._lifeline = lifeline
        self._comm = comm
        self._leave = leave
        self._content = np.empty(0, np.uint8)  # what came with the order
        self._room = AnswerRoom(0, np.dtype(np.float64))
        self._opening: tuple[int, Opening] | None = None
        self._served: dict[int, Opening] = {}
        self._orders, self._contents = Rhythm(), Rhythm()
        self._next_look = 0.0
        self._told = False  # that this machine has to leave
        self.others_are_lost = False

    def announced(self, signals: NotedSignals) -> Announced:
        """Wait for an order; tell the master of signals that come meanwhile."""
        with self._to_master():
            numbers = self._next_order(signals)
            order, pairs, self._content = unpacked_job(numbers)
            job = asked_for(order, pairs)
            if job is not None:
                return job
            content = np.empty(order.length, dtype=np.uint8)
            if order.length:
                received = self._comm.Irecv(content, source=MASTER, tag=CONTENT)
                self._wait_for([received], order.length)
            if order.kind == Kind.STOP:
                self._comm.send(None, dest=MASTER, tag=OBJECT)
        said = announced(order, content.tobytes())
        match said:
            case Open():
                self._opening = said.store, said.opening
            case Close():
                self._served.pop(said.store, None)
            case Stop():
                if self._lifeline is not None:
                    self._lifeline.close()
                self.others_are_lost = said.others_are_lost
        return said

    def together(self) -> None:
        """Say that this machine is ready, and wait until all are."""
        with self._to_master():
            self._comm.send(None, dest=MASTER, tag=OBJECT)
            self._object()

    def opened(self, opened: Opened) -> Emulation | CecError | None:
        """Say what became of the opening; returns what the master makes of it."""
        with self._to_master():
            self._comm.send(opened, dest=MASTER, tag=OBJECT)
            verdict: Emulation | CecError | None = self._object()
        assert self._opening is not None
        store, opening = self._opening
        if not isinstance(verdict, CecError):
            self._served[store] = opening
        return verdict

    def shared(self, order: Multiply) -> NDArray[Any]:
        """Receive what this job multiplies with."""
        opening = self._served[order.store]
        shape = shape_for(order, opening)
        if self._content.size:
            return self._content.view(opening.arithmetic).reshape(shape)
        values = np.empty(shape, opening.arithmetic)
        with self._to_master():
            self._wait_for([self._comm.Irecv(values, source=MASTER, tag=CONTENT)], values.nbytes)
        return values

    def answer(self, order: Multiply, values: NDArray[Any], report: Report) -> None:
        """Send values and report."""
        together = goes_with_report(values)
        if (self._room.values.size, self._room.values.dtype) != (values.size, values.dtype):
            self._room = AnswerRoom(values.size if together else 0, values.dtype)
        room = self._room
        room.report[:] = reported(report, order.shard)
        self._told = self._told or report.leaving
        with self._to_master():
            if together:
                room.values[:] = values
                requests = [self._comm.Isend(room.together, dest=MASTER, tag=VALUES)]
            else:
                requests = [
                    self._comm.Isend(room.report, dest=MASTER, tag=REPORT),
                    self._comm.Isend(values, dest=MASTER, tag=VALUES),
                ]
            self._wait_for(requests, values.nbytes)

    def report(self, text: str) -> None:
        """Send what went wrong."""
        with self._to_master():
            self._comm.send(text, dest=MASTER, tag=OBJECT)

    def _next_order(self, signals: NotedSignals) -> Ints:
        patience = Patience(longest=_IDLE_SLEEP, rhythm=self._orders)
        status = MPI.Status()
        while not self._comm.Iprobe(source=MASTER, tag=ORDER, status=status):
            if signals.received is not None and not self._told:
                self._told = True
                self._comm.send(None, dest=MASTER, tag=NOTE)
            self._pause(patience)
        patience.over()
        order = np.empty(status.Get_count(MPI.INT64_T), dtype=np.int64)
        self._comm.Recv(order, source=MASTER, tag=ORDER)
        return order

    def _object(self) -> Any:
        patience = Patience()
        while not self._comm.Iprobe(source=MASTER, tag=OBJECT):
            self._pause(patience)
        return self._comm.recv(source=MASTER, tag=OBJECT)

    def _wait_for(self, requests: list[MPI.Request], transfer: int = 0) -> None:
        patience = Patience(transfer, rhythm=self._contents)
        while not all(request.Test() for request in requests):
            self._pause(patience)
        patience.over()

    def _pause(self, patience: Patience) -> None:
        """Wait a little, unless rank 0 is gone."""
        patience.pause()
        now = time.monotonic()
        if self._lifeline is not None and now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            if self._lifeline.is_cut:
                log.critical("the connection to the master has ended")
                self._leave()

    def _to_master(self) -> _ToMaster:
        return _ToMaster(self._leave)


class _ToMaster:
    """An error of MPI inside the ``with`` means that the master is gone."""

    __slots__ = ("_leave",)

    def __init__(self, leave: Callable[[], object]) -> None:
        self._leave = leave

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: object
    ) -> Literal[False]:
        if kind is not None and issubclass(kind, MPI.Exception):
            log.critical("the master is gone: %s", error)
            self._leave()
        return False
