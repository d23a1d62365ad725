"""Whether the launcher lets the other processes continue when one is killed, and what to type.

For processes that do not initialise MPI: in MPI, a loss may end or block the others too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cec_mpi.processes.launch.launchers import (
    INTEL,
    MPICH,
    OPEN_MPI,
    SLURM,
    Launcher,
    detect_launcher,
)
from cec_mpi.processes.launch.srun import slurm_settings

_NO_LAUNCHER = "run without a launcher (cec-mpi run starts its own machines)"


@dataclass(frozen=True)
class Continuity:
    """What happens to the other processes when one is killed.

    Attributes
    ----------
    continues : bool or None
        Whether they continue; None if that cannot be told.
    remedy : str
        What to type if they do not; empty if they do.
    """

    continues: bool | None
    remedy: str = ""

    def __str__(self) -> str:
        if self.continues:
            return "if a process is killed, the others continue"
        if self.continues is None:
            return f"cannot tell whether the others continue if a process is killed: {self.remedy}"
        return f"if a process is killed, all end: {self.remedy}"


def continuity(
    launcher: Launcher | None,
    environ: Mapping[str, str] = os.environ,
    settings: Mapping[str, str] | None = None,
) -> Continuity:
    """Whether the others continue when a process is killed, as far as a process can see.

    Options of srun's command line cannot be seen, nor can ``mpirun --continuous`` of Open MPI.

    Parameters
    ----------
    launcher : Launcher or None
        None if the process was started by hand.
    environ : mapping of str to str
        What the launcher has set.
    settings : mapping of str to str, optional
        Of Slurm, as `slurm_settings` returns them; only srun needs them.
    """
    if launcher is None or launcher.maker == INTEL:
        return Continuity(True)
    if launcher.maker == OPEN_MPI:
        return _of_open_mpi(environ)
    if launcher.maker == SLURM:
        return _of_srun(environ, settings or {})
    if launcher.maker == MPICH:
        text = "MPICH's mpiexec has no option to change this: use srun, or"
        return Continuity(False, f"{text} {_NO_LAUNCHER}")
    return Continuity(None, f"see the manual of the launcher, or {_NO_LAUNCHER}")


def present_continuity() -> Continuity | None:
    """The continuity of this process's launcher, or None if it was started by hand.

    Under srun, Slurm is asked for its settings: call this where the answer is printed.
    """
    launcher = detect_launcher()
    if launcher is None:
        return None
    return continuity(launcher, os.environ, slurm_settings() if launcher.is_srun else None)


def _of_open_mpi(environ: Mapping[str, str]) -> Continuity:
    """Of mpirun, which shows ``--with-ft ulfm`` (5) or ``--enable-recovery`` (4), nothing else."""
    is_5 = "PRTE_LAUNCHED" in environ
    shown = "OMPI_MCA_mpi_ft_enable" if is_5 else "OMPI_MCA_orte_enable_recovery"
    if environ.get(shown) == "1":
        return Continuity(True)
    option = "--with-ft ulfm" if is_5 else "--enable-recovery"
    return Continuity(
        None, f"start with mpirun {option} (mpirun --continuous works too, but cannot be seen)"
    )


def _of_srun(environ: Mapping[str, str], settings: Mapping[str, str]) -> Continuity:
    """Of srun: its variables come before the settings of Slurm."""
    kill = environ.get("SLURM_KILL_BAD_EXIT", settings.get("KillOnBadExit"))
    wait = environ.get("SLURM_WAIT") or settings.get("WaitTime")
    ends = [_number("1" if kill == "" else kill), _number(wait)]  # an empty variable kills
    if ends == [0, 0]:
        return Continuity(True)
    continues = False if any(ends) else None
    return Continuity(continues, "export SLURM_KILL_BAD_EXIT=0 SLURM_WAIT=0 before srun")


def _number(text: str | None) -> int | None:
    """The number that a text begins with, ``0 sec`` for example."""
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else None
