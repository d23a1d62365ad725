"""The tutorial's notebook runs, and prints what is kept in it."""

import nbformat
import pytest
from nbclient import NotebookClient

from helpers import ROOT
from helpers.waiting import LIMIT

NOTEBOOK = ROOT / "docs" / "tutorial" / "notebook.ipynb"


def said(cell):
    """What a cell printed, and the value that it ended with."""
    return [
        output.get("text") or output.get("data", {}).get("text/plain")
        for output in cell.get("outputs", [])
    ]


@pytest.mark.usefixtures("no_launcher")
def test_the_notebook_prints_what_it_shows_and_ends_with_a_report(tmp_path):
    kept = nbformat.read(NOTEBOOK, as_version=4)
    run = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(run, timeout=LIMIT, kernel_name="python3", resources=place).execute()
    *cells, last = (cell for cell in run.cells if cell.cell_type == "code")
    *shown, _ = (cell for cell in kept.cells if cell.cell_type == "code")
    assert [said(cell) for cell in cells] == [said(cell) for cell in shown]
    assert any(map(said, shown))
    assert "report.html" in last.outputs[0]["data"]["text/html"]
    assert "pca is done." in (tmp_path / "report.html").read_text("utf-8")


def test_the_notebook_keeps_no_trace_of_who_ran_it():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert "execution" not in cell.metadata
        assert cell.get("execution_count") is None
