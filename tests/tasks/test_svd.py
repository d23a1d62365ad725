"""Singular values and principal components against NumPy and scikit-learn."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator, svds
from sklearn.decomposition import PCA

from cec_mpi.errors import InputError, ToleranceWarning
from cec_mpi.tasks import pca, svd
from helpers.operators import CountingOperator, MemoryCheckpoint, NoisyOperator

RNG = np.random.default_rng(3)
shapes = pytest.mark.parametrize("shape", [(60, 30), (30, 60), (40, 40)])


def with_singular_values(values, shape, rng=RNG):
    u, v = (np.linalg.qr(rng.standard_normal((size, len(values))))[0] for size in shape)
    return u * values @ v.T


# --- singular triplets --------------------------------------------------------------------


@given(
    rows=st.integers(1, 25),
    columns=st.integers(1, 25),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_triplets_are_those_of_numpy(rows, columns, seed, data):
    k = data.draw(st.integers(1, min(rows, columns)))
    matrix = np.random.default_rng(seed).standard_normal((rows, columns))
    found = svd(aslinearoperator(matrix), k=k)
    s, u, vt = found["result"], found["u"], found["vt"]
    assert found["converged"] is True
    assert np.allclose(s, np.linalg.svd(matrix, compute_uv=False)[:k])
    assert np.allclose(matrix @ vt.T, u * s)
    assert np.allclose(matrix.T @ u, vt.T * s)
    assert np.allclose(u.T @ u, np.eye(k))
    assert np.allclose(vt @ vt.T, np.eye(k))
    assert (vt.max(axis=1) >= np.abs(vt).max(axis=1)).all()


@given(seed=st.integers(0, 1000), k=st.integers(2, 9), tol=st.sampled_from([0.0, 1e-3]))
def test_repeated_singular_values_are_found(seed, k, tol):
    rng = np.random.default_rng(seed)
    values = np.repeat([9.0, 7.0, 6.0, 4.0, 2.0, 1.0], rng.integers(1, 5, 6))
    matrix = with_singular_values(values, (60, 40), rng)
    k = min(k, len(values) - 1)
    found = svd(aslinearoperator(matrix), k=k, tol=tol, seed=seed)
    assert np.allclose(found["result"], values[:k], rtol=max(tol, 1e-12))


CLUSTERED = np.append(10 + 1e-3 * np.arange(20), np.linspace(0, 5, 180))


@pytest.mark.parametrize(
    ("matrix", "k"),
    [
        (with_singular_values(1 / np.arange(1, 201), (400, 200)), 6),
        (with_singular_values(0.95 ** np.arange(1, 201), (200, 300)), 10),
        (with_singular_values(np.linspace(1, 2, 200), (300, 200)), 6),
        (with_singular_values(CLUSTERED, (300, 200)), 10),
        (RNG.standard_normal((300, 200)), 1),
        (RNG.standard_normal((200, 400)), 20),
    ],
)
def test_products_are_at_most_those_of_arpack(matrix, k):
    operator, arpack_operator = CountingOperator(matrix), CountingOperator(matrix)
    checkpoint = MemoryCheckpoint()
    found = svd(operator, k=k, checkpoint=checkpoint)
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    u, s, vt = svds(arpack_operator, k=k, v0=start)
    assert operator.products <= arpack_operator.products
    assert np.allclose(found["result"], s[::-1], rtol=1e-12)
    errors = 1e-14 * s.max()
    assert np.abs(matrix @ vt.T - u * s).max() < errors
    assert np.abs(matrix @ found["vt"].T - found["u"] * found["result"]).max() < errors
    assert np.abs(matrix.T @ found["u"] - found["vt"].T * found["result"]).max() < errors
    sizes = [state["basis"].shape for state in checkpoint.saves]
    assert {columns for _, columns in sizes} == {min(matrix.shape)}
    assert max(rows for rows, _ in sizes) <= 2 * k + 20


@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_a_larger_tolerance_takes_fewer_products(tol):
    matrix = with_singular_values(np.linspace(1, 2, 100), (150, 100))
    exact, rough = CountingOperator(matrix), CountingOperator(matrix)
    assert np.allclose(svd(rough, tol=tol)["result"], svd(exact)["result"], rtol=tol)
    assert rough.products < exact.products


@pytest.mark.parametrize(("iterations", "min_count", "max_count"), [(15, 1, 3), (5, 0, 0)])
@shapes
def test_only_converged_triplets_are_returned(shape, iterations, min_count, max_count):
    matrix = with_singular_values(np.append([9.0, 7.0], np.linspace(1, 1.01, 28)), shape)
    checkpoint = MemoryCheckpoint()
    found = svd(aslinearoperator(matrix), k=4, iterations=iterations, checkpoint=checkpoint)
    assert (found["converged"], found["iterations"]) == (False, iterations)
    count = len(found["result"])
    assert min_count <= count <= max_count
    assert (found["u"].shape, found["vt"].shape) == ((shape[0], count), (count, shape[1]))
    assert np.allclose(found["result"], [9, 7][:count])
    resumed = svd(aslinearoperator(matrix), k=4, checkpoint=MemoryCheckpoint(checkpoint.saves[-1]))
    expected = svd(aslinearoperator(matrix), k=4)
    assert resumed["converged"]
    assert resumed["iterations"] == expected["iterations"]
    assert np.allclose(resumed["result"], expected["result"], rtol=1e-14)


# --- rounding errors ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* singular values are below")
@pytest.mark.parametrize("product_error", [1e-12, 1e-7, 1e-4])
@pytest.mark.parametrize("values", [np.linspace(1, 2, 60), 0.5 ** np.arange(60), [3, 2]])
def test_iterations_stop_when_residuals_are_errors_of_products(values, product_error):
    matrix = with_singular_values(np.sort(values)[::-1].astype(float), (90, 60))
    operator = NoisyOperator(matrix, product_error, np.random.default_rng(4))
    exact = np.linalg.svd(matrix, compute_uv=False)[:5]
    found = svd(operator, k=5)
    assert found["converged"]
    assert operator.products < 400
    assert np.allclose(found["result"], exact, rtol=0, atol=20 * product_error * exact[0])


def test_singular_values_whose_squares_are_lost_cause_a_warning():
    values = 0.5 ** np.arange(60)
    X = aslinearoperator(with_singular_values(values, (60, 60)))
    with pytest.warns(ToleranceWarning, match="of 30 singular values are below .* the largest"):
        found = svd(X, k=30)["result"]
    assert np.abs(found[:22] / values[:22] - 1).max() < 0.01
    with warnings.catch_warnings(action="error"):
        found = svd(X, k=20)["result"]
    assert np.abs(found / values[:20] - 1).max() < 1e-6
    with pytest.warns(ToleranceWarning, match="1 of 2 singular values are below .* the largest"):
        svd(aslinearoperator(np.ones((3, 3))), k=2)  # of rank 1


def test_singular_values_of_a_zero_matrix_are_zero():
    found = svd(aslinearoperator(np.zeros((9, 8))), k=2)
    assert found["result"].tolist() == [0, 0]
    assert np.allclose(found["u"].T @ found["u"], np.eye(2))
    assert np.allclose(found["vt"] @ found["vt"].T, np.eye(2))


# --- principal components -----------------------------------------------------------------


@shapes
@pytest.mark.parametrize("k", [1, 5])
def test_components_are_those_of_scikit_learn(shape, k):
    matrix = RNG.standard_normal(shape) * np.linspace(3, 1, shape[1]) + RNG.uniform(0, 9, shape[1])
    expected = PCA(k, svd_solver="full").fit(matrix)
    found = pca(aslinearoperator(matrix), k=k)
    assert found["converged"] is True
    for name in ("mean", "explained_variance", "singular_values"):
        assert np.allclose(found[name], getattr(expected, f"{name}_"))
    assert np.allclose(found["result"], expected.components_)


def test_components_need_two_rows():
    with pytest.raises(InputError, match="pca needs at least 2 rows, found 1"):
        pca(aslinearoperator(np.ones((1, 4))), k=1)
