"""How a run ended, in at most four lines, and what a user should act on."""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.records.directory import SUMMARY
from cec_mpi.records.events import KIND_OF
from cec_mpi.records.recorder import Recorder, counts_of
from cec_mpi.terminal import say, unwritten, warn
from cec_mpi.text import listed, plural, printable

_MOST = 5  # machines that are named


@dataclass(frozen=True)
class Ending:
    """What there is to say of a run.

    Attributes
    ----------
    task : str
    out : Path
        The directory of results.
    seconds : float
        That the task took, without earlier runs.
    steps, earlier : int
        Steps of this run, and of those that it went on from.
    machines : int
        That were available in a step.
    events : Counter of (str, int)
        How often something happened to a machine.
    finished : bool
        Whether the task came to its end.
    converged : bool or None
        What the task said.
    iterations : int or None
        What the task said.
    left : str
        What is in `out` when it did not come to its end.
    files : tuple of str
        Those of the results, beside the summary.
    """

    task: str
    out: Path
    seconds: float
    steps: int
    earlier: int
    machines: int
    events: Counter[tuple[str, int]]
    finished: bool = False
    converged: bool | None = None
    iterations: int | None = None
    left: str = ""
    files: tuple[str, ...] = ()


def ending_of(
    task: str,
    out: Path,
    recorder: Recorder,
    earlier: int,
    seconds: float,
    outcome: Mapping[str, Any] | None,
    arrays: Sequence[str] = (),
    left: str = "",
) -> Ending:
    """How a run ended, by its records and by what its task returned, if it did.

    Parameters
    ----------
    task : str
    out : Path
    recorder : Recorder
    earlier : int
        Steps of the runs that this one goes on from.
    seconds : float
    outcome : mapping or None
    arrays : sequence of str
        Names of what it returned that has files.
    left : str
        As of `Ending`.
    """
    said = outcome or {}
    converged, iterations = said.get("converged"), said.get("iterations")
    return Ending(
        task,
        out,
        seconds,
        recorder.steps - earlier,
        earlier,
        len(recorder.served),
        recorder.events,
        outcome is not None,
        bool(converged) if isinstance(converged, bool | np.bool_) else None,
        int(iterations) if isinstance(iterations, int | np.integer) else None,
        left,
        tuple(f"{name}.npy" for name in arrays),
    )


def closing_lines(ending: Ending) -> list[str]:
    """At most four lines: what was done, what happened to machines, where the results are.

    The last one is the command that makes a report of them.
    """
    how = "ended early"
    if ending.finished:
        known = {True: "converged", False: "did not converge", None: "is done"}
        how = known[ending.converged]
        if ending.iterations is not None:
            how += f" in {plural(ending.iterations, 'iteration')}"
    steps = f"{plural(ending.steps, 'step')} on {plural(ending.machines, 'machine')}"
    if ending.earlier:
        steps += f" ({ending.earlier + ending.steps} with those before --resume)"
    lines = [f"{ending.task} {how}: {steps}, {ending.seconds:.1f} s"]
    if what := _happened(ending.events):
        lines.append(f"machines: {what}")
    if ending.finished:
        files = ", ".join([*ending.files, SUMMARY])
        lines.append(f"results: {printable(ending.out)} ({files})")
    else:
        lines.append(f"{printable(ending.out)}: {ending.left}")
    if ending.steps:
        quoted = shlex.quote(str(ending.out))
        lines.append(f"report: cec-mpi report {printable(quoted)} --out report.html")
    return lines


def unconverged(ending: Ending, limited: bool) -> str:
    """Say that a solver did not converge, and what continues it.

    Parameters
    ----------
    ending : Ending
    limited : bool
        Whether the task takes a number of iterations.
    """
    remedy = "; --resume with more iterations=... continues" if limited else ""
    return f"{ending.task} did not converge; its last results are saved in {ending.out}{remedy}"


def closing_warnings(ending: Ending) -> list[str]:
    """Return what a user should act on, though the task came to its end."""
    found = []
    lost = sorted({machine for kind, machine in ending.events if kind == "lost"})
    if lost:
        who = f"machine {lost[0]} was" if len(lost) == 1 else f"machines {listed(lost, _MOST)} were"
        found.append(
            f"{who} lost: the results are whole, and {ending.out / 'logs' / 'master.log'} says why"
        )
    return found


def stop_words(steps: int, goes_on: bool) -> str:
    """Where a run was stopped, and what the same command does then.

    Examples
    --------
    >>> stop_words(7, True)
    'after 7 steps: the same command with --resume goes on'
    >>> stop_words(0, False)
    'before the first step: the same command starts anew'
    """
    if not (steps or goes_on):
        return "before the first step: the same command starts anew"
    how = "goes on" if goes_on else "starts anew"
    return f"after {plural(steps, 'step')}: the same command with --resume {how}"


def _happened(events: Counter[tuple[str, int]]) -> str:
    said = []
    for kind, count in counts_of(events).items():
        if not count:
            continue
        who = listed(sorted({machine for what, machine in events if what == kind}), _MOST)
        what = KIND_OF[kind].one if count == 1 else KIND_OF[kind].several
        said.append(f"{count} {what} ({who})")
    return ", ".join(said)


@contextmanager
def noting_warnings(texts: list[str]) -> Iterator[None]:
    """Add what is warned of inside to `texts`, each once; it is shown as without."""
    show = warnings.showwarning

    def note(message: Warning | str, *where: Any, **options: Any) -> None:
        if str(message) not in texts:
            texts.append(str(message))
        show(message, *where, **options)

    warnings.showwarning = note
    try:
        yield
    finally:
        warnings.showwarning = show


def print_closing(ending: Ending) -> None:
    """Print the closing lines; that they cannot be read does not make a run fail."""
    for line in closing_lines(ending):
        say(line)
    problem = unwritten()
    if problem is not None:
        warn(f"standard output cannot be written: {problem.strerror}")
