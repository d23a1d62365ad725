"""Print results, notes, warnings and errors according to the verbosity; and make tables.

Results and remarks go to standard output, everything else to standard error. If standard error is
closed or full, the process continues without it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from cec_mpi.text import one_message, printable

QUIET = -1  # only results and errors
NORMAL = 0  # also remarks and warnings
VERBOSE = 1  # also events as they happen
_GAP = 2  # columns between those of a table
ALREADY_PRINTED = {"warned": True}  # ``extra`` of log records whose text has already been printed


@dataclass
class _State:
    """Of this process."""

    verbosity: int = NORMAL
    problem: OSError | None = None  # with standard output


_state = _State()


def set_verbosity(level: int) -> None:
    """Set how much this process prints: `QUIET`, `NORMAL` or `VERBOSE`."""
    _state.verbosity = level


def verbosity() -> int:
    """Return how much this process prints."""
    return _state.verbosity


def print_result(text: str, at_once: bool = False) -> None:
    """Print a result; `unwritten` reports an error of writing it.

    Parameters
    ----------
    text : str
        The caller has passed names from outside through `printable`.
    at_once : bool
        Flush standard output.
    """
    try:
        print(text, flush=at_once)
    except OSError as error:
        _note(error)


def print_note(text: str) -> None:
    """Print a remark, unless this process is quiet."""
    if verbosity() > QUIET:
        print_result(one_message(text), at_once=True)


def take_output_error() -> OSError | None:
    """Return why standard output could not be written, once, or None.

    A broken pipe is not an error: the reader has seen enough.
    """
    try:
        if sys.stdout is not None:  # standard output was closed before Python started
            sys.stdout.flush()
    except OSError as error:
        _note(error)
    problem, _state.problem = _state.problem, None
    return problem


def _note(error: OSError) -> None:
    discard_output(sys.stdout)
    if not isinstance(error, BrokenPipeError):
        _state.problem = _state.problem or error


def print_error_line(line: str) -> None:
    """Write one or several lines to standard error in one call, so that they stay together.

    Control characters are escaped.
    """
    if sys.stderr is None:  # standard error was closed before Python started
        return
    try:
        sys.stderr.write(printable(f"{line}\n", kept="\n\t"))
        sys.stderr.flush()
    except (OSError, ValueError):
        discard_output(sys.stderr)


def print_to_tty(line: str) -> None:
    """Write a line to the terminal that this process was started from, if it has one.

    A launcher that is ending drops standard output, but ranks of Open MPI's mpirun keep its
    terminal.
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
    """Print a warning to standard error, unless this process is quiet."""
    if verbosity() > QUIET:
        print_error_line(f"cec-mpi: warning: {one_message(text)}")


def remove_error_filters() -> None:
    """Ignore ``-W error`` and PYTHONWARNINGS=error in this process.

    A warning that raises between two messages would end the run.
    """
    warnings.filters[:] = [entry for entry in warnings.filters if entry[0] != "error"]  # type: ignore[index]
    warnings.simplefilter("default", append=True)  # makes Python read the filters again


def discard_output(stream: TextIO | None) -> None:
    """Discard what a stream has not written yet, so that the process can exit without an error."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return  # no file descriptor: nothing to drop


def format_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> list[str]:
    r"""Return the lines of a table of text.

    Parameters
    ----------
    head : sequence of str
        The name of each column.
    rows : iterable of sequence of str
        Tables of plans have as many rows as machines: rich takes half a millisecond for each.
    right : collection of str
        The names of columns that are aligned to the right.

    Examples
    --------
    >>> print(*format_table(["machine", "rows"], [["1", "10"], ["12", "9"]], ["machine"]), sep="\n")
    machine  rows
          1  10
         12  9
    """
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = [">" if name in right else "<" for name in head]
    return [
        (" " * _GAP)
        .join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        .rstrip()
        for row in cells
    ]


def facts_table(facts: Iterable[tuple[str, str]], width: int | None = None) -> str:
    """Return a table of names and their values.

    Parameters
    ----------
    facts : iterable of (str, str)
        Names and texts; control characters in them are escaped.
    width : int, optional
        Width of the terminal in characters. A longer text continues on the next line, below its own
        beginning. By default each fact has one line.
    """
    from rich.console import Console  # which few commands need
    from rich.table import Table
    from rich.text import Text

    facts = [(printable(name), printable(text)) for name, text in facts]
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(Text(name), Text(text))
    longest = sum(max(len(fact[k]) for fact in facts) + _GAP for k in (0, 1))
    console = Console(width=width or 2 * longest, color_system=None)  # a letter may be wide
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
