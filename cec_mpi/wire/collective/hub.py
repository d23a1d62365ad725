"""The master's end for all stores that the machines serve in lockstep."""

from __future__ import annotations

import logging
import pickle
import traceback

import numpy as np
from mpi4py import MPI

from cec_mpi.errors import CecError, MachineError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.processes.ending import end_job, leave_after_a_loss
from cec_mpi.processes.waiting import wait_for
from cec_mpi.terminal import tell
from cec_mpi.wire.collective.master_end import CollectiveMasterEnd
from cec_mpi.wire.collective.packets import Packet, broadcast
from cec_mpi.wire.jobs import check_message_sizes
from cec_mpi.wire.orders import CUT_OFF, MASTER, Kind, Opened, Opening, Order, Stop
from cec_mpi.wire.protocol import Together

log = logging.getLogger(__name__)


class CollectiveHub(Together):
    """Rank 0's end of the default exchange, for all stores that the machines serve.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The master and one rank per machine.

    Attributes
    ----------
    packet : Packet
        What all are told.
    between_verbs : bool
        Whether the machines wait for the rest of what was begun.
    stopped : bool
        Whether they have left.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__()
        self._comm = comm
        self.packet = Packet(comm)
        self.between_verbs = False
        self.stopped = False
        self._stores = 0
        self._opening: Opening | None = None

    def open(self, opening: Opening) -> list[Opened]:
        """Bcast of the opening, Gather of what the machines say."""
        check_message_sizes(opening.manifest)
        self.say(Order(Kind.OPEN, self._stores), pickle.dumps(opening))
        if opening.measured:
            wait_for([self._comm.Ibarrier()])
        opened: list[Opened] = (self._comm.gather(None, root=MASTER) or [])[1:]
        self._opening = opening
        return opened

    def admit(self, emulation: Emulation | None) -> CollectiveMasterEnd:
        """Bcast of the emulation."""
        self._comm.bcast(emulation, root=MASTER)
        self.between_verbs = False
        assert self._opening is not None
        self.begin(self._opening.machines)
        end = CollectiveMasterEnd(self, self._comm, self._stores, self._opening)
        self._stores += 1
        return end

    def refuse(self, error: CecError) -> None:
        """Bcast of what is wrong."""
        self._comm.bcast(error, root=MASTER)
        self.between_verbs = False

    def stop(self, error: BaseException | None) -> None:
        """Bcast of the order to leave; ends the job when a step was cut off half-way."""
        if self.between_verbs:
            log.critical("the master stopped in the middle of a step", exc_info=True)
            if isinstance(error, MPI.Exception):
                leave_after_a_loss(MASTER, self._comm.size, error)
            if error is None:  # what cut the step off was caught, as an interrupt in a loop
                error = MachineError(CUT_OFF)
                tell(f"cec-mpi: error: {error}")
            else:
                traceback.print_exc()
            end_job(getattr(error, "exit_code", 1))
        self.say(Order(Kind.STOP), Stop(error).packed())
        self.between_verbs = False
        self.stopped = True

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
        self.begin_order(order._replace(length=len(content)) if content else order)
        self.packet.broadcast()
        if content:
            broadcast(self._comm, np.frombuffer(content, dtype=np.uint8), len(content))

    def begin_order(self, order: Order) -> None:
        """Have an order in the packet, unless the machines do not wait for one.

        Raises
        ------
        MachineError
            As `say`.
        """
        if not self.listened_to:
            raise MachineError("the machines have left" if self.stopped else CUT_OFF)
        self.between_verbs = True
        self.packet.order[:] = order
