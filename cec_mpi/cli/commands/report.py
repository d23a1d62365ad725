"""Show finished and current runs: report, top."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.cli.commands.parser import Parser
from cec_mpi.cli.run.options import RunOptions
from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import add_flag, add_option
from cec_mpi.runtime.records.directory import STEPS, SUMMARY
from cec_mpi.runtime.times import PAGE_SECONDS
from cec_mpi.store.files.durable import is_locked
from cec_mpi.store.files.regular import open_regular
from cec_mpi.store.files.saving import write_all
from cec_mpi.text import join_names, printable, truncate
from cec_mpi.text.terminal import print_note, print_stderr, warn

if TYPE_CHECKING:
    from cec_mpi.report.recorded_run import Run

_START_INTERVAL = 0.2  # seconds between checks whether a run has started
_MIN_PAUSE_RATIO = 2.0  # smallest pause between two pages, relative to the time to write one
_MAX_RANGE_STEPS = 1000


def add_report(parser: Parser) -> None:
    """``cec-mpi report``."""
    parser.add_argument(
        "runs", metavar="DIR", nargs="+", help="directory of a run, which may still be running"
    )
    add_flag(parser, "--out FILE", "write the page to this file, such as report.html", values.path)
    add_flag(parser, "--title TEXT", "title of the page (default: the names of the runs)")
    add_flag(
        parser,
        "--step LIST",
        "also show the assignments of these steps, such as 7,300-302",
        _parse_steps,
    )
    add_flag(
        parser, "--watch", "update the files every few seconds until the runs end", default=False
    )
    add_flag(parser, "--csv FILE", "write a table with a row for each step", values.path)
    add_option(
        parser,
        RunOptions,
        "progress",
        text="how --watch shows progress: auto, plain (lines) or off (default: auto)",
    )
    parser.set_defaults(command=_report)


def _parse_steps(text: str) -> frozenset[int]:
    steps: set[int] = set()
    for range_text in text.split(","):
        first, dash, last = range_text.strip().partition("-")
        low = values.natural(first)
        high = values.natural(last) if dash else low
        if not low <= high < low + _MAX_RANGE_STEPS:
            raise argparse.ArgumentTypeError(
                f"{text!r}: expected step numbers, and ranges of at most {_MAX_RANGE_STEPS} steps, "
                "such as 7,300-302"
            )
        steps.update(range(low, high + 1))
    return frozenset(steps)


def _report(arguments: argparse.Namespace) -> int:
    flags = ("out", "csv")
    outputs = {flag: Path(path) for flag in flags if (path := getattr(arguments, flag))}
    _check_outputs(arguments, outputs)
    files = join_names(list(outputs.values()))
    if arguments.watch:
        _watch(arguments, outputs, files)
    else:
        for run in _write_files(arguments, outputs):
            if not run.steps:
                warn(f"{run.name} has no steps")
    print_note(printable(f"{files}: {join_names(arguments.runs, 5)}"))
    return 0


class _WatchView:
    """The one-line display of ``report --watch``."""

    def __init__(self, text: str) -> None:
        self.text = text

    def line(self) -> str:
        return printable(self.text)

    def lines(self, width: int, height: int) -> Iterable[str]:
        return [self.line()]


def _watch(arguments: argparse.Namespace, outputs: dict[str, Path], files: str) -> None:
    """Update the files until all runs have ended."""
    from cec_mpi.report.live.display import show

    run_names = join_names(arguments.runs, 5)
    view = _WatchView(f"{files}: updated every {PAGE_SECONDS:g} s until the end of {run_names}")
    with show(view, arguments.progress) as lock:
        if lock is not None:
            print_stderr(f"cec-mpi: {view.line()}")
        while any(map(_is_starting, arguments.runs)):
            time.sleep(_START_INTERVAL)
        while True:
            start = time.monotonic()
            runs = _write_files(arguments, outputs)
            if not _any_running(runs):
                break
            if lock is not None:
                with lock:
                    steps = join_names([run.steps for run in runs], 5)
                    moment = time.strftime("%X")
                    view.text = f"{files}: written at {moment}, {run_names} at step {steps}"
            time.sleep(max(PAGE_SECONDS, _MIN_PAUSE_RATIO * (time.monotonic() - start)))


def _is_starting(run: str) -> bool:
    """Return whether a run has locked its directory, but not written a record yet."""
    from cec_mpi.runtime.records.reading import MAX_LINE_BYTES

    try:
        with os.fdopen(open_regular(Path(run) / STEPS), "rb") as stream:
            has_record = stream.readline(MAX_LINE_BYTES).endswith(b"\n")
    except FileNotFoundError:
        has_record = False
    except OSError:
        return False  # reading it will raise an error
    return not has_record and bool(is_locked(Path(run)))


def _check_outputs(arguments: argparse.Namespace, outputs: dict[str, Path]) -> None:
    if not outputs:
        raise InputError("nothing to write: expected --out FILE, such as --out report.html")
    if arguments.step and not arguments.out:
        raise InputError("--step needs --out FILE, the page with these assignments")
    if arguments.title and not arguments.out:
        raise InputError("--title needs --out FILE, the page with this title")
    run_directories = {Path(os.path.realpath(run)) for run in arguments.runs}
    seen: set[Path] = set()
    for flag, path in outputs.items():
        real_path = Path(os.path.realpath(path))
        if real_path.parent in run_directories and _is_run_file(real_path.name):
            raise InputError(
                f"--{flag} {path} would replace a file of the run: expected another name"
            )
        if real_path in seen:
            raise InputError(f"--{flag} {path} is already the file of --out: expected another file")
        seen.add(real_path)
    if arguments.out and not arguments.out.lower().endswith((".html", ".htm")):
        raise InputError(
            f"--out {arguments.out}: expected a name that ends with .html, because reports are "
            "HTML pages"
        )


def _is_run_file(name: str) -> bool:
    """Return whether a run writes files of this name."""
    return name in (STEPS, SUMMARY) or name.startswith(".") or name.endswith((".npy", ".npz"))


def _any_running(runs: Sequence[Run]) -> bool:
    from cec_mpi.report.recorded_run import RUNNING

    return any(run.state == RUNNING for run in runs)


def _check_steps(steps: frozenset[int], runs: Sequence[Run], is_watching: bool) -> None:
    """Raise if steps of --step do not exist; with --watch only warn, after the runs have ended."""
    missing = sorted(
        t for t in steps if not any((run.step_columns["step"] == t).any() for run in runs)
    )
    if not missing or (is_watching and _any_running(runs)):
        return
    ranges = []
    for run in runs:
        numbers = run.step_columns["step"]
        text = f"steps {numbers.min():.0f} to {numbers.max():.0f}" if run.steps else "no steps"
        ranges.append(f"{run.name} has {text}")
    problem = f"--step {truncate(missing, 5)}: {join_names(ranges, 5)}"
    if not is_watching:
        raise InputError(problem)
    warn(problem)


def _write_files(arguments: argparse.Namespace, outputs: dict[str, Path]) -> list[Run]:
    """Write all output files or none; return the runs as they were read."""
    from cec_mpi.report.data import page_data
    from cec_mpi.report.page import render_page
    from cec_mpi.report.recorded_run import Run
    from cec_mpi.report.tables import steps_csv

    steps = arguments.step or frozenset()
    runs = [Run(name, steps) for name in arguments.runs]
    is_running = _any_running(runs)
    _check_steps(steps, runs, arguments.watch)
    title = arguments.title or join_names(arguments.runs, 5)
    reload_seconds = PAGE_SECONDS if arguments.watch and is_running else None
    contents: dict[str, Callable[[], bytes]] = {
        "out": lambda: render_page(page_data(runs, title, reload_seconds)).encode(),
        "csv": lambda: steps_csv(runs),
    }
    write_all({path: contents[flag]() for flag, path in outputs.items()})
    return runs


def add_top(parser: Parser) -> None:
    """``cec-mpi top``."""
    parser.description = (
        "Show the progress and the machines of a run until it ends. Ctrl-C quits. For each machine "
        "it shows the host, the process and the state; rows and time of the last step; over the "
        "last 64 steps, rows per second and the fraction of steps in which it was available; and "
        "its last event."
    )
    parser.add_argument(
        "out", metavar="DIR", type=values.path, help="directory of the run (its --out DIR)"
    )
    add_flag(
        parser,
        "--every TIME",
        "time between two updates (default: 1s)",
        values.seconds,
        default=1.0,
    )
    add_flag(parser, "--once", "print the current state and exit", default=False)
    parser.set_defaults(command=_top)


def _top(arguments: argparse.Namespace) -> int:
    from cec_mpi.report.live.top import top

    top(Path(arguments.out), arguments.every, arguments.once)
    return 0
