"""Processes of the launcher, which MPI's messages reach."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.roster.roster import Process, Roster
from cec_mpi.wire.jobs import Job
from cec_mpi.wire.lifelines.lifelines import Address, Lifelines
from cec_mpi.wire.messages.packing import goes_with_report
from cec_mpi.wire.messages.peer import GoneError, Peer
from cec_mpi.wire.messages.starting import Greeting, start_process
from cec_mpi.wire.messages.tags import CONTENT, NOTE, OBJECT, ORDER, REPORT, VALUES
from cec_mpi.wire.orders import MASTER, Order


@dataclass(eq=False, kw_only=True)
class Rank(Peer):
    """A process that MPI's messages reach.

    Attributes
    ----------
    comm : mpi4py.MPI.Comm
        Where it is reached.
    at : int
        As which rank of `comm`.
    outbox : list
        What is on its way to any process, and MPI still reads.
    """

    comm: MPI.Comm
    at: int
    outbox: list[tuple[MPI.Request, Any]]

    def order(self, order: Order, content: bytes) -> None:
        """Begin to send an order that is not a job, and bytes that belong to it."""
        header = np.array(order._replace(length=len(content)), dtype=np.int64)
        with _speaking():
            self.outbox.append((self._isend(header, ORDER), header))
            if content:
                self.outbox.append((self._isend(content, CONTENT), content))

    def send_object(self, content: object) -> None:
        """Begin to send what the process waits for."""
        with _speaking():
            self.outbox.append((self.comm.isend(content, dest=self.at, tag=OBJECT), None))

    def has_sent(self) -> bool:
        """Whether an object is there."""
        with _speaking():
            return bool(self.comm.Iprobe(source=self.at, tag=OBJECT))

    def object(self) -> Any:
        """Receive an object."""
        with _speaking():
            return self.comm.recv(source=self.at, tag=OBJECT)

    def was_warned(self) -> bool:
        """Whether it has said, while it had nothing to do, that it has to leave."""
        with _speaking():
            if not self.comm.Iprobe(source=self.at, tag=NOTE):
                return False
            self.comm.recv(source=self.at, tag=NOTE)
            return True

    def begin(self, job: Job, order: NDArray[Any], content: NDArray[Any] | None) -> None:
        """Begin to send a job, with what it multiplies with where that does not go along."""
        try:
            requests = [self._isend(order, ORDER)]
            if content is not None:
                requests.append(self._isend(content, CONTENT))
            if goes_with_report(job.values):
                requests.append(self._irecv(job.room.together, VALUES))
            else:
                requests.append(self._irecv(job.report, REPORT))
                requests.append(self._irecv(job.values, VALUES))
        except MPI.Exception as error:
            raise GoneError(str(error)) from None
        job.requests = requests

    def has_answered(self, job: Job) -> bool:
        """Whether the answer to its job is there, and lies where it belongs."""
        try:
            while job.requests and job.requests[-1].Test():
                job.requests.pop()
        except MPI.Exception as error:
            raise GoneError(str(error)) from None
        return not job.requests

    def keep_unfinished(self, job: Job) -> None:
        """It is gone: keep what may still be read and written for its job."""
        _unfinished.append(job)

    def _isend(self, content: Any, tag: int) -> MPI.Request:
        return self.comm.Isend(content, dest=self.at, tag=tag)

    def _irecv(self, content: Any, tag: int) -> MPI.Request:
        return self.comm.Irecv(content, source=self.at, tag=tag)


class Ranks:
    """Processes of the launcher, which serve from the beginning or are started later.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master and the processes that serve from the beginning; they meet here.
    at : sequence of str or None
        Addresses at which rank 0 listens (see `Lifelines`), in a session that goes on without
        processes that are gone.
    ports : (int, int) or None
        The first and the last port at which it may listen; None: any.
    program : str or None
        The module that a process runs which is started in the place of a lost one.
    roster : Roster
        Of these processes.

    Attributes
    ----------
    first : list of Peer
        Those that serve from the beginning.
    program : str or None
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        at: Sequence[str] | None,
        ports: tuple[int, int] | None,
        program: str | None,
        roster: Roster,
    ) -> None:
        self.program = program
        self._lifelines = None if at is None else _listening(comm.size, at, ports)
        comm.bcast(self._lifelines and self._lifelines.address, root=MASTER)
        places = (comm.gather(None, root=MASTER) or [])[1:]
        self._outbox: list[tuple[MPI.Request, Any]] = []
        self._peers: dict[int, Peer] = {}
        self._roster = roster
        self.first = [
            self._added(roster[rank], comm, rank, host=host, pid=pid)
            for rank, (host, pid, _) in enumerate(places, start=1)
        ]
        for peer in self.first:
            roster.settle(peer.rank, peer.host)
        if self._lifelines is not None:
            callers = [rank for rank, place in enumerate(places, start=1) if place[2]]
            self._lifelines.accept(callers, more=program is not None)

    def start(self, rank: int) -> MPI.Intercomm:
        """Have the launcher start a process that is to be this rank.

        Raises
        ------
        MachineError
            It starts none.
        """
        assert self.program is not None
        return start_process(self.program, Greeting(rank, self._address_for(rank)))

    def peer(self, process: Process, comm: MPI.Intercomm) -> Peer:
        """A process that was started."""
        return self._added(process, comm, 0)

    def hear_whereabouts(self, peer: Peer) -> None:
        """A process that was started has said where it runs."""
        peer.host, peer.pid, called = peer.object()
        self._roster.settle(peer.rank, peer.host)
        if self._lifelines is not None:
            self._lifelines.accept([peer.rank] if called else [], more=True)

    def help_along(self) -> None:
        """Let what was sent go its way; who is gone shows elsewhere."""
        if self._outbox:
            self._outbox[:] = [sent for sent in self._outbox if not _is_done(sent[0])]

    def gone(self) -> list[tuple[Peer, str]]:
        """Those whose connection has ended."""
        ended = self._lifelines.gone() if self._lifelines is not None else ()
        return [(self._peers[rank], "its connection has ended") for rank in ended]

    def close(self) -> None:
        """End all connections."""
        if self._lifelines is not None:
            self._lifelines.close()

    def _added(self, process: Process, comm: MPI.Comm, at: int, **more: Any) -> Peer:
        peer = Rank(process, comm=comm, at=at, outbox=self._outbox, **more)
        self._peers[process.rank] = peer
        return peer

    def _address_for(self, rank: int) -> Address | None:
        """Where rank 0 hears a process that comes later."""
        if self._lifelines is None:
            return None
        self._lifelines.expect(rank)
        return self._lifelines.address


def _listening(size: int, at: Sequence[str], ports: tuple[int, int] | None) -> Lifelines | None:
    """Connections to all other processes; without them, losses show in what MPI says, or late."""
    try:
        return Lifelines(range(1, size), at, ports)
    except (OSError, RuntimeError) as error:
        where = ", ".join(filter(None, at)) or "any address"
        if ports is not None:
            where += f" at ports {ports[0]}-{ports[1]}"
        warnings.warn(
            f"rank 0 cannot listen at {where} ({error}): a machine that is lost may be seen only "
            "when its deadline is over",
            stacklevel=2,
        )
        return None


_unfinished: list[Job] = []  # with buffers that MPI may still read or write


def _is_done(request: MPI.Request) -> bool:
    try:
        return bool(request.Test())
    except MPI.Exception:
        return True


@contextmanager
def _speaking() -> Iterator[None]:
    """An error of MPI inside the ``with`` means that the process is gone."""
    try:
        yield
    except MPI.Exception as error:
        raise GoneError(str(error)) from None
