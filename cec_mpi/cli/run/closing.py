"""The last lines of a run: how it ended, in at most four lines, and warnings."""

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

from cec_mpi.runtime.records.directory import SUMMARY
from cec_mpi.runtime.records.events import KIND_OF
from cec_mpi.runtime.records.recorder import Recorder, counts_of
from cec_mpi.text import join_names, plural, printable
from cec_mpi.text.terminal import print_note, take_output_error, warn

_MAX_NAMED = 5  # machines in a list


@dataclass(frozen=True)
class RunEnd:
    """How a run ended.

    Attributes
    ----------
    task : str
    out : Path
        Directory of the results.
    seconds : float
        Duration of the task in this run.
    steps, earlier : int
        Steps of this run, and of the runs that it continued.
    machines : int
        Number of machines that were available in at least one step.
    events : Counter of (str, int)
        Number of events of each kind for each machine in this run.
    finished : bool
        Whether the task returned.
    converged : bool or None
        Whether the solver converged, if the task returned that.
    iterations : int or None
        Number of iterations, if the task returned it.
    left : str
        What is in `out` if the task did not return.
    files : tuple of str
        Files of results other than the summary.
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


def make_run_end(
    task: str,
    out: Path,
    recorder: Recorder,
    earlier: int,
    seconds: float,
    outcome: Mapping[str, Any] | None,
    arrays: Sequence[str] = (),
    left: str = "",
) -> RunEnd:
    """Return how a run ended, from its records and from the results of its task.

    Parameters
    ----------
    task : str
    out : Path
    recorder : Recorder
    earlier : int
        Steps of the runs that this one continues.
    seconds : float
    outcome : mapping or None
    arrays : sequence of str
        Names of results that have files.
    left : str
        See `RunEnd`.
    """
    converged, iterations = (_number(outcome, name) for name in ("converged", "iterations"))
    return RunEnd(
        task,
        out,
        seconds,
        recorder.steps - earlier,
        earlier,
        len(recorder.served),
        recorder.events - recorder.earlier_events,
        outcome is not None,
        None if converged is None else bool(converged),
        None if iterations is None else int(iterations),
        left,
        tuple(f"{name}.npy" for name in arrays),
    )


def _number(outcome: Mapping[str, Any] | None, name: str) -> Any:
    """Return a truth value or whole number that a task returned, also as an array, or None."""
    value = np.asarray((outcome or {}).get(name))
    return value.item() if value.ndim == 0 and value.dtype.kind in "biu" else None


def closing_lines(ending: RunEnd) -> list[str]:
    """Return at most four lines: the work done, events of machines, and the place of results.

    The last line is the command that makes a report.
    """
    how = "ended early"
    if ending.finished:
        known = {True: "converged", False: "did not converge", None: "is done"}
        how = known[ending.converged]
        if ending.iterations is not None:
            how += f" in {plural(ending.iterations, 'iteration')}"
    steps = f"{plural(ending.steps, 'step')} on {plural(ending.machines, 'machine')}"
    if ending.earlier:
        steps += f" ({ending.earlier + ending.steps} including earlier runs)"
    lines = [f"{ending.task} {how}: {steps}, {ending.seconds:.1f} s"]
    if what := _event_words(ending.events):
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


def convergence_message(ending: RunEnd, has_iterations: bool) -> str:
    """Return a message: a solver did not converge, and how to continue it.

    Parameters
    ----------
    ending : RunEnd
    has_iterations : bool
        Whether the task has the option ``iterations``.
    """
    remedy = "; --resume with more iterations=... continues" if has_iterations else ""
    return f"{ending.task} did not converge; its last results are saved in {ending.out}{remedy}"


def closing_warnings(ending: RunEnd) -> list[str]:
    """Return warnings about a run whose task returned."""
    found = []
    lost = sorted({machine for kind, machine in ending.events if kind == "lost"})
    if lost:
        who = (
            f"machine {lost[0]} was"
            if len(lost) == 1
            else f"machines {join_names(lost, _MAX_NAMED)} were"
        )
        found.append(
            f"{who} lost. The results are complete. The reason is in "
            f"{ending.out / 'logs' / 'master.log'}"
        )
    return found


def stop_message(steps: int, has_checkpoint: bool, resume: str) -> str:
    """Return after how many steps a run was stopped, and how to continue it.

    Examples
    --------
    >>> stop_message(7, True, "--resume")
    'after 7 steps: the same command with --resume continues'
    >>> stop_message(0, False, "--resume")
    'before the first step: run the same command again'
    """
    if not (steps or has_checkpoint):
        return "before the first step: run the same command again"
    how = "continues" if has_checkpoint else "starts from the beginning"
    return f"after {plural(steps, 'step')}: the same command with {resume} {how}"


def _event_words(events: Counter[tuple[str, int]]) -> str:
    words = []
    for kind, count in counts_of(events).items():
        if not count:
            continue
        who = join_names(sorted({machine for what, machine in events if what == kind}), _MAX_NAMED)
        what = KIND_OF[kind].one if count == 1 else KIND_OF[kind].several
        words.append(f"{count} {what} ({who})")
    return ", ".join(words)


@contextmanager
def collect_warnings(texts: list[str]) -> Iterator[None]:
    """Collect the texts of warnings, each once; they are also shown as usual."""
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


def print_closing(ending: RunEnd) -> None:
    """Print the closing lines; the run succeeds even if they cannot be written."""
    for line in closing_lines(ending):
        print_note(line)
    problem = take_output_error()
    if problem is not None:
        warn(f"standard output cannot be written: {problem.strerror}")
