"""The units of X and of vectors: results for ``2**k X`` are those for X, times a power of two."""

import itertools
import math
import warnings
from functools import cache, partial

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

import cec_mpi
from cec_mpi.errors import InputError, ScaleWarning, ToleranceWarning
from cec_mpi.tasks import cg, logistic, lstsq, matvec, pagerank, pca, power, ridge, svd
from helpers.units import EXPONENTS, check_units

RNG = np.random.default_rng(23)
B_EXPONENTS = [EXPONENTS[0], 0, EXPONENTS[-1]]
TALL = RNG.standard_normal((40, 8)) + 0.5
SQUARE = TALL.T @ TALL / 10
LINKS = (RNG.random((12, 12)) < 0.4) * 1.0
B = TALL @ np.arange(1.0, 9.0) + RNG.standard_normal(40)
LABELS = (TALL @ np.arange(8.0) + 3 * RNG.standard_normal(40) > 14) * 1.0

# What a task is called with, for X and b times powers of two; and the powers of X and b that its
# results are proportional to: the first one is what has to fit into float64, and what is not here
# stays as it is.
TASKS = {
    "matvec": (matvec, TALL, lambda x, b: {"vectors": b * B[None, :8]}, {"result": (1, 1)}),
    "cg": (cg, SQUARE, lambda x, b: {"b": b * B[:8]}, {"result": (-1, 1)}),
    "lstsq": (lstsq, TALL, lambda x, b: {"b": b * B}, {"result": (-1, 1), "residual": (0, 1)}),
    "lsqr": (
        lstsq,
        TALL,
        lambda x, b: {"b": b * B, "solver": "lsqr"},
        {"result": (-1, 1), "residual": (0, 1)},
    ),
    "damped": (
        lstsq,
        TALL,
        lambda x, b: {"b": b * B, "damp": 0.3 * x},
        {"result": (-1, 1), "residual": (0, 1)},
    ),
    "ridge": (
        ridge,
        TALL,
        lambda x, b: {"y": b * B, "alpha": 0.0},
        {"result": (-1, 1), "intercept": (0, 1)},
    ),
    "penalised": (
        ridge,
        TALL,
        lambda x, b: {"y": b * B, "alpha": 0.3 * x * x},
        {"result": (-1, 1), "intercept": (0, 1)},
    ),
    "logistic": (
        logistic,
        TALL,
        lambda x, b: {"y": LABELS, "C": 0.7 / x / x, "tol": 1e-30},
        {"result": (-1, 0)},
    ),
    "power": (power, SQUARE, lambda x, b: {}, {"eigenvalue": (1, 0)}),
    "pagerank": (pagerank, LINKS, lambda x, b: {}, {}),
    "svd": (svd, TALL, lambda x, b: {"k": 3}, {"result": (1, 0)}),
    "wide svd": (svd, TALL.T, lambda x, b: {"k": 3}, {"result": (1, 0)}),
    "pca": (
        pca,
        TALL,
        lambda x, b: {"k": 3},
        {"explained_variance": (2, 0), "singular_values": (1, 0), "mean": (1, 0)},
    ),
}
NEED_SQUARES = ("penalised", "logistic")  # of the scale of X, which have to be numbers
NEED_B = ("matvec", "cg", "lstsq", "lsqr", "damped", "ridge", "penalised")
GRID = [
    (name, x, b)
    for name in TASKS
    for x, b in itertools.product(EXPONENTS, B_EXPONENTS if name in NEED_B else [0])
    if name not in NEED_SQUARES or abs(x) < 500
]


def run(name, operator, x, b, **others):
    task, _, options, _ = TASKS[name]
    return task(operator, **options(2.0**x, 2.0**b), **others)


@cache
def results_of(name):
    return run(name, aslinearoperator(TASKS[name][1]), 0, 0)


def check(name, operator, expected, x, b):
    """`expected` are the results without the factors ``2**x`` of the operator and ``2**b``."""
    # Where 40 numbers begin in memory may change the last digit of a sum: L-BFGS makes 1e-8 of it.
    rtol = 1e-6 if name == "logistic" else 0
    check_units(partial(run, name, operator, x, b), expected, TASKS[name][3], x, b, rtol)


@pytest.mark.parametrize(("name", "x", "b"), GRID)
def test_results_are_multiplied_by_a_power_of_two_with_x_and_b(name, x, b):
    operator = aslinearoperator(np.ldexp(TASKS[name][1], x))
    check(name, operator, results_of(name), x, b)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TASKS)
def test_results_with_a_store_are_multiplied_by_a_power_of_two(name, dtype, tmp_path):
    matrix = TASKS[name][1]

    def opened(x):
        store = tmp_path / f"store{x}"
        if not store.exists():
            cec_mpi.encode(np.ldexp(matrix, x), store, 4, 2, dtype=dtype)
        return cec_mpi.open_operator(store, None, speeds=[1, 1, 1, 1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ToleranceWarning)
        warnings.simplefilter("ignore", ScaleWarning)  # gradients vanish
        with opened(0) as unit:
            expected = run(name, unit, 0, 0)
        most = 110 if dtype == "float32" else 500 if name in NEED_SQUARES else 1000
        for x in [x for x in EXPONENTS if 0 < abs(x) < most]:
            with opened(x) as operator:
                for b in {0, x, max(-963, min(963, -x))} if name in NEED_B else {0}:
                    check(name, operator, expected, x, b)


@pytest.mark.parametrize("scale", [1e-290, 1e-170, 1e-20, 1e-5, 1e-2])
@pytest.mark.parametrize("solver", ["lsmr", "lsqr"])
def test_a_penalty_is_in_units_of_x(scale, solver):
    """With a penalty of 1, x is nearly ``X'b``."""
    X = aslinearoperator(scale * TALL)
    inverse = np.linalg.inv(np.eye(8) + scale**2 * TALL.T @ TALL)
    expected = inverse @ TALL.T @ B
    damped = lstsq(X, b=B, damp=1, solver=solver)
    assert np.allclose(damped["result"] / scale, expected, rtol=1e-6)
    found = ridge(X, y=B, alpha=1, fit_intercept=False)
    assert np.allclose(found["result"] / scale, expected, rtol=1e-6)
    left = np.linalg.norm(B - scale**2 * TALL @ expected)
    assert damped["residual"] == pytest.approx(left)


@pytest.mark.parametrize("scale", [1e-290, 1e-170, 1e-30, 1e-9, 1e-7])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_logistic_regression_on_small_numbers_is_linear(scale, fit_intercept):
    found = logistic(aslinearoperator(scale * TALL), y=LABELS, fit_intercept=fit_intercept)
    share = LABELS.mean() if fit_intercept else 0.5
    assert found["converged"]
    assert np.allclose(found["result"] / scale, TALL.T @ (LABELS - share), rtol=1e-6)
    intercept = math.log(share / (1 - share))
    assert found["intercept"] == pytest.approx(intercept, abs=1e-6)


@pytest.mark.parametrize("scale", [1e9, 1e120, 1e290])
def test_logistic_regression_on_large_numbers_has_no_penalty(scale):
    expected = logistic(aslinearoperator(TALL), y=LABELS, C=1e15, fit_intercept=False, tol=1e-9)
    found = logistic(aslinearoperator(scale * TALL), y=LABELS, fit_intercept=False)
    assert found["converged"]
    assert np.allclose(found["result"] * scale, expected["result"], rtol=1e-4)


LONG = np.linalg.qr(RNG.standard_normal((200, 120)))[0] * np.geomspace(1, 1e-2, 120)
RIGHT = RNG.standard_normal(200)

# Options for X times a power of two, and what checkpoints and progress are proportional to.
KEPT = {
    "cg": (cg, LONG.T @ LONG, lambda x: {"b": RIGHT[:120], "tol": 1e-12}, {"x": -1}),
    "lsmr": (lstsq, LONG, lambda x: {"b": RIGHT}, {"x": -1}),
    "lsqr": (lstsq, LONG, lambda x: {"b": RIGHT, "solver": "lsqr"}, {"x": -1}),
    "damped": (lstsq, LONG, lambda x: {"b": RIGHT, "damp": 1e-3 * x}, {"x": -1}),
    "ridge": (ridge, LONG, lambda x: {"y": RIGHT, "alpha": 1e-3 * x * x}, {"x": -1}),
    "logistic": (
        logistic,
        TALL,
        lambda x: {"y": LABELS, "C": 0.7 / x / x, "tol": 1e-30, "fit_intercept": False},
        {"x": -1, "gradient": 1},
    ),
    "power": (power, SQUARE, lambda x: {"tol": 1e-12}, {"vector": 1, "eigenvalue": 1}),
    "pagerank": (pagerank, LINKS, lambda x: {}, {"degrees": 1}),
    "svd": (svd, LONG, lambda x: {"k": 3}, {}),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("x", [-480, 480])
def test_checkpoints_and_progress_are_in_units_of_the_user(name, x, memory):
    task, matrix, options, powers = KEPT[name]
    expected, found = memory(), memory()
    task(aslinearoperator(matrix), checkpoint=expected, **options(1.0))
    X = aslinearoperator(np.ldexp(matrix, x))
    result = task(X, checkpoint=found, **options(2.0**x))["result"]
    first = 1 if name == "power" else 0  # before the first product the vector is random
    for each, unit in (
        (found.saves[first:], expected.saves[first:]),
        (found.reports, expected.reports),
    ):
        assert len(each) == len(unit) > 0
        for one, other in zip(each, unit, strict=True):
            for key, value in other.items():
                if key == "exponent":
                    assert one[key] == value + x
                    continue
                assert np.array_equal(one[key], np.ldexp(value, x * powers.get(key, 0))), key
    rest = memory(found.saves[len(found.saves) // 2])
    again = task(X, checkpoint=rest, **options(2.0**x))
    assert again["converged"]
    assert np.allclose(again["result"], result, rtol=1e-4, atol=1e-4 * np.abs(result).max())
    assert len(rest.saves) < len(found.saves)


@pytest.mark.parametrize("name", ["lstsq", "lsqr", "damped", "ridge", "cg"])
def test_subnormal_numbers_are_solved_with_the_digits_that_they_have(name):
    matrix = TASKS[name][1]
    subnormal = np.ldexp(matrix, -1050)  # 24 digits are left
    expected = run(name, aslinearoperator(np.ldexp(subnormal, 1050)), 0, 0)["result"]
    task, _, options, _ = TASKS[name]
    found = task(aslinearoperator(subnormal), **options(2.0**-1050, 2.0**-100))["result"]
    assert np.allclose(np.ldexp(found, -950), expected, rtol=1e-7)


@pytest.mark.parametrize("name", ["power", "svd", "pca", "matvec"])
def test_results_that_are_subnormal_are_refused(name):
    with pytest.raises(InputError, match="too small for float64"):
        run(name, aslinearoperator(np.ldexp(TASKS[name][1], -1050)), -1050, 0)


@pytest.mark.parametrize("name", sorted({*TASKS} - {"matvec"}))
@pytest.mark.parametrize("value", [np.nan, np.inf, 1.7e308])
def test_a_matrix_whose_products_are_not_finite_is_refused(name, value):
    matrix = TASKS[name][1].copy()
    matrix[:2] = value
    with pytest.raises(InputError, match=r"large|not finite"):
        run(name, aslinearoperator(matrix), 0, 0)
