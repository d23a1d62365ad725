"""Drawings in the documentation are what their commands draw."""

import re
import runpy
import xml.etree.ElementTree as ET

import pytest

from cec_mpi.cli import main
from helpers import ROOT
from helpers.pages import find_pages

IMAGES = ROOT / "docs" / "images"
DRAW = runpy.run_path(str(ROOT / "docs" / "drawings.py"))["draw"]


def drawing_content(path):
    """Return the texts and the styles of the shapes of a drawing.

    Positions differ slightly between versions of matplotlib.
    """
    elements = list(ET.parse(path).iter())
    texts = [element.text for element in elements if element.tag.endswith("}text")]
    return texts, [element.get("style") for element in elements if element.tag.endswith("}path")]


def test_the_images_are_those_that_the_script_draws(tmp_path):
    DRAW(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) > 5
    for name in names:
        assert drawing_content(tmp_path / name) == drawing_content(IMAGES / name), name


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize(
    ("page", "figure", "image"),
    [
        ("ideas/algorithm-1.md", "algorithm-1.svg", "algorithm-1.svg"),
        ("howto/plans.md", "plan.svg", "assignment.svg"),
    ],
)
def test_figures_of_docs_are_what_their_commands_draw(
    tmp_path, monkeypatch, capsys, page, figure, image
):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / page).read_text("utf-8")
    command = re.search(rf"^cec-mpi (plan (?:.*\\\n)*.*{figure})", text, re.MULTILINE)
    assert main(command[1].replace("\\\n", " ").split()) == 0
    assert capsys.readouterr().out
    assert drawing_content(tmp_path / figure) == drawing_content(IMAGES / image)


def test_each_drawing_is_used_on_a_page():
    pages = [path.read_text("utf-8") for path in (ROOT / "README.md", *find_pages())]
    for path in IMAGES.iterdir():
        assert any(path.name in page for page in pages), path.name
