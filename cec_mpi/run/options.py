"""Options of ``cec-mpi run`` that are not those of its session, and of ``cec-mpi join``."""

from __future__ import annotations

from dataclasses import dataclass

from cec_mpi.live.shown import AUTO, CHOICES
from cec_mpi.options import values
from cec_mpi.options.option import option


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is to be done with a store, and where its results go."""

    store: str
    out: str = option("", "--out DIR", "for the results", values.path, required=True)
    task: str = option(
        "matvec",
        "--task",
        "matvec, power, pagerank, svd, pca, lstsq, ridge, logistic, cg, or "
        "my_module:function; with --help: what that task takes and returns",
    )
    settings: tuple[str, ...] = option(
        (), "--set KEY=VALUE", "an option of the task: cec-mpi task NAME lists them"
    )
    vectors: str | None = option(None, "--vectors W.npy", "for matvec: (T, r), one step a row")
    steps: int | None = option(
        None,
        "--steps T",
        "for matvec: only the first T vectors; for other tasks as --iterations",
        values.positive,
    )
    iterations: int | None = option(
        None, "--iterations T", "for other tasks: the most, as --set iterations=T", values.positive
    )
    serial: bool = option(False, "--serial", "all machines in one process, no MPI")
    shows_map: bool = option(
        False, "--map", "print which machine runs where and reads its shard from where, then go on"
    )
    overwrite: bool = option(False, "--overwrite", "replace the results in DIR", alone=True)
    resume: bool = option(
        False,
        "--resume",
        "continue from the checkpoint in DIR; without one, start from the beginning and say so",
        alone=True,
    )
    every: values.Interval | None = option(
        None,
        "--checkpoint-every T",
        "write a checkpoint every T steps, as 50, or every so often, as 60s or 5m (default: 60s in "
        "an elastic run or with a time limit; else only when the run ends early)",
        values.interval,
    )
    time_limit: float | None = option(
        None,
        "--time-limit SECONDS",
        "then write a checkpoint and leave with exit code 6",
        values.seconds,
    )
    progress: str = option(
        AUTO,
        "--progress HOW",
        "auto (on a terminal as it changes, elsewhere a line now and then), plain (lines) or off",
        choices=CHOICES,
    )


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
