"""Start a run on its processes: rank 0 calls the task, and the machines serve it.

Only rank 0 imports SciPy and the tasks, which takes longer than everything else before the first
step. It does so after MPI_Init, because the other ranks busy-wait for rank 0 in MPI_Init.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.cli.run.options import RunOptions
from cec_mpi.runtime.options.elastic import CONNECTION_FILE
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.processes.launcher import launcher_of_ranks
from cec_mpi.runtime.session.static import static_session
from cec_mpi.text.terminal import print_to_tty

if TYPE_CHECKING:
    from mpi4py import MPI


def print_stop_notice(run: RunOptions, received_signal: signal.Signals) -> None:
    """Print to the terminal how to continue a lockstep run that mpirun is ending."""
    from cec_mpi.runtime.records.directory import has_checkpoint

    if received_signal is not signal.SIGTERM:
        return
    status = "writes a checkpoint if its step ends in time"  # mpirun does not wait for it
    if has_checkpoint(Path(run.out)):
        status = f"has a checkpoint in {run.out}"
    print_to_tty(
        f"cec-mpi: mpirun is ending the run, which {status}: to continue, run the same command "
        f"with {run.resume_flag} (to survive the loss of a process, use mpirun --with-ft ulfm and "
        "--elastic)"
    )


def run_in_lockstep(
    comm: MPI.Intracomm | None, run: RunOptions, options: SessionOptions, signals: SignalRecorder
) -> int:
    """Run a task on MPI ranks (collective), or in this process if `comm` is None.

    A signal to rank 0 ends the run. The machines serve until the master closes the session.
    """
    out, context = Path(run.out), ExitStack()
    if comm is None or comm.rank == 0:  # other ranks need no directory of results
        from cec_mpi.runtime.records.directory import remove_if_rejected

        context.enter_context(remove_if_rejected(out))
    with context, static_session(comm, out / "logs", options) as session:
        if session is not None:
            from cec_mpi.cli.run.task_run import TaskRun

            with TaskRun(run, options, signals) as task:
                task.run(session)
    return 0


def run_elastic(run: RunOptions, options: SessionOptions, signals: SignalRecorder) -> int:
    """Run a task with machines that connect by sockets, or serve as such a machine."""
    from cec_mpi.runtime.session.elastic import (
        elastic_session,
        notify_late_ranks,
        serve_launched_rank,
    )

    connection_file = Path(options.accept or Path(run.out) / CONNECTION_FILE).absolute()
    launcher = launcher_of_ranks()
    if launcher is not None and launcher.rank:
        return serve_launched_rank(options, connection_file)
    from cec_mpi.cli.run.task_run import TaskRun
    from cec_mpi.runtime.records.directory import remove_if_rejected

    options = replace(options, elastic=True)
    with remove_if_rejected(Path(run.out)):
        try:
            task = TaskRun(run, options, signals)
        except BaseException as error:
            with notify_late_ranks(connection_file, error):
                pass
            raise
        if launcher is None and options.local is None and not (options.accept or options.listen):
            options = task.options = replace(task.options, local=task.default_machines())
        logs = Path(run.out) / "logs"
        with task, elastic_session(options, connection_file, task.check_limits, logs) as session:
            task.run(session)
    return 0
