"""Algorithm 1 as a table of text, and as a picture."""

from fractions import Fraction

import pytest

from cec_mpi.core.plan.explain import explain_plan
from cec_mpi.drawing.filling import with_iterations
from cec_mpi.drawing.scene import Scene
from cec_mpi.drawing.steps import steps_table

AVAILABLE = (1, 2, 3, 5, 6)
PLAN = explain_plan(
    AVAILABLE, [Fraction(s) for s in (2, 2, 3, 3, 4, 4)], 3, 420, exact=True, steps=True
)
TABLE = """\
f  alpha  P_f    alpha is                                    m[1]  m[2]  m[3]  m[5]  m[6]   L'
1  2/5    1 5 6  m[1] = 2/5, no more than L'/3 - m[3] = 2/5   2/5   2/5   3/5   4/5   4/5    3
2  1/5    2 3 6  L'/3 - m[5] = 1/5, less than m[2] = 2/5        0   2/5   3/5   2/5   2/5  9/5
3  1/5    2 3 5  m[2] = 1/5, no more than L'/3 - m[6] = 1/5     0   1/5   2/5   2/5   1/5  6/5
4  1/5    3 5 6  m[3] = 1/5, of the last 3 machines             0     0   1/5   1/5   1/5  3/5
                 nothing is left                                0     0     0     0     0    0"""


def test_figure_2_of_the_paper():
    assert "\n".join(steps_table(AVAILABLE, PLAN["iterations"])) == TABLE


def test_a_narrow_terminal_says_what_it_leaves_out():
    lines = steps_table(AVAILABLE, PLAN["iterations"], width=80)
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("m[1]  m[2]   L'")
    assert lines[1].endswith(" 2/5   2/5    3")
    assert lines[-1].startswith("(m of 3 more machines:")


def test_one_machine():
    plan = explain_plan((1,), [Fraction(1)], 1, 4, steps=True)
    (_, line, _) = steps_table((1,), plan["iterations"])
    assert " ".join(line.split()) == "1 4 1 m[1] = 4, the last one 4 4"


EMPTY = Scene(640, 100, "Title", "Described.", [], [])


def test_figure_2_as_a_picture():
    scene = with_iterations(EMPTY, AVAILABLE, PLAN["iterations"])
    assert all(0 < words.x < 640 and 100 < words.y < scene.height for words in scene.words)
    said = [words.text for words in scene.words]
    for text in ("a", "b", "c", "d", "L'/3 - m[5]", "m[1]", "m[6]", "9/5", "6/5", "3/5"):
        assert text in said
    bars = [box for box in scene.boxes if box.height == 9]
    unit = max(bar.width for bar in bars) / 0.8  # of 4/5
    for f, each in enumerate(PLAN["iterations"]):
        taken = [bar.width / unit for bar in bars if bar.role == f"block {f}"]
        assert taken == pytest.approx([float(Fraction(each["alpha"]))] * 3)
    grey = sorted(b.width / unit for b in bars if b.role == "left")
    loads = [Fraction(load) for each in PLAN["iterations"] for load in each["loads"]]
    assert grey == pytest.approx(sorted(float(load) for load in loads if load))


def test_a_picture_of_many_steps_says_what_it_leaves_out():
    speeds = [Fraction(1 + (7 * n % 31)) for n in range(200)]
    plan = explain_plan(tuple(range(1, 201)), speeds, 10, 4000, steps=True)
    scene = with_iterations(EMPTY, tuple(range(1, 201)), plan["iterations"])
    more = len(plan["iterations"]) - 24
    assert more > 0
    assert scene.words[-1].text.startswith(f"and {more} steps and m of ")
    assert all(box.x + box.width <= 640 for box in scene.boxes)
    assert scene.height < 1000
