"""Options as people type them: what an unknown one was meant to be, values that begin with -."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn

from cec_mpi.errors import InputError
from cec_mpi.terminal import put
from cec_mpi.text import closest

_NUMBER = re.compile(r"-\.?\d")
_HELP = ("-h", "--help")
ALL_HELP = "--help-all"


class Processes(Enum):
    """Which processes a command is the work of."""

    ONE = "one alone, which prints"
    SHARED = "one, or all ranks where a launcher has started several"
    RANKS = "ranks, which start MPI"
    EACH = "each that a launcher has started, for itself, without MPI"


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of leaving: under mpirun all ranks leave together.

    Options cannot be abbreviated: a new one would change what an old script means.

    Attributes
    ----------
    commands : dict of str to Parser
        By their names, where it has any.
    processes : Processes
        Of the command that it is the parser of.
    common : set of str
        Names of the options that ``--help`` shows, if there is a ``--help-all`` for the others.
    special_help : callable
        Given the values of options, says what to print in place of the usual help, or nothing.
    hint : callable
        Given an unknown option and the values of others, says what else it may be.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self.commands: dict[str, Parser] = {}
        self.processes = Processes.ONE
        self.common: set[str] = set()
        self.special_help: Callable[[Mapping[str, str]], str] = lambda given: ""
        self.hint: Callable[[str, Mapping[str, str]], str] = lambda option, given: ""

    def show_common(self, names: Iterable[str]) -> None:
        """Have ``--help`` show only these options, and ``--help-all`` all of them."""
        self.add_argument(ALL_HELP, action="help", help="show all options, in groups, and exit")
        self.common = {*names, "help", "help_all", "verbosity"}

    def short_help(self) -> str:
        """The help with the common options alone."""
        others = [
            each for each in self._actions if each.option_strings and each.dest not in self.common
        ]
        texts = [each.help for each in others]
        for each in others:
            each.help = argparse.SUPPRESS
        text = self.format_help()
        for each, told in zip(others, texts, strict=True):
            each.help = told
        return text

    def named(self, name: str = "") -> Iterator[tuple[str, Parser]]:
        """Its own name, by default none, and all commands below with theirs."""
        yield name, self
        for word, command in self.commands.items():
            yield from command.named(f"{name} {word}".strip())

    def error(self, message: str) -> NoReturn:
        """Raise `InputError`."""
        raise InputError(f"{message} (see {self.prog} --help)")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """As argparse does; a word too many is mostly one of a value without quotes."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            raise InputError(
                f"{left[0]!r} belongs to no option: expected a value of several words in quotes, "
                "a list with commas and no spaces"
            )
        return found

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse does; help and unknown options come before what is missing."""
        if args is None:
            return super().parse_known_args(args, namespace)
        read = _Read(self, list(args))
        if read.wants_help:
            text = self.special_help(read.given)
            if text:
                put(text)
                self.exit()
            if self.common and not read.wants_all:
                put(self.short_help().removesuffix("\n"))
                self.exit()
            return super().parse_known_args(["--help"], namespace)
        if read.unknown:
            word, before = read.unknown
            option = word.partition("=")[0]
            known = [name[2:] for name in self._option_string_actions if name.startswith("--")]
            meant = self.hint(option, read.given) or closest(option.strip("-"), known, "--")
            if before and not meant:
                meant = f" after {before}, whose value is given as {before}={word}"
            self.error(f"unknown option {option}{meant}")
        return super().parse_known_args(read.words, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does, with what was perhaps meant."""
        if action.choices is not None and value not in action.choices:
            words = [str(choice) for choice in action.choices]
            meant = closest(str(value), words)
            raise argparse.ArgumentError(
                action, f"{value!r}: expected one of {', '.join(words)}{meant}"
            )


class _Read:
    """Words of one command, told apart without converting them.

    Attributes
    ----------
    words : list of str
        The same, with an option and a value that begins with - as one word; what is the value of no
        option comes first, so that it may stand anywhere.
    given : dict of str to str
        Values of options, and of arguments without one under their names in the help.
    unknown : tuple of str, optional
        The first unknown option, and the one before it that still has no value, or nothing.
    wants_help, wants_all : bool
        Any help, and that with all options.
    """

    def __init__(self, parser: argparse.ArgumentParser, words: list[str]) -> None:
        self.words: list[str] = []
        self.given: dict[str, str] = {}
        self.unknown: tuple[str, str] | None = None
        self.wants_help = self.wants_all = False
        self._actions = parser._option_string_actions
        # What comes after a command, and after the first of the remaining words, is for others.
        ends = any(
            action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in parser._actions
        )
        names = [str(each.metavar) for each in parser._actions if not each.option_strings]
        placed: list[str] = []
        waiting = ""
        while words:
            word = words.pop(0)
            is_option = word.startswith("-") and word != "-" and not _NUMBER.match(word)
            if word == "--" or (ends and not is_option):
                self.words += [word, *words]
                break
            if is_option:
                self.words.append(word)
                waiting = self._option(word, words, waiting)
                continue
            placed.append(word)
            waiting = ""
        self.words[:0] = placed
        self.given |= dict(zip(names, placed, strict=False))

    def _option(self, word: str, words: list[str], before: str) -> str:
        """Take an option and its value; returns the option where it still wants one."""
        name, equals, value = word.partition("=")
        action = self._actions.get(name)
        if action is None:
            short = not word.startswith("--") and word[:2] in self._actions  # as -vv
            if not short:
                self.unknown = self.unknown or (word, before)
            return ""
        self.wants_all = self.wants_all or name == ALL_HELP
        self.wants_help = self.wants_help or self.wants_all or name in _HELP
        if equals:
            self.given[name] = value
            return ""
        if action.nargs == "?":  # only what = gives it is its value
            self.words[-1] = f"{name}={action.const}"
        if action.nargs is not None:
            return ""
        following = words[0] if words else "--"
        if following.startswith("--") or following.partition("=")[0] in self._actions:
            return name
        value = self.given[name] = words.pop(0)
        self.words[-1:] = [f"{name}={value}"] if value.startswith("-") else [name, value]
        return ""
