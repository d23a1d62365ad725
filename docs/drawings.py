"""The drawings of docs/ideas, as SVG: python docs/drawings.py [DIRECTORY]."""

from __future__ import annotations

import contextlib
import doctest
import io
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from cec_mpi import make_code
from cec_mpi.core.plan.load import fractional_load, whole_row_load
from cec_mpi.drawing.scene import Box, Scene, Words
from cec_mpi.drawing.svg import svg

HERE = Path(__file__).parent
WIDTH, MARGIN = 640.0, 16.0
SPEEDS = {1: 2, 2: 2, 3: 3, 4: 3, 5: 4, 6: 4}  # the paper's example
RECOVERY = 3


def any_l_of_n() -> Scene:
    """X in parts, and shards that are mixes of them."""
    weights = abs(make_code(len(SPEEDS), RECOVERY).generator)
    boxes, words = [], [Words(MARGIN, 30, "X in three parts, and six shards", 15, bold=True)]
    part, top, left = 46.0, 58.0, 250.0
    for k in range(RECOVERY):
        y = top + 34 + k * part
        boxes.append(Box(MARGIN + 20, y, 130, part, f"block {k}", True))
        words.append(Words(MARGIN + 85, y + 28, f"part {k + 1} of X", 13, "on block", "middle"))
    words.append(Words(205, top + 34 + 1.5 * part + 6, "\u2192", 24, "faint", "middle"))
    for n, row in enumerate(weights):
        x, y = left + (n % 2) * 196, top + (n // 2) * (part + 26)
        words.append(Words(x, y - 5, f"shard of machine {n + 1}", 12))
        for k, weight in enumerate(row):
            width = 170 * weight / row.sum()
            if width > 0.5:
                boxes.append(Box(x, y, width, part, f"block {k}", True))
            x += width
    end = top + 3 * (part + 26)
    words.append(Words(MARGIN, end + 8, "Any three of the six shards give all of X.", 13))
    told = "Three parts of X; six shards as large as one part, each a mix of the three."
    return Scene(WIDTH, end + 24, "Any three of six shards are enough", told, boxes, words)


def theorem_1() -> Scene:
    """What machines compute of their shards in some times."""
    available = (1, 2, 3, 5)
    speeds = [SPEEDS[n] for n in available]
    best = fractional_load(speeds, RECOVERY)
    boxes, words = [], [Words(MARGIN, 30, "What machines compute in the time c", 15, bold=True)]
    height, top, column = 110.0, 84.0, 46.0
    told = []
    for panel, time in enumerate((best.c_star / 2, best.c_star, best.c_star * Fraction(3, 2))):
        loads = [min(Fraction(1), time * speed) for speed in speeds]
        x = MARGIN + 6 + panel * 206
        total = sum(loads)
        verdict = {-1: "too little", 0: "as needed", 1: "too much"}
        says = verdict[(total > RECOVERY) - (total < RECOVERY)]
        words.append(Words(x, top - 28, f"c = {time}", 14))
        words.append(Words(x, top - 11, f"together {total}: {says}", 12, "faint"))
        told.append(f"c = {time}: together {total}, {says}.")
        for k, (n, load) in enumerate(zip(available, loads, strict=True)):
            left, part = x + k * column, height * float(load)
            boxes.append(Box(left, top, column - 10, height, "stored"))
            boxes.append(Box(left, top + height - part, column - 10, part, f"block {k}", True))
            middle = left + (column - 10) / 2
            words.append(Words(middle, top + height - 8, str(load), 12, "on block", "middle"))
            words.append(Words(middle, top + height + 17, str(n), 12, anchor="middle"))
            words.append(Words(middle, top + height + 34, str(speeds[k]), 12, "faint", "middle"))
    words.append(
        Words(MARGIN + 6, top + height + 54, "machine, and below it its speed", 12, "faint")
    )
    title = "Theorem 1: the time in which three shards are computed"
    return Scene(WIDTH, top + height + 70, title, " ".join(told), boxes, words)


def whole_rows() -> Scene:
    """Loads in whole rows, beside those in fractions."""
    available, rows = (1, 2, 3, 5), 10
    speeds = [SPEEDS[n] for n in available]
    parts = fractional_load(speeds, RECOVERY).mu
    loads = whole_row_load(speeds, RECOVERY, rows).tolist()
    boxes, words = [], [Words(MARGIN, 30, "Shards of ten rows", 15, bold=True)]
    left, cell, told = 150.0, 30.0, []
    for k, (n, part, load) in enumerate(zip(available, parts, loads, strict=True)):
        y = 48.0 + k * 34
        words.append(Words(left - 10, y + 18, f"{n} (speed {speeds[k]})", 13, anchor="end"))
        for row in range(rows):
            role = f"block {k}" if row < load else "stored"
            boxes.append(Box(left + row * cell, y, cell - 2, 26, role, row < load))
        done = f"{load} rows, done at {load / speeds[k]:.2f}"
        words.append(Words(left + rows * cell + 14, y + 18, done, 13))
        boxes.append(Box(left + float(part) * rows * cell - 2, y - 3, 3, 32, "ink"))
        told.append(f"Machine {n}: {float(part) * rows:.2f} in fractions, {done}.")
    base = 48.0 + len(available) * 34 + 16
    boxes.append(Box(left, base - 13, 3, 17, "ink"))
    words.append(Words(left + 12, base, "what Theorem 1 says, in fractions", 12, "faint"))
    return Scene(WIDTH, base + 18, "Loads in whole rows", " ".join(told), boxes, words)


def adjoint() -> Scene:
    """The ways of X w and X'v."""
    boxes, words = [], [Words(MARGIN, 30, "Two directions, the same shards", 15, bold=True)]
    ways = {
        "X w": ("rank 0 sends w", "machines:", "rows times w", "rank 0 gathers,", "then decodes"),
        "X'v": ("rank 0 decodes v,", "machines:", "rows' times u", "answers are", "added up"),
    }
    for k, (name, (first, *middle, before, after)) in enumerate(ways.items()):
        y = 52.0 + k * 86
        words.append(Words(MARGIN, y + 36, name, 14, bold=True))
        begin = [first] if k == 0 else [first, "sends u"]
        for j, (lines, role) in enumerate(
            ((begin, "block 0"), (middle, "block 2"), ([before, after], "block 3"))
        ):
            x = 70.0 + j * 190
            boxes.append(Box(x, y, 150, 60, role, True))
            base = y + (34 if len(lines) == 1 else 26)
            for i, line in enumerate(lines):
                words.append(Words(x + 75, base + 18 * i, line, 13, "on block", "middle"))
            if j:
                words.append(Words(x - 20, y + 38, "\u2192", 22, "faint", "middle"))
    told = (
        "X w: rank 0 sends w, machines multiply rows of their shards, rank 0 gathers and decodes. "
        "X'v: rank 0 decodes v into u and sends it, machines multiply the same rows, transposed, "
        "and the answers are added up."
    )
    return Scene(WIDTH, 228, "X w and its adjoint", told, boxes, words)


def learning() -> Scene:
    """The simulation of learning.md: each step's time over the best one."""
    history = _names_of(HERE / "ideas" / "learning.md")["history"]
    boxes, words = [], [Words(MARGIN, 30, "Time of a step over the best one", 15, bold=True)]
    left, bottom, unit = 46.0, 200.0, 42.0
    column = (WIDTH - MARGIN - left) / len(history)
    for level in range(4):
        y = bottom - level * unit
        boxes.append(Box(left, y, WIDTH - MARGIN - left, 1, "stored"))
        words.append(Words(left - 8, y + 4, str(level), 12, "faint", "end"))
    for step, (_, over) in enumerate(history):
        role = "block 1" if over > 1.3 else "block 0"
        box = Box(left + step * column + 1, bottom - over * unit, column - 2, over * unit, role)
        boxes.append(box)
        if step % 10 == 0:
            place = left + (step + 0.5) * column
            words.append(Words(place, bottom + 17, str(step), 12, "faint", "middle"))
    words.append(Words(WIDTH - MARGIN, bottom + 17, "step", 12, "faint", "end"))
    boxes.append(Box(left, bottom - unit - 0.5, WIDTH - MARGIN - left, 1, "ink"))
    slow = [str(step) for step, (_, over) in enumerate(history) if over > 1.3]
    told = f"Near 1 but for steps {', '.join(slow)}."
    return Scene(WIDTH, bottom + 32, "Learning speeds", told, boxes, words)


def parity() -> Scene:
    """What answers show of a wrong one."""
    boxes, words = [], [Words(MARGIN, 30, "Machine 4 answers wrongly", 15, bold=True)]
    rows = (
        ((1, 2, 4), (), "3 answers always fit: nothing is seen"),
        ((1, 2, 3, 4), (), "4 do not fit: someone is wrong"),
        ((1, 2, 3, 4, 5), (4,), "without 4, and only then, the rest fit"),
    )
    for k, (machines, without, says) in enumerate(rows):
        y = 52.0 + k * 46
        for j, n in enumerate(machines):
            x = MARGIN + 4 + j * 52
            role = "away" if n in without else "block 1" if n == 4 else "block 0"
            boxes.append(Box(x, y, 42, 32, role, True))
            if n in without:
                boxes.append(Box(x + 11, y + 7, 20, 18, "paper"))
            letter = "ink" if n in without else "on block"
            words.append(Words(x + 21, y + 21, str(n), 14, letter, "middle"))
        words.append(Words(MARGIN + 4 + 5 * 52 + 12, y + 21, says, 13))
    told = " ".join(f"Of machines {', '.join(map(str, m))}: {says}." for m, _, says in rows)
    return Scene(WIDTH, 196, "Wrong answers with three of six machines enough", told, boxes, words)


def architecture() -> Scene:
    """Rooms, from the top down."""
    layers = (
        ("what people type", "cli  commands  testing"),
        ("a task from options to files", "run  doctor"),
        ("X as an operator, and what is computed", "linear_operator  tasks"),
        ("rank 0 and its stores", "session  master"),
        ("who says what to whom", "wire  roster  options"),
        ("one machine, and how ranks begin and end", "machine  processes"),
        ("shards, who is up, what happened", "store  availability  records"),
        ("mathematics: code, plan, speeds, accuracy", "core"),
    )
    boxes, words = [], [Words(MARGIN, 30, "Rooms: each uses those below it", 15, bold=True)]
    for k, (what, rooms) in enumerate(layers):
        y = 46.0 + k * 38
        boxes.append(Box(MARGIN, y, WIDTH - 2 * MARGIN, 32, f"block {k}", True))
        words.append(Words(MARGIN + 12, y + 21, rooms, 13, "on block", bold=True))
        words.append(Words(WIDTH - MARGIN - 12, y + 21, what, 13, "on block", "end"))
    told = "From the top: " + "; ".join(f"{rooms} ({what})" for what, rooms in layers) + "."
    return Scene(WIDTH, 46.0 + len(layers) * 38 + 8, "Rooms", told, boxes, words)


DRAWINGS = {
    "any-l-of-n": any_l_of_n,
    "theorem-1": theorem_1,
    "whole-rows": whole_rows,
    "adjoint": adjoint,
    "learning": learning,
    "parity": parity,
    "architecture": architecture,
}


def _names_of(page: Path) -> dict[str, Any]:
    """What the examples of a page have made."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(page.read_text()):
            exec(example.source, names)
    return names


def draw(directory: Path) -> None:
    """Write all of them."""
    for name, scene in DRAWINGS.items():
        (directory / f"{name}.svg").write_text(svg(scene()))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "images")
