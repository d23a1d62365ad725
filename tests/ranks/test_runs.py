"""Runs of ``cec-mpi run`` on several ranks, one after another in one start of them.

How a run begins and ends, with its message and code, is in `tests/launch`.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy.sparse.linalg import lsqr
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge

from cec_mpi.cli import build_parser
from cec_mpi.cli.run.options import run_options
from cec_mpi.cli.run.ranks import run_in_lockstep
from cec_mpi.errors import ConvergenceError, InputError
from cec_mpi.runtime.options.option import from_flags
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.ending import NotedSignals
from cec_mpi.runtime.records.recorder import read_steps

pytestmark = pytest.mark.mpi(min_size=4)

MASK = ("--available-probability", 0.7, "--wait", "--seed", 5)
NUMBERS = itertools.count(1)
RNG = np.random.default_rng(11)  # the same numbers on all ranks


@pytest.fixture
def here(comm, shared_directory, monkeypatch):
    """A directory of this test alone, in which all ranks are."""
    directory = shared_directory / f"run-{next(NUMBERS)}"
    if comm.rank == 0:
        directory.mkdir()
    comm.Barrier()
    monkeypatch.chdir(directory)
    yield directory
    comm.Barrier()


@pytest.fixture
def run(comm, here, capsys):
    """Collective: ``cec-mpi run`` with these words, on ranks that go on with the next one."""

    def run(store, *words, out="out", warns=""):
        line = [str(word) for word in ("run", store.path, "--out", here / out, *words)]
        arguments = build_parser("run").parse_args(line)
        options = from_flags(SessionOptions, arguments)
        with NotedSignals() as signals:
            code = run_in_lockstep(comm, run_options(arguments), options, signals)
        comm.Barrier()  # all look at the results
        assert code == 0
        told = capsys.readouterr().err
        assert (warns in told if comm.rank == 0 else told == "") if warns else told == ""
        return here / out

    return run


@pytest.fixture
def write(comm):
    """Collective: write a file once, text or an array."""

    def write(path, content):
        if comm.rank == 0:
            np.save(path, content) if isinstance(content, np.ndarray) else path.write_text(content)
        comm.Barrier()
        return path

    return write


@pytest.fixture
def multiply(run, write, here):
    """Collective: ``matvec``; returns the directory of results and the vectors."""

    def multiply(store, *words, steps=6):
        W = np.random.default_rng(5).standard_normal((steps, store.columns))
        return run(store, f"vectors={write(here / 'W.npy', W)}", *words), W

    return multiply


@pytest.fixture(scope="module")
def small(make_store):
    return make_store(np.random.default_rng(1).standard_normal((31, 12)))


@pytest.fixture(scope="module")
def tall(make_store):
    return make_store(np.random.default_rng(3).standard_normal((1259, 12)))


@pytest.fixture(scope="module")
def six(make_store):
    """The paper's six machines, of which a test takes three."""
    return make_store(np.random.default_rng(3).standard_normal((1259, 12)), 6, 3)


@pytest.fixture(scope="module")
def square(make_store):
    """A symmetric matrix whose largest eigenvalue, 9, is well apart from the others."""
    basis, _ = np.linalg.qr(np.random.default_rng(4).standard_normal((20, 20)))
    return make_store(basis * np.append(np.linspace(-2, 2, 19), 9) @ basis.T)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def result_of(out):
    return np.load(out / "result.npy")


def summary_of(out):
    return json.loads((out / "summary.json").read_text())


def steps_of(out):
    return read_steps(out / "steps.jsonl")[1]


def available(out):
    return [tuple(step["available"]) for step in steps_of(out)]


# --- products -----------------------------------------------------------------------------


def test_random_availability_and_waiting(multiply, six):
    words = ("--machines", "1,2,5", "--available-probability", 0.8, "--wait", "--seed", 3)
    out, W = multiply(six, *words, steps=12)
    assert relative_error(result_of(out), W @ six.X.T) < 1e-10
    steps = steps_of(out)
    assert available(out) == [(1, 2, 5)] * 12
    assert sum(step["waited_ticks"] for step in steps) == steps[-1]["tick"] - 11 > 0
    assert summary_of(out)["waited_ticks"] == steps[-1]["tick"] - 11


def test_some_of_the_machines_only(multiply, six):
    out, W = multiply(six, "--machines", "1,2,5", steps=2)
    assert relative_error(result_of(out), W @ six.X.T) < 1e-10
    assert available(out) == [(1, 2, 5)] * 2
    assert read_steps(out / "steps.jsonl")[0]["taking_part"] == [1, 2, 5]
    logs = {path.name for path in (out / "logs").glob("machine*")}
    assert logs == {"machine-0001.log", "machine-0002.log", "machine-0005.log"}


def test_single_precision(multiply, make_store):
    X = np.random.default_rng(2).standard_normal((40, 12), dtype=np.float32)
    out, W = multiply(make_store(X, dtype="float32"))
    assert result_of(out).dtype == np.float64
    assert 0 < relative_error(result_of(out), W @ X.T) < 1e-5
    assert read_steps(out / "steps.jsonl")[0]["dtype"] == "float32"


def test_vectors_of_another_layout_and_dtype(run, write, here, small):
    W = np.asfortranarray(np.arange(36).reshape(3, 12))
    out = run(small, f"vectors={write(here / 'W.npy', W)}", "iterations=2")
    assert relative_error(result_of(out), W[:2] @ small.X.T) < 1e-10


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "sets.json",
            '{"gap_seconds": 60, "available": [[3, 2], [1, 2, 3], [1, 3]]}',
            [(2, 3), (1, 2, 3), (1, 3), (1, 3)],
        ),
        ("table.csv", "a,b,c\n1,0,1\n1,1,0\n1,1,1\n", [(1, 3), (1, 2), (1, 2, 3), (1, 2, 3)]),
        (
            "counts.json",
            '{"metadata": {"gap_seconds": 60}, "data": [2, 9, 3, 2]}',
            [(1, 2), (1, 2, 3), (1, 2, 3), (1, 2)],
        ),
    ],
    ids=["sets", "table", "counts"],
)
def test_an_availability_file_is_obeyed(multiply, write, here, small, name, text, expected):
    out, W = multiply(small, "--availability", write(here / name, text), steps=4)
    assert available(out) == expected
    assert relative_error(result_of(out), W @ small.X.T) < 1e-10


def test_groups_of_counts_add_up_and_repeat(multiply, write, here, small):
    one = write(here / "a.json", '{"metadata": {"gap_seconds": 60}, "data": [1, 2]}')
    other = write(here / "b.json", '{"metadata": {"gap_seconds": 60}, "data": [1]}')
    out, _ = multiply(small, "--availability", one, "--availability", other, "--repeat", steps=4)
    assert available(out) == [(1, 2), (1, 2, 3)] * 2


def test_the_cyclic_scheme(multiply, tall):
    out, W = multiply(tall, "--scheme", "cyclic", "--speeds", "1,1,9", steps=2)
    assert relative_error(result_of(out), W @ tall.X.T) < 1e-10
    assert read_steps(out / "steps.jsonl")[0]["scheme"] == "cyclic"
    assert steps_of(out)[0]["rows"] == [420] * 3  # of 630 in each shard


def test_ticks_of_wall_clock_time(multiply, write, here, small):
    ticks = write(here / "a.json", '{"available": [[1], [1], [1, 2], [1, 2, 3]]}')
    out, W = multiply(small, "--availability", ticks, "--tick", 0.2, "--wait", steps=3)
    assert relative_error(result_of(out), W @ small.X.T) < 1e-10
    steps = steps_of(out)
    assert (steps[0]["tick"], steps[0]["waited_ticks"]) == (2, 2)
    assert steps[-1]["waited_ticks"] == 0
    assert summary_of(out)["seconds"] >= 0.4


def test_results_are_replaced_only_when_asked(run, write, here, small):
    W = np.random.default_rng(5).standard_normal((2, small.columns))
    words = [f"vectors={write(here / 'W.npy', W)}"]
    out = run(small, *words, "iterations=1")
    with pytest.raises(InputError, match="--overwrite"):
        run(small, *words)
    assert result_of(out).shape == (1, 31)
    run(small, *words, "--overwrite")
    assert relative_error(result_of(out), W @ small.X.T) < 1e-10


# --- tasks, with machines that come and go at each step -----------------------------------


@pytest.fixture
def solve(run, write, here):
    """Collective: run a task under a random mask; returns its summary and its arrays by name."""

    def solve(store, task, **settings):
        words = []
        for name, value in settings.items():
            given = write(here / f"{name}.npy", value) if isinstance(value, np.ndarray) else value
            words += [f"{name}={given}"]
        out = run(store, task, *words, *MASK)
        summary = summary_of(out)
        assert summary.get("converged", True)
        assert len(set(available(out))) > 1
        return summary, {name: np.load(out / f"{name}.npy") for name in summary["arrays"]}

    return solve


def test_svd(solve, tall):
    _, found = solve(tall, "svd", k=4)
    u, s, vt = np.linalg.svd(tall.X, full_matrices=False)
    np.testing.assert_allclose(found["result"], s[:4], rtol=1e-12)
    low = u[:, :4] * s[:4] @ vt[:4]
    np.testing.assert_allclose(found["u"] * found["result"] @ found["vt"], low, atol=1e-9)


def test_pca(solve, tall):
    _, found = solve(tall, "pca", k=3)
    expected = PCA(3, svd_solver="full").fit(tall.X)
    np.testing.assert_allclose(found["result"], expected.components_, atol=1e-8)
    np.testing.assert_allclose(found["mean"], expected.mean_, atol=1e-12)
    np.testing.assert_allclose(
        found["explained_variance"], expected.explained_variance_, rtol=1e-10
    )


@pytest.mark.parametrize("solver", ["lsmr", "lsqr"])
def test_lstsq(solve, tall, solver):
    b = RNG.standard_normal(len(tall.X))
    _, found = solve(tall, "lstsq", b=b, damp=2.0, solver=solver)
    expected = lsqr(tall.X, b, damp=2.0, atol=1e-13, btol=1e-13)[0]
    np.testing.assert_allclose(found["result"], expected, rtol=1e-7, atol=1e-9)


def test_ridge(solve, tall):
    y = tall.X @ np.arange(12.0) + 3 + RNG.standard_normal(len(tall.X))
    summary, found = solve(tall, "ridge", y=y, alpha=10.0, tol=1e-12)
    expected = Ridge(alpha=10.0).fit(tall.X, y)
    np.testing.assert_allclose(found["result"], expected.coef_, rtol=1e-9)
    assert summary["intercept"] == pytest.approx(expected.intercept_, rel=1e-9)


def test_logistic(solve, tall):
    score = tall.X[:, 0] - tall.X[:, 1] + RNG.standard_normal(len(tall.X))
    y = np.where(score > 0.3, 4, 2)
    summary, found = solve(tall, "logistic", y=y, C=0.5, tol=1e-9)
    expected = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(tall.X, y)
    np.testing.assert_allclose(found["result"], expected.coef_[0], rtol=1e-5, atol=1e-6)
    assert summary["intercept"] == pytest.approx(expected.intercept_[0], rel=1e-5)
    assert found["classes"].tolist() == [2, 4]


def test_cg(solve, make_store):
    half = np.random.default_rng(6).standard_normal((40, 20))
    store = make_store(half.T @ half / 40 + np.eye(20))
    b = RNG.standard_normal(20)
    _, found = solve(store, "cg", b=b, tol=1e-12)
    np.testing.assert_allclose(found["result"], np.linalg.solve(store.X, b), rtol=1e-9)


@pytest.mark.parametrize("links", ["rows", "columns"])
def test_pagerank(solve, make_store, links):
    """A web of 30 pages; pages 3 and 17 have no links."""
    web = (np.random.default_rng(12).random((30, 30)) < 0.15).astype(float)
    web[[3, 17]] = 0
    _, found = solve(
        make_store(web if links == "rows" else web.T), "pagerank", links=links, tol=1e-12
    )
    degrees = web.sum(axis=1)
    chain = web / np.maximum(degrees, 1)[:, None]
    chain[degrees == 0] = 1 / 30
    values, vectors = np.linalg.eig((0.85 * chain + 0.15 / 30).T)
    expected = np.real(vectors[:, np.argmax(values.real)])
    np.testing.assert_allclose(found["result"], expected / expected.sum(), rtol=1e-9)


def test_power_iteration(solve, square):
    summary, found = solve(square, "power", tol=1e-10)
    values, eigenvectors = np.linalg.eigh(square.X)
    assert summary["converged"] is True
    assert summary["eigenvalue"] == pytest.approx(values[-1], rel=1e-10)
    assert summary["iterations"] == summary["steps"]
    assert abs(found["result"] @ eigenvectors[:, -1]) == pytest.approx(1, abs=1e-9)


def test_a_solver_that_does_not_converge_is_an_error_with_results(run, square, here):
    with pytest.raises(ConvergenceError, match="power did not converge"):
        run(square, "power", "iterations=2")
    assert summary_of(here / "out")["converged"] is False
    assert (here / "out" / "result.npy").exists()


OWN = """
import numpy as np

def richardson(X, *, checkpoint, shift, rounds=60):
    "Solve (X + shift) x = 1."
    x = np.zeros(X.shape[0])
    for _ in range(rounds):
        x += (1 - X.matvec(x) - shift * x) / (shift + 4)
    return {"result": x, "history": np.arange(rounds), "rounds": rounds}
"""


def test_a_task_of_the_users_own(run, write, here, square):
    write(here / "my_solvers_on_ranks.py", OWN)
    out = run(square, "my_solvers_on_ranks:richardson", "shift=10")
    expected = np.linalg.solve(square.X + 10 * np.eye(20), np.ones(20))
    assert relative_error(result_of(out), expected) < 1e-8
    assert np.load(out / "history.npy").tolist() == list(range(60))
    assert summary_of(out)["rounds"] == summary_of(out)["steps"] == 60


@pytest.mark.parametrize(
    ("task", "settings", "says"),
    [
        ("svd", ("k=13",), "k 13: expected 1 to 12"),
        ("lstsq", (), "task lstsq needs b"),
        ("lstsq", ("b=nowhere.npy",), "nowhere.npy does not exist"),
        ("cg", ("b=b.npy",), "needs a square matrix"),
        ("pagerank", ("damping=2",), "needs a square matrix"),
        ("ridge", ("y=b.npy", "alpha=much"), "alpha much"),
    ],
)
def test_options_that_a_task_cannot_use(run, write, here, small, task, settings, says):
    write(here / "b.npy", np.ones(31))
    words = settings
    with pytest.raises(InputError, match=says):
        run(small, task, *words)
    assert not (here / "out" / "result.npy").exists()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "leaves",
            "import sys\nsys.exit(0)\n",
            r"cannot be imported: the module called sys.exit\(0\)",
        ),
        ("broken", "def mine(:\n", "line 1: invalid syntax"),
        ("stops", "raise KeyboardInterrupt\n", "line 1: KeyboardInterrupt"),
        ("late", "def mine(X, *, checkpoint):\n    raise SystemExit(0)\n", r"sys.exit\(0\)"),
    ],
)
def test_a_module_that_ends_itself(run, write, here, small, name, text, says):
    write(here / f"{name}_on_ranks.py", text)
    with pytest.raises(InputError, match=says):
        run(small, f"{name}_on_ranks:mine")
