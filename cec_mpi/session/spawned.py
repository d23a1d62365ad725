"""The program of a process that is started in the place of a lost one.

It is alone in its COMM_WORLD, and reaches the master through the communicator that MPI gives it.
"""

from __future__ import annotations

import os
from typing import NoReturn

from mpi4py import MPI

from cec_mpi.processes.ending.failing import dying_alone
from cec_mpi.processes.ending.leaving import leave_now
from cec_mpi.wire.lifelines.lifelines import Lifeline
from cec_mpi.wire.messages.tags import OBJECT
from cec_mpi.wire.orders import MASTER


def _serve() -> NoReturn:
    """Serve until the master leaves."""
    # What the master waits for is over by now; this takes longer than MPI_Init.
    from cec_mpi.session.serving import serve
    from cec_mpi.wire.messages.machine_end import MessagesMachineEnd, whereabouts

    master = MPI.Comm.Get_parent()
    master.Set_errhandler(MPI.ERRORS_RETURN)
    with dying_alone(MPI.COMM_WORLD):
        rank, address = master.recv(source=MASTER, tag=OBJECT)
        lifeline = None if address is None else Lifeline(address, rank)
        master.send(whereabouts(lifeline), dest=MASTER, tag=OBJECT)
        serve(rank, MessagesMachineEnd(master, lifeline, leave_now))
    # It knows of no lost process, and the launcher takes its end without this for a failure.
    MPI.Finalize()
    os._exit(0)


if __name__ == "__main__":
    _serve()
