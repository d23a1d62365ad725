"""What `open_operator` gives: it opens in a `with` or by hand, and says so when it is used bare."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator, lsqr, svds

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.tasks import ridge


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((31, 12))


@pytest.fixture(scope="module")
def store(X, tmp_path_factory):
    path = tmp_path_factory.mktemp("store")
    np.save(path / "X.npy", X)
    cec_mpi.encode(path / "X.npy", path / "store", 3, 2)
    return path / "store"


W, B = np.ones(12), np.ones(31)

USES = {
    "X @ w": lambda X: X @ W,
    "w @ X": lambda X: B @ X,
    "X @ list": lambda X: X @ [1.0] * 12,
    "X * 2": lambda X: X * 2,
    "2 * X": lambda X: 2 * X,
    "w * X": lambda X: W * X,
    "X + X": lambda X: X + X,
    "X - 1": lambda X: X - 1,
    "-X": lambda X: -X,
    "X / 2": lambda X: X / 2,
    "X ** 2": lambda X: X**2,
    "X(w)": lambda X: X(W),
    "X[0]": lambda X: X[0],
    "len": len,
    "list": list,
    "in": lambda X: 1 in X,
    "asarray": np.asarray,
    "np.dot": lambda X: np.dot(X, W),
    "shape": lambda X: X.shape,
    "dot": lambda X: X.dot(W),
    "H": lambda X: X.H @ B,
    "close": lambda X: X.close,
    "available": lambda X: X.available,
    "set available": lambda X: setattr(X, "available", {1, 2}),
    "open": lambda X: X.open("other"),
    "svds": lambda X: svds(X, k=3),
    "lsqr": lambda X: lsqr(X, B),
    "aslinearoperator": aslinearoperator,
    "operator of SciPy's": lambda X: aslinearoperator(np.eye(31)) @ X,
    "task": lambda X: ridge(X, y=B),
}


@pytest.mark.parametrize("use", USES)
def test_whatever_is_done_without_with_says_what_is_missing(store, use):
    with pytest.raises(InputError, match="was used without with") as caught:
        USES[use](cec_mpi.open_operator(store, None))
    assert f"with open_operator('{store}', None) as X:" in str(caught.value)
    assert ".start()" in str(caught.value)
    assert "X.close()" in str(caught.value)


def test_a_second_store_is_refused_with_what_to_call_instead(store):
    with cec_mpi.open_operator(store, None) as X:
        with pytest.raises(
            InputError, match=r"^an operator serves one store: open_operator\(store\)"
        ):
            X.open(store)
        assert not hasattr(X, "open")
        with cec_mpi.open_operator(store, None) as Y:
            assert np.array_equal(X @ W, Y @ W)


def test_looking_at_it_is_no_use(store):
    """As a notebook or a debugger does."""
    bare = cec_mpi.open_operator(store, None)
    assert repr(bare) == f"<open_operator('{store}', None): opens in a with, or with .start()>"
    assert not hasattr(bare, "_repr_html_")
    assert not hasattr(bare, "__array_interface__")
    assert not hasattr(bare, "close")
    assert not hasattr(bare, "available")
    started = repr(cec_mpi.open_operator(store, local=3, threads=1))
    assert started.startswith(f"<open_operator('{store}', None, local=3, threads=1): opens in")
    assert [name for name in dir(bare) if not name.startswith("_")] == ["start"]
    assert bare is not None
    assert bare in {bare}


def test_it_opens_once(store):
    entrance = cec_mpi.open_operator(store, None)
    with entrance as X:
        assert (X @ W).shape == (31,)
        with pytest.raises(InputError, match="was opened before"), entrance:
            pass
        assert "open>" in repr(entrance)
    assert "closed>" in repr(entrance)
    with pytest.raises(InputError, match="was opened before"):
        entrance.start()


def test_by_hand_as_in_a_notebook(store, X):
    A = cec_mpi.open_operator(store, None).start()
    assert isinstance(A, LinearOperator)
    np.testing.assert_allclose(A @ W, X @ W)
    A.close()
    A.close()
    for product in (lambda: A @ W, lambda: A.H @ np.ones((31, 2)), lambda: A @ (1j * W)):
        with pytest.raises(InputError, match="closed"):
            product()
    again = cec_mpi.open_operator(store, None).start()
    np.testing.assert_allclose(again @ W, X @ W)
    again.close()


def test_closing_early_within_the_with(store, X):
    with cec_mpi.open_operator(store, None) as A:
        A.close()
        A.close()
        with pytest.raises(InputError, match="closed"):
            A @ W


def test_what_is_raised_after_closing_is_raised(store):
    def close_and_multiply():
        with cec_mpi.open_operator(store, None) as A:
            A.close()
            A @ W

    with pytest.raises(InputError, match="closed"):
        close_and_multiply()


def test_an_error_at_the_start_leaves_nothing_open(store, tmp_path):
    entrance = cec_mpi.open_operator(tmp_path / "nowhere", None)
    with pytest.raises(cec_mpi.errors.StoreError):
        entrance.start()
    with pytest.raises(InputError, match="steps"):
        cec_mpi.open_operator(store, None, steps=3).start()


def test_accuracy_is_that_of_the_decoders_in_use(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    manifest = cec_mpi.encode(tmp_path / "X.npy", tmp_path / "store", 8, 4, code="gaussian")
    code, eps = manifest.code, np.finfo(np.float64).eps
    worst = code.conditioning.worst_machines
    with cec_mpi.open_operator(tmp_path / "store", None, speeds=[1.0] * 8) as op:
        assert op.accuracy == 8 * eps * code.conditioning.worst
        X_w = op @ W
        usual = op.accuracy
        assert usual < 8 * eps * code.conditioning.worst / 2
        op.available = worst
        op.H @ B
        rows = code.generator[[n - 1 for n in worst]]
        assert op.accuracy == pytest.approx(8 * eps * np.linalg.cond(rows, 1), rel=0.5)
        op.available = None
        assert np.allclose(op @ W, X_w)
        assert op.accuracy == usual
