"""What is computed with X: functions of anything with ``shape``, ``dtype`` and ``matvec``.

A task is called as ``task(X, checkpoint=..., **options)`` and returns a dict of arrays
and numbers, among them an array ``"result"``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.matvec import matvec
from cec_mpi.tasks.power import power

__all__ = ["TASKS", "Operator", "Task", "find_task", "matvec", "options_of", "power"]


class Operator(Protocol):
    """What a task needs of X."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def matvec(self, w: NDArray[Any]) -> NDArray[Any]:
        """X w."""


Task = Callable[..., dict[str, Any]]

TASKS: dict[str, Task] = {"matvec": matvec, "power": power}


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
