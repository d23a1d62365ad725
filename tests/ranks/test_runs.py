"""Runs of ``cec-mpi run`` in ranks that are started once; see `tests/launch` for their starts."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from cec_mpi.cli import build_parser
from cec_mpi.cli.run.options import parse_run_options
from cec_mpi.cli.run.ranks import run_in_lockstep
from cec_mpi.errors import ConvergenceError, InputError
from cec_mpi.runtime.options.option import from_flags
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.records.recorder import read_steps

pytestmark = pytest.mark.mpi(min_size=4)

NUMBERS = itertools.count(1)


@pytest.fixture
def here(comm, shared_directory, monkeypatch):
    """The working directory of all ranks, one for each test."""
    directory = shared_directory / f"run-{next(NUMBERS)}"
    if comm.rank == 0:
        directory.mkdir()
    comm.Barrier()
    monkeypatch.chdir(directory)
    yield directory
    comm.Barrier()


@pytest.fixture
def run(comm, here, capsys):
    """Return a collective function that calls ``cec-mpi run`` with these words."""

    def run(store, *words):
        line = [str(word) for word in ("run", store.path, "--out", here / "out", *words)]
        arguments = build_parser("run").parse_args(line)
        options = from_flags(SessionOptions, arguments)
        with SignalRecorder() as signals:
            code = run_in_lockstep(comm, parse_run_options(arguments), options, signals)
        comm.Barrier()
        assert code == 0
        assert capsys.readouterr().err == ""
        return here / "out"

    return run


@pytest.fixture
def write(comm):
    """Return a collective function that writes text or an array to a file."""

    def write(path, content):
        if comm.rank == 0:
            np.save(path, content) if isinstance(content, np.ndarray) else path.write_text(content)
        comm.Barrier()
        return path

    return write


@pytest.fixture(scope="module")
def square(make_store):
    """A store of a symmetric matrix with one large eigenvalue."""
    basis, _ = np.linalg.qr(np.random.default_rng(4).standard_normal((20, 20)))
    return make_store(basis * np.append(np.linspace(-2, 2, 19), 9) @ basis.T)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def result_of(out):
    return np.load(out / "result.npy")


def summary_of(out):
    return json.loads((out / "summary.json").read_text())


def test_some_machines_with_random_availability(run, write, here, make_store):
    store = make_store(np.random.default_rng(3).standard_normal((1259, 12)), 6, 3)
    W = np.random.default_rng(5).standard_normal((12, store.columns))
    words = ("--machines", "1,2,5", "--available-probability", 0.8, "--wait", "--seed", 3)
    out = run(store, f"vectors={write(here / 'W.npy', W)}", *words)
    assert relative_error(result_of(out), W @ store.X.T) < 1e-10
    header, steps = read_steps(out / "steps.jsonl")
    assert [step["available"] for step in steps] == [[1, 2, 5]] * 12
    waited = sum(step["waited_ticks"] for step in steps)
    assert waited == steps[-1]["tick"] - 11 == summary_of(out)["waited_ticks"] > 0
    assert header["participants"] == [1, 2, 5]
    logs = {path.name for path in (out / "logs").glob("machine*")}
    assert logs == {"machine-0001.log", "machine-0002.log", "machine-0005.log"}


def test_svd_on_machines_that_come_and_go(run, make_store):
    store = make_store(np.random.default_rng(3).standard_normal((1259, 12)))
    out = run(store, "svd", "k=4", "--available-probability", 0.7, "--wait", "--seed", 5)
    assert summary_of(out)["converged"]
    _, steps = read_steps(out / "steps.jsonl")
    assert len({tuple(step["available"]) for step in steps}) > 1
    u, s, vt = (np.load(out / f"{name}.npy") for name in ("u", "result", "vt"))
    U, S, VT = np.linalg.svd(store.X, full_matrices=False)
    np.testing.assert_allclose(s, S[:4], rtol=1e-12)
    np.testing.assert_allclose(u * s @ vt, U[:, :4] * S[:4] @ VT[:4], atol=1e-9)


def test_a_solver_that_does_not_converge_is_an_error_with_results(run, square, here):
    with pytest.raises(ConvergenceError, match="power did not converge"):
        run(square, "power", "iterations=2")
    assert summary_of(here / "out")["converged"] is False
    assert (here / "out" / "result.npy").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("leaves", "raise SystemExit(0)\n", r"the module called sys.exit\(0\)"),
        ("late", "def mine(X, *, checkpoint):\n    raise SystemExit(0)\n", r"sys.exit\(0\)"),
    ],
)
def test_a_task_that_calls_sys_exit_is_an_error(run, write, here, square, name, text, message):
    write(here / f"{name}_on_ranks.py", text)
    with pytest.raises(InputError, match=message):
        run(square, f"{name}_on_ranks:mine")
