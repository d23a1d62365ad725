"""Who started this process, what Slurm can start, and whether others outlive a killed process.

All of it is read from what launchers set in the environment, and from what Slurm's programs print.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cec_mpi.times import SRUN_SECONDS

OPEN_MPI, MPICH, INTEL, SLURM = "Open MPI", "MPICH", "Intel MPI", "srun"
_PMI = "a launcher"  # of which nothing is known but that it speaks PMI

# What launchers set for each process: its rank, and the number of processes (the first of these
# that is there: what Slurm says of tasks may be said of the whole job).
_VARIABLES = {
    OPEN_MPI: ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    INTEL: ("PMI_RANK", "PMI_SIZE"),
    MPICH: ("PMI_RANK", "PMI_SIZE"),
    SLURM: ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    _PMI: ("PMI_RANK", "PMI_SIZE"),
}
# What only this launcher sets. The order above matters too: any of them may start its
# processes on other nodes by srun.
_MARKS = {INTEL: "I_MPI_HYDRA_UUID", MPICH: "MPI_LOCALNRANKS", SLURM: "SLURM_STEP_ID"}
# What identifies the job. MPICH sets nothing of the kind.
_JOBS = {
    OPEN_MPI: ("PMIX_NAMESPACE",),
    INTEL: ("I_MPI_HYDRA_UUID",),
    SLURM: ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
}
_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_")  # of all variables of launchers
_NO_STEP_OF_TASKS = 0xFFFFFFF0  # SLURM_STEP_ID in a batch script or an interactive shell
_NO_LAUNCHER = "run without a launcher (cec-mpi run starts its own machines)"
_NO_JOB = "67108862"  # the number of a job that is not there: srun loads its plugin, and ends


@dataclass(frozen=True)
class Launcher:
    """What the environment says of the launcher of this process.

    Attributes
    ----------
    maker : str
        Whose it is.
    name : str
        As a user knows it.
    size, rank : int
        Of all that it started, and of this process.
    """

    maker: str
    name: str
    size: int
    rank: int

    @property
    def is_srun(self) -> bool:
        """Whether it is Slurm's own, not one that Slurm has started."""
        return self.maker == SLURM


def detect_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """The launcher that started this process, or None when it was started by hand."""
    for maker, (rank, *sizes) in _VARIABLES.items():
        if _MARKS.get(maker, rank) not in environ:
            continue
        try:
            if maker == SLURM and int(environ["SLURM_STEP_ID"]) >= _NO_STEP_OF_TASKS:
                continue
            size = next((environ[name] for name in sizes if name in environ), "")
            return Launcher(maker, _name(maker, environ), int(size), int(environ[rank]))
        except (KeyError, ValueError):
            continue
    return None


def job_id(environ: Mapping[str, str] = os.environ) -> str:
    """What identifies the launch that started this process, or an empty text if nothing does.

    It is the same in all processes of one launch, and another in each launch; also in a job
    that Slurm has requeued, whose step has the same PMIX_NAMESPACE as before.

    Examples
    --------
    >>> step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    >>> job_id({**step, "SLURM_JOB_ID": "25", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"})
    '25.0.1'
    """
    launcher = detect_launcher(environ)
    names = _JOBS.get(launcher.maker, ()) if launcher else ()
    return ".".join(environ[name] for name in names if name in environ)


def rank_of_launcher() -> int:
    """The rank of this process; 0 if it was started by hand."""
    launcher = detect_launcher()
    return 0 if launcher is None else launcher.rank


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """These variables but those of launchers: for a program that is started by hand."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIXES)}


def _name(maker: str, environ: Mapping[str, str]) -> str:
    if maker == SLURM:
        kind = environ.get("SLURM_MPI_TYPE")
        return f"srun --mpi={kind}" if kind else "srun without --mpi"
    programs = {OPEN_MPI: "Open MPI's mpirun", MPICH: "MPICH's mpiexec"}
    return programs.get(maker, "Intel MPI's mpirun" if maker == INTEL else maker)


def ranks_by_node(text: str) -> list[int]:
    """The ranks on each node, which Slurm writes in short.

    Raises
    ------
    ValueError
        It is no such text.

    Examples
    --------
    >>> ranks_by_node("4,1(x3)")
    [4, 1, 1, 1]
    """
    ranks: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:\(x(\d{1,6})\))?", part)
        if not found:
            raise ValueError(f"{text}: expected numbers, for example 2(x3),1")
        ranks += [int(found[1])] * int(found[2] or 1)
    return ranks


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


def srun_list() -> tuple[str, ...] | None:
    """What ``srun --mpi=`` may be, where there is a Slurm that answers."""
    return srun_kinds(_said("--mpi=list")) or None


def srun_load_problem(kind: str) -> str:
    """Why ``srun --mpi=kind`` cannot start anything here, or an empty text.

    ``srun --mpi=list`` lists plugins by their files, not by what they need. Asked to join a job
    that does not exist, srun starts nothing, but loads the plugin first.
    """
    return load_problem(kind, _said(f"--mpi={kind}", f"--jobid={_NO_JOB}", "--ntasks=1", "true"))


def srun_kinds(text: str) -> tuple[str, ...]:
    r"""What ``srun --mpi=`` may be, from what ``srun --mpi=list`` prints.

    Examples
    --------
    >>> srun_kinds("MPI plugin types are...\n\tnone\n\tpmi2\n")
    ('none', 'pmi2')
    """
    return tuple(sorted(set(re.findall(r"^(?:srun: |\s+)(\w+)\s*$", text, re.MULTILINE))))


def load_problem(kind: str, text: str) -> str:
    r"""Why a kind cannot be loaded, from what srun prints when it was asked for it.

    Examples
    --------
    >>> load_problem("pmix", "srun: error: plugin is bad\nsrun: error: Invalid MPI type 'pmix'")
    'plugin is bad'
    """
    if f"Invalid MPI type '{kind}'" not in text:
        return ""
    if "can not load PMIx library" in text:
        return "libpmix.so is missing (on Debian: apt install libpmix-dev, on each node)"
    first = text.strip().splitlines()[0]
    return re.sub(r"^srun: error:\s*", "", first)


def slurm_settings() -> dict[str, str]:
    """The settings of the Slurm that answers, or none."""
    return read_settings(said_by("scontrol", "show", "config"))


def read_settings(text: str) -> dict[str, str]:
    r"""The settings that ``scontrol show config`` prints.

    Examples
    --------
    >>> read_settings("Configuration data as of ...\nWaitTime                = 0 sec\n")
    {'WaitTime': '0 sec'}
    """
    return dict(re.findall(r"^(\w+) += (.*?)\s*$", text, re.MULTILINE))


def said_by(*command: str, environ: Mapping[str, str] | None = None) -> str:
    """What a program prints; nothing where there is none, or it does not end."""
    import subprocess  # now: hardly any rank starts a program

    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SRUN_SECONDS,
            check=False,
            env=environ,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout or done.stderr


def _said(*words: str) -> str:
    """What srun prints."""
    import shutil

    path = shutil.which("srun")
    if path is None:
        return ""
    # As if by hand: inside a step, its variables would be taken for options.
    variables = without_launcher(os.environ)
    if "SLURM_CONF" in os.environ:
        variables["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return said_by(path, *words, environ=variables)
