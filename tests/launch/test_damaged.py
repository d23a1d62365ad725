"""Elastic runs on a damaged store continue with the other shards, or end with a remedy."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import open_store
from cec_mpi.runtime.records.directory import read_summary
from cec_mpi.runtime.records.recorder import read_steps

pytestmark = pytest.mark.any_mpi
BLOCK = "rows 87..173"  # in the middle of a shard, see `store`


@pytest.fixture
def store(make_store, tmp_path):
    """Five machines, any two of which are enough; their shards have three blocks."""
    store = make_store(np.random.default_rng(6).standard_normal((520, 1500)), 5, 2)
    assert open_store(store.path).manifest.grid.block_rows == 87
    return store


@pytest.fixture
def multiply(cec, store, tmp_path):
    """Compute ten products and check them; return the messages."""
    W = np.random.default_rng(7).standard_normal((10, 1500))
    np.save(tmp_path / "W.npy", W)

    def multiply(*options, code=0):
        words = ["run", store.path, "--out", "out", "vectors=W.npy", "--local", 5]
        done = cec(*words, "--speeds", "1,1,1,1,1", *options)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if not code:
            result = np.load(tmp_path / "out" / "result.npy")
            assert np.allclose(result, W @ store.X.T, atol=1e-9)
        return done.errors

    return multiply


def damage(file, row=100):
    with file.open("r+b") as stream:
        stream.seek(row * 1500 * 8)
        stream.write(b"altered")


def shard_path(store, machine):
    return store.path / f"shard-{machine:04d}.npy"


def test_an_elastic_run_continues_without_machines_whose_shards_are_damaged(
    multiply, store, tmp_path
):
    damage(shard_path(store, 2))
    shard_path(store, 3).unlink()
    message = multiply("--check")
    remedy = f"cec-mpi repair {store.path}"
    assert f"shard-0002.npy: {BLOCK} do not match their checksum ({remedy}" in message
    assert "--elastic" not in message
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    lost = [event for step in steps for event in step["events"] if "lost" in event]
    assert {event["lost"] for event in lost} == {2, 3}
    assert all(remedy in event["reason"] for event in lost)
    assert any("cec-mpi repair" in text for text in read_summary(tmp_path / "out")["warnings"])
    assert 2 not in steps[-1]["available"]


def test_a_run_with_too_few_good_shards_names_the_damaged_rows(multiply, store):
    for machine in (1, 2, 3, 5):
        damage(shard_path(store, machine))
    message = multiply(code=4)
    assert "cec-mpi: error: step 0 cannot be completed" in message
    assert f"{BLOCK} do not match their checksum (cec-mpi repair {store.path}" in message
