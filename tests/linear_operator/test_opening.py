"""What `open_operator` returns: an operator, or under a launcher a context that gives one."""

from __future__ import annotations

import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator, lsqr, svds

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.runtime.records.recorder import Recorder
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
    "2 * X": lambda X: 2 * X,
    "X + X": lambda X: X + X,
    "-X": lambda X: -X,
    "X / 2": lambda X: X / 2,
    "X ** 2": lambda X: X**2,
    "X(w)": lambda X: X(W),
    "X[0]": lambda X: X[0],
    "len": len,
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


@pytest.fixture
def as_rank_0(monkeypatch):
    """This process is rank 0 of two that a launcher has started."""
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")


@pytest.mark.usefixtures("as_rank_0")
@pytest.mark.parametrize("use", USES)
def test_under_a_launcher_a_use_without_with_says_what_is_missing(store, use):
    with pytest.raises(InputError, match="was used without with") as caught:
        USES[use](cec_mpi.open_operator(store, accept="run.json"))
    assert f"with open_operator('{store}', None, accept='run.json') as X:" in str(caught.value)
    assert "`if X is not None:`" in str(caught.value)


@pytest.mark.usefixtures("as_rank_0")
def test_looking_at_a_context_does_not_use_it(store):
    """As a notebook or a debugger does."""
    bare = cec_mpi.open_operator(store, accept="run.json")
    assert repr(bare).startswith(
        f"<open_operator('{store}', None, accept='run.json'): not open yet"
    )
    for name in ("_repr_html_", "__array_interface__", "close", "available"):
        assert not hasattr(bare, name)
    assert [name for name in dir(bare) if not name.startswith("_")] == ["start"]
    assert bare is not None
    assert bare in {bare}


def test_a_second_store_is_refused_with_what_to_call_instead(store):
    X = cec_mpi.open_operator(store)
    with pytest.raises(InputError, match=r"^an operator serves one store: open_operator\(store\)"):
        X.open(store)
    assert not hasattr(X, "open")
    assert np.array_equal(X @ W, cec_mpi.open_operator(store) @ W)


def test_an_operator_works_without_with_and_start(store, X):
    A = cec_mpi.open_operator(store)
    assert isinstance(A, LinearOperator)
    np.testing.assert_allclose(A @ W, X @ W)
    np.testing.assert_allclose(A.H @ B, X.T @ B)
    np.testing.assert_allclose((2 * A + A) @ W, 3 * (X @ W))
    np.testing.assert_allclose(svds(A, k=2)[1], svds(X, k=2)[1])
    np.testing.assert_allclose(lsqr(A, B)[0], np.linalg.lstsq(X, B, rcond=None)[0], atol=1e-6)


def test_available_machines_may_be_assigned_before_the_first_product(store, X):
    records = []
    A = cec_mpi.open_operator(store, recorder=Recorder(records.append))
    A.available = {1, 3}
    np.testing.assert_allclose(A @ W, X @ W)
    assert records[0].available == (1, 3)


@pytest.mark.parametrize("close", ["with", "close", "close within", "close unused"])
def test_a_closed_operator_stays_closed(store, close):
    A = cec_mpi.open_operator(store)
    if close == "with":
        assert A.start() is A
        with A as same:
            assert same is A
            A @ W
    elif close == "close within":
        with A:
            A.close()
    else:
        if close == "close":
            A @ W
        A.close()
    A.close()
    assert "closed" in repr(A)
    for product in (lambda: A @ W, lambda: A.H @ np.ones((31, 2)), lambda: A @ (1j * W), A.start):
        with pytest.raises(InputError, match="closed"):
            product()


def test_an_error_in_the_options_or_the_store_is_raised_by_the_call(store, tmp_path):
    for raised, given in (
        (cec_mpi.errors.StoreError, {"store": tmp_path / "nowhere"}),
        (InputError, {"store": store, "steps": 3}),
        (InputError, {"store": store, "stragglers": -1, "local": 3}),
        (cec_mpi.errors.InfeasibleError, {"store": store, "machines": (1,)}),
    ):
        with pytest.raises(raised):
            cec_mpi.open_operator(**given)


def test_a_start_that_fails_can_be_repeated(store, X, tmp_path):
    copy = shutil.copytree(store, tmp_path / "copy")
    shard = copy / "shard-0002.npy"
    A = cec_mpi.open_operator(copy)
    shard.rename(tmp_path / "away")
    with pytest.raises(cec_mpi.errors.CecError, match=r"shard-0002\.npy"):
        A @ W
    (tmp_path / "away").rename(shard)
    np.testing.assert_allclose(A @ W, X @ W)


def test_what_opens_an_operator_cannot_use_it(store):
    def available(tick):
        return A.available

    A = cec_mpi.open_operator(store, availability=available)
    with pytest.raises((InputError, RecursionError)):
        A @ W


def test_threads_that_use_it_first_start_it_once(store, X):
    recorder = Recorder()
    A = cec_mpi.open_operator(store, recorder=recorder)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: A @ W, range(16)):
            np.testing.assert_allclose(found, X @ W)
    assert recorder.steps == 16


@pytest.mark.parametrize("shards", ["mmap", "ram"])
def test_a_closed_operator_holds_no_shards(tmp_path, shards):
    matrix = np.random.default_rng(0).standard_normal((40_000, 50))
    cec_mpi.encode(matrix, tmp_path / "store", 3, 2)
    megabytes = matrix.nbytes / 2 * 3 / 1e6
    closed = []
    tracemalloc.start()
    try:
        for _ in range(3):
            A = cec_mpi.open_operator(tmp_path / "store", shards=shards)
            A @ np.ones(50)
            A.close()
            closed.append(A)
        assert tracemalloc.get_traced_memory()[0] / 1e6 < megabytes / 2
    finally:
        tracemalloc.stop()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


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
