"""Encode under mpirun, and machines that read their shards."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.stores import read_files


def test_encode_under_mpirun_writes_the_same_bytes(cec, large_store, tmp_path):
    words = ("--machines", 6, "--recovery", 3, "--memory", "200M")
    done = cec("encode", large_store.path.parent / "X.npy", tmp_path / "store", *words, ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert read_files(tmp_path / "store") == read_files(large_store.path)


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("shards", "verify"), [("mmap", "first-read"), ("mmap", "never"), ("ram", "never")]
)
def test_reading_shards_is_recorded_in_the_first_step(cec, large_store, tmp_path, shards, verify):
    np.save(tmp_path / "W.npy", np.ones((2, large_store.columns)))
    words = ("--shards", shards, "--verify", verify, "--serial", "vectors=W.npy")
    words += ("--speeds", "1,1,1,1,1,1")  # with learned speeds a machine may read other rows later
    done = cec("run", large_store.path, "--out", "out", *words)
    assert done.returncode == 0, done.stderr
    header, (first, second) = read_steps(tmp_path / "out" / "steps.jsonl")
    assert (header["shards"], header["verify"]) == (shards, verify)
    is_read = (shards, verify) != ("mmap", "never")
    assert all(
        (size > 0) == (seconds > 0) == is_read
        for size, seconds in zip(first["load_bytes"], first["load_seconds"], strict=True)
    )
    assert second["load_bytes"] == [0] * 6
