"""Who takes part in a run: rank 0, which does the task, and the machines, which serve it.

What only rank 0 needs is read by rank 0 alone, SciPy and the tasks above all: reading it takes
longer than all else that a machine does before its first step.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.options.session import SessionOptions
from cec_mpi.processes.ending.leaving import leave_without_mpi
from cec_mpi.processes.ending.signals import NotedSignals
from cec_mpi.processes.launch.library import survives_losses
from cec_mpi.run.options import RunOptions
from cec_mpi.session.gathering import gathered

if TYPE_CHECKING:
    from mpi4py import MPI


def read_ahead() -> None:
    """Read what rank 0 will need, before MPI has all ranks wait for each other."""
    import cec_mpi.run.task_run  # noqa: F401


def run_parallel(
    comm: MPI.Intracomm, run: RunOptions, options: SessionOptions, signals: NotedSignals
) -> int:
    """Collective: ``cec-mpi run`` on the master and its machines.

    Signals end a run where they come to rank 0; machines serve until the master leaves.
    """
    try:
        with gathered(comm, Path(run.out) / "logs", options) as session:
            if session is not None:
                from cec_mpi.run.task_run import TaskRun

                places = session.started(options.spares)
                TaskRun(run, options, signals, places).run(session)
    finally:
        if options.goes_on and survives_losses():
            leave_without_mpi()  # a machine may be lost at any moment up to the end
    return 0


def run_alone(run: RunOptions, options: SessionOptions, signals: NotedSignals) -> int:
    """``cec-mpi run --serial``, all machines in this process, or ``--accept``, such that join."""
    from cec_mpi.run.task_run import TaskRun

    logs = None if run.serial else Path(run.out) / "logs"
    with gathered(None, logs, options) as session:
        assert session is not None
        TaskRun(run, options, signals, None).run(session)
    return 0
