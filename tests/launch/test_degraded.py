"""Runs on a damaged store: they go on with what the other shards give, or say how."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest

from cec_mpi import open_store
from cec_mpi.records.directory import read_summary
from cec_mpi.records.recorder import read_steps

pytestmark = pytest.mark.any_mpi
BLOCK = "rows 87..173"  # in the middle of a shard, see `store`


@pytest.fixture(scope="module")
def whole(make_store):
    return make_store(np.random.default_rng(6).standard_normal((520, 1500)), 5, 2)


@pytest.fixture
def store(whole, tmp_path):
    """Its shards have three blocks."""
    assert open_store(whole.path).manifest.grid.block_rows == 87
    return shutil.copytree(whole.path, tmp_path / "store")


@pytest.fixture
def multiply(cec, store, whole, tmp_path):
    """Ten products; gives what was printed, after a look at the results."""
    W = np.random.default_rng(7).standard_normal((10, 1500))
    np.save(tmp_path / "W.npy", W)

    def multiply(*options, ranks=0, code=0):
        out = tmp_path / "out"
        words = ["run", store, "--out", out, f"vectors={tmp_path / 'W.npy'}"]
        done = cec(*words, "--speeds", "1,1,1,1,1", *options, ranks=ranks)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if not code:
            assert np.allclose(np.load(out / "result.npy"), W @ whole.X.T, atol=1e-9)
        return done.told

    return multiply


def alter(file, row=100):
    with file.open("r+b") as opened:
        opened.seek(row * 1500 * 8)
        opened.write(b"altered")


def shard(store, machine):
    return store / f"shard-{machine:04d}.npy"


def events(out):
    return [event for step in read_steps(out / "steps.jsonl")[1] for event in step["events"]]


@pytest.mark.parametrize("check", [(), ("--check", "parity", "--stragglers", 1)])
def test_machines_go_on_with_rows_that_others_give(multiply, store, tmp_path, check):
    alter(shard(store, 2))
    shard(store, 3).unlink()
    os.truncate(shard(store, 5), 1_000_000)
    told = multiply("--local", 5, "--shards", "ram" if check else "mmap", *check)
    (warning,) = told.splitlines()
    assert warning.startswith("cec-mpi: warning: machine ")
    assert f"cec-mpi repair {store} repairs the store" in warning
    # Some of it may be late on a busy computer, which is no loss.
    found = [event for event in events(tmp_path / "out") if "late" not in event]
    assert {event["rebuilt"] for event in found} == {2, 3, 5}
    (block,) = [event for event in found if event["rebuilt"] == 2]
    assert (block["rows"], block["first"], block["last"]) == (87, 87, 173)
    assert 0 < block["error_bound"] < 1e-13
    assert any("cec-mpi repair" in text for text in read_summary(tmp_path / "out")["warnings"])
    log = (tmp_path / "out" / "logs" / "machine-0002.log").read_text()
    assert f"shard-0002.npy: {BLOCK} are being rebuilt from other shards" in log


def test_in_lockstep_the_message_says_how(multiply, store):
    alter(shard(store, 4))
    told = multiply(ranks=6, code=3)
    assert told.startswith("cec-mpi: error: ")
    assert len(told.splitlines()) == 1
    says = f"shard-0004.npy: {BLOCK} do not match their checksum"
    for words in (says, "cec-mpi repair", "--elastic"):
        assert words in told


def test_where_too_few_shards_are_good_the_message_names_the_rows(multiply, store):
    for machine in (1, 2, 3, 5):
        alter(shard(store, machine))
    told = multiply("--local", 5, code=4)
    assert "cec-mpi: error: step 0 cannot end" in told
    assert f"fewer than 2 of 5 shards are good at {BLOCK}" in told


def test_a_damaged_copy_is_no_loss(multiply, store, cec, tmp_path):
    assert cec("stage", store, tmp_path / "copies").returncode == 0
    alter(shard(tmp_path / "copies", 2))
    assert multiply("--local", 5) == ""
    assert events(tmp_path / "out") == []
    log = (tmp_path / "out" / "logs" / "machine-0002.log").read_text()
    assert "copies" in log
