"""What scripts share: cec-mpi as a user starts it, and how wrong a result is."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from helpers.mpi_at_hand import mpirun

TIME_LIMIT = 900


def cec_mpi(*words: object, ranks: int = 0, quiet: bool = False) -> None:
    """Run a command of cec_mpi, under mpirun when it takes ranks; leave if it fails."""
    launcher = [mpirun(), "-n", str(ranks)] if ranks else []
    done = subprocess.run(
        [*launcher, sys.executable, "-m", "cec_mpi", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if quiet else None,
        timeout=TIME_LIMIT,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.returncode)


def relative_errors(result: np.ndarray, X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Relative error (2-norm) of each row of `result` against NumPy's ``X w``."""
    expected = X @ W.T
    errors: np.ndarray = np.linalg.norm(result.T - expected, axis=0)
    return errors / np.linalg.norm(expected, axis=0)
