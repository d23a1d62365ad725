"""A machine's end of jobs that come over a socket."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import CecError, MachineError, StoppedError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.processes.ending import NotedSignals
from cec_mpi.terminal import say
from cec_mpi.times import FAREWELL_SECONDS, LEAVE_LOOK_SECONDS
from cec_mpi.wire.orders import (
    Announced,
    Close,
    Explain,
    Multiply,
    Open,
    Opened,
    Opening,
    Report,
    Stop,
    announced,
    reported,
)
from cec_mpi.wire.sockets.connection import Connection
from cec_mpi.wire.sockets.messages import (
    ANSWER,
    FAREWELL,
    GOOD_BYE,
    ORDER,
    SAID,
    asked_for,
    goes_with_report,
    pieces,
    said,
    shape_for,
    together,
    unpacked_job,
)


class ToldToLeaveError(StoppedError):
    """Somebody has told this machine to leave."""


def told_by(*noted: NotedSignals) -> str:
    """Which signal has told this process to leave; empty if none has come."""
    received = next((each.received for each in noted if each.received), None)
    return f"told to leave by the signal {received.name}" if received else ""


class SocketMachineEnd:
    """A machine's end.

    Parameters
    ----------
    connection : Connection
    threads : int or None
        BLAS threads of this process; None for as many as the master says.
    before : NotedSignals
        Those that came before it serves.
    tells : bool
        Print which machine this process is.

    Attributes
    ----------
    machine : int
        That it was last; 0 for none.
    told : str
        Why it is to leave; empty if it is not.
    """

    def __init__(
        self, connection: Connection, threads: int | None, before: NotedSignals, tells: bool = True
    ) -> None:
        self._connection = connection
        self._threads = threads
        self._tells = tells
        self._signals = self._before = before
        self._frames: list[Any] = []  # that came with the order
        self._content = np.empty(0, np.uint8)  # that is in it
        self._opening: Open | None = None
        self._served: dict[int, Opening] = {}
        self._early: list[Any] | None = None  # an order that came where something else was awaited
        self._goes_by: float | None = None  # once it has said good-bye
        self.machine = 0

    def announced(self, signals: NotedSignals) -> Announced:
        """Wait for an order; when it is to leave, say good-bye to the master."""
        self._signals = signals
        while (frames := self._next()) is None or frames[0] != ORDER:
            if self.told and self._may_go(frames):
                return Stop(ToldToLeaveError(self.told))
        numbers = np.frombuffer(frames[1], np.int64)
        order, pairs, self._content = unpacked_job(numbers)
        self._frames = frames[2:]
        job = asked_for(order, pairs)
        if job is not None:
            return job
        told = announced(order, b"".join(self._frames))
        match told:
            case Open():
                self._opening = told = replace(told, threads=self._threads or told.threads)
            case Close(store):
                self._served.pop(store, None)
            case Explain() | Stop():
                pass
        return told

    def together(self) -> None:
        """Say that this machine is ready, and wait until all are."""
        self._say(None)
        self._object()

    def opened(self, opened: Opened) -> Emulation | CecError | None:
        """Say what became of the opening; returns what the master makes of it."""
        self._say(opened)
        verdict: Emulation | CecError | None = self._object()
        asked = self._opening
        assert asked is not None
        if not isinstance(verdict, CecError):
            self._served[asked.store] = asked.opening
            if asked.machine not in (0, self.machine):
                self.machine = asked.machine
                if self._tells:
                    say(f"this is machine {self.machine} of {asked.opening.store}")
        return verdict

    def shared(self, order: Multiply) -> NDArray[Any]:
        """What this job multiplies with."""
        opening = self._served[order.store]
        shape = shape_for(order, opening)
        if self._content.size:
            return self._content.view(opening.arithmetic).reshape(shape)
        values = np.empty(shape, opening.arithmetic)
        if not together(self._frames, values):
            raise MachineError("the master sent a job with a vector of another length")
        self._frames = []
        return values

    def answer(self, order: Multiply, values: NDArray[Any], report: Report) -> None:
        """Send values and report, which says that this machine leaves if it was told to before."""
        if self.told and not report.failed:
            report = replace(report, leaving=True)
        numbers = np.array(reported(report, order.shard), dtype=np.float64)
        values = np.ascontiguousarray(values)
        if goes_with_report(values):
            self._connection.send(ANSWER, numbers.tobytes() + values.tobytes())
        else:
            self._connection.send(ANSWER, numbers, *pieces(values))

    def report(self, text: str) -> None:
        """Send what went wrong."""
        self._say(text)

    def _say(self, content: Opened | str | None) -> None:
        self._connection.send(SAID, said(content))

    def _object(self) -> Any:
        while (frames := self._connection.receive(LEAVE_LOOK_SECONDS)) is None:
            if self.told:
                self._connection.send(GOOD_BYE)
                raise ToldToLeaveError(self.told)
        if frames[0] == FAREWELL:  # the good-bye was on its way when the master sent the order
            raise ToldToLeaveError(self.told)
        if frames[0] == ORDER:  # the master leaves, and says nothing else any more
            self._early = frames
            return MachineError("the master leaves")
        return pickle.loads(b"".join(frames[1:]))

    def _next(self) -> list[Any] | None:
        early, self._early = self._early, None
        return early or self._connection.receive(LEAVE_LOOK_SECONDS)

    def _may_go(self, frames: list[Any] | None) -> bool:
        """Say good-bye; whether the master has let this machine go, or says nothing for long."""
        now = time.monotonic()
        if self._goes_by is None:
            self._connection.send(GOOD_BYE)
            self._goes_by = now + FAREWELL_SECONDS
        return now > self._goes_by or (frames is not None and frames[0] == FAREWELL)

    @property
    def told(self) -> str:  # noqa: D102
        return told_by(self._before, self._signals)
