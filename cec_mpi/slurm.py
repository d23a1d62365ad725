"""Batch scripts of Slurm that run ``cec-mpi run``: options in, text out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from cec_mpi.errors import InputError

__all__ = ["LAUNCHERS", "batch_script", "seconds_of"]

# What starts the ranks within the allocation.
LAUNCHERS = {
    "mpirun": 'mpirun -n "$SLURM_NTASKS"',
    "hydra": 'mpiexec.hydra -n "$SLURM_NTASKS"',  # Intel's mpirun keeps signals to itself
    "pmix": 'srun --mpi=pmix --cpus-per-task="$SLURM_CPUS_PER_TASK"',
    "pmi2": 'srun --mpi=pmi2 --cpus-per-task="$SLURM_CPUS_PER_TASK"',
}

# What each needs where a job is to go on without a process that it has lost.
_GOING_ON = {
    "mpirun": " --with-ft ulfm",
    "pmi2": " --no-kill --kill-on-bad-exit=0 --wait=0",
}

# Where tasks have several cores: Open MPI gives each rank one of them. MPICH has the option too.
_ALL_CORES = {"mpirun": " --bind-to none"}

_LONGEST_WARNING = 65535  # that sbatch takes
_EARLY = 60  # seconds by which Slurm may warn earlier
_STOPPED = 6  # the exit code of a run that has written a checkpoint and goes on with --resume


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
        raise InputError(f"--warning {warning}: expected at most {limit} seconds before the end")
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
    command = (
        f"{LAUNCHERS[launcher]}{_ALL_CORES.get(launcher, '') if cpus_per_task > 1 else ''}"
        f"{_GOING_ON[launcher] if going_on else ''} \\\n"
        f'    cec-mpi run --out="$out"{" --resume" if preemptible else ""}'
        f'{" --on-loss continue" if going_on else ""} "$@"'
    )
    hides_code = going_on and _is_srun(launcher)
    told_by_shell = preemptible and not _is_srun(launcher)
    lines = [
        "#!/bin/bash",
        *(f"# {line}" for line in _description(out is None, parameters, preemptible, going_on)),
        *(_directive(key, value) for key, value in directives.items()),
        "",
        "set -eo pipefail",
        *(_HANDING_ON if told_by_shell else ()),
        *setup,
        *_arguments(words, out),
        *_choice(parameters),
        "",
    ]
    if told_by_shell:
        lines += _in_background(command)
    elif hides_code:
        lines += _looking_at_results(command, warning if preemptible else None)
    elif preemptible:
        lines += ["code=0", f"{command} || code=$?"]
    else:
        lines += [command]
    if preemptible:
        lines += _requeue(restarts, hides_code)
    if preemptible or hides_code:
        lines += ['exit "$code"']
    return "\n".join(lines) + "\n"


def _is_srun(launcher: str) -> bool:
    return LAUNCHERS[launcher].startswith("srun ")


def _description(
    takes_arguments: bool, parameters: Sequence[Sequence[str]], preemptible: bool, going_on: bool
) -> Iterator[str]:
    yield "cec-mpi run in a job of Slurm; written by cec-mpi slurm."
    if takes_arguments:
        yield "  sbatch [--ntasks=RANKS] THIS_FILE STORE DIR [options of cec-mpi run]"
        yield "RANKS are a master, the machines of the store, and spares."
    if parameters:
        yield "Each task of the array has options of its own, and its results in DIR/1, DIR/2, ..."
    if preemptible:
        yield "Warned of its end, the run writes a checkpoint, and the job goes on from it later."
    if going_on:
        yield "The job goes on when it loses machines or nodes, but not without the master's node."


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


def _arguments(words: Sequence[str], out: str | None) -> Iterator[str]:
    """Set the variable `out`, and the arguments to the words of the run."""
    if out is None:
        expected = "expected STORE DIR [options of cec-mpi run]"
        yield f'[ $# -ge 2 ] || {{ echo "{expected}" >&2; exit 2; }}'
        yield "out=$2"
        yield 'set -- "$1" "${@:3}"'
    else:
        yield f"out={shlex.quote(out)}"
        yield shlex.join(["set", "--", *words])


def _choice(parameters: Sequence[Sequence[str]]) -> Iterator[str]:
    """Add the options of this task of an array, and give it a directory of its own."""
    if not parameters:
        return
    yield 'case "$SLURM_ARRAY_TASK_ID" in'
    for number, words in enumerate(parameters, start=1):
        yield f'    {number}) set -- "$@" {shlex.join(words)} ;;'
    last = len(parameters)
    yield f'    *) echo "no task $SLURM_ARRAY_TASK_ID: expected 1 to {last}" >&2; exit 2 ;;'
    yield "esac"
    yield "out+=/$SLURM_ARRAY_TASK_ID"


# Before all else, as a warning may come soon after the start.
_HANDING_ON = (
    "# Slurm warns this shell alone: it tells the launcher, which tells the ranks.",
    "launcher='' warned=''",
    'tell() { warned=yes; [ -z "$launcher" ] || kill -USR1 "$launcher" 2>/dev/null || true; }',
    "trap tell USR1",
)


def _in_background(command: str) -> Iterator[str]:
    """Start the ranks, and wait for them however often the shell is warned."""
    yield f"code={_STOPPED}"
    yield 'if [ -z "$warned" ]; then'
    yield f"    {command} &".replace("\n", "\n    ")
    yield "    sleep 1 # until it can be told"
    yield "    launcher=$!"
    yield '    [ -z "$warned" ] || tell'
    yield "    while true; do"
    yield "        warned='' code=0"
    yield '        wait "$launcher" || code=$?'
    yield '        [ -n "$warned" ] || break # a warning has ended this wait'
    yield "    done"
    yield "fi"


def _looking_at_results(command: str, warning: int | None) -> Iterator[str]:
    """Start the ranks by srun, which leaves with the highest code of all processes."""
    yield """summary() { stat -c %i "$out/summary.json" 2>/dev/null || true; }"""
    if warning is not None:
        yield "is_ending() { # whether Slurm preempts this job, or has warned it of its end"
        yield "    local job"
        yield '    job=$(SLURM_TIME_FORMAT=%s scontrol show job --oneliner "$SLURM_JOB_ID" |'
        yield '        grep "^JobId=$SLURM_JOB_ID ")'
        yield '    [[ "$job" != *" PreemptTime="[0-9]* ]] || return 0'
        yield '    [[ "$job" =~ " EndTime="([0-9]+) ]] &&'
        yield f'        [ "${{BASH_REMATCH[1]}}" -le $(($(date +%s) + {warning + _EARLY})) ]'
        yield "}"
    yield "before=$(summary) code=0"
    yield f"{command} || code=$?"
    yield "# The code is the highest of all processes, 137 when one was killed. A run that came to"
    yield "# its end in spite of that has written a new summary."
    yield "after=$(summary)"
    yield f'if [ "$code" -gt {_STOPPED} ] && [ -n "$after" ] && [ "$after" != "$before" ]; then'
    yield "    code=0"
    if warning is not None:
        yield f'elif [ "$code" -gt {_STOPPED} ] && is_ending; then'
        yield f"    code={_STOPPED}"
    yield "fi"


def _requeue(restarts: int, code_is_hidden: bool) -> Iterator[str]:
    """Ask for a restart when the run has stopped on a warning."""
    codes = f"{_STOPPED}" if code_is_hidden else f"{_STOPPED} | 138 | 143"
    yield 'case "$code" in'
    yield f"    {codes}) # stopped on a warning, or by one that came too early"
    yield f'        if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {restarts} ]; then'
    yield '            scontrol requeue "$SLURM_JOB_ID" && sleep 60 # it ends this script'
    yield "        fi ;;"
    yield "esac"


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
