"""Pictures of assignments, like the paper's Figure 1: a lane for each machine, rows along it.

A lane shows the rows that the machine stores. The blocks that it computes have colours and letters.
Preempted machines are hatched. An optional last panel shows the iterations of Algorithm 1, like the
paper's Figure 2: the remaining loads of machines, which each block reduces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cec_mpi.report.drawing.drawn_assignment import DrawnAssignment, block_letter
from cec_mpi.report.drawing.pictures import BLOCK_COLOURS, GREY, LIGHT_GREY
from cec_mpi.text import plural, printable, truncate

_WIDTH = 6.7  # inches
_MAX_LANE_HEIGHT, _MAX_LANES_HEIGHT = 0.28, 5.6  # inches
_TOP_MARGIN, _RIGHT_MARGIN, _LINE_HEIGHT, _LETTER_WIDTH = 0.5, 0.85, 0.2, 0.075  # inches
_BAR_HEIGHT = 0.83  # fraction of a lane; the rest is a gap
_MAX_LANES = 60  # more machines are drawn as one image
_MAX_LANE_LABELS = 40
_MAX_LEGEND_BLOCKS = 12
_MAX_LABEL_LENGTH = 22
_MAX_ITERATIONS, _MAX_MACHINES, _MAX_NUMBERS = 24, 24, 8  # in the panel of Algorithm 1


def draw(
    panels: Sequence[DrawnAssignment], heading: str, iterations: Sequence[Mapping[str, Any]] = ()
) -> Any:
    """Draw assignments in panels, one below the other.

    Parameters
    ----------
    panels : sequence of DrawnAssignment
    heading : str
    iterations : sequence of mapping
        The iterations of `explain_plan` for the last panel.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    heights = [_lane_height(p) * p.machines for p in panels]
    margins_above = [_TOP_MARGIN] * len(panels)
    margins_below = [0.55 + _LINE_HEIGHT * _legend_lines(p) for p in panels]
    names = [_shorten(label) for p in panels for label in p.labels]
    if iterations:
        heights.append(0.31 * min(len(iterations), _MAX_ITERATIONS))
        margins_above.append(_TOP_MARGIN + _LINE_HEIGHT)
        margins_below.append(0.3)
        names += _iteration_labels(iterations)
    left = 0.15 + _LETTER_WIDTH * max(map(len, names))
    height = 0.3 + sum(margins_above) + sum(heights) + sum(margins_below) + 0.3
    figure = Figure(figsize=(_WIDTH, height))
    figure.text(0.01, 1 - 0.2 / height, printable(heading), fontsize=10.5, weight="bold")
    bottom, axes = height - 0.3, []
    for panel_height, above, below in zip(heights, margins_above, margins_below, strict=True):
        bottom -= above + panel_height
        width = _WIDTH - left - _RIGHT_MARGIN
        position = left / _WIDTH, bottom / height, width / _WIDTH, panel_height / height
        axes.append(figure.add_axes(position))
        bottom -= below
    for panel, axes_of_panel in zip(panels, axes, strict=False):
        _draw_panel(axes_of_panel, panel)
    if iterations:
        _draw_iterations(axes[-1], panels[-1].available, iterations)
    figure.legend(handles=_legend_handles(panels), loc="lower left", ncols=3)
    return figure


def _lane_height(panel: DrawnAssignment) -> float:
    return min(_MAX_LANE_HEIGHT, _MAX_LANES_HEIGHT / panel.machines)


def _legend_lines(panel: DrawnAssignment) -> int:
    """Return the number of lines of the legend of blocks, which has two columns."""
    return -(-min(len(panel.blocks), _MAX_LEGEND_BLOCKS) // 2) + (
        len(panel.blocks) > _MAX_LEGEND_BLOCKS
    )


def _draw_panel(axes: Any, panel: DrawnAssignment) -> None:
    has_lanes = panel.machines <= _MAX_LANES
    bar_height = _BAR_HEIGHT if has_lanes else 1.0
    axes.set_title(f"{printable(panel.title)}\n{printable(panel.subtitle)}", fontsize="medium")
    axes.barh(panel.available, panel.rows, bar_height, color=LIGHT_GREY)
    axes.barh(
        panel.unavailable, panel.rows, bar_height, color="white", edgecolor=GREY, hatch="////", lw=0
    )
    if has_lanes:
        _draw_blocks(axes, panel)
    else:
        _draw_image(axes, panel)
    _label_lanes(axes, panel)
    axes.set_xlim(0, panel.rows)
    axes.set_ylim(panel.machines + 0.5, 0.5)
    axes.text(1.01, 0, "row", transform=axes.transAxes, color=GREY, va="top")
    axes.xaxis.get_major_locator().set_params(integer=True, nbins=6)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False, bottom=has_lanes)
    _add_block_legend(axes, panel)


def _draw_blocks(axes: Any, panel: DrawnAssignment) -> None:
    """Draw each block on each of its machines, with its letter if that fits."""
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
        if (
            rows * 50 > panel.rows * len(block_letter(f))
            and _lane_height(panel) > _MAX_LANE_HEIGHT / 2
        ):
            for n in block.machines:
                middle = block.start + rows / 2
                axes.text(
                    middle, n, block_letter(f), ha="center", va="center_baseline", clip_on=True
                )
    for n, spans in panel.new_rows.items():
        axes.broken_barh([(a, b - a) for a, b in spans], (n + 0.3, 0.12), color="black", lw=0)


def _draw_image(axes: Any, panel: DrawnAssignment) -> None:
    """Draw all blocks as one image, because there are many machines."""
    from matplotlib.colors import ListedColormap

    order = sorted(range(len(panel.blocks)), key=lambda k: panel.blocks[k].start)
    cells = np.full((panel.machines, len(order)), np.nan)
    for k, index in enumerate(order):
        cells[np.array(panel.blocks[index].machines) - 1, k] = index % len(BLOCK_COLOURS)
    edges = [*(panel.blocks[index].start for index in order), panel.rows]
    lanes = np.arange(panel.machines + 1) + 0.5
    colours = ListedColormap(list(BLOCK_COLOURS))
    vmax = len(BLOCK_COLOURS) - 0.5
    axes.pcolormesh(edges, lanes, cells, cmap=colours, vmin=-0.5, vmax=vmax, rasterized=True)


def _label_lanes(axes: Any, panel: DrawnAssignment) -> None:
    """Label as many lanes as fit: the machine on the left, its number of rows on the right."""
    stride = -(-panel.machines // _MAX_LANE_LABELS)
    labelled = range(stride, panel.machines + 1, stride)
    axes.set_yticks(labelled, [_shorten(panel.labels[n - 1]) for n in labelled])
    lane_transform = axes.get_yaxis_transform()
    axes.text(1.01, 1.01, "rows", transform=axes.transAxes, color=GREY, va="bottom")
    loads, unavailable = panel.loads(), set(panel.unavailable)
    for n in labelled:
        label = "preempted" if n in unavailable else str(loads[n - 1])
        axes.text(1.01, n, label, transform=lane_transform, va="center_baseline")


def _add_block_legend(axes: Any, panel: DrawnAssignment) -> None:
    """Add the legend of blocks with their rows and machines."""
    from matplotlib.patches import Patch
    from matplotlib.transforms import blended_transform_factory

    handles = [
        Patch(
            color=_colour(f),
            label=f"{block_letter(f)}: {plural(block.stop - block.start, 'row')} on "
            f"machine{'s' * (len(block.machines) > 1)} {truncate(block.machines, 3)}",
        )
        for f, block in enumerate(panel.blocks[:_MAX_LEGEND_BLOCKS], start=1)
    ]
    omitted = len(panel.blocks) - len(handles)
    if omitted:
        handles.append(Patch(color="none", label=f"and {plural(omitted, 'more block')}"))
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=blended_transform_factory(axes.figure.transFigure, axes.transAxes),
        borderaxespad=3.2,  # in font sizes: below the row numbers
        ncols=2,
    )


def _legend_handles(panels: Sequence[DrawnAssignment]) -> list[Any]:
    """Return the legend handles for stored rows, preempted machines and new rows."""
    from matplotlib.patches import Patch

    patches = [Patch(color=LIGHT_GREY, label="stored, not computed")]
    if any(panel.unavailable for panel in panels):
        patches.append(Patch(facecolor="white", edgecolor=GREY, hatch="////", label="preempted"))
    if any(panel.new_rows and panel.machines <= _MAX_LANES for panel in panels):
        patches.append(Patch(color="black", label="black line: rows new to the machine"))
    return patches


def _draw_iterations(
    axes: Any, available: Sequence[int], iterations: Sequence[Mapping[str, Any]]
) -> None:
    """Draw a row for each iteration and a column for the remaining load of each machine."""
    shown, machines = iterations[:_MAX_ITERATIONS], available[:_MAX_MACHINES]
    shows_numbers = len(machines) <= _MAX_NUMBERS
    max_load = max(Fraction(load) for load in iterations[0]["loads"])
    positions = np.arange(len(machines))
    lane_transform = axes.get_yaxis_transform()
    for f, iteration in enumerate(shown, start=1):
        loads = iteration["loads"][: len(machines)]
        widths = [0.85 * float(Fraction(load) / max_load) for load in loads]
        alpha_width = 0.85 * float(Fraction(iteration["alpha"]) / max_load)
        assigned_widths = [alpha_width if n in iteration["machines"] else 0 for n in machines]
        axes.barh([f + 0.18] * len(widths), widths, 0.32, left=positions, color="#b6bec7")
        axes.barh([f + 0.18] * len(widths), assigned_widths, 0.32, left=positions, color=_colour(f))
        axes.text(1.01, f, str(iteration["total"]), transform=lane_transform, va="center_baseline")
        if shows_numbers:
            for position, load in zip(positions, loads, strict=True):
                axes.text(position, f - 0.05, str(load), va="bottom")
    axes.set_yticks(range(1, len(shown) + 1), _iteration_labels(shown))
    stride = -(-len(machines) // _MAX_NUMBERS)
    axes.set_xticks(positions[::stride], [f"m[{n}]" for n in machines[::stride]], ha="left")
    axes.text(1.01, 1.01, "L'", transform=axes.transAxes, color=GREY, va="bottom")
    axes.set_xlim(0, len(machines))
    axes.set_ylim(len(shown) + 0.6, 0.4)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False, bottom=False, top=False, labeltop=True, labelbottom=False)
    unit = "fractions of a shard" if isinstance(iterations[0]["alpha"], str) else "rows"
    axes.set_title(f"Algorithm 1 step by step\nm: {unit} not yet assigned; L': their sum", pad=18)
    omitted_counts = [
        (len(iterations) - len(shown), "more step"),
        (len(available) - len(machines), "more machine"),
    ]
    omitted = " and ".join(plural(count, word) for count, word in omitted_counts if count)
    if omitted:
        axes.set_xlabel(f"and {omitted}", loc="left")


def _iteration_labels(iterations: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{block_letter(f)}: alpha = {iteration['alpha']} = {_format_bound(iteration)}"
        for f, iteration in enumerate(iterations[:_MAX_ITERATIONS], start=1)
    ]


def _format_bound(iteration: Mapping[str, Any]) -> str:
    """Return the bound that alpha_f equals."""
    machines_per_row = len(iteration["machines"])
    if iteration["decided_by"] == "load":
        return f"m[{iteration['smallest']}]"
    share = "L'" if machines_per_row == 1 else f"L'/{machines_per_row}"
    return f"{share} - m[{iteration['next_largest']}]"


def _colour(f: int) -> str:
    return BLOCK_COLOURS[(f - 1) % len(BLOCK_COLOURS)]


def _shorten(label: str) -> str:
    label = printable(label)
    return label if len(label) <= _MAX_LABEL_LENGTH else f"{label[: _MAX_LABEL_LENGTH - 3]}..."
