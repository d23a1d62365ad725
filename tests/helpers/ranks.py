"""The processes of a run, which a launcher or the run itself has started."""

from __future__ import annotations

import os
import subprocess

import psutil

_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")  # Open MPI; MPICH and Intel MPI


def ranks_of(launcher: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """Return the processes of a running mpirun, by rank."""
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


def machines_here(master: int | None = None) -> list[psutil.Process]:
    """Return the machines 1, 2, ... that a run has started itself.

    Parameters
    ----------
    master : int, optional
        The process of the run; by default this one.
    """
    children = psutil.Process(master or os.getpid()).children()
    return sorted(
        (child for child in children if "cec_mpi.runtime.session.host" in child.cmdline()),
        key=lambda child: child.pid,
    )


def processes_of(run: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """Return the master and the machines by rank, with or without a launcher."""
    assert isinstance(run.args, list)
    if run.args[0] != "cec-mpi":
        return ranks_of(run)
    return dict(enumerate([psutil.Process(run.pid), *machines_here(run.pid)]))
