"""Solvers of SciPy on a float32 store go as far as on SciPy's own operator of float32 numbers."""

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


def matrices():
    Q, _ = np.linalg.qr(RNG.standard_normal((SIZE, SIZE)))
    spd = Q * np.geomspace(1, 100, SIZE) @ Q.T
    general = 25 * np.eye(SIZE) + RNG.standard_normal((SIZE, SIZE))
    return {"spd": (spd + spd.T) / 2, "general": general}


MATRICES = {name: X.astype(np.float32) for name, X in matrices().items()}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    path = tmp_path_factory.mktemp("solvers")
    for name, X in MATRICES.items():
        cec_mpi.encode(X, path / name, 6, 3)
    return path


def open_fixed(path, **options):
    """An operator whose machines do not change: it is one matrix."""
    return cec_mpi.open_operator(path, None, speeds=(1,) * 6, availability={1, 2, 4}, **options)


def counted(A):
    """The same operator, and a list with an entry for each product."""
    products_made = []

    def noting(product):
        return lambda x: products_made.append(1) or product(x)

    products = {name: noting(getattr(A, name)) for name in ("matvec", "rmatvec", "matmat")}
    return sl.LinearOperator(A.shape, dtype=A.dtype, **products), products_made


def solve(solver, A, matrix):
    """How many products it took, and the relative residual in extended precision."""
    operator, products_made = counted(A)
    x, info = solver(operator, B, rtol=1e-10, maxiter=400)
    exact = matrix.astype(np.longdouble) @ x - B
    return info, len(products_made), float(np.linalg.norm(exact.astype(float)) / np.linalg.norm(B))


LINEAR = [("spd", sl.cg), *(("general", each) for each in (sl.gmres, sl.lgmres, sl.gcrotmk))]


@pytest.mark.parametrize(("name", "solver"), LINEAR)
def test_linear_systems(stores, name, solver):
    X = MATRICES[name]
    of_scipy = solve(solver, sl.aslinearoperator(X), X)
    with open_fixed(stores / name) as A:
        decoded = A @ np.eye(SIZE)
        ours = solve(solver, A, decoded)
    assert np.abs(decoded - X).max() < 1e-6 * np.abs(X).max()
    assert ours[0] == of_scipy[0] == 0
    assert ours[1] <= 1.3 * of_scipy[1] + 5
    assert ours[2] < max(1.5 * of_scipy[2], 1.1e-10)


def test_singular_values_are_those_of_the_matrix_that_is_decoded_to(stores):
    with open_fixed(stores / "general") as A:
        decoded = A @ np.eye(SIZE)
        found = sl.svds(A, k=4, return_singular_vectors=False)
    expected = np.linalg.svd(decoded, compute_uv=False)[:4]
    np.testing.assert_allclose(np.sort(found)[::-1], expected, rtol=1e-13)


def test_in_the_dtype_of_the_shards_the_residual_ends_at_its_accuracy(stores):
    with open_fixed(stores / "general", precision="shard") as A:
        decoded = A @ np.eye(SIZE)
        info, _, residual = solve(lambda *a, **o: sl.gmres(*a, **o | {"maxiter": 3}), A, decoded)
    assert info
    assert 1e-9 < residual < 30 * A.attainable


TASKS = [
    (cg, {"b": B}),
    (lstsq, {"b": B}),
    (ridge, {"y": B}),
    (logistic, {"y": np.sign(B)}),
    (power, {}),
    (svd, {"k": 2}),
    (pca, {"k": 2}),
]


@pytest.mark.parametrize(("task", "options"), TASKS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_tolerance_that_products_cannot_show_is_warned_of_once(stores, task, options):
    with cec_mpi.open_operator(stores / "spd", None) as A:
        assert 1e-7 < A.attainable < 1e-5
        with pytest.warns(ToleranceWarning, match=rf"^{task.__name__}: tol 1e-10 is below") as seen:
            task(A, tol=1e-10, iterations=3, **options)
        assert len([each for each in seen if each.category is ToleranceWarning]) == 1
        assert "\n" not in str(seen[0].message)
        assert seen[0].filename == __file__  # the line of the program, not one of the package
        with warnings.catch_warnings():
            warnings.simplefilter("error", ToleranceWarning)
            task(A, tol=1e-4, iterations=3, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cg_converges_only_if_products_are_accurate_enough_for_x(tmp_path, dtype):
    """X x is small although x is large, and the shards of float32 have lost what is left of it."""
    basis, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((40, 40)))
    X = basis * np.geomspace(1, 1e-5, 40) @ basis.T
    X = ((X + X.T) / 2).astype(np.float32).astype(np.float64)
    cec_mpi.encode(X, tmp_path / "store", 6, 3, dtype=dtype)
    with open_fixed(tmp_path / "store") as A, warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("ignore", ScaleWarning)
        warnings.simplefilter("always", ToleranceWarning)
        found = cg(A, b=B[:40], tol=1e-6, iterations=3000)
    residual = np.linalg.norm(X @ found["result"] - B[:40]) / np.linalg.norm(B[:40])
    assert found["residual"] <= 1e-5
    assert found["converged"] is (dtype == "float64")
    assert (residual > 1e-5) == (dtype == "float32")
    warned = ["may have an error of" in str(each.message) for each in w]
    assert warned == [True] * (dtype == "float32")


def test_pagerank_warns_too_and_what_is_exact_enough_does_not(tmp_path):
    links = (RNG.random((30, 30)) < 0.3).astype(np.float32)
    cec_mpi.encode(links, tmp_path / "links", 4, 2)
    cec_mpi.encode(links, tmp_path / "double", 4, 2, dtype="float64")
    cec_mpi.encode(links, tmp_path / "whole", 2, 2)
    with (
        cec_mpi.open_operator(tmp_path / "links", None) as A,
        pytest.warns(ToleranceWarning, match="pagerank: tol 1e-10"),
    ):
        pagerank(A, tol=1e-10)
    for exact in "double", "whole":  # which has one set of machines
        with cec_mpi.open_operator(tmp_path / exact, None) as C, warnings.catch_warnings():
            warnings.simplefilter("error", ToleranceWarning)
            pagerank(C, tol=1e-10)
    with (
        cec_mpi.open_operator(tmp_path / "whole", None, precision="shard") as D,
        pytest.warns(ToleranceWarning),
    ):
        pagerank(D, tol=1e-10)
