"""Singular values and principal components against NumPy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator, svds
from sklearn.decomposition import PCA

from cec_mpi.errors import InputError
from cec_mpi.tasks import pca, svd
from cec_mpi.tasks.common.centring import centre_rows

RNG = np.random.default_rng(3)
SHAPES = [(60, 30), (30, 60), (40, 40)]


def with_singular_values(values, shape, rng=RNG):
    u, _ = np.linalg.qr(rng.standard_normal((shape[0], len(values))))
    v, _ = np.linalg.qr(rng.standard_normal((shape[1], len(values))))
    return u * values @ v.T


@given(
    rows=st.integers(1, 25),
    columns=st.integers(1, 25),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_triplets_as_numpy_finds_them(rows, columns, seed, data):
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


@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_a_larger_tolerance_takes_fewer_products(tol, counted):
    matrix = with_singular_values(np.linspace(1, 2, 200), (300, 200))
    exact, rough = counted(matrix), counted(matrix)
    best = svd(exact)["result"]
    assert np.allclose(svd(rough, tol=tol)["result"], best, rtol=tol)
    assert rough.products < exact.products


@pytest.mark.parametrize(("iterations", "least", "most"), [(15, 1, 3), (5, 0, 0)])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_has_not_converged_is_not_there(shape, iterations, least, most):
    matrix = with_singular_values(np.append([9.0, 7.0], np.linspace(1, 1.01, 28)), shape)
    found = svd(aslinearoperator(matrix), k=4, iterations=iterations)
    assert found["converged"] is False
    assert found["iterations"] == iterations
    number = len(found["result"])
    assert least <= number <= most
    assert found["u"].shape == (shape[0], number)
    assert found["vt"].shape == (number, shape[1])
    assert np.allclose(found["result"], [9, 7][:number])


@given(seed=st.integers(0, 1000), k=st.integers(2, 9), tol=st.sampled_from([0.0, 1e-3]))
def test_no_copy_of_a_repeated_singular_value_is_missed(seed, k, tol):
    rng = np.random.default_rng(seed)
    values = np.repeat([9.0, 7.0, 6.0, 4.0, 2.0, 1.0], rng.integers(1, 5, 6))
    matrix = with_singular_values(values, (60, 40), rng)
    k = min(k, len(values) - 1)
    found = svd(aslinearoperator(matrix), k=k, tol=tol, seed=seed)
    assert np.allclose(found["result"], values[:k], rtol=max(tol, 1e-12))


def cases():
    """Matrices with the number of singular values to find."""
    rng = np.random.default_rng(1)
    steps = np.arange(1, 201)
    clustered = np.append(10 + 1e-3 * np.arange(20), np.linspace(0, 5, 180))
    yield with_singular_values(1 / steps, (400, 200), rng), 6
    yield with_singular_values(0.95**steps, (200, 300), rng), 10
    yield with_singular_values(np.linspace(1, 2, 200), (300, 200), rng), 6
    yield with_singular_values(clustered, (300, 200), rng), 10
    yield with_singular_values(np.linspace(1, 2, 40), (300, 200), rng), 8
    yield rng.standard_normal((300, 200)), 1
    yield rng.standard_normal((200, 200)), 5
    yield rng.standard_normal((200, 400)), 20


@pytest.mark.parametrize(("matrix", "k"), list(cases()))
def test_no_more_products_than_arpack_for_residuals_as_small(matrix, k, counted):
    ours, others = counted(matrix), counted(matrix)
    found = svd(ours, k=k)
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    u, s, vt = svds(others, k=k, v0=start)
    assert ours.products <= others.products
    assert np.allclose(found["result"], s[::-1], rtol=1e-12)
    errors = 1e-14 * s.max()
    assert np.abs(matrix @ vt.T - u * s).max() < errors
    assert np.abs(matrix @ found["vt"].T - found["u"] * found["result"]).max() < errors
    assert np.abs(matrix.T @ found["u"] - found["vt"].T * found["result"]).max() < errors


@pytest.mark.filterwarnings("ignore:.* singular values are below")
@pytest.mark.parametrize("accuracy", [1e-12, 1e-7, 1e-4])
@pytest.mark.parametrize("values", [np.linspace(1, 2, 60), 0.5 ** np.arange(60), [3, 2]])
def test_errors_of_products_end_it_when_they_are_all_that_is_left(values, accuracy, noisy):
    matrix = with_singular_values(np.sort(values)[::-1].astype(float), (90, 60))
    operator = noisy(matrix, accuracy, np.random.default_rng(4))
    exact = np.linalg.svd(matrix, compute_uv=False)[:5]
    found = svd(operator, k=5)
    assert found["converged"]
    assert operator.products < 400
    assert np.allclose(found["result"], exact, rtol=0, atol=20 * accuracy * exact[0])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", [svd, pca])
def test_going_on_after_any_product_is_as_without_a_break(task, shape, counted, memory):
    matrix = with_singular_values(np.repeat(np.linspace(1, 2, 15), 2), shape)
    unbroken, checkpoint = counted(matrix), memory()
    expected = task(unbroken, k=3, checkpoint=checkpoint)
    assert len(checkpoint.saves) == expected["iterations"] - 1  # the last one ends the task
    for number in (1, 2, 7, 20, len(checkpoint.saves) - 4, len(checkpoint.saves)):
        rest = counted(matrix)
        found = task(rest, k=3, checkpoint=memory(checkpoint.saves[number - 1]))
        assert found["iterations"] == expected["iterations"]
        made = 2 * (expected["iterations"] - number) + 1
        assert rest.products == made + (task is pca)  # the mean
        for (_, one), (_, other) in zip(rest.calls[-made:], unbroken.calls[-made:], strict=True):
            assert np.allclose(one, other, rtol=0, atol=1e-12)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert np.allclose(found[name], value, atol=1e-12), name


def test_one_that_did_not_converge_goes_on_with_more_iterations(memory):
    matrix = aslinearoperator(RNG.standard_normal((60, 40)))
    checkpoint = memory()
    assert not svd(matrix, iterations=20, checkpoint=checkpoint)["converged"]
    found = svd(matrix, checkpoint=memory(checkpoint.saves[-1]))
    alone = svd(matrix)
    assert found["converged"]
    assert found["iterations"] == alone["iterations"]
    assert np.allclose(found["result"], alone["result"], rtol=1e-14)


def test_no_more_than_so_many_vectors_are_kept(memory):
    matrix = RNG.standard_normal((300, 200))
    checkpoint = memory()
    svd(aslinearoperator(matrix), k=4, checkpoint=checkpoint)
    sizes = {state["basis"].shape for state in checkpoint.saves}
    assert {columns for _, columns in sizes} == {200}
    assert max(rows for rows, _ in sizes) <= 2 * 4 + 20


@pytest.mark.parametrize("shape", SHAPES)
def test_the_centred_operator_is_the_matrix_less_the_mean_of_its_rows(shape):
    matrix = RNG.standard_normal(shape) + RNG.uniform(0, 9, shape[1])
    operator, mean = centre_rows(aslinearoperator(matrix))
    dense = matrix - matrix.mean(axis=0)
    assert np.allclose(mean, matrix.mean(axis=0))
    for size in ((), (1,), (4,)):
        right, left = RNG.standard_normal((shape[1], *size)), RNG.standard_normal((shape[0], *size))
        assert np.allclose(operator @ right, dense @ right)
        assert np.allclose(operator.H @ left, dense.T @ left)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [1, 5])
def test_components_as_scikit_learn_finds_them(shape, k):
    matrix = RNG.standard_normal(shape) * np.linspace(3, 1, shape[1]) + RNG.uniform(0, 9, shape[1])
    expected = PCA(k, svd_solver="full").fit(matrix)
    found = pca(aslinearoperator(matrix), k=k)
    assert found["converged"] is True
    assert np.allclose(found["result"], expected.components_)
    assert np.allclose(found["mean"], expected.mean_)
    assert np.allclose(found["explained_variance"], expected.explained_variance_)
    assert np.allclose(found["singular_values"], expected.singular_values_)


@pytest.mark.parametrize("task", [svd, pca])
@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((5, 4), {"k": 5}, "k 5: expected 1 to 4"),
        ((4, 5), {"k": 9}, "k 9: expected 1 to 4"),
        ((5, 4), {"k": 0}, "k 0"),
        ((5, 4), {"k": 1.5}, r"k 1\.5"),
        ((5, 4), {"k": 2, "tol": -1}, "tol -1: expected 0 or"),
        ((5, 4), {"k": 2, "tol": 1}, "tol 1: expected 0 or"),
        ((5, 4), {"k": 2, "iterations": 0}, "iterations 0"),
        ((5, 4), {"k": 2, "seed": -1}, "seed -1"),
    ],
)
def test_options_out_of_range_cost_no_product(task, shape, options, message, counted):
    operator = counted(np.ones(shape))
    with pytest.raises(InputError, match=message):
        task(operator, **options)
    assert operator.products == 0


def test_a_zero_matrix_has_singular_values_zero():
    found = svd(aslinearoperator(np.zeros((9, 8))), k=2)
    assert found["result"].tolist() == [0, 0]
    assert np.allclose(found["u"].T @ found["u"], np.eye(2))
    assert np.allclose(found["vt"] @ found["vt"].T, np.eye(2))


def test_a_matrix_with_nan_has_no_singular_vectors():
    matrix = np.ones((9, 8))
    matrix[2, 3] = np.nan
    with pytest.raises(InputError, match=r"svd: X is too large or not finite: .* infinity or NaN"):
        svd(aslinearoperator(matrix), k=2)


@pytest.mark.parametrize("task", [svd, pca])
def test_a_checkpoint_of_other_vectors_is_refused(task, memory, state_after):
    matrix = aslinearoperator(RNG.standard_normal((9, 8)))
    state = state_after(1, task, matrix, k=2)
    for wrong in (
        {"basis": np.ones((3, 7))},
        {"basis": np.eye(8)[:0], "projected": np.ones((0, 0))},
        {"projected": np.ones((1, 1))},
        {"first": np.array(9)},
    ):
        with pytest.raises(InputError, match="the checkpoint does not fit"):
            task(matrix, k=2, checkpoint=memory(state | wrong))
