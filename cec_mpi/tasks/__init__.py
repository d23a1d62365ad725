"""Tasks: functions that compute with X, given as a `scipy.sparse.linalg.LinearOperator` or similar.

A task is called as ``task(X, checkpoint=..., **options)`` and returns a dict of arrays and numbers.
It saves its state with the `Checkpoint`. A user-defined task may also return an array, a number or
a tuple, and need not have the parameter ``checkpoint``.

Tasks do not use MPI.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.tasks.cg import cg as cg
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint
from cec_mpi.tasks.logistic import logistic as logistic
from cec_mpi.tasks.lstsq import lstsq as lstsq
from cec_mpi.tasks.matvec import matvec as matvec
from cec_mpi.tasks.pagerank import pagerank as pagerank
from cec_mpi.tasks.pca import pca as pca
from cec_mpi.tasks.power import power as power
from cec_mpi.tasks.ridge import ridge as ridge
from cec_mpi.tasks.svd import svd as svd
from cec_mpi.text import suggest

_IMPORTING_FILES = (__file__, importlib.__file__)
Task = Callable[..., dict[str, Any]]

TASKS: dict[str, Task] = {
    task.__name__: task for task in (matvec, power, pagerank, svd, pca, lstsq, ridge, logistic, cg)
}

__all__ = ["NO_CHECKPOINT", "TASKS", "Checkpoint", "Task", "find_task", "options_of", *TASKS]


def find_task(name: str) -> Task:
    """Return a task by name, or a user-defined function by ``my_module:function``.

    Raises
    ------
    InputError
        The task, module or function does not exist, the module cannot be imported, or the name is
        not that of a function.
    """
    if name in TASKS:
        return TASKS[name]
    module_name, colon, function_name = name.partition(":")
    if not colon:
        stem = name.removesuffix(".py")
        example = f"{stem}:function" if Path(f"{stem}.py").is_file() else "my_module:function"
        raise InputError(
            f"task {name!r}: expected one of {', '.join(TASKS)}, or {example}{suggest(name, TASKS)}"
        )
    module = _import_module(name, module_name)
    try:
        function = getattr(module, function_name)
    except AttributeError:
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise InputError(
            f"task {name!r}: {_describe_module(module)} has no {function_name!r}"
            f"{suggest(function_name, functions)}"
        ) from None
    if not callable(function):
        raise InputError(f"task {name!r} has type {type(function).__name__}, expected a function")
    return function  # type: ignore[no-any-return]


def _import_module(task_name: str, module_name: str) -> ModuleType:
    """Import a user's module; any exception becomes an `InputError`.

    The working directory is first on the path during the import, as with ``python -m``, and last
    afterwards, so that libraries do not import a file such as ``random.py`` from there.
    """
    directory = str(Path.cwd())
    is_added = directory not in sys.path
    try:
        if is_added:
            sys.path.insert(0, directory)
        return importlib.import_module(module_name)
    except SyntaxError as error:
        location = f"{error.filename}, line {error.lineno}: " if error.filename else ""
        reason = f"{location}{error.msg}"
    except SystemExit as error:
        reason = f"the module called sys.exit({error.code!r})"
    except BaseException as error:
        reason = _format_error(error)
        if module_name.endswith(".py"):
            reason += f", expected {task_name.replace('.py:', ':', 1)}"
        elif isinstance(error, ModuleNotFoundError) and error.name == module_name:
            reason += f" in {directory} or on Python's path"
    finally:
        if is_added and directory in sys.path:
            sys.path.remove(directory)
            sys.path.append(directory)
    raise InputError(f"task {task_name!r} cannot be imported: {reason}")


def _format_error(error: BaseException) -> str:
    """Return the message of an error on one line, with its location in the user's files."""
    text = " ".join(str(error).split())
    if not isinstance(error, ImportError):
        text = f"{type(error).__name__}{f': {text}' if text else ''}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in _IMPORTING_FILES
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: {text}" if frames else text


def _describe_module(module: ModuleType) -> str:
    """Return the name and file of a module, and whether it is part of the standard library."""
    top_level = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None)
    name = f"module {module.__name__} ({file or 'built in'})"
    if top_level in sys.stdlib_module_names and not (file or "").startswith(str(Path.cwd())):
        return f"{name}, which is part of Python's standard library and hides a file of this name,"
    return name


def options_of(task: Task) -> set[str] | None:
    """Return the names of the options of a task; None if it accepts options of any name."""
    try:
        parameters = list(inspect.signature(task).parameters.values())[1:]
    except (ValueError, TypeError) as error:
        raise InputError(f"the options of the task cannot be determined: {error}") from None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.name != "checkpoint"}
