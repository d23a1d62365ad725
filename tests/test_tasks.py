"""Which tasks there are, and tasks of the user's own."""

import sys

import pytest

from cec_mpi.errors import InputError
from cec_mpi.tasks import TASKS, find_task, matvec, options_of, power


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the working directory, as a user has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    name = f"task_module_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "CONSTANT = 3\n"
        "def first(X, *, checkpoint, a, b=2):\n"
        "    return {'result': [a, b]}\n"
        "def any(X, *, checkpoint, **options):\n"
        "    return {'result': sorted(options)}\n"
    )
    return name


def test_tasks_by_name():
    assert find_task("matvec") is matvec
    assert find_task("power") is power
    assert all(find_task(name) is task for name, task in TASKS.items())
    known = {"matvec", "power", "pagerank", "svd", "pca", "lstsq", "ridge", "logistic", "cg"}
    assert set(TASKS) == known


def test_a_task_in_a_module_of_the_working_directory(module):
    assert find_task(f"{module}:first")(None, checkpoint=None, a=1) == {"result": [1, 2]}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nothing",
        "Power",
        "power:",
        ":function",
        "no_such_module:function",
        "{}:missing",
        "{}:",
        "{}:CONSTANT",
        "{}:first:a",
        "{}.first:a",
        "{}",
        ".{}:first",
        "..:first",
    ],
)
def test_a_task_that_is_none_is_refused_by_name(module, name):
    name = name.format(module)
    with pytest.raises(InputError, match=f"task {name!r}"):
        find_task(name)


def test_options_that_a_task_takes(module):
    assert options_of(power) == {"tol", "steps", "seed"}
    assert options_of(find_task(f"{module}:first")) == {"a", "b"}
    assert options_of(find_task(f"{module}:any")) is None
