"""Batch scripts of Slurm: options in, text out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain

from cec_mpi.cluster import templates
from cec_mpi.errors import InputError
from cec_mpi.text import plural

# What starts the ranks within the allocation.
LAUNCHERS = {
    "mpirun": 'mpirun -n "$SLURM_NTASKS"',
    "hydra": 'mpiexec.hydra -n "$SLURM_NTASKS"',  # Intel's mpirun keeps signals to itself
    "pmix": 'srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK"',
    "pmi2": 'srun --mpi=pmi2 --cpus-per-task="$SLURM_CPUS_PER_TASK"',
}

# What starts the processes of an elastic run, and continues without those that are lost.
_ELASTIC_SRUN = (
    'srun --mpi=none --cpus-per-task="$SLURM_CPUS_PER_TASK" --no-kill --kill-on-bad-exit=0 --wait=0'
)

_EARLY = 60  # seconds by which Slurm may warn earlier
_LONGEST_WARNING = 65535  # that sbatch takes
_OF_MASTER = ("time", "cpus-per-task", "partition", "account")  # that its job may have for itself


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
    """The text of a batch script for a run in one job.

    Parameters
    ----------
    words : sequence of str
        The arguments of ``cec-mpi run`` but for its ``--out``: the store, and options.
    out : str, optional
        The directory for results. Without it the script takes store, directory and options as
        its own arguments, and `words` are not used.
    options : mapping
        Options of sbatch, without their hyphens; those of value None are left out.
    sbatch : mapping
        What a user adds to them; None where one has no value.
    launcher : str
        A key of `LAUNCHERS`.
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
    elastic : bool
        The job continues without lost machines, under ``srun`` without lost nodes too. Then a new
        summary says whether the run has completed, not the launcher's exit code.

    Raises
    ------
    InputError
        Options contradict each other, or cannot be written into a script.
    """
    options = options or {}
    _check_warning(warning if preemptible else 0, options)
    _check_printable(*words, out or "", *setup, *chain.from_iterable(parameters))
    for key in sbatch or {}:
        if key == "array" or (key == "no-requeue" and preemptible):
            raise InputError(f"--sbatch {key}: expected other options; see --array, --preemptible")
    is_srun = launcher.startswith("pm")  # then Slurm warns the processes
    given = {**options, "array": f"1-{len(parameters)}" if parameters else None}
    if preemptible:
        given |= _warned("USR1" if is_srun else "B:USR1", warning)
    if elastic and is_srun:
        given["no-kill"] = True
    tells = preemptible and not is_srun
    parts = {
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
    task_of_array = '"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"'  # other numbers mean all tasks
    values = {
        "directives": _directives(given, sbatch or {}),
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
    """The texts of two scripts: ``"master"``, and ``"machines"`` for an array of jobs.

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
    options : mapping
        Options of sbatch: ``job-name``, of which both make their own, ``time`` and ``account`` for
        the master too, and others for machines alone.
    sbatch : mapping
        What a user adds to those of machines.
    master_sbatch : mapping
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
    options = options or {}
    name = options.get("job-name", "cec-mpi")
    more = dict(master_sbatch or {})
    own = {key: _value(key, more.pop(key)) for key in _OF_MASTER if key in more}
    for flag, others in (("--sbatch", sbatch or {}), ("--master-sbatch", more)):
        for key in ("array", "requeue", "no-requeue"):
            if key in others:
                raise InputError(f"{flag} {key}: scripts of --elastic say this themselves")
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
    parts = {"requeue": templates.REQUEUE}
    for_master = {**values, "directives": _directives(of_master, more)}
    for_machines = {**values, "directives": _directives(of_machines, sbatch or {})}
    return {
        "master": templates.filled(templates.MASTER, parts, for_master),
        "machines": templates.filled(templates.MACHINES, parts, for_machines),
    }


def _launch(launcher: str, options: Mapping[str, object], elastic: bool) -> str:
    """What starts the processes of a run in a job."""
    if elastic and launcher.startswith("pm"):
        return _ELASTIC_SRUN
    text = LAUNCHERS[launcher]
    if launcher == "mpirun":
        if options.get("cpus-per-task", 1) != 1:
            text += " --bind-to none"  # Open MPI gives each rank one core; MPICH has the option too
        if elastic:
            text += " --with-ft ulfm"  # of Open MPI; Intel's hydra needs nothing, MPICH's ends all
    return text


def _warned(signal: str, warning: int) -> dict[str, object]:
    """Options of sbatch for a job that is warned of its end and queued again."""
    return {"open-mode": "append", "signal": f"{signal}@{warning}", "requeue": True}


def _check_warning(warning: int, options: Mapping[str, object]) -> None:
    """Refuse to be warned before a job's time begins, or earlier than sbatch can say."""
    limit, time = _LONGEST_WARNING, options.get("time")
    if time is not None:
        limit = min(limit, seconds_of(str(time)) - 1)
    if warning > limit:
        raise InputError(
            f"--warning {warning}: expected at most {plural(limit, 'second')} before the end"
        )


def _check_printable(*texts: str) -> None:
    for text in texts:
        if not text.isprintable():
            raise InputError(f"{text!r}: expected text of one line in a batch script")


def _value(key: str, value: str | None) -> str:
    """An option of the master's job that takes the place of that of machines."""
    if not value:
        raise InputError(f"--master-sbatch {key}: expected a value, as {key}=...")
    if key == "cpus-per-task" and not (value.isdecimal() and int(value)):
        raise InputError(f"--master-sbatch {key}={value}: expected a number, at least 1")
    return value


def _directives(given: Mapping[str, object], more: Mapping[str, str | None]) -> str:
    """The lines of a script with options of sbatch: its own, and what a user adds."""
    found = {key: None if value is True else str(value) for key, value in given.items() if value}
    for key, value in more.items():
        if key in found:
            raise InputError(f"--sbatch {key}: this script has --{key} already")
        found[key] = value
    return "\n".join(_directive(key, value) for key, value in found.items())


def _directive(key: str, value: str | None) -> str:
    if not re.fullmatch("[a-z][a-z0-9-]+", key):
        raise InputError(f"--sbatch {key!r}: expected a long option of sbatch, as mem=4G")
    if value is None:
        return f"#SBATCH --{key}"
    _check_printable(value)
    value = value.replace("\\", "\\\\")  # which sbatch takes as special within quotes too
    return f"#SBATCH --{key}={shlex.quote(value)}"


_TIME = re.compile(r"(?:(?P<d>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?")


def seconds_of(time: str) -> int:
    """The seconds of a time limit in one of Slurm's forms.

    Raises
    ------
    InputError
        It has none of them, or is no time.

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
    raise InputError(f"--time {time!r}: expected minutes, 30:00, 1:30:00 or 1-12:00:00")
