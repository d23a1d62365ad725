"""The processes that a launcher started."""

from __future__ import annotations

import subprocess

import psutil

_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")  # Open MPI; MPICH and Intel MPI


def ranks_of(launcher: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """The processes of an mpirun that runs, by rank."""
    ranks: dict[int, psutil.Process] = {}
    if launcher.poll() is not None:
        return ranks
    for child in psutil.Process(launcher.pid).children(recursive=True):
        try:
            variables = child.environ()
        except psutil.NoSuchProcess:  # it has ended meanwhile
            continue
        for name in _VARIABLES:
            if name in variables:
                ranks[int(variables[name])] = child
    return ranks
