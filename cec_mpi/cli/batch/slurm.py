"""Slurm batch scripts, from the templates in this package."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from textwrap import wrap
from typing import Literal

from cec_mpi.errors import InputError

# Commands that start the ranks of a lockstep run in the allocation.
LAUNCHERS = {
    "mpirun": 'mpirun -n "$SLURM_NTASKS"',
    "hydra": 'mpiexec.hydra -n "$SLURM_NTASKS"',  # Intel's mpirun does not forward signals
    # By default srun keeps the other ranks running when one is killed.
    "pmix": 'srun --mpi=pmix --kill-on-bad-exit --cpus-per-task="$SLURM_CPUS_PER_TASK"',
    "pmi2": 'srun --mpi=pmi2 --kill-on-bad-exit --cpus-per-task="$SLURM_CPUS_PER_TASK"',
}

# Variables of an srun step that sbatch passes to the job, with the sbatch option that sets each.
# Scripts unset them unless the user sets that option: srun would use them as options, and MPI would
# use the PMI variables as those of its own process.
_STEP_VARIABLES = {
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

_WARNING_SECONDS = 120  # before the time limit, as in the templates
_STARTS_PER_MACHINE = 5  # in ten minutes, on average; beyond that, the job submits no more


def batch_script(
    template: Literal["lockstep", "elastic", "machines"],
    options: Mapping[str, object],
    user_options: Mapping[str, str | None] | None = None,
    *,
    run_words: Sequence[str] = (),
    out: str = "",
    connection_file: str = "",
    join_words: Sequence[str] = (),
    launcher: str = "mpirun",
    setup: Sequence[str] = (),
    keep: int = 0,
    machines_script: str = "",
) -> str:
    """Return a batch script.

    Parameters
    ----------
    template : {"lockstep", "elastic", "machines"}
        A lockstep run, an elastic run, or an array of jobs that join an elastic run.
    options : mapping
        Options of sbatch without leading hyphens. Options with value None, 0 or an empty
        string are omitted.
    user_options : mapping
        Additional options of sbatch from the user; None for an option without value.
    run_words : sequence of str
        Arguments of ``cec-mpi run`` except its ``--out``: the store, the task and options.
    out : str
        Directory for results.
    connection_file : str
        Connection file of the run that machines join.
    join_words : sequence of str
        Other arguments of ``cec-mpi join``.
    launcher : str
        A key of `LAUNCHERS`, for a lockstep run.
    setup : sequence of str
        Shell commands before the run.
    keep : int
        Number of machines that the job of an elastic run submits and replaces; 0 for none.
    machines_script : str
        Path of the batch script of these machines.

    Raises
    ------
    InputError
        Options contradict each other, a text cannot be part of a script, or the time limit is
        invalid or too short.
    """
    user_options = user_options or {}
    _check_printable(*run_words, out, connection_file, *setup)
    if (time := options.get("time")) is not None and parse_time_limit(
        str(time)
    ) <= _WARNING_SECONDS:
        raise InputError(
            f"--time {time}: expected more than {_WARNING_SECONDS // 60} minutes, because Slurm "
            f"warns the job {_WARNING_SECONDS} seconds before its end"
        )
    launch = LAUNCHERS[launcher]
    if launcher == "mpirun" and options.get("cpus-per-task", 1) != 1:
        launch += " --bind-to none"  # Open MPI binds ranks to one core each
    variables = [name for name, option in _STEP_VARIABLES.items() if option not in user_options]
    values = {
        "directives": _directives(options, user_options),
        "variables": " \\\n    ".join(wrap(" ".join(variables), 90)),
        "setup": "\n".join(setup),
        "out": shlex.quote(out),
        "words": shlex.join(run_words),
        "join_words": shlex.join([connection_file, *join_words]),
        "launch": launch,
        "keep_machines": "",
    }
    if keep:
        keep_values = {"keep": str(keep), "max_starts": str(_STARTS_PER_MACHINE * keep)}
        keep_values["script"] = shlex.quote(machines_script)
        values["keep_machines"] = _fill("keep.sh", keep_values).removesuffix("\n")
    return _fill(f"{template}.sbatch", values)


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Return a template with values in place of its placeholders."""
    text = (files("cec_mpi.cli.batch") / "templates" / template).read_text()
    return re.sub(r"@\{(\w+)\}", lambda placeholder: values[placeholder[1]], text)


def _check_printable(*texts: str) -> None:
    for text in texts:
        if not text.isprintable():
            raise InputError(
                f"{text!r} cannot be part of a batch script: expected one line of text"
            )


def _directives(options: Mapping[str, object], user_options: Mapping[str, str | None]) -> str:
    """Return the lines of a script that set options of sbatch."""
    all_options: dict[str, str | None] = {k: str(v) for k, v in options.items() if v}
    for key in user_options:
        if key in all_options:
            raise InputError(f"--sbatch {key}: the script already sets --{key}")
    all_options |= user_options
    return "\n".join(_directive(key, value) for key, value in all_options.items())


def _directive(key: str, value: str | None) -> str:
    if not re.fullmatch("[a-z][a-z0-9-]+", key):
        raise InputError(f"--sbatch {key!r}: expected a long option of sbatch, such as mem=4G")
    if value is None:
        return f"#SBATCH --{key}"
    _check_printable(value)
    value = value.replace("\\", "\\\\")  # sbatch interprets backslashes even in quotes
    return f"#SBATCH --{key}={shlex.quote(value)}"


_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<fields>\d+(?::\d+){0,2})")


def parse_time_limit(time: str) -> int:
    """Return the seconds of a time limit in a format of Slurm.

    Raises
    ------
    InputError
        The text has another format, or the time is 0.

    Examples
    --------
    >>> [parse_time_limit(text) for text in ("30", "30:15", "1:30:15", "1-2", "1-02:30")]
    [1800, 1815, 5415, 93600, 95400]
    """
    match = _TIME.fullmatch(time)
    if match:
        fields = [int(text) for text in match["fields"].split(":")]
        if match["days"] or len(fields) == 3:
            hours, minutes, seconds = [*fields, 0, 0][:3]
        else:
            hours, minutes, seconds = [0, *fields, 0][:3]
        hours += 24 * int(match["days"] or 0)
        if total := 3600 * hours + 60 * minutes + seconds:
            return total
    raise InputError(f"--time {time!r}: expected 30 (minutes), 30:00, 1:30:00 or 1-12:00:00")
