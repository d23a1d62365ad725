"""Find the processes that a launcher or a run has started, and wait until they end."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterable

import psutil

from helpers.waiting import LIMIT

_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")  # Open MPI; MPICH and Intel MPI


def find_free_port() -> int:
    """Return a port that no process of this computer uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def find_ranks(launcher: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """Return the processes of a running mpirun by rank."""
    ranks: dict[int, psutil.Process] = {}
    if launcher.poll() is not None:
        return ranks
    for child in psutil.Process(launcher.pid).children(recursive=True):
        try:
            variables = child.environ()
        except psutil.NoSuchProcess:  # it has ended
            continue
        for name in _VARIABLES:
            if name in variables:
                ranks[int(variables[name])] = child
    return ranks


def find_local_machines(master: int | None = None) -> list[psutil.Process]:
    """Return the machines 1, 2, ... that a run has started itself.

    Parameters
    ----------
    master : int, optional
        Process ID of the run; by default that of this process.
    """
    children = psutil.Process(master or os.getpid()).children()
    return sorted(
        (child for child in children if "cec_mpi.runtime.session.host" in child.cmdline()),
        key=lambda child: child.pid,
    )


def find_processes(run: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """Return the master and the machines of a run by rank, with or without a launcher."""
    assert isinstance(run.args, list)
    if run.args[0] != "cec-mpi":
        return find_ranks(run)
    return dict(enumerate([psutil.Process(run.pid), *find_local_machines(run.pid)]))


def await_exit_codes(processes: Iterable[subprocess.Popen[str]]) -> list[int]:
    """Wait until processes have ended; return their exit codes."""
    return [process.wait(LIMIT) for process in processes]


def await_error(process: subprocess.Popen[str]) -> str:
    """Wait until a process of cec-mpi has ended; return its error message."""
    _, stderr = process.communicate(timeout=LIMIT)
    return stderr.removeprefix("cec-mpi: error: ")
