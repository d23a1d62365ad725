"""What this process says to people, and how much of it.

Results and remarks go to standard output, all else to standard error. Standard error that
is closed or full stops nobody: there is no place left to say so.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from cec_mpi.text import one_message

QUIET, NORMAL, VERBOSE = -1, 0, 1  # errors alone; remarks and warnings too; events as they happen
WARNED = {"warned": True}  # extra of what is logged and has been told already


@dataclass
class _State:
    """Of this process."""

    verbosity: int = NORMAL
    problem: OSError | None = None  # with standard output


_state = _State()


def set_verbosity(level: int) -> None:
    """From now on this process says so much: `QUIET`, `NORMAL` or `VERBOSE`."""
    _state.verbosity = level


def verbosity() -> int:
    """How much this process says."""
    return _state.verbosity


def put(text: str, at_once: bool = False) -> None:
    """Print what a command is asked for; `unwritten` says whether that can be done.

    Parameters
    ----------
    text : str
        Names in it that are not ours are `printable`.
    at_once : bool
        Whoever reads it is to have it now.
    """
    try:
        print(text, flush=at_once)
    except OSError as error:
        _note(error)


def say(text: str) -> None:
    """Print a remark, which a quiet process keeps to itself."""
    if verbosity() > QUIET:
        put(one_message(text), at_once=True)


def unwritten() -> OSError | None:
    """Why what was printed so far cannot be written, or None; told once.

    A reader that has seen enough is no reason.
    """
    try:
        if sys.stdout is not None:  # as it is when standard output was closed before
            sys.stdout.flush()
    except OSError as error:
        _note(error)
    problem, _state.problem = _state.problem, None
    return problem


def _note(error: OSError) -> None:
    drop(sys.stdout)
    if not isinstance(error, BrokenPipeError):
        _state.problem = _state.problem or error


def tell(line: str) -> None:
    """Write a line, or several, to standard error; at once, so that nothing comes between."""
    if sys.stderr is None:  # as it is when standard error was closed before
        return
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        drop(sys.stderr)


def tell_terminal(line: str) -> None:
    """Write a line to the terminal that this process was started from, if there is any.

    For what a launcher that is ending drops: ranks of Open MPI's mpirun keep its terminal.
    """
    try:
        descriptor = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return
    try:
        os.write(descriptor, f"\r{one_message(line)}\r\n".encode(errors="backslashreplace"))
    except OSError:
        pass  # it has vanished
    finally:
        os.close(descriptor)


def warn(text: object) -> None:
    """Tell what a user should act on, unless this process is quiet."""
    if verbosity() > QUIET:
        tell(f"cec-mpi: warning: {one_message(text)}")


def drop(stream: TextIO | None) -> None:
    """Let what a stream still has to write go nowhere, so that leaving does not fail on it."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return  # no file descriptor: nothing to drop
