"""Computing with a store: run, and join."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cec_mpi.commands.parser import Processes
from cec_mpi.commands.task import option_of_task, task_text
from cec_mpi.errors import InputError
from cec_mpi.live.ways import LIVE, way_to_show
from cec_mpi.options import values
from cec_mpi.options.option import add_options, from_flags
from cec_mpi.options.session import GROUPS, SessionOptions
from cec_mpi.processes.ending.signals import NotedSignals
from cec_mpi.processes.launch.launchers import detect_launcher
from cec_mpi.processes.together import on_master, run_together
from cec_mpi.run.options import JoinOptions, RunOptions
from cec_mpi.terminal import leave_room


def add_run(commands: Any) -> None:
    """``cec-mpi run``."""
    p = commands.add_parser(
        "run",
        help="compute with a store, under mpirun with N + 1 ranks",
        description="Compute with a store: mpirun -n N+1 cec-mpi run STORE --out DIR ...",
    )
    p.special_help = lambda given: task_text(given["--task"]) if "--task" in given else ""
    p.hint = option_of_task
    p.add_argument("store", metavar="STORE", help="{host} in it is the name of each node")
    for group in (RunOptions, *GROUPS, SessionOptions):
        add_options(p, group)
    p.processes = Processes.RANKS
    p.set_defaults(command=_run)


def add_join(commands: Any) -> None:
    """``cec-mpi join``."""
    p = commands.add_parser(
        "join",
        help="be a machine of a run that was started with --accept",
        description="Be a machine of a run that cec-mpi run --accept FILE has started, until it "
        "ends (exit code 0), this process is told to leave by SIGTERM or SIGUSR1 (6), the run is "
        "gone or this machine cannot compute (3), or its answers were wrong (7). No MPI is needed: "
        "srun -n K or mpiexec -n K start K machines.",
    )
    p.add_argument(
        "file", metavar="FILE", type=values.path, help="that the run has written, with its keys"
    )
    add_options(p, JoinOptions)
    p.processes = Processes.EACH
    p.set_defaults(command=_join)


def _join(arguments: argparse.Namespace) -> int:
    from cec_mpi.session.joining.machine import join

    options = from_flags(JoinOptions, arguments)
    with NotedSignals() as signals:
        join(Path(arguments.file), signals, **asdict(options))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from cec_mpi.run.ranks import read_ahead, run_alone, run_parallel

    run, options = from_flags(RunOptions, arguments), from_flags(SessionOptions, arguments)
    launcher = detect_launcher()
    if run.serial:
        if launcher is not None and launcher.size > 1:
            raise InputError(f"--serial: {launcher.name} started {launcher.size} processes")
        if options.accept is not None:
            raise InputError("--accept with --serial: expected machines that join")
        if options.start_timeout is not None:
            raise InputError("--start-timeout with --serial: expected ranks, which have to start")
    joined = options.accept is not None and (launcher is None or launcher.size == 1)
    if run.serial or joined:
        with NotedSignals(second_ends=True, with_hangup=True) as signals:
            return run_alone(run, options, signals)
    if launcher is None:
        raise InputError(
            "run is started by an MPI launcher: mpirun -n N+1 cec-mpi run ... "
            "(or --serial for all machines in one process, --accept FILE for such that join)"
        )
    with NotedSignals(second_ends=launcher.rank == 0) as signals:
        if launcher.rank == 0:
            read_ahead()

        def together(comm: Any) -> int:
            if on_master(comm, lambda: way_to_show(run.progress) is LIVE) and comm.rank:
                leave_room()
            return run_parallel(comm, run, options, signals)

        return run_together(together, options.start_timeout)
