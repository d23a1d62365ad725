"""What the master says to all machines, of whichever store it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.errors import MachineError
from cec_mpi.wire.collective.buffers import broadcast
from cec_mpi.wire.collective.packets import Packet
from cec_mpi.wire.orders import CUT_OFF, Order


class Announcer:
    """Says to the machines what comes next, while they wait for it.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master and one rank per machine.

    Attributes
    ----------
    between_verbs : bool
        Whether the machines wait for the rest of what was begun.
    stopped : bool
        Whether they have left.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._packet = Packet(comm)
        self.between_verbs = False
        self.stopped = False

    @property
    def listened_to(self) -> bool:
        """Whether the machines wait for what the master says next."""
        return not (self.stopped or self.between_verbs)

    def say(self, order: Order, content: bytes = b"") -> None:
        """Bcast of an order, and of bytes that belong to it.

        Raises
        ------
        MachineError
            The machines have left, or wait for the rest of a step that was cut off.
        """
        self._begin(order._replace(length=len(content)) if content else order)
        self._packet.broadcast()
        if content:
            broadcast(self._comm, np.frombuffer(content, dtype=np.uint8), len(content))

    def say_step(self, order: Order, values: NDArray[Any]) -> bool:
        """Bcast of the order of a step, with what it shares if that is short.

        Returns
        -------
        bool
            Whether what it shares was sent.

        Raises
        ------
        MachineError
            As `say`.
        """
        self._begin(order)
        packet, size = self._packet, values.nbytes
        room = packet.room(size)
        if room is not None:
            room[:] = values.reshape(-1).view(np.uint8)
        packet.broadcast()
        packet.shared(size)
        return room is not None

    def _begin(self, order: Order) -> None:
        if not self.listened_to:
            raise MachineError("the machines have left" if self.stopped else CUT_OFF)
        self.between_verbs = True
        self._packet.order[:] = order
