"""A host of an elastic run: it connects to the master, and serves the run until its end.

``cec-mpi join`` starts a host on any computer (`join`). A launcher, or the run itself, starts hosts
as ranks 1, 2, ... (`serve_as_rank`). These exit with 0 unless they have lost the master, because
launchers and batch systems interpret another exit code as a failure of the run.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.processes.ending import SignalRecorder, kill_ranks, print_error, this_process
from cec_mpi.runtime.processes.notices import check_notice_service, watch_notices
from cec_mpi.runtime.processes.packing import pack
from cec_mpi.runtime.processes.resources import detect_process
from cec_mpi.runtime.records.events import MAX_MACHINES
from cec_mpi.runtime.session.serving import serve
from cec_mpi.runtime.times import (
    DISCONNECT_POLL_SECONDS,
    END_NOTE_SECONDS,
    MACHINE_EXIT_SECONDS,
    MASTER_STOPPED_SECONDS,
    MAX_RECONNECT_SECONDS,
    POLL_SECONDS,
    PRINT_SECONDS,
    RECONNECT_INTERVAL,
)
from cec_mpi.runtime.wire.sockets.backoff import Backoff
from cec_mpi.runtime.wire.sockets.connection_file import (
    KEY_VARIABLE,
    ConnectionFile,
    connection_from_secret,
    parse_address,
    read_connection_file,
    remove_stale_files,
)
from cec_mpi.runtime.wire.sockets.machine_endpoint import (
    Connection,
    MasterLostError,
    ShutdownRequested,
    SocketMachineEndpoint,
    describe_shutdown,
)
from cec_mpi.runtime.wire.sockets.messages import HELLO, Hello, package_fingerprint
from cec_mpi.store.files.replacing import create_or_replace
from cec_mpi.store.limits import DEFAULT_MEMORY_FRACTION, free_memory
from cec_mpi.store.shard import CPU
from cec_mpi.text import format_bytes, shorten
from cec_mpi.text.terminal import print_note, remove_error_filters

Source = Path | ConnectionFile

_PRINTING_RANKS = 2  # ranks that print why they have lost the master; one may have died


def parse_source(text: str, encryption: bool = True) -> Source:
    """Return the path of a connection file, or the connection for ``HOST:PORT``.

    ``HOST:PORT`` needs the key of the run in the environment variable CEC_MPI_KEY.

    Raises
    ------
    InputError
        The text is ``HOST:PORT``, and the host or the key is missing, or the key is too short.
    """
    if Path(text).exists():
        return Path(text)
    try:
        host, port = parse_address(text)
    except InputError:
        return Path(text)
    secret = os.environ.get(KEY_VARIABLE, "")
    if not secret:
        raise InputError(
            f"{text} needs the key of the run in the environment variable {KEY_VARIABLE}, which is "
            "not set"
        )
    return connection_from_secret(host, port, secret, encryption)


def check_join_values(
    *,
    machines: int = 1,
    memory: float = DEFAULT_MEMORY_FRACTION,
    machine: int | None = None,
    retry: float | None = None,
    threads: int | None = None,
    notice: str = "none",
    device: str = CPU,
    **_: Any,
) -> None:
    """Check the keywords of `join` that do not depend on the computer of the host.

    Raises
    ------
    InputError
        A value is out of range, or is not the name of a device or service.
    """
    from cec_mpi.store.devices import check_device

    for name, value in (("machines", machines), ("machine", 1 if machine is None else machine)):
        if not (isinstance(value, Integral) and 1 <= value <= MAX_MACHINES):
            raise InputError(
                f"{name} {shorten(value)}: expected a whole number from 1 to {MAX_MACHINES}"
            )
    if not (isinstance(memory, Real) and 0 < memory < math.inf):
        raise InputError(
            f"memory {shorten(memory)}: expected a number of bytes, or a fraction up to 1"
        )
    if retry is not None and not (isinstance(retry, Real) and retry >= 0):
        raise InputError(f"retry {shorten(retry)}: expected a number of seconds")
    if threads is not None and not (isinstance(threads, Integral) and threads >= 1):
        raise InputError(f"threads {shorten(threads)}: expected a whole number of at least 1")
    check_notice_service(notice)
    check_device(device)


def join(
    source: str | os.PathLike[str] | ConnectionFile,
    *,
    machines: int = 1,
    memory: float = DEFAULT_MEMORY_FRACTION,
    machine: int | None = None,
    retry: float | None = None,
    threads: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_limit: int | None = None,
    encryption: bool = True,
    notice: str = "none",
    device: str = CPU,
) -> None:
    """Host machines of an elastic run until it ends, as ``cec-mpi join`` does.

    This process has one connection to the master, receives each vector once, and computes the rows
    of its machines one after the other with all of its cores. It sums their terms of ``X.H @ v``.
    Each of its K machines has 1/K of its speed. If the process dies, all K machines are lost. In
    the main thread, SIGTERM and SIGUSR1 make it leave.

    Parameters
    ----------
    source : str or path
        The connection file of the run, or ``HOST:PORT`` with the key of the run in the environment
        variable CEC_MPI_KEY.
    machines : int, default 1
        Number of machines that this process hosts, K; fewer if fewer are missing. With `adopt` the
        run may give it more. With `check` or `stragglers` the run accepts 1 only.
    memory : float, default 0.9
        Upper bound on the total size of its shards in bytes. A value up to 1 is a fraction of the
        memory that is free now (of the device, if one is used).
    machine : int, optional
        Preferred number of its first machine.
    retry : float, optional
        Seconds to wait for a run that has not started, or has ended and may be resumed.
    threads : int, optional
        Number of BLAS threads. By default an equal share of the cores of the computer.
    cache : str or path, optional
        Directory for copies of its shards.
    cache_limit : int, optional
        Size limit of these copies in bytes. By default there is no limit, even if the run has one.
    encryption : bool, default True
        False with ``HOST:PORT`` if the run is not encrypted.
    notice : {"none", "auto", "aws", "gcp", "azure"}, default "none"
        Metadata service that is polled for a notice of preemption of this instance, after which
        this process leaves as with SIGTERM. With "auto" it is the first service that answers within
        ten seconds.
    device : str, default "cpu"
        Device that holds and multiplies its shards, such as "cuda" or "auto", see `open_operator`.

    Raises
    ------
    InputError
        The connection file does not exist, an option is out of range, the device is absent, memory
        does not suffice for one shard, or the run refuses this process.
    MachineError
        The master cannot be reached, or this process cannot open its shard or compute.
    DismissedError
        The master has excluded this process because its answers were wrong.
    StoppedError
        This process has received a signal or a notice of preemption.

    Examples
    --------
    ::

        cec_mpi.join("run.json", machines=2, memory=64e9)
    """
    check_join_values(
        machines=machines,
        memory=memory,
        machine=machine,
        retry=retry,
        threads=threads,
        notice=notice,
        device=device,
    )
    host_options: dict[str, Any] = {"device": (device,)}
    if cache:
        host_options |= {"cache": str(Path(cache).absolute()), "cache_limit": cache_limit}
    if not isinstance(source, ConnectionFile):  # `cec_mpi.engines` passes one
        source = parse_source(os.fspath(source), encryption)
    free, device_names = _detect_memory(device)
    hello = replace(
        _make_hello(memory if memory > 1 else memory * free),
        device=device_names,
        slots=machines,
        machines=() if machine is None else (machine,),
        has_memory_option=memory != DEFAULT_MEMORY_FRACTION,
    )

    def leave(reason: str) -> None:
        signals.notice = reason

    with SignalRecorder() as signals, watch_notices(notice, leave):
        finder = _MasterFinder(source, signals, retry)
        connection = finder.connect()
        while True:
            print_note(f"joined the run of {_format_source(source)} at {connection.address}")
            endpoint = SocketMachineEndpoint(
                connection,
                threads,
                signals,
                host_options=host_options,
                memory=hello.memory if hello.has_memory_option or hello.device else None,
            )
            error = finder.serve(connection, hello, endpoint)
            hello = replace(hello, machines=endpoint.machines or hello.machines)
            if error is None:
                return
            if retry is None or isinstance(error, ShutdownRequested):
                connection = finder.reconnect(error)
                continue
            error = _loss_of_master(error)
            print_note(f"{error}; waiting {retry:g} s for it to come back")
            finder.announces_wait = False
            connection = finder.connect()


def serve_as_rank(
    source: Source,
    file: Path,
    rank: int,
    job: str,
    start_seconds: float,
    *,
    report_loss: bool = True,
    parent: int | None = None,
) -> int:
    """Serve the run that this process was started for, and return its exit code.

    Parameters
    ----------
    source : Path or ConnectionFile
        See `parse_source`.
    file : Path
        The connection file; end notes are in its directory (see `end_note`).
    rank : int
        Rank of this process; rank n prefers the n-th machine that takes part.
    job : str
        Identifier of the launch (see `job_id`); connection files of other launches are ignored.
    start_seconds : float
        Time limit for the master to begin to listen.
    report_loss : bool
        Whether the first ranks print that they have lost the master.
    parent : int, optional
        Process ID of the parent, if the parent may have ended before this call.
    """
    launch = _Launch(file, job, os.getppid() if parent is None else parent)
    with SignalRecorder(ignore_interrupts=True) as signals:  # the master handles them
        hello = replace(_make_hello(DEFAULT_MEMORY_FRACTION * free_memory()), initial_rank=rank)
        finder = _MasterFinder(source, signals, start_seconds, launch)
        has_ended = False
        try:
            connection = finder.connect()
            while True:
                endpoint = SocketMachineEndpoint(connection, None, signals, verbose=False)
                error = finder.serve(connection, hello, endpoint)
                if not isinstance(error, MasterLostError):
                    this_process.finished_connection_files.append(finder.connection_file)
                    has_ended = not isinstance(error, ShutdownRequested)
                    return 0
                hello = replace(hello, machines=endpoint.machines or hello.machines)
                connection = finder.reconnect(error)
        except _RunFinished:
            return 0
        except MasterLostError as lost:
            if rank > _PRINTING_RANKS:  # the launcher may end all ranks when the first one exits
                time.sleep(PRINT_SECONDS)
            elif report_loss:
                print_error(lost)
            if isinstance(source, Path) and finder.connection_file is None:
                kill_ranks([0])  # rank 0 may be stopped, and the launcher would wait for it
            return lost.exit_code
        except CecError:  # the master has already printed the reason
            return 0
        finally:
            if has_ended or finder.is_orphan:
                finder.await_cleanup()


def _detect_memory(device: str) -> tuple[int, str]:
    """Return the free bytes of a device or of the main memory, and the names of the devices.

    Print the devices.

    Raises
    ------
    InputError
        The device is absent.
    """
    if device == CPU:
        return free_memory(), ""
    from cec_mpi.store.devices import find_devices

    devices = find_devices(device)
    if not devices:
        print_note(f"device {device}: no GPU was found, so this process computes on the CPU")
        return free_memory(), ""
    free = sum(gpu.memory()[0] for gpu in devices)
    names = ", ".join(f"{gpu.name} {gpu.model}".rstrip() for gpu in devices)
    print_note(f"computes on {names} with {format_bytes(free)} free")
    return free, names


def _make_hello(memory: float) -> Hello:
    limit = min(int(memory), Hello.memory)
    return Hello(package_fingerprint(), detect_process(), memory=limit)


class _Launch(NamedTuple):
    """The connection file, job and parent process of a rank."""

    file: Path
    job: str
    parent: int


class _MasterFinder:
    """Finds the master of a run, and connects to it again after a disconnect.

    Parameters
    ----------
    source : Path or ConnectionFile
    signals : SignalRecorder
    retry : float or None
        Seconds that `connect` waits for the master; None for no wait.
    launch : _Launch, optional
        Set for a rank, not for `join`.

    Attributes
    ----------
    announces_wait : bool
        Whether `connect` will print that it waits for the master, which it does once.
    connection_file : ConnectionFile or None
        Content of the connection file when it was last read.
    """

    def __init__(
        self,
        source: Source,
        signals: SignalRecorder,
        retry: float | None,
        launch: _Launch | None = None,
    ) -> None:
        self._source, self._signals, self._retry = source, signals, retry
        self._launch = launch
        self.announces_wait = launch is None
        self.connection_file: ConnectionFile | None = None
        self._backoff = Backoff(MAX_RECONNECT_SECONDS)

    def connect(self) -> Connection:
        """Connect to the master, and wait for it if it does not listen yet."""
        due = time.monotonic() + (self._retry or 0.0)
        while True:
            existed = isinstance(self._source, Path) and self._source.exists()
            try:
                return Connection(self._read(), self._check_cancelled)
            except (InputError, MasterLostError) as error:
                self._backoff = Backoff(MAX_RECONNECT_SECONDS)  # for a new master
                # The file may have been created or removed in between.
                exists = existed and isinstance(self._source, Path) and self._source.exists()
                can_retry = isinstance(error, MasterLostError) or not exists or self._is_rank
                if not can_retry or time.monotonic() >= due:
                    raise self._final_error(error, can_retry) from None
                if self.announces_wait:
                    print_note(f"{error}; waiting {self._retry:g} s at most")
                    self.announces_wait = False
            self._pause()

    def serve(
        self, connection: Connection, hello: Hello, endpoint: SocketMachineEndpoint
    ) -> BaseException | None:
        """Serve, and return the exception that ended the session on the master or on this host.

        If earlier connections were short, it waits before it sends its hello.
        """
        try:
            self._wait(self._backoff.pause)
            connection.send(HELLO, pack(hello))
            error = serve(endpoint)
        except MasterLostError as lost:
            error = lost
        finally:
            connection.close()
            self._backoff.record_disconnect()
        if (
            error is not None
            and endpoint.shutdown_reason
            and not isinstance(error, ShutdownRequested)
        ):
            return ShutdownRequested(endpoint.shutdown_reason)
        return error

    def reconnect(self, error: BaseException) -> Connection:
        """Connect again after the network has failed or a process was stopped.

        Raises
        ------
        BaseException
            The run has ended, the master cannot be reached, or this process must leave.
        """
        if not isinstance(error, MasterLostError):
            raise _loss_of_master(error)
        due = time.monotonic() + MASTER_STOPPED_SECONDS
        while not isinstance(self._source, Path) or self._source.exists():
            try:
                return Connection(self._read(), self._check_cancelled)
            except MasterLostError as lost:
                if not lost.is_silent or time.monotonic() >= due:
                    break
            except InputError:
                break
            self._pause()
        self._check_cancelled()  # for an end note: the run may have ended before the hello arrived
        raise error

    def await_cleanup(self) -> None:
        """Wait until the master has removed the files of the run; if it was killed, remove them."""
        file, path = self.connection_file, self._source
        if file is None or not isinstance(path, Path):
            return
        due, paths = time.monotonic() + MACHINE_EXIT_SECONDS, (path, Path(file.socket_path or path))
        while (remain := any(map(Path.exists, paths))) and time.monotonic() < due:
            time.sleep(DISCONNECT_POLL_SECONDS)
        if remain and (self.is_orphan or not _is_listening(file)):
            remove_stale_files(file, path)

    def _read(self) -> ConnectionFile:
        if not isinstance(self._source, Path):
            return self._source
        file = read_connection_file(self._source)
        if self._launch is not None and file.job_id != self._launch.job:
            raise MasterLostError(f"{self._source} belongs to another job")
        if self._launch is not None and file in this_process.finished_connection_files:
            raise MasterLostError(f"{self._source} belongs to a run that has ended")
        self.connection_file = file
        return file

    @property
    def _is_rank(self) -> bool:
        return self._launch is not None

    @property
    def is_orphan(self) -> bool:
        """Whether the parent of this rank has ended."""
        return self._launch is not None and os.getppid() != self._launch.parent

    def _check_cancelled(self) -> None:
        if reason := describe_shutdown(self._signals):
            raise ShutdownRequested(reason)
        if self._launch is not None:
            _check_end_note(self._launch.file, self._launch.job)

    def _pause(self) -> None:
        self._wait(POLL_SECONDS if self._is_rank else RECONNECT_INTERVAL)

    def _wait(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        while time.monotonic() < due:
            self._check_cancelled()
            if self.is_orphan:
                raise _RunFinished  # mpirun of Open MPI can exit before its processes
            time.sleep(POLL_SECONDS)

    def _final_error(self, error: CecError, can_retry: bool) -> CecError:
        if self._is_rank:
            return MasterLostError(
                f"the master has not begun to listen within {self._retry:g} s ({error})"
            )
        if self._retry is None and can_retry and isinstance(error, InputError):
            return InputError(f"{error} (--retry TIME, or retry= in Python, waits for it)")
        if self._retry is None or not can_retry:
            return error
        return MasterLostError(f"{error}; waited {self._retry:g} s")


def _is_listening(file: ConnectionFile) -> bool:
    """Return whether the master that has written this file may still listen."""
    try:
        Connection(file).close()
    except MasterLostError as lost:
        return lost.is_silent
    return True


def _loss_of_master(error: BaseException) -> BaseException:
    """Return the error of a host, given the exception that ended the run on the master."""
    if isinstance(error, ShutdownRequested | MasterLostError):
        return error
    return MasterLostError(f"the master has left: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """Describe why the master has left."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C"
    if isinstance(error, SystemExit):
        return "its program has ended"
    return str(error) or type(error).__name__


def _format_source(source: Source) -> str:
    if isinstance(source, Path):
        return str(source)
    host, port = source.addresses[0]
    return f"{host}:{port}"


# End notes: ranks that have not connected leave when they find such a file.


class _RunFinished(Exception):
    """The run or the launcher of this rank has ended."""


@contextmanager
def end_note(file: Path, job: str) -> Iterator[None]:
    """Create end notes for the duration of the ``with`` and 3 s after it."""
    written = []
    try:
        for note in _end_note_paths(file, job):
            with suppress(OSError):
                os.close(create_or_replace(note))
                written.append(note)
        yield
        time.sleep(END_NOTE_SECONDS)
    finally:
        for note in written:
            note.unlink(missing_ok=True)


def _check_end_note(file: Path, job: str) -> None:
    for note in _end_note_paths(file, job):
        with suppress(OSError):
            if note.lstat().st_uid == os.geteuid():
                raise _RunFinished


def _end_note_paths(file: Path, job: str) -> list[Path]:
    """Return the paths of end notes: next to the file, and in the system's temporary directory."""
    name = f".cec_mpi-{crc32(f'{file} {job}'.encode(errors='surrogateescape')):08x}.ended"
    return [file.with_name(name), Path(tempfile.gettempdir(), name)]


def main(arguments: list[str], parent: int) -> None:
    """Serve the run that has started this process; `parent` is the process ID of its master."""
    remove_error_filters()
    text, file, rank, job, seconds, encryption = arguments
    source = parse_source(text, encryption == "1")
    sys.exit(
        serve_as_rank(
            source, Path(file), int(rank), job, float(seconds), report_loss=False, parent=parent
        )
    )
