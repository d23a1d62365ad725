"""Send signals to processes at random times: each run must end in time with the right result.

    python scripts/campaigns/chaos.py [--seed I] [--first 0] [--runs 30]
        [--modes local,mpirun,join] [--max-signals 4] [--rate 0.002] [--limit 180] [--seconds 3600]

Each run executes a random task on five machines, with a code with L = 2 or L = 4, or with copies.
The machines are processes that the run starts, ranks of ``mpirun --with-ft ulfm`` with a spare, or
processes that join, with up to three machines on a host. With L = 4, and in half of the other runs
without faults, hosts adopt missing machines (``--adopt``). At up to ``--max-signals`` times (after
the start, the first step, a checkpoint, the start of a process that joins, and before the last
step) a random process gets SIGKILL, SIGTERM or SIGSTOP (and SIGCONT after up to 30 s); the master
gets one signal in six. In half of the runs with L = 2 machines also have random faults with
probability ``--rate`` in each step (wrong or infinite values, delays, losses), and answers are
compared (``--check``). A run that ends early is resumed until it has a result.

Prints a line for each run that does not end within ``--limit`` seconds, leaves a process or a file,
prints a traceback, ends with an unexpected exit code, has another result than the task with X in
memory, or excludes a correct machine; then prints the totals. The seed and the number of a run
determine its signals and faults: ``--first N --runs 1`` repeats run N.
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

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.tasks import NO_CHECKPOINT, TASKS
from helpers.commands import CommandResult, RunningCommand, count_steps, finish, start
from helpers.operators import CountingOperator
from helpers.processes import find_processes

MACHINES, RECOVERY, LARGE_RECOVERY, COPIES, SPARES = 5, 2, 4, 4, 1
MAX_MACHINES_ON_HOST = 3  # of a process that joins
ROWS, SIZE, PRODUCTS = 600, 120, 200
EMULATION = ("--emulate-speeds", "2,2,3,3,4", "--emulate-base", 12_000)  # about 10 ms a step
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
START_TIMEOUT = 30  # seconds
MAX_DELAY = 3.0  # seconds between a moment and a signal
ATTEMPTS = 8  # of a run; the last one without signals
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
TERMINATED = 128 + signal.SIGTERM  # during imports
RESUMABLE = (3, 4, 6, TERMINATED)  # a machine failed, too few machines, stopped by a signal
MASTER_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL, signal.SIGKILL, -signal.SIGTERM)
JOINER_CODES = (0, 3, 6, 7, TERMINATED, -signal.SIGTERM, -signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--modes", default="local,mpirun,join")
    parser.add_argument("--max-signals", type=int, default=4, help="maximum signals in a run")
    parser.add_argument(
        "--rate", type=float, default=0.002, help="probability of a fault in a step"
    )
    parser.add_argument("--limit", type=float, default=180, help="maximum seconds of a run")
    parser.add_argument("--seconds", type=float, default=3600, help="start no run after this time")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory(prefix="cec-mpi-chaos-") as name:
        campaign = Campaign(Path(name), arguments)
        for number in range(arguments.first, arguments.first + arguments.runs):
            if time.monotonic() > end:
                break
            campaign.run_task(number)
        campaign.print_totals()
        return 1 if campaign.problems else 0


class Campaign:
    """Runs with signals and faults, and their problems."""

    def __init__(self, directory: Path, arguments: argparse.Namespace) -> None:
        self._directory, self._arguments = directory, arguments
        self._modes = arguments.modes.split(",")
        self.tasks = self.runs = self.problems = 0
        self._counts: Counter[str] = Counter()
        rng = np.random.default_rng(arguments.seed)
        self._matrices = _make_matrices(rng)
        vectors = {
            "W": rng.standard_normal((PRODUCTS, SIZE)),
            "b": rng.standard_normal(ROWS),
            "c": rng.standard_normal(SIZE),
            "classes": rng.integers(0, 2, ROWS),
        }
        for name, array in vectors.items():
            np.save(directory / f"{name}.npy", array)
        for name, matrix in self._matrices.items():
            for kind, recovery in (("code", RECOVERY), ("code of 4", LARGE_RECOVERY)):
                cec_mpi.encode(matrix.toarray(), directory / f"{name}-{kind}", MACHINES, recovery)
            cec_mpi.encode(matrix, directory / f"{name}-copies", MACHINES, copies=COPIES)
        self._known_files = {path.name for path in directory.iterdir()}

    def run_task(self, number: int) -> None:
        """Run one task, and resume it until it has a result."""
        rng = random.Random(f"{self._arguments.seed} {number}")
        way, kind = rng.choice(self._modes), rng.choice(KINDS)
        task = rng.choice(list(OPTIONS))
        has_faults = kind == "code" and rng.random() < 0.5 and self._arguments.rate > 0
        self.tasks += 1
        out = self._directory / f"out{number}"
        expected, products = self._compute_expected(task)
        command = self._make_command(way, kind, task, out, has_faults)
        if not has_faults and (kind == "code of 4" or rng.random() < 0.5):
            command += ["--adopt", rng.choice(["0.2s", "2s"])]
        max_machines = 1 if has_faults else MAX_MACHINES_ON_HOST
        run = Run(command, out, way, products, max_machines, rng, self._arguments.limit)
        before = self.problems
        try:
            for attempt in range(ATTEMPTS):
                self.runs += 1
                max_signals = 0 if attempt == ATTEMPTS - 1 else self._arguments.max_signals
                done = run.run_attempt(attempt, max_signals)
                if self._record_attempt(done, run.hit_master):
                    break
            else:
                self._report_problem(f"no result after {ATTEMPTS} runs")
        finally:
            for done in run.wait_for_joiners():
                self._check_end(done, JOINER_CODES)
            self._counts.update(run.signal_counts)
        if self.problems == before:
            self._check_result(task, out, expected, has_faults)
        leftovers = [path.name for path in run.scratch.iterdir()]
        if not leftovers:
            run.scratch.rmdir()
        leftovers += [
            path.name for path in self._directory.iterdir() if path.name not in self._known_files
        ]
        if set(leftovers) != {out.name}:
            self._report_problem(f"left behind: {leftovers}")
        self._known_files.update(leftovers)
        if self.problems > before:
            history = "; ".join(run.history)
            print(f"  run {number}: {task} of {kind} by {way}, {history}", flush=True)

    def _compute_expected(self, task: str) -> tuple[Any, int]:
        """Return the result of a task with X in memory, and the number of its products."""
        name, options = OPTIONS[task]
        X = CountingOperator(self._matrices[name])
        arguments = {
            key: np.load(self._directory / value) if str(value).endswith(".npy") else value
            for key, value in options.items()
        }
        if task == "matvec":
            return arguments["vectors"] @ self._matrices[name].T, PRODUCTS
        return TASKS[task](X, checkpoint=NO_CHECKPOINT, **arguments)["result"], X.products

    def _make_command(
        self, way: str, kind: str, task: str, out: Path, has_faults: bool
    ) -> list[Any]:
        name, options = OPTIONS[task]
        command: list[Any] = ["cec-mpi", "run", self._directory / f"{name}-{kind}", "--out", out]
        command += ["-q", task, *EMULATION, "--checkpoint-every", 20]
        for key, value in options.items():
            is_file = str(value).endswith(".npy")
            command.append(f"{key}={self._directory / value if is_file else value}")
        if has_faults:
            command += ["--stragglers", 1, "--check", "--deadline", 0.5]
            command += ["--inject", f"random:{self._arguments.rate}"]
        mode_options: dict[str, list[Any]] = {
            "local": ["--local", MACHINES],
            "mpirun": ["--elastic", "--start-timeout", START_TIMEOUT],
            "join": ["--accept", out.with_suffix(".conn")],
        }
        return command + mode_options[way]

    def _record_attempt(self, done: CommandResult, hit_master: bool) -> bool:
        """Check how an attempt ended; return whether the task needs no other attempt."""
        self._counts[f"code {done.returncode}"] += 1
        self._check_end(done, (0, *RESUMABLE, *(MASTER_KILLED if hit_master else ())))
        return done.returncode in (0, None)

    def _check_end(self, done: CommandResult, codes: tuple[int, ...]) -> None:
        if done.returncode is None:
            self._report_problem("the run did not end")
        elif done.survivors:
            self._report_problem(f"survivors: {done.survivors}")
        elif done.returncode not in codes:
            self._report_problem(f"exit code {done.returncode}")
        elif "Traceback" in done.errors or len(error_messages(done)) > 1:
            self._report_problem("more than one message")
        else:
            return
        print("    " + "\n    ".join(done.stderr.splitlines()[-30:]), flush=True)

    def _check_result(self, task: str, out: Path, expected: Any, has_faults: bool) -> None:
        if not (out / "summary.json").exists():
            self._report_problem("no summary")
            return
        result = np.load(out / "result.npy")
        if task == "power":
            result = result * np.sign(result @ expected)
        error = float(np.linalg.norm(result - expected) / np.linalg.norm(expected))
        if not error < 1e-4:
            self._report_problem(f"wrong result: relative error {error:.2g}")
        events = [e for step in read_steps(out / "steps.jsonl")[1] for e in step["events"]]
        self._counts.update(next(iter(event)) for event in events)
        pairs = pairwise(event.get("rank") for event in events)
        self._counts["two machines joined on one host"] += sum(a == b is not None for a, b in pairs)
        if not has_faults and any("wrong" in event for event in events):
            self._report_problem("a correct machine was excluded")

    def _report_problem(self, problem: str) -> None:
        self.problems += 1
        print(f"run {self.runs}: {problem}", flush=True)

    def print_totals(self) -> None:
        """Print the totals."""
        print(f"{self.tasks} tasks, {self.runs} runs: {self.problems} problems")
        print(json.dumps(dict(self._counts.most_common())))


def _make_matrices(rng: np.random.Generator) -> dict[str, Any]:
    """Return sparse matrices, so that each can be stored with a code and as copies."""
    links = scipy.sparse.random_array((SIZE, SIZE), density=0.1, rng=rng)
    tall = scipy.sparse.random_array((ROWS, SIZE), density=0.2, rng=rng) - 0.1 * (
        scipy.sparse.eye_array(ROWS, SIZE)
    )
    tall = tall @ scipy.sparse.diags_array(np.logspace(0, 0.9, SIZE))  # many steps are needed
    pairs = links + links.T
    definite = pairs + scipy.sparse.diags_array(pairs.sum(axis=0) + np.linspace(0.001, 3, SIZE))
    return {"tall": tall.tocsr(), "links": links.tocsr(), "definite": definite.tocsr()}


class Moment(NamedTuple):
    """Time of a signal: a number of seconds after one of `MOMENTS`."""

    after: str
    seconds: float


class Run:
    """The processes of a task, and the signals that they receive."""

    def __init__(
        self,
        command: list[Any],
        out: Path,
        way: str,
        products: int,
        max_machines_on_host: int,
        rng: random.Random,
        limit: float,
    ) -> None:
        self._command, self._out, self._way, self._random = command, out, way, rng
        self._products, self._max_machines_on_host = products, max_machines_on_host
        self._limit = limit
        self.scratch = out.with_suffix(".tmp")
        self.scratch.mkdir()
        self._joiners: list[RunningCommand] = []
        self._machine_counts: list[int] = []  # of the joiners
        self._stopped: list[tuple[float, int]] = []  # time of SIGCONT and process ID
        self._moment_times: dict[str, float] = {}  # time of each moment that was reached
        self.signal_counts: Counter[str] = Counter()
        self.history: list[str] = []
        self.hit_master = False

    def run_attempt(self, number: int, max_signals: int) -> CommandResult:
        """Run until the end, with at most `max_signals` signals."""
        command = self._command + (["--resume"] if number and count_steps(self._out) else [])
        if self._way == "mpirun":
            command = ["mpirun", "--with-ft", "ulfm", "-n", 1 + MACHINES + SPARES, *command]
        self.hit_master = False
        begin = time.monotonic()
        before, deadline = count_steps(self._out), begin + self._limit
        checkpoint_time = self._checkpoint_time()
        running = self._start(command)
        plan = [self._draw_moment() for _ in range(self._random.randint(0, max_signals))]
        self._moment_times = {"start": begin}
        while running.process.poll() is None and time.monotonic() < deadline:
            now, steps = time.monotonic(), count_steps(self._out)
            for moment, is_reached in (
                ("first step", steps > before),
                ("checkpoint", self._checkpoint_time() != checkpoint_time),
                ("end", steps > max(before, self._products - 3)),
            ):
                if is_reached:
                    self._moment_times.setdefault(moment, now)
            for planned in list(plan):
                since = self._moment_times.get(planned.after)
                if since is not None and now >= since + planned.seconds:
                    plan.remove(planned)
                    self._send_signal(running, planned.after, now - begin)
            self._continue_stopped(now)
            self._start_joiners()
            time.sleep(0.01)
        if self.hit_master:  # its stopped machines would never end
            self._stopped += [(0.0, pid) for pid in running.processes()]
        self._continue_stopped(time.monotonic())
        done = wait_for_end(running, deadline)
        self.history.append(f"code {done.returncode} at {time.monotonic() - begin:.1f} s")
        return done

    def wait_for_joiners(self) -> list[CommandResult]:
        """Wait until all joined processes end; return their results."""
        deadline = time.monotonic() + self._limit
        self._stopped = [(0.0, joiner.process.pid) for joiner in self._joiners]  # by faults, too
        self._continue_stopped(time.monotonic())
        return [wait_for_end(joiner, deadline) for joiner in self._joiners]

    def _start(self, command: list[Any]) -> RunningCommand:
        return start(command, variables={"TMPDIR": str(self.scratch), "PYTHONFAULTHANDLER": "1"})

    def _draw_moment(self) -> Moment:
        after = self._random.choice(MOMENTS)
        is_short = after in ("checkpoint", "end")
        return Moment(after, self._random.uniform(0.0, 0.2 if is_short else MAX_DELAY))

    def _checkpoint_time(self) -> int:
        """Return when the checkpoint was written, or 0 if there is no checkpoint."""
        try:
            return (self._out / "checkpoint.npz").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _start_joiners(self) -> None:
        """Start processes until they carry as many machines as the store has."""
        if self._way == "join":
            hosts = zip(self._joiners, self._machine_counts, strict=True)
            alive = sum(count for joiner, count in hosts if self._is_serving(joiner.process))
            command = ["cec-mpi", "join", self._out.with_suffix(".conn"), "--retry", 30, "-q"]
            while alive < MACHINES:
                self._moment_times["join"] = time.monotonic()
                self._machine_counts.append(self._random.randint(1, self._max_machines_on_host))
                alive += self._machine_counts[-1]
                self._joiners.append(
                    self._start([*command, "--machines", self._machine_counts[-1]])
                )

    def _is_serving(self, process: subprocess.Popen[str]) -> bool:
        """Return whether a joined process is alive, and not stopped permanently by a fault."""
        if process.poll() is not None:
            return False
        with suppress(psutil.NoSuchProcess):
            is_stopped = psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
            return not is_stopped or process.pid in (pid for _, pid in self._stopped)
        return False

    def _send_signal(self, running: RunningCommand, after: str, seconds_since_start: float) -> None:
        master, machines = self._find_processes(running)
        is_master = not machines or self._random.random() < 1 / 6
        pid = master if is_master else self._random.choice(machines)
        chosen = self._random.choice(SIGNALS)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, chosen)
            self.hit_master = self.hit_master or is_master
            receiver = "the master" if is_master else "a machine"
            self.signal_counts[f"{chosen.name} {receiver}"] += 1
            self.signal_counts[f"after {after}"] += 1
            moment = f"after {after} at {seconds_since_start:.1f} s"
            self.history.append(f"{chosen.name} to {receiver} {moment}")
            if chosen is signal.SIGSTOP:
                seconds = 30 if self._random.random() < 0.2 else self._random.uniform(0.1, 8)
                self._stopped.append((time.monotonic() + seconds, pid))

    def _find_processes(self, running: RunningCommand) -> tuple[int | None, list[int]]:
        """Return the process ID of the master, and those of the machines."""
        if self._way == "join":
            joiners = [joiner.process for joiner in self._joiners]
            return running.process.pid, [p.pid for p in joiners if p.poll() is None]
        ranks: dict[int, int] = {}
        with suppress(psutil.NoSuchProcess):
            processes = find_processes(running.process)
            ranks = {rank: process.pid for rank, process in processes.items()}
        return ranks.pop(0, None), list(ranks.values())

    def _continue_stopped(self, now: float) -> None:
        for until, pid in self._stopped:
            if now >= until:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self._stopped = [(until, pid) for until, pid in self._stopped if now < until]


def error_messages(done: CommandResult) -> set[str]:
    """Return the error messages of a command, without repetitions."""
    return {line for line in done.errors.splitlines() if line.startswith("cec-mpi: error:")}


def wait_for_end(running: RunningCommand, deadline: float) -> CommandResult:
    """Wait for a command; one that does not end in time prints its stacks."""
    with suppress(subprocess.TimeoutExpired):
        running.process.wait(max(0.0, deadline - time.monotonic()))
    if running.process.poll() is not None:
        return finish(running, 30)  # machines that search for their master may hold its pipes
    for pid in running.processes():
        os.kill(pid, signal.SIGABRT)
    return replace(finish(running, 5), returncode=None)


if __name__ == "__main__":
    sys.exit(main())
