"""The notebook of the tutorial prints what it shows, and operators show their state."""

import re

import nbformat
import pytest
from nbclient import NotebookClient

import cec_mpi
from cec_mpi.errors import InputError
from helpers import ROOT
from helpers.waiting import LIMIT

NOTEBOOK = ROOT / "docs" / "tutorial" / "notebook.ipynb"


def output_text(cell):
    """Return the output of a cell, joined if a busy kernel has split it, and its last value."""
    return "".join(
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in cell.get("outputs", [])
    )


@pytest.mark.usefixtures("no_launcher")
def test_the_notebook_prints_what_it_shows_and_ends_with_a_report(tmp_path):
    saved = nbformat.read(NOTEBOOK, as_version=4)
    run = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(run, timeout=LIMIT, kernel_name="python3", resources=resources).execute()
    *cells, last = (cell for cell in run.cells if cell.cell_type == "code")
    *shown, _ = (cell for cell in saved.cells if cell.cell_type == "code")
    assert [output_text(cell) for cell in cells] == [output_text(cell) for cell in shown]
    assert any(map(output_text, shown))
    assert "report.html" in last.outputs[0]["data"]["text/html"]
    assert "pca is done." in (tmp_path / "report.html").read_text("utf-8")


def test_the_saved_notebook_has_no_execution_metadata():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert "execution" not in cell.metadata
        assert cell.get("execution_count") is None


@pytest.mark.usefixtures("no_launcher")
def test_progress_is_redrawn_below_the_cell_and_an_operator_shows_its_machines(tmp_path):
    cells = (
        "import numpy as np",
        "import cec_mpi",
        "cec_mpi.encode(np.eye(12, 4), 'store', machines=5, recovery=2)",
        "recorder = cec_mpi.records.Recorder()",
        "X = cec_mpi.open_operator('store', local=4, recorder=recorder)",
        "with cec_mpi.show_progress(recorder):",
        "    for _ in range(7): X @ np.ones(4)",
        "X.available = {1, 3, 4}",
    )
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("\n".join(cells)), nbformat.v4.new_code_cell("X")]
    )
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=LIMIT, kernel_name="python3", resources=resources).execute()
    (progress,) = (o for o in book.cells[0].outputs if o.output_type == "display_data")
    assert "step 7" in progress["data"]["text/html"]
    assert "4 of 5 available" in progress["data"]["text/html"]
    table = dict(re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td>", last_html_output(book.cells[1])))
    assert table == {
        "X": "12 x 4 float64",
        "store": "store",
        "machines": "5, any 2 of which suffice",
        "available": "1, 3, 4",
        "preempted": "2",
        "not joined": "5",
    }


def test_progress_needs_a_recorder():
    with (
        pytest.raises(InputError, match="recorder 3: expected the Recorder with which"),
        cec_mpi.show_progress(3),
    ):
        raise AssertionError("nothing may be shown")


def last_html_output(cell):
    return cell.outputs[-1]["data"]["text/html"]
