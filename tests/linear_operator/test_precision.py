"""Digits of products: accuracy of solvers, cancellation, and columns of very different size."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse.linalg as sl

from cec_mpi import encode, open_operator
from cec_mpi.errors import InputError, ScaleWarning, ToleranceWarning
from cec_mpi.tasks import cg, logistic, lstsq, pagerank, pca, power, ridge, svd
from helpers.recording import MemoryRecorder

# --- solvers ------------------------------------------------------------------------------

SIZE = 120
RNG = np.random.default_rng(4)
B = RNG.standard_normal(SIZE)
Q, _ = np.linalg.qr(RNG.standard_normal((SIZE, SIZE)))
MATRICES = {
    "spd": (Q * np.geomspace(1, 100, SIZE) @ Q.T).astype(np.float32),
    "general": (25 * np.eye(SIZE) + RNG.standard_normal((SIZE, SIZE))).astype(np.float32),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    path = tmp_path_factory.mktemp("solvers")
    for name, X in MATRICES.items():
        encode(X, path / name, 6, 3)
    return path


def open_fixed(path, **options):
    """Open an operator whose machines do not change, so that it is one matrix."""
    return open_operator(path, speeds=(1,) * 6, availability={1, 2, 4}, **options)


def solve(solver, A, matrix):
    """Return SciPy's status, the number of products, and the residual in extended precision."""
    calls = []

    def count_calls(product):
        return lambda x: calls.append(1) or product(x)

    products = {name: count_calls(getattr(A, name)) for name in ("matvec", "rmatvec", "matmat")}
    operator = sl.LinearOperator(A.shape, dtype=A.dtype, **products)
    x, info = solver(operator, B, rtol=1e-10, maxiter=400)
    residual = (matrix.astype(np.longdouble) @ x - B).astype(float)
    return info, len(calls), float(np.linalg.norm(residual) / np.linalg.norm(B))


@pytest.mark.parametrize(
    ("name", "solver"),
    [("spd", sl.cg), ("general", sl.gmres), ("general", sl.lgmres), ("general", sl.gcrotmk)],
)
def test_scipy_solves_linear_systems_as_with_its_own_operator(stores, name, solver):
    X = MATRICES[name]
    expected = solve(solver, sl.aslinearoperator(X), X)
    with open_fixed(stores / name) as A:
        decoded = A @ np.eye(SIZE)
        found = solve(solver, A, decoded)
    assert np.abs(decoded - X).max() < 1e-6 * np.abs(X).max()
    assert found[0] == expected[0] == 0
    assert found[1] <= 1.3 * expected[1] + 5
    assert found[2] < max(1.5 * expected[2], 1.1e-10)


def test_with_precision_shard_the_residual_is_near_attainable_tol(stores):
    with open_fixed(stores / "general", precision="shard") as A:
        decoded = A @ np.eye(SIZE)
        info, _, residual = solve(lambda *a, **o: sl.gmres(*a, **o | {"maxiter": 3}), A, decoded)
        assert info
        assert 1e-9 < residual < 30 * A.attainable_tol


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (cg, {"b": B}),
        (lstsq, {"b": B}),
        (ridge, {"y": B}),
        (logistic, {"y": np.sign(B)}),
        (power, {}),
        (svd, {"k": 2}),
        (pca, {"k": 2}),
    ],
)
def test_a_tolerance_below_attainable_tol_causes_one_warning(stores, task, options):
    with open_operator(stores / "spd") as A:
        assert 1e-7 < A.attainable_tol < 1e-5
        with pytest.warns(ToleranceWarning, match=rf"^{task.__name__}: tol 1e-10 is below") as seen:
            task(A, tol=1e-10, iterations=3, **options)
        assert [warning.category for warning in seen].count(ToleranceWarning) == 1
        assert "\n" not in str(seen[0].message)
        assert seen[0].filename == __file__  # the line of the program, not one of the package
        with warnings.catch_warnings(action="error", category=ToleranceWarning):
            task(A, tol=1e-4, iterations=3, **options)


@pytest.mark.parametrize(
    ("machines", "options", "precision", "is_exact"),
    [
        (4, {}, None, False),
        (4, {"dtype": "float64"}, None, True),
        (2, {}, None, True),  # one set of machines
        (2, {}, "shard", False),
    ],
)
def test_pagerank_warns_if_products_differ(tmp_path, machines, options, precision, is_exact):
    links = (RNG.random((30, 30)) < 0.3).astype(np.float32)
    encode(links, tmp_path / "links", machines, 2, **options)
    with (
        open_operator(tmp_path / "links", precision=precision or "double") as A,
        warnings.catch_warnings(record=True) as seen,
    ):
        warnings.simplefilter("always")
        pagerank(A, tol=1e-10)
    messages = [str(warning.message) for warning in seen]
    assert any(message.startswith("pagerank: tol 1e-10") for message in messages) != is_exact


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cg_converges_only_if_products_are_accurate_enough_for_x(tmp_path, dtype):
    """X x is small although x is large, so that float32 loses most of its digits."""
    basis, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((40, 40)))
    X = basis * np.geomspace(1, 1e-5, 40) @ basis.T
    X = ((X + X.T) / 2).astype(np.float32).astype(np.float64)
    encode(X, tmp_path / "store", 6, 3, dtype=dtype)
    with open_fixed(tmp_path / "store") as A, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("ignore", ScaleWarning)
        warnings.simplefilter("always", ToleranceWarning)
        found = cg(A, b=B[:40], tol=1e-6, iterations=3000)
    residual = np.linalg.norm(X @ found["result"] - B[:40]) / np.linalg.norm(B[:40])
    assert found["residual"] <= 1e-5
    assert found["converged"] is (dtype == "float64")
    assert (residual > 1e-5) == (dtype == "float32")
    warned = ["may have an error of" in str(warning.message) for warning in seen]
    assert warned == [True] * (dtype == "float32")


# --- cancellation -------------------------------------------------------------------------

X = RNG.standard_normal((60, 40))


@pytest.fixture
def open_recorded(tmp_path):
    """Return a context manager that encodes X, and opens its operator with a recorder."""

    @contextmanager
    def open_recorded(X, machines=5, recovery=3, **options):
        encode(np.array(X), tmp_path / "store", machines, recovery, **options)
        recorder = MemoryRecorder()
        with open_operator(tmp_path / "store", recorder=recorder) as A:
            yield A, recorder.records

    return open_recorded


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_cancellation_is_the_size_of_the_terms_over_that_of_the_result(open_recorded, size):
    largest = np.abs(X).max(axis=0)
    with open_recorded(X, scaling="none") as (A, records):
        W, v = RNG.standard_normal((40, 3)), RNG.standard_normal(60)
        expected = [np.linalg.norm(largest * w) / np.abs(X @ w).max() for w in W.T]
        A @ (W[:, 0] * size)
        A @ (W * size)
        A.T @ (v * size)
        expected = [expected[0], max(expected)]
        expected += [largest.max() * np.linalg.norm(v) / np.abs(X.T @ v).max()]
        assert [record.cancellation for record in records] == pytest.approx(expected)


def test_scaled_rows_count_like_the_largest_row(open_recorded):
    small = X * np.where(np.arange(60) % 2, 1e-6, 1.0)[:, np.newaxis]
    with open_recorded(small) as (A, records):
        w, v = RNG.standard_normal(40), RNG.standard_normal(60)
        A @ w
        expected = np.linalg.norm(np.abs(small).max(axis=0) * w) / np.abs(small @ w).max()
        assert expected / 4 < records[-1].cancellation < expected * 4
        A.T @ v
        assert 1 < records[-1].cancellation < 100


def test_products_of_zeros_have_no_cancellation(open_recorded):
    with open_recorded([[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]]) as (A, records):
        for w in np.zeros(2), np.ones(2), np.zeros((2, 2)):
            A @ w
            assert records[-1].cancellation is None
        A @ np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
        assert records[-1].cancellation == pytest.approx(1, rel=1)


@pytest.mark.parametrize(
    ("dtype", "message"), [("float32", "--dtype float64"), ("float64", "--code.*subtract")]
)
def test_a_run_warns_once_of_few_digits(open_recorded, dtype, message):
    M = RNG.standard_normal((30, 50)).astype(dtype).astype(np.float64)
    w = RNG.standard_normal(50)
    null = w - np.linalg.pinv(M) @ (M @ w)
    with open_recorded(M, dtype=dtype) as (A, records):
        with warnings.catch_warnings(action="error"):
            A @ w
        with pytest.warns(ScaleWarning, match=f"step 1 may have fewer than three.*{message}"):
            A @ null
        with warnings.catch_warnings(action="error"):
            A @ null
        assert records[1].cancellation * A.product_error > 1e-3


def test_a_vanishing_gradient_causes_no_warning(open_recorded):
    M = RNG.standard_normal((50, 30))
    residual = M @ np.linalg.pinv(M) @ np.ones(50) - np.ones(50)
    with open_recorded(M) as (A, records), warnings.catch_warnings(action="error"):
        A.T @ residual
        assert records[0].cancellation * A.product_error > 1e-3


# --- columns that differ by hundreds of orders of magnitude -------------------------------


def exact_product(X, W):
    fractions = np.vectorize(Fraction, otypes=[object])
    return (fractions(X) @ fractions(W)).astype(float)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("exponent", [100, 155, 200, -100, -155, -200, 250, -290])
def test_products_of_scaled_columns_are_right_or_cause_a_warning(open_recorded, exponent, columns):
    scale = 10.0**exponent
    sizes = np.array([scale, 1 / scale, scale, 1 / scale, scale])
    X = RNG.standard_normal((60, 5)) * sizes
    W = RNG.standard_normal((5, columns)) / sizes[:, np.newaxis]
    exact = exact_product(X, W)
    with open_recorded(X) as (A, records), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        product = A @ W if columns > 1 else (A @ W[:, 0])[:, np.newaxis]
    error = (np.abs(product - exact).max(axis=0) / np.abs(exact).max(axis=0)).max()
    assert (ScaleWarning in [warning.category for warning in caught]) == (abs(exponent) > 200)
    if abs(exponent) > 200:
        assert error > 0.1
    else:
        assert error < 1e-13
        assert 0.1 < records[-1].cancellation < 1e3


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    ("machines", "recovery", "scaling", "X", "w"),
    [
        (4, 1, "none", [[1e200, 0], [2e200, 0]], [6e-201, 2e200]),
        (4, 2, "rows", [[1.0, 0]] * 4, [1e-20, 1e300]),
        (4, 2, "rows", [[1.0, 0]] * 4, [1e-250, -1e300]),
        (5, 3, "none", [[0, 1.4e155]] * 3, [-9.2e176, -5.2e-133]),
    ],
)
def test_large_factors_of_zero_columns_do_not_matter(
    open_recorded, machines, recovery, scaling, X, w, columns
):
    W = np.array([w] * columns).T
    with (
        open_recorded(X, machines, recovery, scaling=scaling) as (A, records),
        warnings.catch_warnings(action="error"),
    ):
        np.testing.assert_allclose(A @ W, exact_product(X, W), rtol=1e-14, atol=0)
        assert records[-1].cancellation == pytest.approx(1, rel=1)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_factor_of_a_zero_column_must_be_finite(open_recorded, number):
    with (
        open_recorded([[1.0, 0]] * 4) as (A, _),
        pytest.raises(InputError, match=rf"w\[1\] is {number}"),
    ):
        A @ np.array([1.0, number])
