"""Who is up, as a command of the user's says."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from cec_mpi.availability.models import Asked, Machines, checked_set
from cec_mpi.availability.numbers import read_machines
from cec_mpi.errors import InputError

if TYPE_CHECKING:
    import subprocess

_TICK = "CEC_TICK"  # tells a command which tick it is asked for
_SHOWN = 200  # characters of what a command printed
_MOST_PRINTED = 1 << 20  # bytes that are read of it


def from_command(command: str, machines: int, every: float = 1.0, limit: float = 10.0) -> Asked:
    """Availability that a command prints.

    Parameters
    ----------
    command : str
        Words as for a shell, but none is started. The environment variable ``CEC_TICK``
        has the tick. It prints machine numbers or ranges (``1-3``) with white space or
        commas between them, or numbers as a JSON list; nothing where no machine is available.
    machines : int
        Machines of the store, N.
    every : float
        Seconds that an answer holds.
    limit : float
        Seconds that an answer may take.

    Returns
    -------
    Asked
        Raises `InputError` when an answer cannot be had, or names an unknown machine.

    Raises
    ------
    InputError
        The command has no words.

    Examples
    --------
    >>> from_command("echo 3, 1", 4).at(0)
    (1, 3)
    """
    import shlex

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"command {command!r}: {error}, expected words as for a shell") from None
    if not words:
        raise InputError(
            f"command {command!r} is empty: expected a program to ask who is available"
        )
    known = frozenset(range(1, machines + 1))

    def ask(tick: int) -> Machines:
        name = f"command {command!r} for tick {tick}"
        printed = _printed_by(name, words, {**os.environ, _TICK: str(tick)}, limit)
        return checked_set(f"{name} printed {_shown(printed)}: it", _numbers(name, printed), known)

    return Asked(machines, ask, every)


def _printed_by(name: str, words: list[str], environment: dict[str, str], limit: float) -> str:
    """The standard output of a program; a process group of its own is ended with it."""
    import subprocess  # now: hardly any rank starts a program

    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            process_group=0,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be started: {error}") from None
    with process:
        try:
            printed, complaints = _read_both(process, limit)
            process.wait(limit)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise InputError(
                    f"{name} was not done after {limit:g} seconds: expected numbers of machines"
                ) from None
            if isinstance(error, _TooMuchError):
                raise InputError(
                    f"{name} printed more than {_MOST_PRINTED} bytes: expected numbers of machines"
                ) from None
            raise
    if process.returncode:
        raise InputError(
            f"{name} ended with code {process.returncode} and printed "
            f"{_shown(complaints or printed)}: expected numbers of machines and code 0"
        )
    return printed


class _TooMuchError(Exception):
    pass


def _read_both(process: subprocess.Popen[bytes], limit: float) -> list[str]:
    """Standard output and error of a process; unlike `communicate` never all of an endless one."""
    import subprocess

    assert process.stdout is not None
    assert process.stderr is not None
    printed = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    due = time.monotonic() + limit
    with selectors.DefaultSelector() as selector:
        for descriptor in printed:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = due - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, limit)
            for key, _ in selector.select(left):
                found = os.read(key.fd, 1 << 16)
                if not found:
                    selector.unregister(key.fd)
                printed[key.fd] += found
                if len(printed[key.fd]) > _MOST_PRINTED:
                    raise _TooMuchError
    return [text.decode("utf-8", errors="replace") for text in printed.values()]


def _numbers(name: str, printed: str) -> list[int]:
    try:
        if printed.lstrip().startswith("["):
            numbers: list[int] = json.loads(printed)
            if not all(type(number) is int for number in numbers):
                raise ValueError
            return numbers
        return list(read_machines(printed.replace(",", " ").split()))
    except (ValueError, RecursionError):
        raise InputError(
            f"{name} printed {_shown(printed)}: expected numbers of machines, as 1-3 5 or [1, 2]"
        ) from None


def _shown(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...") if text else "nothing"
