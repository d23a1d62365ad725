"""What Slurm's srun can start ranks with: what it lists, what of that it can load; its settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from cec_mpi.processes.launch.launchers import without_launcher

_SECONDS = 5  # for srun, which tries again and again where no controller answers
_NO_JOB = "67108862"  # the number of a job that is not there: srun loads its plugin, and ends


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
            timeout=_SECONDS,
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
