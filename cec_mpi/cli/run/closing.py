"""The closing lines and warnings of a run."""

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
from cec_mpi.runtime.records.events import KINDS_BY_NAME
from cec_mpi.runtime.records.recorder import Recorder, count_by_kind
from cec_mpi.text import join_names, plural, printable
from cec_mpi.text.terminal import pop_output_error, print_note, warn

_MAX_LISTED = 5  # machines in a message


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
    steps, earlier_steps : int
        Steps of this run, and of the runs that it continued.
    machines : int
        Number of machines that took part in at least one step.
    events : Counter of (str, int)
        Number of events of each kind for each machine in this run.
    finished : bool
        Whether the task returned.
    converged : bool or None
        Whether the solver converged; None if the task did not report that.
    iterations : int or None
        Number of iterations; None if the task did not report it.
    out_state : str
        What `out` contains if the task did not return, as text for the closing lines.
    files : tuple of str
        Result files, without the summary.
    """

    task: str
    out: Path
    seconds: float
    steps: int
    earlier_steps: int
    machines: int
    events: Counter[tuple[str, int]]
    finished: bool = False
    converged: bool | None = None
    iterations: int | None = None
    out_state: str = ""
    files: tuple[str, ...] = ()


def make_run_end(
    task: str,
    out: Path,
    recorder: Recorder,
    earlier_steps: int,
    seconds: float,
    outcome: Mapping[str, Any] | None,
    array_names: Sequence[str] = (),
    out_state: str = "",
) -> RunEnd:
    """Return how a run ended, from its records and the results of its task.

    Parameters
    ----------
    task : str
    out : Path
    recorder : Recorder
    earlier_steps : int
        Steps of the runs that this one continues.
    seconds : float
    outcome : mapping or None
        Results of the task; None if it did not return.
    array_names : sequence of str
        Names of results that have files.
    out_state : str
        See `RunEnd`.
    """
    converged, iterations = (_integer_result(outcome, name) for name in ("converged", "iterations"))
    return RunEnd(
        task=task,
        out=out,
        seconds=seconds,
        steps=recorder.steps - earlier_steps,
        earlier_steps=earlier_steps,
        machines=len(recorder.seen_machines),
        events=recorder.events - recorder.earlier_events,
        finished=outcome is not None,
        converged=None if converged is None else bool(converged),
        iterations=None if iterations is None else int(iterations),
        out_state=out_state,
        files=tuple(f"{name}.npy" for name in array_names),
    )


def _integer_result(outcome: Mapping[str, Any] | None, name: str) -> Any:
    """Return the bool or integer that a task returned under a name, or None."""
    value = np.asarray((outcome or {}).get(name))
    return value.item() if value.ndim == 0 and value.dtype.kind in "biu" else None


def closing_lines(end: RunEnd) -> list[str]:
    """Return at most four lines: steps, events, result files, and the command for a report."""
    status = "ended early"
    if end.finished:
        texts = {True: "converged", False: "did not converge", None: "is done"}
        status = texts[end.converged]
        if end.iterations is not None:
            status += f" in {plural(end.iterations, 'iteration')}"
    steps = f"{plural(end.steps, 'step')} on {plural(end.machines, 'machine')}"
    if end.earlier_steps:
        steps += f" ({end.earlier_steps + end.steps} including earlier runs)"
    lines = [f"{end.task} {status}: {steps}, {end.seconds:.1f} s"]
    if events := _events_text(end.events):
        lines.append(f"machines: {events}")
    if end.finished:
        files = ", ".join([*end.files, SUMMARY])
        lines.append(f"results: {printable(end.out)} ({files})")
    else:
        lines.append(f"{printable(end.out)}: {end.out_state}")
    if end.steps:
        quoted = shlex.quote(str(end.out))
        lines.append(f"report: cec-mpi report {printable(quoted)} --out report.html")
    return lines


def convergence_message(end: RunEnd, has_iterations: bool) -> str:
    """Return the message that a solver did not converge, and how to continue it.

    Parameters
    ----------
    end : RunEnd
    has_iterations : bool
        Whether the task has the option ``iterations``.
    """
    remedy = "; to continue, use --resume and a larger iterations=N" if has_iterations else ""
    return f"{end.task} did not converge; its last results are saved in {end.out}{remedy}"


def closing_warnings(end: RunEnd) -> list[str]:
    """Return warnings about a run whose task returned."""
    lost = sorted({machine for kind, machine in end.events if kind == "lost"})
    if not lost:
        return []
    names = join_names(lost, _MAX_LISTED)
    machines = f"machine {names} was" if len(lost) == 1 else f"machines {names} were"
    log = end.out / "logs" / "master.log"
    return [f"{machines} lost. The results are complete. The reason is in {log}"]


def stop_message(steps: int, has_checkpoint: bool, resume_flag: str) -> str:
    """Return a message that says after how many steps a run was stopped, and how to continue it.

    Examples
    --------
    >>> stop_message(7, True, "--resume")
    'after 7 steps: to continue, run the same command with --resume'
    >>> stop_message(0, False, "--resume")
    'before the first step: run the same command again'
    """
    if not (steps or has_checkpoint):
        return "before the first step: run the same command again"
    aim = "continue" if has_checkpoint else "start from the beginning"
    return f"after {plural(steps, 'step')}: to {aim}, run the same command with {resume_flag}"


def _events_text(events: Counter[tuple[str, int]]) -> str:
    texts = []
    for kind, count in count_by_kind(events).items():
        if not count:
            continue
        machines = sorted({machine for name, machine in events if name == kind})
        label = KINDS_BY_NAME[kind].label(count)
        texts.append(f"{count} {label} ({join_names(machines, _MAX_LISTED)})")
    return ", ".join(texts)


@contextmanager
def collect_warnings(texts: list[str]) -> Iterator[None]:
    """Append the texts of new warnings to `texts`, and show the warnings as usual."""
    show = warnings.showwarning

    def collect(message: Warning | str, *args: Any, **options: Any) -> None:
        if str(message) not in texts:
            texts.append(str(message))
        show(message, *args, **options)

    warnings.showwarning = collect
    try:
        yield
    finally:
        warnings.showwarning = show


def print_closing(end: RunEnd) -> None:
    """Print the closing lines; only warn if writing to standard output fails."""
    for line in closing_lines(end):
        print_note(line)
    problem = pop_output_error()
    if problem is not None:
        warn(f"standard output cannot be written: {problem.strerror}")
