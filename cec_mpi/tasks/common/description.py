"""Options and results of a task, from its signature and docstring."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RULE = re.compile(r"-{3,}")
_RESULT = re.compile(r"``(\w+)``(?:: )?(.*?)(?=(?:; ``\w+``(?::|;|\.|$))|\Z)")


@dataclass(frozen=True)
class Option:
    """An option of a task.

    Attributes
    ----------
    name : str
    kind : str
        Type, as documented or annotated; may be empty.
    default : str
        Text of the default; empty for None and for a required option.
    is_required : bool
    text : str
        One sentence; may be empty.
    """

    name: str
    kind: str
    default: str
    is_required: bool
    text: str


@dataclass(frozen=True)
class Description:
    """Description of a task.

    Attributes
    ----------
    summary : str
        One sentence; may be empty.
    options : tuple of Option
        Options, without X and the checkpoint.
    takes_any : bool
        Whether the task also accepts other options.
    results : tuple of tuple of str
        Names and descriptions of results, or one description without a name; empty if results are
        not documented.
    """

    summary: str
    options: tuple[Option, ...]
    takes_any: bool
    results: tuple[tuple[str, str], ...]


def describe_task(task: Callable[..., Any]) -> Description:
    """Return the description of a task.

    If Python has removed docstrings (``-OO``), they are read from the source.

    Examples
    --------
    >>> def task(X, *, tol=1e-3, checkpoint): "Compute. And more."
    >>> description = describe_task(task)
    >>> description.summary, description.options[0].name, description.options[0].default
    ('Compute.', 'tol', '0.001')
    """
    text = _docstring(task)
    sections = _sections(text)
    documented = _entries(sections.get("Parameters", []))
    parameters = list(inspect.signature(task).parameters.values())[1:]
    named = [p for p in parameters if p.name != "checkpoint" and p.kind not in _ANY]
    return Description(
        _first_sentence(sections[""]),
        tuple(_option(p, *documented.get(p.name, ("", ""))) for p in named),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
        _results(sections.get("Returns", [])),
    )


_ANY = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _option(parameter: inspect.Parameter, kind: str, text: str) -> Option:
    annotation, default = parameter.annotation, parameter.default
    if not kind and annotation is not parameter.empty:
        kind = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    is_required = default is parameter.empty
    shown = "" if is_required or default is None else str(default)
    return Option(parameter.name, kind, shown, is_required, text)


def _docstring(task: Callable[..., Any]) -> str:
    """Return the docstring of a function, from its source if Python has removed it."""
    found = inspect.getdoc(task)
    if found or not inspect.isfunction(inspect.unwrap(task)):
        return found or ""
    code = inspect.unwrap(task).__code__
    try:
        tree = ast.parse(Path(code.co_filename).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""  # the function has no source file
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return ast.get_docstring(node) or ""
    return ""


def _sections(text: str) -> dict[str, list[str]]:
    """Return lines by section title; lines before the first section have the title ''."""
    lines = text.splitlines()
    sections: dict[str, list[str]] = {"": []}
    title = ""
    for line, next_line in zip(lines, [*lines[1:], ""], strict=False):
        if _RULE.fullmatch(next_line.strip()) and line.strip():
            title = line.strip()
            sections[title] = []
        elif not _RULE.fullmatch(line.strip()):
            sections[title].append(line)
    return sections


def _entries(lines: list[str]) -> dict[str, tuple[str, str]]:
    """Return type and description by name from the lines of a Parameters section."""
    entries: dict[str, tuple[str, list[str]]] = {}
    names: list[str] = []
    for line in lines:
        if line and not line[0].isspace():
            list_of_names, _, kind = line.partition(" : ")
            names = [name.strip(" *") for name in list_of_names.split(",")]
            entries |= {name: (kind.strip(), []) for name in names}
        elif names:
            for name in names:
                entries[name][1].append(line)
    return {name: (kind, _first_sentence(text)) for name, (kind, text) in entries.items()}


def _first_sentence(lines: list[str]) -> str:
    """Return the first sentence of the first paragraph."""
    text = _strip_backticks(" ".join("\n".join(lines).strip().split("\n\n")[0].split()))
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)[0]


def _results(lines: list[str]) -> tuple[tuple[str, str], ...]:
    """Return names and descriptions of results written as ``name``: description; ..."""
    body = [line for line in lines if not line or line[0].isspace()]
    text = " ".join(" ".join(body or lines).split())
    named = tuple(
        (name, _strip_backticks(meaning).strip(" .;")) for name, meaning in _RESULT.findall(text)
    )
    if named and text.startswith("``"):
        return named
    return (("", _strip_backticks(text)),) if text else ()


def _strip_backticks(text: str) -> str:
    return text.replace("`", "")
