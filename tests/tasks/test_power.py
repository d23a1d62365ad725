"""Power iteration against NumPy's eigenvalues."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from cec_mpi.tasks import power
from helpers.operators import CountingOperator, MemoryCheckpoint, state_after

RNG = np.random.default_rng(11)


def with_eigenvalues(values, is_symmetric=True):
    """Return a matrix with these eigenvalues and random eigenvectors."""
    basis = RNG.standard_normal((len(values), len(values)))
    if is_symmetric:
        basis, _ = np.linalg.qr(basis)
    return basis @ np.diag(values) @ np.linalg.inv(basis)


def residual(matrix, found):
    v, rho = found["result"], found["eigenvalue"]
    return np.linalg.norm(matrix @ v - rho * v) / abs(rho)


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize(
    "values", [[5.0, 3.0, -2.0, 0.0], [-5.0, 3.0, 2.0], [1.0, 0.99, 0.5], [7.0], [-1e-3]], ids=str
)
def test_the_dominant_eigenpair_is_that_of_numpy(values, is_symmetric):
    matrix = with_eigenvalues(values, is_symmetric)
    found = power(aslinearoperator(matrix), tol=1e-10, iterations=100_000)
    eigenvalues, vectors = np.linalg.eig(matrix)
    largest = np.abs(eigenvalues).argmax()
    assert found["converged"] is True
    assert found["eigenvalue"] == pytest.approx(eigenvalues[largest].real, rel=1e-7)
    assert found["residual"] <= 1e-10
    assert residual(matrix, found) == pytest.approx(found["residual"], abs=1e-14)
    assert np.linalg.norm(found["result"]) == pytest.approx(1)
    assert abs(np.vdot(vectors[:, largest], found["result"])) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("tol", [1e-2, 1e-11])
def test_iterations_stop_at_the_tolerance(tol):
    operator = CountingOperator(with_eigenvalues([3.0, 2.0, 1.0]))
    found = power(operator, tol=tol)
    assert found["converged"]
    assert residual(operator.matrix, found) <= tol
    assert found["iterations"] == operator.products
    assert not power(operator, tol=tol, iterations=found["iterations"] - 1)["converged"]


@pytest.mark.parametrize(
    ("matrix", "iterations"),
    [
        (np.array([[0.0, 1.0], [-1.0, 0.0]]), 100),  # a rotation has no real eigenvalue
        (np.diag([2.0, -2.0, 1.0]), 100),
        (with_eigenvalues([1.0, 0.9999, 0.5]), 10),
    ],
)
def test_without_convergence_the_last_iterate_is_returned(matrix, iterations):
    found = power(aslinearoperator(matrix), iterations=iterations)
    assert (found["converged"], found["iterations"]) == (False, iterations)
    assert found["residual"] > 1e-8
    v = found["result"]
    assert np.linalg.norm(v) == pytest.approx(1)
    assert found["eigenvalue"] == pytest.approx(v @ matrix @ v)
    if np.allclose(matrix, matrix.T):
        assert found["residual"] == pytest.approx(residual(matrix, found))


def test_the_seed_determines_the_first_vector():
    matrix = aslinearoperator(with_eigenvalues([3.0, 2.0, 1.0]))
    first, second, other = (power(matrix, seed=seed)["result"] for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("matrix", [np.zeros((4, 4)), np.eye(3)[[1, 2, 0]] * [0, 1, 1]])
def test_a_nilpotent_matrix_has_the_eigenvalue_zero(matrix):
    found = power(aslinearoperator(matrix), iterations=20)
    assert found["converged"] is True
    assert found["eigenvalue"] == found["residual"] == 0
    assert np.isfinite(found["result"]).all()
    assert np.allclose(matrix @ found["result"], 0)


def test_a_run_resumed_beyond_its_limit_makes_one_iteration():
    matrix = aslinearoperator(with_eigenvalues([3.0, 2.5, 1.0]))
    found = power(matrix, iterations=3, checkpoint=MemoryCheckpoint(state_after(8, power, matrix)))
    assert (found["iterations"], found["converged"]) == (8, False)
