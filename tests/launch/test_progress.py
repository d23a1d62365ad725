"""The live line: on a terminal, and only there."""

from __future__ import annotations

import os
import pty

import numpy as np


def read_all(descriptor):
    chunks = []
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    return b"".join(chunks).decode()


def run_command(store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((20, store.columns)))
    options = ["--out", str(tmp_path / "out"), "--vectors", str(tmp_path / "W.npy")]
    launcher = ["mpirun", "-n", str(store.machines + 1)]
    return [*launcher, "cec-mpi", "run", str(store.path), *options]


def test_steps_are_shown_on_a_terminal(start, small_store, tmp_path):
    ours, theirs = pty.openpty()
    process = start(run_command(small_store, tmp_path), stderr=theirs)
    os.close(theirs)
    shown = read_all(ours)
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert f"step 1: {small_store.machines} of {small_store.machines} machines" in shown


def test_nothing_is_shown_elsewhere(run, small_store, tmp_path):
    done = run(run_command(small_store, tmp_path))
    assert done.returncode == 0
    assert "step" not in done.stdout + done.stderr
