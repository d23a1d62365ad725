"""The units of X and of vectors: results for ``2**k X`` are those for X, times a power of two."""

import itertools
import math
from functools import cache, partial

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.tasks import cg, logistic, lstsq, matvec, pagerank, pca, power, ridge, svd
from helpers.operators import MemoryCheckpoint

RNG = np.random.default_rng(23)
EXPONENTS = [round(math.log2(scale)) for scale in (1e-290, 1e-30, 1, 1e9, 1e155, 1e290)]
B_EXPONENTS = [EXPONENTS[0], 0, EXPONENTS[-1]]
TALL = RNG.standard_normal((40, 8)) + 0.5
SQUARE = TALL.T @ TALL / 10
LINKS = (RNG.random((12, 12)) < 0.4) * 1.0
B = TALL @ np.arange(1.0, 9.0) + RNG.standard_normal(40)
LABELS = (TALL @ np.arange(8.0) + 3 * RNG.standard_normal(40) > 14) * 1.0

# Options for X and b times powers of two, and the powers of X and b that results are proportional
# to. The first result must fit into float64; results that are not named do not change.
X_AND_Y = {"result": (-1, 1), "residual": (0, 1)}
LINE = {"result": (-1, 1), "intercept": (0, 1)}
TASKS = {
    "matvec": (matvec, TALL, lambda x, b: {"vectors": b * B[None, :8]}, {"result": (1, 1)}),
    "cg": (cg, SQUARE, lambda x, b: {"b": b * B[:8]}, {"result": (-1, 1)}),
    "lstsq": (lstsq, TALL, lambda x, b: {"b": b * B}, X_AND_Y),
    "lsqr": (lstsq, TALL, lambda x, b: {"b": b * B, "solver": "lsqr"}, X_AND_Y),
    "damped": (lstsq, TALL, lambda x, b: {"b": b * B, "damp": 0.3 * x}, X_AND_Y),
    "ridge": (ridge, TALL, lambda x, b: {"y": b * B, "alpha": 0.0}, LINE),
    "penalised": (ridge, TALL, lambda x, b: {"y": b * B, "alpha": 0.3 * x * x}, LINE),
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
NEED_SQUARES = ("penalised", "logistic")  # of the scale of X, within float64
NEED_B = ("matvec", "cg", "lstsq", "lsqr", "damped", "ridge", "penalised")


def run_task(name, operator, x, b):
    task, _, options, _ = TASKS[name]
    return task(operator, **options(2.0**x, 2.0**b))


@cache
def unscaled_results(name):
    return run_task(name, aslinearoperator(TASKS[name][1]), 0, 0)


def fits(values, exponent):
    """Return whether float64 holds all digits of the largest number times a power of two."""
    return -1021 <= np.frexp(np.abs(values).max())[1] + exponent <= 1024


def check_results(name, operator, expected, x, b):
    """Compare results for ``2**x X`` and ``2**b b`` with those for X and b."""
    exponents = {key: x * of_x + b * of_b for key, (of_x, of_b) in TASKS[name][3].items()}
    first = next(iter(exponents), None)
    if first and not fits(expected[first], exponents[first]):
        size = "large" if exponents[first] > 0 else "small"
        with pytest.raises(InputError, match=f"too {size} for float64"):
            run_task(name, operator, x, b)
        return
    found = run_task(name, operator, x, b)
    assert found.keys() == expected.keys()
    # The alignment of 40 numbers may change the last digit of a sum: L-BFGS makes 1e-8 of it.
    rtol = 1e-6 if name == "logistic" else 0
    for key, value in expected.items():
        scaled = np.ldexp(value, exponents.get(key, 0))
        assert np.allclose(found[key], scaled, rtol=rtol, atol=0), key


@pytest.mark.parametrize("name", TASKS)
def test_results_are_multiplied_by_a_power_of_two_with_x_and_b(name):
    for x, b in itertools.product(EXPONENTS, B_EXPONENTS if name in NEED_B else [0]):
        if name not in NEED_SQUARES or abs(x) < 500:
            operator = aslinearoperator(np.ldexp(TASKS[name][1], x))
            check_results(name, operator, unscaled_results(name), x, b)


@pytest.mark.filterwarnings("ignore::cec_mpi.errors.ToleranceWarning")
@pytest.mark.filterwarnings("ignore::cec_mpi.errors.ScaleWarning")  # gradients vanish
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TASKS)
def test_results_with_a_store_are_multiplied_by_a_power_of_two(name, dtype, tmp_path):
    largest = 110 if dtype == "float32" else 450 if name in NEED_SQUARES else 963
    stores = {}
    for x in (0, -largest, largest):
        cec_mpi.encode(np.ldexp(TASKS[name][1], x), tmp_path / f"{x}", 4, 2, dtype=dtype)
        stores[x] = partial(cec_mpi.open_operator, tmp_path / f"{x}", speeds=[1, 1, 1, 1])
    with stores[0]() as operator:
        expected = run_task(name, operator, 0, 0)
    for x in (-largest, largest):
        with stores[x]() as operator:
            for b in {0, -x} if name in NEED_B else {0}:
                check_results(name, operator, expected, x, b)


# --- scales that are not powers of two ----------------------------------------------------


@pytest.mark.parametrize("scale", [1e-290, 1e-20, 1e-2])
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
    residual = np.linalg.norm(B - scale**2 * TALL @ expected)
    assert damped["residual"] == pytest.approx(residual)


@pytest.mark.parametrize("scale", [1e-290, 1e-30, 1e-7])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_logistic_regression_of_small_numbers_is_linear(scale, fit_intercept):
    found = logistic(aslinearoperator(scale * TALL), y=LABELS, fit_intercept=fit_intercept)
    share = LABELS.mean() if fit_intercept else 0.5
    assert found["converged"]
    assert np.allclose(found["result"] / scale, TALL.T @ (LABELS - share), rtol=1e-6)
    assert found["intercept"] == pytest.approx(math.log(share / (1 - share)), abs=1e-6)


@pytest.mark.parametrize("scale", [1e9, 1e290])
def test_logistic_regression_of_large_numbers_has_no_penalty(scale):
    expected = logistic(aslinearoperator(TALL), y=LABELS, C=1e15, fit_intercept=False, tol=1e-9)
    found = logistic(aslinearoperator(scale * TALL), y=LABELS, fit_intercept=False)
    assert found["converged"]
    assert np.allclose(found["result"] * scale, expected["result"], rtol=1e-4)


# --- checkpoints and progress -------------------------------------------------------------

LONG = np.linalg.qr(RNG.standard_normal((200, 120)))[0] * np.geomspace(1, 1e-2, 120)
RHS = RNG.standard_normal(200)

# Options for X times a power of two, and the powers of X that states and reports are
# proportional to.
SAVED = {
    "cg": (cg, LONG.T @ LONG, lambda x: {"b": RHS[:120], "tol": 1e-12}, {"x": -1}),
    "lsmr": (lstsq, LONG, lambda x: {"b": RHS}, {"x": -1}),
    "damped": (lstsq, LONG, lambda x: {"b": RHS, "damp": 1e-3 * x, "solver": "lsqr"}, {"x": -1}),
    "ridge": (ridge, LONG, lambda x: {"y": RHS, "alpha": 1e-3 * x * x}, {"x": -1}),
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


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("x", [-480, 480])
def test_checkpoints_and_progress_are_in_the_units_of_the_user(name, x):
    task, matrix, options, powers = SAVED[name]
    expected, found = MemoryCheckpoint(), MemoryCheckpoint()
    task(aslinearoperator(matrix), checkpoint=expected, **options(1.0))
    X = aslinearoperator(np.ldexp(matrix, x))
    result = task(X, checkpoint=found, **options(2.0**x))["result"]
    first = 1 if name == "power" else 0  # before the first product the vector is random
    for records, expected_records in (
        (found.saves[first:], expected.saves[first:]),
        (found.reports, expected.reports),
    ):
        assert len(records) == len(expected_records) > 0
        for record, expected_record in zip(records, expected_records, strict=True):
            for key, value in expected_record.items():
                if key == "exponent":
                    assert record[key] == value + x
                else:
                    assert np.array_equal(record[key], np.ldexp(value, x * powers.get(key, 0))), key
    checkpoint = MemoryCheckpoint(found.saves[len(found.saves) // 2])
    resumed = task(X, checkpoint=checkpoint, **options(2.0**x))
    assert resumed["converged"]
    assert np.allclose(resumed["result"], result, rtol=1e-4, atol=1e-4 * np.abs(result).max())
    assert len(checkpoint.saves) < len(found.saves)


# --- the limits of float64 ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["lstsq", "lsqr", "damped", "ridge", "cg"])
def test_subnormal_numbers_are_solved_with_their_digits(name):
    matrix = TASKS[name][1]
    subnormal = np.ldexp(matrix, -1050)  # of 24 digits
    expected = run_task(name, aslinearoperator(np.ldexp(subnormal, 1050)), 0, 0)["result"]
    found = run_task(name, aslinearoperator(subnormal), -1050, -100)["result"]
    assert np.allclose(np.ldexp(found, -950), expected, rtol=1e-7)


@pytest.mark.parametrize("name", ["power", "svd", "pca", "matvec"])
def test_subnormal_results_are_refused(name):
    with pytest.raises(InputError, match="too small for float64"):
        run_task(name, aslinearoperator(np.ldexp(TASKS[name][1], -1050)), -1050, 0)


@pytest.mark.parametrize("name", sorted({*TASKS} - {"matvec"}))
def test_products_that_are_not_finite_are_refused(name):
    for value in (np.nan, np.inf, 1.7e308):
        matrix = TASKS[name][1].copy()
        matrix[:2] = value
        with pytest.raises(InputError, match=r"large|not finite"):
            run_task(name, aslinearoperator(matrix), 0, 0)
