"""Launchers that continue after a process is killed, and their exit codes."""

from __future__ import annotations

from helpers.mpi_at_hand import library

# A launcher whose ranks continue when one is killed, if the MPI has one.
CONTINUING = ["mpirun", *(["--with-ft", "ulfm"] if library().startswith("Open MPI v5") else [])]


def code_with_kills(code: int) -> int:
    """Return the exit code of a launcher if a process was killed and rank 0 exited with `code`."""
    return 255 if library().startswith("Intel") else code
