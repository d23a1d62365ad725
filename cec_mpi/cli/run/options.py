"""Options of ``cec-mpi run`` in addition to those of a session, and of ``cec-mpi join``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cec_mpi.errors import InputError
from cec_mpi.report.live.display import AUTO, CHOICES
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import from_flags, option
from cec_mpi.runtime.options.shards import CacheOptions
from cec_mpi.runtime.processes.notices import NOTICE_SERVICES
from cec_mpi.store.limits import DEFAULT_MEMORY_FRACTION

if TYPE_CHECKING:
    import argparse

DEFAULT_TASK = "matvec"


def is_task_option(word: str) -> bool:
    """Return whether a word has the form of a task option, KEY=VALUE."""
    key, equals, _ = word.partition("=")
    return bool(equals) and key.isidentifier()


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of ``cec-mpi run``: task, results, checkpoints and display.

    Attributes
    ----------
    task_options : tuple of str
        Options of the task, KEY=VALUE.
    """

    store: str
    task: str
    task_options: tuple[str, ...]
    out: str = option(
        "",
        "--out DIR",
        "directory for results, checkpoints, records and logs",
        values.path,
        required=True,
        is_common=True,
    )
    overwrite: bool = option(
        False, "--overwrite", "replace the results in DIR", exclusive=True, is_common=True
    )
    resume: bool = option(
        False,
        "--resume",
        "continue from the checkpoint in DIR; without a checkpoint start from the beginning",
        exclusive=True,
        is_common=True,
    )
    serial: bool = option(False, "--serial", "run all machines in this process, without MPI")
    shows_map: bool = option(
        False, "--map", "print the node and the shard file of each machine, then continue"
    )
    checkpoint_every: values.Interval | None = option(
        None,
        "--checkpoint-every T",
        "interval between checkpoints, in steps (50) or as a time (60s or 5m) (default: 60s in an "
        "elastic run or with a time limit; otherwise only when the run ends early)",
        values.interval,
        is_common=True,
    )
    time_limit: float | None = option(
        None,
        "--time-limit TIME",
        "stop after this time, such as 90s, 5m or 1h, with a checkpoint and exit code 6",
        values.seconds,
        is_common=True,
    )
    progress: str = option(
        AUTO,
        "--progress HOW",
        "how to show progress: auto (a live display on a terminal, otherwise a line every few "
        "seconds), plain (lines) or off (default: auto)",
        choices=CHOICES,
    )

    @property
    def resume_flag(self) -> str:
        """Flag with which the same command continues this run."""
        return "--resume in place of --overwrite" if self.overwrite else "--resume"


def parse_run_options(arguments: argparse.Namespace) -> RunOptions:
    """Return the options of a run; options of the task may precede its name.

    Raises
    ------
    InputError
        A word is neither the name of the task nor an option of it.
    """
    run = from_flags(RunOptions, arguments)
    words = (run.task, *run.task_options)
    task_options = tuple(word for word in words if is_task_option(word))
    names = [word for word in words if not is_task_option(word)]
    if len(names) > 1:
        raise InputError(
            f"found {names[1]!r} after the task {names[0]!r}, expected options of the task, "
            "KEY=VALUE (quote values that contain spaces, and write lists without spaces)"
        )
    return replace(run, task=names[0] if names else DEFAULT_TASK, task_options=task_options)


@dataclass(frozen=True, kw_only=True)
class JoinOptions(CacheOptions):
    """Options of ``cec-mpi join``: machines, memory, connection and cache."""

    title = "machines of this process"

    machines: int = option(
        1,
        "--machines K",
        "run up to K machines in this process: it receives w once, and computes the rows of one "
        "machine after another with all cores (default: 1)",
        values.positive,
    )
    memory: float = option(
        DEFAULT_MEMORY_FRACTION,
        "--memory SIZE",
        "maximum total size of the shards of this process, such as 64G, or a fraction of free "
        "memory (default: 0.9)",
        values.memory,
    )
    machine: int | None = option(
        None,
        "--machine n",
        "join as machine n if possible, for example because its shard is on this computer",
        values.positive,
    )
    encryption: bool = option(
        True,
        "--no-encryption",
        "do not encrypt the connection; required with HOST:PORT if the run was started without "
        "encryption",
    )
    retry: float | None = option(
        None,
        "--retry TIME",
        "wait up to this time, such as 10m, for a run that has not started yet or may be resumed "
        "(default: do not wait)",
        values.seconds,
    )
    threads: int | None = option(
        None,
        "--threads K",
        "BLAS threads (default: those of run --threads, or an equal share of the cores)",
        values.positive,
    )
    notice: str = option(
        "none",
        "--notice SERVICE",
        "leave, as on SIGTERM, when the metadata service of this instance gives notice of "
        "preemption: aws, gcp, azure, or auto for the one that answers (default: none)",
        choices=NOTICE_SERVICES,
    )
    device: str = option(
        "cpu",
        "--device DEVICE",
        "hold and multiply shards on a GPU: auto, cuda, cuda:0, mps or xpu, optionally after a "
        "library, as in torch:cuda; --memory then limits GPU memory (default: cpu)",
    )
