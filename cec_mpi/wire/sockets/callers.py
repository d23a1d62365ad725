"""Machines that come by themselves, as the master reaches them."""

from __future__ import annotations

import logging
import pickle
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.processes.launch.findings import different_packages
from cec_mpi.roster.roster import Process, Room
from cec_mpi.terminal import say
from cec_mpi.wire.jobs import Job
from cec_mpi.wire.messages.peer import GoneError, Peer
from cec_mpi.wire.opening import Opened
from cec_mpi.wire.orders import Order
from cec_mpi.wire.sockets.connection_file import ConnectionFile, read_connection_file
from cec_mpi.wire.sockets.frames import (
    ANSWER,
    DISMISSED,
    FAILED,
    FAREWELL,
    GOOD_BYE,
    HELLO,
    OBJECT,
    ORDER,
    REFUSED,
    SAID,
    heard,
    kind_and_head,
    pieces,
    together,
)
from cec_mpi.wire.sockets.hello import Hello, here
from cec_mpi.wire.sockets.listener import Listener

log = logging.getLogger(__name__)

_MOST_AT_ONCE = 1000  # messages, before somebody else has a turn
_MOST_SAID = 16  # objects that wait to be taken: a machine says one when it is asked
_MOST_TOLD = 10  # warnings of what is no machine's way to speak
_OPEN_SECONDS = 600.0  # for shards that are read in full; a death shows at once


@dataclass(eq=False, kw_only=True)
class Caller(Peer):
    """A machine that came by itself.

    Attributes
    ----------
    hello : Hello
    send : callable
        Begins to send frames; says whether the process is there.
    homes : dict of int to str
        The host on which each machine was last.
    answer : list or None
        The frames of its answer, once they are here.
    said : deque
        Objects that it has said.
    """

    hello: Hello
    send: Callable[..., bool]
    homes: dict[int, str]
    answer: list[Any] | None = None
    said: deque[Any] = field(default_factory=partial(deque, maxlen=_MOST_SAID))

    join_seconds = _OPEN_SECONDS
    is_of_the_job = False

    @property
    def seat(self) -> int:
        """Which place in lists for all ranks it takes for its own."""
        return 1

    @property
    def room(self) -> Room:
        """What it can have at most."""
        return Room(self.hello.shards, self.hello.memory)

    def choose(self, machines: Sequence[int]) -> int:
        """The one that it was before, or that its host had, whose files may be there."""
        its = [n for n in machines if self.homes.get(n) == self.host]
        before = [n for n in machines if n == self.hello.earlier]
        new = [n for n in machines if n not in self.homes]
        machine = (before or its or new or machines)[0]
        self.homes[machine] = self.host
        return machine

    def order(self, order: Order, content: bytes) -> None:
        """Begin to send an order that is not a job, and bytes that belong to it."""
        header = np.array(order._replace(length=len(content)), dtype=np.int64)
        self._send(ORDER, header, *pieces(content))

    def send_object(self, content: object) -> None:
        """Begin to send what the process waits for."""
        self._send(OBJECT, *pieces(pickle.dumps(content)))

    def has_sent(self) -> bool:
        """Whether an object is there."""
        return bool(self.said)

    def object(self) -> Any:
        """Receive an object; a machine that it cannot become is not the one of its host."""
        content = self.said.popleft()
        if isinstance(content, Opened) and content.problem:
            self.homes.pop(self.process.machine, None)
        return content

    def was_warned(self) -> bool:
        """It says good-bye, which shows elsewhere."""
        return False

    def begin(self, job: Job, order: NDArray[Any], content: NDArray[Any] | None) -> None:
        """Begin to send a job, with what it multiplies with where that does not go along."""
        self.answer = None
        self._send(ORDER, order, *(() if content is None else pieces(content)))

    def has_answered(self, job: Job) -> bool:
        """Whether the answer to its job is there; puts it where it belongs."""
        if self.answer is None:
            return False
        head, *values = self.answer
        self.answer = None
        report, begin = head[: job.report.nbytes], head[job.report.nbytes :]
        if not (together([report], job.report) and together([begin, *values], job.values)):
            raise GoneError("it answers what it was not asked")
        return True

    def dismiss(self, reason: str, for_good: bool) -> None:
        """Begin to send that it is asked no more, or never again."""
        self._send(DISMISSED if for_good else FAILED, reason.encode(errors="backslashreplace"))

    def _send(self, *frames: Any) -> None:
        if not self.send(*frames):
            raise GoneError("its connection has ended")


class Reception:
    """Machines that come by themselves, for as long as a session lasts.

    Parameters
    ----------
    listener : Listener
    path : Path
        Of the connection file.
    waits : bool
    spare : int
        See `Callers`.
    earlier : ConnectionFile or None
        What is there, and may be replaced.

    Attributes
    ----------
    welcome : callable
    waits : bool
    spare : int
        See `Callers`.
    """

    welcome: Callable[[Callable[[Process], Peer]], Peer]

    def __init__(
        self,
        listener: Listener,
        path: Path,
        waits: bool,
        spare: int,
        earlier: ConnectionFile | None,
    ) -> None:
        self.waits, self.spare = waits, spare
        self._earlier = earlier
        self._listener = listener
        self._path = path
        self._callers: dict[bytes, Caller] = {}
        self._leaving: set[bytes] = set()  # that have said good-bye
        self._homes: dict[int, str] = {}
        self._written = False
        self._strange = 0  # messages that no machine sends

    def begin(self, store: Path) -> None:
        """Write the connection file, and say where machines are heard.

        Raises
        ------
        InputError
            It cannot be written, or a run that began at the same time has written its own.
        """
        file = self._listener.file
        if self._path.exists() and read_connection_file(self._path) != self._earlier:
            raise InputError(
                f"accept {self._path}: another run has begun to listen there, expected a name of "
                "its own"
            )
        self._written = True  # or is about to be
        file.write(self._path)
        ports = ", ".join(dict.fromkeys(f"{port}" for _, port in file.places))
        hosts = ", ".join(dict.fromkeys(host for host, _ in file.places))
        say(f"listening for machines at {hosts}, port {ports}: cec-mpi join {self._path}")
        log.info("listening for machines of %s at %s, port %s", store, hosts, ports)

    def help_along(self) -> None:
        """Hear what machines have said, and who is new."""
        for _ in range(_MOST_AT_ONCE):
            message = self._listener.receive()
            if message is None:
                return
            self._take(*message)

    def gone(self) -> list[tuple[Peer, str]]:
        """Those that have ended since the last call, and how that shows; never waits."""
        gone = self._listener.gone(list(self._callers))
        if gone:
            self.help_along()  # what they had said before
        found: list[tuple[Peer, str]] = []
        for name in gone:
            self._leaving.discard(name)
            found.append((self._callers.pop(name), "its connection has ended"))
        for name in [name for name in self._leaving if self._callers[name].job is None]:
            self._leaving.remove(name)
            caller = self._callers.pop(name)
            caller.send(FAREWELL)
            found.append((caller, "it has said good-bye"))
        return found

    def close(self) -> None:
        """End all connections, when machines were sent the last words."""
        try:
            if self._written:
                self._listener.file.remove(self._path)
        finally:
            self._listener.close()

    def _take(self, name: bytes, frames: list[Any]) -> None:
        caller = self._callers.get(name)
        try:
            kind, head = kind_and_head(frames[0])
            if caller is None:
                if kind == HELLO:
                    self._hear_hello(name, Hello.read(head))
            elif kind == ANSWER and caller.job is not None:
                caller.answer = [head, *frames[1:]]
            elif kind == SAID:
                caller.said.append(heard(bytes(head)))
            elif kind == GOOD_BYE:
                caller.has_left = True
                self._leaving.add(name)
            else:
                raise ValueError("nothing that a machine says")
        except (IndexError, ValueError):
            self._strange += 1
            if self._strange <= _MOST_TOLD:
                log.warning("a machine that has the keys does not speak as one")

    def _hear_hello(self, name: bytes, hello: Hello) -> None:
        send = partial(self._listener.send, name)
        mine = [socket.gethostname(), *here()]
        problem = different_packages([mine, [hello.host, *hello.package]])
        if problem:
            log.warning("a machine is refused: %s", problem)
            send(REFUSED, problem.encode(errors="backslashreplace"))
            return

        def make(process: Process) -> Caller:
            name = process, hello.host, hello.pid
            return Caller(*name, hello=hello, send=send, homes=self._homes)

        caller = self.welcome(make)
        assert isinstance(caller, Caller)
        self._callers[name] = caller
        self._listener.know()
        log.info("rank %d has come: process %d on %s", caller.rank, hello.pid, hello.host)
