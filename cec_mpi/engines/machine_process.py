"""A process with machines of a run, beside a worker of an engine."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cec_mpi.engines.keeping import START_WINDOW, StartLimit
from cec_mpi.errors import CecError, DismissedError, InputError, StoppedError
from cec_mpi.runtime.processes.children import start_child
from cec_mpi.runtime.processes.ending import print_error
from cec_mpi.runtime.session.machine import check_join_values, join, source_of
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile, read_connection_file
from cec_mpi.text import shorten
from cec_mpi.text.terminal import QUIET, print_note, remove_error_filters, set_verbosity

Connection = str | os.PathLike[str] | ConnectionFile

_STARTS = 5  # of the process beside a worker, within `START_WINDOW`
_RESTART_SECONDS = 1.0  # between the end of a process and the next start
_LEAVE_SECONDS = 3.0  # to leave after SIGTERM: Dask kills a worker 4 s after it was told to close
_POLL_SECONDS = 0.1
# The run is over, the input is wrong, or the answers were wrong.
FINAL_CODES = 0, InputError.exit_code, DismissedError.exit_code


def run_machines(
    connection: ConnectionFile, options: dict[str, Any], must_stop: threading.Event
) -> int:
    """Be a host of a run in a child process, until the run is over; returns its last exit code.

    The child gets the keys of the run through a pipe, and ends when this process ends. It is
    started again if it was killed or has failed, at most 5 times in 10 minutes.

    Parameters
    ----------
    connection : ConnectionFile
    options : dict
        Keywords of `cec_mpi.join`.
    must_stop : threading.Event
        Makes the machines leave.
    """
    limit, code = StartLimit(_STARTS), 0
    while not must_stop.is_set() and limit.allow_start():
        code = _run_child(json.dumps([connection.to_builtins(), options]).encode(), must_stop)
        if code in (*FINAL_CODES, StoppedError.exit_code):
            return code
        must_stop.wait(_RESTART_SECONDS)
    if not must_stop.is_set():
        print_note(
            f"machines of a worker have ended {_STARTS} times within {START_WINDOW:g} s, the last "
            f"time with exit code {code}: they are not started again"
        )
    return code


def _run_child(content: bytes, must_stop: threading.Event) -> int:
    """Run the child until it ends or must leave; returns its exit code."""
    process = start_child(__name__, stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        with process.stdin, suppress(BrokenPipeError):
            process.stdin.write(content)
        while process.poll() is None and not must_stop.wait(_POLL_SECONDS):
            pass
    finally:  # also interrupted, as a task that Ray cancels
        process.terminate()
        try:
            process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


def check_join_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return keywords of `cec_mpi.join` as JSON can have them.

    Raises
    ------
    InputError
        A keyword is unknown, or belongs to the engine, or a value is out of range.
    """
    known = inspect.signature(join).parameters.keys() - {"source", "machines", "encryption"}
    try:
        options = dict(given or {})
    except (TypeError, ValueError):
        raise InputError(f"join {shorten(given)}: expected keywords of cec_mpi.join") from None
    if unknown := sorted(options.keys() - known):
        raise InputError(f"join {shorten(unknown[0])}: expected one of {', '.join(sorted(known))}")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(options, default=os.fspath))
    except TypeError as error:
        raise InputError(f"join: {error}; expected numbers, texts and paths") from None
    check_join_values(**plain)
    return plain


def read_connection(given: Connection) -> ConnectionFile:
    """Return the addresses and keys of a run.

    Parameters
    ----------
    given : path, str or ConnectionFile
        A connection file, or ``HOST:PORT`` with the key in CEC_MPI_KEY.

    Raises
    ------
    InputError
        The file does not exist or is not a connection file, or the key is missing.
    """
    if isinstance(given, ConnectionFile):
        return given
    source = source_of(os.fspath(given))
    return read_connection_file(source) if isinstance(source, Path) else source


def main(words: list[str], parent: int) -> None:
    """Be a host of the run that standard input describes."""
    del words, parent
    remove_error_filters()
    set_verbosity(QUIET)  # engines show what many workers print; the master says who is missing
    connection, options = json.load(sys.stdin)
    try:
        join(ConnectionFile.from_builtins(connection), **options)
    except StoppedError as error:  # the worker is closed, or its computer is preempted
        sys.exit(error.exit_code)
    except CecError as error:
        print_error(error)
        sys.exit(error.exit_code)
