"""Tasks that end early and are resumed have the same results."""

import json
import re
from inspect import signature

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import main
from cec_mpi.tasks import TASKS

SIZE = 40
RNG = np.random.default_rng(2)
# Positive, symmetric and positive definite, with eigenvalues far apart: for all tasks.
MATRIX = np.exp(-np.abs(np.subtract.outer(np.arange(SIZE), np.arange(SIZE))) / 20)

# Options of tasks, by name: those without a default, and some with which there are more steps.
GIVEN = {
    "vectors": "W.npy",
    "b": "b.npy",
    "y": "classes.npy",
    "k": 3,
    "tol": 1e-9,
    "alpha": 1e-4,
    "C": 10,
}

pytestmark = pytest.mark.usefixtures("no_launcher")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "store"
    cec_mpi.encode(MATRIX, path, 3, 2)
    return path


@pytest.fixture
def run(store, tmp_path, monkeypatch, capsys):
    """Run a task, and return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    np.save("W.npy", RNG.standard_normal((60, SIZE)))
    np.save("b.npy", np.cos(np.arange(SIZE)))
    np.save("classes.npy", np.arange(SIZE) % 2)

    def run(task, out, *words):
        fixed = ["run", store, "--serial", task, "--out", out]
        code = main([str(word) for word in (*fixed, *words)])
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize("task", TASKS)
def test_a_task_that_ended_early_has_the_same_result_in_the_end(run, tmp_path, task):
    given = [f"{name}={GIVEN[name]}" for name in signature(TASKS[task]).parameters if name in GIVEN]
    words = [*given, "--checkpoint-every", 5]
    assert run(task, "whole", *words)[0] == 0
    alone = json.loads((tmp_path / "whole" / "summary.json").read_text())
    early = alone["steps"] * 3 // 4
    assert early > 5
    (tmp_path / "only.json").write_text(json.dumps({"available": [[1, 2, 3]] * early + [[1]]}))
    assert run(task, "out", *words, "--availability", "only.json")[0] == 4
    assert (tmp_path / "out" / "checkpoint.npz").exists()
    code, said = run(task, "out", *words, "--resume")
    assert code == 0
    assert "no checkpoint" not in said
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary.get("converged", True)
    result, whole = (np.load(tmp_path / out / "result.npy") for out in ("out", "whole"))
    assert np.allclose(result, whole, rtol=1e-4, atol=1e-5 * np.abs(whole).max())
    if task in ("matvec", "power", "pagerank", "svd", "pca"):
        again = summary.get("iterations", 0) - alone.get("iterations", 0)
        assert abs(again) <= 3  # the last digits depend on measured speeds


def test_resuming_without_a_checkpoint_says_that_the_run_starts_from_the_beginning(run, tmp_path):
    code, said = run("power", "out", "--resume")
    assert code == 0
    assert said.startswith("out has no checkpoint, so the run starts from the beginning\n")
    assert (tmp_path / "out" / "summary.json").exists()
    _, said = run("power", "out", "--resume")
    assert said == "out already holds the results of this task: nothing to resume\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "when the run ends early"),
        (("--time-limit", 3600), "every 60 s"),
        (("--time-limit", "1h"), "every 60 s"),
        (("--checkpoint-every", 50), "every 50 steps"),
        (("--checkpoint-every", "5m"), "every 300 s"),
        (("--time-limit", 3600, "--checkpoint-every", "1.5h"), "every 5400 s"),
    ],
)
def test_how_often_checkpoints_are_written(run, tmp_path, monkeypatch, words, expected):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shown.py").write_text(
        "def task(X, *, checkpoint):\n    print(checkpoint)\n    return {'result': [1]}\n"
    )
    code, said = run("shown:task", "out", *words)
    assert code == 0
    assert re.search(r"written (.*)>", said)[1] == expected
