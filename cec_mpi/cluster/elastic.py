"""Batch scripts of a run whose machines are jobs of their own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cec_mpi.cluster.script import (
    TASK_OF_ARRAY,
    check_printable,
    check_warning,
    directives,
    filled,
)
from cec_mpi.cluster.slurm import SRUN, batch_script
from cec_mpi.errors import InputError, MachineError, StoppedError

_RETRY_SECONDS = 30  # after which a machine looks whether the master's job is still there
_PAUSE_SECONDS = 5  # before it is started again
_OWN = ("time", "cpus-per-task", "partition", "account")  # of what the master's job can have


class Scripts(NamedTuple):
    """The scripts of one run.

    Attributes
    ----------
    master, machines : str
    """

    master: str
    machines: str


def elastic_scripts(
    machines: int,
    words: Sequence[str],
    out: str,
    file: str,
    *,
    job_name: str = "cec-mpi",
    time: str | None = None,
    cpus_per_task: int = 1,
    partition: str | None = None,
    account: str | None = None,
    sbatch: Mapping[str, str | None] | None = None,
    master_sbatch: Mapping[str, str | None] | None = None,
    setup: Sequence[str] = (),
    warning: int = 120,
    restarts: int = 100,
) -> Scripts:
    """The texts of two scripts: the master's, and that of an array of machines.

    Parameters
    ----------
    machines : int
        Jobs of the array.
    words : sequence of str
        The arguments of ``cec-mpi run`` but for its ``--out``; with ``--accept`` and `file`.
    out : str
        The directory for results.
    file : str
        The connection file.
    job_name, time, account : optional
        Options of sbatch, for the master too.
    cpus_per_task, partition, sbatch : optional
        Of machines alone.
    master_sbatch : mapping, optional
        Options of sbatch for the master alone, which take the place of the others.
    setup : sequence of str
        Lines of shell that come before the run, and before machines.
    warning : int
        Seconds before the end of a job's time at which it is warned.
    restarts : int
        The most that the master's script asks for.

    Raises
    ------
    InputError
        Options contradict each other, or cannot be written into a script.
    """
    others = dict(master_sbatch or {})
    own = {key: _valued(key, others.pop(key)) for key in _OWN if key in others}
    for flag, more in (("--sbatch", sbatch), ("--master-sbatch", master_sbatch)):
        for key in ("array", "requeue", "no-requeue"):
            if key in (more or {}):
                raise InputError(f"{flag} {key}: scripts of --elastic say this themselves")
    check_warning(warning, time)
    check_printable(file)
    master = batch_script(
        words,
        out,
        tasks=1,
        job_name=f"{job_name}-master",
        time=own.get("time", time),
        cpus_per_task=_count(own.get("cpus-per-task", "1")),
        partition=own.get("partition"),
        account=own.get("account", account),
        sbatch=others,
        setup=setup,
        preemptible=True,
        warning=warning,
        restarts=restarts,
        accepts=True,
    )
    given = {
        "job-name": f"{job_name}-machines",
        "ntasks": 1,
        "cpus-per-task": cpus_per_task,
        "time": time,
        "partition": partition,
        "account": account,
        "array": f"1-{machines}",
        "open-mode": "append",
        "signal": f"TERM@{warning}",
    }
    texts = {
        "directives": directives(given, {"requeue": True}, sbatch or {}),
        "setup": "\n".join(setup),
        "launch": SRUN,
        "task": TASK_OF_ARRAY,
        "file": shlex.quote(file),
        "retry": _RETRY_SECONDS,
        "pause": _PAUSE_SECONDS,
        "gone": MachineError.exit_code,
        "stopped": StoppedError.exit_code,
    }
    return Scripts(master, filled("machines.sh", {"setup": bool(setup)}, texts))


def _valued(key: str, value: str | None) -> str:
    if not value:
        raise InputError(f"--master-sbatch {key}: expected a value, as {key}=...")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise InputError(f"--master-sbatch cpus-per-task={text}: expected a number, at least 1")
    return int(text)
