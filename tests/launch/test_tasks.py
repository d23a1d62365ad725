"""Tasks that cannot begin or end themselves, on several ranks: told once.

What tasks find on several ranks is in `tests/ranks/test_runs.py`.
"""

from __future__ import annotations

import json

import pytest


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("task", "settings", "says"),
    [
        ("svd", {"k": 12}, "k 12: expected from 1 to 11"),
        ("lstsq", {"b": "nowhere.npy"}, "nowhere.npy: no such file"),
    ],
)
def test_options_that_a_task_cannot_use_are_told_once(
    cec, small_store, tmp_path, task, settings, says
):
    words = [f"{name}={value}" for name, value in settings.items()]
    out = tmp_path / "out"
    done = cec(*("run", small_store.path, "--out", out, task), *words, ranks=4, cwd=tmp_path)
    assert done.returncode == 2
    assert done.told.count("cec-mpi: error:") == 1
    assert says in done.told
    assert not (out / "result.npy").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nsys.exit(0)\n", "cannot be imported: it left with sys.exit(0)"),
        ("def mine(X, *, checkpoint):\n    raise SystemExit(0)\n", "left with sys.exit(0)"),
    ],
)
def test_a_module_that_ends_itself_is_told_once(cec, small_store, tmp_path, text, says):
    (tmp_path / "ends.py").write_text(text)
    words = ["run", small_store.path, "--out", "out", "ends:mine"]
    done = cec(*words, ranks=4, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.told.startswith("cec-mpi: error: task ")
    assert done.told.count("\n") == 0
    assert says in done.told


@pytest.mark.any_mpi
def test_ranks_run_without_docstrings(cec, square_store, tmp_path):
    words = ["run", square_store.path, "--out", tmp_path / "out", "power"]
    done = cec(*words, ranks=4, variables={"PYTHONOPTIMIZE": "2"})
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["converged"]
