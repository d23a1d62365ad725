"""Batch scripts of Slurm that run ``cec-mpi run``: options in, text out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import chain

from cec_mpi.cluster.script import (
    TASK_OF_ARRAY,
    check_printable,
    check_warning,
    directives,
    filled,
)
from cec_mpi.errors import InputError, MachineError, StoppedError

# What starts the ranks within the allocation.
LAUNCHERS = {
    "mpirun": 'mpirun -n "$SLURM_NTASKS"',
    "hydra": 'mpiexec.hydra -n "$SLURM_NTASKS"',  # Intel's mpirun keeps signals to itself
    "pmix": 'srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK"',
    "pmi2": 'srun --mpi=pmi2 --cpus-per-task="$SLURM_CPUS_PER_TASK"',
}

# What starts processes of elastic runs, which do not initialise MPI.
SRUN = 'srun --mpi=none --cpus-per-task="$SLURM_CPUS_PER_TASK"'

# What each needs so that an elastic run continues without a process that was lost.
_CONTINUING = {
    "mpirun": " --with-ft ulfm",  # of Open MPI
    "hydra": "",  # of Intel MPI; MPICH's ends all processes
    "pmix": " --no-kill --kill-on-bad-exit=0 --wait=0",
    "pmi2": " --no-kill --kill-on-bad-exit=0 --wait=0",
}

# Where tasks have several cores: Open MPI gives each rank one of them. MPICH has the option too.
_ALL_CORES = {"mpirun": " --bind-to none"}

_EARLY = 60  # seconds by which Slurm may warn earlier


def batch_script(
    words: Sequence[str] = (),
    out: str | None = None,
    *,
    launcher: str = "mpirun",
    tasks: int = 7,
    job_name: str = "cec-mpi",
    time: str | None = None,
    nodes: int | None = None,
    cpus_per_task: int = 1,
    partition: str | None = None,
    account: str | None = None,
    sbatch: Mapping[str, str | None] | None = None,
    setup: Sequence[str] = (),
    parameters: Sequence[Sequence[str]] = (),
    preemptible: bool = False,
    warning: int = 120,
    restarts: int = 100,
    continues: bool = False,
    accepts: bool = False,
) -> str:
    """The text of a batch script.

    Parameters
    ----------
    words : sequence of str
        The arguments of ``cec-mpi run`` but for its ``--out``: the store, and options.
    out : str, optional
        The directory for results. Without it the script takes store, directory and options as
        its own arguments, and `words` are not used.
    launcher : str
        A key of `LAUNCHERS`.
    tasks : int
        Processes: the master and the machines.
    job_name, time, nodes, cpus_per_task, partition, account : optional
        Options of sbatch, `time` in one of Slurm's forms.
    sbatch : mapping, optional
        Other options of sbatch, without their hyphens; None where one has no value.
    setup : sequence of str
        Lines of shell that come before the run.
    parameters : sequence of sequences of str
        Options of each task of a job array; their results go to ``out/1``, ``out/2``, ...
    preemptible : bool
        Write a checkpoint on a warning, and have the job requeued to go on.
    warning : int
        Seconds before the end of the job's time at which it is warned.
    restarts : int
        The most that the script asks for.
    continues : bool
        The run is elastic: the job continues without lost machines, under ``srun`` without lost
        nodes too. Then a new summary says whether it has completed, not the launcher's exit code.
    accepts : bool
        Machines join from jobs of their own, and this one has the master alone; `launcher` is
        not used.

    Raises
    ------
    InputError
        Options contradict each other, or cannot be written into a script.
    """
    check_warning(warning if preemptible else 0, time)
    for text in (*words, out or "", *setup, *chain.from_iterable(parameters)):
        check_printable(text)
    is_srun = accepts or launcher.startswith("pm")
    launch = SRUN if accepts or (continues and is_srun) else LAUNCHERS[launcher]
    if cpus_per_task > 1 and not is_srun:
        launch += _ALL_CORES.get(launcher, "")
    if continues:
        launch += _CONTINUING[launcher]
    given = {
        "job-name": job_name,
        "ntasks": tasks,
        "nodes": nodes,
        "cpus-per-task": cpus_per_task,
        "time": time,
        "partition": partition,
        "account": account,
        "array": f"1-{len(parameters)}" if parameters else None,
        "open-mode": "append" if preemptible else None,
        "signal": f"{'' if is_srun else 'B:'}USR1@{warning}" if preemptible else None,
    }
    bare = {"requeue": preemptible, "no-kill": continues and is_srun}
    for key in sbatch or {}:
        if key == "array" or (key == "no-requeue" and preemptible):
            raise InputError(f"--sbatch {key}: expected other options; see --array, --preemptible")
    flags = {
        "takes_arguments": out is None,
        "accepts": accepts,
        "array": bool(parameters),
        "preemptible": preemptible,
        "continues": continues,
        "setup": bool(setup),
        "srun": is_srun,  # Slurm warns its processes
        "tells": preemptible and not is_srun,
        "plain": not preemptible and not continues,
    }
    choices = [
        f'    {number}) set -- "$@" {shlex.join(chosen)} ;;'
        for number, chosen in enumerate(parameters, start=1)
    ]
    texts = {
        "directives": directives(given, bare, sbatch or {}),
        "setup": "\n".join(setup),
        "out": shlex.quote(out or ""),
        "arguments": shlex.join(["set", "--", *words]),
        "choices": "\n".join(choices),
        "last": len(parameters),
        "launch": launch,
        "options": " --resume" * preemptible,
        "early": warning + _EARLY,
        "stopped": StoppedError.exit_code,
        "gone": MachineError.exit_code,
        "restarts": restarts,
        "job": TASK_OF_ARRAY if parameters else '"$SLURM_JOB_ID"',
    }
    return filled("batch.sh", flags, texts)
