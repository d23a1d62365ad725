"""Output of results, notes, warnings and errors by verbosity, and text tables.

Results and notes go to standard output, everything else to standard error. If standard error is
closed or full, the process continues without it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from cec_mpi.text import format_message, printable

QUIET = -1  # only results and errors
NORMAL = 0  # also notes and warnings
VERBOSE = 1  # also events as they happen
_GAP = 2  # spaces between the columns of a table
ALREADY_PRINTED = {"warned": True}  # ``extra`` of log records whose text is already printed


@dataclass
class _OutputState:
    """The verbosity and output error of this process."""

    verbosity: int = NORMAL
    output_error: OSError | None = None  # of standard output


_output_state = _OutputState()


def set_verbosity(level: int) -> None:
    """Set the verbosity of this process: `QUIET`, `NORMAL` or `VERBOSE`."""
    _output_state.verbosity = level


def verbosity() -> int:
    """Return the verbosity of this process."""
    return _output_state.verbosity


def print_result(text: str, flush: bool = False) -> None:
    """Print a result; `pop_output_error` reports a failure.

    Parameters
    ----------
    text : str
        Untrusted parts must be escaped by `printable`.
    flush : bool
        Flush standard output.
    """
    try:
        print(text, flush=flush)
    except OSError as error:
        _record_output_error(error)


def print_note(text: str) -> None:
    """Print a note, unless this process is quiet."""
    if verbosity() > QUIET:
        print_result(format_message(text), flush=True)


def pop_output_error() -> OSError | None:
    """Return and clear the error of writing to standard output, or return None.

    A broken pipe is not an error, because the reader has closed it.
    """
    try:
        if sys.stdout is not None:  # None if it was closed before Python started
            sys.stdout.flush()
    except OSError as error:
        _record_output_error(error)
    output_error, _output_state.output_error = _output_state.output_error, None
    return output_error


def _record_output_error(error: OSError) -> None:
    discard_output(sys.stdout)
    if not isinstance(error, BrokenPipeError):
        _output_state.output_error = _output_state.output_error or error


def print_stderr(text: str) -> None:
    """Write text of one or more lines to standard error.

    It is written in one call, so that no other output comes between its lines. Control characters
    are escaped.
    """
    if sys.stderr is None:  # closed before Python started
        return
    try:
        sys.stderr.write(printable(f"{text}\n", keep="\n\t"))
        sys.stderr.flush()
    except (OSError, ValueError):
        discard_output(sys.stderr)


def print_to_tty(line: str) -> None:
    """Write a line to the controlling terminal, if this process has one.

    A launcher that is shutting down drops standard output, but ranks of Open MPI's mpirun still
    have a controlling terminal.
    """
    try:
        descriptor = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return
    try:
        os.write(descriptor, f"\r{format_message(line)}\r\n".encode(errors="backslashreplace"))
    except OSError:
        pass  # the terminal was closed
    finally:
        os.close(descriptor)


def warn(text: object) -> None:
    """Print a warning to standard error, unless this process is quiet."""
    if verbosity() > QUIET:
        print_stderr(f"cec-mpi: warning: {format_message(text)}")


def remove_error_filters() -> None:
    """Ignore ``-W error`` and PYTHONWARNINGS=error, because a raised warning would end the run."""
    warnings.filters[:] = [rule for rule in warnings.filters if rule[0] != "error"]  # type: ignore[index]
    warnings.simplefilter("default", append=True)  # makes Python read the filters again


def discard_output(stream: TextIO | None) -> None:
    """Discard unwritten data of a stream, so that the process can exit without an error."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return  # a stream without a file descriptor has no unwritten data


def format_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Collection[str] = ()
) -> list[str]:
    r"""Return the lines of a table of text.

    Parameters
    ----------
    header : sequence of str
        The name of each column.
    rows : iterable of sequence of str
    right_aligned : collection of str
        The names of right-aligned columns.

    Notes
    -----
    rich takes half a millisecond per row, too long for tables with one row per machine.

    Examples
    --------
    >>> print(*format_table(["machine", "rows"], [["1", "10"], ["12", "9"]], ["machine"]), sep="\n")
    machine  rows
          1  10
         12  9
    """
    cells = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    formats = [
        f"{'>' if name in right_aligned else '<'}{width}"
        for name, width in zip(header, widths, strict=True)
    ]
    return [
        (" " * _GAP)
        .join(f"{cell:{spec}}" for cell, spec in zip(row, formats, strict=True))
        .rstrip()
        for row in cells
    ]


def facts_table(facts: Iterable[tuple[str, str]], width: int | None = None) -> str:
    """Return a table of names and values.

    Parameters
    ----------
    facts : iterable of (str, str)
        Names and values; control characters are escaped.
    width : int, optional
        Width of the terminal in characters. Longer values wrap within their column. By default they
        do not wrap.
    """
    from rich.console import Console  # few commands need it
    from rich.table import Table
    from rich.text import Text

    facts = [(printable(name), printable(text)) for name, text in facts]
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(Text(name), Text(text))
    longest = sum(max(len(fact[k]) for fact in facts) + _GAP for k in (0, 1))
    # A character may be two columns wide.
    console = Console(width=width or 2 * longest, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
