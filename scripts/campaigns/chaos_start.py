"""Kill or stop one process at a random moment while MPI starts: every start has to end in time.

    python scripts/campaigns/chaos_start.py [--seed I] [--starts 20] [--launcher ulfm|plain]
        [--rank R] [--signal KILL|STOP] [--until 4] [--start-timeout 5]

Starts a run with six machines, and sends a signal to one of its ranks at a random moment from 0 to
``--until`` seconds. The run must end within its time limit, say at most one thing, leave with the
exit code 3 or, where the launcher ends the job by itself, with another one that is not 0, and leave
no process behind. A run that goes on without the lost machine, or was over before, returns 0.

Prints a line for each start, and then the totals: starts, hangs, messages and exit codes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from helpers.commands import Started, finish, mpirun, start
from helpers.ranks import ranks_of

RANKS = 7
GRACE = 30  # seconds after the limit of a start, for a launcher to end the job
_FASTER = ("OMPI_MCA_pml", "OMPI_MCA_btl")  # with these MPI starts before a signal can come


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--launcher", choices=["ulfm", "plain"], default="ulfm")
    parser.add_argument("--rank", type=int, help="that the signal goes to; by default any")
    parser.add_argument("--signal", choices=["KILL", "STOP"], default="KILL")
    parser.add_argument("--until", type=float, default=4.0, metavar="SECONDS")
    parser.add_argument("--start-timeout", type=float, default=5.0, metavar="SECONDS")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    codes: Counter[Any] = Counter()
    told: Counter[int] = Counter()
    problems = 0
    with tempfile.TemporaryDirectory(prefix="cec-mpi-chaos-") as name:
        command = prepare(Path(name), arguments)
        for number in range(arguments.starts):
            moment = rng.uniform(0.0, arguments.until)
            rank = rng.randrange(RANKS) if arguments.rank is None else arguments.rank
            began = time.monotonic()
            started = start([*command, "--out", Path(name) / f"out{number}"])
            hit = send(started, rank, signal.Signals[f"SIG{arguments.signal}"], began + moment)
            done = finish(started, arguments.start_timeout + GRACE)
            seconds = time.monotonic() - began
            messages = done.told.count("cec-mpi: error:") + done.told.count("Traceback")
            code = "hang" if done.returncode is None else done.returncode
            codes[code] += 1
            told[messages] += 1
            bad = code == "hang" or bool(done.left) or messages > 1 or "Traceback" in done.told
            bad = bad or (code == 3 and not messages)
            problems += bad
            what = f"{arguments.signal} of rank {rank}" if hit else "nothing"
            print(
                f"start {number}: {what} at {moment:.2f} s, {code} after {seconds:.1f} s, "
                f"{messages} messages{', WRONG' if bad else ''}",
                flush=True,
            )
            if bad:
                print("  " + "\n  ".join(done.stderr.splitlines()[-20:]), flush=True)
    print(f"{arguments.starts} starts, {problems} wrong")
    print(f"exit codes: {dict(codes)}; messages: {dict(told)}")
    return 1 if problems else 0


def prepare(directory: Path, arguments: argparse.Namespace) -> list[object]:
    """A store, and the command of a run on it."""
    rng = np.random.default_rng(1)
    np.save(directory / "X.npy", rng.standard_normal((600, 60)))
    np.save(directory / "W.npy", rng.standard_normal((10, 60)))
    cec_mpi.encode(directory / "X.npy", directory / "store", RANKS - 1, 3)
    words: list[object] = ["env", *(f"--unset={name}" for name in _FASTER), mpirun()]
    if arguments.launcher == "ulfm":
        words += ["--with-ft", "ulfm"]
    words += ["-n", RANKS, "cec-mpi", "run", directory / "store", "--vectors", directory / "W.npy"]
    if arguments.launcher == "ulfm":
        words += ["--on-loss", "continue"]
    return [*words, "--start-timeout", arguments.start_timeout]


def send(started: Started, rank: int, number: signal.Signals, moment: float) -> bool:
    """Send a signal to a rank at this moment, or when it is there; False when the job is over."""
    time.sleep(max(0.0, moment - time.monotonic()))
    while started.process.poll() is None:
        found = ranks_of(started.process)
        if rank in found:
            try:
                os.kill(found[rank].pid, number)
            except ProcessLookupError:
                return False
            return True
        if found and time.monotonic() > moment + 1:
            return False  # it has left already
        time.sleep(0.01)
    return False


if __name__ == "__main__":
    sys.exit(main())
