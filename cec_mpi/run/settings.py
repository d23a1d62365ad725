"""What a task is given of the options of a run: ``--set key=value`` and what says the same."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.run.options import RunOptions
from cec_mpi.tasks import TASKS, Task, options_of
from cec_mpi.text import closest


def task_options(task: Task, run: RunOptions, seed: int) -> dict[str, Any]:
    """What a task is given.

    Raises
    ------
    InputError
        It has no such option.
    """
    known = options_of(task)
    options = dict(_parse_setting(setting) for setting in run.settings)
    if task is TASKS["matvec"]:
        if options:
            raise InputError(f"--set {next(iter(options))}: task matvec has no such option")
        if run.iterations is not None:
            raise InputError("--iterations: task matvec has none, expected --steps T")
        return {}
    if run.vectors is not None:
        raise InputError(f"--vectors: task {run.task} takes none, only matvec does")
    if run.steps is not None and run.iterations is not None:
        raise InputError("--steps and --iterations: for this task they say the same, expected one")
    most = run.iterations if run.steps is None else run.steps
    if most is not None:
        options.setdefault("iterations", most)
    if known is None or "seed" in known:
        options.setdefault("seed", seed)
    if known is not None and not known >= set(options):
        wrong = sorted(set(options) - known)[0]
        raise InputError(
            f"--set {wrong}: task {run.task} takes {', '.join(sorted(known))}"
            f"{closest(wrong, known)}"
        )
    try:
        inspect.signature(task).bind(None, checkpoint=None, **options)
    except TypeError as error:
        raise InputError(f"task {run.task} with these options: {error}") from None
    return options


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    if not equals or not key.isidentifier() or key == "checkpoint":
        raise InputError(f"--set {setting}: expected key=value")
    try:
        return key, ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return key, text
