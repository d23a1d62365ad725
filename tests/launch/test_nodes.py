"""Lockstep on nodes that can hold more: a rank for each of several machines of a node."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cec_mpi.core.plan.planner import plan_step
from cec_mpi.runtime.records.recorder import read_steps

pytestmark = pytest.mark.any_mpi

NODES = ({1, 2}, {3, 4}, {5, 6})  # machines of three computers
SPEEDS = (1, 1, 2, 2, 3, 3)


def test_seven_ranks_are_the_master_and_three_computers_of_two_machines(run, make_store, tmp_path):
    """All are there at first, and then each computer is away with its machines."""
    store = make_store(np.random.default_rng(4).standard_normal((160, 30)), 6, 4)
    everyone = set().union(*NODES)
    ticks = [tuple(sorted(everyone - away)) for away in (set(), *NODES)]
    (tmp_path / "ticks.json").write_text(json.dumps({"available": ticks}))
    (tmp_path / "nodes.txt").write_text("localhost slots=7\n")
    W = np.random.default_rng(5).standard_normal((len(ticks), 30))
    np.save(tmp_path / "W.npy", W)
    words = ["run", store.path, "matvec", "vectors=W.npy", "--out", "out", "-q"]
    words += ["--availability", "ticks.json", "--speeds", ",".join(map(str, SPEEDS))]
    launcher = ["mpirun", "--hostfile", "nodes.txt", "-n", 7]
    done = run([*launcher, "cec-mpi", *words], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out" / "result.npy")
    np.testing.assert_allclose(found, W @ store.X.T, atol=1e-10)
    header, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert header["machine_of_rank"] == list(range(7))
    assert [tuple(step["available"]) for step in steps] == ticks
    for step, tick in zip(steps, ticks, strict=True):
        assert step["rows"] == plan_step(tick, SPEEDS, 4, 40).assignment.counts(6).tolist()
