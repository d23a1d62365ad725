"""Parse command lines: suggest names for unknown options, accept values that begin with -."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn

from cec_mpi.errors import InputError
from cec_mpi.runtime.options.removed import removed_command_hint, removed_option_hint
from cec_mpi.text import suggest
from cec_mpi.text.terminal import QUIET, VERBOSE, print_result

_NUMBER = re.compile(r"-\.?\d")
_HELP = ("-h", "--help")
ALL_HELP = "--help-all"


class Processes(Enum):
    """The processes that carry out a command."""

    ONE = "one process"
    SHARED = "one process, or all ranks under a launcher"
    RANKS = "ranks of MPI"
    INDEPENDENT = "each process on its own, without MPI"


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of exiting, because under mpirun all ranks must exit together.

    Options cannot be abbreviated, because a new option would change the meaning of old scripts.

    Attributes
    ----------
    commands : dict of str to Parser
        Parsers of its commands by name.
    processes : Processes
        The processes that carry out its command.
    common : set of str
        Names of the options that ``--help`` shows if ``--help-all`` shows the others.
    special_help : callable
        Called with the values of options; returns the text to print instead of the usual help, or
        an empty text.
    hint : callable
        Called with an unknown option and the values of others; returns a suggestion, or an empty
        text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        levels = self.add_mutually_exclusive_group()  # before or after the name of a command
        for flags, level, text in (
            (("-q", "--quiet"), QUIET, "print only results and errors"),
            (("-v", "--verbose"), VERBOSE, "print events as they happen"),
        ):
            levels.add_argument(
                *flags,
                dest="verbosity",
                action="store_const",
                const=level,
                default=argparse.SUPPRESS,
                help=text,
            )
        self.commands: dict[str, Parser] = {}
        self.processes = Processes.ONE
        self.common: set[str] = set()
        self.special_help: Callable[[Mapping[str, str]], str] = lambda given: ""
        self.hint: Callable[[str, Mapping[str, str]], str] = lambda option, given: ""

    def show_common(self, names: Iterable[str]) -> None:
        """Make ``--help`` show only these options, and ``--help-all`` all of them."""
        self.add_argument(ALL_HELP, action="help", help="show all options, in groups, and exit")
        self.common = {*names, "help", "help_all", "verbosity"}

    def short_help(self) -> str:
        """Return the help with only the common options."""
        others = [
            action
            for action in self._actions
            if action.option_strings and action.dest not in self.common
        ]
        texts = [action.help for action in others]
        for action in others:
            action.help = argparse.SUPPRESS
        text = self.format_help()
        for action, hidden in zip(others, texts, strict=True):
            action.help = hidden
        return text

    def walk(self, name: str = "") -> Iterator[tuple[str, Parser]]:
        """Yield this parser and those of all commands below it, with their names."""
        yield name, self
        for word, command in self.commands.items():
            yield from command.walk(f"{name} {word}".strip())

    def error(self, message: str) -> NoReturn:
        """Raise `InputError`, in the words of other messages of this package."""
        message = message.removeprefix("argument ")
        message = message.replace(": not allowed with argument ", " cannot be combined with ")
        message = message.replace(": expected one argument", ": expected a value")
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = f"missing {missing}: expected {self._usage()}"
        raise InputError(f"{message} (see {self.prog} --help)")

    def _usage(self) -> str:
        """Return the shortest command that can be typed."""
        words = [self.prog]
        patterns: dict[int | str | None, str] = {
            None: "{}",
            "?": "[{}]",
            "*": "[{} ...]",
            "+": "{} ...",
        }
        for action in self._actions:
            if not action.option_strings:
                words.append(patterns.get(action.nargs, "{} ...").format(action.metavar))
            elif action.required:
                words.append(f"{action.option_strings[-1]} {action.metavar}")
        return " ".join(words)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """Parse as argparse does; refuse words that follow ``--``."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            self._raise_unexpected_word(left[0])
        return found

    def _raise_unexpected_word(self, word: str) -> NoReturn:
        """Raise because of a word that is neither an argument nor the value of an option."""
        raise InputError(
            f"unexpected {word!r}: expected {self._usage()} (a value of "
            "several words needs quotes, and a list commas without spaces)"
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does; handle help and unknown options before missing ones."""
        if args is None:
            return super().parse_known_args(args, namespace)
        read = _CommandLine(self, list(args))
        if read.wants_help:
            text = self.special_help(read.given)
            if text:
                print_result(text)
                self.exit()
            if self.common and not read.wants_full_help:
                print_result(self.short_help().removesuffix("\n"))
                self.exit()
            return super().parse_known_args(["--help"], namespace)
        for option, value in read.words_after_flags:
            if suggestion := removed_option_hint(option, value=value):
                self.error(f"{option} {value}{suggestion}")
        if read.unknown:
            word, before = read.unknown
            option = word.partition("=")[0]
            known = [name[2:] for name in self._option_string_actions if name.startswith("--")]
            suggestion = (
                removed_option_hint(option, command=self.prog.rpartition(" ")[2])
                or self.hint(option, read.given)
                or suggest(option.strip("-"), known, "--")
            )
            if before and not suggestion:
                suggestion = f" after {before}; to give {before} this value, write {before}={word}"
            self.error(f"unknown option {option}{suggestion}")
        if read.excess:
            self._raise_unexpected_word(read.excess[0])
        return super().parse_known_args(read.words, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check choices as argparse does, and suggest the closest one."""
        if action.choices is not None and value not in action.choices:
            if self.commands and (refusal := removed_command_hint(str(value))):
                raise InputError(refusal)
            words = [str(choice) for choice in action.choices]
            suggestion = suggest(str(value), words)
            if self.commands:
                self.error(
                    f"unknown command {value}{suggestion}: expected one of {', '.join(words)}"
                )
            raise argparse.ArgumentError(
                action, f"{value!r}: expected one of {', '.join(words)}{suggestion}"
            )


class _CommandLine:
    """Words of one command, sorted into options and values without converting them.

    Attributes
    ----------
    words : list of str
        The words, with an option and a value that begins with - joined into one word. Words that
        are not values of options come first, so that users may write them anywhere.
    given : dict of str to str
        Values of options, and positional arguments under their names in the help.
    unknown : tuple of str, optional
        The first unknown option, and the option before it if that has no value yet.
    words_after_flags : list of tuple of str
        Options that take no value, and the words that follow them.
    excess : list of str
        Words beyond the positional arguments.
    wants_help, wants_full_help : bool
        Whether any help is requested, and whether with all options.
    """

    def __init__(self, parser: argparse.ArgumentParser, words: list[str]) -> None:
        self.words: list[str] = []
        self.given: dict[str, str] = {}
        self.unknown: tuple[str, str] | None = None
        self.words_after_flags: list[tuple[str, str]] = []
        self.excess: list[str] = []
        self.wants_help = self.wants_full_help = False
        self._actions = parser._option_string_actions
        # Other parsers read what follows a command, or the first of the remaining words.
        ends = any(
            action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in parser._actions
        )
        arguments = [action for action in parser._actions if not action.option_strings]
        names = [str(action.metavar) for action in arguments]
        positionals: list[str] = []
        pending_option = ""
        while words:
            word = words.pop(0)
            is_option = word.startswith("-") and word != "-" and not _NUMBER.match(word)
            if word == "--" or (ends and not is_option):
                self.words += [word, *words]
                break
            if is_option:
                self.words.append(word)
                pending_option = self._option(word, words, pending_option)
                continue
            positionals.append(word)
            pending_option = ""
        self.words[:0] = positionals
        self.given |= dict(zip(names, positionals, strict=False))
        if all(action.nargs in (None, "?") for action in arguments):
            self.excess = positionals[len(names) :]

    def _option(self, word: str, words: list[str], before: str) -> str:
        """Read an option and its value; return the option if it still lacks a value."""
        name, equals, value = word.partition("=")
        action = self._actions.get(name)
        if action is None:
            short = not word.startswith("--") and word[:2] in self._actions  # for example -vv
            if not short:
                self.unknown = self.unknown or (word, before)
            return ""
        self.wants_full_help = self.wants_full_help or name == ALL_HELP
        self.wants_help = self.wants_help or self.wants_full_help or name in _HELP
        if action.nargs == 0 and (value or words):
            self.words_after_flags.append((name, value or words[0]))
        if equals:
            self.given[name] = value
            return ""
        if action.nargs == "?":
            self.words[-1] = f"{name}={words.pop(0) if _is_value(action, words) else action.const}"
        if action.nargs is not None:
            return ""
        following = words[0] if words else "--"
        if following.startswith("--") or following.partition("=")[0] in self._actions:
            return name
        value = self.given[name] = words.pop(0)
        self.words[-1:] = [f"{name}={value}"] if value.startswith("-") else [name, value]
        return ""


def _is_value(action: argparse.Action, words: list[str]) -> bool:
    """Whether the next word is a value of an option that needs none."""
    try:
        return bool(words) and callable(action.type) and bool(action.type(words[0]))
    except argparse.ArgumentTypeError:
        return False
