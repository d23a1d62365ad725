"""Options of ``cec-mpi run`` that are not those of its session, and of ``cec-mpi join``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cec_mpi.errors import InputError
from cec_mpi.live.shown import AUTO, CHOICES
from cec_mpi.options import values
from cec_mpi.options.option import from_flags, option

if TYPE_CHECKING:
    import argparse

DEFAULT = "matvec"


def is_setting(word: str) -> bool:
    """Whether a word is KEY=VALUE, an option of a task."""
    key, equals, _ = word.partition("=")
    return bool(equals) and key.isidentifier()


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is done with a store, and where its results go."""

    store: str
    task: str
    settings: tuple[str, ...]
    out: str = option(
        "",
        "--out DIR",
        "directory for results, checkpoint, records and logs",
        values.path,
        required=True,
        is_common=True,
    )
    overwrite: bool = option(
        False, "--overwrite", "replace the results in DIR", alone=True, is_common=True
    )
    resume: bool = option(
        False,
        "--resume",
        "continue from the checkpoint in DIR; without one, start from the beginning and say so",
        alone=True,
        is_common=True,
    )
    serial: bool = option(False, "--serial", "keep all machines in this process, without MPI")
    shows_map: bool = option(
        False, "--map", "print where each machine runs and what it reads, then continue"
    )
    every: values.Interval | None = option(
        None,
        "--checkpoint-every T",
        "write a checkpoint every T steps, such as 50, or after a time, such as 60s or 5m "
        "(default: 60s in an elastic run or with a time limit; else only when the run ends early)",
        values.interval,
        is_common=True,
    )
    time_limit: float | None = option(
        None,
        "--time-limit SECONDS",
        "end after this time with a checkpoint and exit code 6",
        values.seconds,
        is_common=True,
    )
    progress: str = option(
        AUTO,
        "--progress HOW",
        "auto (a display that changes on a terminal, else a line every few seconds), plain (lines) "
        "or off (default: auto)",
        choices=CHOICES,
    )


def run_options(arguments: argparse.Namespace) -> RunOptions:
    """Return what the flags say, and the words: options of the task may come before its name.

    Raises
    ------
    InputError
        A word is neither the name of the task nor an option of it.
    """
    run = from_flags(RunOptions, arguments)
    words = (run.task, *run.settings)
    settings = tuple(word for word in words if is_setting(word))
    names = [word for word in words if not is_setting(word)]
    if len(names) > 1:
        raise InputError(
            f"{names[1]!r} after task {names[0]!r}: expected options of the task, KEY=VALUE (a "
            "value of several words in quotes, a list without spaces)"
        )
    return replace(run, task=names[0] if names else DEFAULT, settings=settings)


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """What a machine that joins can have, and how long it waits."""

    machine: int | None = option(
        None,
        "--machine N",
        "ask to be machine N, for example because its shard is on this computer",
        values.positive,
    )
    encryption: bool = option(
        True, "--no-encryption", "with HOST:PORT, where the run has --no-encryption"
    )
    shards: int | None = option(
        None,
        "--shards-per-machine K",
        "that it can have at most; the run says how many each machine has",
        values.positive,
    )
    memory: int | None = option(
        None, "--memory-per-machine SIZE", "of shards that it can have at most, as 64G", values.size
    )
    retry: float | None = option(
        None,
        "--retry SECONDS",
        "wait so long for a run that is not there yet, or is gone and may be resumed",
        values.seconds,
    )
    threads: int | None = option(
        None, "--threads K", "BLAS threads (default: a core each)", values.positive
    )
