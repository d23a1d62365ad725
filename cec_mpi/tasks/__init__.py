"""What is computed with X: functions of a SciPy ``LinearOperator`` or its like.

A task is called as ``task(X, checkpoint=..., **options)`` and returns a dict of arrays
and numbers, among them an array ``"result"``. It hands its state over to the `Checkpoint`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.tasks.cg import cg
from cec_mpi.tasks.checkpoint import NO_CHECKPOINT, Checkpoint
from cec_mpi.tasks.logistic import logistic
from cec_mpi.tasks.lstsq import lstsq
from cec_mpi.tasks.matvec import matvec
from cec_mpi.tasks.pagerank import pagerank
from cec_mpi.tasks.pca import pca
from cec_mpi.tasks.power import power
from cec_mpi.tasks.ridge import ridge
from cec_mpi.tasks.svd import svd

__all__ = [
    "NO_CHECKPOINT",
    "TASKS",
    "Checkpoint",
    "Task",
    "cg",
    "find_task",
    "logistic",
    "lstsq",
    "matvec",
    "options_of",
    "pagerank",
    "pca",
    "power",
    "ridge",
    "svd",
]


Task = Callable[..., dict[str, Any]]

TASKS: dict[str, Task] = {
    task.__name__: task for task in (matvec, power, pagerank, svd, pca, lstsq, ridge, logistic, cg)
}


def find_task(name: str) -> Task:
    """A task by its name, or a user's own as ``my_module:function``.

    Raises
    ------
    InputError
        There is no such task, module or function.
    """
    if name in TASKS:
        return TASKS[name]
    module_name, colon, function_name = name.partition(":")
    if not colon:
        raise InputError(
            f"task {name!r}: expected one of {', '.join(TASKS)}, or my_module:function"
        )
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` would
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(f"task {name!r} cannot be imported: {error}") from None
    if not callable(function):
        raise InputError(f"task {name!r} is not a function")
    return function  # type: ignore[no-any-return]


def options_of(task: Task) -> set[str] | None:
    """Names of the options that a task takes; None when it takes any."""
    try:
        parameters = list(inspect.signature(task).parameters.values())[1:]
    except (ValueError, TypeError) as error:
        raise InputError(f"the options of a task cannot be known: {error}") from None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.name != "checkpoint"}
