"""What tasks there are, and what each takes and returns: task, and the help of run."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import Any

from cec_mpi.terminal import put

_WIDTH = 100
_ALSO = {"iterations": "--iterations T", "seed": "--seed I"}  # of run
_OF_MATVEC = {"vectors": "--vectors W.npy"}  # which run gives it instead of --set


def add_task(commands: Any) -> None:
    """``cec-mpi task``."""
    p = commands.add_parser(
        "task",
        help="list the tasks, or the options and results of one",
        description="List the tasks of cec-mpi run, or what one of them takes and returns.",
    )
    p.add_argument("name", nargs="?", metavar="NAME", help="power, svd, ..., or my_module:function")
    p.special_help = lambda given: task_text(given["NAME"]) if "NAME" in given else ""
    p.set_defaults(command=_task)


def _task(arguments: argparse.Namespace) -> int:
    put(_list() if arguments.name is None else task_text(arguments.name))
    return 0


def _list() -> str:
    from cec_mpi.tasks import TASKS
    from cec_mpi.tasks.common.description import describe

    width = max(map(len, TASKS))
    lines = [f"{name:{width}}  {describe(task).summary}" for name, task in TASKS.items()]
    lines += ["", "cec-mpi task NAME says what one of them takes and returns, and so it does of a"]
    lines += ["function of your own, as my_module:function."]
    return "\n".join(lines)


def task_text(name: str) -> str:
    """What a task takes and returns.

    Raises
    ------
    InputError
        There is no such task, or its module cannot be imported.
    """
    from cec_mpi.tasks import TASKS, find_task, options_of
    from cec_mpi.tasks.common.description import describe

    task = find_task(name)
    options_of(task)  # which refuses what has no signature
    found = describe(task)
    of_run = _OF_MATVEC if task is TASKS["matvec"] else {}
    lines = [f"cec-mpi run STORE --out DIR --task {name} ...", ""]
    if found.summary:
        lines += [*_wrapped(found.summary, ""), ""]
    options = [each for each in found.options if not of_run or each.name in of_run]
    lines.append("options:" if of_run else "options, as --set NAME=VALUE:")
    for option in options:
        facts = [option.kind]
        if option.is_required:
            facts.append("required")
        elif option.default:
            facts.append(f"default {option.default}")
        if option.name in _ALSO:
            facts.append(f"also {_ALSO[option.name]}")
        title = of_run.get(option.name, option.name)
        lines.append(f"  {title:<15}  {'; '.join(filter(None, facts))}".rstrip())
        lines += _wrapped(option.text, " " * 19)
    if found.takes_any:
        lines.append("  any other")
    if not (options or found.takes_any):
        lines.append("  none")
    lines += ["", "results, arrays as NAME.npy in DIR, all else in its summary.json:"]
    for title, meaning in found.results or [("result", "")]:
        first, *others = _wrapped(f"  {title:<15}  {meaning}" if title else f"  {meaning}", "")
        lines += [first, *(each for other in others for each in _wrapped(other, " " * 19))]
    return "\n".join(lines)


def option_of_task(option: str, given: Mapping[str, str]) -> str:
    """How an unknown option of run is given, where the task has one of that name."""
    from cec_mpi.tasks import TASKS, options_of

    name = option.lstrip("-").replace("-", "_")
    task = TASKS.get(given.get("--task", "matvec"))
    if task is None or task is TASKS["matvec"] or name not in (options_of(task) or ()):
        return ""
    return f" (an option of the task is given as --set {name}=VALUE)"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
