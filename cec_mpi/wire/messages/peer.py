"""A process that serves, as the master reaches it: by messages of MPI, or over a socket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from cec_mpi.roster.roster import Process, Room, State
from cec_mpi.wire.jobs import Job
from cec_mpi.wire.orders import Order


class GoneError(ConnectionError):
    """The process at the other end is gone."""


@dataclass(eq=False)
class Peer(ABC):
    """How a process is reached, and what is on its way to it.

    Attributes
    ----------
    process : Process
        What it is in the roster.
    host : str
    pid : int
        Its number on that host.
    job : Job or None
        That it was asked for, and whose buffers are in use.
    stores_left : list of int
        That it has to open before it is its machine.
    has_left : bool
        It has said good-bye.
    pinged : bool
        It was asked whether it hears.
    join_seconds : float
        That it has to open a shard.
    is_of_the_job : bool
        It was started by the master's launcher, and ends with it.
    """

    process: Process
    host: str = "a host that is not known yet"
    pid: int = 0
    job: Job | None = None
    stores_left: list[int] = field(default_factory=list)
    has_left: bool = False
    pinged: bool = False

    join_seconds: ClassVar[float] = 10.0
    is_of_the_job: ClassVar[bool] = True

    @property
    def rank(self) -> int:
        """Its number among the processes of the session, rank 0 being the master."""
        return self.process.rank

    @property
    def is_lost(self) -> bool:
        """Whether it is gone."""
        return self.process.state is State.LOST

    @property
    def seat(self) -> int:
        """Which place in lists for all ranks it takes for its own."""
        return self.rank

    @property
    def room(self) -> Room:
        """What it can have at most."""
        return Room()

    def keep_unfinished(self, job: Job) -> None:
        """It is gone: keep what may still be read and written for its job."""
        return

    def choose(self, machines: Sequence[int]) -> int:
        """Which of these machines, at least one, it had best become."""
        return machines[0]

    # Each of these may raise `GoneError`.

    def dismiss(self, reason: str, for_good: bool) -> None:
        """Say that it is asked no more, or never again; one of the job stays till all leave."""
        return

    @abstractmethod
    def order(self, order: Order, content: bytes) -> None:
        """Begin to send an order that is not a job, and bytes that belong to it."""

    @abstractmethod
    def send_object(self, content: object) -> None:
        """Begin to send what the process waits for."""

    @abstractmethod
    def has_sent(self) -> bool:
        """Whether an object is there."""

    @abstractmethod
    def object(self) -> Any:
        """Receive an object."""

    @abstractmethod
    def was_warned(self) -> bool:
        """Whether it has said, while it had nothing to do, that it has to leave."""

    @abstractmethod
    def begin(self, job: Job, order: NDArray[Any], content: NDArray[Any] | None) -> None:
        """Begin to send a job, with what it multiplies with where that does not go along."""

    @abstractmethod
    def has_answered(self, job: Job) -> bool:
        """Whether the answer to its job is there, and lies where it belongs."""


class Group(Protocol):
    """Peers that are reached in the same way."""

    def help_along(self) -> None:
        """Let what was sent go its way, and hear who is new."""

    def gone(self) -> list[tuple[Peer, str]]:
        """Those that have ended since the last call, and how that shows; never waits."""

    def close(self) -> None:
        """End all connections."""


class Callers(Group, Protocol):
    """Peers that come by themselves, for as long as a session lasts.

    Attributes
    ----------
    welcome : callable
        Given what makes a peer of a process, has it come.
    waits : bool
        The session waits for them whenever there are too few machines, and not only before it
        has begun.
    spare : int
        Machines that a step has to be able to miss, for answers to be compared.
    """

    welcome: Callable[[Callable[[Process], Peer]], Peer]
    waits: bool
    spare: int

    def begin(self, store: Path) -> None:
        """Let them know that they may come, to serve this store."""
