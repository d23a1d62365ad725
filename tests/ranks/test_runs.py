"""Runs of ``cec-mpi run`` in ranks that are started once; see `tests/launch` for their starts."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from cec_mpi.cli import build_parser
from cec_mpi.cli.run.options import parse_run_options
from cec_mpi.cli.run.ranks import run_in_lockstep
from cec_mpi.errors import InputError
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
def store(make_store):
    return make_store(np.random.default_rng(3).standard_normal((1259, 12)), 6, 3)


def test_some_machines_with_random_availability(run, write, here, store):
    W = np.random.default_rng(5).standard_normal((12, store.columns))
    words = ("--machines", "1,2,5", "--available-probability", 0.8, "--wait", "--seed", 3)
    out = run(store, f"vectors={write(here / 'W.npy', W)}", *words)
    np.testing.assert_allclose(np.load(out / "result.npy"), W @ store.X.T, atol=1e-10)
    header, steps = read_steps(out / "steps.jsonl")
    assert [step["available"] for step in steps] == [[1, 2, 5]] * 12
    waited = sum(step["waited_ticks"] for step in steps)
    summary = json.loads((out / "summary.json").read_text())
    assert waited == steps[-1]["tick"] - 11 == summary["waited_ticks"] > 0
    assert header["participants"] == [1, 2, 5]
    logs = {path.name for path in (out / "logs").glob("machine*")}
    assert logs == {"machine-0001.log", "machine-0002.log", "machine-0005.log"}


def test_a_task_that_calls_sys_exit_is_an_error(run, write, here, store):
    write(here / "leaves_on_ranks.py", "def mine(X, *, checkpoint):\n    raise SystemExit(0)\n")
    with pytest.raises(InputError, match=r"sys.exit\(0\)"):
        run(store, "leaves_on_ranks:mine", "--machines", "1,2,3")
