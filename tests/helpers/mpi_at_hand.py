"""The MPI of this Python: its library, its launcher, and variables for one computer.

    python tests/helpers/mpi_at_hand.py library|mpirun

prints the name and version of the library, or the command that starts ranks.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

# With these variables Open MPI starts all ranks on the first of several hosts.
ONE_HOST_ONLY = ("PRTE_MCA_rmaps_default_mapping_policy", "OMPI_MCA_rmaps_base_oversubscribe")
_PRINT_LIBRARY = """
import mpi4py
mpi4py.rc(initialize=False)
from cec_mpi.runtime.processes.start import mpi_library
print(mpi_library().name)
"""


@cache
def library() -> str:
    """Return the name and version of the MPI library."""
    result = subprocess.run(
        [sys.executable, "-c", _PRINT_LIBRARY], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def single_host_variables() -> dict[str, str]:
    """Return the variables of ``.ci/openmpi.env``: they allow more ranks than cores.

    Other MPIs ignore them.
    """
    text = (Path(__file__).parents[2] / ".ci" / "openmpi.env").read_text()
    return dict(re.findall(r"^export (\w+)=(\S+)$", text, re.MULTILINE))


def mpirun(path: str | None = None) -> str | None:
    """Return the command that starts ranks, or None.

    Intel's mpirun is a shell script that forwards no signals; return the program that it starts.

    Parameters
    ----------
    path : str, optional
        Directories to search; PATH by default.
    """
    launcher = shutil.which("mpirun", path=path)
    if launcher is None:
        return None
    with Path(launcher).open("rb") as file:
        is_script = file.read(2) == b"#!"
    return (is_script and shutil.which("mpiexec.hydra", path=path)) or launcher


def continuing_mpirun() -> list[str]:
    """Return an mpirun command whose ranks continue when one is killed, if the MPI has one."""
    return ["mpirun", *(["--with-ft", "ulfm"] if library().startswith("Open MPI v5") else [])]


def exit_code_after_kill(code: int) -> int:
    """Return the exit code of mpirun if a process was killed and rank 0 exited with `code`."""
    return 255 if library().startswith("Intel") else code


if __name__ == "__main__":
    print({"library": library, "mpirun": mpirun}[sys.argv[1]]())
