"""What a run left, as a page: report."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.files.durable import publish
from cec_mpi.files.saving import storing
from cec_mpi.options import values
from cec_mpi.options.option import add_flag
from cec_mpi.records.directory import RESULT, STEPS, SUMMARY
from cec_mpi.terminal import say
from cec_mpi.text import listed

_EVERY = 5.0  # seconds between two pages of a run that goes on
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
    add_flag(p, "--watch", "write it anew every few seconds until the runs end", default=False)
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


def _report(arguments: argparse.Namespace) -> int:
    if not arguments.out:
        raise InputError("nothing to write: expected --out FILE, as --out report.html")
    out = Path(arguments.out)
    _check_out(out, arguments.runs)
    while True:
        begin = time.monotonic()
        going = _write(arguments, out)
        if not (arguments.watch and going):
            break
        time.sleep(max(_EVERY, _SMALLEST_PAUSE * (time.monotonic() - begin)))
    say(f"{out}: {listed(arguments.runs, 5)}")
    return 0


def _check_out(out: Path, runs: list[str]) -> None:
    for name in runs:
        for each in (STEPS, SUMMARY, RESULT):
            mine = Path(name) / each
            if os.path.realpath(mine) == os.path.realpath(out):
                raise InputError(f"{out} is of the run itself: expected another file for --out")


def _write(arguments: argparse.Namespace, out: Path) -> bool:
    """Write the page; whether a run still goes."""
    from cec_mpi.report.data import About, data_of
    from cec_mpi.report.gathered import GOING, Run
    from cec_mpi.report.page import page

    runs = [Run(name, arguments.step or frozenset()) for name in arguments.runs]
    going = any(run.state == GOING for run in runs)
    title = arguments.title or listed(arguments.runs, 5)
    refresh = _EVERY if arguments.watch and going else None
    text = page(data_of(runs, About(title, refresh)))
    with storing(out):
        publish(out, text.encode())
    return going
