"""Algorithm 1 step by step below a scene, as the paper's Figure 2: loads that are used up.

A row for each iteration, a column for each machine: what it still has to be given is a bar,
of which a block takes its part in the block's colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from cec_mpi.drawing.scene import Box, Scene, Words, letter, role_of, text_width
from cec_mpi.text import plural

_MARGIN, _SMALL, _GAP = 16.0, 11.5, 12.0
_ROW, _BAR = 31.0, 9.0
_MOST_ROWS, _LEAST_COLUMN = 24, 9.0


def with_iterations(
    scene: Scene, available: Sequence[int], iterations: Sequence[Mapping[str, Any]]
) -> Scene:
    """A scene with a table below it.

    Parameters
    ----------
    scene : Scene
    available : (N_t,) sequence of int
    iterations : sequence of mapping
        Those of `explain_plan`.
    """
    copies = len(iterations[0]["machines"])
    shown = iterations[:_MOST_ROWS]
    reasons = [_reason(each, copies) for each in shown]
    boxes: list[Box] = []
    words: list[Words] = []
    y = scene.height + 10
    words.append(Words(_MARGIN, y, "Algorithm 1 step by step", 14))
    unit = "fractions of a shard" if isinstance(iterations[0]["alpha"], str) else "rows"
    words.append(
        Words(_MARGIN, y + 18, f"m: {unit} left to be given; L': their sum", _SMALL, "faint")
    )
    y += 44
    x_alpha = _MARGIN + _widest(["block"]) + _GAP
    x_reason = x_alpha + _widest(["alpha", *(str(each["alpha"]) for each in shown)]) + _GAP
    x = x_reason + _widest(["alpha is", *reasons]) + _GAP
    x_total = scene.width - _MARGIN
    x_end = x_total - _widest(["L'", *(str(each["total"]) for each in shown)]) - _GAP
    machines = available[: max(1, int((x_end - x) / _LEAST_COLUMN))]
    column = (x_end - x) / len(machines)
    numbers = [str(load) for each in shown for load in each["loads"][: len(machines)]]
    numbered = _widest([*numbers, f"m[{available[-1]}]"]) + 4 <= column
    for place, text, anchor in (
        (_MARGIN, "block", "start"),
        (x_alpha, "alpha", "start"),
        (x_reason, "alpha is", "start"),
        (x_total, "L'", "end"),
    ):
        words.append(Words(place, y, text, _SMALL, "faint", anchor))  # type: ignore[arg-type]
    if numbered:
        for k, n in enumerate(machines):
            words.append(Words(x + k * column, y, f"m[{n}]", _SMALL, "faint"))
    else:
        words.append(Words(x, y, f"m[{machines[0]}] ..", _SMALL, "faint"))
        words.append(Words(x_end, y, f".. m[{machines[-1]}]", _SMALL, "faint", "end"))
    whole = max(Fraction(load) for load in iterations[0]["loads"])
    for f, (each, reason) in enumerate(zip(shown, reasons, strict=True), start=1):
        y += 8
        boxes.append(Box(_MARGIN, y, 22, 14, role_of(f), True))
        words.append(Words(_MARGIN + 11, y + 11, letter(f), _SMALL, "on block", "middle"))
        words.append(Words(x_alpha, y + 11, str(each["alpha"]), _SMALL, bold=True))
        words.append(Words(x_reason, y + 11, reason, _SMALL))
        words.append(Words(x_total, y + 11, str(each["total"]), _SMALL, anchor="end"))
        for k, n in enumerate(machines):
            load = float(Fraction(each["loads"][k]) / whole)
            taken = float(Fraction(each["alpha"]) / whole) if n in each["machines"] else 0.0
            left = x + k * column
            if numbered:
                words.append(Words(left, y + 9, str(each["loads"][k]), _SMALL))
            for part, role in ((load, "left"), (taken, role_of(f))):
                box = _bar(left, y, column, part, numbered)
                if part:
                    boxes.append(Box(*box, role, numbered and role != "left"))
        y += _ROW - 8
    y += 6
    notes = []
    if len(iterations) > len(shown):
        notes.append(plural(len(iterations) - len(shown), "step"))
    if len(available) > len(machines):
        notes.append(f"m of {plural(len(available) - len(machines), 'machine')}")
    if notes:
        y += 14
        words.append(Words(_MARGIN, y, f"and {' and '.join(notes)} more", _SMALL, "faint"))
    return replace(
        scene,
        height=y + _MARGIN,
        description=f"{scene.description} Algorithm 1 makes {plural(len(iterations), 'block')}.",
        boxes=[
            *scene.boxes,
            *sorted(boxes, key=lambda box: (box.role != "left", box.role, box.outlined)),
        ],
        words=[*scene.words, *words],
    )


def _bar(
    x: float, y: float, column: float, part: float, lying: bool
) -> tuple[float, float, float, float]:
    """Where the bar of a load is, in a row from y down: below its number, or upright."""
    if lying:
        return x, y + 12, part * (column - 8), _BAR
    return x, y + 22 - part * 22, column * 0.75, part * 22


def _widest(texts: Sequence[str]) -> float:
    return max(text_width(text, _SMALL) for text in texts)


def _reason(each: Mapping[str, Any], copies: int) -> str:
    """Which of the two bounds alpha_f is."""
    if each["decided_by"] == "load":
        return f"m[{each['smallest']}]"
    return f"L'{'' if copies == 1 else f'/{copies}'} - m[{each['next_largest']}]"
