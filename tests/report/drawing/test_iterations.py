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


def test_a_narrow_table_counts_omitted_machines():
    lines = iterations_table(AVAILABLE, PLAN["iterations"], width=80)
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("m[1]  m[2]   L'")
    assert lines[1].endswith(" 2/5   2/5    3")
    assert lines[-1].startswith("(m of 3 machines omitted:")


def test_a_table_shows_the_step_of_one_machine():
    plan = explain_plan((1,), [Fraction(1)], 1, 4, steps=True)
    (_, line, _) = iterations_table((1,), plan["iterations"])
    assert " ".join(line.split()) == "1 4 1 m[1] = 4, with only 1 machine left 4 4"


def draw_steps(plan, machines):
    """Draw the steps of a plan; return their axes and texts."""
    blocks = [
        Block(block["start"], block["stop"], tuple(block["machines"])) for block in plan["blocks"]
    ]
    names = [str(n) for n in range(1, machines + 1)]
    shares = DrawnAssignment(
        machines, plan["rows"], tuple(plan["available"]), blocks, "", "", names
    )
    with picture_style():
        figure = draw([shares], "Heading", plan["iterations"])
    axes = figure.axes[-1]
    labels = [*axes.texts, *axes.get_yticklabels(), *axes.get_xticklabels(), axes.xaxis.label]
    return axes, [text.get_text() for text in labels]


def test_a_picture_shows_figure_2():
    axes, texts = draw_steps(PLAN, 6)
    for text in ("b: alpha = 1/5 = L'/3 - m[5]", "m[1]", "m[6]", "9/5", "6/5", "3/5"):
        assert text in texts
    widths = [[bar.get_width() for bar in bars] for bars in axes.containers]
    unit = max(widths[0]) / 0.8  # of 4/5
    load_widths, alpha_widths = widths[::2], widths[1::2]
    for iteration, loads, alphas in zip(PLAN["iterations"], load_widths, alpha_widths, strict=True):
        assert [width / unit for width in loads] == pytest.approx(
            [float(Fraction(load)) for load in iteration["loads"]]
        )
        alpha = float(Fraction(iteration["alpha"]))
        expected = [alpha if n in iteration["machines"] else 0 for n in AVAILABLE]
        assert [width / unit for width in alphas] == pytest.approx(expected)


def test_a_picture_counts_omitted_steps():
    speeds = [Fraction(1 + (7 * n % 31)) for n in range(200)]
    plan = explain_plan(tuple(range(1, 201)), speeds, 10, 4000, steps=True)
    axes, texts = draw_steps(plan, 200)
    more = len(plan["iterations"]) - len(axes.get_yticks())
    assert more > 0
    assert any(text.startswith(f"and {more} more steps and ") for text in texts)
