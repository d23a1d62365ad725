"""Solvers on a float32 store reach the accuracy that they reach on SciPy's operator of float32."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse.linalg as sl

import cec_mpi
from cec_mpi.errors import ScaleWarning, ToleranceWarning
from cec_mpi.tasks import cg, logistic, lstsq, pagerank, pca, power, ridge, svd

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
        cec_mpi.encode(X, path / name, 6, 3)
    return path


def open_fixed(path, **options):
    """An operator whose machines do not change, so that it is one matrix."""
    return cec_mpi.open_operator(path, speeds=(1,) * 6, availability={1, 2, 4}, **options)


def solve(solver, A, matrix):
    """SciPy's status, the number of products, and the residual in extended precision."""
    calls = []

    def counted(product):
        return lambda x: calls.append(1) or product(x)

    products = {name: counted(getattr(A, name)) for name in ("matvec", "rmatvec", "matmat")}
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


def test_with_precision_shard_the_residual_is_about_the_attainable(stores):
    with open_fixed(stores / "general", precision="shard") as A:
        decoded = A @ np.eye(SIZE)
        info, _, residual = solve(lambda *a, **o: sl.gmres(*a, **o | {"maxiter": 3}), A, decoded)
        assert info
        assert 1e-9 < residual < 30 * A.attainable


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
def test_a_tolerance_below_the_attainable_causes_one_warning(stores, task, options):
    with cec_mpi.open_operator(stores / "spd") as A:
        assert 1e-7 < A.attainable < 1e-5
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
    cec_mpi.encode(links, tmp_path / "links", machines, 2, **options)
    with (
        cec_mpi.open_operator(tmp_path / "links", precision=precision or "double") as A,
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
    cec_mpi.encode(X, tmp_path / "store", 6, 3, dtype=dtype)
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
