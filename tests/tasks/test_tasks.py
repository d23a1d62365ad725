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


def test_every_task_says_iterations(module):
    for name, task in TASKS.items():
        others = {"steps", "maxiter", "max_iter", "iter_lim", "n_iter", "iteration"}
        assert not options_of(task) & others
        assert ("iterations" in options_of(task)) == (name != "matvec")


def test_options_that_a_task_takes(module):
    assert options_of(power) == {"tol", "iterations", "seed"}
    assert options_of(find_task(f"{module}:first")) == {"a", "b"}
    assert options_of(find_task(f"{module}:any")) is None


MODULES = {
    "import sys\nsys.exit('no licence')\n": "sys.exit('no licence')",
    "raise SystemExit\n": "sys.exit(None)",
    "raise KeyboardInterrupt\n": "line 1: KeyboardInterrupt",
    "class Odd(BaseException): pass\nraise Odd('much\\nmore')\n": "line 2: Odd: much more",
    "def first(:\n": "line 1: invalid syntax",
    "def g():\n    return 1 / 0\ng()\n": "line 2: ZeroDivisionError: division by zero",
    "import no_such_module_of_mine\n": "line 1: No module named 'no_such_module_of_mine'",
    "a\0b": "null bytes",
}


@pytest.mark.parametrize("text", MODULES)
def test_a_module_may_do_anything_while_it_is_imported(module, tmp_path, text):
    (tmp_path / f"{module}.py").write_text(text)
    with pytest.raises(InputError, match=f"task '{module}:first' cannot be imported") as refused:
        find_task(f"{module}:first")
    assert MODULES[text] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_named_like_a_module_of_python_is_told_from_it(module, tmp_path):
    (tmp_path / "random.py").write_text("def mine(X, *, checkpoint):\n    return {'result': [1]}\n")
    with pytest.raises(InputError, match="Python's own and goes before a file of yours"):
        find_task("random:mine")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("powr", "power"), ("{}:fist", "first"), ("Ridge", "ridge"), ("{}.py:first", "{}:function")],
)
def test_what_was_perhaps_meant(module, name, meant):
    with pytest.raises(InputError) as refused:
        find_task(name.format(module))
    assert meant.format(module) in str(refused.value)
