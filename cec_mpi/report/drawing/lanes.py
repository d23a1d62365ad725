"""Pictures of assignments, like the paper's Figure 1: a lane for each machine, rows along it.

A lane shows the rows that the machine stores; the blocks that it computes are coloured and have
letters. Preempted machines are hatched. Below, optionally, the steps of Algorithm 1, like the
paper's Figure 2: the remaining loads of machines, from which each block takes its part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cec_mpi.report.drawing.drawn_assignment import DrawnAssignment, block_letter
from cec_mpi.report.drawing.pictures import BLOCKS, FAINT, STORED
from cec_mpi.text import plural, printable, truncate

_WIDTH = 6.7  # inches
_LANE, _LANES = 0.28, 5.6  # inches: largest height of a lane, and of all lanes
_TOP_MARGIN, _LINE, _RIGHT_MARGIN, _LETTER = 0.5, 0.2, 0.85, 0.075  # inches; the last for a letter
_BAR_HEIGHT = 0.83  # fraction of a lane with a gap below it
_MAX_SEPARATE = 60  # more machines are drawn as one image
_MAX_NAMED = 40  # lanes with a label
_MAX_LISTED = 12  # blocks in a legend
_MAX_LABEL_LENGTH = 22
_MAX_STEPS, _MAX_MACHINES, _NUMBERED = 24, 24, 8


def draw(
    panels: Sequence[DrawnAssignment], heading: str, steps: Sequence[Mapping[str, Any]] = ()
) -> Any:
    """Draw assignments below each other.

    Parameters
    ----------
    panels : sequence of DrawnAssignment
    heading : str
    steps : sequence of mapping
        The iterations of `explain_plan` for the last panel.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    heights = [_lane_height(p) * p.machines for p in panels]
    above = [_TOP_MARGIN] * len(panels)
    below = [0.55 + _LINE * _legend_lines(p) for p in panels]
    names = [_shorten(label) for p in panels for label in p.labels]
    if steps:
        heights.append(0.31 * min(len(steps), _MAX_STEPS))
        above.append(_TOP_MARGIN + _LINE)
        below.append(0.3)
        names += _step_names(steps)
    left = 0.15 + _LETTER * max(map(len, names))
    height = 0.3 + sum(above) + sum(heights) + sum(below) + 0.3
    figure = Figure(figsize=(_WIDTH, height))
    figure.text(0.01, 1 - 0.2 / height, printable(heading), fontsize=10.5, weight="bold")
    top, axes = height - 0.3, []
    for high, head, foot in zip(heights, above, below, strict=True):
        top -= head + high
        width = _WIDTH - left - _RIGHT_MARGIN
        place = left / _WIDTH, top / height, width / _WIDTH, high / height
        axes.append(figure.add_axes(place))
        top -= foot
    for panel, axes_of_panel in zip(panels, axes, strict=False):
        _draw_panel(axes_of_panel, panel)
    if steps:
        _draw_steps(axes[-1], panels[-1].available, steps)
    figure.legend(handles=_mark_legend(panels), loc="lower left", ncols=3)
    return figure


def _lane_height(panel: DrawnAssignment) -> float:
    return min(_LANE, _LANES / panel.machines)


def _legend_lines(panel: DrawnAssignment) -> int:
    """Return the number of lines of a legend of blocks, which has two columns."""
    return -(-min(len(panel.blocks), _MAX_LISTED) // 2) + (len(panel.blocks) > _MAX_LISTED)


def _draw_panel(axes: Any, panel: DrawnAssignment) -> None:
    separate = panel.machines <= _MAX_SEPARATE
    high = _BAR_HEIGHT if separate else 1.0
    axes.set_title(f"{printable(panel.title)}\n{printable(panel.subtitle)}", fontsize="medium")
    axes.barh(panel.available, panel.rows, high, color=STORED)
    axes.barh(panel.away, panel.rows, high, color="white", edgecolor=FAINT, hatch="////", lw=0)
    if separate:
        _draw_blocks(axes, panel)
    else:
        _draw_image(axes, panel)
    _name_lanes(axes, panel)
    axes.set_xlim(0, panel.rows)
    axes.set_ylim(panel.machines + 0.5, 0.5)
    axes.text(1.01, 0, "row", transform=axes.transAxes, color=FAINT, va="top")
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=6)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False, bottom=separate)
    _list_blocks(axes, panel)


def _draw_blocks(axes: Any, panel: DrawnAssignment) -> None:
    """Draw each block on each of its machines, with its letter if there is room."""
    for f, block in enumerate(panel.blocks, start=1):
        rows = block.stop - block.start
        axes.barh(
            block.machines,
            rows,
            _BAR_HEIGHT,
            left=block.start,
            color=_colour(f),
            edgecolor="white",
            lw=0.8,
        )
        if rows * 50 > panel.rows * len(block_letter(f)) and _lane_height(panel) > _LANE / 2:
            for n in block.machines:
                middle = block.start + rows / 2
                axes.text(
                    middle, n, block_letter(f), ha="center", va="center_baseline", clip_on=True
                )
    for n, spans in panel.new.items():
        axes.broken_barh([(a, b - a) for a, b in spans], (n + 0.3, 0.12), color="black", lw=0)


def _draw_image(axes: Any, panel: DrawnAssignment) -> None:
    """Draw all blocks as one image, for many machines."""
    from matplotlib.colors import ListedColormap

    order = sorted(range(len(panel.blocks)), key=lambda k: panel.blocks[k].start)
    cells = np.full((panel.machines, len(order)), np.nan)
    for k, f in enumerate(order):
        cells[np.array(panel.blocks[f].machines) - 1, k] = f % len(BLOCKS)
    edges = [*(panel.blocks[f].start for f in order), panel.rows]
    lanes = np.arange(panel.machines + 1) + 0.5
    colours = ListedColormap(list(BLOCKS))
    most = len(BLOCKS) - 0.5
    axes.pcolormesh(edges, lanes, cells, cmap=colours, vmin=-0.5, vmax=most, rasterized=True)


def _name_lanes(axes: Any, panel: DrawnAssignment) -> None:
    """Label as many lanes as fit: machine at the left, number of rows at the right."""
    stride = -(-panel.machines // _MAX_NAMED)
    named = range(stride, panel.machines + 1, stride)
    axes.set_yticks(named, [_shorten(panel.labels[n - 1]) for n in named])
    right = axes.get_yaxis_transform()
    axes.text(1.01, 1.01, "rows", transform=axes.transAxes, color=FAINT, va="bottom")
    loads, away = panel.loads(), set(panel.away)
    for n in named:
        label = "preempted" if n in away else str(loads[n - 1])
        axes.text(1.01, n, label, transform=right, va="center_baseline")


def _list_blocks(axes: Any, panel: DrawnAssignment) -> None:
    """Add the legend of blocks, with their rows and machines."""
    from matplotlib.patches import Patch
    from matplotlib.transforms import blended_transform_factory

    handles = [
        Patch(
            color=_colour(f),
            label=f"{block_letter(f)}: {plural(block.stop - block.start, 'row')} on "
            f"machine{'s' * (len(block.machines) > 1)} {truncate(block.machines, 3)}",
        )
        for f, block in enumerate(panel.blocks[:_MAX_LISTED], start=1)
    ]
    more = len(panel.blocks) - len(handles)
    if more:
        handles.append(Patch(color="none", label=f"and {plural(more, 'block')} more"))
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=blended_transform_factory(axes.figure.transFigure, axes.transAxes),
        borderaxespad=3.2,  # in sizes of letters: below the numbers of the rows
        ncols=2,
    )


def _mark_legend(panels: Sequence[DrawnAssignment]) -> list[Any]:
    """Return the entries of the legend of other marks."""
    from matplotlib.patches import Patch

    shown = [Patch(color=STORED, label="stored, not computed")]
    if any(panel.away for panel in panels):
        shown.append(Patch(facecolor="white", edgecolor=FAINT, hatch="////", label="preempted"))
    if any(panel.new and panel.machines <= _MAX_SEPARATE for panel in panels):
        shown.append(Patch(color="black", label="black line: rows new to the machine"))
    return shown


def _draw_steps(
    axes: Any, available: Sequence[int], iterations: Sequence[Mapping[str, Any]]
) -> None:
    """Draw a row for each iteration, with the remaining load of each machine in a column."""
    shown, machines = iterations[:_MAX_STEPS], available[:_MAX_MACHINES]
    numbered = len(machines) <= _NUMBERED
    whole = max(Fraction(load) for load in iterations[0]["loads"])
    places = np.arange(len(machines))
    right = axes.get_yaxis_transform()
    for f, iteration in enumerate(shown, start=1):
        loads = iteration["loads"][: len(machines)]
        parts = [0.85 * float(Fraction(load) / whole) for load in loads]
        part = 0.85 * float(Fraction(iteration["alpha"]) / whole)
        taken = [part if n in iteration["machines"] else 0 for n in machines]
        axes.barh([f + 0.18] * len(parts), parts, 0.32, left=places, color="#b6bec7")
        axes.barh([f + 0.18] * len(parts), taken, 0.32, left=places, color=_colour(f))
        axes.text(1.01, f, str(iteration["total"]), transform=right, va="center_baseline")
        if numbered:
            for place, load in zip(places, loads, strict=True):
                axes.text(place, f - 0.05, str(load), va="bottom")
    axes.set_yticks(range(1, len(shown) + 1), _step_names(shown))
    stride = -(-len(machines) // _NUMBERED)
    axes.set_xticks(places[::stride], [f"m[{n}]" for n in machines[::stride]], ha="left")
    axes.text(1.01, 1.01, "L'", transform=axes.transAxes, color=FAINT, va="bottom")
    axes.set_xlim(0, len(machines))
    axes.set_ylim(len(shown) + 0.6, 0.4)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False, bottom=False, top=False, labeltop=True, labelbottom=False)
    unit = "fractions of a shard" if isinstance(iterations[0]["alpha"], str) else "rows"
    axes.set_title(f"Algorithm 1 step by step\nm: {unit} not yet assigned; L': their sum", pad=18)
    rest = [(len(iterations) - len(shown), "step"), (len(available) - len(machines), "machine")]
    left_out = " and ".join(plural(count, word) for count, word in rest if count)
    if left_out:
        axes.set_xlabel(f"and {left_out} more", loc="left")


def _step_names(iterations: Sequence[Mapping[str, Any]]) -> list[str]:
    machines_per_row = len(iterations[0]["machines"])
    return [
        f"{block_letter(f)}: alpha = {iteration['alpha']} = {_reason(iteration, machines_per_row)}"
        for f, iteration in enumerate(iterations[:_MAX_STEPS], start=1)
    ]


def _reason(iteration: Mapping[str, Any], machines_per_row: int) -> str:
    """Return which of its two bounds alpha_f equals."""
    if iteration["decided_by"] == "load":
        return f"m[{iteration['smallest']}]"
    part = "L'" if machines_per_row == 1 else f"L'/{machines_per_row}"
    return f"{part} - m[{iteration['next_largest']}]"


def _colour(f: int) -> str:
    return BLOCKS[(f - 1) % len(BLOCKS)]


def _shorten(label: str) -> str:
    label = printable(label)
    return label if len(label) <= _MAX_LABEL_LENGTH else f"{label[: _MAX_LABEL_LENGTH - 3]}..."
