"""The drawings in docs are what their commands draw."""

import re
import runpy
import xml.etree.ElementTree as ET

import pytest

from cec_mpi.cli import main
from helpers import ROOT
from helpers.pages import pages_of_docs

IMAGES = ROOT / "docs" / "images"
PAGE = (ROOT / "docs" / "ideas" / "algorithm-1.md").read_text("utf-8")
DRAW = runpy.run_path(str(ROOT / "docs" / "drawings.py"))["draw"]


def shown(path):
    """What a drawing shows: its words in their order, and its coloured shapes.

    Their places differ a little from one version of matplotlib to the next.
    """
    elements = list(ET.parse(path).iter())
    words = [each.text for each in elements if each.tag.endswith("}text")]
    return words, [each.get("style") for each in elements if each.tag.endswith("}path")]


def test_the_drawings_are_those_of_the_script(tmp_path):
    DRAW(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) > 5
    for name in names:
        assert shown(tmp_path / name) == shown(IMAGES / name), name


@pytest.mark.usefixtures("no_launcher")
def test_the_figure_of_algorithm_1_is_what_its_command_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = re.search(r"^cec-mpi (plan (?:.*\\\n)*.*algorithm-1\.svg)", PAGE, re.MULTILINE)
    assert main(command[1].replace("\\\n", " ").split()) == 0
    assert capsys.readouterr().out
    assert shown(tmp_path / "algorithm-1.svg") == shown(IMAGES / "algorithm-1.svg")


def test_each_drawing_is_used_on_a_page():
    pages = [path.read_text("utf-8") for path in (ROOT / "README.md", *pages_of_docs())]
    for path in IMAGES.iterdir():
        assert any(path.name in page for page in pages), path.name
