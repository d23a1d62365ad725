"""The drawings of docs, by matplotlib: python docs/drawings.py [DIRECTORY]."""

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
    """X in parts, and shards that are mixes of them."""
    weights = abs(make_code(len(SPEEDS), RECOVERY).generator)
    figure, (parts, shards) = page("X in three parts, and six shards", 2.9, columns=(1, 1.8))
    for k in range(RECOVERY):
        parts.barh(k, 1, 1, color=BLOCK_COLOURS[k], edgecolor=INK)
        parts.text(0.5, k, f"part {k + 1} of X", ha="center", va="center")
    parts.set_ylim(RECOVERY + 1, -1.5)
    for n, row in enumerate(weights):
        ends = [sum(row[:k]) / row.sum() for k in range(RECOVERY)]
        shards.barh([n] * RECOVERY, row / row.sum(), 0.7, left=ends, color=BLOCK_COLOURS[:3])
    shards.set_yticks(range(len(SPEEDS)), [f"shard of machine {n}" for n in SPEEDS])
    shards.invert_yaxis()
    figure.supxlabel("Any three of the six shards give all of X.", x=0.01, ha="left")
    return figure


def theorem_1() -> Figure:
    """What machines compute of their shards in some times."""
    speeds = [SPEEDS[n] for n in AVAILABLE]
    best = fractional_load(speeds, RECOVERY)
    figure, panels = page("What machines compute in the time c", 2.7, columns=(1, 1, 1))
    for axes, time in zip(
        panels, (best.c_star / 2, best.c_star, best.c_star * Fraction(3, 2)), strict=True
    ):
        loads = [min(Fraction(1), time * speed) for speed in speeds]
        total = sum(loads)
        verdict = {-1: "too little", 0: "as needed", 1: "too much"}
        says = verdict[(total > RECOVERY) - (total < RECOVERY)]
        axes.set_title(f"c = {time}\ntogether {total}: {says}")
        places = range(len(loads))
        axes.bar(places, 1, 0.8, color=LIGHT_GREY)
        axes.bar(places, [float(load) for load in loads], 0.8, color=BLOCK_COLOURS[:4])
        for place, load in enumerate(loads):
            axes.text(place, 0.04, str(load), ha="center")
        names = [f"{n}\nspeed {speed}" for n, speed in zip(AVAILABLE, speeds, strict=True)]
        axes.set_xticks(places, names, fontsize=8)
    return figure


def round_to_rows() -> Figure:
    """Loads in whole rows, beside those in fractions."""
    rows = 10
    speeds = [SPEEDS[n] for n in AVAILABLE]
    parts = fractional_load(speeds, RECOVERY).mu
    loads = whole_row_load(speeds, RECOVERY, rows).tolist()
    figure, (axes,) = page("Shards of ten rows", 2.3)
    for k, (n, part, load) in enumerate(zip(AVAILABLE, parts, loads, strict=True)):
        for row in range(rows):
            colour = BLOCK_COLOURS[k] if row < load else LIGHT_GREY
            axes.barh(k, 0.94, 0.8, left=row, color=colour)
        axes.plot([float(part) * rows] * 2, [k - 0.5, k + 0.5], color=INK, lw=2.5)
        axes.text(rows + 0.2, k, f"{load} rows, done at {load / SPEEDS[n]:.2f}", va="center")
    names = [f"{n} (speed {SPEEDS[n]})" for n in AVAILABLE]
    axes.set_yticks(range(len(AVAILABLE)), names)
    axes.set_xlim(0, rows + 4)
    axes.invert_yaxis()
    figure.supxlabel("black lines: what Theorem 1 says, in fractions", x=0.01, ha="left")
    return figure


def adjoint() -> Figure:
    """The ways of X w and X'v."""
    ways = {
        "X w": ("rank 0 sends w", "machines:\nrows times w", "rank 0 gathers,\nthen decodes"),
        "X'v": ("rank 0 decodes v,\nsends u", "machines:\nrows' times u", "answers are\nadded up"),
    }
    figure, (axes,) = page("Two directions, the same shards", 2.0)
    for k, (name, steps) in enumerate(ways.items()):
        axes.text(0, k, name, weight="bold", va="center")
        for j, (text, colour) in enumerate(
            zip(steps, BLOCK_COLOURS[:1] + BLOCK_COLOURS[2:4], strict=True)
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
    """The simulation of learning.md: each step's time over the best one."""
    history = _names_of(HERE / "ideas" / "learning.md")["history"]
    figure, (axes,) = page("Time of a step over the best one", 2.3)
    over = [each for _, each in history]
    axes.bar(range(len(over)), over, color=[BLOCK_COLOURS[int(each > 1.3)] for each in over])
    axes.axhline(1, color=INK, lw=1)
    axes.set_xlim(-0.6, len(over) - 0.4)
    axes.set_yticks([0, 1, 2, 3])
    axes.set_xlabel("step")
    axes.set_xticks(range(0, len(over), 10))
    return figure


def errors() -> Figure:
    """The table of errors.md: errors by condition, and what accuracy says."""
    table = re.findall(r"^\| 1e(\d+) \|(.*)\|(.*)\|$", (HERE / "ideas/errors.md").read_text(), re.M)
    figure, panels = page("Errors over the size of the terms", 2.8, columns=(1, 1))
    shards = {"accuracy": 2.0**-23, "with sums\nin float32": 2.0**-20}
    kinds = {"float32": shards, "float64": {"accuracy": 2.0**-49}}
    for column, (axes, (title, answers)) in enumerate(zip(panels, kinds.items(), strict=True), 1):
        rows = [(int(row[0]), *map(float, row[column].split())) for row in table]
        decades, medians, largest = zip(*(row for row in rows if len(row) > 1), strict=True)
        middles = [10 ** (decade + 0.5) for decade in decades]
        axes.loglog(middles, medians, "o", color=BLOCK_COLOURS[0], label="median")
        axes.loglog(middles, largest, "o", color=BLOCK_COLOURS[1], label="largest")
        for (name, epsilons), look in zip(answers.items(), ("-", ":"), strict=False):
            axes.loglog(middles, [epsilons * n for n in middles], look, color=INK, label=name)
        axes.set_title(title)
        axes.set_xlabel("condition number")
        _decades(axes.set_xticks, decades[::3])
        _decades(axes.set_yticks, range(-8 if title == "float32" else -16, 0, 2))
        axes.minorticks_off()
        axes.legend(loc="upper left", fontsize=7, bbox_to_anchor=(1, 1))
    return figure


def _decades(set_ticks: Callable[..., Any], decades: Iterable[int]) -> None:
    set_ticks([10.0**each for each in decades], [f"1e{each}" for each in decades])


def parity() -> Figure:
    """What answers show of a wrong one."""
    rows = (
        ((1, 2, 4), (), "3 answers always fit: nothing is seen"),
        ((1, 2, 3, 4), (), "4 do not fit: someone is wrong"),
        ((1, 2, 3, 4, 5), (4,), "without 4, and only then, the rest fit"),
    )
    figure, (axes,) = page("Machine 4 answers wrongly", 1.8)
    for k, (machines, without, says) in enumerate(rows):
        for j, n in enumerate(machines):
            look = {"color": BLOCK_COLOURS[n == 4], "edgecolor": INK}
            if n in without:
                look = {"color": "white", "edgecolor": GREY, "hatch": "////"}
            axes.barh(k, 0.8, 0.75, left=j, **look)
            ground = {"facecolor": "white", "edgecolor": "none"} if n in without else None
            axes.text(j + 0.4, k, str(n), ha="center", va="center", bbox=ground)
        axes.text(5.2, k, says, va="center")
    axes.set_xlim(0, 10)
    axes.invert_yaxis()
    return figure


def architecture() -> Figure:
    """Rooms, from the top down."""
    layers = (
        ("what people type", "cli"),
        ("estimators; the page of a run, and what shows it live", "sklearn  report"),
        ("X for SciPy", "linear_operator"),
        ("runs on a clock; a store; solvers; Dask, Ray", "simulation  encoding  tasks  engines"),
        ("master, wires, sessions, machines, processes, records", "runtime"),
        ("shards on disk", "store"),
        ("the paper, codes, plans, elastic steps, speeds, accuracy", "core"),
    )
    figure, (axes,) = page("Rooms: each uses those below it", 2.9)
    for k, (what, rooms) in enumerate(layers):
        axes.barh(k, 1, 0.85, color=BLOCK_COLOURS[k])
        axes.text(0.02, k, rooms, weight="bold", va="center")
        axes.text(0.98, k, what, ha="right", va="center")
    axes.set_xlim(0, 1)
    axes.invert_yaxis()
    return figure


def preemption() -> Figure:
    """Four steps, in the second of which a machine is lost."""
    all_six = tuple(SPEEDS)
    left = tuple(n for n in SPEEDS if n != 4)
    figure, (axes,) = page("Machine 4 is killed in step 2, and joins again for step 4", 3.0)
    begin = 0.0
    for step, machines in enumerate((all_six, all_six, left, all_six), start=1):
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
                again = rows[4] / 3 / SPEEDS[n]
                axes.barh(
                    n, again, 0.7, left=begin + end + 2, color=BLOCK_COLOURS[1], edgecolor=INK
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
        "time; with an edge: rows of machine 4, computed again by others in the same step"
    )
    return figure


def sparse() -> Figure:
    """Copies of rows, and who computes them."""
    placement = ("123", "234", "345", "456", "156", "126")
    figure, (axes,) = page("Each part of the rows of X is on three of six machines", 2.6)
    for part, machines in enumerate(placement):
        for n in SPEEDS:
            is_stored = str(n) in machines
            is_asked = is_stored and n == (1, 3, 5, 4, 6, 2)[part]
            color = BLOCK_COLOURS[part] if is_asked else LIGHT_GREY if is_stored else "white"
            axes.barh(part, 0.94, 0.84, left=n - 0.5, color=color)
            if is_asked:
                axes.text(n - 0.03, part, "computes", ha="center", va="center", fontsize=8)
    axes.set_yticks(range(len(placement)), [f"part {part}" for part in range(1, 7)])
    axes.set_xticks(list(SPEEDS), [f"machine {n}" for n in SPEEDS])
    axes.invert_yaxis()
    axes.set_xlabel(
        "grey: stored, not computed; when a machine leaves, another one with a copy computes"
    )
    return figure


def losses() -> Figure:
    """States of a machine, and what leads from one to the next."""
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
        ("joining", "available", "opened its shard", 0),
        ("available", "late", "deadline", 0.25),
        ("late", "available", "answers", 0.25),
        ("late", "unresponsive", "10 deadlines", 0),
        ("available", "left", "SIGTERM", 0),
        ("available", "lost", "connection ends", 0),
        ("available", "excluded", "wrong answer", 0),
    )
    figure, (axes,) = page("States of a machine in an elastic run", 2.4)
    box = {"boxstyle": "round,pad=0.5", "edgecolor": INK}
    for name, (x, y) in states.items():
        color = BLOCK_COLOURS[3] if name == "available" else LIGHT_GREY
        axes.text(x, y, name, ha="center", va="center", bbox={**box, "facecolor": color})
    for start, end, label, bend in arrows:
        (x0, y0), (x1, y1) = states[start], states[end]
        look = {"arrowstyle": "->", "color": INK, "shrinkA": 24}
        look["shrinkB"] = max(24, 3.5 * len(end))  # points
        look["connectionstyle"] = f"arc3,rad={-bend}"
        axes.annotate("", (x1, y1), (x0, y0), arrowprops=look)
        up = 0.24 if bend and x1 < x0 else -0.24 if y0 == y1 else 0
        along = 0.5 if y0 == y1 else 0.6
        x, y = x0 + along * (x1 - x0), y0 + along * (y1 - y0) + up
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(x, y, label, ha="center", va="center", fontsize=7.5, bbox=ground)
    axes.set_xlim(-0.4, 3.4)
    axes.set_ylim(2.35, 0.6)
    return figure


PEERS = {  # traces of docs/performance.md: decoding over products, and for each source the time to
    # read X over the time between changes, and the time of restarting over that of a code
    "example": (0.0200, (0.0144, 1.06), (0.0718, 1.11), (0.2297, 1.27)),
    "nodes with names": (0.0217, (0.0286, 1.08), (0.1428, 1.15), (0.4568, 1.42)),
    "us-west-2a": (0.0229, (0.0020, 1.01), (0.0098, 1.00), (0.0313, 1.00)),
    "us-east-2b": (0.0217, (0.0029, 1.00), (0.0146, 1.00), (0.0466, 0.99)),
    "nine zones": (0.0164, (0.0078, 1.01), (0.0388, 1.02), (0.1242, 1.12)),
}
SOURCES = {"own disks": "o", "200 MB/s for each": "s", "1 GB/s for all": "^"}


def when_it_pays() -> Figure:
    """Where a code and restarting are even, with the traces as points."""
    figure, (axes,) = page("A code, or restarting at each change?", 4.2)
    low, right, high = 1e-3, 0.1, 1.0
    axes.set(xscale="log", yscale="log", xlim=(3e-3, right), ylim=(low, high))
    axes.plot([low, right], [low, right], color=INK, lw=1.2)
    axes.fill_between([low, right], [low, right], [high, high], color=LIGHT_GREY, lw=0)
    beside = {"example": (-8, -3), "nine zones": (-8, -3), "nodes with names": (8, -9)}
    for name, (decoding, *points) in PEERS.items():
        place = beside.get(name, (8, 1))
        side = "left" if place[0] > 0 else "right"
        for (reading, ratio), marker in zip(points, SOURCES.values(), strict=True):
            colour = BLOCK_COLOURS[0] if ratio > 1.05 else "white"
            axes.plot(decoding, reading, marker, color=colour, mec=INK, ms=7, lw=0)
            words = {"textcoords": "offset points", "ha": side}
            axes.annotate(f"{ratio:.2f}", (decoding, reading), place, **words)
    for (source, marker), height in zip(SOURCES.items(), (0.36, 0.23, 0.147), strict=True):
        axes.plot(3.7e-3, height, marker, color="white", mec=INK, ms=7)
        axes.annotate(
            f"X read from {source}", (3.7e-3, height), (9, -3), textcoords="offset points"
        )
    axes.text(3.5e-3, 0.6, "a code is faster", weight="bold")
    axes.text(0.092, 1.4e-3, "restarting is as fast", weight="bold", ha="right")
    axes.text(0.065, 0.075, "even", ha="right")
    axes.set_xticks([0.01, 0.1], ["1 %", "10 %"])
    axes.set_yticks([0.001, 0.01, 0.1, 1.0], ["0.1 %", "1 %", "10 %", "100 %"])
    axes.minorticks_off()
    axes.set_xlabel("time to decode, over the time of the products")
    axes.set_ylabel("time to bring X to the machines again,\nover the time between changes")
    return figure


DRAWINGS = {
    "preemption": preemption,
    "sparse": sparse,
    "losses": losses,
    "any-l-of-n": any_l_of_n,
    "theorem-1": theorem_1,
    "whole-rows": round_to_rows,
    "adjoint": adjoint,
    "learning": learning,
    "parity": parity,
    "errors": errors,
    "architecture": architecture,
    "when-it-pays": when_it_pays,
}


def page(title: str, height: float, columns: tuple[float, ...] = (1,)) -> tuple[Figure, Any]:
    """A figure as wide as the pages, and axes without frames beside each other."""
    figure = Figure(figsize=(6.7, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=10.5)
    axes = figure.subplots(1, len(columns), width_ratios=columns, squeeze=False)[0]
    for each in axes:
        each.spines[:].set_visible(False)
        each.tick_params(left=False, bottom=False)
        each.set(xticks=[], yticks=[])
    return figure, axes


def _names_of(page: Path) -> dict[str, Any]:
    """What the examples of a page have made."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(page.read_text()):
            exec(example.source, names)
    return names


def draw(directory: Path, kind: str = "svg") -> None:
    """Write all of them."""
    with picture_style():
        for name, drawing in DRAWINGS.items():
            (directory / f"{name}.{kind}").write_bytes(render_figure(drawing(), kind, name))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "images")
