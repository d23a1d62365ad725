"""Who takes part in a run: rank 0, which does the task, and the machines, which serve it.

What only rank 0 needs is read by rank 0 alone, SciPy and the tasks above all: reading it takes
longer than all else that a machine does before its first step.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.options.elastic import CONNECTION
from cec_mpi.options.session import SessionOptions
from cec_mpi.processes.ending import NotedSignals
from cec_mpi.run.options import RunOptions
from cec_mpi.session.gathering import gathered
from cec_mpi.terminal import tell_terminal

if TYPE_CHECKING:
    from mpi4py import MPI


def read_ahead() -> None:
    """Read what rank 0 will need, before MPI has all ranks wait for each other."""
    import cec_mpi.run.task_run  # noqa: F401


def tell_ending(out: str, received: signal.Signals) -> None:
    """Tell the terminal what a lockstep run that mpirun is ending leaves, and what continues it."""
    from cec_mpi.records.directory import has_checkpoint

    if received is not signal.SIGTERM:
        return
    left = "writes a checkpoint if its step ends in time"  # which mpirun does not wait for
    if has_checkpoint(Path(out)):
        left = f"has a checkpoint in {out}"
    tell_terminal(
        f"cec-mpi: mpirun ends the run, which {left}: the same command with --resume continues "
        "(if a process was lost: mpirun --with-ft ulfm with --elastic continues without it)"
    )


def run_in_lockstep(
    comm: MPI.Intracomm, run: RunOptions, options: SessionOptions, signals: NotedSignals
) -> int:
    """Collective: ``cec-mpi run`` on the master and its machines, which are ranks of MPI.

    Signals end a run where they come to rank 0; machines serve until the master leaves.
    """
    with gathered(comm, Path(run.out) / "logs", options) as session:
        if session is not None:
            from cec_mpi.run.task_run import TaskRun

            TaskRun(run, options, signals, session.started).run(session)
    return 0


def run_alone(run: RunOptions, options: SessionOptions, signals: NotedSignals) -> int:
    """``cec-mpi run --serial``: all machines in this process."""
    from cec_mpi.run.task_run import TaskRun

    with gathered(None, None, options) as session:
        assert session is not None
        TaskRun(run, options, signals).run(session)
    return 0


def run_elastic(run: RunOptions, options: SessionOptions, signals: NotedSignals) -> int:
    """``cec-mpi run`` whose machines come over sockets; this process may be one of them."""
    from cec_mpi.session.elastic import elastic, launched, serve_launched, telling_late_ranks

    file = Path(options.accept or Path(run.out) / CONNECTION).absolute()
    launcher = launched()
    if launcher is not None and launcher.rank:
        return serve_launched(options, file)
    from cec_mpi.run.task_run import TaskRun

    options = replace(options, elastic=True)
    try:
        task = TaskRun(run, options, signals)
    except BaseException as error:
        with telling_late_ranks(file, error):
            pass
        raise
    if launcher is None and options.local is None and not (options.accept or options.listen):
        options = task.options = replace(task.options, local=task.machines_here())
    with elastic(options, file, Path(run.out) / "logs", task.gate) as session:
        task.run(session)
    return 0
