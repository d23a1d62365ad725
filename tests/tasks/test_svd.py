"""Singular values and principal components against NumPy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator
from sklearn.decomposition import PCA

from cec_mpi.errors import InputError
from cec_mpi.tasks import pca, svd
from cec_mpi.tasks.common.centred import centred

RNG = np.random.default_rng(3)
SHAPES = [(60, 30), (30, 60), (40, 40)]


def with_singular_values(values, shape, rng=RNG):
    u, _ = np.linalg.qr(rng.standard_normal((shape[0], len(values))))
    v, _ = np.linalg.qr(rng.standard_normal((shape[1], len(values))))
    return u * values @ v.T


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(2, 25),
    columns=st.integers(2, 25),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_triplets_as_numpy_finds_them(rows, columns, seed, data):
    k = data.draw(st.integers(1, min(rows, columns) - 1))
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


def test_repeated_singular_values_and_a_low_rank():
    for values in ([5, 5, 5, 1, 0.5], [3, 2]):
        matrix = with_singular_values(np.array(values, float), (50, 40))
        found = svd(aslinearoperator(matrix), k=4)
        assert np.allclose(found["result"], np.linalg.svd(matrix, compute_uv=False)[:4])


@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_a_larger_tolerance_takes_fewer_products(tol, counted):
    matrix = with_singular_values(np.linspace(1, 2, 200), (300, 200))
    exact, rough = counted(matrix), counted(matrix)
    best = svd(exact)["result"]
    assert np.allclose(svd(rough, tol=tol)["result"], best, rtol=tol)
    assert rough.products < exact.products


@pytest.mark.parametrize("shape", SHAPES)
def test_what_has_not_converged_is_not_there(shape):
    matrix = with_singular_values(np.append([9.0, 7.0], np.linspace(1, 1.01, 28)), shape)
    found = svd(aslinearoperator(matrix), k=4, iterations=1)
    assert found["converged"] is False
    number = len(found["result"])
    assert number < 4
    assert found["u"].shape == (shape[0], number)
    assert found["vt"].shape == (number, shape[1])
    assert np.allclose(found["result"], [9, 7][:number])


def test_nothing_may_have_converged():
    matrix = with_singular_values(np.linspace(1, 1.01, 100), (200, 100))
    found = svd(aslinearoperator(matrix), k=4, iterations=1)
    assert found["converged"] is False
    assert found["result"].shape == (0,)
    assert found["u"].shape == (200, 0)
    assert found["vt"].shape == (0, 100)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", [svd, pca])
@pytest.mark.parametrize("number", [1, 2])
def test_going_on_from_the_vectors_found_so_far(number, task, shape, counted, memory, state_after):
    matrix = RNG.standard_normal(shape) + 1
    alone = task(aslinearoperator(matrix), k=3)
    unbroken, rest = counted(matrix), counted(matrix)
    assert task(unbroken, k=3, checkpoint=memory())["converged"]
    state = state_after(number, task, aslinearoperator(matrix), k=3)
    assert state["vectors"].shape == (min(shape), 3)
    found = task(rest, k=3, checkpoint=memory(state))
    assert found["converged"]
    assert rest.products < unbroken.products
    assert set(found) == set(alone)
    for name, expected in alone.items():
        assert np.allclose(found[name], expected, atol=1e-8), name


def test_the_vectors_found_so_far_save_products(counted, memory, state_after):
    matrix = with_singular_values(np.linspace(1, 2, 200), (300, 200))
    fresh, rest = counted(matrix), counted(matrix)
    state = state_after(2, svd, aslinearoperator(matrix))
    expected = svd(fresh)["result"]
    assert np.allclose(svd(rest, checkpoint=memory(state, wanted=False))["result"], expected)
    assert rest.products < fresh.products


@pytest.mark.parametrize(
    ("tol", "wanted", "saved"),
    [(0, True, [1e-2, 1e-5]), (1e-4, True, [1e-2]), (0.5, True, []), (0, False, [])],
)
def test_the_ladder_ends_at_the_tolerance(tol, wanted, saved, memory):
    checkpoint = memory(wanted=wanted)
    svd(aslinearoperator(RNG.standard_normal((30, 20))), k=3, tol=tol, checkpoint=checkpoint)
    assert [float(state["tol"]) for state in checkpoint.saves] == saved


@pytest.mark.parametrize(("every", "saved"), [(60, [1e-2, 1e-5]), (10_000, [])])
def test_only_what_takes_long_climbs_the_ladder(every, saved, counted, memory):
    matrix = with_singular_values(np.linspace(1, 2, 200), (300, 200))
    checkpoint, direct, found = memory(every=every), counted(matrix), counted(matrix)
    expected = svd(direct)["result"]
    assert np.allclose(svd(found, checkpoint=checkpoint)["result"], expected)
    assert [float(state["tol"]) for state in checkpoint.saves] == saved
    assert (found.products == direct.products) == (not saved)


def test_going_on_to_a_larger_tolerance_than_was_met(memory, state_after):
    matrix = aslinearoperator(RNG.standard_normal((30, 20)))
    state = state_after(2, svd, matrix, k=3)
    found = svd(matrix, k=3, tol=0.1, checkpoint=memory(state))
    assert np.allclose(found["result"], svd(matrix, k=3)["result"], rtol=0.1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_centred_operator_is_the_matrix_less_the_mean_of_its_rows(shape):
    matrix = RNG.standard_normal(shape) + RNG.uniform(0, 9, shape[1])
    operator, mean = centred(aslinearoperator(matrix))
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
    ("shape", "options", "says"),
    [
        ((5, 4), {"k": 4}, "k 4: expected from 1 to 3"),
        ((4, 5), {"k": 9}, "k 9: expected from 1 to 3"),
        ((5, 4), {"k": 0}, "k 0"),
        ((5, 4), {"k": 1.5}, r"k 1\.5"),
        ((5, 4), {"k": 2, "tol": -1}, "tol -1: expected 0 or"),
        ((5, 4), {"k": 2, "tol": 1}, "tol 1: expected 0 or"),
        ((5, 4), {"k": 2, "iterations": 0}, "iterations 0"),
        ((5, 4), {"k": 2, "seed": -1}, "seed -1"),
    ],
)
def test_options_out_of_range_cost_no_product(task, shape, options, says, counted):
    operator = counted(np.ones(shape))
    with pytest.raises(InputError, match=says):
        task(operator, **options)
    assert operator.products == 0


def test_a_zero_matrix_has_singular_values_zero(memory):
    for checkpoint in (memory(), memory(wanted=False)):
        found = svd(aslinearoperator(np.zeros((9, 8))), k=2, checkpoint=checkpoint)
        assert found["result"].tolist() == [0, 0]
        assert np.allclose(found["u"].T @ found["u"], np.eye(2))
        assert np.allclose(found["vt"] @ found["vt"].T, np.eye(2))


def test_a_matrix_with_nan_has_no_singular_vectors():
    matrix = np.ones((9, 8))
    matrix[2, 3] = np.nan
    with pytest.raises(InputError, match=r"svd: a product of X .* holds infinite numbers or NaN"):
        svd(aslinearoperator(matrix), k=2)


@pytest.mark.parametrize("task", [svd, pca])
def test_a_checkpoint_with_another_number_of_vectors_is_refused(task, memory, state_after):
    matrix = aslinearoperator(RNG.standard_normal((9, 8)))
    state = state_after(1, task, matrix, k=2)
    with pytest.raises(InputError, match="the checkpoint does not fit"):
        task(matrix, k=3, checkpoint=memory(state))
