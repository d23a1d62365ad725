"""Which tasks there are, and tasks of the user's own."""

import sys
import warnings

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from cec_mpi.errors import InputError
from cec_mpi.tasks import (
    TASKS,
    cg,
    find_task,
    logistic,
    lstsq,
    matvec,
    options_of,
    pagerank,
    pca,
    power,
    ridge,
    svd,
)


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


def test_tasks_by_name_and_in_a_module_of_the_working_directory(module):
    assert find_task("power") is power
    assert all(find_task(name) is task for name, task in TASKS.items())
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


def test_a_file_with_the_name_of_a_module_of_python_is_refused(module, tmp_path):
    (tmp_path / "random.py").write_text("def mine(X, *, checkpoint):\n    return {'result': [1]}\n")
    with pytest.raises(InputError, match="standard library and hides a file of this name"):
        find_task("random:mine")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("powr", "power"),
        ("{}:fist", "first"),
        ("Ridge", "ridge"),
        ("{}.py:first", "{}:first"),
        ("{}", "{}:function"),
    ],
)
def test_what_was_perhaps_meant(module, name, meant):
    with pytest.raises(InputError) as refused:
        find_task(name.format(module))
    assert meant.format(module) in str(refused.value)


RNG = np.random.default_rng(1)
TALL = RNG.standard_normal((40, 6))
GRAM = TALL.T @ TALL
VECTOR, CLASSES = RNG.standard_normal(40), np.arange(40) % 2
X = {"x": np.ones(6), "iterations": np.array(1)}
BASIS = {"basis": np.eye(3, 6), "projected": np.eye(3), "first": np.array(0)}
BASIS |= {
    "noise": np.array(0.0),
    "repeated": np.array(0),
    "iterations": np.array(2),
    "exponent": np.zeros(1),
}
SCORES = {"scores": np.full(6, 1 / 6), "degrees": np.ones(6), "accuracy": np.array(1e-12)}
SCORES["iterations"] = np.array(1)
STATES = [
    (cg, GRAM, {"b": VECTOR[:6]}, X),
    (lstsq, TALL, {"b": VECTOR}, X),
    (lstsq, TALL, {"b": VECTOR, "damp": 1e3, "solver": "lsqr"}, X),
    (ridge, TALL, {"y": VECTOR}, X),
    (logistic, TALL, {"y": CLASSES}, {**X, "x": np.ones(7)}),
    (logistic, TALL, {"y": CLASSES, "fit_intercept": False}, X),
    (svd, TALL, {"k": 2}, BASIS),
    (pca, TALL, {"k": 2}, BASIS),
    (pagerank, np.abs(GRAM), {}, SCORES),
]


@pytest.mark.parametrize("size", [1e200, 1e308])
@pytest.mark.parametrize(("task", "matrix", "options", "state"), STATES)
def test_a_checkpoint_of_numbers_that_would_overflow_is_refused(
    task, matrix, options, state, size, memory
):
    name = next(iter(state))
    state = {**state, name: size * state[name]}
    words = f"the checkpoint does not fit this task: {name} holds numbers up to "
    with warnings.catch_warnings(action="error"), pytest.raises(InputError, match=words):
        task(aslinearoperator(matrix), checkpoint=memory(state), **options)


@pytest.mark.parametrize(
    ("task", "matrix", "name", "state"),
    [
        (power, GRAM, "vector", {"vector": np.ones(6), "iterations": np.array(1)}),
        (pagerank, np.abs(GRAM), "degrees", SCORES),
    ],
)
def test_what_tasks_divide_by_its_size_may_be_large(task, matrix, name, state, memory):
    state = {**state, name: np.full(6, 1e308)}
    with warnings.catch_warnings(action="error"):
        found = task(aslinearoperator(matrix), checkpoint=memory(state))
    assert np.isfinite(found["result"]).all()


MASKED = np.ma.masked_equal([1.0, -999.0, 3.0], -999.0)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (ridge, {"y": MASKED}),
        (logistic, {"y": MASKED > 2}),
        (lstsq, {"b": MASKED}),
        (cg, {"b": list(MASKED)}),
        (pagerank, {"personalization": MASKED}),
        (matvec, {"vectors": MASKED[None, :]}),
    ],
)
def test_masked_entries_are_refused(task, options):
    (name,) = options
    with pytest.raises(InputError, match=f"{name} is masked at (entry|row 0, column) 1 "):
        task(aslinearoperator(np.eye(3)), **options)


def test_vectors_that_are_not_real_are_refused():
    with pytest.raises(InputError, match="vectors has dtype complex128, expected real numbers"):
        matvec(aslinearoperator(np.eye(3)), vectors=np.ones((1, 3)) * 1j)
