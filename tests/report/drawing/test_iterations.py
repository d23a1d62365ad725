"""Algorithm 1 as a table of text, and as a picture."""

from fractions import Fraction

import pytest

from cec_mpi.cli.commands.explain import explain_plan
from cec_mpi.core.plan.assignment import Block
from cec_mpi.report.drawing.drawn_assignment import DrawnAssignment
from cec_mpi.report.drawing.iterations import iterations_table
from cec_mpi.report.drawing.lanes import draw
from cec_mpi.report.drawing.pictures import picture_style

AVAILABLE = (1, 2, 3, 5, 6)
PLAN = explain_plan(
    AVAILABLE, [Fraction(s) for s in (2, 2, 3, 3, 4, 4)], 3, 420, exact=True, steps=True
)


def test_a_narrow_terminal_counts_omitted_machines():
    lines = iterations_table(AVAILABLE, PLAN["iterations"], width=80)
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("m[1]  m[2]   L'")
    assert lines[1].endswith(" 2/5   2/5    3")
    assert lines[-1].startswith("(m of 3 more machines:")


def test_steps_of_one_machine():
    plan = explain_plan((1,), [Fraction(1)], 1, 4, steps=True)
    (_, line, _) = iterations_table((1,), plan["iterations"])
    assert " ".join(line.split()) == "1 4 1 m[1] = 4, of the last machine 4 4"


def steps_of(plan, machines):
    """Return the axes of the steps in a picture, and their texts."""
    blocks = [
        Block(each["start"], each["stop"], tuple(each["machines"])) for each in plan["blocks"]
    ]
    names = [str(n) for n in range(1, machines + 1)]
    shares = DrawnAssignment(
        machines, plan["rows"], tuple(plan["available"]), blocks, "", "", names
    )
    with picture_style():
        figure = draw([shares], "Heading", plan["iterations"])
    axes = figure.axes[-1]
    said = [*axes.texts, *axes.get_yticklabels(), *axes.get_xticklabels(), axes.xaxis.label]
    return axes, [text.get_text() for text in said]


def test_figure_2_as_a_picture():
    axes, said = steps_of(PLAN, 6)
    for text in ("b: alpha = 1/5 = L'/3 - m[5]", "m[1]", "m[6]", "9/5", "6/5", "3/5"):
        assert text in said
    widths = [[bar.get_width() for bar in bars] for bars in axes.containers]
    unit = max(widths[0]) / 0.8  # of 4/5
    loads, taken = widths[::2], widths[1::2]
    for each, left, parts in zip(PLAN["iterations"], loads, taken, strict=True):
        assert [width / unit for width in left] == pytest.approx(
            [float(Fraction(load)) for load in each["loads"]]
        )
        alpha = float(Fraction(each["alpha"]))
        computing = [alpha if n in each["machines"] else 0 for n in AVAILABLE]
        assert [width / unit for width in parts] == pytest.approx(computing)


def test_a_picture_counts_omitted_steps():
    speeds = [Fraction(1 + (7 * n % 31)) for n in range(200)]
    plan = explain_plan(tuple(range(1, 201)), speeds, 10, 4000, steps=True)
    axes, said = steps_of(plan, 200)
    more = len(plan["iterations"]) - len(axes.get_yticks())
    assert more > 0
    assert any(text.startswith(f"and {more} steps and ") for text in said)
