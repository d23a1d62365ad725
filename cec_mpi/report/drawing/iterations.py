"""The iterations of Algorithm 1 as a text table, like the paper's Figure 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cec_mpi.text import plural
from cec_mpi.text.terminal import format_table

_GAP = "  "


def iterations_table(
    available: Sequence[int], iterations: Sequence[Mapping[str, Any]], width: int | None = None
) -> list[str]:
    r"""Return a table with f, alpha_f, P_f, the bound that alpha_f equals, m and L', as lines.

    Parameters
    ----------
    available : (N_t,) sequence of int
    iterations : sequence of mapping
        The iterations of `explain_plan`.
    width : int, optional
        Columns of the terminal. Machines that do not fit are omitted, and counted in a final line.
        By default all machines are shown.

    Examples
    --------
    >>> from cec_mpi.cli.commands.explain import explain_plan
    >>> plan = explain_plan((1, 2, 3), [1, 1, 2], 2, 4, steps=True)
    >>> print(*iterations_table((1, 2, 3), plan["iterations"]), sep="\n")
    f  alpha  P_f  alpha is                                m[1]  m[2]  m[3]  L'
    1  2      1 3  m[1] = 2, no more than L'/2 - m[2] = 2     2     2     4   8
    2  2      2 3  m[2] = 2, with only 2 machines left        0     2     2   4
                   all rows assigned                          0     0     0   0
    """
    head = ["f", "alpha", "P_f", "alpha is"]
    rows = [
        [
            str(f),
            str(iteration["alpha"]),
            " ".join(map(str, iteration["machines"])),
            _describe_bounds(iteration),
        ]
        for f, iteration in enumerate(iterations, start=1)
    ]
    loads = [[*map(str, iteration["loads"]), str(iteration["total"])] for iteration in iterations]
    rows.append(["", "", "", "all rows assigned"])
    loads.append(["0"] * (len(available) + 1))
    columns = [*(f"m[{n}]" for n in available), "L'"]
    text_widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    load_widths = [max(len(row[k]) for row in [columns, *loads]) for k in range(len(columns))]
    fitting = _fitting_columns(text_widths, load_widths, width)
    titles = [columns[k] for k in fitting]
    cells = [
        [*texts, *(values[k] for k in fitting)] for texts, values in zip(rows, loads, strict=True)
    ]
    lines = format_table([*head, *titles], cells, titles)
    omitted = len(columns) - len(fitting)
    if omitted:
        lines.append(
            f"(m of {plural(omitted, 'machine')} omitted: use a wider terminal, a pipe, or --json)"
        )
    return lines


def _fitting_columns(
    text_widths: Sequence[int], load_widths: Sequence[int], width: int | None
) -> list[int]:
    """Return the indices of the columns of loads that fit, including the last column, L'."""
    last = len(load_widths) - 1
    if width is None:
        return list(range(last + 1))
    used_width = sum(text_width + len(_GAP) for text_width in text_widths) + load_widths[last]
    fitting = []
    for k in range(last):
        used_width += load_widths[k] + len(_GAP)
        if used_width > width:
            break
        fitting.append(k)
    return [*fitting, last]


def _describe_bounds(iteration: Mapping[str, Any]) -> str:
    """Return the bound that alpha_f equals, and the other bound."""
    machines_per_row = len(iteration["machines"])
    load = f"m[{iteration['smallest']}] = {iteration['load']}"
    if iteration["next_largest"] is None:
        return (
            f"{load}, with only {machines_per_row} machines left"
            if machines_per_row > 1
            else f"{load}, with only 1 machine left"
        )
    share = "L'" if machines_per_row == 1 else f"L'/{machines_per_row}"
    margin = f"{share} - m[{iteration['next_largest']}] = {iteration['margin']}"
    if iteration["decided_by"] == "load":
        return f"{load}, no more than {margin}"
    return f"{margin}, less than {load}"
