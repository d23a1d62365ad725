"""A child process, on a worker of Dask or Ray, that runs machines."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cec_mpi.engines.replacement import START_WINDOW, StartLimit
from cec_mpi.errors import CecError, DismissedError, InputError, StoppedError
from cec_mpi.runtime.processes.children import start_child
from cec_mpi.runtime.session.host import check_join_values, join, parse_source
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile, read_connection_file
from cec_mpi.text import shorten
from cec_mpi.text.terminal import QUIET, print_note, remove_error_filters, set_verbosity

ConnectionSource = str | os.PathLike[str] | ConnectionFile

_MAX_STARTS = 5  # of the child process within `START_WINDOW`
_RESTART_SECONDS = 1.0  # between the end of a child process and the next start
_LEAVE_SECONDS = 3.0  # to leave after SIGTERM; Dask kills a closing worker after 4 s
_POLL_SECONDS = 0.1
# No restart follows these exit codes: the run is over, or the input or answers were wrong.
FINAL_CODES = 0, InputError.exit_code, DismissedError.exit_code


def run_machines(
    connection: ConnectionFile,
    options: dict[str, Any],
    must_stop: threading.Event,
    report: Callable[[str], None] = print_note,
) -> int:
    """Join a run from a child process until the run is over; return the last exit code.

    The child gets the keys of the run through a pipe, and ends when this process ends. It is
    restarted if it is killed or fails, unless a restart cannot help (`FINAL_CODES`) or the machines
    have been asked to leave: at most 5 starts in 10 minutes.

    Parameters
    ----------
    connection : ConnectionFile
    options : dict
        Keywords of `cec_mpi.join`.
    must_stop : threading.Event
        If set, the machines leave.
    report : callable, optional
        Called with the reason if the machines are not restarted.
    """
    limit, code, error = StartLimit(_MAX_STARTS), 0, ""
    input_json = json.dumps([connection.to_builtins(), options]).encode()
    while not must_stop.is_set() and limit.allow_start():
        code, error = _run_child(input_json, must_stop)
        if code in (*FINAL_CODES, StoppedError.exit_code):
            if error:
                report(f"{error}; the machines of this worker are not started again")
            return code
        must_stop.wait(_RESTART_SECONDS)
    if not must_stop.is_set():
        report(
            f"machines of a worker have ended {_MAX_STARTS} times within {START_WINDOW:g} s and "
            f"are not started again; last error: {error or f'exit code {code}'}"
        )
    return code


def _run_child(input_json: bytes, must_stop: threading.Event) -> tuple[int, str]:
    """Run a child process until it ends or `must_stop` is set; return its exit code and error."""
    process = start_child(__name__, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        with process.stdin, suppress(BrokenPipeError):
            process.stdin.write(input_json)
        while process.poll() is None and not must_stop.wait(_POLL_SECONDS):
            pass
    finally:  # Ray cancels a task by KeyboardInterrupt
        process.terminate()
        try:
            process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdout is not None
    with process.stdout as output:
        return process.returncode, output.read().decode()


def check_join_options(join_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return keywords of `cec_mpi.join`, converted to JSON types.

    Raises
    ------
    InputError
        A keyword is unknown or set by the engine, or a value is out of range.
    """
    keywords = inspect.signature(join).parameters.keys() - {"source", "machines", "encryption"}
    try:
        options = dict(join_options or {})
    except (TypeError, ValueError):
        raise InputError(
            f"join {shorten(join_options)}: expected keywords of cec_mpi.join"
        ) from None
    if unknown := sorted(options.keys() - keywords):
        raise InputError(
            f"join {shorten(unknown[0])}: expected one of {', '.join(sorted(keywords))}"
        )
    try:
        converted: dict[str, Any] = json.loads(json.dumps(options, default=os.fspath))
    except TypeError as error:
        raise InputError(f"join: {error}; expected numbers, strings and paths") from None
    check_join_values(**converted)
    return converted


def read_connection(connection: ConnectionSource) -> ConnectionFile:
    """Return the addresses and keys of a run.

    Parameters
    ----------
    connection : path, str or ConnectionFile
        A connection file, or ``HOST:PORT`` with the key in CEC_MPI_KEY.

    Raises
    ------
    InputError
        The file does not exist or is not a connection file, or the key is missing.
    """
    if isinstance(connection, ConnectionFile):
        return connection
    source = parse_source(os.fspath(connection))
    return read_connection_file(source) if isinstance(source, Path) else source


def main(arguments: list[str], parent: int) -> None:
    """Join the run whose connection and options are read from standard input."""
    del arguments, parent
    remove_error_filters()
    set_verbosity(QUIET)  # otherwise the notes of all workers would be shown in one place
    connection, options = json.load(sys.stdin)
    try:
        join(ConnectionFile.from_builtins(connection), **options)
    except StoppedError as error:  # SIGTERM or a notice of preemption
        sys.exit(error.exit_code)
    except CecError as error:
        print(error, end="")
        sys.exit(error.exit_code)
