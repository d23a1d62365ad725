"""The session of an elastic run, whose machines connect over sockets."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError, MachineError
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.children import start_child
from cec_mpi.runtime.processes.ending import (
    abort_job_at_exit,
    exit_with_launcher,
    kill_ranks,
    this_process,
)
from cec_mpi.runtime.processes.launcher import (
    detect_loss_policy,
    job_id,
    launcher_of_ranks,
    loss_policy,
)
from cec_mpi.runtime.processes.resources import ProcessInfo, detect_process
from cec_mpi.runtime.processes.start import start_limit_seconds
from cec_mpi.runtime.session.host import (
    Source,
    end_note,
    parse_source,
    serve_as_rank,
)
from cec_mpi.runtime.session.locks import FairLock
from cec_mpi.runtime.session.session import ExecutionMode, Session
from cec_mpi.runtime.times import MACHINE_EXIT_SECONDS, RANK_EXIT_SECONDS
from cec_mpi.runtime.wire.sockets.connection_file import (
    KEY_VARIABLE,
    ConnectionFile,
    check_connection_path,
    parse_address,
    read_connection_file,
)
from cec_mpi.runtime.wire.sockets.hub import SocketHub
from cec_mpi.runtime.wire.sockets.interfaces import listen_addresses
from cec_mpi.runtime.wire.sockets.listener import Listener
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection, MasterLostError
from cec_mpi.store.files.durable import locked
from cec_mpi.text.terminal import warn


def serve_launched_rank(options: SessionOptions, file: Path) -> int:
    """Serve an elastic run on a rank other than 0, and return the exit code.

    Parameters
    ----------
    options : SessionOptions
    file : Path
        See `elastic_session`.
    """
    exit_with_launcher()
    this_process.is_elastic = True
    launcher = launcher_of_ranks()
    assert launcher is not None
    source: Source = file
    if options.listen is not None and os.environ.get(KEY_VARIABLE):  # else rank 0 raises
        source = parse_source(options.listen, options.encryption)
    start_seconds = start_limit_seconds(options.start_timeout, launcher.size)
    return serve_as_rank(source, file, launcher.rank, job_id(), start_seconds)


@contextmanager
def elastic_session(
    options: SessionOptions,
    file: Path,
    check_cancelled: Callable[[], None],
    logs: Path | None = None,
    engine: Callable[[ConnectionFile], AbstractContextManager[Any]] | None = None,
) -> Iterator[Session]:
    """Listen for machines, start those on this computer, and yield their session.

    Parameters
    ----------
    options : SessionOptions
    file : Path
        The connection file. With `listen` it is not written, but its directory is used for end
        notes (see `end_note`).
    check_cancelled : callable
        Called while the run waits for started processes; an exception ends the run.
    logs : Path, optional
        Directory for a log of each machine.
    engine : callable, optional
        Returns a context that starts machines through Dask or Ray.

    Raises
    ------
    InputError
        Rank 0 cannot listen, or cannot write the file.
    """
    options.check_listening()
    exit_with_launcher()
    this_process.is_elastic = True
    launcher, lock = launcher_of_ranks(), FairLock()
    ranks = 0 if launcher is None else launcher.size - 1
    start_seconds = start_limit_seconds(options.start_timeout, 1 + ranks + (options.local or 0))
    hub: SocketHub | None = None
    error: BaseException | None = None

    def await_processes(min_machines: int) -> list[ProcessInfo]:
        assert hub is not None

        def count_running() -> int:
            return ranks + sum(process.poll() is None for process in local_machines)

        processes = hub.await_processes(count_running, min_machines, start_seconds, check_cancelled)
        if len(processes) == 1 and not (count_running() or hub.waits_for_joins):
            raise MachineError("all machines of this run have ended before its first step")
        return processes

    with ExitStack() as machine_stack:
        try:
            hub = _open_hub(options, file)
            launcher_policy = None if launcher is None else detect_loss_policy()
            if launcher_policy is not None and not launcher_policy.others_continue:
                warn(launcher_policy)
            local_machines = machine_stack.enter_context(
                _start_local_machines(options, file, start_seconds, 1 + ranks)
            )
            if engine is not None:
                machine_stack.enter_context(engine(hub.connection_file))
            with ExitStack() as exit_stack:
                yield Session(
                    hub,
                    [detect_process()],
                    exit_stack,
                    logs=logs,
                    lock=lock,
                    mode=ExecutionMode.ELASTIC,
                    await_processes=await_processes,
                )
        except BaseException as caught:
            error = caught
            raise
        finally:
            if not lock.is_forked:  # a forked process must not end the run
                if hub is None:
                    with notify_late_ranks(file, error):
                        pass
                else:
                    exit_seconds = RANK_EXIT_SECONDS if ranks else MACHINE_EXIT_SECONDS
                    notify_late = partial(notify_late_ranks, file, error, hub.joined_ranks)
                    hub.stop(error, exit_seconds, notify_late)
                    stuck = {rank for rank in hub.stuck_ranks if rank <= ranks}
                    if stuck - kill_ranks(stuck):  # only the launcher can kill those on other hosts
                        abort_job_at_exit()


@contextmanager
def notify_late_ranks(
    file: Path, error: BaseException | None, joined: Collection[int] = ()
) -> Iterator[None]:
    """Notify ranks that have not joined that the run has ended.

    They leave with exit code 0. At the end of the ``with``, those that remain on this computer, for
    example because they are suspended, are killed: the launcher may wait for them. If the launcher
    ends all ranks anyway, none is killed.
    """
    launcher = launcher_of_ranks()
    late = set() if launcher is None else set(range(1, launcher.size)).difference(joined)
    if not late:
        yield
        return
    with end_note(file, job_id()):
        yield
    if error is None or loss_policy(launcher).others_continue:  # else the launcher ends all ranks
        kill_ranks(late)


def _open_hub(options: SessionOptions, file: Path) -> SocketHub:
    """Listen, and write the connection file, unless `listen` is set; a lock excludes other runs."""
    if options.listen is not None:
        return _make_hub(options, file)
    check_connection_path(file)
    try:
        with locked(file.parent, name=f".{file.name}.lock"):
            _check_unused(file)
            return _make_hub(options, file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from None


def _make_hub(options: SessionOptions, file: Path) -> SocketHub:
    secret = ""
    addresses: tuple[str, ...]
    ports: tuple[int, int] | None
    if options.listen is not None:
        host, port = parse_address(options.listen)
        addresses, ports = (host,), (port, port)
        secret = os.environ.get(KEY_VARIABLE, "")
        if not secret:
            raise InputError(f"listen: expected a key in the environment variable {KEY_VARIABLE}")
    else:
        addresses, ports = listen_addresses(options.interface), options.ports
    listener = Listener(addresses, ports, encrypted=options.encryption, secret=secret)
    try:
        hub = SocketHub(
            listener,
            file if options.listen is None else None,
            job_id=job_id(),
            waits_for_joins=options.wait
            or options.accept is not None
            or options.starts_no_machines,
            redundancy=int(options.check),
            single_machine_option="--check"
            if options.check
            else "--stragglers"
            if options.stragglers
            else "",
        )
        hub.listen(show_command=options.accept is not None or options.listen is not None)
    except BaseException:
        listener.close()
        raise
    return hub


def _check_unused(file: Path) -> None:
    """Raise if the run that has written this connection file still listens."""
    if not file.exists():
        return
    connection_file = read_connection_file(file)
    try:
        Connection(connection_file).close()
    except MasterLostError:
        return
    raise InputError(f"{file}: another run listens there; each run needs a file of its own")


@contextmanager
def _start_local_machines(
    options: SessionOptions, file: Path, start_seconds: float, first_rank: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start machines as child processes; their ranks count from `first_rank`."""
    children = []
    job, encryption = job_id(), str(int(options.encryption))
    source = str(file) if options.listen is None else options.listen
    try:
        for rank in range(first_rank, first_rank + (options.local or 0)):
            arguments = [source, str(file), str(rank), job, str(start_seconds), encryption]
            children.append(
                start_child("cec_mpi.runtime.session.host", arguments, stdin=subprocess.DEVNULL)
            )
        yield children
    finally:
        due = time.monotonic() + MACHINE_EXIT_SECONDS
        for process in children:
            try:
                process.wait(max(0.0, due - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
