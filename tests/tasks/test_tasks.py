"""Tasks are found by name; options, checkpoints and progress of all tasks."""

import sys
import warnings
from pathlib import Path

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
from helpers.operators import CountingOperator, MemoryCheckpoint, state_after

RNG = np.random.default_rng(1)

# --- tasks by name ------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a user's module to the working directory, and return its name."""
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


def test_tasks_have_names_and_options(module):
    assert all(find_task(name) is task for name, task in TASKS.items())
    assert find_task(f"{module}:first")(None, checkpoint=None, a=1) == {"result": [1, 2]}
    assert options_of(power) == {"tol", "iterations", "seed"}
    assert options_of(find_task(f"{module}:first")) == {"a", "b"}
    assert options_of(find_task(f"{module}:any")) is None
    for name, task in TASKS.items():
        synonyms = {"steps", "maxiter", "max_iter", "iter_lim", "n_iter", "iteration"}
        assert not options_of(task) & synonyms
        assert ("iterations" in options_of(task)) == (name != "matvec")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("", ""),
        ("powr", "power"),
        ("Ridge", "ridge"),
        ("power:", ""),
        (":function", ""),
        ("no_such_module:function", ""),
        ("{}:fist", "first"),
        ("{}:CONSTANT", ""),
        ("{}.first:a", ""),
        ("{}", "{}:function"),
        ("{}.py:first", "{}:first"),
        ("..:first", ""),
    ],
)
def test_unknown_tasks_are_named_with_a_hint(module, name, hint):
    name = name.format(module)
    with pytest.raises(InputError, match=f"task {name!r}") as error:
        find_task(name)
    assert hint.format(module) in str(error.value)


MODULES = {
    "import sys\nsys.exit('no licence')\n": "sys.exit('no licence')",
    "raise KeyboardInterrupt\n": "line 1: KeyboardInterrupt",
    "class Odd(BaseException): pass\nraise Odd('much\\nmore')\n": "line 2: Odd: much more",
    "def first(:\n": "line 1: invalid syntax",
    "def g():\n    return 1 / 0\ng()\n": "line 2: ZeroDivisionError: division by zero",
    "import no_such_module_of_mine\n": "line 1: No module named 'no_such_module_of_mine'",
    "a\0b": "null bytes",
}


@pytest.mark.parametrize("text", MODULES)
def test_errors_of_an_import_give_a_message_of_one_line(module, tmp_path, text):
    (tmp_path / f"{module}.py").write_text(text)
    with pytest.raises(InputError, match=f"task '{module}:first' cannot be imported") as error:
        find_task(f"{module}:first")
    assert MODULES[text] in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_module_names_the_working_directory():
    with pytest.raises(InputError, match=rf"No module named 'no_such_task' in {Path.cwd()} or"):
        find_task("no_such_task:first")


def test_a_file_with_the_name_of_a_module_of_python_is_refused(module, tmp_path):
    (tmp_path / "random.py").write_text("def mine(X, *, checkpoint):\n    return {'result': [1]}\n")
    with pytest.raises(InputError, match="standard library and hides a file of this name"):
        find_task("random:mine")


# --- options ------------------------------------------------------------------------------

REQUIRED = {
    cg: {"b": np.ones(3)},
    lstsq: {"b": np.ones(3)},
    ridge: {"y": np.ones(3)},
    logistic: {"y": [0, 1, 1]},
    matvec: {"vectors": np.ones((2, 3))},
    svd: {"k": 1},
    pca: {"k": 1},
}
NOT_0_TO_1 = "expected a number between 0 and 1"


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        *((task, {"iterations": 0}, "iterations 0") for task in TASKS.values() if task != matvec),
        (power, {"iterations": "many"}, "iterations many: expected a whole number"),
        (power, {"seed": "one"}, "seed one: expected a whole number"),
        *((task, {"tol": 0}, f"tol 0: {NOT_0_TO_1}") for task in (power, pagerank, logistic, cg)),
        (ridge, {"tol": float("nan")}, "tol nan"),
        (svd, {"tol": -1}, "tol -1: expected 0 or"),
        (pca, {"tol": 1}, "tol 1: expected 0 or"),
        (svd, {"k": 4}, "k 4: expected 1 to 3 for a 3 x 3 matrix"),
        (pca, {"k": 0}, "k 0"),
        (lstsq, {"damp": -1}, "damp -1: expected a finite number of at least 0"),
        (lstsq, {"conlim": 0}, "conlim 0: expected a finite number above 0"),
        (lstsq, {"solver": "qr"}, "solver 'qr': expected one of lsmr, lsqr"),
        (ridge, {"alpha": 10**400}, "alpha 1000"),
        (ridge, {"fit_intercept": "false"}, "fit_intercept 'false': expected True or False"),
        (logistic, {"C": 0}, "C 0: expected a finite number above 0"),
        (logistic, {"y": [1, 1, 1]}, "y has 1 different value, expected two classes"),
        (pagerank, {"damping": 1}, "damping 1: expected 0 or a number between 0 and 1"),
        (pagerank, {"links": "in"}, "links 'in': expected one of rows, columns"),
        (pagerank, {"personalization": [1, -2, 3]}, r"from -2\.0 to 3\.0"),
        (pagerank, {"personalization": [0, 0, 0]}, "not all 0"),
        (pagerank, {"personalization": [1, 2]}, r"personalization has shape \(2,\), expected"),
        *(
            (task, {name: [1, 2]}, rf"{name} has shape \(2,\), expected \(3,\)")
            for task, name in ((cg, "b"), (lstsq, "b"), (ridge, "y"), (logistic, "y"))
        ),
        (cg, {"b": np.ones((3, 1))}, r"b has shape \(3, 1\)"),
        (cg, {"b": [1, 2, np.nan]}, r"b holds nan at entry 2 \(counted from 0\)"),
        (ridge, {"y": [1, 2, 3j]}, "y has dtype complex128, expected real numbers"),
        (ridge, {"y": ["1", "2", "3"]}, "y has dtype <U1, expected real numbers"),
        (cg, {"b": [1, [2], 3]}, "b is not an array"),
        (lstsq, {"b": None}, "b has dtype object"),
        (ridge, {"y": "missing.npy"}, r"missing\.npy does not exist"),
        *(
            (matvec, {"vectors": np.ones(shape)}, r"expected \(T, 3\)")
            for shape in ((3,), (2, 2), (2, 3, 1))
        ),
        (matvec, {"vectors": np.ones((1, 3)) * 1j}, "vectors has dtype complex128, expected real"),
        *(
            (task, {name: np.ma.masked_equal([1.0, 2.0, 3.0], 2.0)}, f"{name} is masked at entry 1")
            for task, name in ((ridge, "y"), (logistic, "y"), (pagerank, "personalization"))
        ),
        (cg, {"b": [1.0, np.ma.masked, 3.0]}, "b is masked at entry 1 "),
        (
            matvec,
            {"vectors": np.ma.masked_equal([[1.0, -999.0, 3.0]], -999.0)},
            "vectors is masked at row 0, column 1 ",
        ),
    ],
)
def test_bad_options_cost_no_product(task, options, message):
    operator = CountingOperator(np.eye(3))
    with pytest.raises(InputError, match=message):
        task(operator, **REQUIRED.get(task, {}) | options)
    assert operator.products == 0


@pytest.mark.parametrize("task", [cg, power, pagerank])
def test_a_square_matrix_is_needed(task):
    with pytest.raises(InputError, match="needs a square matrix, found 3 x 4"):
        task(aslinearoperator(np.ones((3, 4))), **REQUIRED.get(task, {}))


# --- matvec -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", ">f8", "f2", "i4", "?"])
@pytest.mark.parametrize("number", [0, 5])
def test_matvec_multiplies_every_vector(number, dtype):
    matrix = RNG.standard_normal((9, 4))
    vectors = RNG.uniform(0, 3, (number, 4)).astype(dtype)
    result = matvec(aslinearoperator(matrix), vectors=vectors)["result"]
    assert (result.shape, result.dtype) == ((number, 9), np.float64)
    assert np.allclose(result, vectors.astype(float) @ matrix.T, rtol=1e-6)
    out = np.zeros((number, 9))
    assert matvec(aslinearoperator(matrix), vectors=vectors, out=out)["result"] is out
    assert np.array_equal(out, result)


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_resumed_matvec_computes_only_missing_products(number):
    matrix, vectors, out = RNG.random((9, 4)), RNG.random((5, 4)), np.zeros((5, 9))
    state = state_after(number, matvec, aslinearoperator(matrix), vectors=vectors, out=out)
    assert not out[number:].any()
    operator = CountingOperator(matrix)
    found = matvec(operator, vectors=vectors, out=out, checkpoint=MemoryCheckpoint(state))
    assert operator.products == 5 - number
    assert np.allclose(found["result"], vectors @ matrix.T)
    out[0, 0] += 1
    with pytest.raises(InputError, match="out has changed since the checkpoint was written"):
        matvec(operator, vectors=vectors, out=out, checkpoint=MemoryCheckpoint(state))
    for wrong in ({"out": None}, {"vectors": vectors[: number - 1], "out": out[: number - 1]}):
        with pytest.raises(InputError, match="the checkpoint does not fit a task"):
            matvec(operator, **{"vectors": vectors} | wrong, checkpoint=MemoryCheckpoint(state))


# --- checkpoints --------------------------------------------------------------------------

TALL = RNG.standard_normal((40, 6))
GRAM = TALL.T @ TALL
VECTOR, CLASSES = RNG.standard_normal(40), np.arange(40) % 2
STATE = {"x": np.ones(6), "iterations": np.array(1)}
BASIS = {
    "basis": np.eye(3, 6),
    "projected": np.eye(3),
    "first": np.array(0),
    "noise": np.array(0.0),
}
BASIS |= {"repeated": np.array(0), "iterations": np.array(2), "exponent": np.zeros(1)}
SCORES = {"scores": np.full(6, 1 / 6), "degrees": np.ones(6), "product_error": np.array(1e-12)}
SCORES["iterations"] = np.array(1)
PRODUCT = {"vector": np.ones(6), "iterations": np.array(1)}
RESUMED = [
    (cg, GRAM, {"b": VECTOR[:6]}, STATE),
    (lstsq, TALL, {"b": VECTOR, "damp": 1e3, "solver": "lsqr"}, STATE),
    (ridge, TALL, {"y": VECTOR}, STATE),
    (logistic, TALL, {"y": CLASSES}, {**STATE, "x": np.ones(7)}),
    (logistic, TALL, {"y": CLASSES, "fit_intercept": False}, STATE),
    (svd, TALL, {"k": 2}, BASIS),
    (pca, TALL, {"k": 2}, BASIS),
    (pagerank, np.abs(GRAM), {}, SCORES),
    (power, GRAM, {}, PRODUCT),
]


@pytest.mark.parametrize(("task", "matrix", "options", "state"), RESUMED)
def test_wrong_checkpoints_are_refused(task, matrix, options, state):
    name = next(iter(state))
    wrong = [
        ({**state, name: state[name][..., 1:]}, "does not fit this task: found .* expected "),
        ({"done": np.array(1)}, "does not fit this task: found done of shape"),
        ({**state, name: state[name].astype(complex)}, f"{name} of dtype complex128"),
        ({**state, name: np.nan * state[name]}, "values other than finite"),
        ({**state, "iterations": np.array(-1)}, "iterations is -1, expected a number of at least"),
    ]
    if task is not power:
        wrong += [
            ({**state, name: size * state[name]}, f"{name} holds numbers up to ")
            for size in (1e200, 1e308)
        ]
    if task in (svd, pca):
        wrong += [
            ({**state, **change}, "the checkpoint does not fit")
            for change in (
                {"basis": np.eye(6)[:0], "projected": np.ones((0, 0))},
                {"projected": np.ones((1, 1))},
                {"first": np.array(9)},
            )
        ]
    for changed, message in wrong:
        with warnings.catch_warnings(action="error"), pytest.raises(InputError, match=message):
            task(aslinearoperator(matrix), checkpoint=MemoryCheckpoint(changed), **options)


@pytest.mark.parametrize(("task", "state"), [(power, PRODUCT), (pagerank, SCORES)])
def test_values_that_a_task_normalises_may_be_large(task, state):
    state = {**state, "vector" if task is power else "degrees": np.full(6, 1e308)}
    with warnings.catch_warnings(action="error"):
        found = task(aslinearoperator(np.abs(GRAM)), checkpoint=MemoryCheckpoint(state))
    assert np.isfinite(found["result"]).all()


def with_spectrum(values, shape):
    u, v = (np.linalg.qr(RNG.standard_normal((n, len(values))))[0] for n in shape)
    return u * values @ v.T


REPEATED = np.repeat(np.linspace(2, 1, 15), 2)
LINKS = RNG.uniform(0.5, 3, (20, 20)) * (RNG.random((20, 20)) < 0.3)
EXACT = {
    "power": (power, np.diag([3.0, 2.5, 1.0, 0.5]) + 0.1, {}, 1),
    "pagerank": (pagerank, LINKS, {"tol": 1e-12}, 1),
    **{
        f"{task.__name__} {shape}": (task, with_spectrum(REPEATED, shape), {"k": 3}, 2)
        for task in (svd, pca)
        for shape in ((60, 30), (30, 60))
    },
}


@pytest.mark.parametrize("name", EXACT)
def test_resumed_runs_make_the_same_iterations(name):
    task, matrix, options, products = EXACT[name]
    uninterrupted, checkpoint = CountingOperator(matrix), MemoryCheckpoint()
    expected = task(uninterrupted, checkpoint=checkpoint, **options)
    count = len(checkpoint.saves)
    for number in (1, 2, 7, count):
        resumed = CountingOperator(matrix)
        found = task(resumed, checkpoint=MemoryCheckpoint(checkpoint.saves[number - 1]), **options)
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert np.allclose(found[key], value, rtol=0, atol=1e-12), key
        done = int(checkpoint.saves[number - 1]["iterations"])
        assert uninterrupted.products - resumed.products in (
            products * done,
            products * done + 1,  # the product before the iterations
        )


@pytest.mark.parametrize(
    ("task", "options", "names"),
    [
        (power, {}, {"residual", "eigenvalue"}),
        (pagerank, {}, {"change"}),
        (lstsq, {"b": np.arange(4.0)}, {"residual"}),
        (logistic, {"y": [0, 1, 0, 1]}, {"objective", "gradient"}),
        (svd, {"k": 2}, {"residual"}),
    ],
)
def test_tasks_report_progress(task, options, names):
    matrix, checkpoint = np.eye(4) + np.arange(16.0).reshape(4, 4) % 5, MemoryCheckpoint()
    found = task(aslinearoperator(matrix), checkpoint=checkpoint, **options)
    assert checkpoint.reports
    assert all(set(report) == names for report in checkpoint.reports)
    assert all(np.isfinite(list(report.values())).all() for report in checkpoint.reports)
    if task in (power, pagerank):
        assert len(checkpoint.reports) == found["iterations"]
    for name in names & found.keys() if task in (power, pagerank, lstsq) else ():
        assert checkpoint.reports[-1][name] == pytest.approx(found[name], rel=1e-6)
