"""SciPy's solvers and a peer's adjoint test, unchanged, while every step has other machines."""

from __future__ import annotations

import sys

import pytest

PROGRAM = """
import sys

import numpy as np
import pylops
from mpi4py import MPI
from pylops.utils import dottest
from scipy.sparse.linalg import aslinearoperator, cg, eigsh, gmres, lobpcg, lsmr, lsqr, svds

import cec_mpi

here = sys.argv[1]
comm = MPI.COMM_WORLD
rng = np.random.default_rng(0)
X = rng.standard_normal((1201, 60)) @ np.diag(np.linspace(1, 3, 60))
b, start = rng.standard_normal(1201), rng.standard_normal((60, 3))
if comm.rank == 0:
    np.save(f"{here}/X.npy", X)
    cec_mpi.encode(f"{here}/X.npy", f"{here}/store", 6, 3)
comm.Barrier()
used = []


def mask(tick):
    choice = np.random.default_rng((7, tick))
    up = choice.choice(6, choice.integers(3, 7), replace=False) + 1
    used.append(tuple(up))
    return up


with cec_mpi.open_operator(f"{here}/store", comm, availability=mask) as A:
    if A is not None:
        gram, exact = A.H @ A, X.T @ X
        values, vectors = np.linalg.eigh(exact)
        solution = np.linalg.solve(exact, X.T @ b)
        s = svds(A, k=4, v0=start[:, 0])[1]
        found = {
            "svds": (np.sort(s)[::-1] ** 2, values[:-5:-1]),
            "eigsh": (np.sort(eigsh(gram, k=4, v0=start[:, 0])[0]), values[-4:]),
            "lsqr": (lsqr(A, b, atol=1e-14, btol=1e-14)[0], solution),
            "lsmr": (lsmr(A, b, atol=1e-14, btol=1e-14)[0], solution),
            "cg": (cg(gram, A.H @ b, rtol=1e-13)[0], solution),
            "gmres": (gmres(gram, A.H @ b, rtol=1e-13)[0], solution),
            "lobpcg": (np.sort(lobpcg(gram, start, tol=1e-7, maxiter=300)[0]), values[-3:]),
        }
        for name, (one, other) in found.items():
            print(name, np.linalg.norm(one - other) <= 1e-10 * np.linalg.norm(other))
        print("dottest", dottest(pylops.aslinearoperator(A), 1201, 60, rtol=1e-12))
        changed = sum(one != other for one, other in zip(used, used[1:]))
        print("masks", changed > 0.8 * len(used) > 100)
"""


@pytest.mark.any_mpi
def test_solvers_run_unchanged(run, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(["mpirun", "-n", 7, sys.executable, tmp_path / "program.py", tmp_path])
    assert done.returncode == 0, done.stderr
    names = ["svds", "eigsh", "lsqr", "lsmr", "cg", "gmres", "lobpcg", "dottest", "masks"]
    assert done.stdout.splitlines() == [f"{name} True" for name in names]
    assert done.told == ""


LEAVING = """
import sys

import numpy as np
from mpi4py import MPI

import cec_mpi

with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD) as X:
    if X is not None:
        X @ np.ones(X.shape[1])
        {statement}
print("after", flush=True)
"""


def leave(run, store, tmp_path, statement):
    (tmp_path / "program.py").write_text(LEAVING.format(statement=statement))
    return run(["mpirun", "-n", 4, sys.executable, tmp_path / "program.py", store.path])


@pytest.mark.any_mpi
def test_a_second_operator_is_refused_once(run, small_store, tmp_path):
    second = "\n        with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD): pass"
    done = leave(run, small_store, tmp_path, second)
    assert done.returncode == 1
    assert done.told.count("Traceback") == 1
    assert "X.open(store)" in done.told


def test_a_program_that_leaves_with_a_code(run, small_store, tmp_path):
    done = leave(run, small_store, tmp_path, "sys.exit(9)")
    assert done.returncode == 9
    assert "Traceback" not in done.told
