"""Runs on a damaged store continue with the other shards, or end with a remedy."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from cec_mpi import open_store
from cec_mpi.runtime.records.directory import read_summary
from cec_mpi.runtime.records.recorder import read_steps

pytestmark = pytest.mark.any_mpi
BLOCK = "rows 87..173"  # in the middle of a shard, see `store`


@pytest.fixture(scope="module")
def whole(make_store):
    return make_store(np.random.default_rng(6).standard_normal((520, 1500)), 5, 2)


@pytest.fixture
def store(whole, tmp_path):
    """A copy whose shards have three blocks."""
    assert open_store(whole.path).manifest.grid.block_rows == 87
    return shutil.copytree(whole.path, tmp_path / "store")


@pytest.fixture
def multiply(cec, store, whole, tmp_path):
    """Compute ten products and check them; return the messages."""
    W = np.random.default_rng(7).standard_normal((10, 1500))
    np.save(tmp_path / "W.npy", W)

    def multiply(*options, code=0):
        out = tmp_path / "out"
        words = ["run", store, "--out", out, f"vectors={tmp_path / 'W.npy'}"]
        done = cec(*words, "--speeds", "1,1,1,1,1", *options)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if not code:
            assert np.allclose(np.load(out / "result.npy"), W @ whole.X.T, atol=1e-9)
        return done.errors

    return multiply


def alter(file, row=100):
    with file.open("r+b") as opened:
        opened.seek(row * 1500 * 8)
        opened.write(b"altered")


def shard(store, machine):
    return store / f"shard-{machine:04d}.npy"


def events(out):
    return [event for step in read_steps(out / "steps.jsonl")[1] for event in step["events"]]


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_an_elastic_run_continues_without_machines_whose_shards_are_damaged(
    multiply, store, tmp_path, check
):
    alter(shard(store, 2))
    shard(store, 3).unlink()
    message = multiply("--local", 5, "--shards", "ram" if check else "mmap", *check)
    assert f"shard-0002.npy: {BLOCK} do not match their checksum (cec-mpi repair {store}" in message
    assert "--elastic" not in message
    lost = [event for event in events(tmp_path / "out") if "lost" in event]
    assert {event["lost"] for event in lost} == {2, 3}
    for event in lost:
        assert f"cec-mpi repair {store}" in event["reason"]
    assert any("cec-mpi repair" in text for text in read_summary(tmp_path / "out")["warnings"])
    assert 2 not in read_steps(tmp_path / "out" / "steps.jsonl")[1][-1]["available"]


def test_damage_ends_a_run_in_lockstep_with_5(multiply, store):
    alter(shard(store, 4))
    message = multiply("--serial", code=5)
    assert message.startswith("cec-mpi: error: ")
    assert len(message.splitlines()) == 1
    problem = f"shard-0004.npy: {BLOCK} do not match their checksum"
    for words in (problem, f"cec-mpi repair {store}", "--elastic"):
        assert words in message


def test_a_run_with_too_few_good_shards_names_the_damaged_rows(multiply, store):
    for machine in (1, 2, 3, 5):
        alter(shard(store, machine))
    message = multiply("--local", 5, code=4)
    assert "cec-mpi: error: step 0 cannot be completed" in message
    assert f"{BLOCK} do not match their checksum (cec-mpi repair {store}" in message
