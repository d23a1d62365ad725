"""Every task under mpirun, with machines that come and go at each step."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse.linalg import lsqr
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge

RNG = np.random.default_rng(11)


@pytest.fixture(scope="module")
def link_store(make_store):
    """A web of 30 pages; pages 3 and 17 have no links."""
    links = (RNG.random((30, 30)) < 0.15).astype(float)
    links[[3, 17]] = 0
    return make_store(links, 4, 2)


@pytest.fixture(scope="module")
def positive_store(make_store):
    half = RNG.standard_normal((40, 20))
    return make_store(half.T @ half / 40 + np.eye(20), 3, 2)


@pytest.fixture
def solve(cec, tmp_path):
    """Run a task under a random mask; returns its summary and its arrays by name."""

    def solve(store, task, **settings):
        words = ["run", store.path, "--out", tmp_path / "out", "--task", task]
        for name, value in settings.items():
            path = tmp_path / f"{name}.npy"
            if isinstance(value, np.ndarray):
                np.save(path, value)
            words += ["--set", f"{name}={path if path.exists() else value}"]
        mask = ["--available-probability", 0.7, "--wait", "--seed", 5]
        done = cec(*words, *mask, ranks=store.machines + 1)
        assert done.returncode == 0, done.stderr
        summary = json.loads((tmp_path / "out" / "summary.json").read_text())
        assert summary.get("converged", True)
        return summary, {
            name: np.load(tmp_path / "out" / f"{name}.npy") for name in summary["arrays"]
        }

    return solve


def test_svd(solve, large_store):
    _, found = solve(large_store, "svd", k=4)
    u, s, vt = np.linalg.svd(large_store.X, full_matrices=False)
    np.testing.assert_allclose(found["result"], s[:4], rtol=1e-12)
    low = u[:, :4] * s[:4] @ vt[:4]
    np.testing.assert_allclose(found["u"] * found["result"] @ found["vt"], low, atol=1e-9)


def test_pca(solve, large_store):
    _, found = solve(large_store, "pca", k=3)
    expected = PCA(3, svd_solver="full").fit(large_store.X)
    np.testing.assert_allclose(found["result"], expected.components_, atol=1e-8)
    np.testing.assert_allclose(found["mean"], expected.mean_, atol=1e-12)
    np.testing.assert_allclose(
        found["explained_variance"], expected.explained_variance_, rtol=1e-10
    )


@pytest.mark.parametrize("solver", ["lsmr", "lsqr"])
def test_lstsq(solve, large_store, solver):
    b = RNG.standard_normal(len(large_store.X))
    _, found = solve(large_store, "lstsq", b=b, damp=2.0, solver=solver)
    expected = lsqr(large_store.X, b, damp=2.0, atol=1e-13, btol=1e-13)[0]
    np.testing.assert_allclose(found["result"], expected, rtol=1e-7, atol=1e-9)


def test_ridge(solve, large_store):
    y = large_store.X @ np.arange(12.0) + 3 + RNG.standard_normal(len(large_store.X))
    summary, found = solve(large_store, "ridge", y=y, alpha=10.0, tol=1e-12)
    expected = Ridge(alpha=10.0).fit(large_store.X, y)
    np.testing.assert_allclose(found["result"], expected.coef_, rtol=1e-9)
    assert summary["intercept"] == pytest.approx(expected.intercept_, rel=1e-9)


def test_logistic(solve, large_store):
    score = large_store.X[:, 0] - large_store.X[:, 1] + RNG.standard_normal(len(large_store.X))
    y = np.where(score > 0.3, 4, 2)
    summary, found = solve(large_store, "logistic", y=y, C=0.5, tol=1e-9)
    expected = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(large_store.X, y)
    np.testing.assert_allclose(found["result"], expected.coef_[0], rtol=1e-5, atol=1e-6)
    assert summary["intercept"] == pytest.approx(expected.intercept_[0], rel=1e-5)
    assert found["classes"].tolist() == [2, 4]


def test_cg(solve, positive_store):
    b = RNG.standard_normal(20)
    _, found = solve(positive_store, "cg", b=b, tol=1e-12)
    np.testing.assert_allclose(found["result"], np.linalg.solve(positive_store.X, b), rtol=1e-9)


@pytest.mark.parametrize("links", ["rows", "columns"])
def test_pagerank(solve, link_store, make_store, links):
    store = link_store if links == "rows" else make_store(link_store.X.T, 4, 2)
    _, found = solve(store, "pagerank", links=links, tol=1e-12)
    degrees = link_store.X.sum(axis=1)
    chain = link_store.X / np.maximum(degrees, 1)[:, None]
    chain[degrees == 0] = 1 / 30
    values, vectors = np.linalg.eig((0.85 * chain + 0.15 / 30).T)
    expected = np.real(vectors[:, np.argmax(values.real)])
    np.testing.assert_allclose(found["result"], expected / expected.sum(), rtol=1e-9)


@pytest.mark.parametrize(
    ("task", "settings", "says"),
    [
        ("svd", {"k": 12}, "k 12: expected from 1 to 11"),
        ("lstsq", {}, "missing a required argument: 'b'"),
        ("lstsq", {"b": "nowhere.npy"}, "nowhere.npy: no such file"),
        ("cg", {"b": "b.npy"}, "expected a square"),
        ("pagerank", {"damping": 2}, "expected a square"),
        ("ridge", {"y": "b.npy", "alpha": "much"}, "alpha much"),
    ],
)
def test_options_that_a_task_cannot_use_are_told_once(
    cec, small_store, tmp_path, task, settings, says
):
    np.save(tmp_path / "b.npy", np.ones(31))
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    out = tmp_path / "out"
    done = cec(
        *("run", small_store.path, "--out", out, "--task", task), *words, ranks=4, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.told.count("cec-mpi: error:") == 1
    assert says in done.told
    assert not (out / "result.npy").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nsys.exit(0)\n", "cannot be imported: it left with sys.exit(0)"),
        ("def mine(:\n", "line 1: invalid syntax"),
        ("raise KeyboardInterrupt\n", "line 1: KeyboardInterrupt"),
        ("def mine(X, *, checkpoint):\n    raise SystemExit(0)\n", "left with sys.exit(0)"),
    ],
)
def test_a_module_that_ends_itself_is_told_once(cec, small_store, tmp_path, text, says):
    (tmp_path / "ends.py").write_text(text)
    words = ["run", small_store.path, "--out", "out", "--task", "ends:mine"]
    done = cec(*words, ranks=4, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.told.startswith("cec-mpi: error: task ")
    assert done.told.count("\n") == 0
    assert says in done.told


def test_ranks_run_without_docstrings(cec, square_store, tmp_path):
    words = ["run", square_store.path, "--out", tmp_path / "out", "--task", "power"]
    done = cec(*words, ranks=4, variables={"PYTHONOPTIMIZE": "2"})
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["converged"]
