"""The `task` command, and the task help that `run` shows."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cec_mpi.cli.commands.parser import Parser
from cec_mpi.text.terminal import print_result

if TYPE_CHECKING:
    from cec_mpi.tasks.common.description import Description

_WIDTH = 100
_INDENT = " " * 19  # of the text of an option or a result


def add_task(parser: Parser) -> None:
    """``cec-mpi task``."""
    parser.description = "List the tasks of cec-mpi run, or the options and results of one task."
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="power, svd, ..., or my_module:function"
    )
    parser.special_help = lambda raw_values: (
        task_help(raw_values["NAME"]) if "NAME" in raw_values else ""
    )
    parser.set_defaults(command=_task)


def _task(arguments: argparse.Namespace) -> int:
    print_result(_list_tasks() if arguments.name is None else task_help(arguments.name))
    return 0


def _list_tasks() -> str:
    from cec_mpi.tasks import TASKS
    from cec_mpi.tasks.common.description import describe_task

    width = max(map(len, TASKS))
    lines = [f"{name:{width}}  {describe_task(task).summary}" for name, task in TASKS.items()]
    lines += [
        "",
        "cec-mpi task NAME shows the options and results of a task. NAME may also be a function",
        "of your own: my_module:function.",
    ]
    return "\n".join(lines)


def task_help(name: str) -> str:
    """Return the description of the options and results of a task.

    Raises
    ------
    InputError
        The task does not exist, or its module cannot be imported.
    """
    from cec_mpi.cli.run.task_arguments import MATVEC_OPTIONS
    from cec_mpi.tasks import TASKS, find_task, options_of
    from cec_mpi.tasks.common.description import describe_task

    task = find_task(name)
    options_of(task)  # raises if the task has no signature
    description = describe_task(task)
    lines = [f"cec-mpi run STORE {name} [KEY=VALUE ...] --out DIR", ""]
    if description.summary:
        lines += [*_wrap(description.summary), ""]
    lines.append("options, as KEY=VALUE:")
    if task is TASKS["matvec"]:
        lines += [f"  {option:<15}  {text}" for option, text in MATVEC_OPTIONS.items()]
    else:
        lines += _option_lines(description)
    lines += [
        "",
        "results (arrays are saved as DIR/NAME.npy, numbers and text in DIR/summary.json):",
    ]
    for result, meaning in description.results or [("result", "")]:
        indent = f"  {result:<15}  " if result else "  "
        lines += _wrap(meaning, indent, _INDENT) or [indent.rstrip()]
    return "\n".join(lines)


def _option_lines(description: Description) -> list[str]:
    """Return the lines that describe the options of a task."""
    lines = []
    for option in description.options:
        facts = [option.type_name]
        if option.is_required:
            facts.append("required")
        elif option.default:
            facts.append(f"default {option.default}")
        if option.name == "seed":
            facts.append("also --seed I")
        lines.append(f"  {option.name:<15}  {'; '.join(filter(None, facts))}".rstrip())
        lines += _wrap(option.description, _INDENT, _INDENT)
    if description.accepts_any_option:
        lines.append("  any other KEY=VALUE")
    return lines or ["  none"]


def task_option_hint(option: str, raw_values: Mapping[str, str]) -> str:
    """Return a hint for an unknown option of run if the task has an option of that name."""
    from cec_mpi.cli.run.task_arguments import option_names
    from cec_mpi.tasks import TASKS

    name = option.lstrip("-").replace("-", "_")
    task = TASKS.get(raw_values.get("TASK", "matvec"))
    if task is None or name not in (option_names(task) or ()):
        return ""
    return f" (for the option of the task, write {name}=VALUE)"


def _wrap(text: str, first_indent: str = "", indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first_indent, subsequent_indent=indent, break_on_hyphens=False
    )
