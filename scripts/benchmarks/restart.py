"""A killed and resumed master: time until its waiting hosts have completed the next step.

    python scripts/benchmarks/restart.py [--hosts 6] [--recovery 4]

Hosts of `cec-mpi join --retry` wait for a run, which is killed with SIGKILL after some steps and
started again with `--resume` at once. Prints the seconds from the kill to the next step in the
records, over those from the start of the run to its first step, with the same waiting hosts.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import measure
from helpers.commands import RunningCommand, count_steps, finish, start
from helpers.waiting import wait_until
from measure import Figure, ratio

STEPS = 30  # before the kill
COLUMNS = 40
PAUSE = 0.005  # seconds between two checks for a step


def figures(options: Any, directory: Path) -> list[Figure]:
    """Return the figures for this number of hosts."""
    sizes = 60 * options.recovery, COLUMNS, options.hosts, options.recovery
    store = measure.make_store(directory, *sizes, options.seed)
    np.save(directory / "W.npy", np.ones((10**6, COLUMNS)))
    join = ["cec-mpi", "join", "conn", "--retry", 3600, "--threads", 1, "-q"]
    times: measure.Times = {"first start": [], "kill": [], "listening": []}
    hosts = [_start(join, directory) for _ in range(options.hosts)]
    arguments = ["cec-mpi", "run", store, f"vectors={directory / 'W.npy'}"]
    arguments += ["--accept", "conn", "--wait", "-q", "--checkpoint-every", 10]
    try:
        for turn in range(options.turns):
            results = _kill_and_resume(
                [*arguments, "--out", f"out-{turn}"], directory, directory / f"out-{turn}"
            )
            for name, seconds in zip(times, results, strict=True):
                times[name].append(seconds)
    finally:
        for host in hosts:
            host.process.kill()
            finish(host, measure.LIMIT)
    times["step"] = [b - a for a, b in zip(times["listening"], times["kill"], strict=True)]
    return [
        ratio(times, "kill", "first start", "from a kill of the master to the next step"),
        measure.figure("from the kill to the next step", times["kill"], "s"),
        measure.figure("of these, until the master listens again", times["listening"], "s"),
        measure.figure("and then until the hosts have completed a step", times["step"], "s"),
    ]


def _kill_and_resume(
    arguments: list[Any], directory: Path, out: Path
) -> tuple[float, float, float]:
    """Return the seconds of a start, and those from a kill to the next step and connection file."""
    connection = directory / "conn"
    begin = time.perf_counter()
    master = _start(arguments, directory)
    wait_until(lambda: count_steps(out) > 0, pause=PAUSE)
    first_start = time.perf_counter() - begin
    wait_until(lambda: count_steps(out) > STEPS, pause=PAUSE)
    master.process.kill()
    finish(master, measure.LIMIT)
    begin, before, old = time.perf_counter(), count_steps(out), connection.stat().st_mtime_ns
    master = _start([*arguments, "--resume"], directory)
    wait_until(lambda: connection.stat().st_mtime_ns != old, pause=PAUSE)
    listening = time.perf_counter() - begin
    wait_until(lambda: count_steps(out) > before, pause=PAUSE)
    next_step = time.perf_counter() - begin
    master.process.kill()
    finish(master, measure.LIMIT)
    return first_start, next_step, listening


def _start(arguments: list[Any], directory: Path) -> RunningCommand:
    return start(
        arguments, cwd=directory, variables={**measure.ONE_THREAD, "TMPDIR": str(directory)}
    )


def add_options(parser: Any) -> None:
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--recovery", type=int, default=4)


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options, turns=5)
