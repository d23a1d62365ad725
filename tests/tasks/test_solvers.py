"""Linear systems and least squares against NumPy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator
from sklearn.linear_model import Ridge

from cec_mpi.errors import InputError, ScaleWarning
from cec_mpi.tasks import cg, lstsq, ridge
from helpers.operators import CountingOperator, MemoryCheckpoint, state_after

RNG = np.random.default_rng(7)
solvers = pytest.mark.parametrize("solver", ["lsmr", "lsqr"])


def positive_definite(values, rng=RNG):
    basis, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    matrix = basis * values @ basis.T
    return (matrix + matrix.T) / 2


def with_condition(shape, condition, rng=RNG):
    small = min(shape)
    u, v = (np.linalg.qr(rng.standard_normal((size, small)))[0] for size in shape)
    return u * np.geomspace(1, 1 / condition, small) @ v.T


def dense_lstsq(matrix, b, damp):
    tall = np.vstack((matrix, damp * np.eye(matrix.shape[1])))
    return np.linalg.lstsq(tall, np.append(b, np.zeros(matrix.shape[1])), rcond=None)[0]


# --- conjugate gradients ------------------------------------------------------------------


@given(size=st.integers(1, 30), seed=st.integers(0, 1000), condition=st.floats(1, 1e4))
def test_solutions_of_systems_are_those_of_numpy(size, seed, condition):
    rng = np.random.default_rng(seed)
    matrix = positive_definite(np.geomspace(1, condition, size), rng)
    b = rng.standard_normal(size)
    found = cg(aslinearoperator(matrix), b=b, tol=1e-10)
    residual = np.linalg.norm(matrix @ found["result"] - b) / np.linalg.norm(b)
    assert found["converged"] is True
    assert residual <= 1.1e-10
    assert found["residual"] == pytest.approx(residual, abs=1e-13)
    assert np.allclose(found["result"], np.linalg.solve(matrix, b), rtol=1e-5, atol=1e-6)


def test_iterations_of_cg_stop_at_the_tolerance():
    operator = CountingOperator(positive_definite(np.geomspace(1, 100, 40)))
    found = cg(operator, b=np.ones(40))
    iterations = found["iterations"]
    assert operator.products == iterations + 2
    assert cg(operator, b=np.ones(40), iterations=iterations)["converged"] is True
    short = cg(operator, b=np.ones(40), iterations=iterations - 1)
    assert (short["converged"], short["iterations"]) == (False, iterations - 1)
    assert short["residual"] > 1e-8


def test_the_solution_for_a_zero_right_hand_side_is_zero():
    found = cg(aslinearoperator(np.eye(3)), b=np.zeros(3))
    assert found["converged"]
    assert found["residual"] == found["iterations"] == 0
    assert not found["result"].any()


@pytest.mark.parametrize("diagonal", [[1.0, -2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
def test_a_matrix_that_is_not_positive_definite_is_refused(diagonal):
    with pytest.raises(InputError, match="X is not positive definite"):
        cg(aslinearoperator(np.diag(diagonal)), b=[1, 2, 3])


@pytest.mark.parametrize("is_resumed", [False, True])
def test_cg_reports_the_residual_of_each_iterate(is_resumed):
    matrix = np.diag(np.arange(1.0, 41.0)) + 0.1
    b = np.random.default_rng(3).standard_normal(40)
    checkpoint = MemoryCheckpoint(
        state_after(5, cg, aslinearoperator(matrix), b=b) if is_resumed else None
    )
    cg(aslinearoperator(matrix), b=b, checkpoint=checkpoint)
    residuals = [np.linalg.norm(matrix @ state["x"] - b) for state in checkpoint.saves]
    reports = [report["residual"] for report in checkpoint.reports]
    assert len(reports) > 10
    assert np.allclose(reports, residuals / np.linalg.norm(b), rtol=1e-4)


def test_converged_means_that_the_true_residual_is_small():
    """SciPy updates the residual; if X is ill-conditioned, rounding keeps the true one larger."""
    failures = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 30))
        X = positive_definite(np.geomspace(1, 1e-10, n), rng)
        b = rng.standard_normal(n)
        found = cg(aslinearoperator(X), b=b, tol=1e-8)
        residual = np.linalg.norm(X @ found["result"] - b) / np.linalg.norm(b)
        assert not found["converged"] or residual <= 1.1e-7
        failures += residual > 1.1e-7
    assert failures > 0


# --- least squares ------------------------------------------------------------------------


@solvers
@given(
    rows=st.integers(1, 25),
    columns=st.integers(1, 25),
    seed=st.integers(0, 1000),
    damp=st.sampled_from([0, 0.1, 3.0]),
)
def test_least_squares_solutions_are_those_of_numpy(solver, rows, columns, seed, damp):
    rng = np.random.default_rng(seed)
    matrix = with_condition((rows, columns), 50, rng)
    b = rng.standard_normal(rows)
    found = lstsq(aslinearoperator(matrix), b=b, damp=damp, solver=solver)
    assert found["converged"] is True
    assert np.allclose(found["result"], dense_lstsq(matrix, b, damp), atol=1e-6)
    assert found["residual"] == pytest.approx(np.linalg.norm(b - matrix @ found["result"]))


@solvers
def test_the_solution_for_dependent_columns_has_minimum_norm(solver):
    matrix = with_condition((30, 6), 10) @ RNG.standard_normal((6, 12))
    b = RNG.standard_normal(30)
    found = lstsq(aslinearoperator(matrix), b=b, solver=solver)
    assert np.allclose(found["result"], np.linalg.pinv(matrix) @ b)


@solvers
@pytest.mark.parametrize("damp", [0.0, 0.02])
def test_checkpoints_restart_the_solver_without_changing_the_solution(solver, damp):
    matrix, b = with_condition((200, 120), 300), RNG.standard_normal(200)
    options = {"b": b, "damp": damp, "solver": solver, "iterations": 9000}
    checkpoint = MemoryCheckpoint(every=10)
    found = lstsq(aslinearoperator(matrix), checkpoint=checkpoint, **options)
    assert found["converged"]
    saved_iterations = [int(state["iterations"]) for state in checkpoint.saves]
    assert saved_iterations == list(range(50, found["iterations"], 50))
    assert len(saved_iterations) >= 2
    assert np.allclose(found["result"], dense_lstsq(matrix, b, damp), rtol=1e-4, atol=1e-4)
    plain, unwanted = CountingOperator(matrix), CountingOperator(matrix)
    lstsq(plain, **options)
    checkpoint = MemoryCheckpoint(wanted=False)
    lstsq(unwanted, checkpoint=checkpoint, **options)
    assert (unwanted.products, checkpoint.saves) == (plain.products, [])


@solvers
def test_a_solution_that_has_not_converged_is_marked(solver):
    matrix = aslinearoperator(with_condition((200, 120), 300))
    for iterations in (1, 60):
        for checkpoint in (MemoryCheckpoint(wanted=False), MemoryCheckpoint(every=100)):
            options = {"solver": solver, "iterations": iterations, "checkpoint": checkpoint}
            found = lstsq(matrix, b=np.ones(200), **options)
            assert (found["converged"], found["iterations"]) == (False, iterations)
    matrix = aslinearoperator(np.diag(np.geomspace(1, 1e-3, 10)))
    assert lstsq(matrix, b=np.ones(10), solver=solver)["converged"] is True
    assert lstsq(matrix, b=np.ones(10), solver=solver, conlim=10)["converged"] is False


def test_convergence_does_not_get_easier_with_iterations():
    """SciPy's estimate of ||A|| grows with each iteration."""
    rng, converged = np.random.default_rng(3), 0
    for _ in range(12):
        matrix = with_condition((35, 30), 10 ** rng.uniform(6, 14), rng)
        b, tol = rng.standard_normal(35), 10 ** rng.uniform(-13, -8)
        for solver in ("lsmr", "lsqr"):
            options = {"tol": tol, "conlim": 1e300, "solver": solver, "iterations": 20_000}
            found = lstsq(aslinearoperator(matrix), b=b, **options)
            if found["converged"]:
                converged += 1
                residual, norm = b - matrix @ found["result"], np.linalg.norm(matrix)
                residual_norm = np.linalg.norm(residual)
                scale = norm * np.linalg.norm(found["result"]) + np.linalg.norm(b)
                gradient = np.linalg.norm(matrix.T @ residual) / norm / residual_norm
                assert min(gradient, residual_norm / scale) < 40 * tol
    assert converged > 6


# --- ridge regression ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(60, 10), (10, 60), (1, 3), (7, 1)])
@pytest.mark.parametrize("alpha", [1e-2, 100])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_ridge_coefficients_are_those_of_scikit_learn(shape, alpha, fit_intercept):
    matrix = RNG.standard_normal(shape) + RNG.uniform(0, 5, shape[1])
    y = RNG.standard_normal(shape[0]) + 3
    options = {"alpha": alpha, "fit_intercept": fit_intercept}
    expected = Ridge(solver="svd", **options).fit(matrix, y)
    operator = CountingOperator(matrix)
    found = ridge(operator, y=y, tol=1e-12, **options)
    assert found["converged"] is True
    assert found["residual"] <= 1e-10
    assert np.allclose(found["result"], expected.coef_, rtol=1e-7, atol=1e-9)
    assert found["intercept"] == pytest.approx(expected.intercept_, rel=1e-7, abs=1e-9)
    pairs = ["X", "X'"] * (found["iterations"] + 1)
    start_calls = ["X", *["X'"] * (2 + fit_intercept)]
    assert [name for name, _ in operator.calls] == [*start_calls, *pairs] or shape == (1, 3)


@pytest.mark.parametrize(("solve", "target"), [(lstsq, "b"), (ridge, "y")])
@pytest.mark.parametrize("axis", ["row", "column"])
def test_tiny_rows_and_columns_are_named(axis, solve, target):
    X = np.random.default_rng(0).standard_normal((9, 3))
    X[(2, slice(None)) if axis == "row" else (slice(None), 2)] *= 1e-120
    with pytest.warns(ScaleWarning, match=f"{axis} 2 of X .* than {axis} "):
        solve(aslinearoperator(X), **{target: np.ones(9)})
