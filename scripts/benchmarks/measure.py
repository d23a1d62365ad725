"""What benchmarks share: ways that are timed in turns, quartiles, a table, and a comparison.

A benchmark is a script with a function that makes figures. `main` gives it ``--turns``, ``--seed``,
``--seconds``, ``--json``, and ``--compare OLD.json``, which names the ratios that got worse since
then by more than the spread of both.
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

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode

Times = dict[str, list[float]]
Figure = dict[str, Any]  # name, over, better, unit, and three quartiles
LIMIT = 24 * 3600.0  # seconds; --seconds is what ends a benchmark
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def in_turns(ways: Mapping[str, Callable[[], float]], turns: int) -> Times:
    """Seconds that each way says it took, in each turn.

    Every other turn goes through them the other way round. The first one is not counted.
    """
    times: Times = {name: [] for name in ways}
    for turn in range(-1, turns):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            seconds = ways[name]()
            if turn >= 0:
                times[name].append(seconds)
    return times


def clocked(call: Callable[[], object], calls: int = 1) -> Callable[[], float]:
    """A way for `in_turns`: the seconds of a call, the least of three times so many."""

    def once() -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    return lambda: min(once() for _ in range(3))


def median_of(call: Callable[[], object], calls: int) -> float:
    """Seconds of a call, the median of so many after the first three."""
    ends = [time.perf_counter()]
    for _ in range(3 + calls):
        call()
        ends.append(time.perf_counter())
    return float(np.median(np.diff(ends[3:])))


def taken_by(call: Any, steps: int) -> tuple[float, float]:
    """Median seconds of a call, and seconds of CPU of this process: the least of ten parts."""
    cpu, medians = [], []
    for _ in range(10):
        begin, calls = time.process_time(), max(1, steps // 10)
        medians.append(median_of(call, calls))
        cpu.append((time.process_time() - begin) / (3 + calls))
    return float(np.median(medians)), min(cpu)


def figure(name: str, values: Sequence[float], unit: str, over: str = "", speed: bool = False):
    """Quartiles of one thing that was measured several times; of speeds more is better."""
    quartiles = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    better = "more" if speed else "less"
    return {"name": name, "over": over, "better": better, "unit": unit, "quartiles": quartiles}


def ratio(
    times: Times, name: str, other: str, called: str = "", over: str = "", speed: bool = False
) -> Figure:
    """Times of one way over those of another in the same turn, or the ratio of their speeds."""
    pairs = zip(times[name], times[other], strict=True)
    values = [b / a if speed else a / b for a, b in pairs]
    return figure(called or name, values, "", over or other, speed)


def store_of(
    directory: Path,
    rows: int,
    columns: int,
    machines: int,
    recovery: int,
    seed: int = 0,
    **options: Any,
) -> Path:
    """A store of random numbers, made once."""
    store = directory / f"store-{rows}-{columns}-{machines}-{recovery}"
    if not store.exists():
        X = np.random.default_rng(seed).random((rows, columns))
        cec_mpi.encode(X, store, machines, recovery, **options)
    return store


def run(words: Sequence[object], ranks: int = 0, package: Path = Path()) -> str:
    """What a command prints, which has to succeed; started by mpirun if it has ranks.

    The package is that of another clone if its path is given.
    """
    launcher = ["mpirun", "-n", ranks] if ranks else []
    variables = ONE_THREAD | ({"PYTHONPATH": str(package.absolute())} if package.name else {})
    started = start([*launcher, *words], variables=variables)
    try:
        done = finish(started, LIMIT)
    except BaseException:  # as after --seconds
        for pid in started.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(started.scratch, ignore_errors=True)
        raise
    if done.returncode != 0:
        raise SystemExit(f"{words[:3]} ended with {done.returncode}: {done.errors}")
    return done.stdout


def again(script: str, ranks: int, *words: object, package: Path = Path()) -> Any:
    """What a script prints as JSON when it is started once more, as so many ranks."""
    told = run([sys.executable, script, *words], ranks, package)
    return json.loads(told.strip().splitlines()[-1])


def main(
    text: str,
    measure: Callable[[argparse.Namespace, Path], list[Figure]],
    add_options: Callable[[argparse.ArgumentParser], None],
    turns: int = 7,
) -> None:
    """Measure with the options of the command line, and print what was found.

    Parameters
    ----------
    text : str
        The help.
    measure : callable
        Given the options and an empty directory, makes the figures.
    add_options : callable
        Gives the parser the options of this benchmark.
    turns : int
        The default of ``--turns``.
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="after which it is ended")
    parser.add_argument("--directory", help="for throwaway stores")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="of --json")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _end)
    signal.signal(signal.SIGTERM, _end)
    signal.setitimer(signal.ITIMER_REAL, options.seconds)
    free = ("seconds", "directory", "json", "compare", "before")
    settings = {name: each for name, each in vars(options).items() if name not in free}
    with tempfile.TemporaryDirectory(prefix="cec-mpi-bench-", dir=options.directory) as name:
        figures = measure(options, Path(name))
    signal.setitimer(signal.ITIMER_REAL, 0)
    result = {
        "figures": figures,
        "settings": settings,
        "computer": _computer(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    old = json.loads(options.compare.read_text()) if options.compare else None
    print(json.dumps(result) if options.json else table(result))
    if old is not None:
        print("\n".join(worse(old["figures"], figures)), file=sys.stderr)


def _end(number: int, _: object) -> None:
    raise SystemExit("no end after --seconds" if number == signal.SIGALRM else 128 + number)


def table(result: Mapping[str, Any]) -> str:
    """Markdown: median and quartiles of each figure, then where and how it was measured."""
    lines = ["| | over | median | quartiles | |", "|---|---|---:|---:|---|"]
    for each in result["figures"]:
        low, median, high = (f"{value:.3g}" for value in each["quartiles"])
        last = each["unit"] or f"{each['better']} is better"
        lines.append(f"| {each['name']} | {each['over']} | {median} | {low} to {high} | {last} |")
    about = {**result["settings"], **result["computer"]}
    told = ", ".join(f"{name} {value}" for name, value in about.items())
    return "\n".join([*lines, "", f"{told}; {result['date']}"])


def worse(old: Sequence[Figure], new: Sequence[Figure]) -> list[str]:
    """The ratios whose quartiles lie beyond those of before, in words."""
    before = {(each["name"], each["over"]): each["quartiles"] for each in old if not each["unit"]}
    told = []
    for each in new:
        name, now = (each["name"], each["over"]), each["quartiles"]
        was = before.get(name, now)
        if now[0] > was[2] if each["better"] == "less" else now[2] < was[0]:
            told.append(f"worse: {' over '.join(name)}: {now[1]:.3g}, was {was[1]:.3g}")
    return told or ["nothing got worse by more than the spread"]


def _computer() -> dict[str, str]:
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
