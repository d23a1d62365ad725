"""The steps of Algorithm 1 as a text table, like the paper's Figure 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cec_mpi.text.terminal import format_table

_GAP = "  "


def steps_table(
    available: Sequence[int], iterations: Sequence[Mapping[str, Any]], width: int | None = None
) -> list[str]:
    r"""Return a table with f, alpha_f, P_f, the bound that alpha_f equals, m and L', as lines.

    Parameters
    ----------
    available : (N_t,) sequence of int
    iterations : sequence of mapping
        The iterations of `explain_plan`.
    width : int, optional
        Columns of the terminal. Machines that do not fit are omitted, and counted in a last line.
        By default all machines are shown.

    Examples
    --------
    >>> from cec_mpi.cli.commands.explain import explain_plan
    >>> plan = explain_plan((1, 2, 3), [1, 1, 2], 2, 4, steps=True)
    >>> print(*steps_table((1, 2, 3), plan["iterations"]), sep="\n")
    f  alpha  P_f  alpha is                                m[1]  m[2]  m[3]  L'
    1  2      1 3  m[1] = 2, no more than L'/2 - m[2] = 2     2     2     4   8
    2  2      2 3  m[2] = 2, of the last 2 machines           0     2     2   4
                   all is assigned                            0     0     0   0
    """
    machines_per_row = len(iterations[0]["machines"])
    head = ["f", "alpha", "P_f", "alpha is"]
    rows = [
        [
            str(f),
            str(iteration["alpha"]),
            " ".join(map(str, iteration["machines"])),
            _reason(iteration, machines_per_row),
        ]
        for f, iteration in enumerate(iterations, start=1)
    ]
    loads = [[*map(str, iteration["loads"]), str(iteration["total"])] for iteration in iterations]
    rows.append(["", "", "", "all is assigned"])
    loads.append(["0"] * (len(available) + 1))
    columns = [*(f"m[{n}]" for n in available), "L'"]
    left = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    right = [max(len(row[k]) for row in [columns, *loads]) for k in range(len(columns))]
    fitting = _fitting_columns(left, right, width)
    titles = [columns[k] for k in fitting]
    cells = [
        [*words, *(numbers[k] for k in fitting)] for words, numbers in zip(rows, loads, strict=True)
    ]
    lines = format_table([*head, *titles], cells, titles)
    missing = len(columns) - len(fitting)
    if missing:
        lines.append(f"(m of {missing} more machines: use a wider terminal, a pipe, or --json)")
    return lines


def _fitting_columns(left: Sequence[int], right: Sequence[int], width: int | None) -> list[int]:
    """Return the indices of the columns of loads that fit, including the last column, L'."""
    last = len(right) - 1
    if width is None:
        return [*range(last), last]
    used_width = sum(size + len(_GAP) for size in left) + right[last]
    fitting = []
    for k in range(last):
        used_width += right[k] + len(_GAP)
        if used_width > width:
            break
        fitting.append(k)
    return [*fitting, last]


def _reason(iteration: Mapping[str, Any], machines_per_row: int) -> str:
    """Return the bound that alpha_f equals, and the other bound."""
    load = f"m[{iteration['smallest']}] = {iteration['load']}"
    if iteration["next_largest"] is None:
        return (
            f"{load}, of the last {machines_per_row} machines"
            if machines_per_row > 1
            else f"{load}, the last one"
        )
    part = "L'" if machines_per_row == 1 else f"L'/{machines_per_row}"
    rest = f"{part} - m[{iteration['next_largest']}] = {iteration['margin']}"
    if iteration["decided_by"] == "load":
        return f"{load}, no more than {rest}"
    return f"{rest}, less than {load}"
