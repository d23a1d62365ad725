"""Tasks that cannot begin or end themselves, on several ranks: told once.

What tasks find on several ranks is in `tests/ranks/test_runs.py`.
"""

from __future__ import annotations

import json

import pytest


def test_a_module_that_ends_itself_is_told_once(cec, small_store, tmp_path):
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(0)\n")
    words = ["run", small_store.path, "--out", "out", "ends:mine"]
    done = cec(*words, ranks=4, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.told.startswith("cec-mpi: error: task ")
    assert done.told.count("\n") == 0
    assert "cannot be imported: it left with sys.exit(0)" in done.told


@pytest.mark.any_mpi
def test_ranks_run_without_docstrings(cec, square_store, tmp_path):
    words = ["run", square_store.path, "--out", tmp_path / "out", "power"]
    done = cec(*words, ranks=4, variables={"PYTHONOPTIMIZE": "2"})
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["converged"]
