"""What the ranks do: products on machines that are slowed down, for both schemes in turn."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from cec_mpi.bench.slower.limits import be_slow
from cec_mpi.linear_operator.opening import open_operator
from cec_mpi.records.recorder import Recorder
from cec_mpi.records.step import StepRecord


def main(path: str) -> None:
    """Make steps as a file says, and write what they took beside it."""
    told: dict[str, Any] = json.loads(Path(path).read_text())
    comm = MPI.COMM_WORLD
    if comm.rank:
        be_slow(told["machines"][comm.rank - 1])
    steps: list[StepRecord] = []
    W = np.random.default_rng(told["seed"]).standard_normal((told["columns"], told["vectors"]))
    options = {"verify": "never", "threads": 1}
    with open_operator(told["store"], comm, recorder=Recorder(steps.append), **options) as X:
        if X is None:
            return
        with X.open(told["store"], scheme="cyclic") as cyclic:
            assert cyclic is not None
            for _ in range(told["steps"]):
                X.matmat(W)
                cyclic.matmat(W)
    found = [
        {
            "cyclic": step.store == 1,
            "measured": step.measured_makespan,
            "hindsight": step.hindsight_makespan,
            "rows": step.rows,
            "seconds": step.seconds,
        }
        for step in steps
    ]
    Path(told["out"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
