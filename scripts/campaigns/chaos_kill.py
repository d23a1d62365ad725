"""Kill machines at random moments: every run has to end in time, with the right result.

    python scripts/campaigns/chaos_kill.py [--seed I] [--kills 300] [--adopt]

Runs products with a sequence of vectors, power iteration and least squares, one after the
other, under ``mpirun --with-ft ulfm`` with six machines, three of which are enough, and two
spares. Once its first step is done, one to four processes of each run are killed with SIGKILL
at random moments. Each run must end within its time limit with exit code 0, with what NumPy
finds, and with no process left.

With ``--adopt`` there are no spares, and all machines but one are killed: those that are left take
over the shards of the others.

Prints a line for each run that does not, and then the totals: runs, kills, steps that lost
machines, and how long such a step took over the median of the others.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from cec_mpi.records.recorder import read_steps
from helpers.commands import Started, finish, start, steps_of
from helpers.ranks import ranks_of

LIMIT = 60  # seconds for a run that takes two
MACHINES, RECOVERY, SPARES = 6, 3, 2
ROWS, SIZE = 900, 300
SLOWLY = ("--emulate-speeds", "2,2,3,3,4,4", "--emulate-base", 16_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--most", type=int, default=4, help="kills in a run")
    parser.add_argument("--adopt", action="store_true", help="until one machine is left")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="cec-mpi-chaos-") as name:
        campaign = Campaign(Path(name), rng, arguments.adopt)
        while campaign.kills < arguments.kills:
            campaign.run(MACHINES - 1 if arguments.adopt else rng.randint(1, arguments.most))
        campaign.report()
        return 1 if campaign.problems else 0


class Campaign:
    """Runs with kills, and what became of them."""

    def __init__(self, directory: Path, rng: random.Random, adopts: bool) -> None:
        self._directory = directory
        self._adopts = adopts
        self._spares = 0 if adopts else SPARES
        self._taking_over: list[float] = []  # times of steps in which shards were taken over
        self._rng = rng
        self.runs = self.kills = self.problems = 0
        self._lost_steps: list[float] = []  # times of steps that lost machines, over the median
        numbers = np.random.default_rng(1)
        self._X = numbers.standard_normal((ROWS, SIZE))
        basis, _ = np.linalg.qr(numbers.standard_normal((SIZE, SIZE)))
        values = np.append(np.linspace(0, 9, SIZE - 1), 10)
        self._S = basis * values @ basis.T
        self._W = numbers.standard_normal((150, SIZE))
        self._b = numbers.standard_normal(ROWS)
        for key, array in (("X", self._X), ("S", self._S), ("W", self._W), ("b", self._b)):
            np.save(directory / f"{key}.npy", array)
        for key in "XS":
            cec_mpi.encode(directory / f"{key}.npy", directory / key, MACHINES, RECOVERY)

    def run(self, kills: int) -> None:
        """One run with this many kills."""
        out = self._directory / f"out{self.runs}"
        task = ("matvec", "power", "lstsq")[self.runs % 3]
        store = self._directory / ("S" if task == "power" else "X")
        words: list[Any] = ["run", store, "--out", out, "--task", task, *SLOWLY]
        words += ["--on-loss", "continue", "--spares", self._spares]
        words += ["--adopt"] if self._adopts else []
        words += {
            "matvec": ["--vectors", self._directory / "W.npy"],
            "power": ["--set", "tol=1e-9"],
            "lstsq": ["--set", f"b={self._directory / 'b.npy'}"],
        }[task]
        ranks = MACHINES + self._spares + 1
        command = ["mpirun", "--with-ft", "ulfm", "-n", ranks, "cec-mpi", *words]
        started = start(command)
        killed = self._kill(started, out, kills)
        done = finish(started, LIMIT)
        self.runs += 1
        self.kills += killed
        problem = ""
        if done.returncode != 0:
            problem = f"exit code {done.returncode}"
        elif done.left:
            problem = f"{len(done.left)} processes left"
        elif not self._is_right(task, out):
            problem = "a wrong result"
        if problem:
            self.problems += 1
            print(f"run {self.runs - 1}, {task}, {killed} kills: {problem}", flush=True)
            print("  " + "\n  ".join(done.stderr.splitlines()[-12:]), flush=True)
            return
        self._measure(out)

    def _kill(self, started: Started, out: Path, kills: int) -> int:
        """Kill machines of this run at random moments, until it has ended."""
        moments = sorted(self._rng.uniform(0.0, 0.9) for _ in range(kills))
        deadline = time.monotonic() + LIMIT
        while not steps_of(out):
            if started.process.poll() is not None or time.monotonic() > deadline:
                return 0
            time.sleep(0.005)
        begin, killed = time.monotonic(), 0
        for moment in moments:
            time.sleep(max(0.0, begin + moment - time.monotonic()))
            machines = [one.pid for rank, one in ranks_of(started.process).items() if rank]
            if not machines or started.process.poll() is not None:
                break
            try:
                os.kill(self._rng.choice(machines), signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                continue
        return killed

    def _is_right(self, task: str, out: Path) -> bool:
        result = np.load(out / "result.npy")
        if task == "matvec":
            expected = self._W @ self._X.T
        elif task == "power":
            expected = np.linalg.eigh(self._S)[1][:, -1]
            expected = expected * np.sign(expected @ result)
        else:
            expected = np.linalg.lstsq(self._X, self._b)[0]
        return bool(np.linalg.norm(result - expected) < 1e-6 * np.linalg.norm(expected))

    def _measure(self, out: Path) -> None:
        _, steps = read_steps(out / "steps.jsonl")
        usual = statistics.median(_seconds(step) for step in steps)
        for step in steps:
            if any("lost" in event for event in step["events"]):
                self._lost_steps.append(_seconds(step) / usual)
            if any("adopted" in event for event in step["events"]):
                self._taking_over.append(_seconds(step) / usual)

    def report(self) -> None:
        """Print the totals."""
        print(f"{self.runs} runs, {self.kills} kills: {self.problems} problems")
        for what, found in (
            ("lost machines", self._lost_steps),
            ("had shards taken over", self._taking_over),
        ):
            if found:
                ratios = sorted(found)
                print(
                    f"{len(ratios)} steps {what}: {statistics.median(ratios):.2f} times as long as "
                    f"the median step (95 %: {ratios[int(0.95 * len(ratios))]:.2f}, longest "
                    f"{ratios[-1]:.2f})"
                )


def made_steps(out: Path) -> int:
    """Steps that a run has recorded so far."""
    try:
        return (out / "steps.jsonl").read_bytes().count(b'"kind": "step"')
    except FileNotFoundError:
        return 0


def _seconds(step: dict[str, Any]) -> float:
    return float(step["announce_seconds"] + step["share_seconds"] + step["collect_seconds"])


if __name__ == "__main__":
    sys.exit(main())
