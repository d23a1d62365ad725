"""Machines with several shards that are killed: runs go on while the others have L shards."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.records.recorder import read_steps
from helpers.killing import errors_with_kills

pytestmark = pytest.mark.any_mpi


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 12, 4)


@pytest.mark.usefixtures("no_launcher")
def test_machines_are_killed_one_by_one_until_one_is_left(store):
    """The last of them has five shards, of which four are enough."""
    options = {"local": 4, "shards_per_machine": (3, 2, 2, 5)}
    found = errors_with_kills(store, 3, [1, 2, 3], first=2, last=40, steps=50, **options)
    assert len(found) == 50
    assert max(found) < 1e-10


def test_a_run_says_which_shards_are_left_when_it_cannot_go_on(cec, store, tmp_path):
    np.save(tmp_path / "W.npy", np.random.default_rng(5).standard_normal((30, 60)))
    words = ["run", store.path, "--out", tmp_path / "out", "-q"]
    words += [f"vectors={tmp_path / 'W.npy'}", "--local", 4]
    words += ["--shards-per-machine", "3,2,2,5", "--inject", "kill:2@5,kill:4@9,kill:1@12"]
    done = cec(*words)
    assert done.returncode == 4, done.stderr
    assert (
        "1 of its machines are left (3) with 2 shards, and a step with this store needs 4"
        in done.told
    )
    header, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert header["shards_of_machine"] == [[1, 2, 3], [4, 5], [6, 7], [8, 9, 10, 11, 12]]
    assert steps[-1]["available"] == [1, 3]
