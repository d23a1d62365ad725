"""Kill, stop and warn processes at random moments: each run must end in time and be right.

    python scripts/campaigns/chaos.py [--seed I] [--first 0] [--runs 30]
        [--ways local,mpirun,join] [--most 4] [--rate 0.002] [--limit 180] [--seconds 3600]

Each run is one of all tasks on five machines, with a code, two or four of which are enough, or with
copies. The machines are processes that the run starts, processes of ``mpirun --with-ft ulfm`` with
a spare, or join, up to three on a host. Where four are needed, and in half of the other runs
without faults, hosts carry missing machines as well (``--adopt``). At up to ``--most`` moments
(after the start, the first step, a checkpoint, the start of a process that joins, and before the
last step) a random process gets SIGKILL, SIGTERM or SIGSTOP (and SIGCONT after up to 30 s); one in
six signals is for the master. In half of the runs with a code of which two machines are enough,
machines also have random faults at this rate in each step (wrong or infinite numbers, delays,
losses), and answers are compared (``--check``). A run that ends early is resumed until its result
is there.

Prints a line for each run that does not end within ``--limit`` seconds, leaves a process or a file,
prints a traceback, ends with an unexpected exit code, has a result that is not that of the task
with X in memory, or names a machine as wrong which is not. Then the totals. Seed and number of a
run decide what happens in it: ``--first N --runs 1`` repeats one.
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
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import scipy.sparse
from scipy.sparse.linalg import LinearOperator

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.tasks import NO_CHECKPOINT, TASKS
from helpers.commands import Done, Started, finish, start, steps_of
from helpers.ranks import processes_of

MACHINES, RECOVERY, MOST_NEEDED, COPIES, SPARES = 5, 2, 4, 4, 1
MOST_CARRIED = 3  # machines of a host that joins
ROWS, SIZE, PRODUCTS = 600, 120, 200
SLOWLY = ("--emulate-speeds", "2,2,3,3,4", "--emulate-base", 12_000)  # about 10 ms a step
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {  # the matrix of each task, and its options
    "matvec": ("tall", {"vectors": "W.npy"}),
    "power": ("definite", {"tol": 1e-7, "iterations": 20_000}),
    "pagerank": ("links", {"damping": 0.98, "tol": 1e-14}),
    "svd": ("tall", {"k": 3}),
    "pca": ("tall", {"k": 3}),
    "lstsq": ("tall", {"b": "b.npy", "iterations": 20_000}),
    "ridge": ("tall", {"y": "b.npy", "alpha": 1e-3, "tol": 1e-8}),
    "logistic": ("tall", {"y": "classes.npy", "tol": 1e-6}),
    "cg": ("definite", {"b": "c.npy", "tol": 1e-10}),
}
KINDS = ("code", "copies", "code of 4")
MOMENTS = ("start", "first step", "checkpoint", "join", "end")
START = 30  # seconds, in which a master can be missed that was killed before
LENGTH = 3.0  # seconds after a moment, of the start or of a run without faults
ATTEMPTS = 8  # the last one without faults
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
TERMINATED = 128 + signal.SIGTERM  # while it still read its modules
RESUMABLE = (3, 4, 6, TERMINATED)  # a machine failed, too few machines, told to leave
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL, signal.SIGKILL, -signal.SIGTERM)
JOINED = (0, 3, 6, 7, TERMINATED, -signal.SIGTERM, -signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
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
        for number in range(arguments.first, arguments.first + arguments.runs):
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
        self.tasks = self.runs = self.problems = 0
        self._counts: Counter[str] = Counter()
        numbers = np.random.default_rng(arguments.seed)
        self._matrices = _matrices(numbers)
        vectors = {
            "W": numbers.standard_normal((PRODUCTS, SIZE)),
            "b": numbers.standard_normal(ROWS),
            "c": numbers.standard_normal(SIZE),
            "classes": numbers.integers(0, 2, ROWS),
        }
        for name, array in vectors.items():
            np.save(directory / f"{name}.npy", array)
        for name, matrix in self._matrices.items():
            for kind, recovery in (("code", RECOVERY), ("code of 4", MOST_NEEDED)):
                cec_mpi.encode(matrix.toarray(), directory / f"{name}-{kind}", MACHINES, recovery)
            cec_mpi.encode(matrix, directory / f"{name}-copies", MACHINES, copies=COPIES)
        self._known = {path.name for path in directory.iterdir()}

    def work(self, number: int) -> None:
        """Run one task, as often as it takes."""
        rng = random.Random(f"{self._given.seed} {number}")
        way, kind = rng.choice(self._ways), rng.choice(KINDS)
        task = rng.choice(list(OPTIONS))
        has_faults = kind == "code" and rng.random() < 0.5 and self._given.rate > 0
        self.tasks += 1
        out = self._directory / f"out{number}"
        expected, products = self._expected(task)
        words = self._words(way, kind, task, out, has_faults)
        if not has_faults and (kind == "code of 4" or rng.random() < 0.5):
            words += ["--adopt", rng.choice(["0.2s", "2s"])]
        run = Run(words, out, way, products, 1 if has_faults else MOST_CARRIED, rng, self._given)
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
            self._look_at(task, out, expected, has_faults)
        left = [path.name for path in run.scratch.iterdir()]
        run.scratch.rmdir() if not left else None
        left += [path.name for path in self._directory.iterdir() if path.name not in self._known]
        if set(left) != {out.name}:
            self._complain(f"left behind: {left}")
        self._known.update(left)
        if self.problems > before:
            story = "; ".join(run.history)
            print(f"  run {number}: {task} of {kind} by {way}, {story}", flush=True)

    def _expected(self, task: str) -> tuple[Any, int]:
        """Return the result of a task with X in memory, and the number of its products."""
        name, options = OPTIONS[task]
        X = Counting(self._matrices[name])
        given = {
            key: np.load(self._directory / value) if str(value).endswith(".npy") else value
            for key, value in options.items()
        }
        if task == "matvec":
            return given["vectors"] @ self._matrices[name].T, PRODUCTS
        return TASKS[task](X, checkpoint=NO_CHECKPOINT, **given)["result"], X.products

    def _words(self, way: str, kind: str, task: str, out: Path, has_faults: bool) -> list[Any]:
        name, options = OPTIONS[task]
        words: list[Any] = ["cec-mpi", "run", self._directory / f"{name}-{kind}", "--out", out]
        words += ["-q", task, *SLOWLY, "--checkpoint-every", 20]
        for key, value in options.items():
            is_file = str(value).endswith(".npy")
            words.append(f"{key}={self._directory / value if is_file else value}")
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
        elif done.survivors:
            self._complain(f"survivors: {done.survivors}")
        elif done.returncode not in codes:
            self._complain(f"exit code {done.returncode}")
        elif "Traceback" in done.errors or len(errors_of(done)) > 1:
            self._complain("more than one message")
        else:
            return
        print("    " + "\n    ".join(done.stderr.splitlines()[-30:]), flush=True)

    def _look_at(self, task: str, out: Path, expected: Any, has_faults: bool) -> None:
        if not (out / "summary.json").exists():
            self._complain("no summary")
            return
        found = np.load(out / "result.npy")
        if task == "power":
            found = found * np.sign(found @ expected)
        error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        if not error < 1e-4:
            self._complain(f"wrong: a relative error of {error:.2g}")
        events = [e for step in read_steps(out / "steps.jsonl")[1] for e in step["events"]]
        self._counts.update(next(iter(event)) for event in events)
        pairs = pairwise(event.get("rank") for event in events)
        self._counts["two machines joined on one host"] += sum(a == b is not None for a, b in pairs)
        if not has_faults and any("wrong" in event for event in events):
            self._complain("a false alarm")

    def _complain(self, problem: str) -> None:
        self.problems += 1
        print(f"run {self.runs}: {problem}", flush=True)

    def report(self) -> None:
        """Print the totals."""
        print(f"{self.tasks} tasks, {self.runs} runs: {self.problems} problems")
        print(json.dumps(dict(self._counts.most_common())))


def _matrices(numbers: np.random.Generator) -> dict[str, Any]:
    """Return sparse matrices, so that each can be stored with a code and as copies."""
    links = scipy.sparse.random_array((SIZE, SIZE), density=0.1, rng=numbers)
    tall = scipy.sparse.random_array((ROWS, SIZE), density=0.2, rng=numbers) - 0.1 * (
        scipy.sparse.eye_array(ROWS, SIZE)
    )
    tall = tall @ scipy.sparse.diags_array(np.logspace(0, 0.9, SIZE))  # many steps are needed
    pairs = links + links.T
    definite = pairs + scipy.sparse.diags_array(pairs.sum(axis=0) + np.linspace(0.001, 3, SIZE))
    return {"tall": tall.tocsr(), "links": links.tocsr(), "definite": definite.tocsr()}


class Counting(LinearOperator):
    """A matrix that counts its products."""

    def __init__(self, matrix: Any) -> None:
        super().__init__(matrix.dtype, matrix.shape)
        self._matrix, self.products = matrix, 0

    def _matvec(self, w: Any) -> Any:
        self.products += 1
        return self._matrix @ w

    def _rmatvec(self, v: Any) -> Any:
        self.products += 1
        return self._matrix.T @ v


class Moment(NamedTuple):
    """When a signal is sent: so long after one of `MOMENTS`."""

    after: str
    seconds: float


class Run:
    """The processes of a task, and the signals that they get."""

    def __init__(
        self,
        words: list[Any],
        out: Path,
        way: str,
        products: int,
        most_carried: int,
        rng: random.Random,
        arguments: argparse.Namespace,
    ) -> None:
        self._words, self._out, self._way, self._random = words, out, way, rng
        self._products, self._most_carried = products, most_carried
        self._limit = arguments.limit
        self.scratch = out.with_suffix(".tmp")
        self.scratch.mkdir()
        self._joiners: list[Started] = []
        self._carried: list[int] = []  # machines of each of these
        self._stopped: list[tuple[float, int]] = []  # until when, and which process
        self._reached: dict[str, float] = {}  # moments, and when they were
        self.sent: Counter[str] = Counter()
        self.history: list[str] = []
        self.hit_master = False

    def attempt(self, number: int, most: int) -> Done:
        """Run until the end, with at most so many signals."""
        words = self._words + (["--resume"] if number and steps_of(self._out) else [])
        if self._way == "mpirun":
            words = ["mpirun", "--with-ft", "ulfm", "-n", 1 + MACHINES + SPARES, *words]
        self.hit_master = False
        began = time.monotonic()
        before, saved, due = steps_of(self._out), self._saved(), began + self._limit
        started = self._start(words)
        plan = [self._moment() for _ in range(self._random.randint(0, most))]
        self._reached = {"start": began}
        while started.process.poll() is None and time.monotonic() < due:
            now, steps = time.monotonic(), steps_of(self._out)
            for moment, is_reached in (
                ("first step", steps > before),
                ("checkpoint", self._saved() != saved),
                ("end", steps > max(before, self._products - 3)),
            ):
                if is_reached:
                    self._reached.setdefault(moment, now)
            for planned in list(plan):
                since = self._reached.get(planned.after)
                if since is not None and now >= since + planned.seconds:
                    plan.remove(planned)
                    self._send(started, planned.after, now - began)
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
        after = self._random.choice(MOMENTS)
        is_short = after in ("checkpoint", "end")
        return Moment(after, self._random.uniform(0.0, 0.2 if is_short else LENGTH))

    def _saved(self) -> int:
        """Return when the checkpoint was written."""
        try:
            return (self._out / "checkpoint.npz").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _join(self) -> None:
        """Have as many machines as the store has."""
        if self._way == "join":
            hosts = zip(self._joiners, self._carried, strict=True)
            living = sum(count for joiner, count in hosts if self._serves(joiner.process))
            words = ["cec-mpi", "join", self._out.with_suffix(".conn"), "--retry", 30, "-q"]
            while living < MACHINES:
                self._reached["join"] = time.monotonic()
                self._carried.append(self._random.randint(1, self._most_carried))
                living += self._carried[-1]
                self._joiners.append(self._start([*words, "--machines", self._carried[-1]]))

    def _serves(self, process: subprocess.Popen[str]) -> bool:
        """Whether a machine that joined is alive, and was not stopped for good by a fault."""
        if process.poll() is not None:
            return False
        with suppress(psutil.NoSuchProcess):
            is_stopped = psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
            return not is_stopped or process.pid in (pid for _, pid in self._stopped)
        return False

    def _send(self, started: Started, after: str, at: float) -> None:
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
            self.sent[f"after {after}"] += 1
            self.history.append(f"{number.name} to {who} after {after} at {at:.1f} s")
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
    return {line for line in done.errors.splitlines() if line.startswith("cec-mpi: error:")}


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
