"""A program without MPI that kills one of its processes, to see whether the others survive.

    mpirun -n 3 python tests/helpers/kill_one_process.py DIR SECONDS

Each process writes DIR/N.json when it starts. Then process 1 kills itself, and each other process
writes DIR/N.survived after SECONDS.
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

from cec_mpi.runtime.processes.launcher import detect_launcher, detect_loss_policy, job_id

PROCESSES = 3


def program_command(directory: Path, seconds: float) -> list[object]:
    """Return the command that a launcher starts."""
    directory.mkdir(exist_ok=True)
    return [sys.executable, Path(__file__).resolve(), directory, seconds]


def read_results(directory: Path) -> tuple[list[dict[str, Any]], int]:
    """Return what each process has detected, and the number of survivors."""
    detected = [json.loads((directory / f"{n}.json").read_text()) for n in range(PROCESSES)]
    return detected, len(list(directory.glob("*.survived")))


def main(directory: Path, seconds: float) -> None:
    launcher = detect_launcher()
    assert launcher is not None
    assert "mpi4py" not in sys.modules
    file = directory / f"{launcher.rank}.json"
    detected = {"pid": os.getpid(), "job": job_id(), **asdict(detect_loss_policy())}
    file.with_suffix(".new").write_text(json.dumps(detected))
    file.with_suffix(".new").rename(file)
    while len(list(directory.glob("*.json"))) < PROCESSES:
        time.sleep(0.02)
    if launcher.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)
    file.with_suffix(".survived").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
