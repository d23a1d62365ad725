"""A process that serves, as rank 0 sees it: how it is reached, and what it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cec_mpi.runtime.jobs import Job

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Peer"]


@dataclass(eq=False)
class Peer:
    """A process that serves: which machine it is, and what it was asked last.

    Attributes
    ----------
    rank : int
        Its number among the processes of the session, rank 0 being the master.
    comm : mpi4py.MPI.Comm
        Where it is reached.
    at : int
        As which rank of `comm`.
    host : str
    process : int
        Its number on that host.
    """

    rank: int
    comm: MPI.Comm
    at: int
    host: str = "a host that is not known yet"
    process: int = 0
    machine: int = 0  # 0 for a spare
    job: Job | None = None
    joining: int = 0  # the machine that it is to become
    asked: float = 0.0  # when
    stores_left: list[int] = field(default_factory=list)  # that it has to open first
    lost: bool = False
    left_out: bool = False  # lives, but is not asked any more
    given_up: bool = False  # taken for lost, until it answers
    pinged: bool = False  # asked whether it hears
    starting: bool = False  # has not said where it runs

    @property
    def is_idle(self) -> bool:
        """Whether it can be asked something."""
        return not (self.lost or self.left_out or self.job or self.joining)

    def isend(self, content: Any, tag: int) -> MPI.Request:
        """Begin to send a buffer."""
        return self.comm.Isend(content, dest=self.at, tag=tag)

    def irecv(self, content: Any, tag: int) -> MPI.Request:
        """Begin to receive a buffer."""
        return self.comm.Irecv(content, source=self.at, tag=tag)

    def isend_object(self, content: object, tag: int) -> MPI.Request:
        """Begin to send an object."""
        return self.comm.isend(content, dest=self.at, tag=tag)

    def has_sent(self, tag: int) -> bool:
        """Whether a message with this tag is there."""
        return bool(self.comm.Iprobe(source=self.at, tag=tag))

    def object(self, tag: int) -> Any:
        """Receive an object."""
        return self.comm.recv(source=self.at, tag=tag)
