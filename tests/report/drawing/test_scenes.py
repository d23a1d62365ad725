"""Pictures of assignments of any number of machines."""

import re
import xml.etree.ElementTree as ET

import pytest

from cec_mpi.core.plan.planner import plan_step
from cec_mpi.report.drawing.drawn_assignment import DrawnAssignment
from cec_mpi.report.drawing.lanes import draw
from cec_mpi.report.drawing.pictures import picture_style, render_figure

SVG = "{http://www.w3.org/2000/svg}"


def render(panels, heading="Heading", kind="svg", **more):
    """Return the bytes of a picture."""
    with picture_style():
        return render_figure(draw(panels, heading, **more), kind, heading)


def make_panel(machines, available, copies, rows, speeds=None, label="machine {}", **more):
    plan = plan_step(available, speeds or (1.0,) * machines, copies, rows)
    labels = [label.format(n) for n in range(1, machines + 1)]
    blocks = plan.assignment.blocks
    return DrawnAssignment(
        machines, rows, tuple(available), blocks, "Title", "subtitle", labels, **more
    )


def example_panel(available=(1, 2, 3, 5, 6), **more):
    return make_panel(6, available, 3, 420, (2.0, 2.0, 3.0, 3.0, 4.0, 4.0), **more)


def texts(picture):
    return [element.text for element in ET.fromstring(picture).iter(f"{SVG}text")]


def test_a_picture_has_a_title_and_no_scripts():
    root = ET.fromstring(render([example_panel()]))
    assert root.find(f"{SVG}title").text == "Heading"
    assert {element.tag for element in root.iter()}.isdisjoint({f"{SVG}script", f"{SVG}a"})


@pytest.mark.parametrize(("machines", "absent", "copies"), [(1, 0, 1), (6, 1, 3), (40, 4, 10)])
def test_coloured_areas_are_computed_rows(machines, absent, copies):
    available = range(1, machines - absent + 1)
    with picture_style():
        figure = draw([make_panel(machines, available, copies, 4000)], "Heading")
    lanes = figure.axes[0].patches
    areas = [(patch.get_facecolor(), patch.get_width() * patch.get_height()) for patch in lanes]
    coloured = sum(area for colour, area in areas if max(colour[:3]) - min(colour[:3]) > 0.1)
    assert coloured == pytest.approx(copies * 4000 * lanes[0].get_height())


def test_a_picture_of_many_machines_is_small():
    speeds = tuple(1 + (7 * n % 31) / 31 for n in range(500))
    image = render([make_panel(500, range(1, 481), 240, 40_000, speeds)])
    assert len(image) < 1_000_000
    assert float(ET.fromstring(image).get("height").removesuffix("pt")) < 900
    assert any(re.fullmatch(r"and \d+ more blocks", text) for text in texts(image))


@pytest.mark.parametrize(
    "label", ["<script>alert(1)</script>", "a\x1b[2J\x00b", '"&\ud800', "$x_{}", "x" * 999]
)
def test_hostile_text_stays_text(label):
    text = render([example_panel(label=label)], label).decode()
    assert f"{SVG}script" not in {element.tag for element in ET.fromstring(text).iter()}
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("kind", "signature"), [("svg", b"<?xml"), ("pdf", b"%PDF-"), ("png", b"\x89PNG\r\n")]
)
def test_equal_assignments_give_equal_files_of_their_kind(kind, signature):
    first, second = render([example_panel()], kind=kind), render([example_panel()], kind=kind)
    assert first == second
    assert first.startswith(signature)
