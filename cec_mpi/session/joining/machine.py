"""A process that comes by itself: joins a run, serves it as a machine, and leaves."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from cec_mpi.errors import InputError, MachineError
from cec_mpi.processes.ending.signals import NotedSignals
from cec_mpi.processes.launch.places import place_here
from cec_mpi.session.serving import serve
from cec_mpi.terminal import say
from cec_mpi.wire.sockets.connection import Connection, GoneMasterError
from cec_mpi.wire.sockets.connection_file import read_connection_file
from cec_mpi.wire.sockets.frames import HELLO
from cec_mpi.wire.sockets.hello import Hello, here
from cec_mpi.wire.sockets.machine_end import SocketMachineEnd, ToldToLeaveError, told_by

_AGAIN_SECONDS = 0.5  # between two attempts
_LOOK_SECONDS = 0.05  # between two looks whether this process is to leave


def join(
    file: Path,
    signals: NotedSignals,
    *,
    shards: int | None = None,
    memory: int | None = None,
    retry: float | None = None,
    threads: int | None = None,
) -> None:
    """Serve the run that has written a connection file, until it ends.

    Parameters
    ----------
    file : Path
    signals : NotedSignals
        Of this process: one that has come has it leave.
    shards : int, optional
        That it can have at most.
    memory : int, optional
        Bytes of shards that it can have at most.
    retry : float, optional
        Seconds that a master is waited for which is not there yet, or no more.
    threads : int, optional
        Of BLAS; by default as many as it has cores.

    Raises
    ------
    InputError
        The file is none, or the run cannot have this machine.
    GoneMasterError
        The master is gone, or is reached nowhere.
    DismissedError
        The master asks this machine no more, since its answers are wrong.
    ToldToLeaveError
        This process was told to leave.
    MachineError
        It cannot open what it is to serve, or could not compute.
    """
    package, threads = here(), threads or place_here().threads
    machine, has_joined = 0, False
    while True:
        connection = _reached(file, signals, retry, tells=not has_joined)
        has_joined = True
        say(f"joined the run of {file} at {connection.place}")
        hello = Hello(package, socket.gethostname(), os.getpid(), machine, shards, memory)
        end = SocketMachineEnd(connection, threads, signals)
        try:
            connection.send(HELLO, hello.packed())
            error = serve(1, end)
        except GoneMasterError as gone:
            error = gone
        finally:
            connection.close()
        machine = end.machine or machine
        if error is None:
            return
        if isinstance(error, ToldToLeaveError):
            raise error
        if end.told:
            raise ToldToLeaveError(end.told)
        if not isinstance(error, GoneMasterError):
            error = GoneMasterError(f"the master has left: {_why(error)}")
        if retry is None:
            raise error
        say(f"{error}; waiting {retry:g} s for it to come back")


def _reached(file: Path, signals: NotedSignals, retry: float | None, tells: bool) -> Connection:
    """A connection, once the master can be reached; tells that it is waited for."""
    due = time.monotonic() + (retry or 0.0)

    def look() -> None:
        if told := told_by(signals):
            raise ToldToLeaveError(told)

    while True:
        was_there = file.exists()
        try:
            return Connection(read_connection_file(file), look)
        except (InputError, GoneMasterError) as error:
            # It may have come, or gone, at this moment.
            waits = isinstance(error, GoneMasterError) or not (was_there and file.exists())
            if retry is None and waits and isinstance(error, InputError):
                raise InputError(f"{error} (--retry SECONDS waits until a run writes it)") from None
            if not waits or time.monotonic() >= due:
                raise error if retry is None or not waits else _too_long(error, retry) from None
            if tells:
                say(f"{error}; waiting {retry:g} s at most")
                tells = False
        again = time.monotonic() + _AGAIN_SECONDS
        while time.monotonic() < again:
            look()
            time.sleep(_LOOK_SECONDS)


def _why(error: BaseException) -> str:
    """What the master has left with; who ends a program does not say so in words."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C"
    if isinstance(error, SystemExit):
        return "its program has ended"
    return str(error) or type(error).__name__


def _too_long(error: MachineError | InputError, retry: float) -> GoneMasterError:
    return GoneMasterError(f"{error}; waited {retry:g} s")
