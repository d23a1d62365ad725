"""Many steps under random faults: none may have a wrong result.

    python scripts/campaigns/chaos_steps.py [--seed I] [--steps 100000] [--rate 0.0005]

Runs products with random vectors, long power iterations and least squares, one after the other,
by ``mpirun --with-ft ulfm`` on six machines, any two of which are enough, with two spares and
``--check parity``. In each step each machine has a fault with this probability: its process is
killed, or stopped, it becomes four times slower, a number of its answer is wrong, NaN or
infinite, or it is told to leave. In some runs rank
0 is killed, and the run resumed. Runs that are left with too few machines are resumed too, until
their results are there. With ``--rate 0`` nothing goes wrong, and no answer may be called so.

A product is wrong when its error is above the bound that its step's record has, and another result
when it is not the one of NumPy. Prints a line for each run with a wrong result, a hang, another
exit code or a process left, and then the totals.
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

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from cec_mpi.records.recorder import read_steps
from helpers.commands import Started, finish, start, steps_of
from helpers.ranks import ranks_of

LIMIT = 300  # seconds for a run that takes ten
MACHINES, RECOVERY, SPARES = 6, 2, 2
ROWS, COLUMNS, PRODUCTS = 600, 100, 2000
SIZE = 200  # of the matrix of power iteration
CLOSE = 1e-5  # relative error of what a solver finds
TASKS = {"matvec": "X", "power": "S", "lstsq": "A"}  # and their stores
RESUMABLE = (3, 4, 6)  # exit codes: a step was refused, too few machines, a signal
MASTER_KILLED = 0.2  # of the runs


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=5e-4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cec-mpi-chaos-") as name:
        campaign = Campaign(Path(name), arguments.seed, arguments.rate)
        while campaign.steps < arguments.steps:
            for task in TASKS:
                campaign.work(task)
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
        self._numbers = np.random.default_rng(seed)
        self._X = self._numbers.standard_normal((ROWS, COLUMNS))
        # Many steps: a second eigenvalue close to the first one, and columns of unlike length.
        basis, _ = np.linalg.qr(self._numbers.standard_normal((SIZE, SIZE)))
        self._S = basis * np.append(np.linspace(0, 9.9, SIZE - 1), 10) @ basis.T
        self._A = self._X * np.logspace(0, 2.5, COLUMNS)
        for name, array in (("X", self._X), ("S", self._S), ("A", self._A)):
            np.save(directory / f"{name}.npy", array)
            cec_mpi.encode(directory / f"{name}.npy", directory / name, MACHINES, RECOVERY)

    def work(self, task: str) -> None:
        """A task, in as many runs as it takes."""
        out = self._directory / f"out{self.runs}"
        given = self._numbers.standard_normal(ROWS)
        if task == "matvec":
            given = self._numbers.standard_normal((PRODUCTS, COLUMNS))
        np.save(self._directory / "given.npy", given)
        done = False
        for attempt in range(20):
            done = self._run(task, out, resume=attempt > 0)
            if done or self.problems > 10:
                break
        if not done:
            self._complain(f"{out.name} did not come to its end")
            return
        _, steps = read_steps(out / "steps.jsonl")
        self.steps += len(steps)
        for step in steps:
            self._events.update(next(iter(event)) for event in step["events"])
        if not self._rate and any("wrong" in event for step in steps for event in step["events"]):
            self._complain(f"{out.name}: a false alarm")
        result = np.load(out / "result.npy")
        if task == "matvec":
            self._check_products(given, result, max(step["error_bound"] for step in steps))
            return
        if task == "power":
            expected = np.linalg.eigh(self._S)[1][:, -1]
            expected = expected * np.sign(expected @ result)
        else:
            expected = np.linalg.lstsq(self._A, given)[0]
        error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
        if not error < CLOSE:
            self._complain(f"{out.name}, {task}: a relative error of {error:.2g}")

    def _run(self, task: str, out: Path, resume: bool) -> bool:
        """One run; whether it came to its end."""
        self.runs += 1
        ranks = MACHINES + SPARES + 1
        command = ["mpirun", "--with-ft", "ulfm", "-n", ranks, "cec-mpi", "run"]
        command += [self._directory / TASKS[task], "--out", out, "--task", task]
        command += {
            "matvec": ["--vectors", self._directory / "given.npy"],
            "power": ["--set", "tol=1e-9", "--set", "iterations=20000", "--set", "seed=0"],
            "lstsq": ["--set", f"b={self._directory / 'given.npy'}", "--set", "iterations=20000"],
        }[task]
        command += ["--checkpoint-every", 50]
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
        before = steps_of(out)
        deadline = time.monotonic() + LIMIT
        while steps_of(out) < before + self._random.randint(1, PRODUCTS // 2):
            if started.process.poll() is not None or time.monotonic() > deadline:
                return
            time.sleep(0.01)
        master = ranks_of(started.process).get(0)
        if master is not None:
            with suppress(ProcessLookupError):
                kill(master.pid, signal.SIGKILL)
                self._events["master killed"] += 1

    def _check_products(self, W: np.ndarray, found: np.ndarray, bound: float) -> None:
        """Compare each product with the dense one, and the error with the bound."""
        exact = W @ self._X.T
        parts = (len(W), RECOVERY, -1)
        wrong = np.abs(found - exact).reshape(parts).sum(axis=1).max(axis=1)
        largest = np.abs(exact).reshape(parts).sum(axis=1).max(axis=1)
        self._worst = max(self._worst, float((wrong / largest).max() / bound))
        if not (wrong <= bound * largest).all():
            self._complain(f"{(~(wrong <= bound * largest)).sum()} wrong products")

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
