"""Shapes and dtypes of factors, masked entries, and copies of operators.

SciPy before 1.18 passes no batches to operators, so their private methods are tested.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas
import pytest
from scipy.sparse import eye_array
from scipy.sparse.linalg import LinearOperator

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.runtime.records.recorder import Recorder

Q, R = 31, 12
X = np.random.default_rng(0).standard_normal((Q, R))


@pytest.fixture(scope="module")
def recorder():
    return Recorder()


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(X, 3, 2).path


@pytest.fixture(scope="module")
def A(store, recorder):
    with cec_mpi.open_operator(store, recorder=recorder) as A:
        yield A


def evaluate(expression, A, **names):
    return eval(expression, {"A": A, **names})


def draw(shape, dtype):
    rng = np.random.default_rng(len(shape))
    real = rng.standard_normal(shape)
    return real + 1j * rng.standard_normal(shape) if dtype is complex else real.astype(dtype)


@pytest.mark.parametrize("dtype", [float, complex, np.float32, int])
@pytest.mark.parametrize("adjoint", [False, True])
def test_a_batch_is_one_step(A, recorder, dtype, adjoint):
    length, M = (Q, X.T) if adjoint else (R, X)
    for batch in [(), (1,), (5,), (R,), (2, 3), (4, 1), (1, Q), (0,), (3, 0)]:
        x, blocks = draw((*batch, length), dtype), draw((*batch, length, 2), dtype)
        for factor, multiply, expected in [
            (x, A._rmatvec if adjoint else A._matvec, (M @ x[..., None])[..., 0]),
            (blocks, A._rmatmat if adjoint else A._matmat, M @ blocks),
        ]:
            steps, before = recorder.steps, factor.copy()
            product = multiply(factor)
            assert product.shape == expected.shape
            assert product.dtype == (complex if dtype is complex else float)
            np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(factor, before)
            assert recorder.steps - steps == (1 if factor.size else 0)
    column = draw((length, 1), dtype)
    product = (A.H if adjoint else A).matvec(column)
    np.testing.assert_allclose(product, M @ column, rtol=1e-12, atol=1e-12)


def scipy_passes_batches():
    identity = LinearOperator((2, 2), matvec=lambda x: x, dtype=float)
    try:
        identity.matvec(np.ones((3, 2)))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("view", ["A.T", "A.H", "2 * A", "A.T @ A", "A + A", "1j * A", "(2 * A).T"])
def test_views_multiply_and_can_be_copied_in_this_process(A, view):
    V, M = evaluate(view, A), evaluate(view.replace(".H", ".T"), X)
    W = draw((4, V.shape[1], 3), complex)
    if scipy_passes_batches():
        np.testing.assert_allclose(V.matmat(W), M @ W, rtol=1e-12, atol=1e-12)
        expected = (M @ W[..., :1])[..., 0]
        np.testing.assert_allclose(V.matvec(W[..., 0]), expected, rtol=1e-12, atol=1e-12)
    for operator in (V, copy.copy(V)):
        np.testing.assert_allclose(operator @ W[0], M @ W[0], rtol=1e-12, atol=1e-12)
    for duplicate in pickle.dumps, copy.deepcopy:
        with pytest.raises(InputError, match="an operator cannot be pickled or copied"):
            duplicate(V)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_operator_cannot_be_copied(A, duplicate):
    with pytest.raises(InputError, match="cannot be pickled or copied"):
        duplicate(A)


def test_vectors_of_one_number_are_not_columns(tmp_path):
    cec_mpi.encode(np.array([[3.0]]), tmp_path / "store", 3, 2)
    with cec_mpi.open_operator(tmp_path / "store") as A:
        for product in A._matvec, A._rmatvec:
            for x in np.ones(1), np.ones((5, 1)), np.ones((2, 5, 1)):
                np.testing.assert_allclose(product(x), 3 * x)


# --- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(R + 1,), (3, R + 1), (R, 2), (2, 3, R + 1)], ids=str)
def test_vectors_of_wrong_shape_are_refused(A, shape):
    with pytest.raises(ValueError, match=r"(?i)shape|dimension"):
        A.matvec(np.ones(shape))
    with pytest.raises(InputError, match=rf"shape .*expected \({R},"):
        A._matvec(np.ones(shape))


def test_nan_and_sparse_factors_are_refused(A):
    x = np.ones((2, 3, R))
    x[1, 2, 5] = np.nan
    with pytest.raises(InputError, match=r"nan: expected finite"):
        A._matvec(x)
    for product in A._matmat, A._rmatmat:
        with pytest.raises(InputError, match=r"sparse matrix .* expected an array"):
            product(eye_array(A.shape[0]))


W = np.ma.masked_equal(np.where(np.arange(R) == 4, -999.0, 1), -999)
V = np.ma.masked_equal(np.where(np.arange(Q) == 4, -999.0, 1), -999)
MASKED = [
    *("A @ W", "A * W", "A(W)", "A.dot(W)", "A.matvec(W)", "A.matmat(W[:, None])", "W @ A.T"),
    *("V @ A", "V * A", "A.H @ V", "A.T @ V", "A.rmatvec(V)", "A.rmatmat(V[:, None])"),
    *("(2 * A) @ W", "(A / 2) @ W", "(-A) @ W", "(A - A) @ W", "(A.T @ A) @ W", "A.T.H @ W"),
    *("((A.T @ A) ** 2) @ W", "(A + A).H @ V", "A @ list(W)", "A.T @ np.stack([V, V]).T"),
]


@pytest.mark.parametrize("product", MASKED)
def test_masked_entries_are_refused(A, product):
    with pytest.raises(InputError, match=r"is masked at (entry|row) 4.* expected numbers"):
        evaluate(product, A, W=W, V=V, np=np.ma)


@pytest.mark.parametrize(
    "expression", ["np.asarray(A)", "np.linalg.svd(A.T)", "np.array(2 * A, float)", "np.dot(X, A)"]
)
def test_conversions_to_an_array_are_refused(A, expression):
    with pytest.raises(InputError, match=r"array: cec_mpi\.decode .*X @ numpy\.eye\((12|31)\)"):
        evaluate(expression, A, X=X.T, np=np)


def test_masks_without_entries_and_series_without_missing_values_are_accepted(A):
    np.testing.assert_allclose(A @ np.ma.array(np.ones(R)), X.sum(axis=1))
    np.testing.assert_allclose(A.T @ np.ma.array(np.ones(Q)), X.sum(axis=0))
    series = pandas.Series([True, *[False] * (Q - 1)], dtype="boolean")
    assert np.isfinite(A.T @ series).all()
    with pytest.raises(InputError, match="dtype object: expected real numbers"):
        A.T @ series.where(series)
