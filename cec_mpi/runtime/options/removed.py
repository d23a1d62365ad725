"""Removed commands, options and values of options, with their replacements."""

_ONE_SHARD = (
    "a machine holds one shard; start more ranks on this node, or cec-mpi join FILE --machines K "
    "--memory SIZE"
)
_COSTS = "use the rates of a run (--rates-of DIR), or --rate, --latency and --bandwidth"
_TABLE = "use --csv FILE, a table with a row for each step"
_CHECK = "--check takes no value and compares all rows (check=True in Python)"
_REPLACEMENTS = {
    "stage": "use run --cache DIR, where each machine keeps a copy of its shard",
    "hostfile": "copy the example for your MPI from hostfiles/ in a clone of the project",
    # options of runs
    "--task": "write the task after the store, such as cec-mpi run STORE svd k=5",
    "--set": "write options of the task after its name, such as cec-mpi run STORE svd k=5",
    "--on-loss": "use elastic (--elastic) to continue without lost machines",
    "--spares": "use elastic (--elastic), where additional processes are spares",
    "--replace": "use cec-mpi join to replace a lost machine at any time",
    "--staged": "use --cache DIR, where each machine keeps a copy of its shard",
    "--shards-per-machine": _ONE_SHARD,
    "--memory-per-machine": _ONE_SHARD,
    # values of options
    "--check parity": _CHECK,
    "--check sample": _CHECK,
    # options of one command
    "simulate --doctor": _COSTS,
    "advise --doctor": _COSTS,
    "simulate --disk": "use --source each:RATE",
    "advise --disk": "use --source each:RATE",
    "advise --figure": "the table lists all choices, also with --json",
    "plan --draw": "use --figure FILE, a picture of the assignment",
    "report --figures": _TABLE,
    "report --trace": _TABLE,
    "slurm --array": "submit the script once for each run, such as sbatch job.sbatch DIR alpha=0.1",
    "slurm --preemptible": "every script requeues its job, which then resumes",
    "slurm --warning": "use an option of sbatch: sbatch --signal=B:USR1@300 job.sbatch",
    "slurm --restarts": "change the number in the script",
    "slurm --master-sbatch": "use options of sbatch when you submit the master's script",
}


def removed_command_hint(command: str) -> str:
    """Return a message if a command was removed, otherwise an empty string.

    Examples
    --------
    >>> removed_command_hint("stage")
    'stage was removed: use run --cache DIR, where each machine keeps a copy of its shard'
    """
    replacement = _REPLACEMENTS.get(command)
    return f"{command} was removed: {replacement}" if replacement else ""


def removed_option_hint(option: str, *, command: str = "", value: str = "") -> str:
    """Return a hint if an option or its value was removed, otherwise an empty string.

    Parameters
    ----------
    option : str
        A flag, or a keyword of `open_operator`.
    command, value : str
        The command, and the value of the option.

    Examples
    --------
    >>> removed_option_hint("--draw", command="plan")
    ': it was removed; use --figure FILE, a picture of the assignment'
    """
    flag = f"--{option.strip('-').replace('_', '-')}"
    names = flag, f"{command} {flag}", f"{flag} {value}"
    replacement = next((_REPLACEMENTS[name] for name in names if name in _REPLACEMENTS), "")
    return f": it was removed; {replacement}" if replacement else ""
