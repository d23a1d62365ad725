"""The launcher of this process, the capabilities of Slurm, and the effect of a killed process.

These are detected from the environment and from the output of Slurm's programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cec_mpi.runtime.times import SRUN_TIMEOUT

OPEN_MPI, MPICH, INTEL, SLURM = "Open MPI", "MPICH", "Intel MPI", "srun"
_PMI = "a launcher"  # an unknown launcher that uses PMI

# Variables of each launcher: the rank of a process, and the number of processes (the first variable
# that is set, because SLURM_NTASKS may be that of the whole job).
_RANK_VARIABLES = {
    OPEN_MPI: ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    INTEL: ("PMI_RANK", "PMI_SIZE"),
    MPICH: ("PMI_RANK", "PMI_SIZE"),
    SLURM: ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    _PMI: ("PMI_RANK", "PMI_SIZE"),
}
# Variables that only this launcher sets. The order above matters, because any launcher may use srun
# to start its processes on other nodes.
_UNIQUE_VARIABLES = {INTEL: "I_MPI_HYDRA_UUID", MPICH: "MPI_LOCALNRANKS", SLURM: "SLURM_STEP_ID"}
# Variables that identify the job. MPICH sets none.
_JOB_VARIABLES = {
    OPEN_MPI: ("PMIX_NAMESPACE",),
    INTEL: ("I_MPI_HYDRA_UUID",),
    SLURM: ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
}
_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_")  # of variables of launchers
_MIN_SPECIAL_STEP = 0xFFFFFFF0  # SLURM_STEP_ID of a batch script or an interactive shell
_USE_NO_LAUNCHER = "run without a launcher (cec-mpi run starts its own machines)"
_INVALID_JOB = "67108862"  # srun loads its plugin before it finds that the job does not exist


@dataclass(frozen=True)
class Launcher:
    """The launcher of this process.

    Attributes
    ----------
    implementation : str
        MPI implementation to which it belongs.
    name : str
        Name for users.
    size, rank : int
        Number of started processes, and rank of this process.
    """

    implementation: str
    name: str
    size: int
    rank: int

    @property
    def is_srun(self) -> bool:
        """Whether it is srun itself, rather than a launcher that srun has started."""
        return self.implementation == SLURM


def detect_launcher(environ: Mapping[str, str] = os.environ) -> Launcher | None:
    """Return the launcher that started this process; None without a launcher."""
    for implementation, (rank, *sizes) in _RANK_VARIABLES.items():
        if _UNIQUE_VARIABLES.get(implementation, rank) not in environ:
            continue
        try:
            if implementation == SLURM and int(environ["SLURM_STEP_ID"]) >= _MIN_SPECIAL_STEP:
                continue
            if implementation in (SLURM, _PMI) and _is_in_srun_shell(environ):
                continue
            size = next((environ[name] for name in sizes if name in environ), "")
            name = _display_name(implementation, environ)
            return Launcher(implementation, name, int(size), int(environ[rank]))
        except (KeyError, ValueError):
            continue
    return None


def _is_in_srun_shell(environ: Mapping[str, str]) -> bool:
    """Return whether this process was started in a shell of ``srun --pty``.

    The other tasks of that step have ended, because they had no terminal.
    """
    return "SLURM_PTY_PORT" in environ and environ.get("SLURM_TASK_PID") != str(os.getpid())


def launcher_of_ranks() -> Launcher | None:
    """Return the launcher if it has started several processes, else None."""
    launcher = detect_launcher()
    return launcher if launcher is not None and launcher.size > 1 else None


def job_id(environ: Mapping[str, str] = os.environ) -> str:
    """Return the identifier of this launch; empty if it is unknown.

    It is equal in all processes of a launch and differs between launches, even if Slurm has
    requeued a job, whose step keeps its PMIX_NAMESPACE.

    Examples
    --------
    >>> step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    >>> job_id({**step, "SLURM_JOB_ID": "25", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"})
    '25.0.1'
    """
    launcher = detect_launcher(environ)
    names = _JOB_VARIABLES.get(launcher.implementation, ()) if launcher else ()
    return ".".join(environ[name] for name in names if name in environ)


def detect_rank() -> int:
    """Return the rank of this process; 0 without a launcher."""
    launcher = detect_launcher()
    return 0 if launcher is None else launcher.rank


def remove_launcher_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables of launchers."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIXES)}


def _display_name(implementation: str, environ: Mapping[str, str]) -> str:
    if implementation == SLURM:
        mpi_type = environ.get("SLURM_MPI_TYPE")
        return f"srun --mpi={mpi_type}" if mpi_type else "srun without --mpi"
    programs = {OPEN_MPI: "mpirun", MPICH: "mpiexec", INTEL: "mpirun"}
    program = programs.get(implementation)
    return f"{implementation}'s {program}" if program else implementation


@dataclass(frozen=True)
class LossPolicy:
    """Whether other processes continue when a process is killed.

    Attributes
    ----------
    others_continue : bool or None
        Whether they continue; None if unknown.
    remedy : str
        How to make them continue; empty if they do.
    """

    others_continue: bool | None
    remedy: str = ""

    def __str__(self) -> str:
        if self.others_continue:
            return "if a process is killed, the others continue"
        if self.others_continue is None:
            return f"the others may not continue if a process is killed: {self.remedy}"
        return f"if a process is killed, the launcher ends all processes: {self.remedy}"


def loss_policy(
    launcher: Launcher | None,
    environ: Mapping[str, str] = os.environ,
    settings: Mapping[str, str] | None = None,
) -> LossPolicy:
    """Return whether other processes continue when a process is killed, as far as is known.

    Options on the command line of srun, and ``mpirun --continuous`` of Open MPI, are not visible.

    Parameters
    ----------
    launcher : Launcher or None
        None without a launcher.
    environ : mapping of str to str
        Environment variables.
    settings : mapping of str to str, optional
        Settings of Slurm (`read_slurm_settings`), only for srun.
    """
    if launcher is None or launcher.implementation == INTEL:
        return LossPolicy(True)
    if launcher.implementation == OPEN_MPI:
        return _open_mpi_loss_policy(environ)
    if launcher.implementation == SLURM:
        return _srun_loss_policy(environ, settings or {})
    if launcher.implementation == MPICH:
        remedy = f"MPICH's mpiexec has no option for this: use srun, or {_USE_NO_LAUNCHER}"
        return LossPolicy(False, remedy)
    return LossPolicy(None, f"see the manual of the launcher, or {_USE_NO_LAUNCHER}")


def detect_loss_policy() -> LossPolicy | None:
    """Return the policy of the launcher of this process; None without a launcher.

    Under srun this queries the settings of Slurm, so call it only where the result is printed.
    """
    launcher = detect_launcher()
    if launcher is None:
        return None
    return loss_policy(launcher, os.environ, read_slurm_settings() if launcher.is_srun else None)


def _open_mpi_loss_policy(environ: Mapping[str, str]) -> LossPolicy:
    """Return the policy under mpirun with ``--with-ft ulfm`` or ``--enable-recovery``."""
    is_version_5 = "PRTE_LAUNCHED" in environ
    variable = "OMPI_MCA_mpi_ft_enable" if is_version_5 else "OMPI_MCA_orte_enable_recovery"
    if environ.get(variable) == "1":
        return LossPolicy(True)
    option = "--with-ft ulfm" if is_version_5 else "--enable-recovery"
    return LossPolicy(
        None, f"start with mpirun {option} (mpirun --continuous also works, but is not detected)"
    )


def _srun_loss_policy(environ: Mapping[str, str], settings: Mapping[str, str]) -> LossPolicy:
    """Return the policy under srun, whose variables override the settings of Slurm."""
    kill = environ.get("SLURM_KILL_BAD_EXIT", settings.get("KillOnBadExit"))
    wait = environ.get("SLURM_WAIT") or settings.get("WaitTime")
    kill = "1" if kill == "" else kill  # an empty variable means 1
    values = [_leading_number(kill), _leading_number(wait)]
    if values == [0, 0]:
        return LossPolicy(True)
    others_continue = False if any(values) else None
    return LossPolicy(others_continue, "export SLURM_KILL_BAD_EXIT=0 SLURM_WAIT=0 before srun")


def _leading_number(text: str | None) -> int | None:
    """Return the number at the beginning of a text such as ``0 sec``."""
    match = re.match(r"\d+", text or "")
    return int(match[0]) if match else None


def list_srun_types() -> tuple[str, ...] | None:
    """Return the values of ``srun --mpi=``; None if Slurm does not answer."""
    return parse_srun_types(capture_output("srun", "--mpi=list")) or None


def find_srun_problem(mpi_type: str) -> str:
    """Return the reason why ``srun --mpi=mpi_type`` cannot start processes; empty if it can.

    ``srun --mpi=list`` lists plugins that may not load. If srun is asked to join a job that does
    not exist, it loads the plugin and starts nothing.
    """
    options = f"--mpi={mpi_type}", f"--jobid={_INVALID_JOB}", "--ntasks=1", "true"
    return parse_srun_problem(mpi_type, capture_output("srun", *options))


def parse_srun_types(text: str) -> tuple[str, ...]:
    r"""Parse the output of ``srun --mpi=list``.

    Examples
    --------
    >>> parse_srun_types("MPI plugin types are...\n\tnone\n\tpmi2\n")
    ('none', 'pmi2')
    """
    return tuple(sorted(set(re.findall(r"^(?:srun: |\s+)(\w+)\s*$", text, re.MULTILINE))))


def parse_srun_problem(mpi_type: str, text: str) -> str:
    r"""Return the reason why a plugin cannot be loaded, from the output of srun.

    Examples
    --------
    >>> text = "srun: error: plugin is bad\nsrun: error: Invalid MPI type 'pmix'"
    >>> parse_srun_problem("pmix", text)
    'plugin is bad'
    """
    if f"Invalid MPI type '{mpi_type}'" not in text:
        return ""
    if "can not load PMIx library" in text:
        return "libpmix.so is missing (on Debian: apt install libpmix-dev, on each node)"
    first_line = text.strip().splitlines()[0]
    return re.sub(r"^srun: error:\s*", "", first_line)


def read_slurm_settings() -> dict[str, str]:
    """Return the settings of Slurm; empty if Slurm does not answer."""
    return parse_slurm_settings(capture_output("scontrol", "show", "config"))


def parse_slurm_settings(text: str) -> dict[str, str]:
    r"""Parse the output of ``scontrol show config``.

    Examples
    --------
    >>> parse_slurm_settings("Configuration data as of ...\nWaitTime                = 0 sec\n")
    {'WaitTime': '0 sec'}
    """
    return dict(re.findall(r"^(\w+) += (.*?)\s*$", text, re.MULTILINE))


def capture_output(*command: str) -> str:
    """Return the output of a program; empty if it does not exist or does not end in time."""
    import subprocess  # imported here, because few ranks start a program

    # srun would use the variables of a step as options.
    environ = remove_launcher_variables(os.environ)
    if "SLURM_CONF" in os.environ:
        environ["SLURM_CONF"] = os.environ["SLURM_CONF"]
    try:
        result = subprocess.run(
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
    return result.stdout or result.stderr
