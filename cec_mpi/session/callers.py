"""Which threads of this process may call MPI."""

from __future__ import annotations

from functools import cache

from mpi4py import MPI

from cec_mpi.processes.ending import was_forked
from cec_mpi.session.turns import Turns

_LEVELS = {MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE", MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED"}


def turns_with_mpi() -> Turns:
    """Turns of the threads that MPI allows: of all sessions together, if it wants that."""
    return _of_all() if MPI.Query_thread() == MPI.THREAD_SERIALIZED else Turns(refusal)


@cache
def _of_all() -> Turns:
    return Turns(refusal)


def refusal() -> str:
    """Why this thread may not call MPI; empty if it may."""
    if was_forked():
        return (
            "this process was forked from one that has MPI, and has none: use open_operator(store, "
            "None) here, which has all machines in this process"
        )
    if not MPI.Is_initialized():  # it is started by whoever asks
        return ""
    level = MPI.Query_thread()
    if level >= MPI.THREAD_SERIALIZED or MPI.Is_thread_main():
        return ""
    return (
        f"MPI was started with {_LEVELS.get(level, level)}, for its main thread alone, and this is "
        "another one: remove what sets mpi4py.rc.thread_level, or call from the main thread"
    )
