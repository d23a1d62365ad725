"""Many steps under random faults: none may have a wrong result.

    python scripts/chaos_steps.py [--seed I] [--steps 100000] [--rate 0.0005]

Runs products with random vectors by ``mpirun --with-ft ulfm`` on six machines, any two of which
are enough, with two spares and ``--check parity``. In each step each machine has a fault with this
probability: its process is killed, or stopped, it becomes four times slower, a number of its
answer is wrong, or it is told to leave. In some runs rank 0 is killed, and the run resumed. Runs
that are left with too few machines are resumed too, until all their products are there. With
``--rate 0`` nothing goes wrong, and no answer may be called so.

A step is wrong when its error is above the bound that its record has. Prints a line for each run
with a wrong step, a hang, another exit code or a process left, and then the totals.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from os import kill
from pathlib import Path

import numpy as np
from bad_inputs import Started, finish, start
from chaos_kill import made_steps, processes_by_rank

import cec_mpi
from cec_mpi.records import read_steps

LIMIT = 300  # seconds for a run that takes ten
MACHINES, RECOVERY, SPARES = 6, 2, 2
ROWS, COLUMNS, PRODUCTS = 600, 100, 2000
RESUMABLE = (3, 4, 6)  # exit codes: a step was refused, too few machines, a signal
MASTER_KILLED = 0.2  # of the runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=5e-4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cec-mpi-chaos-") as name:
        campaign = Campaign(Path(name), arguments.seed, arguments.rate)
        while campaign.steps < arguments.steps:
            campaign.products()
        campaign.report()
        return 1 if campaign.problems else 0


class Campaign:
    """Runs with faults, and what became of them."""

    def __init__(self, directory: Path, seed: int, rate: float) -> None:
        self._directory = directory
        self._random = random.Random(seed)
        self._seed, self._rate = seed, rate
        self.runs = self.steps = self.problems = 0
        self._events: Counter[str] = Counter()
        self._worst = 0.0  # error over bound
        rng = np.random.default_rng(seed)
        self._X = rng.standard_normal((ROWS, COLUMNS))
        np.save(directory / "X.npy", self._X)
        cec_mpi.encode(directory / "X.npy", directory / "store", MACHINES, RECOVERY)

    def products(self) -> None:
        """A sequence of products, in as many runs as it takes."""
        W = np.random.default_rng((self._seed, self.runs)).standard_normal((PRODUCTS, COLUMNS))
        np.save(self._directory / "W.npy", W)
        out = self._directory / f"out{self.runs}"
        done = False
        for attempt in range(20):
            done = self._run(out, resume=attempt > 0)
            if done or self.problems > 10:
                break
        if not done:
            self._complain(f"{out.name} did not come to its end")
            return
        self._check(W, out)

    def _run(self, out: Path, resume: bool) -> bool:
        """One run; whether it came to its end."""
        self.runs += 1
        ranks = MACHINES + SPARES + 1
        command = ["mpirun", "--with-ft", "ulfm", "-n", ranks, "cec-mpi", "run"]
        command += [self._directory / "store", "--out", out]
        command += ["--vectors", self._directory / "W.npy", "--checkpoint-every", 50]
        command += ["--on-loss", "continue", "--spares", SPARES, "--stragglers", 2]
        command += ["--check", "parity", "--deadline", 0.3]
        command += ["--inject", f"random:{self._rate}"] if self._rate else []
        command += ["--seed", self._seed + self.runs, *(["--resume"] if resume else [])]
        started = start(command)
        if self._rate and self._random.random() < MASTER_KILLED:
            self._kill_master(started, out)
        ended = finish(started, LIMIT)
        if ended.left:
            self._complain(f"{len(ended.left)} processes left, code {ended.returncode}")
        if ended.returncode == 0:
            return True
        killed = "signal 9" in ended.stderr or ended.returncode in (137, -9)
        if ended.returncode not in RESUMABLE and not killed:
            self._complain(f"exit code {ended.returncode}\n{ended.stderr[-1500:]}")
        self._events[f"exit code {ended.returncode}"] += 1
        return False

    def _kill_master(self, started: Started, out: Path) -> None:
        before = made_steps(out)
        deadline = time.monotonic() + LIMIT
        while made_steps(out) < before + self._random.randint(1, PRODUCTS // 2):
            if started.process.poll() is not None or time.monotonic() > deadline:
                return
            time.sleep(0.01)
        master = processes_by_rank(started).get(0)
        if master is not None:
            with suppress(ProcessLookupError):
                kill(master, signal.SIGKILL)
                self._events["master killed"] += 1

    def _check(self, W: np.ndarray, out: Path) -> None:
        """Compare each product with the dense one, and with the bound of its step."""
        found, exact = np.load(out / "result.npy"), W @ self._X.T
        _, steps = read_steps(out / "steps.jsonl")
        self.steps += len(steps)
        for step in steps:
            self._events.update(next(iter(event)) for event in step["events"])
        bound = max(step["error_bound"] for step in steps)
        parts = (len(W), RECOVERY, -1)
        wrong = np.abs(found - exact).reshape(parts).sum(axis=1).max(axis=1)
        largest = np.abs(exact).reshape(parts).sum(axis=1).max(axis=1)
        if not self._rate and any("wrong" in event for step in steps for event in step["events"]):
            self._complain(f"{out.name}: a false alarm")
        self._worst = max(self._worst, float((wrong / largest).max() / bound))
        if not (wrong <= bound * largest).all():
            self._complain(f"{out.name}: {(~(wrong <= bound * largest)).sum()} wrong products")

    def _complain(self, problem: str) -> None:
        self.problems += 1
        print(f"run {self.runs}: {problem}", flush=True)

    def report(self) -> None:
        """Print the totals."""
        print(f"{self.runs} runs, {self.steps} steps: {self.problems} problems")
        print(json.dumps(dict(self._events.most_common())))
        print(f"the largest error is {self._worst:.2g} of its bound")


if __name__ == "__main__":
    sys.exit(main())
