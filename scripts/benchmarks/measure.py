"""Functions for benchmarks: timing in turns, quartiles, a table, comparison with older results.

A benchmark is a script with a function that returns figures. `main` adds the options
``--turns``, ``--seed``, ``--seconds``, ``--json``, and ``--compare OLD.json``, which prints the
ratios that are worse than in OLD.json by more than the quartiles of both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.commands import finish, start

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have bytecode

Times = dict[str, list[float]]
Figure = dict[str, Any]  # name, over, better, unit, and three quartiles
LIMIT = 24 * 3600.0  # seconds; the option --seconds ends a benchmark earlier
STRIPE = 32 << 20  # bytes of X that are written at once
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def time_in_turns(candidates: Mapping[str, Callable[[], float]], turns: int) -> Times:
    """Call candidates, which return their seconds, in turns; return the seconds of each turn.

    Every other turn is in reverse order. The first turn is not counted.
    """
    times: Times = {name: [] for name in candidates}
    for turn in range(-1, turns):
        for name in list(candidates)[:: 1 if turn % 2 else -1]:
            seconds = candidates[name]()
            if turn >= 0:
                times[name].append(seconds)
    return times


def make_timer(call: Callable[[], object], calls: int = 1) -> Callable[[], float]:
    """Return a candidate for `time_in_turns`: mean seconds of a call, the least of three series."""

    def time_calls() -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    return lambda: min(time_calls() for _ in range(3))


def median_seconds(call: Callable[[], object], calls: int) -> float:
    """Return the median seconds of a call, after three calls that are not counted."""
    ends = [time.perf_counter()]
    for _ in range(3 + calls):
        call()
        ends.append(time.perf_counter())
    return float(np.median(np.diff(ends[3:])))


def time_steps(call: Any, steps: int) -> tuple[float, float]:
    """Return the median seconds of a call, and the CPU seconds of this process for it."""
    cpu, medians = [], []
    for _ in range(10):
        begin, calls = time.process_time(), max(1, steps // 10)
        medians.append(median_seconds(call, calls))
        cpu.append((time.process_time() - begin) / (3 + calls))
    return float(np.median(medians)), min(cpu)


def figure(name: str, values: Sequence[float], unit: str, over: str = "", speed: bool = False):
    """Return the quartiles of repeated measurements; with `speed`, more is better.

    `over` names the denominator of a ratio.
    """
    quartiles = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    better = "more" if speed else "less"
    return {"name": name, "over": over, "better": better, "unit": unit, "quartiles": quartiles}


def ratio(
    times: Times, name: str, other: str, label: str = "", over: str = "", speed: bool = False
) -> Figure:
    """Return the ratio of the times, or speeds, of two candidates in the same turns."""
    pairs = zip(times[name], times[other], strict=True)
    values = [b / a if speed else a / b for a, b in pairs]
    return figure(label or name, values, "", over or other, speed)


def make_store(
    directory: Path,
    rows: int,
    columns: int,
    machines: int,
    recovery: int,
    seed: int = 0,
    **options: Any,
) -> Path:
    """Encode a random matrix, unless the store exists; return the path of the store."""
    store = directory / f"store-{rows}-{columns}-{machines}-{recovery}"
    if not store.exists():
        X = np.random.default_rng(seed).random((rows, columns))
        cec_mpi.encode(X, store, machines, recovery, **options)
    return store


def write_matrix(path: Path, rows: int, columns: int, dtype: Any, seed: int) -> Path:
    """Write a file of random numbers, some rows at a time; return its path."""
    rng = np.random.default_rng(seed)
    X = np.lib.format.open_memmap(path, "w+", dtype, (rows, columns))
    height = max(1, STRIPE // (X.itemsize * columns))
    for begin in range(0, rows, height):
        X[begin : begin + height] = rng.random((min(height, rows - begin), columns), dtype)
    X.flush()
    return path


def run(arguments: Sequence[object], ranks: int = 0, package: Path = Path()) -> str:
    """Run a command, under mpirun if it has ranks, and return its output; raise if it fails.

    If `package` is the path of another clone, the command uses the package there.
    """
    launcher = ["mpirun", "-n", ranks] if ranks else []
    variables = ONE_THREAD | ({"PYTHONPATH": str(package.absolute())} if package.name else {})
    started = start([*launcher, *arguments], variables=variables)
    try:
        done = finish(started, LIMIT)
    except BaseException:  # for example at the time limit
        for pid in started.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(started.scratch, ignore_errors=True)
        raise
    if done.returncode != 0:
        raise SystemExit(f"{arguments[:3]} ended with {done.returncode}: {done.errors}")
    return done.stdout


def run_script(script: str, ranks: int, *arguments: object, package: Path = Path()) -> Any:
    """Run a Python script; return the JSON in the last line of its output."""
    output = run([sys.executable, script, *arguments], ranks, package)
    return json.loads(output.strip().splitlines()[-1])


def main(
    description: str,
    figures: Callable[[argparse.Namespace, Path], list[Figure]],
    add_options: Callable[[argparse.ArgumentParser], None],
    turns: int = 7,
) -> None:
    """Measure with the options of the command line, and print the figures.

    Parameters
    ----------
    description : str
        Text of the help.
    figures : callable
        Takes the options and an empty directory, and returns the figures.
    add_options : callable
        Adds the options of this benchmark to the parser.
    turns : int
        Default of ``--turns``.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="time limit")
    parser.add_argument("--directory", help="parent of a temporary directory for stores")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="earlier output of --json")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _exit)
    signal.signal(signal.SIGTERM, _exit)
    signal.setitimer(signal.ITIMER_REAL, options.seconds)
    excluded = ("seconds", "directory", "json", "compare", "before")
    settings = {name: value for name, value in vars(options).items() if name not in excluded}
    with tempfile.TemporaryDirectory(prefix="cec-mpi-bench-", dir=options.directory) as name:
        results = figures(options, Path(name))
    signal.setitimer(signal.ITIMER_REAL, 0)
    result = {
        "figures": results,
        "settings": settings,
        "computer": _describe_computer(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    old = json.loads(options.compare.read_text()) if options.compare else None
    print(json.dumps(result) if options.json else format_table(result))
    if old is not None:
        print("\n".join(list_regressions(old["figures"], results)), file=sys.stderr)


def _exit(number: int, _: object) -> None:
    raise SystemExit(
        "the time limit --seconds was reached" if number == signal.SIGALRM else 128 + number
    )


def format_table(result: Mapping[str, Any]) -> str:
    """Return the figures as a table in Markdown, followed by the settings and the computer."""
    lines = ["| | over | median | quartiles | |", "|---|---|---:|---:|---|"]
    for item in result["figures"]:
        low, median, high = (f"{value:.3g}" for value in item["quartiles"])
        last = item["unit"] or f"{item['better']} is better"
        lines.append(f"| {item['name']} | {item['over']} | {median} | {low} to {high} | {last} |")
    context = {**result["settings"], **result["computer"]}
    context_text = ", ".join(f"{name} {value}" for name, value in context.items())
    return "\n".join([*lines, "", f"{context_text}; {result['date']}"])


def list_regressions(old: Sequence[Figure], new: Sequence[Figure]) -> list[str]:
    """Return a line for each ratio whose quartiles are worse than the old quartiles."""
    before = {(item["name"], item["over"]): item["quartiles"] for item in old if not item["unit"]}
    lines = []
    for item in new:
        key, now = (item["name"], item["over"]), item["quartiles"]
        earlier = before.get(key, now)
        if now[0] > earlier[2] if item["better"] == "less" else now[2] < earlier[0]:
            lines.append(f"worse: {' over '.join(key)}: {now[1]:.3g}, was {earlier[1]:.3g}")
    return lines or ["no ratio is worse by more than the quartiles"]


def _describe_computer() -> dict[str, str]:
    names = [
        line.partition(": ")[2]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "BLAS": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
    }
