"""A program without MPI, one of whose processes is killed: what it sees, and who lives on.

    mpirun -n 3 python tests/helpers/killed.py DIR SECONDS

Each process writes DIR/N.json when it starts. When all have, process 1 kills itself, and
each of the others writes DIR/N.lived if it is still there after SECONDS.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cec_mpi.runtime.processes.launcher import detect_continuity, detect_launcher, job_id

PROCESSES = 3


def words(directory: Path, seconds: float) -> list[object]:
    """The words of the program, for a launcher."""
    directory.mkdir(exist_ok=True)
    return [sys.executable, Path(__file__).resolve(), directory, seconds]


def seen(directory: Path) -> tuple[list[dict[str, Any]], int]:
    """What each process saw, and how many lived on."""
    found = [json.loads((directory / f"{n}.json").read_text()) for n in range(PROCESSES)]
    return found, len(list(directory.glob("*.lived")))


def main(directory: Path, seconds: float) -> None:
    launcher = detect_launcher()
    assert launcher is not None
    assert "mpi4py" not in sys.modules
    place = directory / f"{launcher.rank}.json"
    seen = {"pid": os.getpid(), "job": job_id(), **asdict(detect_continuity())}
    place.with_suffix(".new").write_text(json.dumps(seen))
    place.with_suffix(".new").rename(place)
    while len(list(directory.glob("*.json"))) < PROCESSES:
        time.sleep(0.02)
    if launcher.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)
    place.with_suffix(".lived").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
