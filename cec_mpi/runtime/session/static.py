"""Sessions with a fixed set of machines: ranks in lockstep, or objects of this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.errors import InputError
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.ending import (
    abort_on_error,
    mark_shared_error,
    this_process,
)
from cec_mpi.runtime.processes.resources import detect_process, gather_processes
from cec_mpi.runtime.processes.start import (
    ensure_mpi_started,
    finish_start,
    limit_session_start,
    mpi_library,
    start_and_check_ranks,
)
from cec_mpi.runtime.times import RANK_0_HEAD_START

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.runtime.session.session import Session


@contextmanager
def static_session(
    comm: MPI.Intracomm | None, logs: Path | None = None, options: SessionOptions | None = None
) -> Iterator[Session | None]:
    """Collective: yield a session on rank 0, and serve it on all other ranks until it ends.

    If rank 0 raises an exception, all ranks raise it.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The master and one rank per machine; None for all machines in this process.
    logs : Path, optional
        Directory for a log of each machine.
    options : SessionOptions, optional
        Determine how long to wait for ranks.

    Yields
    ------
    Session or None
        None on the machines, after the end of the session.

    Raises
    ------
    InputError
        The processes of `comm` already serve a session, or were not started as one job.
    """
    options = options or SessionOptions()
    if comm is None:
        from cec_mpi.runtime.session.local import LocalHub
        from cec_mpi.runtime.session.session import Session

        if options.inject:
            raise InputError("inject needs machines that are processes: all are in this process")
        hub = LocalHub()
        with ExitStack() as exit_stack:
            exit_stack.callback(hub.stop, None)
            yield Session(hub, [detect_process()], exit_stack)
        return
    ensure_mpi_started(options.start_timeout)
    with (
        _reserve_ranks(comm),
        limit_session_start(comm, options.start_timeout),
        _duplicate(comm) as duplicate,
    ):
        start_and_check_ranks(duplicate)
        yield from _serve_or_yield(duplicate, logs)


def _serve_or_yield(comm: MPI.Intracomm, logs: Path | None) -> Iterator[Session | None]:
    """Yield the session on rank 0, and None on other ranks after they have served."""
    if comm.rank:  # does not import the modules of the master, to start faster
        from cec_mpi.runtime.session.serving import serve
        from cec_mpi.runtime.wire.collective.machine_endpoint import CollectiveMachineEndpoint
    else:
        from cec_mpi.runtime.session.locks import mpi_lock
        from cec_mpi.runtime.session.session import ExecutionMode, Session
        from cec_mpi.runtime.wire.collective.master_endpoint import CollectiveHub

    processes = gather_processes(comm)
    finish_start(comm)
    if comm.rank:
        with abort_on_error(comm, shared_errors=()):
            error = serve(CollectiveMachineEndpoint(comm))
        if error is not None:
            time.sleep(RANK_0_HEAD_START)
            raise mark_shared_error(comm.rank, error)
        yield None
        return
    hub = CollectiveHub(comm)
    try:
        with ExitStack() as exit_stack:
            yield Session(
                hub,
                processes,
                exit_stack,
                library=mpi_library().name,
                logs=logs,
                lock=mpi_lock(),
                mode=ExecutionMode.LOCKSTEP,
            )
    except BaseException as error:
        hub.stop(error)
        mark_shared_error(comm.rank, error)
        raise
    hub.stop(None)


def _have_two_common_ranks(group: MPI.Group, other: MPI.Group) -> bool:
    common = type(group).Intersection(group, other)
    try:
        return bool(common.size > 1)
    finally:
        common.Free()


@contextmanager
def _reserve_ranks(comm: MPI.Intracomm) -> Iterator[None]:
    """Reserve the processes for one operator; raise if another has them, to avoid a deadlock."""
    group = comm.Get_group()
    try:
        if any(_have_two_common_ranks(group, other) for other in this_process.operator_groups):
            raise mark_shared_error(
                comm.rank,
                InputError(
                    "the machines of this communicator serve another operator: close it first, or "
                    "give each operator a communicator with different ranks"
                ),
            )
        this_process.operator_groups.append(group)
        try:
            yield
        finally:
            this_process.operator_groups.remove(group)
    finally:
        group.Free()


@contextmanager
def _duplicate(comm: MPI.Intracomm) -> Iterator[MPI.Intracomm]:
    duplicate = comm.Dup()
    try:
        yield duplicate
    finally:
        if not this_process.is_forked:
            duplicate.Free()
