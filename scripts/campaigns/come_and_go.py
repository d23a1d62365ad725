"""Machines that join and leave, one after the other: nothing may grow, and no step be wrong.

    python scripts/campaigns/come_and_go.py [--seed I] [--machines 500] [--seconds 3600]

In one session, which six machines at a time serve and one spare, a machine after the other is told
to leave (SIGUSR1, SIGTERM) or killed (SIGKILL), at a random moment of a step or between two, and
another one joins in its place. Steps are made all the time, X w and X' v in turn; each is compared
with NumPy. Machines are processes of ``cec-mpi join``, forked from one that has read its modules.

Prints a line for each thing that is wrong: a product, an exit code that is not the machine's, a
process left, more than 10 kB of memory of rank 0 for each that came and went (the slope of its
resident memory, after the first fifth of them), more file descriptors or threads than after that
fifth. Of fewer than 50 machines growth says nothing, and is no problem. Then the totals, and the
median time of a step in which nobody came or went, at the beginning and at the end.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

import cec_mpi
from cec_mpi import cli
from cec_mpi.records.recorder import Recorder
from cec_mpi.records.step import StepRecord

NOTICED = 3  # steps in which it shows that a machine has gone
LIMIT = 60.0  # seconds for a machine to join, or to end
MACHINES, RECOVERY = 6, 3
ROWS, COLUMNS = 600, 60
EXIT_CODES = {signal.SIGUSR1: 6, signal.SIGTERM: 6, signal.SIGKILL: -signal.SIGKILL}
MOST_MEMORY = 10_000  # bytes of rank 0 for each that came and went
MOST_MORE = 2  # file descriptors or threads, which can be on their way out
BEGIN = 0.2  # part of the run after which nothing is to grow
FEWEST = 50  # that came and went, of which the growth says something

Process = multiprocessing.process.BaseProcess


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--machines", type=int, default=500, help="that come and go")
    parser.add_argument("--seconds", type=float, default=3600, help="after which none goes")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cec_mpi.commands.run", "cec_mpi.session.machine"])
    with tempfile.TemporaryDirectory(prefix="cec-mpi-come-and-go-") as name:
        campaign = Campaign(Path(name), arguments.seed, context)
        campaign.run(arguments.machines, arguments.seconds)
        campaign.report()
        return 1 if campaign.problems else 0


def join(file: Path) -> None:
    """What a process does that is a machine."""
    sys.exit(cli.main(["join", str(file), "-q"]))


class Campaign:
    """A session whose machines come and go, and what became of it."""

    def __init__(self, directory: Path, seed: int, context: Any) -> None:
        self._context = context
        self._random, self._numbers = random.Random(seed), np.random.default_rng(seed)
        self._X = self._numbers.standard_normal((ROWS, COLUMNS))
        np.save(directory / "X.npy", self._X)
        cec_mpi.encode(directory / "X.npy", directory / "store", MACHINES, RECOVERY)
        self._store, self._file = directory / "store", directory / "conn"
        self._here: list[Process] = []
        self.events: Counter[str] = Counter()
        self._seconds: list[float] = []  # of steps in which nothing happened
        self._sizes: list[tuple[int, int, int]] = []  # memory, descriptors, threads
        self.problems = self.steps = self.gone = 0

    def run(self, machines: int, seconds: float) -> None:
        """Have so many machines come and go, or as many as do in this time."""
        end = time.monotonic() + seconds
        recorder = Recorder(watch=self._watch)
        given: dict[str, Any] = {"accept": str(self._file), "wait": True, "recorder": recorder}
        with cec_mpi.open_operator(self._store, None, **given) as operator:
            for _ in range(MACHINES):
                self._come()
            self._until(operator, self._are_all_here)
            self._come()  # one of them is a spare, from now on
            while self.gone < machines and self.problems < 10 and time.monotonic() < end:
                self._replace(operator)
                self._measure()
        codes = [self._end(process, 0, 2, 3) for process in self._here]
        unheard = len(codes) - codes.count(0)
        if unheard > 1:  # one may not have been heard yet, or found no file
            self._complain(f"{unheard} machines did not hear of the end")
        if self.gone >= FEWEST:
            self._compare()

    def report(self) -> None:
        """Print the totals."""
        size = ", ".join(f"{self._slope(column):.3g}" for column in range(3))
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(self.events.items()))
        part = max(1, len(self._seconds) // 5)
        first, last = median(self._seconds[:part]), median(self._seconds[-part:])
        print(f"{self.gone} machines came and went: {self.problems} problems")
        print(f"{self.steps} steps: {told}")
        print(f"growth for each: {size} (bytes, file descriptors, threads)")
        print(f"a step: {1e3 * first:.2f} ms at the beginning, {1e3 * last:.2f} ms at the end")

    def _come(self) -> None:
        process = self._context.Process(target=join, args=(self._file,), daemon=True)
        process.start()
        self._here.append(process)

    def _replace(self, operator: Any) -> None:
        """One machine goes, and another one comes."""
        number = self._random.choice(list(EXIT_CODES))
        process = self._here.pop(self._random.randrange(MACHINES))
        pid = process.pid
        assert pid is not None
        timer = threading.Timer(self._random.random() * 0.01, _tell, (pid, number))
        timer.start()
        self._come()
        self._until(operator, lambda: not process.is_alive())
        for _ in range(NOTICED):
            self._step(operator)
        self._until(operator, self._are_all_here)
        timer.join()
        self._end(process, EXIT_CODES[number])
        self.gone += 1

    def _are_all_here(self) -> bool:
        gone = self.events["left"] + self.events["lost"]
        return self.events["joined"] - gone >= MACHINES

    def _end(self, process: Process, *expected: int) -> int | None:
        """See that a machine ends, and how."""
        process.join(LIMIT)
        code = process.exitcode
        if code not in expected:
            self._complain(f"a machine ended with {code}, expected {expected}")
            process.kill()
            process.join()
        process.close()
        return code

    def _until(self, operator: Any, condition: Any) -> None:
        due = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > due:
                self._complain(f"too few joined, or left, in {LIMIT:g} s: {dict(self.events)}")
                return
            self._step(operator)

    def _step(self, operator: Any) -> None:
        X, events = self._X, self.events.total()
        w, v = self._numbers.standard_normal(COLUMNS), self._numbers.standard_normal(ROWS)
        begun = time.perf_counter()
        found = operator @ w, operator.rmatvec(v)
        taken = time.perf_counter() - begun
        if not (np.allclose(found[0], X @ w) and np.allclose(found[1], X.T @ v)):
            self._complain(f"step {self.steps}: a wrong product")
        if self.events.total() == events:
            self._seconds.append(taken / 2)

    def _watch(self, record: StepRecord) -> None:
        self.steps += 1
        self.events.update(next(iter(event)) for event in record.events)

    def _measure(self) -> None:
        gc.collect()
        here = psutil.Process()
        self._sizes.append((here.memory_info().rss, here.num_fds(), here.num_threads()))

    def _slope(self, column: int) -> float:
        """By how much this has grown for each machine that came and went."""
        sizes = np.array(self._sizes, float)[int(BEGIN * len(self._sizes)) :, column]
        return float(np.polyfit(np.arange(sizes.size), sizes, 1)[0]) if sizes.size > 1 else 0.0

    def _compare(self) -> None:
        if (growth := self._slope(0)) > MOST_MEMORY:
            self._complain(f"{growth:.0f} bytes of memory for each that came and went")
        sizes = np.array(self._sizes)[int(BEGIN * len(self._sizes)) :]
        for column, name in ((1, "file descriptors"), (2, "threads")):
            more = sizes[-1, column] - sizes[0, column]
            if more > MOST_MORE:
                self._complain(f"{more} more {name} than at the beginning")

    def _complain(self, text: str) -> None:
        self.problems += 1
        print(text, flush=True)


def _tell(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        psutil.Process(pid).send_signal(number)


if __name__ == "__main__":
    sys.exit(main())
