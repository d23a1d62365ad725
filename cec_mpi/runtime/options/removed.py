"""Removed commands, options and values of options, and what to use instead of each."""

_ONE_SHARD = (
    "a machine holds one shard; start more ranks on this node, or cec-mpi join FILE --machines K "
    "--memory SIZE"
)
_COSTS = "take rates from a run (--rates-of DIR), or give --rate, --latency and --bandwidth"
_TABLE = "use --csv FILE, a table with a row for each step"
_CHECK = "--check has no value and compares all rows (check=True in Python)"
_INSTEAD = {
    "stage": "give runs --cache DIR, to which each machine copies its shard",
    "hostfile": "copy an example from hostfiles/ in a clone of the project, one for each MPI",
    # options of runs
    "--task": "write the task after the store, such as cec-mpi run STORE svd k=5",
    "--set": "write options of the task after its name, such as cec-mpi run STORE svd k=5",
    "--on-loss": "use elastic (--elastic) to continue without lost machines",
    "--spares": "use elastic (--elastic): processes beyond the machines of the store are spares",
    "--replace": "use cec-mpi join to start a machine that replaces a lost one, at any time",
    "--staged": "use --cache DIR, to which each machine copies its shard",
    "--shards-per-machine": _ONE_SHARD,
    "--memory-per-machine": _ONE_SHARD,
    # values of options
    "--check parity": _CHECK,
    "--check sample": _CHECK,
    # options of one command
    "simulate --doctor": _COSTS,
    "advise --doctor": _COSTS,
    "advise --figure": "the table lists all choices, also with --json",
    "plan --draw": "use --figure FILE, a picture of the assignment",
    "report --figures": _TABLE,
    "report --trace": _TABLE,
    "slurm --array": "submit the script once for each run, such as sbatch job.sbatch DIR alpha=0.1",
    "slurm --preemptible": "each script is queued again after a warning, and resumes",
    "slurm --warning": "give it to sbatch, such as sbatch --signal=B:USR1@300 job.sbatch",
    "slurm --restarts": "change the number in the script",
    "slurm --master-sbatch": "give options to the master's own sbatch, such as --partition=long",
}


def removed_command_hint(command: str) -> str:
    """Return a sentence about a command that was removed; empty if it was not.

    Examples
    --------
    >>> removed_command_hint("stage")
    'stage was removed: give runs --cache DIR, to which each machine copies its shard'
    """
    instead = _INSTEAD.get(command)
    return f"{command} was removed: {instead}" if instead else ""


def removed_option_hint(option: str, *, command: str = "", value: str = "") -> str:
    """Return what follows an option, or its value, that was removed; empty if it was not.

    Parameters
    ----------
    option : str
        A flag, or a keyword of `open_operator`.
    command, value : str
        The command to which it was given, and its value.

    Examples
    --------
    >>> removed_option_hint("--draw", command="plan")
    ': it was removed; use --figure FILE, a picture of the assignment'
    """
    flag = f"--{option.strip('-').replace('_', '-')}"
    names = flag, f"{command} {flag}", f"{flag} {value}"
    instead = next((_INSTEAD[name] for name in names if name in _INSTEAD), "")
    return f": it was removed; {instead}" if instead else ""
