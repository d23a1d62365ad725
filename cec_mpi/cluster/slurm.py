"""Slurm batch scripts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from textwrap import wrap

from cec_mpi.cluster import templates
from cec_mpi.errors import InputError
from cec_mpi.text import plural

# Commands that start the ranks in the allocation.
LAUNCHERS = {
    "mpirun": 'mpirun -n "$SLURM_NTASKS"',
    "hydra": 'mpiexec.hydra -n "$SLURM_NTASKS"',  # Intel's mpirun does not forward signals
    "pmix": 'srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK"',
    "pmi2": 'srun --mpi=pmi2 --cpus-per-task="$SLURM_CPUS_PER_TASK"',
}

# Starts the processes of an elastic run, and continues without lost ones.
_ELASTIC_SRUN = (
    'srun --mpi=none --cpus-per-task="$SLURM_CPUS_PER_TASK" --no-kill --kill-on-bad-exit=0 --wait=0'
)

# Variables of a step of srun, which sbatch gives to its job, and the option of sbatch that sets
# them for the job; the memory of a step without them is that of its job.
_LEFT_BEHIND = {
    "${!SLURM_CPU_BIND*}": "",
    "${!SLURM_DIST*}": "distribution",
    "${!SLURM_GPU*}": "",
    "SLURM_HINT": "hint",
    "${!SLURM_MEM_BIND*}": "mem-bind",
    "${!SLURM_MEM_PER*}": "",
    "${!SLURM_NTASKS_PER*}": "ntasks-per-node",
    "${!SLURM_STEP*}": "",
    "SLURM_THREADS_PER_CORE": "threads-per-core",
    "${!SLURM_TRES*}": "",
    "PMI_FD PMI_JOBID PMI_RANK PMI_SIZE": "",
    "PMIX_NAMESPACE PMIX_RANK ${!PMIX_SERVER*}": "",
}

_EARLY = 60  # seconds by which the signal of Slurm may be early
_LONGEST_WARNING = 65535  # limit of sbatch
_OF_MASTER = (
    "time",
    "cpus-per-task",
    "partition",
    "account",
)  # options that the master's job may have


def batch_script(
    words: Sequence[str] = (),
    out: str | None = None,
    options: Mapping[str, object] | None = None,
    sbatch: Mapping[str, str | None] | None = None,
    *,
    launcher: str = "mpirun",
    setup: Sequence[str] = (),
    parameters: Sequence[Sequence[str]] = (),
    preemptible: bool = False,
    warning: int = 120,
    restarts: int = 100,
    elastic: bool = False,
) -> str:
    """Return a batch script for a run in one job.

    Parameters
    ----------
    words : sequence of str
        Arguments of ``cec-mpi run`` except its ``--out``: the store, the task and options.
    out : str, optional
        Directory for results. If it is None, `words` is ignored, and the script takes store,
        directory and options as its arguments.
    options : mapping
        Options of sbatch without hyphens. Options with value None are left out.
    sbatch : mapping
        Further options of sbatch from the user; None for an option without value.
    launcher : str
        A key of `LAUNCHERS`. A job of one process has none.
    setup : sequence of str
        Shell commands before the run.
    parameters : sequence of sequences of str
        Options of each run of a job array, whose results are in ``out/1``, ``out/2``, ...
    preemptible : bool
        Whether a warning makes the run write a checkpoint, and the job is requeued to continue.
    warning : int
        Seconds before the end of the job's time at which the run is warned.
    restarts : int
        Largest number of restarts.
    elastic : bool
        Whether the job continues without lost machines, and under ``srun`` also without lost
        nodes. Then a new summary shows that the run is complete, not the exit code of the
        launcher.

    Raises
    ------
    InputError
        Options contradict each other, or cannot be part of a script.
    """
    options = options or {}
    if options.get("ntasks") == 1:  # which starts its machines itself, without MPI
        launcher, elastic = "pmix", True
    _check_warning(warning if preemptible else 0, options)
    _check_printable(*words, out or "", *setup, *chain.from_iterable(parameters))
    for key in sbatch or {}:
        if key == "array" or (key == "no-requeue" and preemptible):
            raise InputError(f"--sbatch {key} is set by the script: use --array or --preemptible")
    is_srun = launcher.startswith("pm")  # then Slurm signals the processes
    given = {**options, "array": f"1-{len(parameters)}" if parameters else None}
    if preemptible:
        given |= _warned("USR1" if is_srun else "B:USR1", warning)
    if elastic and is_srun:
        given["no-kill"] = True
    tells = preemptible and not is_srun
    parts = {
        "job_of_slurm": templates.JOB_OF_SLURM,
        "usage": templates.USAGE if out is None else "",
        "arguments": templates.TAKEN if out is None else templates.GIVEN,
        "task": templates.TASK if parameters else "",
        "trap": templates.TRAP if tells else "",
        "start": templates.START_AND_TELL if tells else templates.START,
        "remark": templates.REMARK if elastic else "",
        "before": "",
        "after": templates.AFTER if elastic else "",
        "requeue": templates.REQUEUE if preemptible else "",
    }
    if elastic:
        is_ending = templates.NEVER_WARNED
        if preemptible:
            is_ending = templates.TOLD if tells else templates.ASK_SLURM
        parts["before"] = is_ending + templates.BEFORE
    choices = [
        f'    {number}) set -- "$@" {shlex.join(chosen)} ;;'
        for number, chosen in enumerate(parameters, start=1)
    ]
    task_of_array = (
        '"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"'  # other numbers stand for all tasks
    )
    values = {
        "directives": _directives(given, sbatch or {}),
        "left": _left_behind(sbatch or {}),
        "setup": "\n".join(setup),
        "out": shlex.quote(out or ""),
        "words": shlex.join(words),
        "choices": "\n".join(choices),
        "tasks": len(parameters),
        "launch": _launch(launcher, options, elastic),
        "resume": " --resume" if preemptible else "",
        "early": warning + _EARLY,
        "restarts": restarts,
        "job": task_of_array if parameters else '"$SLURM_JOB_ID"',
    }
    return templates.filled(templates.JOB, parts, values)


def elastic_scripts(
    machines: int,
    words: Sequence[str],
    out: str,
    file: str,
    options: Mapping[str, object] | None = None,
    sbatch: Mapping[str, str | None] | None = None,
    master_sbatch: Mapping[str, str | None] | None = None,
    *,
    setup: Sequence[str] = (),
    warning: int = 120,
    restarts: int = 100,
) -> dict[str, str]:
    """Return two scripts: ``"master"``, and ``"machines"`` for an array of jobs.

    Parameters
    ----------
    machines : int
        Number of jobs of the array.
    words : sequence of str
        Arguments of ``cec-mpi run`` except its ``--out``, with ``--accept`` and `file`.
    out : str
        Directory for results.
    file : str
        Connection file.
    options : mapping
        Options of sbatch. ``job-name`` gets a suffix in both scripts, ``time`` and ``account``
        apply to both, others only to machines.
    sbatch : mapping
        Further options of sbatch for machines.
    master_sbatch : mapping
        Options of sbatch for the master, which override the others.
    setup : sequence of str
        Shell commands before the run and before machines.
    warning : int
        Seconds before the end of a job's time at which its process is warned.
    restarts : int
        Largest number of restarts of the master.

    Raises
    ------
    InputError
        Options contradict each other, or cannot be part of a script.
    """
    options = options or {}
    name = options.get("job-name", "cec-mpi")
    more = dict(master_sbatch or {})
    own = {key: _value(key, more.pop(key)) for key in _OF_MASTER if key in more}
    for flag, others in (("--sbatch", sbatch or {}), ("--master-sbatch", more)):
        for key in ("array", "requeue", "no-requeue"):
            if key in others:
                raise InputError(
                    f"{flag} {key} is set by the scripts of --elastic, expected another option"
                )
    of_machines = {
        **options,
        "job-name": f"{name}-machines",
        "ntasks": 1,
        "array": f"1-{machines}",
        **_warned("TERM", warning),
    }
    of_master = {
        **options,
        "job-name": f"{name}-master",
        "ntasks": 1,
        "cpus-per-task": 1,
        "partition": None,
        **own,
        **_warned("USR1", warning),
    }
    _check_warning(warning, of_machines)
    _check_warning(warning, of_master)
    _check_printable(*words, out, file, *setup)
    values = {
        "setup": "\n".join(setup),
        "out": shlex.quote(out),
        "words": shlex.join(words),
        "file": shlex.quote(file),
        "restarts": restarts,
        "job": '"$SLURM_JOB_ID"',
    }
    parts = {"requeue": templates.REQUEUE, "job_of_slurm": templates.JOB_OF_SLURM}
    for_master, for_machines = (
        {**values, "directives": _directives(of_job, given), "left": _left_behind(given)}
        for of_job, given in ((of_master, more), (of_machines, sbatch or {}))
    )
    return {
        "master": templates.filled(templates.MASTER, parts, for_master),
        "machines": templates.filled(templates.MACHINES, parts, for_machines),
    }


def _left_behind(sbatch: Mapping[str, str | None]) -> str:
    """Return the variables to unset in a job with these options of the user."""
    names = [name for name, option in _LEFT_BEHIND.items() if option not in sbatch]
    return " \\\n    ".join(wrap(" ".join(names), 90))


def _launch(launcher: str, options: Mapping[str, object], elastic: bool) -> str:
    """Return the command that starts the processes of a run in a job."""
    if elastic and launcher.startswith("pm"):
        return _ELASTIC_SRUN
    text = LAUNCHERS[launcher]
    if launcher == "mpirun":
        if options.get("cpus-per-task", 1) != 1:
            text += " --bind-to none"  # Open MPI binds ranks to one core each
        if elastic:
            text += " --with-ft ulfm"  # Intel's hydra needs no option
    return text


def _warned(signal: str, warning: int) -> dict[str, object]:
    """Return options of sbatch for a job that is warned before its end and requeued."""
    return {"open-mode": "append", "signal": f"{signal}@{warning}", "requeue": True}


def _check_warning(warning: int, options: Mapping[str, object]) -> None:
    """Raise if the warning is earlier than the job begins, or than sbatch allows."""
    limit, time = _LONGEST_WARNING, options.get("time")
    if time is not None:
        limit = min(limit, seconds_of(str(time)) - 1)
    if warning > limit:
        raise InputError(f"--warning {warning}: expected at most {plural(limit, 'second')}")


def _check_printable(*texts: str) -> None:
    for text in texts:
        if not text.isprintable():
            raise InputError(
                f"{text!r} cannot be part of a batch script: expected one line of text"
            )


def _value(key: str, value: str | None) -> str:
    """Check the value of an option of the master's job."""
    if not value:
        raise InputError(f"--master-sbatch {key}: expected a value, {key}=...")
    if key == "cpus-per-task" and not (value.isdecimal() and int(value)):
        raise InputError(f"--master-sbatch {key}={value}: expected a number of at least 1")
    return value


def _directives(given: Mapping[str, object], more: Mapping[str, str | None]) -> str:
    """Return the lines of a script with its own options of sbatch and those of the user."""
    found = {key: None if value is True else str(value) for key, value in given.items() if value}
    for key, value in more.items():
        if key in found:
            raise InputError(f"--sbatch {key}: the script has --{key} already")
        found[key] = value
    return "\n".join(_directive(key, value) for key, value in found.items())


def _directive(key: str, value: str | None) -> str:
    if not re.fullmatch("[a-z][a-z0-9-]+", key):
        raise InputError(f"--sbatch {key!r}: expected a long option of sbatch, such as mem=4G")
    if value is None:
        return f"#SBATCH --{key}"
    _check_printable(value)
    value = value.replace("\\", "\\\\")  # sbatch interprets it also within quotes
    return f"#SBATCH --{key}={shlex.quote(value)}"


_TIME = re.compile(r"(?:(?P<d>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?")


def seconds_of(time: str) -> int:
    """Return the seconds of a time limit in one of Slurm's formats.

    Raises
    ------
    InputError
        The text has another format.

    Examples
    --------
    >>> [seconds_of(text) for text in ("30", "30:15", "1:30:15", "1-2", "1-02:30")]
    [1800, 1815, 5415, 93600, 95400]
    """
    found = _TIME.fullmatch(time)
    if found:
        a, b, c = (int(found[name] or 0) for name in "abc")
        if found["d"]:
            hours, minutes, seconds = 24 * int(found["d"]) + a, b, c
        elif found["c"]:
            hours, minutes, seconds = a, b, c
        else:
            hours, minutes, seconds = 0, a, b
        if total := 3600 * hours + 60 * minutes + seconds:
            return total
    raise InputError(f"--time {time!r}: expected 30 (minutes), 30:00, 1:30:00 or 1-12:00:00")
