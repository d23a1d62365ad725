"""Machines that take over shards of those that are killed or preempted, at the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cec_mpi.records.recorder import read_steps
from helpers.killing import errors_with_kills

pytestmark = pytest.mark.any_mpi


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 3)


@pytest.mark.usefixtures("no_launcher")
def test_machines_are_killed_at_random_moments_until_one_is_left(store):
    seed = 0
    killed = np.random.default_rng(seed).permutation(4)[:3] + 1
    options = {"local": 4, "adopt": True}
    found = errors_with_kills(store, seed, killed, first=0, last=40, steps=40, **options)
    assert len(found) == 40
    assert max(found) < 1e-10


def test_a_shard_that_is_gone_too_is_rebuilt_or_left_out(cec, store, tmp_path):
    """Of four shards one is deleted, and machines are lost until one is left: three can be read."""
    (store.path / "shard-0002.npy").rename(tmp_path / "away.npy")
    try:
        np.save(tmp_path / "W.npy", np.random.default_rng(5).standard_normal((20, 60)))
        words = ["run", store.path, "--out", tmp_path / "out", "--local", 4]
        words += [f"vectors={tmp_path / 'W.npy'}", "--adopt", "-q"]
        words += ["--inject", "kill:2@3,kill:1@5,kill:4@9"]
        done = cec(*words)
    finally:
        (tmp_path / "away.npy").rename(store.path / "shard-0002.npy")
    assert done.returncode == 0, done.stderr
    W = np.load(tmp_path / "W.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), W @ store.X.T, atol=1e-9)
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    taken = [e["shard"] for step in steps for e in step["events"] if "adopted" in e]
    assert 2 not in taken


def test_what_machines_have_no_memory_for_ends_a_run_with_one_message(cec, store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((8, 60)))
    (tmp_path / "ticks.json").write_text(json.dumps({"available": [[2]]}))
    words = ["run", store.path, "--out", tmp_path / "out", "--adopt", "-q"]
    words += [f"vectors={tmp_path / 'W.npy'}", "--availability", tmp_path / "ticks.json"]
    done = cec(*words, "--local", 4, "--memory-per-machine", "150K")
    assert done.returncode == 4, done.stderr
    assert (
        "1 machine is available at tick 0 (2): a step needs 3 shards, and they have 1" in done.told
    )


def test_two_machines_start_alone_and_take_over_the_shards_of_the_others(cec, store, tmp_path):
    np.save(tmp_path / "W.npy", np.random.default_rng(5).standard_normal((8, 60)))
    words = ["run", store.path, "--out", tmp_path / "out", "-q", "--machines", "2,4"]
    words += [f"vectors={tmp_path / 'W.npy'}"]
    done = cec(*words, "--local", 2)
    assert done.returncode == 4, done.stderr
    assert "these machines have 2 shards, but a step needs 3" in done.told
    done = cec(*words, "--local", 2, "--adopt")
    assert done.returncode == 0, done.stderr
    W = np.load(tmp_path / "W.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), W @ store.X.T, atol=1e-9)
