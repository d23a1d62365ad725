"""The command line as its own parser has it: every command, argument, option and default."""

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

_WIDTH = 68  # of what a command is told like
_OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*|\{host\}|STORE|DIR|N \+ 1|N\+1)(?![\w])")


class Commands(SphinxDirective):
    """``{cec-commands}``: a section for each command."""

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        self.env.note_reread()  # since options change, and this page does not
        parser = build_parser()
        return [
            self._section(parser, "cec-mpi", str(parser.description)),
            *(
                self._section(command, f"cec-mpi {words}", str(command.description))
                for words, command in parser.walk()
                if words
            ),
        ]

    def _section(self, parser: Any, title: str, about: str) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(title)], names=[title])
        section += nodes.title(title, title)
        self.state.document.note_explicit_target(section)
        section += _paragraph(about)
        parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=_WIDTH)
        usage = parser.format_usage().removeprefix("usage: ")
        section += nodes.literal_block(usage, usage, language="text")
        excludes = _excluded(parser)
        for group in parser._action_groups:
            actions = [each for each in group._group_actions if not self._is_left_out(each, title)]
            if actions and group.title not in ("options", "positional arguments", "commands"):
                section += nodes.rubric(text=_sentence(group.title).rstrip("."))
            for action in actions:
                section += self._option(action, title, excludes.get(action.dest, []))
        return section

    def _is_left_out(self, action: argparse.Action, title: str) -> bool:
        """Whether another place has it: the list of commands, or the options that all have."""
        in_all = {"-h", "-q", "-v"} & set(action.option_strings)
        return isinstance(action, argparse._SubParsersAction) or (title != "cec-mpi" and in_all)

    def _option(self, action: argparse.Action, program: str, others: list[str]) -> addnodes.desc:
        described = addnodes.desc(domain="std", objtype="option", desctype="option", no_index=False)
        described["classes"] += ["std", "option"]
        names = action.option_strings or [_argument(action)]
        signature = addnodes.desc_signature()
        value = "" if action.nargs == 0 or not action.option_strings else f" {_argument(action)}"
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
        described += signature
        content = addnodes.desc_content()
        content += _paragraph(" ".join(_facts(action, others)))
        described += content
        return described


def _facts(action: argparse.Action, others: list[str]) -> Iterator[str]:
    """Sentences on one argument or option."""
    if action.help:
        yield _sentence(action.help)
    if action.required and action.option_strings:
        yield "Required."
    elif not action.option_strings and action.nargs in ("?", "*"):
        yield "May be left out."
    if isinstance(action, argparse._AppendAction) and "repeated" not in str(action.help):
        yield "May be given several times."
    default = action.default
    known = isinstance(default, (str, int, float)) and not isinstance(default, bool)
    stated = action.help and re.search(r"\(default: |by default ", action.help)
    known = known and action.nargs != 0 and default not in ("", argparse.SUPPRESS)
    if known and not stated:
        yield f"Default: {default}."
    if others:
        yield f"Not together with {' or '.join(others)}."


def _excluded(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Options that each option excludes, by its destination."""
    found: dict[str, list[str]] = {}
    for group in parser._mutually_exclusive_groups:
        actions = group._group_actions
        if len({each.dest for each in actions}) < len(actions):
            continue  # -q and -v, which set one thing
        for each in actions:
            found[each.dest] = [a.option_strings[-1] for a in actions if a is not each]
    return found


def _argument(action: argparse.Action) -> str:
    """What stands for the value, or for the argument."""
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
    """Text with options as code, which no quotes and dashes of a typesetter change."""
    paragraph = nodes.paragraph()
    for position, part in enumerate(_OPTION.split(text)):
        if part:
            paragraph += nodes.literal(part, part) if position % 2 else nodes.Text(part)
    return paragraph


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("cec-commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
