"""Runs of ``cec-mpi run`` on ranks that are started once; see `tests/launch` for their starts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cec_mpi.cli import build_parser
from cec_mpi.cli.run.options import parse_run_options
from cec_mpi.cli.run.ranks import run_in_lockstep
from cec_mpi.runtime.options.option import from_flags
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.records.recorder import read_steps

pytestmark = pytest.mark.mpi(min_size=4)


def test_some_machines_with_random_availability_complete_a_run(
    comm, make_store, shared_directory, capsys
):
    store = make_store(np.random.default_rng(3).standard_normal((1259, 12)), 6, 3)
    W, out = np.random.default_rng(5).standard_normal((12, 12)), shared_directory / "run"
    if comm.rank == 0:
        np.save(shared_directory / "W.npy", W)
    comm.Barrier()
    words = ["run", str(store.path), f"vectors={shared_directory / 'W.npy'}", "--out", str(out)]
    words += ["--machines", "1,2,5", "--available-probability", "0.8", "--wait", "--seed", "3"]
    arguments = build_parser("run").parse_args(words)
    options = from_flags(SessionOptions, arguments)
    with SignalRecorder() as signals:
        assert run_in_lockstep(comm, parse_run_options(arguments), options, signals) == 0
    comm.Barrier()
    assert capsys.readouterr().err == ""
    np.testing.assert_allclose(np.load(out / "result.npy"), W @ store.X.T, atol=1e-10)
    header, steps = read_steps(out / "steps.jsonl")
    assert [step["available"] for step in steps] == [[1, 2, 5]] * 12
    waited_ticks = sum(step["waited_ticks"] for step in steps)
    summary = json.loads((out / "summary.json").read_text())
    assert waited_ticks == steps[-1]["tick"] - 11 == summary["waited_ticks"] > 0
    sizes = {"machines": 6, "recovery": 3, "rows": 1259, "columns": 12, "rows_per_shard": 420}
    assert header.items() >= {"participants": [1, 2, 5], "dtype": "float64", **sizes}.items()
    assert len(header["hosts"]) == len(header["threads"]) == comm.size
    assert header["mpi_library"].strip()
    assert header["versions"]["numpy"] == np.__version__
    logs = {path.name for path in (out / "logs").glob("machine*")}
    assert logs == {"machine-0001.log", "machine-0002.log", "machine-0005.log"}
