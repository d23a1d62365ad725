"""The launcher of this process, what Slurm can start, and whether others outlive a killed process.

All of it is read from the environment, and from the output of Slurm's programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cec_mpi.runtime.times import SRUN_TIMEOUT

OPEN_MPI, MPICH, INTEL, SLURM = "Open MPI", "MPICH", "Intel MPI", "srun"
_PMI = "a launcher"  # an unknown one that uses PMI

# Variables of each launcher: the rank of a process, and the number of processes (the first one that
# is set; SLURM_NTASKS may be that of the whole job).
_VARIABLES = {
    OPEN_MPI: ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    INTEL: ("PMI_RANK", "PMI_SIZE"),
    MPICH: ("PMI_RANK", "PMI_SIZE"),
    SLURM: ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    _PMI: ("PMI_RANK", "PMI_SIZE"),
}
# Variables that only this launcher sets. The order above matters too: any launcher may start its
# processes on other nodes with srun.
_MARKS = {INTEL: "I_MPI_HYDRA_UUID", MPICH: "MPI_LOCALNRANKS", SLURM: "SLURM_STEP_ID"}
# Variables that identify the job. MPICH sets none.
_JOBS = {
    OPEN_MPI: ("PMIX_NAMESPACE",),
    INTEL: ("I_MPI_HYDRA_UUID",),
    SLURM: ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
}
_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_")  # of variables of launchers
_NO_STEP_OF_TASKS = 0xFFFFFFF0  # SLURM_STEP_ID in a batch script or an interactive shell
_NO_LAUNCHER = "run without a launcher (cec-mpi run starts its own machines)"
_NO_JOB = "67108862"  # a job that does not exist: srun loads its plugin, and ends


@dataclass(frozen=True)
class Launcher:
    """The launcher of this process, from the environment.

    Attributes
    ----------
    implementation : str
        MPI to which it belongs.
    name : str
        Name for users.
    size, rank : int
        Number of processes that it started, and rank of this process.
    """

    implementation: str
    name: str
    size: int
    rank: int

    @property
    def is_srun(self) -> bool:
        """Whether it is srun itself, not a launcher that srun has started."""
        return self.implementation == SLURM


def detect_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """Return the launcher that started this process; None if it was started by hand."""
    for implementation, (rank, *sizes) in _VARIABLES.items():
        if _MARKS.get(implementation, rank) not in environ:
            continue
        try:
            if implementation == SLURM and int(environ["SLURM_STEP_ID"]) >= _NO_STEP_OF_TASKS:
                continue
            if implementation in (SLURM, _PMI) and _is_shell_of_srun(environ):
                continue
            size = next((environ[name] for name in sizes if name in environ), "")
            return Launcher(
                implementation, _name(implementation, environ), int(size), int(environ[rank])
            )
        except (KeyError, ValueError):
            continue
    return None


def _is_shell_of_srun(environ: Mapping[str, str]) -> bool:
    """Whether this process was started in a shell of ``srun --pty``.

    The other tasks of its step have ended, because they had no terminal.
    """
    return "SLURM_PTY_PORT" in environ and environ.get("SLURM_TASK_PID") != str(os.getpid())


def launcher_of_ranks() -> Launcher | None:
    """Return the launcher if it has started this process and others."""
    launcher = detect_launcher()
    return launcher if launcher is not None and launcher.size > 1 else None


def job_id(environ: Mapping[str, str] = os.environ) -> str:
    """Return the identifier of the launch of this process; empty if there is none.

    It is the same in all processes of a launch and differs between launches, also if Slurm has
    requeued a job, whose step has the same PMIX_NAMESPACE as before.

    Examples
    --------
    >>> step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    >>> job_id({**step, "SLURM_JOB_ID": "25", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"})
    '25.0.1'
    """
    launcher = detect_launcher(environ)
    names = _JOBS.get(launcher.implementation, ()) if launcher else ()
    return ".".join(environ[name] for name in names if name in environ)


def rank_of_launcher() -> int:
    """Return the rank of this process; 0 if it was started by hand."""
    launcher = detect_launcher()
    return 0 if launcher is None else launcher.rank


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables of launchers."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIXES)}


def _name(implementation: str, environ: Mapping[str, str]) -> str:
    if implementation == SLURM:
        kind = environ.get("SLURM_MPI_TYPE")
        return f"srun --mpi={kind}" if kind else "srun without --mpi"
    programs = {OPEN_MPI: "Open MPI's mpirun", MPICH: "MPICH's mpiexec"}
    return programs.get(
        implementation, "Intel MPI's mpirun" if implementation == INTEL else implementation
    )


@dataclass(frozen=True)
class Continuity:
    """Whether other processes continue when one is killed.

    Attributes
    ----------
    continues : bool or None
        Whether they continue; None if unknown.
    remedy : str
        What to type if they do not; empty if they do.
    """

    continues: bool | None
    remedy: str = ""

    def __str__(self) -> str:
        if self.continues:
            return "if a process is killed, the others continue"
        if self.continues is None:
            return f"unknown whether the others continue if a process is killed: {self.remedy}"
        return f"if a process is killed, the launcher ends all processes: {self.remedy}"


def continuity(
    launcher: Launcher | None,
    environ: Mapping[str, str] = os.environ,
    settings: Mapping[str, str] | None = None,
) -> Continuity:
    """Return whether the others continue when a process is killed, as far as can be seen.

    Options of srun's command line and ``mpirun --continuous`` of Open MPI cannot be seen.

    Parameters
    ----------
    launcher : Launcher or None
        None if the process was started by hand.
    environ : mapping of str to str
        The environment.
    settings : mapping of str to str, optional
        Settings of Slurm (`slurm_settings`), only for srun.
    """
    if launcher is None or launcher.implementation == INTEL:
        return Continuity(True)
    if launcher.implementation == OPEN_MPI:
        return _of_open_mpi(environ)
    if launcher.implementation == SLURM:
        return _of_srun(environ, settings or {})
    if launcher.implementation == MPICH:
        text = "MPICH's mpiexec has no option to change this: use srun, or"
        return Continuity(False, f"{text} {_NO_LAUNCHER}")
    return Continuity(None, f"see the manual of the launcher, or {_NO_LAUNCHER}")


def detect_continuity() -> Continuity | None:
    """Return the continuity of this process's launcher; None if it was started by hand.

    Under srun this calls Slurm for its settings: call it only where the answer is printed.
    """
    launcher = detect_launcher()
    if launcher is None:
        return None
    return continuity(launcher, os.environ, slurm_settings() if launcher.is_srun else None)


def _of_open_mpi(environ: Mapping[str, str]) -> Continuity:
    """Continuity under mpirun, which shows only ``--with-ft ulfm`` or ``--enable-recovery``."""
    is_5 = "PRTE_LAUNCHED" in environ
    shown = "OMPI_MCA_mpi_ft_enable" if is_5 else "OMPI_MCA_orte_enable_recovery"
    if environ.get(shown) == "1":
        return Continuity(True)
    option = "--with-ft ulfm" if is_5 else "--enable-recovery"
    return Continuity(
        None, f"start with mpirun {option} (mpirun --continuous works too, but cannot be seen)"
    )


def _of_srun(environ: Mapping[str, str], settings: Mapping[str, str]) -> Continuity:
    """Continuity under srun: its variables come before the settings of Slurm."""
    kill = environ.get("SLURM_KILL_BAD_EXIT", settings.get("KillOnBadExit"))
    wait = environ.get("SLURM_WAIT") or settings.get("WaitTime")
    ends = [_number("1" if kill == "" else kill), _number(wait)]  # an empty variable means 1
    if ends == [0, 0]:
        return Continuity(True)
    continues = False if any(ends) else None
    return Continuity(continues, "export SLURM_KILL_BAD_EXIT=0 SLURM_WAIT=0 before srun")


def _number(text: str | None) -> int | None:
    """Return the number at the beginning of a text, for example ``0 sec``."""
    found = re.match(r"\d+", text or "")
    return int(found[0]) if found else None


def srun_list() -> tuple[str, ...] | None:
    """Return the values of ``srun --mpi=``; None without a Slurm that answers."""
    return srun_kinds(run_output("srun", "--mpi=list")) or None


def srun_load_problem(kind: str) -> str:
    """Return why ``srun --mpi=kind`` cannot start anything here; empty if it can.

    ``srun --mpi=list`` lists the files of plugins, not whether they can be loaded. If srun is asked
    to join a job that does not exist, it loads the plugin and starts nothing.
    """
    words = f"--mpi={kind}", f"--jobid={_NO_JOB}", "--ntasks=1", "true"
    return load_problem(kind, run_output("srun", *words))


def srun_kinds(text: str) -> tuple[str, ...]:
    r"""Return the values of ``srun --mpi=`` from the output of ``srun --mpi=list``.

    Examples
    --------
    >>> srun_kinds("MPI plugin types are...\n\tnone\n\tpmi2\n")
    ('none', 'pmi2')
    """
    return tuple(sorted(set(re.findall(r"^(?:srun: |\s+)(\w+)\s*$", text, re.MULTILINE))))


def load_problem(kind: str, text: str) -> str:
    r"""Return why a plugin cannot be loaded, from the output of srun.

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
    """Return the settings of Slurm; empty without a Slurm that answers."""
    return read_settings(run_output("scontrol", "show", "config"))


def read_settings(text: str) -> dict[str, str]:
    r"""Return the settings from the output of ``scontrol show config``.

    Examples
    --------
    >>> read_settings("Configuration data as of ...\nWaitTime                = 0 sec\n")
    {'WaitTime': '0 sec'}
    """
    return dict(re.findall(r"^(\w+) += (.*?)\s*$", text, re.MULTILINE))


def run_output(*command: str) -> str:
    """Return the output of a program; empty if it does not exist or does not end."""
    import subprocess  # few ranks start a program

    # Without the variables of a step, which srun would take for options.
    environ = without_launcher(os.environ)
    if "SLURM_CONF" in os.environ:
        environ["SLURM_CONF"] = os.environ["SLURM_CONF"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SRUN_TIMEOUT,
            check=False,
            env=environ,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout or done.stderr
