"""Draw the figures of the documentation: python docs/drawings.py [DIRECTORY]."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from cec_mpi import make_code
from cec_mpi.core.plan.load import fractional_load, whole_row_load
from cec_mpi.report.drawing.pictures import (
    BLOCK_COLOURS,
    GREY,
    INK,
    LIGHT_GREY,
    picture_style,
    render_figure,
)

HERE = Path(__file__).parent
SPEEDS = {1: 2, 2: 2, 3: 3, 4: 3, 5: 4, 6: 4}  # the paper's example
RECOVERY = 3
AVAILABLE = (1, 2, 3, 5)


def any_l_of_n() -> Figure:
    """Draw the parts of X, and the shards, which are weighted sums of them."""
    weights = abs(make_code(len(SPEEDS), RECOVERY).generator)
    figure, (parts, shards) = make_figure("X in three parts, and six shards", 2.9, columns=(1, 1.8))
    for k in range(RECOVERY):
        parts.barh(k, 1, 1, color=BLOCK_COLOURS[k], edgecolor=INK)
        parts.text(0.5, k, f"part {k + 1} of X", ha="center", va="center")
    parts.set_ylim(RECOVERY + 1, -1.5)
    for n, row in enumerate(weights):
        ends = [sum(row[:k]) / row.sum() for k in range(RECOVERY)]
        shards.barh([n] * RECOVERY, row / row.sum(), 0.7, left=ends, color=BLOCK_COLOURS[:3])
    shards.set_yticks(range(len(SPEEDS)), [f"shard of machine {n}" for n in SPEEDS])
    shards.invert_yaxis()
    figure.supxlabel("Any three of the six shards are enough to recover X.", x=0.01, ha="left")
    return figure


def theorem_1() -> Figure:
    """Draw the fraction of its shard that each machine computes, for three times."""
    speeds = [SPEEDS[n] for n in AVAILABLE]
    best = fractional_load(speeds, RECOVERY)
    figure, panels = make_figure(
        "Fraction of its shard that each machine computes in the time c", 2.7, columns=(1, 1, 1)
    )
    for axes, time in zip(
        panels, (best.c_star / 2, best.c_star, best.c_star * Fraction(3, 2)), strict=True
    ):
        loads = [min(Fraction(1), time * speed) for speed in speeds]
        total = sum(loads)
        verdicts = {-1: "too little", 0: "enough", 1: "too much"}
        verdict = verdicts[(total > RECOVERY) - (total < RECOVERY)]
        axes.set_title(f"c = {time}\nin total {total}: {verdict}")
        positions = range(len(loads))
        axes.bar(positions, 1, 0.8, color=LIGHT_GREY)
        axes.bar(positions, [float(load) for load in loads], 0.8, color=BLOCK_COLOURS[:4])
        for position, load in enumerate(loads):
            axes.text(position, 0.04, str(load), ha="center")
        names = [f"{n}\nspeed {speed}" for n, speed in zip(AVAILABLE, speeds, strict=True)]
        axes.set_xticks(positions, names, fontsize=8)
    return figure


def whole_rows() -> Figure:
    """Draw the loads in whole rows, and the fractional loads of Theorem 1."""
    rows = 10
    speeds = [SPEEDS[n] for n in AVAILABLE]
    fractions = fractional_load(speeds, RECOVERY).mu
    loads = whole_row_load(speeds, RECOVERY, rows).tolist()
    figure, (axes,) = make_figure("Shards of ten rows", 2.3)
    for k, (n, fraction, load) in enumerate(zip(AVAILABLE, fractions, loads, strict=True)):
        for row in range(rows):
            colour = BLOCK_COLOURS[k] if row < load else LIGHT_GREY
            axes.barh(k, 0.94, 0.8, left=row, color=colour)
        axes.plot([float(fraction) * rows] * 2, [k - 0.5, k + 0.5], color=INK, lw=2.5)
        axes.text(rows + 0.2, k, f"{load} rows, done at {load / SPEEDS[n]:.2f}", va="center")
    names = [f"{n} (speed {SPEEDS[n]})" for n in AVAILABLE]
    axes.set_yticks(range(len(AVAILABLE)), names)
    axes.set_xlim(0, rows + 4)
    axes.invert_yaxis()
    figure.supxlabel("black lines: the fractional loads of Theorem 1", x=0.01, ha="left")
    return figure


def adjoint() -> Figure:
    """Draw the phases of a step, for X w and for X'v."""
    products = {
        "X w": ("rank 0 sends w", "machines:\nrows times w", "rank 0 gathers,\nthen decodes"),
        "X'v": (
            "rank 0 decodes,\nthen sends u",
            "machines:\nrows' times u",
            "answers are\nadded up",
        ),
    }
    figure, (axes,) = make_figure("Two products with the same shards", 2.0)
    for k, (name, phases) in enumerate(products.items()):
        axes.text(0, k, name, weight="bold", va="center")
        for j, (text, colour) in enumerate(
            zip(phases, BLOCK_COLOURS[:1] + BLOCK_COLOURS[2:4], strict=True)
        ):
            x = 0.8 + 1.6 * j
            axes.barh(k, 1.2, 0.7, left=x, color=colour, edgecolor=INK)
            axes.text(x + 0.6, k, text, ha="center", va="center")
            if j:
                arrow = {"arrowstyle": "->", "color": GREY}
                axes.annotate("", (x - 0.05, k), (x - 0.35, k), arrowprops=arrow)
    axes.set_xlim(0, 5.3)
    axes.set_ylim(1.6, -0.6)
    return figure


def learning() -> Figure:
    """Draw the simulation of learning.md: the time of each step over the best possible time."""
    history = _run_examples(HERE / "ideas" / "learning.md")["history"]
    figure, (axes,) = make_figure("Time of each step over the best possible time", 2.3)
    ratios = [ratio for _, ratio in history]
    colours = [BLOCK_COLOURS[int(ratio > 1.3)] for ratio in ratios]
    axes.bar(range(len(ratios)), ratios, color=colours)
    axes.axhline(1, color=INK, lw=1)
    axes.set_xlim(-0.6, len(ratios) - 0.4)
    axes.set_yticks([0, 1, 2, 3])
    axes.set_xlabel("step")
    axes.set_xticks(range(0, len(ratios), 10))
    return figure


def errors() -> Figure:
    """Draw the table of errors.md: errors by condition number, and X.product_error."""
    table = re.findall(r"^\| 1e(\d+) \|(.*)\|(.*)\|$", (HERE / "ideas/errors.md").read_text(), re.M)
    title = "Errors relative to the magnitude of the terms"
    figure, panels = make_figure(title, 2.8, columns=(1, 1))
    float32 = {"X.product_error": 2.0**-23, "with sums\nin float32": 2.0**-20}
    lines = {"float32": float32, "float64": {"X.product_error": 2.0**-49}}
    for column, (axes, (dtype, slopes)) in enumerate(zip(panels, lines.items(), strict=True), 1):
        rows = [(int(row[0]), *map(float, row[column].split())) for row in table]
        decades, medians, largest = zip(*(row for row in rows if len(row) > 1), strict=True)
        middles = [10 ** (decade + 0.5) for decade in decades]
        axes.loglog(middles, medians, "o", color=BLOCK_COLOURS[0], label="median")
        axes.loglog(middles, largest, "o", color=BLOCK_COLOURS[1], label="largest")
        for (name, slope), style in zip(slopes.items(), ("-", ":"), strict=False):
            axes.loglog(middles, [slope * x for x in middles], style, color=INK, label=name)
        axes.set_title(dtype)
        axes.set_xlabel("condition number")
        _set_decades(axes.set_xticks, decades[::3])
        _set_decades(axes.set_yticks, range(-8 if dtype == "float32" else -16, 0, 2))
        axes.minorticks_off()
        axes.legend(loc="upper left", fontsize=7, bbox_to_anchor=(1, 1))
    return figure


def _set_decades(set_ticks: Callable[..., Any], decades: Iterable[int]) -> None:
    set_ticks([10.0**decade for decade in decades], [f"1e{decade}" for decade in decades])


def parity() -> Figure:
    """Draw which sets of answers reveal a wrong one."""
    rows = (
        ((1, 2, 4), (), "3 answers always fit: no error is seen"),
        ((1, 2, 3, 4), (), "4 do not fit: an answer is wrong"),
        ((1, 2, 3, 4, 5), (4,), "the others fit only without machine 4"),
    )
    figure, (axes,) = make_figure("Machine 4 answers wrongly", 1.8)
    for k, (machines, left_out, verdict) in enumerate(rows):
        for j, n in enumerate(machines):
            style = {"color": BLOCK_COLOURS[n == 4], "edgecolor": INK}
            if n in left_out:
                style = {"color": "white", "edgecolor": GREY, "hatch": "////"}
            axes.barh(k, 0.8, 0.75, left=j, **style)
            background = {"facecolor": "white", "edgecolor": "none"} if n in left_out else None
            axes.text(j + 0.4, k, str(n), ha="center", va="center", bbox=background)
        axes.text(5.2, k, verdict, va="center")
    axes.set_xlim(0, 10)
    axes.invert_yaxis()
    return figure


def architecture() -> Figure:
    """Draw the packages in layers, from the top down."""
    layers = (
        ("commands and options", "cli"),
        ("estimators; reports and live views of runs", "sklearn  report"),
        ("X as a linear operator of SciPy", "linear_operator"),
        ("simulated runs; encoding; solvers; Dask, Ray", "simulation  encoding  tasks  engines"),
        ("master, communication, sessions, machines, processes, records", "runtime"),
        ("shards on disk", "store"),
        ("the paper, codes, plans, elastic steps, speeds, accuracy", "core"),
    )
    figure, (axes,) = make_figure("Packages: each imports only those below it", 2.9)
    for k, (purpose, packages) in enumerate(layers):
        axes.barh(k, 1, 0.85, color=BLOCK_COLOURS[k])
        axes.text(0.02, k, packages, weight="bold", va="center")
        axes.text(0.98, k, purpose, ha="right", va="center")
    axes.set_xlim(0, 1)
    axes.invert_yaxis()
    return figure


def preemption() -> Figure:
    """Draw four steps; a machine is lost in the second one."""
    all_six = tuple(SPEEDS)
    remaining = tuple(n for n in SPEEDS if n != 4)
    figure, (axes,) = make_figure("Machine 4 is killed in step 2 and joins again for step 4", 3.0)
    begin = 0.0
    for step, machines in enumerate((all_six, all_six, remaining, all_six), start=1):
        rows = dict(
            zip(machines, whole_row_load([SPEEDS[n] for n in machines], 3, 420), strict=True)
        )
        end = max(rows[n] / SPEEDS[n] for n in machines)
        for n in machines:
            seconds = rows[n] / SPEEDS[n]
            if step == 2 and n == 4:
                axes.barh(n, seconds / 2, 0.7, left=begin, color=BLOCK_COLOURS[step - 1])
                axes.text(begin + seconds / 2 + 2, n, "killed", va="center", fontsize=8)
            else:
                axes.barh(n, seconds, 0.7, left=begin, color=BLOCK_COLOURS[step - 1])
            if step == 2 and n in (3, 5, 6):
                extra = rows[4] / 3 / SPEEDS[n]
                axes.barh(
                    n, extra, 0.7, left=begin + end + 2, color=BLOCK_COLOURS[1], edgecolor=INK
                )
        if step == 2:
            end += 2 + rows[4] / 3 / SPEEDS[3]
        axes.text(begin + end / 2, 0.2, f"step {step}", ha="center")
        begin += end + 8
        axes.axvline(begin - 4, color=GREY, lw=0.8)
    axes.barh(4, 84, 0.7, left=70 + 8 + 93.3 + 8 + 2, color="white", edgecolor=GREY, hatch="////")
    axes.set_yticks(all_six, [f"{n} (speed {SPEEDS[n]})" for n in all_six])
    axes.set_ylim(6.6, -0.3)
    axes.set_xlabel(
        "time; outlined: rows of machine 4, which other machines compute in the same step"
    )
    return figure


def sparse() -> Figure:
    """Draw which machines store each part of the rows, and which one computes it."""
    placement = ("123", "234", "345", "456", "156", "126")
    figure, (axes,) = make_figure("Each part of the rows of X is on three of six machines", 2.6)
    for part, machines in enumerate(placement):
        for n in SPEEDS:
            is_stored = str(n) in machines
            is_computed = is_stored and n == (1, 3, 5, 4, 6, 2)[part]
            color = BLOCK_COLOURS[part] if is_computed else LIGHT_GREY if is_stored else "white"
            axes.barh(part, 0.94, 0.84, left=n - 0.5, color=color)
            if is_computed:
                axes.text(n - 0.03, part, "computes", ha="center", va="center", fontsize=8)
    axes.set_yticks(range(len(placement)), [f"part {part}" for part in range(1, 7)])
    axes.set_xticks(list(SPEEDS), [f"machine {n}" for n in SPEEDS])
    axes.invert_yaxis()
    axes.set_xlabel(
        "grey: only stored; if a machine leaves, another one with a copy computes its part"
    )
    return figure


def losses() -> Figure:
    """Draw the states of a machine, and the events that change them."""
    states = {
        "joining": (0, 1),
        "available": (1, 1),
        "late": (2, 1),
        "unresponsive": (3, 1),
        "left": (0, 2),
        "lost": (1, 2),
        "excluded": (2, 2),
    }
    arrows = (
        ("joining", "available", "shard opened", 0),
        ("available", "late", "deadline", 0.25),
        ("late", "available", "answer", 0.25),
        ("late", "unresponsive", "10 deadlines", 0),
        ("available", "left", "SIGTERM", 0),
        ("available", "lost", "connection ends", 0),
        ("available", "excluded", "wrong answer", 0),
    )
    figure, (axes,) = make_figure("States of a machine in an elastic run", 2.4)
    box = {"boxstyle": "round,pad=0.5", "edgecolor": INK}
    for name, (x, y) in states.items():
        color = BLOCK_COLOURS[3] if name == "available" else LIGHT_GREY
        axes.text(x, y, name, ha="center", va="center", bbox={**box, "facecolor": color})
    for start, end, label, bend in arrows:
        (x0, y0), (x1, y1) = states[start], states[end]
        style = {"arrowstyle": "->", "color": INK, "shrinkA": 24}
        style["shrinkB"] = max(24, 3.5 * len(end))  # points
        style["connectionstyle"] = f"arc3,rad={-bend}"
        axes.annotate("", (x1, y1), (x0, y0), arrowprops=style)
        shift = 0.24 if bend and x1 < x0 else -0.24 if y0 == y1 else 0
        fraction = 0.5 if y0 == y1 else 0.6  # of the arrow, before its label
        x, y = x0 + fraction * (x1 - x0), y0 + fraction * (y1 - y0) + shift
        background = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(x, y, label, ha="center", va="center", fontsize=7.5, bbox=background)
    axes.set_xlim(-0.4, 3.4)
    axes.set_ylim(2.35, 0.6)
    return figure


# For each trace of docs/performance.md: the time to decode over that of the products, and for each
# source the time to read X over that between changes, and the time to restart over that of a code.
TRACES = {
    "example": (0.0200, (0.0144, 1.06), (0.0718, 1.11), (0.2297, 1.27)),
    "nodes with names": (0.0217, (0.0286, 1.08), (0.1428, 1.15), (0.4568, 1.42)),
    "us-west-2a": (0.0229, (0.0020, 1.01), (0.0098, 1.00), (0.0313, 1.00)),
    "us-east-2b": (0.0217, (0.0029, 1.00), (0.0146, 1.00), (0.0466, 0.99)),
    "nine zones": (0.0164, (0.0078, 1.01), (0.0388, 1.02), (0.1242, 1.12)),
}
SOURCES = {"from local disks": "o", "at 200 MB/s by each": "s", "at 1 GB/s by all": "^"}


def when_it_pays() -> Figure:
    """Draw the line where a code and restarting take equally long, and a point for each trace."""
    figure, (axes,) = make_figure("A code, or restarting at each change?", 4.2)
    low, right, high = 1e-3, 0.1, 1.0
    axes.set(xscale="log", yscale="log", xlim=(3e-3, right), ylim=(low, high))
    axes.plot([low, right], [low, right], color=INK, lw=1.2)
    axes.fill_between([low, right], [low, right], [high, high], color=LIGHT_GREY, lw=0)
    offsets = {"example": (-8, -3), "nine zones": (-8, -3), "nodes with names": (8, -9)}
    for name, (decoding, *points) in TRACES.items():
        offset = offsets.get(name, (8, 1))
        alignment = "left" if offset[0] > 0 else "right"
        for (reading, ratio), marker in zip(points, SOURCES.values(), strict=True):
            colour = BLOCK_COLOURS[0] if ratio > 1.05 else "white"
            axes.plot(decoding, reading, marker, color=colour, mec=INK, ms=7, lw=0)
            style = {"textcoords": "offset points", "ha": alignment}
            axes.annotate(f"{ratio:.2f}", (decoding, reading), offset, **style)
    for (source, marker), height in zip(SOURCES.items(), (0.36, 0.23, 0.147), strict=True):
        axes.plot(3.7e-3, height, marker, color="white", mec=INK, ms=7)
        axes.annotate(f"X is read {source}", (3.7e-3, height), (9, -3), textcoords="offset points")
    axes.text(3.5e-3, 0.6, "a code is faster", weight="bold")
    axes.text(0.092, 1.4e-3, "restarting is as fast", weight="bold", ha="right")
    axes.text(0.065, 0.075, "equal", ha="right")
    axes.set_xticks([0.01, 0.1], ["1 %", "10 %"])
    axes.set_yticks([0.001, 0.01, 0.1, 1.0], ["0.1 %", "1 %", "10 %", "100 %"])
    axes.minorticks_off()
    axes.set_xlabel("time to decode over the time of the products")
    axes.set_ylabel("time to bring X to the machines again\nover the time between changes")
    return figure


DRAWINGS = {
    "preemption": preemption,
    "sparse": sparse,
    "losses": losses,
    "any-l-of-n": any_l_of_n,
    "theorem-1": theorem_1,
    "whole-rows": whole_rows,
    "adjoint": adjoint,
    "learning": learning,
    "parity": parity,
    "errors": errors,
    "architecture": architecture,
    "when-it-pays": when_it_pays,
}


def make_figure(title: str, height: float, columns: tuple[float, ...] = (1,)) -> tuple[Figure, Any]:
    """Return a figure as wide as the pages, and axes without frames in one row."""
    figure = Figure(figsize=(6.7, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=10.5)
    axes = figure.subplots(1, len(columns), width_ratios=columns, squeeze=False)[0]
    for panel in axes:
        panel.spines[:].set_visible(False)
        panel.tick_params(left=False, bottom=False)
        panel.set(xticks=[], yticks=[])
    return figure, axes


def _run_examples(page: Path) -> dict[str, Any]:
    """Run the examples of a page; return their variables."""
    variables: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(page.read_text()):
            exec(example.source, variables)
    return variables


def draw(directory: Path, kind: str = "svg") -> None:
    """Write all drawings into a directory."""
    with picture_style():
        for name, drawing in DRAWINGS.items():
            (directory / f"{name}.{kind}").write_bytes(render_figure(drawing(), kind, name))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "images")
