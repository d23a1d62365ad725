"""The reference of the command line, from its parser: commands, arguments, options, defaults."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cec_mpi.cli import build_parser

_WIDTH = 68  # columns of a usage line
_OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*|\{host\}|STORE|DIR|N \+ 1|N\+1)(?![\w])")


class CommandReference(SphinxDirective):
    """The directive ``{cec-commands}``: a section for each command."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        self.env.note_reread()  # because options change without a change of this page
        parser = build_parser()
        return [
            self._section(parser, "cec-mpi", str(parser.description)),
            *(
                self._section(command, f"cec-mpi {words}", str(command.description))
                for words, command in parser.walk()
                if words
            ),
        ]

    def _section(self, parser: Any, title: str, description: str) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(title)], names=[title])
        section += nodes.title(title, title)
        self.state.document.note_explicit_target(section)
        section += _paragraph(description)
        parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=_WIDTH)
        usage = parser.format_usage().removeprefix("usage: ")
        section += nodes.literal_block(usage, usage, language="text")
        exclusions = _find_exclusions(parser)
        for group in parser._action_groups:
            actions = [a for a in group._group_actions if not self._is_omitted(a, title)]
            if actions and group.title not in ("options", "positional arguments", "commands"):
                section += nodes.rubric(text=_sentence(group.title).rstrip("."))
            for action in actions:
                section += self._option(action, title, exclusions.get(action.dest, []))
        return section

    def _is_omitted(self, action: argparse.Action, title: str) -> bool:
        """Return whether an action is the list of commands, or a common option of a subcommand."""
        common = {"-h", "-q", "-v"} & set(action.option_strings)
        return isinstance(action, argparse._SubParsersAction) or (title != "cec-mpi" and common)

    def _option(self, action: argparse.Action, program: str, excluded: list[str]) -> addnodes.desc:
        entry = addnodes.desc(domain="std", objtype="option", desctype="option", no_index=False)
        entry["classes"] += ["std", "option"]
        names = action.option_strings or [_placeholder(action)]
        signature = addnodes.desc_signature()
        value = "" if action.nargs == 0 or not action.option_strings else f" {_placeholder(action)}"
        for position, name in enumerate(names):
            if position:
                signature += addnodes.desc_addname("", ", ")
            signature += addnodes.desc_name(name, name)
        signature += addnodes.desc_addname(value, value)
        node_id = nodes.make_id(f"{program} {names[-1]}")
        signature["ids"].append(node_id)
        domain = self.env.domains.standard_domain
        for name in names:
            domain.add_program_option(program, name, self.env.docname, node_id)
        entry += signature
        content = addnodes.desc_content()
        content += _paragraph(" ".join(_describe(action, excluded)))
        entry += content
        return entry


def _describe(action: argparse.Action, excluded: list[str]) -> Iterator[str]:
    """Yield sentences about one argument or option."""
    if action.help:
        yield _sentence(action.help)
    if action.required and action.option_strings:
        yield "Required."
    elif not action.option_strings and action.nargs in ("?", "*"):
        yield "Optional."
    if isinstance(action, argparse._AppendAction) and "repeated" not in str(action.help):
        yield "May be repeated."
    default = action.default
    has_default = isinstance(default, (str, int, float)) and not isinstance(default, bool)
    is_stated = action.help and re.search(r"\(default: |by default ", action.help)
    has_default &= action.nargs != 0 and default not in ("", argparse.SUPPRESS)
    if has_default and not is_stated:
        yield f"Default: {default}."
    if excluded:
        yield f"Cannot be combined with {' or '.join(excluded)}."


def _find_exclusions(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Return the options that each option excludes, by the destination of the option."""
    exclusions: dict[str, list[str]] = {}
    for group in parser._mutually_exclusive_groups:
        actions = group._group_actions
        if len({action.dest for action in actions}) < len(actions):
            continue  # -q and -v, which set the same value
        for action in actions:
            exclusions[action.dest] = [a.option_strings[-1] for a in actions if a is not action]
    return exclusions


def _placeholder(action: argparse.Action) -> str:
    """Return the placeholder of an argument, or of the value of an option."""
    shown = action.metavar or (action.dest if not action.choices else "")
    if not shown:
        return "{" + ",".join(map(str, action.choices or ())) + "}"
    text = shown if isinstance(shown, str) else " ".join(shown)
    text = text if action.metavar else text.upper()
    return f"{text} ..." if action.nargs in ("+", "*", argparse.REMAINDER) else text


def _sentence(text: object) -> str:
    text = str(text).strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _paragraph(text: str) -> nodes.paragraph:
    """Return text with options as code, so that smart quotes do not change their dashes."""
    paragraph = nodes.paragraph()
    for position, part in enumerate(_OPTION.split(text)):
        if part:
            paragraph += nodes.literal(part, part) if position % 2 else nodes.Text(part)
    return paragraph


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("cec-commands", CommandReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
