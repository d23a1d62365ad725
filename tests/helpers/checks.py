"""What scripts share: cec-mpi as a user starts it."""

from __future__ import annotations

import subprocess
import sys

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
