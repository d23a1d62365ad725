"""Power iteration against NumPy's eigenvalues."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from cec_mpi.errors import InputError
from cec_mpi.tasks import power

RNG = np.random.default_rng(11)


def with_eigenvalues(values, symmetric):
    """A matrix with these eigenvalues and random eigenvectors."""
    basis = RNG.standard_normal((len(values), len(values)))
    if symmetric:
        basis, _ = np.linalg.qr(basis)
    return basis @ np.diag(values) @ np.linalg.inv(basis)


def residual(matrix, found):
    v, rho = found["result"], found["eigenvalue"]
    return np.linalg.norm(matrix @ v - rho * v) / abs(rho)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    "values",
    [[5.0, 3.0, -2.0, 1.0, 0.0], [-5.0, 3.0, 2.0, 1.0, 0.5], [1.0, 0.99, 0.5], [7.0], [-1e-3]],
    ids=str,
)
def test_the_dominant_eigenpair_as_numpy_finds_it(values, symmetric):
    matrix = with_eigenvalues(values, symmetric)
    found = power(aslinearoperator(matrix), tol=1e-10, iterations=100_000)
    numbers, vectors = np.linalg.eig(matrix)
    largest = np.abs(numbers).argmax()
    assert found["converged"] is True
    assert found["eigenvalue"] == pytest.approx(numbers[largest].real, rel=1e-7)
    assert found["residual"] <= 1e-10
    assert residual(matrix, found) == pytest.approx(found["residual"], abs=1e-14)
    assert np.linalg.norm(found["result"]) == pytest.approx(1)
    aligned = abs(np.vdot(vectors[:, largest], found["result"]))
    assert aligned == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-11])
def test_a_smaller_tolerance_takes_more_steps(tol, counted):
    operator = counted(with_eigenvalues([3.0, 2.0, 1.0], symmetric=True))
    found = power(operator, tol=tol)
    assert found["converged"]
    assert residual(operator.matrix, found) <= tol
    assert found["iterations"] == operator.products
    assert power(operator, tol=tol, iterations=found["iterations"])["converged"]
    assert not power(operator, tol=tol, iterations=found["iterations"] - 1)["converged"]


NOT_CONVERGENT = [
    (np.array([[0.0, 1.0], [-1.0, 0.0]]), 100),  # a rotation: no real eigenvalue
    (np.diag([2.0, -2.0, 1.0]), 100),  # two of the same size
    (with_eigenvalues([1.0, 0.9999, 0.5], symmetric=True), 10),  # too few steps
]


@pytest.mark.parametrize(("matrix", "steps"), NOT_CONVERGENT)
def test_what_does_not_converge_says_so(matrix, steps):
    found = power(aslinearoperator(matrix), iterations=steps)
    assert found["converged"] is False
    assert found["iterations"] == steps
    assert found["residual"] > 1e-8
    v = found["result"]
    assert np.linalg.norm(v) == pytest.approx(1)
    assert found["eigenvalue"] == pytest.approx(v @ matrix @ v)
    if np.allclose(matrix, matrix.T):
        assert found["residual"] == pytest.approx(residual(matrix, found))


def test_the_first_vector_comes_from_the_seed():
    matrix = aslinearoperator(with_eigenvalues([3.0, 2.0, 1.0], symmetric=True))
    first, again, other = (power(matrix, seed=seed)["result"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("matrix", [np.zeros((4, 4)), np.eye(3)[[1, 2, 0]] * [0, 1, 1]])
def test_a_matrix_that_turns_every_vector_into_zero(matrix):
    found = power(aslinearoperator(matrix), iterations=20)
    assert found["converged"] is True
    assert found["eigenvalue"] == found["residual"] == 0
    assert np.isfinite(found["result"]).all()
    assert np.allclose(matrix @ found["result"], 0)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((3, 4), {}, "needs a square matrix, found 3 x 4"),
        ((3, 3), {"tol": 0}, "tol 0"),
        ((3, 3), {"tol": 1.0}, r"tol 1\.0"),
        ((3, 3), {"tol": float("nan")}, "tol nan"),
        ((3, 3), {"tol": "small"}, "tol"),
        ((3, 3), {"iterations": 0}, "iterations 0"),
        ((3, 3), {"iterations": "many"}, "iterations"),
        ((3, 3), {"seed": -1}, "seed"),
        ((3, 3), {"seed": "one"}, "seed"),
    ],
)
def test_power_refuses_what_it_cannot_do(shape, options, message):
    with pytest.raises(InputError, match=message):
        power(aslinearoperator(np.ones(shape)), **options)


@pytest.mark.parametrize("number", [1, 2, 7, 20])
def test_going_on_gives_the_same_iterates_as_no_break(number, memory, state_after):
    matrix = aslinearoperator(with_eigenvalues([3.0, 2.5, 1.0, 0.5], symmetric=False))
    whole = memory()
    expected = power(matrix, checkpoint=whole)
    rest = memory(state_after(number, power, matrix))
    found = power(matrix, checkpoint=rest)
    assert found["iterations"] == expected["iterations"]
    for one, other in zip(rest.saves, whole.saves[number - 1 :], strict=True):
        assert np.array_equal(one["vector"], other["vector"])
        assert one["iterations"] == other["iterations"]
    assert np.array_equal(found["result"], expected["result"])


def test_going_on_beyond_the_limit_makes_one_step(memory, state_after):
    matrix = aslinearoperator(with_eigenvalues([3.0, 2.5, 1.0], symmetric=True))
    state = state_after(8, power, matrix)
    found = power(matrix, iterations=3, checkpoint=memory(state))
    assert found["iterations"] == 8
    assert found["converged"] is False


def test_a_checkpoint_of_another_matrix_is_refused(memory, state_after):
    state = state_after(3, power, aslinearoperator(np.diag([1.0, 2.0])))
    with pytest.raises(InputError, match=r"does not fit.*\(2,\), expected.*\(3,\)"):
        power(aslinearoperator(np.diag([1.0, 2.0, 3.0])), checkpoint=memory(state))
