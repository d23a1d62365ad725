"""Options and results of a task, from its signature and docstring."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_UNDERLINE = re.compile(r"-{3,}")
_RESULT = re.compile(r"``(\w+)``(?:: )?(.*?)(?=(?:; ``\w+``(?::|;|\.|$))|\Z)")


@dataclass(frozen=True)
class Option:
    """An option of a task.

    Attributes
    ----------
    name : str
    type_name : str
        Type in the docstring or the annotation; may be empty.
    default : str
        Text of the default; empty for None and for a required option.
    is_required : bool
    description : str
        One sentence; may be empty.
    """

    name: str
    type_name: str
    default: str
    is_required: bool
    description: str


@dataclass(frozen=True)
class Description:
    """Description of a task.

    Attributes
    ----------
    summary : str
        One sentence; may be empty.
    options : tuple of Option
        Options, without X and the checkpoint.
    accepts_any_option : bool
        Whether the task also accepts options with other names.
    results : tuple of tuple of str
        Names and descriptions of results, or one description without a name; empty if results are
        not documented.
    """

    summary: str
    options: tuple[Option, ...]
    accepts_any_option: bool
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
    sections = _split_sections(_find_docstring(task))
    documentation = _parse_parameters(sections.get("Parameters", []))
    parameters = list(inspect.signature(task).parameters.values())[1:]
    named_parameters = [p for p in parameters if p.name != "checkpoint" and p.kind not in _VARIADIC]
    return Description(
        _first_sentence(sections[""]),
        tuple(_make_option(p, *documentation.get(p.name, ("", ""))) for p in named_parameters),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
        _parse_results(sections.get("Returns", [])),
    )


def _make_option(parameter: inspect.Parameter, type_name: str, description: str) -> Option:
    annotation, default = parameter.annotation, parameter.default
    if not type_name and annotation is not parameter.empty:
        type_name = (
            annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        )
    is_required = default is parameter.empty
    default_text = "" if is_required or default is None else str(default)
    return Option(parameter.name, type_name, default_text, is_required, description)


def _find_docstring(task: Callable[..., Any]) -> str:
    """Return the docstring of a function, from its source if Python has removed it."""
    docstring = inspect.getdoc(task)
    if docstring or not inspect.isfunction(inspect.unwrap(task)):
        return docstring or ""
    code = inspect.unwrap(task).__code__
    try:
        tree = ast.parse(Path(code.co_filename).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""  # the function has no source file
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first_line = min(
                [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            )
            if first_line == code.co_firstlineno:
                return ast.get_docstring(node) or ""
    return ""


def _split_sections(docstring: str) -> dict[str, list[str]]:
    """Return lines by section title; lines before the first section have the title ''."""
    lines = docstring.splitlines()
    sections: dict[str, list[str]] = {"": []}
    title = ""
    for line, next_line in zip(lines, [*lines[1:], ""], strict=False):
        if _UNDERLINE.fullmatch(next_line.strip()) and line.strip():
            title = line.strip()
            sections[title] = []
        elif not _UNDERLINE.fullmatch(line.strip()):
            sections[title].append(line)
    return sections


def _parse_parameters(lines: list[str]) -> dict[str, tuple[str, str]]:
    """Return type and description by name from the lines of a Parameters section."""
    parameters: dict[str, tuple[str, list[str]]] = {}
    names: list[str] = []
    for line in lines:
        if line and not line[0].isspace():
            names_text, _, type_name = line.partition(" : ")
            names = [name.strip(" *") for name in names_text.split(",")]
            parameters |= {name: (type_name.strip(), []) for name in names}
        elif names:
            for name in names:
                parameters[name][1].append(line)
    return {
        name: (type_name, _first_sentence(lines_of_name))
        for name, (type_name, lines_of_name) in parameters.items()
    }


def _first_sentence(lines: list[str]) -> str:
    """Return the first sentence of the first paragraph."""
    text = _strip_backticks(" ".join("\n".join(lines).strip().split("\n\n")[0].split()))
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)[0]


def _parse_results(lines: list[str]) -> tuple[tuple[str, str], ...]:
    """Return names and descriptions of results written as ``name``: description; ..."""
    body = [line for line in lines if not line or line[0].isspace()]
    text = " ".join(" ".join(body or lines).split())
    results = tuple(
        (name, _strip_backticks(meaning).strip(" .;")) for name, meaning in _RESULT.findall(text)
    )
    if results and text.startswith("``"):
        return results
    return (("", _strip_backticks(text)),) if text else ()


def _strip_backticks(text: str) -> str:
    return text.replace("`", "")
