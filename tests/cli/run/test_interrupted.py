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
# For all tasks: positive entries, positive definite, with well separated eigenvalues.
MATRIX = np.exp(-np.abs(np.subtract.outer(np.arange(SIZE), np.arange(SIZE))) / 20)

# Options of tasks by name: those without a default, and some that increase the number of steps.
OPTIONS = {
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
    """Run a task; return its exit code and standard output."""
    monkeypatch.chdir(tmp_path)
    np.save("W.npy", RNG.standard_normal((60, SIZE)))
    np.save("b.npy", np.cos(np.arange(SIZE)))
    np.save("classes.npy", np.arange(SIZE) % 2)

    def run(task, out, *args):
        command = ["run", store, "--serial", task, "--out", out]
        code = main([str(word) for word in (*command, *args)])
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize("task", TASKS)
def test_a_resumed_task_has_the_result_of_an_uninterrupted_one(run, tmp_path, task):
    names = [name for name in signature(TASKS[task]).parameters if name in OPTIONS]
    args = [*(f"{name}={OPTIONS[name]}" for name in names), "--checkpoint-every", 5]
    assert run(task, "whole", *args)[0] == 0
    uninterrupted = json.loads((tmp_path / "whole" / "summary.json").read_text())
    early = uninterrupted["steps"] * 3 // 4
    assert early > 5
    (tmp_path / "ticks.json").write_text(json.dumps({"available": [[1, 2, 3]] * early + [[1]]}))
    assert run(task, "out", *args, "--availability", "ticks.json")[0] == 4
    assert (tmp_path / "out" / "checkpoint.npz").exists()
    code, out = run(task, "out", *args, "--resume")
    assert code == 0
    assert "no checkpoint" not in out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary.get("converged", True)
    result, whole = (np.load(tmp_path / out / "result.npy") for out in ("out", "whole"))
    assert np.allclose(result, whole, rtol=1e-4, atol=1e-5 * np.abs(whole).max())
    if task in ("matvec", "power", "pagerank", "svd", "pca"):
        repeated = summary.get("iterations", 0) - uninterrupted.get("iterations", 0)
        assert abs(repeated) <= 3  # the last digits depend on measured speeds


def test_resuming_without_a_checkpoint_starts_from_the_beginning(run, tmp_path):
    code, out = run("power", "out", "--resume")
    assert code == 0
    assert out.startswith("out has no checkpoint, so the run starts from the beginning\n")
    assert (tmp_path / "out" / "summary.json").exists()
    _, out = run("power", "out", "--resume")
    assert out == "out already holds the results of this task: nothing to resume\n"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), "when the run ends early"),
        (("--time-limit", 3600), "every 60 s"),
        (("--time-limit", "1h"), "every 60 s"),
        (("--checkpoint-every", 50), "every 50 steps"),
        (("--checkpoint-every", "5m"), "every 300 s"),
        (("--time-limit", 3600, "--checkpoint-every", "1.5h"), "every 5400 s"),
    ],
)
def test_options_set_how_often_checkpoints_are_written(run, tmp_path, monkeypatch, args, expected):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shown.py").write_text(
        "def task(X, *, checkpoint):\n    print(checkpoint)\n    return {'result': [1]}\n"
    )
    code, out = run("shown:task", "out", *args)
    assert code == 0
    assert re.search(r"written (.*)>", out)[1] == expected
