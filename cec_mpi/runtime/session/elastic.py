"""The master of an elastic run: machines over sockets, started by a launcher, here or elsewhere."""

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
    continuity,
    detect_continuity,
    job_id,
    launcher_of_ranks,
)
from cec_mpi.runtime.processes.places import Place, detect_place
from cec_mpi.runtime.processes.start import start_limit_seconds
from cec_mpi.runtime.session.machine import (
    Source,
    end_note,
    serve_as_rank,
    source_of,
)
from cec_mpi.runtime.session.session import ExecutionMode, Session
from cec_mpi.runtime.session.turns import FairLock
from cec_mpi.runtime.times import MACHINE_EXIT_SECONDS, RANK_EXIT_SECONDS
from cec_mpi.runtime.wire.sockets.connection_file import (
    KEY_VARIABLE,
    ConnectionFile,
    check_connection_path,
    parse_listen,
    read_connection_file,
)
from cec_mpi.runtime.wire.sockets.hub import SocketHub
from cec_mpi.runtime.wire.sockets.interfaces import listen_addresses
from cec_mpi.runtime.wire.sockets.listener import Listener
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection, MasterLostError
from cec_mpi.store.files.durable import locked
from cec_mpi.text.terminal import warn


def serve_launched(options: SessionOptions, file: Path) -> int:
    """Serve as a machine on a rank from 1 on; returns the exit code.

    Parameters
    ----------
    options : SessionOptions
    file : Path
        See `elastic`.
    """
    exit_with_launcher()
    this_process.is_elastic = True
    launcher = launcher_of_ranks()
    assert launcher is not None
    source: Source = file
    if options.listen is not None and os.environ.get(KEY_VARIABLE):  # or rank 0 says so
        source = source_of(options.listen, options.encryption)
    seconds = start_limit_seconds(options.start_timeout, launcher.size)
    return serve_as_rank(source, file, launcher.rank, job_id(), seconds)


@contextmanager
def elastic(
    options: SessionOptions,
    file: Path,
    logs: Path | None = None,
    check_cancelled: Callable[[], None] = lambda: None,
    engine: Callable[[ConnectionFile], AbstractContextManager[Any]] | None = None,
) -> Iterator[Session]:
    """Listen for machines, start those of this computer, and be their master until the end.

    Parameters
    ----------
    options : SessionOptions
    file : Path
        The connection file. With `listen` it is not written, but notes for late ranks are created
        in its directory.
    logs : Path, optional
        Directory for a log of each machine.
    check_cancelled : callable
        Called while the run waits for processes that were started; an exception ends the run.
    engine : callable, optional
        Returns a context in which machines elsewhere are started.

    Raises
    ------
    InputError
        Rank 0 cannot listen, or cannot write the file.
    """
    options.check_listening()
    exit_with_launcher()
    this_process.is_elastic = True
    launcher, turns = launcher_of_ranks(), FairLock()
    ranks = 0 if launcher is None else launcher.size - 1
    seconds = start_limit_seconds(options.start_timeout, 1 + ranks + (options.local or 0))
    hub: SocketHub | None = None
    error: BaseException | None = None

    def gather(min_machines: int) -> list[Place]:
        assert hub is not None

        def expected() -> int:
            return ranks + sum(process.poll() is None for process in local)

        places = hub.gather(expected, min_machines, seconds, check_cancelled)
        if len(places) == 1 and not (expected() or hub.waits):
            raise MachineError("all machines of this run have ended before its first step")
        return places

    with ExitStack() as last:
        try:
            hub = _open_hub(options, file)
            found = None if launcher is None else detect_continuity()
            if found is not None and not found.continues:
                warn(found)
            local = last.enter_context(_local_machines(options, file, seconds, 1 + ranks))
            if engine is not None:
                last.enter_context(engine(hub.connection))
            with ExitStack() as kept:
                given = [detect_place()], "", kept, logs, turns, ExecutionMode.ELASTIC, gather
                yield Session(hub, *given)
        except BaseException as caught:
            error = caught
            raise
        finally:
            if not turns.is_forked:  # a process that was forked from this one ends nothing
                if hub is None:
                    with notify_late_ranks(file, error):
                        pass
                else:
                    wait = RANK_EXIT_SECONDS if ranks else MACHINE_EXIT_SECONDS
                    closing = partial(notify_late_ranks, file, error, hub.joined_ranks)
                    hub.stop(error, wait, closing)
                    stuck = {rank for rank in hub.stuck_ranks if rank <= ranks}
                    if stuck - kill_ranks(stuck):  # on other hosts, where only the launcher can
                        abort_job_at_exit()


@contextmanager
def notify_late_ranks(
    file: Path, error: BaseException | None, came: Collection[int] = ()
) -> Iterator[None]:
    """Notify ranks that have not joined that the run has ended.

    They leave with exit code 0. Those of this computer that do not, because they are stopped for
    example, are ended after the ``with``: a launcher that lets the others continue would wait for
    them.
    """
    launcher = launcher_of_ranks()
    late = set() if launcher is None else set(range(1, launcher.size)).difference(came)
    if not late:
        yield
        return
    with end_note(file, job_id()):
        yield
    if error is None or continuity(launcher).continues:  # else this one's exit code ends all
        kill_ranks(late)


def _open_hub(options: SessionOptions, file: Path) -> SocketHub:
    """Listen, and write the connection file; if several runs do this at once, one succeeds."""
    if options.listen is not None:
        return _make_hub(options, file)
    check_connection_path(file)
    try:
        with locked(file.parent, name=f".{file.name}.lock"):
            _refuse_if_used(file)
            return _make_hub(options, file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from None


def _make_hub(options: SessionOptions, file: Path) -> SocketHub:
    secret = ""
    at: tuple[str, ...]
    ports: tuple[int, int] | None
    if options.listen is not None:
        host, port = parse_listen(options.listen)
        at, ports = (host,), (port, port)
        secret = os.environ.get(KEY_VARIABLE, "")
        if not secret:
            raise InputError(f"listen: expected a key in the environment variable {KEY_VARIABLE}")
    else:
        at, ports = listen_addresses(options.interface), options.ports
    listener = Listener(at, ports, encrypted=options.encryption, secret=secret)
    try:
        hub = SocketHub(
            listener,
            file if options.listen is None else None,
            job=job_id(),
            waits=options.wait or options.accept is not None or options.only_accepts,
            spare=int(options.check),
            single_option="--check"
            if options.check
            else "--stragglers"
            if options.stragglers
            else "",
        )
        hub.listen(prints=options.accept is not None or options.listen is not None)
    except BaseException:
        listener.close()
        raise
    return hub


def _refuse_if_used(file: Path) -> None:
    """Raise if a run listens that has written this connection file."""
    if not file.exists():
        return
    found = read_connection_file(file)
    try:
        Connection(found).close()
    except MasterLostError:
        return
    raise InputError(f"{file}: another run listens there; each run needs a file of its own")


@contextmanager
def _local_machines(
    options: SessionOptions, file: Path, seconds: float, first: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start machines as processes of this computer, which end with this one.

    Their ranks count from `first`, behind those of the launcher.
    """
    started = []
    job, encryption = job_id(), str(int(options.encryption))
    source = str(file) if options.listen is None else options.listen
    try:
        for rank in range(first, first + (options.local or 0)):
            words = [source, str(file), str(rank), job, str(seconds), encryption]
            started.append(
                start_child("cec_mpi.runtime.session.machine", words, stdin=subprocess.DEVNULL)
            )
        yield started
    finally:
        due = time.monotonic() + MACHINE_EXIT_SECONDS
        for process in started:
            try:
                process.wait(max(0.0, due - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
