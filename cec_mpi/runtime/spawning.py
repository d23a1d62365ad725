"""Processes that the master has the launcher start in the place of lost ones.

Each is alone in its COMM_WORLD, and reaches the master through the communicator that MPI
gives it. Its program is this module.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import NamedTuple, NoReturn

from mpi4py import MPI

from cec_mpi.errors import MachineError
from cec_mpi.runtime.jobs import MASTER, OBJECT
from cec_mpi.runtime.leaving import end_job, leave_now
from cec_mpi.runtime.lifelines import Address, Lifeline
from cec_mpi.runtime.together import complain, dying_alone

__all__ = ["Greeting", "start_process"]

_START_SECONDS = 20.0  # that a launcher has to start a process; it takes some tenths of one


class Greeting(NamedTuple):
    """What a process is told first.

    Attributes
    ----------
    rank : int
        Its number among the processes of the session.
    address : Address
        Where rank 0 hears it.
    """

    rank: int
    address: Address


def start_process(greeting: Greeting) -> MPI.Intercomm:
    """Have the launcher start a process of this program.

    Returns
    -------
    mpi4py.MPI.Intercomm
        The new process is rank 0 of its remote group.

    Raises
    ------
    MachineError
        It starts none. Where it hangs, the job ends with exit code 3.
    """
    watch = threading.Timer(_START_SECONDS, _give_up)
    watch.daemon = True
    watch.start()
    try:
        comm = MPI.COMM_SELF.Spawn(sys.executable, args=["-m", __name__], maxprocs=1)
    except MPI.Exception as error:
        raise MachineError(f"the launcher starts no process: {error}") from None
    finally:
        watch.cancel()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    comm.send(greeting, dest=0, tag=OBJECT)
    return comm


def _give_up() -> NoReturn:
    """End the job: MPI hangs, now and then when several processes die at the same time."""
    text = "the launcher has started no process in the place of a lost one: --resume goes on"
    complain(MachineError(f"{text} from the last checkpoint"))
    end_job(MachineError.exit_code)


def _serve() -> NoReturn:
    """Serve until the master leaves."""
    # What the master waits for is over by now; this takes longer than MPI_Init.
    from cec_mpi.runtime.answering import MessagesMachineEnd, whereabouts
    from cec_mpi.runtime.serving import serve

    master = MPI.Comm.Get_parent()
    master.Set_errhandler(MPI.ERRORS_RETURN)
    with dying_alone(MPI.COMM_WORLD):
        rank, address = master.recv(source=MASTER, tag=OBJECT)
        lifeline = Lifeline(address, rank)
        master.send(whereabouts(lifeline), dest=MASTER, tag=OBJECT)
        serve(rank, MessagesMachineEnd(master, lifeline, leave_now))
    # It knows of no lost process, and the launcher takes its end without this for a failure.
    MPI.Finalize()
    os._exit(0)


if __name__ == "__main__":
    _serve()
