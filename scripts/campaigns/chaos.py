"""Kill, stop and warn processes at random moments: each run has to end in time and be right.

    python scripts/campaigns/chaos.py [--seed I] [--runs 30] [--ways local,mpirun,join]
        [--most 4] [--rate 0.002] [--limit 180] [--seconds 3600]

Runs products, power iteration and least squares, one after the other, on five machines, two of
which are enough. The machines are processes that the run starts, processes of ``mpirun --with-ft
ulfm`` with a spare, or join. At up to ``--most`` moments of each run, from the start of its first
process on, a random process gets SIGKILL, SIGTERM or SIGSTOP (and SIGCONT after up to 30 s); one in
six signals is for the master. In every other run machines also have random faults at this rate in
each step (wrong or infinite numbers, delays, losses), and answers are compared (``--check``).
A run that ends early is resumed until its result is there.

Prints a line for each run that does not end within ``--limit`` seconds, leaves a process or a
temporary file, prints a traceback, ends with an unexpected exit code or has a result that is not
NumPy's, or names a machine as wrong which is not. Then the totals.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from cec_mpi.runtime.records.recorder import read_steps
from helpers.commands import Done, Started, finish, start, steps_of
from helpers.ranks import processes_of

MACHINES, RECOVERY, SPARES = 5, 2, 1
ROWS, SIZE, PRODUCTS = 600, 120, 200
SLOWLY = ("--emulate-speeds", "2,2,3,3,4", "--emulate-base", 12_000)  # about 10 ms a step
TASKS = ("matvec", "power", "lstsq")
START = 30  # seconds, in which a master can be missed that was killed before
LENGTH = 3.0  # seconds, of a run without faults
ATTEMPTS = 8  # the last one without faults
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
TERMINATED = 128 + signal.SIGTERM  # while it still read its modules
RESUMABLE = (3, 4, 6, TERMINATED)  # a machine failed, too few machines, told to leave
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL, signal.SIGKILL, -signal.SIGTERM)
JOINED = (0, 3, 6, 7, TERMINATED, -signal.SIGTERM, -signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--ways", default="local,mpirun,join")
    parser.add_argument("--most", type=int, default=4, help="signals in a run")
    parser.add_argument("--rate", type=float, default=0.002, help="of faults in a step")
    parser.add_argument("--limit", type=float, default=180, help="seconds for a run")
    parser.add_argument("--seconds", type=float, default=3600, help="after which no run begins")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory(prefix="cec-mpi-chaos-") as name:
        campaign = Campaign(Path(name), arguments)
        for number in range(arguments.runs):
            if time.monotonic() > end:
                break
            campaign.work(number)
        campaign.report()
        return 1 if campaign.problems else 0


class Campaign:
    """Runs with signals and faults, and what became of them."""

    def __init__(self, directory: Path, arguments: argparse.Namespace) -> None:
        self._directory, self._given = directory, arguments
        self._ways = arguments.ways.split(",")
        self._random = random.Random(arguments.seed)
        self.runs = self.problems = 0
        self._counts: Counter[str] = Counter()
        numbers = np.random.default_rng(arguments.seed)
        X = numbers.standard_normal((ROWS, SIZE))
        basis, _ = np.linalg.qr(numbers.standard_normal((SIZE, SIZE)))
        S = basis * np.append(np.linspace(0, 9, SIZE - 1), 9.5) @ basis.T
        A = X * np.logspace(0, 2, SIZE)  # so that it takes many steps
        W, b = numbers.standard_normal((PRODUCTS, SIZE)), numbers.standard_normal(ROWS)
        for name, array in (("X", X), ("S", S), ("A", A), ("W", W), ("b", b)):
            np.save(directory / f"{name}.npy", array)
        for name in "XSA":
            cec_mpi.encode(directory / f"{name}.npy", directory / name, MACHINES, RECOVERY)
        self._expected = {
            "matvec": W @ X.T,
            "power": basis[:, -1],
            "lstsq": np.linalg.lstsq(A, b)[0],
        }

    def work(self, number: int) -> None:
        """One task, in as many runs as it takes."""
        way = self._ways[number % len(self._ways)]
        task = TASKS[number // len(self._ways) % len(TASKS)]
        has_faults = bool(number % 2 and self._given.rate)
        out = self._directory / f"out{number}"
        run = Run(self._words(way, task, out, has_faults), out, way, self._random, self._given)
        before = self.problems
        try:
            for attempt in range(ATTEMPTS):
                self.runs += 1
                done = run.attempt(attempt, 0 if attempt == ATTEMPTS - 1 else self._given.most)
                if self._is_over(done, run.hit_master):
                    break
            else:
                self._complain(f"no result after {ATTEMPTS} runs")
        finally:
            for done in run.ended_joiners():
                self._check(done, JOINED)
            self._counts.update(run.sent)
        if self.problems == before:
            self._look_at(task, out, has_faults)
        if left := [path.name for path in run.scratch.iterdir()]:
            self._complain(f"left in TMPDIR: {left}")
        if self.problems > before:
            print(f"  task {number}: {task} by {way}, {'; '.join(run.history)}", flush=True)

    def _words(self, way: str, task: str, out: Path, has_faults: bool) -> list[Any]:
        store = {"matvec": "X", "power": "S", "lstsq": "A"}[task]
        words: list[Any] = ["cec-mpi", "run", self._directory / store, "--out", out, "-q"]
        words += [task, *SLOWLY, "--checkpoint-every", 20]
        of_task: dict[str, list[Any]] = {
            "matvec": [f"vectors={self._directory / 'W.npy'}"],
            "power": ["tol=1e-9", "iterations=20000", "seed=0"],
            "lstsq": [f"b={self._directory / 'b.npy'}", "iterations=20000"],
        }
        words += of_task[task]
        if has_faults:
            words += ["--stragglers", 1, "--check", "--deadline", 0.5]
            words += ["--inject", f"random:{self._given.rate}"]
        of_way: dict[str, list[Any]] = {
            "local": ["--local", MACHINES],
            "mpirun": ["--elastic", "--start-timeout", START],
            "join": ["--accept", out.with_suffix(".conn")],
        }
        return words + of_way[way]

    def _is_over(self, done: Done, hit_master: bool) -> bool:
        self._counts[f"code {done.returncode}"] += 1
        self._check(done, (0, *RESUMABLE, *(KILLED if hit_master else ())))
        return done.returncode in (0, None)

    def _check(self, done: Done, codes: tuple[int, ...]) -> None:
        if done.returncode is None:
            self._complain("it did not end")
        elif done.left:
            self._complain(f"left: {done.left}")
        elif done.returncode not in codes:
            self._complain(f"exit code {done.returncode}")
        elif "Traceback" in done.told or len(errors_of(done)) > 1:
            self._complain("more than one message")
        else:
            return
        print("    " + "\n    ".join(done.stderr.splitlines()[-30:]), flush=True)

    def _look_at(self, task: str, out: Path, has_faults: bool) -> None:
        if not (out / "summary.json").exists():
            self._complain("no summary")
            return
        found, expected = np.load(out / "result.npy"), self._expected[task]
        if task == "power":
            found = found * np.sign(found @ expected)
        error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        if not error < 1e-6:
            self._complain(f"wrong: a relative error of {error:.2g}")
        events = [e for step in read_steps(out / "steps.jsonl")[1] for e in step["events"]]
        self._counts.update(next(iter(event)) for event in events)
        if not has_faults and any("wrong" in event for event in events):
            self._complain("a false alarm")

    def _complain(self, problem: str) -> None:
        self.problems += 1
        print(f"run {self.runs}: {problem}", flush=True)

    def report(self) -> None:
        """Print the totals."""
        print(f"{self.runs} runs: {self.problems} problems")
        print(json.dumps(dict(self._counts.most_common())))


class Moment(NamedTuple):
    """When a signal is sent: so long after the start, or after the first step."""

    in_start: bool
    seconds: float


class Run:
    """The processes of a task, and the signals that they get."""

    def __init__(
        self,
        words: list[Any],
        out: Path,
        way: str,
        rng: random.Random,
        arguments: argparse.Namespace,
    ) -> None:
        self._words, self._out, self._way, self._random = words, out, way, rng
        self._limit = arguments.limit
        self.scratch = out.with_suffix(".tmp")
        self.scratch.mkdir()
        self._joiners: list[Started] = []
        self._stopped: list[tuple[float, int]] = []  # until when, and which process
        self.sent: Counter[str] = Counter()
        self.history: list[str] = []
        self.hit_master = False

    def attempt(self, number: int, most: int) -> Done:
        """Run until the end, with at most so many signals."""
        words = self._words + (["--resume"] if number and steps_of(self._out) else [])
        if self._way == "mpirun":
            words = ["mpirun", "--with-ft", "ulfm", "-n", 1 + MACHINES + SPARES, *words]
        self.hit_master = False
        began, first = time.monotonic(), None
        before, due = steps_of(self._out), began + self._limit
        started = self._start(words)
        plan = [self._moment() for _ in range(self._random.randint(0, most))]
        while started.process.poll() is None and time.monotonic() < due:
            now = time.monotonic()
            if first is None and steps_of(self._out) > before:
                first = now
            for planned in list(plan):
                since = began if planned.in_start else first
                if since is not None and now >= since + planned.seconds:
                    plan.remove(planned)
                    self._send(started, now - began)
            self._let_go_on(now)
            self._join()
            time.sleep(0.01)
        if self.hit_master:  # nobody else ends machines that are stopped
            self._stopped += [(0.0, pid) for pid in started.processes()]
        self._let_go_on(time.monotonic())
        done = ended(started, due)
        self.history.append(f"code {done.returncode} at {time.monotonic() - began:.1f} s")
        return done

    def ended_joiners(self) -> list[Done]:
        """How the machines ended that joined."""
        due = time.monotonic() + self._limit
        self._stopped = [(0.0, joiner.process.pid) for joiner in self._joiners]  # by faults, too
        self._let_go_on(time.monotonic())
        return [ended(joiner, due) for joiner in self._joiners]

    def _start(self, words: list[Any]) -> Started:
        return start(words, variables={"TMPDIR": str(self.scratch), "PYTHONFAULTHANDLER": "1"})

    def _moment(self) -> Moment:
        return Moment(self._random.random() < 1 / 3, self._random.uniform(0.0, LENGTH))

    def _join(self) -> None:
        """Have as many machines as the store has."""
        if self._way == "join":
            living = sum(joiner.process.poll() is None for joiner in self._joiners)
            for _ in range(MACHINES - living):
                file = self._out.with_suffix(".conn")
                self._joiners.append(self._start(["cec-mpi", "join", file, "--retry", 30, "-q"]))

    def _send(self, started: Started, at: float) -> None:
        master, machines = self._processes(started)
        is_master = not machines or self._random.random() < 1 / 6
        pid = master if is_master else self._random.choice(machines)
        number = self._random.choice(SIGNALS)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            self.hit_master = self.hit_master or is_master
            who = "the master" if is_master else "a machine"
            self.sent[f"{number.name} {who}"] += 1
            self.history.append(f"{number.name} to {who} at {at:.1f} s")
            if number is signal.SIGSTOP:
                seconds = 30 if self._random.random() < 0.2 else self._random.uniform(0.1, 8)
                self._stopped.append((time.monotonic() + seconds, pid))

    def _processes(self, started: Started) -> tuple[int | None, list[int]]:
        """The master, and the machines."""
        if self._way == "join":
            living = [each.process for each in self._joiners if each.process.poll() is None]
            return started.process.pid, [process.pid for process in living]
        ranks: dict[int, int] = {}
        with suppress(psutil.NoSuchProcess):
            ranks = {rank: each.pid for rank, each in processes_of(started.process).items()}
        return ranks.pop(0, None), list(ranks.values())

    def _let_go_on(self, now: float) -> None:
        for until, pid in self._stopped:
            if now >= until:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self._stopped = [(until, pid) for until, pid in self._stopped if now < until]


def errors_of(done: Done) -> set[str]:
    """The messages of a command; two ranks may say that their master is gone."""
    return {line for line in done.told.splitlines() if line.startswith("cec-mpi: error:")}


def ended(started: Started, due: float) -> Done:
    """How a command ended; one that has not in time says where it was."""
    with suppress(subprocess.TimeoutExpired):
        started.process.wait(max(0.0, due - time.monotonic()))
    if started.process.poll() is not None:
        return finish(started, 30)  # machines may have its pipes, and look for their master
    for pid in started.processes():
        os.kill(pid, signal.SIGABRT)
    return replace(finish(started, 5), returncode=None)


if __name__ == "__main__":
    sys.exit(main())
