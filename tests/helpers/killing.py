"""How launchers take it that a process is killed."""

from __future__ import annotations

from helpers.mpi_at_hand import library

# What starts ranks that continue when one is killed, where the MPI at hand has that.
CONTINUING = ["mpirun", *(["--with-ft", "ulfm"] if library().startswith("Open MPI v5") else [])]


def code_with_kills(code: int) -> int:
    """The exit code of a launcher, one of whose processes was killed, and rank 0 left with this."""
    return 255 if library().startswith("Intel") else code
