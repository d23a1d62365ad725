"""A process that serves, as the master reaches it over a socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cec_mpi.roster.roster import Process, Room
from cec_mpi.wire.jobs import Job
from cec_mpi.wire.opening import Opened
from cec_mpi.wire.orders import Order
from cec_mpi.wire.sockets.frames import OBJECT, ORDER, pieces
from cec_mpi.wire.sockets.hello import Hello


@dataclass(eq=False)
class Peer:
    """How a process is reached, and what it has said.

    Attributes
    ----------
    process : Process
        Its entry in the roster.
    hello : Hello
        What it said first.
    send : callable
        Begins to send frames; False if the connection has ended.
    job : Job or None
        That it was asked for and has not answered; its buffers are in use.
    answer : list or None
        The frames of its answer, until they are taken.
    unopened : list of int
        Stores that it has to open before it is a machine.
    opened : Opened or None
        What became of the store that it opened last, until it is taken.
    is_ready : bool
        It waits for the others before it measures its speed.
    text : str or None
        What went wrong on it, as it was last asked to say.
    texts_owed : int
        Times that it was asked, and has not answered yet.
    has_left : bool
        It has said good-bye.
    """

    process: Process
    hello: Hello
    send: Callable[..., bool]
    job: Job | None = None
    answer: list[Any] | None = None
    unopened: list[int] = field(default_factory=list)
    opened: Opened | None = None
    is_ready: bool = False
    text: str | None = None
    texts_owed: int = 0
    has_left: bool = False

    @property
    def rank(self) -> int:
        """Its number among the processes of the session; the master is 0."""
        return self.process.rank

    @property
    def machine(self) -> int:
        """The machine that it is, or is to become; 0 for none."""
        return self.process.machine

    @property
    def host(self) -> str:  # noqa: D102
        return self.hello.place.host

    @property
    def room(self) -> Room:
        """What it can hold at most."""
        return Room(self.hello.shards, self.hello.memory)

    def order(self, order: Order, content: bytes = b"") -> bool:
        """Begin to send an order that is not a job; False if the connection has ended."""
        header = np.array(order._replace(length=len(content)), dtype=np.int64)
        return self.send(ORDER, header, *pieces(content))

    def send_object(self, packed: bytes) -> bool:
        """Begin to send a pickled object that the process waits for."""
        return self.send(OBJECT, b"", *pieces(packed))

    def hear(self, content: Opened | str | None) -> None:
        """Take what it has said."""
        match content:
            case Opened():
                self.opened = content
            case str():
                self.texts_owed -= 1
                if not self.texts_owed:  # an answer to an earlier question is dropped
                    self.text = content
            case None:
                self.is_ready = True
