"""Machines with several shards that are killed: runs go on while the others have L shards."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cec_mpi.records.recorder import read_steps

pytestmark = pytest.mark.needs("ulfm")

ULFM = ("mpirun", "--with-ft", "ulfm", "-n")

PROGRAM = """
import json, os, signal, sys, time
import numpy as np
from mpi4py import MPI
import cec_mpi

pids = MPI.COMM_WORLD.gather(os.getpid())
X = np.load(sys.argv[2])
rng = np.random.default_rng(int(sys.argv[4]))
found = []
options = {"on_loss": "continue", "shards_per_machine": (3, 2, 2, 5)}
with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD, **options) as operator:
    if operator is not None:
        killed = rng.permutation([1, 2, 3])
        at = np.sort(rng.choice(np.arange(2, 40), 3, replace=False)).tolist()
        for step in range(50):
            if step in at:
                os.kill(pids[killed[at.index(step)]], signal.SIGKILL)
                time.sleep(rng.choice([0.0, 0.002, 0.1]))
            if step % 2:
                v = rng.standard_normal(len(X))
                error, size = operator.H @ v - X.T @ v, X.T @ v
            else:
                W = rng.standard_normal((X.shape[1], 3))
                error, size = operator @ W - X @ W, X @ W
            found.append(np.linalg.norm(error) / np.linalg.norm(size))
        with open(sys.argv[3], "w") as file:
            json.dump(found, file)
"""


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 12, 4)


def test_machines_are_killed_one_by_one_until_one_is_left(run, store, tmp_path):
    """The last of them has five shards, of which four are enough."""
    (tmp_path / "program.py").write_text(PROGRAM)
    np.save(tmp_path / "X.npy", store.X)
    words = ["python", tmp_path / "program.py", store.path, tmp_path / "X.npy"]
    done = run([*ULFM, 5, *words, tmp_path / "found.json", 3])
    assert (tmp_path / "found.json").exists(), done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found) == 50
    assert max(found) < 1e-10


def test_a_run_says_which_shards_are_left_when_it_cannot_go_on(run, store, tmp_path):
    np.save(tmp_path / "W.npy", np.random.default_rng(5).standard_normal((30, 60)))
    words = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "-q"]
    words += ["--vectors", tmp_path / "W.npy", "--on-loss", "continue"]
    words += ["--shards-per-machine", "3,2,2,5", "--inject", "kill:2@5,kill:4@9,kill:1@12"]
    done = run([*ULFM, 5, *words])
    assert done.returncode == 4, done.stderr
    assert "1 of its machines are left (3) with 2 shards, and each row needs 4" in done.told
    header, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert header["shards_of_machine"] == [[1, 2, 3], [4, 5], [6, 7], [8, 9, 10, 11, 12]]
    assert steps[-1]["available"] == [1, 3]
