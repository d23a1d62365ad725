"""Options and results of tasks on the command line, from their docstrings."""

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from cec_mpi.tasks import TASKS, options_of
from cec_mpi.tasks.common.description import describe_task

pytestmark = pytest.mark.usefixtures("no_launcher")

MODULE = """
def solve(X, *, rate, rounds: int = 60, checkpoint, **others):
    \"\"\"Solve it. In a way.

    Parameters
    ----------
    rate, others : float
        How fast it
        goes. Not more.

    Returns
    -------
    dict
        ``result``: (r,) ndarray, x; ``rounds``: of them.
    \"\"\"

def bare(X, k=3, checkpoint=None):
    pass
"""


@pytest.fixture
def cec(call, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / f"module_{tmp_path.name}.py").write_text(MODULE)

    return lambda *args: call(args, tmp_path)


def run_without_docstrings(*args):
    command = [sys.executable, "-OO", *args]
    environment = remove_launcher_variables(os.environ)
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True)


def test_all_commands_have_help_without_docstrings():
    program = "from cec_mpi.cli import build_parser as b; [p.format_help() for _, p in b().walk()]"
    run_without_docstrings("-c", program)


def test_the_tasks_are_listed(cec):
    code, out, err = cec("task")
    assert (code, err) == (0, "")
    assert [line.split("  ")[0] for line in out.split("\n\n")[0].splitlines()] == list(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_every_option_has_a_type_a_default_and_a_meaning(name):
    found = describe_task(TASKS[name])
    assert found.summary.endswith(".")
    assert {option.name for option in found.options} == options_of(TASKS[name])
    parameters = inspect.signature(TASKS[name]).parameters
    for option in found.options:
        default = parameters[option.name].default
        assert option.type_name
        assert option.description
        assert option.is_required == (default is inspect.Parameter.empty)
        if not option.is_required and default is not None:
            assert option.default == str(default)


OPTIONS = {"vectors": np.eye(3), "k": 2, "b": np.ones(3), "y": [1, 0, 1]}


@pytest.mark.parametrize("name", TASKS)
def test_every_result_has_a_meaning(name):
    options = {option: OPTIONS[option] for option in OPTIONS.keys() & options_of(TASKS[name])}
    found = TASKS[name](aslinearoperator(np.diag([3.0, 2.0, 1.0])), **options)
    described = dict(describe_task(TASKS[name]).results)
    assert set(described) == set(found)
    assert all(described.values())
    arrays = {key for key, value in found.items() if isinstance(value, np.ndarray)}
    assert {key for key, text in described.items() if "ndarray" in text} == arrays


@pytest.mark.parametrize("name", ["ridge", "matvec"])
def test_help_of_a_task_is_the_same_in_all_forms(cec, name):
    first = cec("task", name)
    assert first[0] == 0
    assert first[2] == ""
    assert first == cec("task", name, "--help")
    assert first == cec("task", "-h", name)
    assert first == cec("run", "store", name, "--help")
    assert first == cec("run", "store", "--help", name)


def test_the_help_of_a_task_describes_options_and_results(cec):
    _, out, _ = cec("task", "ridge")
    lines = [line.strip() for line in out.splitlines()]
    assert "y                (q,) array_like or path of an .npy file; required" in lines
    assert "alpha            float; default 1.0" in lines
    assert "iterations       int; default 1000" in lines
    assert "Weight of the penalty, at least 0." in lines
    assert "result           (r,) ndarray, the coefficients w" in lines
    assert max(map(len, out.splitlines())) <= 100
    assert "vectors          a .npy file" in cec("task", "matvec")[1]
    assert "explained_variance" in cec("task", "pca")[1]


def test_a_task_of_a_user_has_help_from_its_docstring(cec, tmp_path):
    name = f"module_{tmp_path.name}:solve"
    _, out, _ = cec("task", name)
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        f"cec-mpi run STORE {name} [KEY=VALUE ...] --out DIR",
        "",
        "Solve it.",
        "",
        "options, as KEY=VALUE:",
        "rate float; required",
        "How fast it goes.",
        "rounds int; default 60",
        "any other KEY=VALUE",
        "",
        "results (arrays are saved as DIR/NAME.npy, numbers and text in DIR/summary.json):",
        "result (r,) ndarray, x",
        "rounds of them",
    ]
    assert run_without_docstrings("-m", "cec_mpi", "task", name).stdout == out
    code, out, _ = cec("task", f"module_{tmp_path.name}:bare")
    assert code == 0
    assert "  k                default 3" in out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("task powr", "did you mean power?"),
        ("run s powr --help", "did you mean power?"),
        ("task no_such_module:f", "no_such_module"),
        ("task power svd", "svd"),
        ("task --nme power", "--nme"),
        ("run s --out o svd --k 5", "k=VALUE"),
        ("run s --out o ridge --fit-intercept 0", "fit_intercept=VALUE"),
    ],
)
def test_unknown_tasks_and_options_give_one_message(cec, line, message):
    code, out, err = cec(*line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("cec-mpi: error: ")
    assert message in err
