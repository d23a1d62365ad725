"""Batch scripts of Slurm that run ``cec-mpi run``: options in, text out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain

from cec_mpi.errors import InputError, StoppedError
from cec_mpi.text import plural

# What starts the ranks within the allocation.
LAUNCHERS = {
    "mpirun": 'mpirun -n "$SLURM_NTASKS"',
    "hydra": 'mpiexec.hydra -n "$SLURM_NTASKS"',  # Intel's mpirun keeps signals to itself
    "pmix": 'srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK"',
    "pmi2": 'srun --mpi=pmi2 --cpus-per-task="$SLURM_CPUS_PER_TASK"',
}

# What each needs where a job is to go on without a process that it has lost.
_GOING_ON = {"mpirun": " --with-ft ulfm", "pmi2": " --no-kill --kill-on-bad-exit=0 --wait=0"}

# Where tasks have several cores: Open MPI gives each rank one of them. MPICH has the option too.
_ALL_CORES = {"mpirun": " --bind-to none"}

_LONGEST_WARNING = 65535  # that sbatch takes
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
    on_loss: str = "end",
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
        Ranks: the master, the machines and the spares.
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
    on_loss : str
        ``continue``: the job goes on without a machine or a node that it loses.

    Raises
    ------
    InputError
        Options contradict each other, or cannot be written into a script.
    """
    if on_loss == "continue" and launcher not in _GOING_ON:
        raise InputError(
            f"--on-loss continue: with --launcher {launcher} a lost process ends the job; "
            "expected mpirun (of Open MPI 5) or pmi2 (of MPICH or Intel MPI)"
        )
    limit = _LONGEST_WARNING if time is None else min(seconds_of(time) - 1, _LONGEST_WARNING)
    if preemptible and warning > limit:
        raise InputError(
            f"--warning {warning}: expected at most {plural(limit, 'second')} before the end"
        )
    for text in (*words, out or "", *setup, *chain.from_iterable(parameters)):
        _check_printable(text)
    going_on = on_loss == "continue"
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
        "signal": f"{'' if _is_srun(launcher) else 'B:'}USR1@{warning}" if preemptible else None,
    }
    directives: dict[str, str | None] = {key: str(value) for key, value in given.items() if value}
    directives |= dict.fromkeys(["requeue"] * preemptible + ["no-kill"] * going_on)
    for key, value in (sbatch or {}).items():
        if key in directives:
            raise InputError(f"--sbatch {key}: this script has --{key} already")
        if key == "array" or (key == "no-requeue" and preemptible):
            raise InputError(f"--sbatch {key}: expected other options; see --array, --preemptible")
        directives[key] = value
    srun = _is_srun(launcher)
    flags = {
        "takes_arguments": out is None,
        "array": bool(parameters),
        "preemptible": preemptible,
        "going_on": going_on,
        "setup": bool(setup),
        "srun": srun,  # which warns the ranks itself, and leaves with the highest code of them
        "plain": not preemptible and not (going_on and srun),
    }
    launch = LAUNCHERS[launcher] + (_ALL_CORES.get(launcher, "") if cpus_per_task > 1 else "")
    choices = [
        f'    {number}) set -- "$@" {shlex.join(chosen)} ;;'
        for number, chosen in enumerate(parameters, start=1)
    ]
    texts = {
        "directives": "\n".join(_directive(key, value) for key, value in directives.items()),
        "setup": "\n".join(setup),
        "out": shlex.quote(out or ""),
        "arguments": shlex.join(["set", "--", *words]),
        "choices": "\n".join(choices),
        "last": len(parameters),
        "launch": launch + (_GOING_ON[launcher] if going_on else ""),
        "options": " --resume" * preemptible + " --on-loss continue" * going_on,
        "early": warning + _EARLY,
        "stopped": StoppedError.exit_code,
        "codes": f"{StoppedError.exit_code}{'' if going_on and srun else ' | 138 | 143'}",
        "restarts": restarts,
    }
    return _filled(flags, texts)


def _filled(flags: Mapping[str, bool], texts: Mapping[str, object]) -> str:
    """The template ``batch.sh``, with its lines for these flags, and texts in place of their names.

    A line of it that begins with ``%`` says which flags the lines below are for, ``!`` which not.
    """
    from importlib.resources import files

    lines, kept = [], True
    for line in files(__package__).joinpath("batch.sh").read_text().splitlines(keepends=True):
        if line.startswith("%"):
            kept = all(flags[word.strip("!")] != word.startswith("!") for word in line[1:].split())
        elif kept:
            lines.append(line)
    return re.sub(r"@\{(\w+)\}", lambda found: str(texts[found[1]]), "".join(lines))


def _is_srun(launcher: str) -> bool:
    return LAUNCHERS[launcher].startswith("srun ")


def _directive(key: str, value: str | None) -> str:
    if not re.fullmatch("[a-z][a-z0-9-]+", key):
        raise InputError(f"--sbatch {key!r}: expected a long option of sbatch, as mem=4G")
    if value is None:
        return f"#SBATCH --{key}"
    _check_printable(value)
    value = value.replace("\\", "\\\\")  # which sbatch takes as special within quotes too
    return f"#SBATCH --{key}={shlex.quote(value)}"


def _check_printable(text: str) -> None:
    if not text.isprintable():
        raise InputError(f"{text!r}: expected text of one line in a batch script")


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
