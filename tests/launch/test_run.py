"""Runs under mpirun: results, records and logs.

Runs that need no start of their own are in `tests/ranks/test_runs.py`.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from cec_mpi.runtime.availability.models import PAPER_AVAILABLE
from cec_mpi.runtime.records.recorder import read_steps

SPEEDS = (2, 2, 3, 3, 4, 4)


def vectors(directory, count, columns):
    W = np.random.default_rng(5).standard_normal((count, columns))
    np.save(directory / "W.npy", W)
    return W


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.fixture(scope="module")
def paper_run(run, large_store, tmp_path_factory):
    """The four steps of the paper on emulated machines, each made twice."""
    directory = tmp_path_factory.mktemp("paper")
    W = vectors(directory, 8, large_store.columns)
    ticks = [step for step in PAPER_AVAILABLE for _ in range(2)]
    (directory / "a.json").write_text(json.dumps({"available": ticks}))
    speeds = ",".join(map(str, SPEEDS))
    words = ["mpirun", "-n", 7, "cec-mpi", "run", large_store.path, "--out", directory / "out"]
    words += [f"vectors={directory / 'W.npy'}", "--availability", directory / "a.json"]
    words += ["--speeds", speeds, "--emulate-speeds", speeds, "--emulate-base", 1000]
    done = run([*words, "--threads", 1], variables={"PYTHONWARNINGS": ""})
    assert done.returncode == 0, done.stderr
    assert "oversubscribed" not in done.stderr
    header, steps = read_steps(directory / "out" / "steps.jsonl")
    return directory / "out", header, steps, W


def test_products_and_rows_are_those_of_the_paper(paper_run, large_store):
    out, _, steps, W = paper_run
    assert relative_error(np.load(out / "result.npy"), W @ large_store.X.T) < 1e-10
    assert [tuple(step["available"]) for step in steps[::2]] == list(PAPER_AVAILABLE)
    assert [step["rows"] for step in steps[::2]] == [
        [140, 140, 210, 210, 280, 280],
        [168, 168, 252, 0, 336, 336],
        [240, 240, 360, 0, 420, 0],
        [0, 420, 420, 0, 420, 0],
    ]


@pytest.mark.any_mpi
def test_a_plan_is_announced_only_when_machines_change(paper_run):
    _, _, steps, _ = paper_run
    assert [step["plan_changed"] for step in steps] == [True, False] * 4
    for new, same in zip(steps[::2], steps[1::2], strict=True):
        assert same["payload_bytes"]["announce"] < new["payload_bytes"]["announce"]


def test_the_header_describes_versions_hosts_and_the_store(paper_run):
    _, header, _, _ = paper_run
    assert {"cec_mpi", "python", "numpy", "scipy", "mpi4py"} <= set(header["versions"])
    assert header["versions"]["numpy"] == np.__version__
    assert header["mpi_library"].strip()
    assert len(header["hosts"]) == 7
    assert header["threads"] == [1] * 7
    assert header["participants"] == [1, 2, 3, 4, 5, 6]
    assert (header["machines"], header["recovery"]) == (6, 3)
    assert (header["rows"], header["columns"], header["rows_per_shard"]) == (1259, 12, 420)
    assert header["scheme"] == "heterogeneous"
    assert header["speeds"] == list(SPEEDS)


@pytest.mark.any_mpi
def test_each_machine_has_a_log(paper_run):
    out, _, _, _ = paper_run
    logs = {path.name for path in (out / "logs").iterdir()}
    assert logs == {"master.log"} | {f"machine-{n:04d}.log" for n in range(1, 7)}
    assert "machine 3 on" in (out / "logs" / "machine-0003.log").read_text()
