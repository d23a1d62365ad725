"""Runs of ``cec-mpi run`` on several ranks, one after another in one start of them.

How a run begins and ends, with its message and code, is in `tests/launch`.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from cec_mpi.cli import build_parser
from cec_mpi.cli.run.options import run_options
from cec_mpi.cli.run.ranks import run_in_lockstep
from cec_mpi.errors import ConvergenceError, InputError
from cec_mpi.runtime.options.option import from_flags
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.records.recorder import read_steps

pytestmark = pytest.mark.mpi(min_size=4)

MASK = ("--available-probability", 0.7, "--wait", "--seed", 5)
NUMBERS = itertools.count(1)


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
        with SignalRecorder() as signals:
            code = run_in_lockstep(comm, run_options(arguments), options, signals)
        comm.Barrier()  # all look at the results
        assert code == 0
        shown = capsys.readouterr().err
        assert (warns in shown if comm.rank == 0 else shown == "") if warns else shown == ""
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


def test_some_of_the_machines_with_random_availability_and_waiting(multiply, six):
    words = ("--machines", "1,2,5", "--available-probability", 0.8, "--wait", "--seed", 3)
    out, W = multiply(six, *words, steps=12)
    assert relative_error(result_of(out), W @ six.X.T) < 1e-10
    steps = steps_of(out)
    assert available(out) == [(1, 2, 5)] * 12
    assert sum(step["waited_ticks"] for step in steps) == steps[-1]["tick"] - 11 > 0
    assert summary_of(out)["waited_ticks"] == steps[-1]["tick"] - 11
    assert read_steps(out / "steps.jsonl")[0]["taking_part"] == [1, 2, 5]
    logs = {path.name for path in (out / "logs").glob("machine*")}
    assert logs == {"machine-0001.log", "machine-0002.log", "machine-0005.log"}


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
    ("name", "text", "says"),
    [
        ("leaves", "raise SystemExit(0)\n", r"the module called sys.exit\(0\)"),
        ("late", "def mine(X, *, checkpoint):\n    raise SystemExit(0)\n", r"sys.exit\(0\)"),
    ],
)
def test_a_module_that_ends_itself(run, write, here, square, name, text, says):
    write(here / f"{name}_on_ranks.py", text)
    with pytest.raises(InputError, match=says):
        run(square, f"{name}_on_ranks:mine")
