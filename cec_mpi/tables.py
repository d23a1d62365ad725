"""Print tables: names with their values (by rich), and columns of any length."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from cec_mpi.text import printable

_GAP = 2  # columns between those of a table


def aligned(
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
    >>> print(*aligned(["machine", "rows"], [["1", "10"], ["12", "9"]], ["machine"]), sep="\n")
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
