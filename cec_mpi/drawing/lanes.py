"""Assignments as a scene, as the paper's Figure 1: a lane for each machine, its rows along it.

All of a lane is what the machine stores; what it computes is in colour, block by block, each
with its letter. Preempted machines are hatched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from cec_mpi.drawing.scene import Box, Scene, Words, letter, role_of, text_width
from cec_mpi.drawing.shares import Shares
from cec_mpi.text import few, listed, plural

_WIDTH, _MARGIN = 640.0, 16.0
_LANE, _LANES_HEIGHT, _LEAST_LANE = 27.0, 560.0, 0.4
_SEPARATE = 6.0  # lanes that are as high have gaps, outlines and marks
_LETTERED = 13.0  # and such have letters
_LEAST_OUTLINED = 3.0  # width of a block
_LABEL, _LONGEST_LABEL = 13.0, 22
_SMALL = 12.0
_LINE = 19.0
_TICKS = 5
_LISTED = 12  # blocks in a legend
_DESCRIBED = 20  # machines in a description


def draw(panels: Sequence[Shares], heading: str) -> Scene:
    """Assignments one below the other, along the same rows."""
    boxes: list[Box] = []
    words: list[Words] = []
    x = _MARGIN + max(text_width(label, _LABEL) for p in panels for label in _labels(p)) + 8
    right = _MARGIN + max(text_width(f"{p.rows}", _LABEL) for p in panels) * 1.07 + 8
    x_end = _WIDTH - max(right, text_width("rows", _LABEL) + _MARGIN + 8)
    y = _MARGIN + 16
    words.append(Words(_MARGIN, y, heading, 15, bold=True))
    y += 10
    for panel in panels:
        y = _panel(panel, x, x_end, y, boxes, words)
    y = _meanings(panels, y, boxes, words)
    description = " ".join(_described(panel) for panel in panels)
    return Scene(_WIDTH, y + _MARGIN - 6, heading, description, boxes, words)


def _panel(
    shares: Shares, x: float, x_end: float, y: float, boxes: list[Box], words: list[Words]
) -> float:
    """Draw one assignment from y down; returns where it ends."""
    y += _LINE + 4
    words.append(Words(_MARGIN, y, shares.title, 14))
    words.append(Words(_MARGIN, y + 18, shares.subtitle, _SMALL, "faint"))
    words.append(Words(_WIDTH - _MARGIN, y + 18, "rows", _SMALL, "faint", "end"))
    y += 26
    lane = max(_LEAST_LANE, min(_LANE, _LANES_HEIGHT / shares.machines))
    scale = (x_end - x) / shares.rows
    gap = 0.18 * lane if lane >= _SEPARATE else 0.0
    separate = bool(gap)
    away = shares.away
    boxes += [
        Box(x, y + (first - 1) * lane, x_end - x, count * lane - gap, role)
        for role, machines in (("stored", shares.available), ("away", away))
        for first, count in (_runs(machines) if not separate else [(n, 1) for n in machines])
    ]
    for f, block in sorted(enumerate(shares.blocks, start=1), key=lambda each: role_of(each[0])):
        left, width = x + block.start * scale, (block.stop - block.start) * scale
        name = letter(f)
        for first, count in [(n, 1) for n in block.machines] if separate else _runs(block.machines):
            top = y + (first - 1) * lane
            outlined = separate and width >= _LEAST_OUTLINED
            boxes.append(Box(left, top, width, count * lane - gap, role_of(f), outlined))
            if lane >= _LETTERED and text_width(name, _SMALL) + 2 <= width:
                middle = top + (lane - gap) / 2 + 3.4
                words.append(Words(left + width / 2, middle, name, _SMALL, "on block", "middle"))
    if separate:
        for n, spans in shares.new.items():
            high = max(1.5, 0.12 * lane)
            bottom = y + n * lane - gap - 0.08 * lane
            boxes += [
                Box(x + start * scale, bottom - high, (stop - start) * scale, high, "new")
                for start, stop in spans
            ]
    _name_lanes(shares, x, x_end, y, lane, gap, boxes, words)
    y += shares.machines * lane
    y = _axis(shares.rows, x, x_end, y, boxes, words)
    return _legend(shares, y, boxes, words)


def _name_lanes(
    shares: Shares,
    x: float,
    x_end: float,
    y: float,
    lane: float,
    gap: float,
    boxes: list[Box],
    words: list[Words],
) -> None:
    """Names of machines and rows that they compute, as many as there is room for."""
    every = next(step for step in _round_numbers() if step * lane >= _LETTERED)
    size = min(_LABEL, max(lane * 0.62, 10.5))
    loads, away = shares.loads(), set(shares.away)
    for n, label in enumerate(_labels(shares), start=1):
        if n % every:
            continue
        middle = y + (n - 1) * lane + (lane - gap) / 2 + 0.35 * size
        words.append(Words(x - 8, middle, label, size, anchor="end"))
        load = "" if n in away else str(loads[n - 1])
        words.append(Words(_WIDTH - _MARGIN, middle, load, size, anchor="end"))
        if n in away and lane >= _LETTERED:
            width = text_width("preempted", _SMALL) + 8
            centre = (x + x_end) / 2
            boxes.append(Box(centre - width / 2, y + (n - 1) * lane, width, lane - gap, "paper"))
            words.append(Words(centre, middle - 0.2, "preempted", _SMALL, "faint", anchor="middle"))


def _axis(
    rows: int, x: float, x_end: float, y: float, boxes: list[Box], words: list[Words]
) -> float:
    y += 3
    boxes.append(Box(x, y, x_end - x, 1, "faint"))
    for row in _ticks(rows, x_end - x):
        place = x + row * (x_end - x) / rows
        boxes.append(Box(place - 0.5, y, 1, 5, "faint"))
        words.append(Words(place, y + 18, str(row), _SMALL, "faint", "middle"))
    words.append(Words(x - 8, y + 18, "row", _SMALL, "faint", "end"))
    return y + 24


def _legend(shares: Shares, y: float, boxes: list[Box], words: list[Words]) -> float:
    """Blocks, their rows and their machines, in columns."""
    entries = [
        (f, f"{plural(block.stop - block.start, 'row')} on {_named(block.machines)}")
        for f, block in enumerate(shares.blocks[:_LISTED], start=1)
    ]
    more = len(shares.blocks) - len(entries)
    widest = max(text_width(text, _SMALL) for _, text in entries) + 28
    columns = max(1, min(len(entries), 3, int((_WIDTH - 2 * _MARGIN) / widest)))
    lines = -(-len(entries) // columns)
    for k, (f, text) in enumerate(entries):
        left = _MARGIN + (k // lines) * (_WIDTH - 2 * _MARGIN) / columns
        base = y + (k % lines + 1) * _LINE
        boxes.append(Box(left, base - 12, 22, 14, role_of(f), True))
        words.append(Words(left + 11, base - 1.2, letter(f), _SMALL, "on block", "middle"))
        words.append(Words(left + 28, base - 1, text, _SMALL))
    y += lines * _LINE
    if more:
        y += _LINE
        words.append(Words(_MARGIN, y - 1, f"and {plural(more, 'block')} more", _SMALL, "faint"))
    return y + 6


def _named(machines: Sequence[int]) -> str:
    return f"machine{'s' * (len(machines) > 1)} {few(machines, 3)}"


def _meanings(panels: Sequence[Shares], y: float, boxes: list[Box], words: list[Words]) -> float:
    """What the other marks mean."""
    shown = [("stored", "stored, not computed")]
    if any(panel.away for panel in panels):
        shown.append(("away", "preempted"))
    if any(box.role == "new" for box in boxes):
        shown.append(("new", "new to the machine"))
    x = _MARGIN
    y += _LINE
    for role, text in shown:
        boxes.append(Box(x, y - 12, 22, 14, role if role != "new" else role_of(1), True))
        if role == "new":
            boxes.append(Box(x, y - 2.5, 22, 3, role))
        words.append(Words(x + 28, y - 1, text, _SMALL))
        x += 28 + text_width(text, _SMALL) + 20
    return y + 6


def _labels(shares: Shares) -> list[str]:
    """Names of machines, cut where they are long."""
    return [
        label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 3]}..."
        for label in shares.labels
    ]


def _runs(machines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbours among ascending machine numbers: the first of them, and how many."""
    for _, pairs in groupby(enumerate(machines), lambda pair: pair[1] - pair[0]):
        run = [n for _, n in pairs]
        yield run[0], len(run)


def _round_numbers() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, .."""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def _ticks(rows: int, width: float) -> list[int]:
    """Round numbers of rows, and the last one, as many as have room."""
    room = text_width(str(rows), _SMALL) * 1.07 + 14
    most = min(_TICKS, max(1, int(width / room)))
    step = next(each for each in _round_numbers() if each * most >= rows)
    return [*(row for row in range(0, rows, step) if (rows - row) * width >= room * rows), rows]


def _described(shares: Shares) -> str:
    """What a panel shows, in words."""
    away = shares.away
    gone = set(away)
    texts = [
        f"machine {n} computes {plural(load, 'row')}"
        for n, load in enumerate(shares.loads(), start=1)
        if n not in gone
    ]
    rest = (
        f" {plural(len(away), 'machine', 'is', 'are')} preempted: {few(away, 8)}." if away else ""
    )
    of = f"Of {plural(shares.rows, 'row')} {listed(texts, _DESCRIBED)}."
    return f"{shares.title}: {shares.subtitle}. {of}{rest}"
