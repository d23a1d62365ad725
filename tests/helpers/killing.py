"""Products while machines are killed: a program of several ranks, and how wrong it was.

    mpirun --with-ft ulfm -n N python killing.py STORE X.npy FOUND.json OPTIONS SEED

FOUND.json has the relative error of each product. OPTIONS, as JSON, are `machines` of which `kills`
are killed at random, in steps from `first` to `last` - 1 of `steps`, and `options` of the operator.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def errors_with_kills(
    run: Callable[..., Any], ranks: int, store: Any, directory: Path, seed: int, **given: Any
) -> list[float]:
    """Run the program; returns relative errors."""
    np.save(directory / "X.npy", store.X)
    found = directory / "found.json"
    words = [__file__, store.path, directory / "X.npy", found, json.dumps(given), seed]
    done = run(["mpirun", "--with-ft", "ulfm", "-n", ranks, "python", *words])
    assert found.exists(), done.stderr
    errors: list[float] = json.loads(found.read_text())
    return errors


def _main(store: str, file: str, out: str, options: str, seed: str) -> None:
    from mpi4py import MPI

    import cec_mpi

    given = json.loads(options)
    pids = MPI.COMM_WORLD.gather(os.getpid())
    X = np.load(file)
    rng = np.random.default_rng(int(seed))
    found = []
    opening = cec_mpi.open_operator(store, MPI.COMM_WORLD, on_loss="continue", **given["options"])
    with opening as operator:
        if operator is None:
            return
        assert pids is not None
        killed = rng.permutation(given["machines"])[: given["kills"]].tolist()
        steps = np.arange(given["first"], given["last"])
        at = np.sort(rng.choice(steps, len(killed), replace=False)).tolist()
        for step in range(given["steps"]):
            if step in at:
                os.kill(pids[killed[at.index(step)]], signal.SIGKILL)
                time.sleep(rng.choice([0.0, 0.002, 0.1]))
            if step % 2:
                v = rng.standard_normal(len(X))
                error, size = operator.H @ v - X.T @ v, X.T @ v
            else:
                W = rng.standard_normal((X.shape[1], 3))
                error, size = operator @ W - X @ W, X @ W
            found.append(float(np.linalg.norm(error) / np.linalg.norm(size)))
        Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
