"""What runs left, as a page, figures, a table or a trace: report."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.files.durable import is_locked, publish
from cec_mpi.files.regular import open_regular
from cec_mpi.files.saving import storing
from cec_mpi.options import values
from cec_mpi.options.option import add_flag
from cec_mpi.records.directory import STEPS, SUMMARY
from cec_mpi.records.reading import LONGEST_LINE
from cec_mpi.terminal import say
from cec_mpi.text import listed, printable

_EVERY = 5.0  # seconds between two pages of a run that goes on
_LOOK = 0.2  # seconds between two looks whether a run has begun
_SMALLEST_PAUSE = 2.0  # times what a page took to make


def add_report(commands: Any) -> None:
    """``cec-mpi report``."""
    p = commands.add_parser("report", help="show what runs did, as a page to look at")
    p.add_argument(
        "runs", metavar="DIR", nargs="+", help="results of a run, also of one that still goes"
    )
    add_flag(p, "--out FILE", "the page, as report.html", values.path)
    add_flag(p, "--title TEXT", "of the page; by default the names of the runs")
    add_flag(p, "--step LIST", "show the assignments of these steps too, as 7,300-302", _steps)
    add_flag(p, "--watch", "write all anew every few seconds until the runs end", default=False)
    add_flag(p, "--figures DIR", "figures for papers, as SVG and PNG (matplotlib)", values.path)
    add_flag(p, "--csv FILE", "a table with a row for each step", values.path)
    add_flag(p, "--trace FILE", "a trace that Perfetto opens, a track a machine", values.path)
    add_flag(p, "--steps A:B", "the steps of --trace, from A to before B", _window)
    p.set_defaults(command=_report)


def _steps(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = values.whole(first)
        high = values.whole(last) if dash else low
        if not low <= high < low + 1000:
            raise argparse.ArgumentTypeError(f"{text!r}: expected step numbers, as 7,300-302")
        found.update(range(low, high + 1))
    return frozenset(found)


def _window(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    window = values.whole(first or "0"), values.whole(last) if last else 2**63
    if not colon or not window[0] < window[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: expected two steps, as 100:200")
    return window


def _report(arguments: argparse.Namespace) -> int:
    named = {flag: getattr(arguments, flag) for flag in ("out", "csv", "trace")}
    wanted = {flag: Path(name) for flag, name in named.items() if name}
    _check(arguments, wanted)
    while arguments.watch and any(map(_is_beginning, arguments.runs)):
        time.sleep(_LOOK)
    while True:
        begin = time.monotonic()
        going = _write(arguments, wanted)
        if not (arguments.watch and going):
            break
        time.sleep(max(_EVERY, _SMALLEST_PAUSE * (time.monotonic() - begin)))
    made = [*wanted.values(), *([arguments.figures] if arguments.figures else [])]
    say(printable(f"{listed(made, 4)}: {listed(arguments.runs, 5)}"))
    return 0


def _is_beginning(run: str) -> bool:
    """Whether a run has its directory, and nothing in its records yet."""
    try:
        with os.fdopen(open_regular(Path(run) / STEPS), "rb") as stream:
            begun = stream.readline(LONGEST_LINE).endswith(b"\n")
    except FileNotFoundError:
        begun = False
    except OSError:
        return False  # whoever reads it says why
    return not begun and bool(is_locked(Path(run)))


def _check(arguments: argparse.Namespace, wanted: dict[str, Path]) -> None:
    if not wanted and not arguments.figures:
        raise InputError("nothing to write: expected --out FILE, as --out report.html")
    if arguments.steps and "trace" not in wanted:
        raise InputError("--steps says which steps --trace has: expected --trace FILE too")
    if "trace" in wanted and len(arguments.runs) > 1:
        raise InputError(f"--trace of {len(arguments.runs)} runs: expected one DIR")
    homes = {Path(os.path.realpath(run)) for run in arguments.runs}
    names: set[Path] = set()
    for flag, path in wanted.items():
        real = Path(os.path.realpath(path))
        if real.parent in homes and _is_of_a_run(real.name):
            raise InputError(f"--{flag} {path} is of the run itself: expected another file")
        if real in names:
            raise InputError(f"--{flag} {path} is another file of the report: expected another one")
        names.add(real)


def _is_of_a_run(name: str) -> bool:
    """Whether a file in a directory of results has such a name as a run gives its own."""
    return name in (STEPS, SUMMARY) or name.startswith(".") or name.endswith((".npy", ".npz"))


def _write(arguments: argparse.Namespace, wanted: dict[str, Path]) -> bool:
    """Write what is wanted; whether a run still goes."""
    from cec_mpi.report.data import About, data_of
    from cec_mpi.report.exports.figures import write_figures
    from cec_mpi.report.exports.tables import table_of
    from cec_mpi.report.exports.trace import trace_of
    from cec_mpi.report.gathered import GOING, Run
    from cec_mpi.report.page import page

    runs = [Run(name, arguments.step or frozenset()) for name in arguments.runs]
    going = any(run.state == GOING for run in runs)
    about = About(
        arguments.title or listed(arguments.runs, 5), _EVERY if arguments.watch and going else None
    )
    make: dict[str, Callable[[], bytes]] = {
        "out": lambda: page(data_of(runs, about)).encode(),
        "csv": lambda: table_of(runs),
        "trace": lambda: trace_of(runs[0], *(arguments.steps or (0, 2**63))),
    }
    for flag, content in [(flag, make[flag]()) for flag in wanted]:
        with storing(wanted[flag]):
            publish(wanted[flag], content)
    if arguments.figures and not (arguments.watch and going):
        write_figures(data_of(runs, about), arguments.figures, arguments.step or ())
    return going
