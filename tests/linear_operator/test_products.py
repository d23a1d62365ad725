"""Products of an operator in the shapes that SciPy knows, and what may be copied of one.

SciPy before 1.18 lets no batch through to an operator: its own way in is tested then.
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
BATCHES = [(), (1,), (5,), (R,), (2, 3), (4, 1), (1, Q), (0,), (3, 0)]


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((Q, R))


@pytest.fixture(scope="module")
def recorder():
    return Recorder()


@pytest.fixture(scope="module")
def store(X, make_store):
    return make_store(X, 3, 2).path


@pytest.fixture(scope="module")
def A(store, recorder):
    with cec_mpi.open_operator(store, None, recorder=recorder) as A:
        yield A


def numbers(shape, kind):
    rng = np.random.default_rng(len(shape))
    real = rng.standard_normal(shape)
    return real + 1j * rng.standard_normal(shape) if kind is complex else real.astype(kind)


@pytest.mark.parametrize("kind", [float, complex, np.float32, int])
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("adjoint", [False, True])
def test_a_batch_is_one_step(X, A, recorder, batch, kind, adjoint):
    length, M = (Q, X.T) if adjoint else (R, X)
    x = numbers((*batch, length), kind)
    blocks = numbers((*batch, length, 2), kind)
    for given, product, expected in [
        (x, A._rmatvec if adjoint else A._matvec, (M @ x[..., None])[..., 0]),
        (blocks, A._rmatmat if adjoint else A._matmat, M @ blocks),
    ]:
        before, as_it_was = recorder.steps, given.copy()
        y = product(given)
        assert y.shape == expected.shape
        assert y.dtype == (complex if kind is complex else float)
        np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(given, as_it_was)
        assert recorder.steps - before == (1 if given.size else 0)


@pytest.mark.parametrize("view", ["T", "H", "2 * A", "A.T @ A", "A + A", "1j * A"])
def test_batches_of_views_and_products(X, A, view):
    V = eval(view, {"A": A}) if " " in view else getattr(A, view)
    M = eval(view, {"A": X}) if " " in view else X.T
    W = numbers((4, V.shape[1], 3), complex)
    if batches_pass():
        np.testing.assert_allclose(V.matmat(W), M @ W, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            V.matvec(W[..., 0]), (M @ W[..., :1])[..., 0], rtol=1e-12, atol=1e-12
        )
    np.testing.assert_allclose(V @ W[0], M @ W[0], rtol=1e-12, atol=1e-12)


def batches_pass():
    """Whether this SciPy gives batches to its operators."""
    identity = LinearOperator((2, 2), matvec=lambda x: x, dtype=float)
    try:
        identity.matvec(np.ones((3, 2)))
    except ValueError:
        return False
    return True


def test_an_operator_of_one_row_and_column(tmp_path):
    """A batch of vectors of one number looks like a column."""
    cec_mpi.encode(np.array([[3.0]]), tmp_path / "store", 3, 2)
    with cec_mpi.open_operator(tmp_path / "store", None) as A:
        for product in A._matvec, A._rmatvec:
            for x in np.ones(1), np.ones((5, 1)), np.ones((2, 5, 1)):
                np.testing.assert_allclose(product(x), 3 * x)


@pytest.mark.parametrize("shape", [(R + 1,), (3, R + 1), (R, 2), (2, 3, R + 1)], ids=str)
def test_a_batch_of_other_vectors_is_refused(A, shape):
    with pytest.raises(ValueError, match=r"(?i)shape|dimension"):
        A.matvec(np.ones(shape))
    with pytest.raises(InputError, match=rf"shape .*expected \({R},"):
        A._matvec(np.ones(shape))


def test_a_sparse_matrix_is_refused(A):
    for product in A._matmat, A._rmatmat:
        with pytest.raises(InputError, match=r"sparse matrix .* expected an array"):
            product(eye_array(A.shape[0]))


def test_a_batch_with_a_nan_says_so(A):
    x = np.ones((2, 3, R))
    x[1, 2, 5] = np.nan
    with pytest.raises(InputError, match=r"nan: expected finite"):
        A._matvec(x)


@pytest.mark.parametrize("view", ["A.T", "A.H", "2 * A", "A.T @ A", "A + A", "A.T.H"])
def test_views_can_be_copied_but_go_nowhere_else(X, A, view):
    V, M = (eval(view.replace(".H", ".T"), {"A": M}) for M in (A, X))
    W = np.ones((V.shape[1], 2))
    np.testing.assert_allclose(copy.copy(V) @ W, M @ W, rtol=1e-12, atol=1e-12)
    for make in pickle.dumps, copy.deepcopy:
        with pytest.raises(InputError, match="an operator cannot be pickled or copied"):
            make(V)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_operator_cannot_be_copied(store, make):
    B = cec_mpi.open_operator(store)
    for use in (lambda: None, lambda: B @ np.ones(R), B.close):
        use()
        with pytest.raises(InputError, match="cannot be pickled or copied"):
            make(B)


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
    names = {"A": A, "W": W, "V": V, "np": np.ma}
    with pytest.raises(InputError, match=r"is masked at (entry|row) 4.* expected numbers"):
        eval(product, names)


def test_a_mask_without_masked_entries_is_dropped(X, A):
    np.testing.assert_allclose(A @ np.ma.array(np.ones(R)), X.sum(axis=1))
    np.testing.assert_allclose(A.T @ np.ma.array(np.ones(Q)), X.sum(axis=0))


def test_missing_values_of_pandas_are_refused(A):
    series = pandas.Series([True, *[False] * (Q - 1)], dtype="boolean")
    assert np.isfinite(A.T @ series).all()
    with pytest.raises(InputError, match="dtype object: expected real numbers"):
        A.T @ series.where(series)


def test_masked_speeds_are_refused(store):
    with pytest.raises(InputError, match="masked at entry 1"):
        cec_mpi.open_operator(store, None, speeds=np.ma.array([1, 2, 3], mask=[0, 1, 0])).start()
