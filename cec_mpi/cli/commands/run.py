"""Compute with a store: run and join."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from cec_mpi.cli.commands.parser import Parser, Processes
from cec_mpi.cli.commands.task import task_help, task_option_hint
from cec_mpi.cli.run.options import (
    DEFAULT_TASK,
    JoinOptions,
    RunOptions,
    is_task_option,
    parse_run_options,
)
from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import add_options, common_options, from_flags
from cec_mpi.runtime.options.session import GROUPS, SessionOptions
from cec_mpi.runtime.options.shards import CacheOptions
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.processes.launcher import launcher_of_ranks
from cec_mpi.text import plural


def add_run(parser: Parser) -> None:
    """``cec-mpi run``."""
    parser.usage = "%(prog)s STORE [TASK] [KEY=VALUE ...] --out DIR [OPTIONS]"
    parser.description = (
        "Compute with a store, for example: cec-mpi run STORE svd k=5 --out DIR. This starts "
        "machines on this computer, and the run continues if some of them are lost. Under mpirun "
        "-n N+1 rank 0 is the master and every other rank a machine: by default every step needs "
        "all ranks; with --elastic the run continues without lost ranks."
    )
    parser.special_help = _task_help
    parser.hint = task_option_hint
    groups = (RunOptions, SessionOptions, *GROUPS)
    parser.show_common(name for group in groups for name in common_options(group))
    parser.add_argument(
        "store",
        metavar="STORE",
        help="directory made by encode; {host} stands for the name of the node",
    )
    parser.add_argument(
        "task",
        nargs="?",
        metavar="TASK",
        default=DEFAULT_TASK,
        help="svd, ridge, ... (cec-mpi task lists them) or my_module:function (default: matvec)",
    )
    parser.add_argument(
        "task_options",
        nargs="*",
        metavar="KEY=VALUE",
        default=[],
        help="options of the task (cec-mpi task TASK lists them)",
    )
    for group in groups:
        add_options(parser, group)
    parser.processes = Processes.RANKS
    parser.set_defaults(command=_run)


def add_join(parser: Parser) -> None:
    """``cec-mpi join``."""
    parser.description = (
        "Join an elastic run as one or more machines. The process ends when the run "
        "ends (exit code 0), on SIGTERM or SIGUSR1 (6), when the run cannot be "
        "reached or this process cannot compute (3), or when its answers were wrong (7). It "
        "does not use MPI, but srun -n K or mpiexec -n K can start K of them."
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        type=values.path,
        help="connection file of the run (DIR/connection.json, or its --accept FILE); or "
        "HOST:PORT, with the key in the environment variable CEC_MPI_KEY, if the run has --listen",
    )
    add_options(parser, JoinOptions)
    add_options(parser, CacheOptions)
    parser.processes = Processes.INDEPENDENT
    parser.set_defaults(command=_join)


def _task_help(raw_values: Mapping[str, str]) -> str:
    """Return the help of the task, or an empty string if none is named."""
    task = raw_values.get("TASK", "")
    return task_help(task) if task and not is_task_option(task) else ""


def _join(arguments: argparse.Namespace) -> int:
    from cec_mpi.runtime.session.host import join

    join_options = from_flags(JoinOptions, arguments)
    join_options.check_cache()
    join(arguments.file, **asdict(join_options))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from cec_mpi.cli.run.ranks import print_stop_notice, run_elastic, run_in_lockstep
    from cec_mpi.runtime.processes.start import run_on_ranks

    run, options = parse_run_options(arguments), from_flags(SessionOptions, arguments)
    launcher = launcher_of_ranks()
    if run.serial:
        if launcher is not None:
            raise InputError(
                f"--serial runs in one process, but {launcher.name} started "
                f"{plural(launcher.size, 'process')}"
            )
        flags = options.elastic_flags
        flags += ["--start-timeout"] if options.start_timeout is not None else []
        if flags:
            raise InputError(
                f"--serial cannot be combined with {' and '.join(flags)}, because it starts no "
                "processes for machines"
            )
    if run.serial or options.is_elastic or launcher is None:
        perform = partial(run_in_lockstep, None) if run.serial else run_elastic
        with SignalRecorder(
            exit_on_second_sigterm=True, include_hangup=launcher is None
        ) as signals:
            return perform(run, options, signals)
    is_rank_0 = launcher.rank == 0
    # mpirun of Open MPI forwards Ctrl-C as SIGTERM, and then discards the output of ranks.
    on_first_signal = (
        partial(print_stop_notice, run)
        if is_rank_0 and launcher.implementation == "Open MPI"
        else None
    )
    with SignalRecorder(
        exit_on_second_sigterm=is_rank_0, on_first_signal=on_first_signal
    ) as signals:
        return run_on_ranks(
            lambda comm: run_in_lockstep(comm, run, options, signals), options.start_timeout
        )
