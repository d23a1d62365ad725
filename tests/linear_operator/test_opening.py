"""`open_operator` returns an operator, or a context manager under a launcher."""

from __future__ import annotations

import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator, lsqr, svds

import cec_mpi
from cec_mpi.errors import CecError, InfeasibleError, InputError, StoreError
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.tasks import ridge

X = np.random.default_rng(0).standard_normal((31, 12))
W, B = np.ones(12), np.ones(31)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "store"
    cec_mpi.encode(X, path, 3, 2)
    return path


# --- under a launcher ---------------------------------------------------------------------


@pytest.fixture
def as_rank_0(monkeypatch):
    """Make this process look like the first of two ranks of a launcher."""
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")


USES = {
    "X @ w": lambda X: X @ W,
    "-X": lambda X: -X,
    "X[0]": lambda X: X[0],
    "len": len,
    "asarray": np.asarray,
    "shape": lambda X: X.shape,
    "close": lambda X: X.close,
    "set available": lambda X: setattr(X, "available", {1, 2}),
    "svds": lambda X: svds(X, k=3),
    "operator of SciPy": lambda X: aslinearoperator(np.eye(31)) @ X,
    "task": lambda X: ridge(X, y=B),
}


@pytest.mark.usefixtures("as_rank_0")
@pytest.mark.parametrize("use", USES)
def test_an_operator_under_a_launcher_needs_a_with_statement(store, use):
    with pytest.raises(InputError, match="was used without with") as error:
        USES[use](cec_mpi.open_operator(store, accept="run.json"))
    assert f"with open_operator('{store}', None, accept='run.json') as X:" in str(error.value)
    assert "`if X is not None:`" in str(error.value)


@pytest.mark.usefixtures("as_rank_0")
def test_notebooks_and_debuggers_can_inspect_a_context_manager(store):
    context = cec_mpi.open_operator(store, accept="run.json")
    call = f"open_operator('{store}', None, accept='run.json')"
    assert repr(context).startswith(f"<{call}: not open yet")
    for name in ("_repr_html_", "__array_interface__", "close", "available"):
        assert not hasattr(context, name)
    assert [name for name in dir(context) if not name.startswith("_")] == ["start"]
    assert context is not None
    assert context in {context}
    with (
        pytest.raises(InputError, match="has started 2 ranks, which are the machines"),
        cec_mpi.open_operator(store, local=2),
    ):
        pass


def test_a_number_of_machines_in_place_of_a_communicator_is_refused(store):
    with pytest.raises(InputError, match=r"comm 3: expected a communicator .* local=N"):
        cec_mpi.open_operator(store, 3)


# --- in one process -----------------------------------------------------------------------


def test_an_operator_needs_neither_with_nor_start(store):
    records = []
    A = cec_mpi.open_operator(store, recorder=Recorder(records.append))
    A.available = {1, 3}
    assert isinstance(A, LinearOperator)
    np.testing.assert_allclose(A @ W, X @ W)
    assert records[0].available == (1, 3)
    np.testing.assert_allclose(A.H @ B, X.T @ B)
    np.testing.assert_allclose((2 * A + A) @ W, 3 * (X @ W))
    np.testing.assert_allclose(svds(A, k=2)[1], svds(X, k=2)[1])
    np.testing.assert_allclose(lsqr(A, B)[0], np.linalg.lstsq(X, B, rcond=None)[0], atol=1e-6)
    assert not hasattr(A, "open")
    with pytest.raises(InputError, match=r"^an operator serves one store: open_operator\(store\)"):
        A.open(store)


def test_the_representation_calls_no_function_for_availability(store):
    calls = []
    with cec_mpi.open_operator(store, None, availability=calls.append) as A:
        assert repr(A).endswith("available machines set by a function>")
    assert calls == []


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


NO_MACHINES = r"needs machines: expected accept=FILE, .* or engine=CLIENT"


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"store": "nowhere"}, StoreError, "nowhere"),
        ({"steps": 3}, InputError, "unexpected keyword argument 'steps'"),
        ({"stragglers": -1, "local": 3}, InputError, "stragglers -1"),
        ({"machines": (1,)}, InfeasibleError, "machine"),
        ({"local": 1}, InfeasibleError, r"local 1: a step needs 2 machines: .*accept=FILE"),
        ({"elastic": True}, InputError, NO_MACHINES),
        ({"check": True}, InputError, NO_MACHINES),
        ({"speeds": np.ma.array([1, 2, 3], mask=[0, 1, 0])}, InputError, "masked at entry 1"),
    ],
)
def test_wrong_options_raise_in_the_call(store, options, error, message):
    with pytest.raises(error, match=message):
        cec_mpi.open_operator(**{"store": store} | options)


def test_a_failed_start_can_be_repeated(store, tmp_path):
    shutil.copytree(store, tmp_path / "copy")
    shard = tmp_path / "copy" / "shard-0002.npy"
    A = cec_mpi.open_operator(tmp_path / "copy")
    shard.rename(tmp_path / "away")
    with pytest.raises(CecError, match=r"shard-0002\.npy"):
        A @ W
    (tmp_path / "away").rename(shard)
    np.testing.assert_allclose(A @ W, X @ W)


def test_threads_that_use_an_operator_start_it_once(store):
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
    closed = []
    tracemalloc.start()
    try:
        for _ in range(3):
            A = cec_mpi.open_operator(tmp_path / "store", shards=shards)
            A @ np.ones(50)
            A.close()
            closed.append(A)
        assert tracemalloc.get_traced_memory()[0] < matrix.nbytes / 2 * 3 / 2
    finally:
        tracemalloc.stop()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_accuracy_is_that_of_the_decoders_in_use(tmp_path):
    manifest = cec_mpi.encode(X, tmp_path / "store", 8, 4, code="gaussian")
    code, eps = manifest.code, np.finfo(np.float64).eps
    worst = code.conditioning.worst_machines
    with cec_mpi.open_operator(tmp_path / "store", speeds=[1.0] * 8) as A:
        assert A.product_error == 8 * eps * code.conditioning.worst
        product = A @ W
        accuracy = A.product_error
        assert accuracy < 8 * eps * code.conditioning.worst / 2
        A.available = worst
        A.H @ B
        rows = code.generator[[n - 1 for n in worst]]
        assert A.product_error == pytest.approx(8 * eps * np.linalg.cond(rows, 1), rel=0.5)
        A.available = None
        assert np.allclose(A @ W, product)
        assert A.product_error == accuracy
