"""Processes that the master has the launcher start in the place of lost ones."""

from __future__ import annotations

import sys
import threading
from typing import NamedTuple, NoReturn

from mpi4py import MPI

from cec_mpi.errors import MachineError
from cec_mpi.processes.ending.leaving import end_job
from cec_mpi.processes.together import complain
from cec_mpi.wire.lifelines.lifelines import Address
from cec_mpi.wire.messages.tags import OBJECT

_START_SECONDS = 20.0  # that a launcher has to start a process; it takes some tenths of one


class Greeting(NamedTuple):
    """What a process is told first.

    Attributes
    ----------
    rank : int
        Its number among the processes of the session.
    address : Address or None
        Where rank 0 hears it.
    """

    rank: int
    address: Address | None


def start_process(program: str, greeting: Greeting) -> MPI.Intercomm:
    """Have the launcher start a process that runs this module.

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
        comm = MPI.COMM_SELF.Spawn(sys.executable, args=["-m", program], maxprocs=1)
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
