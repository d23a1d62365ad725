"""Linear systems and least squares against NumPy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator
from sklearn.linear_model import Ridge

from cec_mpi.errors import InputError, ScaleWarning
from cec_mpi.tasks import cg, logistic, lstsq, pagerank, power, ridge, svd

RNG = np.random.default_rng(7)
SOLVERS = ["lsmr", "lsqr"]


def positive_definite(values, rng=RNG):
    basis, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    return basis * values @ basis.T


def with_condition(shape, condition, rng=RNG):
    small = min(shape)
    u, _ = np.linalg.qr(rng.standard_normal((shape[0], small)))
    v, _ = np.linalg.qr(rng.standard_normal((shape[1], small)))
    return u * np.geomspace(1, 1 / condition, small) @ v.T


def dense_lstsq(matrix, b, damp):
    tall = np.vstack((matrix, damp * np.eye(matrix.shape[1])))
    return np.linalg.lstsq(tall, np.append(b, np.zeros(matrix.shape[1])), rcond=None)[0]


# --- conjugate gradients ------------------------------------------------------------------


@given(size=st.integers(1, 30), seed=st.integers(0, 1000), condition=st.floats(1, 1e4))
def test_systems_as_numpy_solves_them(size, seed, condition):
    rng = np.random.default_rng(seed)
    matrix = positive_definite(np.geomspace(1, condition, size), rng)
    b = rng.standard_normal(size)
    found = cg(aslinearoperator(matrix), b=b, tol=1e-10)
    assert found["converged"] is True
    x = found["result"]
    assert np.linalg.norm(matrix @ x - b) <= 1.1e-10 * np.linalg.norm(b)
    assert found["residual"] == pytest.approx(
        np.linalg.norm(matrix @ x - b) / np.linalg.norm(b), abs=1e-13
    )
    assert np.allclose(x, np.linalg.solve(matrix, b), rtol=1e-5, atol=1e-6)


def test_convergence_shows_in_as_many_steps_as_it_takes(counted):
    operator = counted(positive_definite(np.geomspace(1, 100, 40)))
    found = cg(operator, b=np.ones(40))
    assert operator.products == found["iterations"] + 2
    steps = found["iterations"]
    assert cg(operator, b=np.ones(40), iterations=steps)["converged"] is True
    short = cg(operator, b=np.ones(40), iterations=steps - 1)
    assert short["converged"] is False
    assert short["iterations"] == steps - 1
    assert short["residual"] > 1e-8


def test_a_zero_right_hand_side():
    found = cg(aslinearoperator(np.eye(3)), b=np.zeros(3))
    assert found["converged"]
    assert found["residual"] == found["iterations"] == 0
    assert not found["result"].any()


@pytest.mark.parametrize("diagonal", [[1.0, -2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
def test_a_matrix_that_is_not_positive_definite_is_refused(diagonal):
    with pytest.raises(InputError, match="X is not positive definite"):
        cg(aslinearoperator(np.diag(diagonal)), b=[1, 2, 3])
    with pytest.raises(InputError, match="cg needs a square matrix, found 3 x 2"):
        cg(aslinearoperator(np.ones((3, 2))), b=[1, 2, 3])


# --- least squares ------------------------------------------------------------------------


@given(
    rows=st.integers(1, 25),
    columns=st.integers(1, 25),
    seed=st.integers(0, 1000),
    damp=st.sampled_from([0, 0.1, 3.0]),
    solver=st.sampled_from(SOLVERS),
)
def test_least_squares_as_numpy_finds_them(rows, columns, seed, damp, solver):
    rng = np.random.default_rng(seed)
    matrix = with_condition((rows, columns), 50, rng)
    b = rng.standard_normal(rows)
    found = lstsq(aslinearoperator(matrix), b=b, damp=damp, solver=solver)
    assert found["converged"] is True
    x = found["result"]
    assert np.allclose(x, dense_lstsq(matrix, b, damp), atol=1e-6)
    assert found["residual"] == pytest.approx(np.linalg.norm(b - matrix @ x))


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_shortest_solution_where_columns_depend_on_each_other(solver):
    matrix = with_condition((30, 6), 10) @ RNG.standard_normal((6, 12))
    b = RNG.standard_normal(30)
    found = lstsq(aslinearoperator(matrix), b=b, solver=solver)
    assert np.allclose(found["result"], np.linalg.pinv(matrix) @ b)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("damp", [0.0, 0.02])
def test_least_squares_in_rounds_find_the_same(solver, damp, memory):
    matrix = with_condition((200, 120), 300)
    b = RNG.standard_normal(200)
    checkpoint = memory(every=10)
    found = lstsq(
        aslinearoperator(matrix),
        b=b,
        damp=damp,
        solver=solver,
        iterations=9000,
        checkpoint=checkpoint,
    )
    assert found["converged"]
    rounds = [int(state["iterations"]) for state in checkpoint.saves]
    assert rounds == list(range(50, found["iterations"], 50))
    assert len(rounds) >= 2
    assert np.allclose(found["result"], dense_lstsq(matrix, b, damp), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_checkpoint_that_nobody_wants_makes_no_rounds(solver, counted, memory):
    matrix = with_condition((200, 120), 300)
    plain, watched = counted(matrix), counted(matrix)
    lstsq(plain, b=np.ones(200), solver=solver)
    checkpoint = memory(wanted=False)
    lstsq(watched, b=np.ones(200), solver=solver, checkpoint=checkpoint)
    assert watched.products == plain.products
    assert checkpoint.saves == []


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("steps", [1, 60])
def test_too_few_iterations_say_so(solver, steps, memory):
    matrix = with_condition((200, 120), 300)
    for checkpoint in (memory(wanted=False), memory(every=100)):
        found = lstsq(
            aslinearoperator(matrix),
            b=np.ones(200),
            solver=solver,
            iterations=steps,
            checkpoint=checkpoint,
        )
        assert found["converged"] is False
        assert found["iterations"] == steps


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_matrix_beyond_the_largest_condition_number_says_so(solver):
    matrix = aslinearoperator(np.diag(np.geomspace(1, 1e-3, 10)))
    assert lstsq(matrix, b=np.ones(10), solver=solver)["converged"] is True
    assert lstsq(matrix, b=np.ones(10), solver=solver, conlim=10)["converged"] is False


def test_many_iterations_do_not_make_convergence_easier():
    """SciPy's estimate of ||A|| grows with each iteration."""
    rng, converged = np.random.default_rng(3), 0
    for _ in range(12):
        matrix = with_condition((35, 30), 10 ** rng.uniform(6, 14), rng)
        b, tol = rng.standard_normal(35), 10 ** rng.uniform(-13, -8)
        for solver in SOLVERS:
            options = {"tol": tol, "conlim": 1e300, "solver": solver, "iterations": 20_000}
            found = lstsq(aslinearoperator(matrix), b=b, **options)
            rest, of_A = b - matrix @ found["result"], np.linalg.norm(matrix)
            length = np.linalg.norm(rest)
            most = of_A * np.linalg.norm(found["result"]) + np.linalg.norm(b)
            if found["converged"]:
                converged += 1
                gradient = np.linalg.norm(matrix.T @ rest) / of_A / length
                assert min(gradient, length / most) < 40 * tol
    assert converged > 6


# --- ridge regression ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(60, 10), (10, 60), (1, 3), (7, 1)])
@pytest.mark.parametrize("alpha", [1e-2, 1.0, 100])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_ridge_regression_as_scikit_learn_does_it(shape, alpha, fit_intercept):
    matrix = RNG.standard_normal(shape) + RNG.uniform(0, 5, shape[1])
    y = RNG.standard_normal(shape[0]) + 3
    expected = Ridge(alpha=alpha, fit_intercept=fit_intercept, solver="svd").fit(matrix, y)
    found = ridge(
        aslinearoperator(matrix), y=y, alpha=alpha, fit_intercept=fit_intercept, tol=1e-12
    )
    assert found["converged"] is True
    assert found["residual"] <= 1e-10
    assert np.allclose(found["result"], expected.coef_, rtol=1e-7, atol=1e-9)
    assert found["intercept"] == pytest.approx(expected.intercept_, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(("fit_intercept", "before"), [(True, 3), (False, 2)])
def test_an_iteration_of_ridge_is_a_product_with_each_of_both(fit_intercept, before, counted):
    operator = counted(RNG.standard_normal((50, 20)))
    found = ridge(operator, y=RNG.standard_normal(50), fit_intercept=fit_intercept)
    pairs = ["X", "X'"] * (found["iterations"] + 1)
    assert [name for name, _ in operator.calls] == ["X", *["X'"] * before, *pairs]


# --- all of them --------------------------------------------------------------------------

SQUARE = positive_definite(np.geomspace(1, 1000, 60))
TALL = with_condition((150, 80), 100)
ONES = {60: np.ones(60), 150: RNG.standard_normal(150)}
LONG_TASKS = [
    (cg, SQUARE, {"b": ONES[60]}),
    (ridge, TALL, {"y": ONES[150], "alpha": 1e-3}),
    (ridge, TALL, {"y": ONES[150], "alpha": 1e-3, "fit_intercept": False}),
    (lstsq, TALL, {"b": ONES[150]}),
    (lstsq, TALL, {"b": ONES[150], "damp": 0.01}),
    (lstsq, TALL, {"b": ONES[150], "solver": "lsqr"}),
]


@pytest.mark.parametrize(("task", "matrix", "options"), LONG_TASKS)
@pytest.mark.parametrize("part", [0.5, 1.0])
def test_going_on_from_the_last_iterate(part, task, matrix, options, counted, memory, state_after):
    unbroken = memory()
    operator = counted(matrix)
    expected = task(operator, checkpoint=unbroken, **options)
    number = max(1, int(part * len(unbroken.saves)))
    state = state_after(number, task, aslinearoperator(matrix), **options)
    rest = counted(matrix)
    found = task(rest, checkpoint=memory(state), **options)
    assert found["converged"] is expected["converged"] is True
    assert set(found) == set(expected)
    assert found["iterations"] > state["iterations"] - 1
    assert rest.products < operator.products
    assert np.allclose(found["result"], expected["result"], rtol=1e-4, atol=1e-4)
    state["x"] = np.zeros(3)
    with pytest.raises(InputError, match=r"does not fit.*x of shape \(3,\), expected"):
        task(aslinearoperator(matrix), checkpoint=memory(state), **options)


@pytest.mark.parametrize(("task", "name"), [(cg, "b"), (lstsq, "b"), (ridge, "y")])
def test_a_vector_may_be_a_file(task, name, tmp_path):
    vector = RNG.standard_normal(3)
    np.save(tmp_path / "v.npy", vector)
    matrix = aslinearoperator(np.diag([1.0, 2.0, 3.0]))
    expected = task(matrix, **{name: vector})["result"]
    for path in (tmp_path / "v.npy", str(tmp_path / "v.npy")):
        assert np.array_equal(task(matrix, **{name: path})["result"], expected)
    assert np.array_equal(task(matrix, **{name: list(vector)})["result"], expected)


@pytest.mark.parametrize(("task", "name"), [(cg, "b"), (lstsq, "b"), (ridge, "y")])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], r"{} has shape \(2,\), expected \(3,\)"),
        (np.ones((3, 1)), r"{} has shape \(3, 1\)"),
        (4.0, r"{} has shape \(\)"),
        ([1, 2, np.nan], r"{} holds nan at entry 2 \(counted from 0\)"),
        ([1, -np.inf, 2], r"{} holds -inf at entry 1 \(counted from 0\)"),
        ([1, 2, 3j], "{} has dtype complex128, expected real numbers"),
        (["1", "2", "3"], "{} has dtype <U1, expected real numbers"),
        ([1, [2], 3], "{} is not an array"),
        (None, "{} has dtype object"),
        ("missing.npy", "missing.npy does not exist"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(task, name, value, message):
    with pytest.raises(InputError, match=message.format(name)):
        task(aslinearoperator(np.eye(3)), **{name: value})


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (cg, {"tol": 0}, "tol 0: expected a number between 0 and 1"),
        (cg, {"iterations": 0}, "iterations 0"),
        (lstsq, {"damp": -1}, "damp -1: expected a finite number of at least 0"),
        (lstsq, {"damp": float("inf")}, "damp inf"),
        (lstsq, {"conlim": 0}, "conlim 0: expected a finite number above 0"),
        (lstsq, {"iterations": 1.5}, r"iterations 1\.5"),
        (lstsq, {"solver": "qr"}, "solver 'qr': expected one of lsmr, lsqr"),
        (ridge, {"alpha": -0.1}, r"alpha -0\.1"),
        (ridge, {"alpha": 10**400}, "alpha 1000"),
        (ridge, {"fit_intercept": "false"}, "fit_intercept 'false': expected True or False"),
        (ridge, {"tol": float("nan")}, "tol nan"),
    ],
)
def test_options_out_of_range_cost_no_product(task, options, message, counted):
    operator = counted(np.eye(3))
    with pytest.raises(InputError, match=message):
        task(operator, **{"y" if task is ridge else "b": np.ones(3)}, **options)
    assert operator.products == 0


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_progress_of_cg_is_the_residual_of_each_iterate(memory, state_after, interrupted):
    matrix = np.diag(np.arange(1.0, 41.0)) + 0.1
    b = np.random.default_rng(3).standard_normal(40)
    state = state_after(5, cg, aslinearoperator(matrix), b=b) if interrupted else None
    checkpoint = memory(state)
    cg(aslinearoperator(matrix), b=b, checkpoint=checkpoint)
    left = [np.linalg.norm(matrix @ each["x"] - b) for each in checkpoint.saves]
    reports = [each["residual"] for each in checkpoint.reports]
    assert len(reports) > 10
    assert np.allclose(reports, left / np.linalg.norm(b), rtol=1e-4)


@pytest.mark.parametrize(
    ("task", "options", "names"),
    [
        (power, {}, {"residual", "eigenvalue"}),
        (pagerank, {}, {"change"}),
        (lstsq, {"b": np.arange(4.0)}, {"residual"}),
        (ridge, {"y": np.arange(4.0)}, {"residual"}),
        (logistic, {"y": [0, 1, 0, 1]}, {"objective", "gradient"}),
        (svd, {"k": 2}, {"residual"}),
    ],
)
def test_tasks_say_how_far_they_are(task, options, names, memory):
    matrix = np.eye(4) + np.arange(16.0).reshape(4, 4) % 5
    checkpoint = memory()
    found = task(aslinearoperator(matrix), checkpoint=checkpoint, **options)
    assert checkpoint.reports
    assert all(set(each) == names for each in checkpoint.reports)
    assert all(np.isfinite(list(each.values())).all() for each in checkpoint.reports)
    if task in (power, pagerank):
        assert len(checkpoint.reports) == found["iterations"]
    for name in names & {"residual", "eigenvalue", "change"} - {
        "residual" if task in (ridge, svd) else ""
    }:
        assert checkpoint.reports[-1][name] == pytest.approx(found[name], rel=1e-6)


def test_converged_means_that_the_true_residual_is_small():
    """SciPy updates the residual, which rounding leaves behind if X is ill-conditioned."""
    far = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        n = int(random.integers(2, 30))
        turn = np.linalg.qr(random.standard_normal((n, n))).Q
        X = (turn * np.geomspace(1, 1e-10, n)) @ turn.T
        b = random.standard_normal(n)
        found = cg(aslinearoperator((X + X.T) / 2), b=b, tol=1e-8)
        residual = np.linalg.norm((X + X.T) / 2 @ found["result"] - b) / np.linalg.norm(b)
        assert not found["converged"] or residual <= 1.1e-7
        far += residual > 1.1e-7
    assert far > 0


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_or_columns_that_are_tiny_next_to_others_are_named(axis):
    X = np.random.default_rng(0).standard_normal((9, 3))
    X[(2, slice(None)) if axis == 0 else (slice(None), 2)] *= 1e-120
    name = ("row", "column")[axis]
    for solve, target in ((lstsq, "b"), (ridge, "y")):
        with pytest.warns(ScaleWarning, match=f"{name} 2 of X .* than {name} "):
            solve(aslinearoperator(X), **{target: np.ones(9)})
