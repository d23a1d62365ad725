"""Availability from the output of a user's command."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import FunctionAvailability, Machines, validate_machines
from cec_mpi.runtime.availability.numbers import read_machines

if TYPE_CHECKING:
    import subprocess

_TICK_VARIABLE = "CEC_TICK"  # environment variable with the number of the tick
_MAX_QUOTED = 200  # characters of output in messages
_MAX_OUTPUT_BYTES = 1 << 20


def from_command(
    command: str, machines: int, every: float = 1.0, limit: float = 10.0
) -> FunctionAvailability:
    """Return the availability that a command prints.

    Parameters
    ----------
    command : str
        Command line, split as by a shell but run without one. The environment variable ``CEC_TICK``
        holds the number of the tick. The command prints machine numbers or ranges (``1-3``),
        separated by white space or commas, or a JSON list of numbers. It prints nothing if no
        machine is available.
    machines : int
        Number of machines of the store, N.
    every : float
        Seconds for which the output is valid.
    limit : float
        Time limit of the command in seconds.

    Returns
    -------
    FunctionAvailability
        Its methods raise `InputError` if the command fails or prints an unknown machine number.

    Raises
    ------
    InputError
        The command is empty, or cannot be split into words.

    Examples
    --------
    >>> from_command("echo 3, 1", 4).at(0)
    (1, 3)
    """
    import shlex

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"command {command!r} cannot be split into words: {error}") from None
    if not words:
        raise InputError(
            f"command {command!r} is empty, expected a program that prints the available machines"
        )
    all_machines = frozenset(range(1, machines + 1))

    def query(tick: int) -> Machines:
        name = f"command {command!r} for tick {tick}"
        output = _run_program(name, words, {**os.environ, _TICK_VARIABLE: str(tick)}, limit)
        return validate_machines(
            f"{name} printed {_quote(output)}, which", _parse_numbers(name, output), all_machines
        )

    return FunctionAvailability(machines, query, every)


def _run_program(name: str, words: list[str], environment: dict[str, str], limit: float) -> str:
    """Run a program in a new process group, and return its standard output."""
    import subprocess  # imported here, because few ranks start a program

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
            output, error_output = _read_output(process, limit)
            process.wait(limit)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise InputError(f"{name} has not ended after {limit:g} seconds") from None
            if isinstance(error, _OutputTooLongError):
                raise InputError(
                    f"{name} printed more than {_MAX_OUTPUT_BYTES} bytes: expected machine numbers"
                ) from None
            raise
    if process.returncode:
        raise InputError(
            f"{name} failed with exit code {process.returncode} and printed "
            f"{_quote(error_output or output)}"
        )
    return output


class _OutputTooLongError(Exception):
    pass


def _read_output(process: subprocess.Popen[bytes], limit: float) -> list[str]:
    """Return standard output and standard error; raise if they take too long or are too long."""
    import subprocess

    assert process.stdout is not None
    assert process.stderr is not None
    output = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
    deadline = time.monotonic() + limit
    with selectors.DefaultSelector() as selector:
        for descriptor in output:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise subprocess.TimeoutExpired(process.args, limit)
            for key, _ in selector.select(remaining):
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fd)
                output[key.fd] += chunk
                if len(output[key.fd]) > _MAX_OUTPUT_BYTES:
                    raise _OutputTooLongError
    return [text.decode("utf-8", errors="replace") for text in output.values()]


def _parse_numbers(name: str, output: str) -> list[int]:
    try:
        if output.lstrip().startswith("["):
            numbers: list[int] = json.loads(output)
            if not all(type(number) is int for number in numbers):
                raise ValueError
            return numbers
        return list(read_machines(output.replace(",", " ").split()))
    except (ValueError, RecursionError):
        raise InputError(
            f"{name} printed {_quote(output)}, expected machine numbers, such as 1-3 5 or [1, 2]"
        ) from None


def _quote(text: str) -> str:
    text = text.strip()
    return (
        repr(text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "...")
        if text
        else "nothing"
    )
