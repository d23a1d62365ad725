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

_NEGATIVE_NUMBER = re.compile(r"-\.?\d")
_HELP_ALL = "--help-all"
HELP_FLAGS = {"-h", "--help", _HELP_ALL}


class Processes(Enum):
    """Processes that execute a command."""

    ONE = "one process"
    SHARED = "one process, or all ranks under a launcher"
    RANKS = "ranks of MPI"
    INDEPENDENT = "each process on its own, without MPI"


class Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of exiting, so that all ranks of MPI can exit together.

    Options cannot be abbreviated, because a new option could make an abbreviation ambiguous.

    Attributes
    ----------
    commands : dict of str to Parser
        Parsers of its commands by name.
    processes : Processes
        Processes that execute its command.
    common_names : set of str
        Options that ``--help`` shows; ``--help-all`` shows all. Empty if ``--help`` shows all.
    special_help : callable
        Called with the unconverted values; returns a help text to print instead of the usual one,
        or an empty string.
    hint : callable
        Called with an unknown option and the unconverted values; returns a suggestion, or an empty
        string.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        # These options may precede or follow the name of a command, whose parser has them, too.
        verbosity_options = self.add_mutually_exclusive_group()
        for flags, level, text in (
            (("-q", "--quiet"), QUIET, "print only results and errors"),
            (("-v", "--verbose"), VERBOSE, "print events as they happen"),
        ):
            verbosity_options.add_argument(
                *flags,
                dest="verbosity",
                action="store_const",
                const=level,
                default=argparse.SUPPRESS,
                help=text,
            )
        self.commands: dict[str, Parser] = {}
        self.processes = Processes.ONE
        self.common_names: set[str] = set()
        self.special_help: Callable[[Mapping[str, str]], str] = lambda raw_values: ""
        self.hint: Callable[[str, Mapping[str, str]], str] = lambda option, raw_values: ""

    def show_common(self, names: Iterable[str]) -> None:
        """Make ``--help`` show only these options, and ``--help-all`` all of them."""
        self.add_argument(_HELP_ALL, action="help", help="show all options, in groups, and exit")
        self.common_names = {*names, "help", "help_all", "verbosity"}

    def short_help(self) -> str:
        """Return a help text with only the common options."""
        hidden = [
            action
            for action in self._actions
            if action.option_strings and action.dest not in self.common_names
        ]
        texts = [action.help for action in hidden]
        for action in hidden:
            action.help = argparse.SUPPRESS
        text = self.format_help()
        for action, original in zip(hidden, texts, strict=True):
            action.help = original
        return text

    def walk(self, name: str = "") -> Iterator[tuple[str, Parser]]:
        """Yield the name and parser of this command and of all its subcommands."""
        yield name, self
        for word, command in self.commands.items():
            yield from command.walk(f"{name} {word}".strip())

    def error(self, message: str) -> NoReturn:
        """Raise `InputError`, phrased like other messages of this package."""
        message = message.removeprefix("argument ")
        message = message.replace(": not allowed with argument ", " cannot be combined with ")
        message = message.replace(": expected one argument", ": expected a value")
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = f"missing {missing}: expected {self._usage()}"
        raise InputError(f"{message} (see {self.prog} --help)")

    def _usage(self) -> str:
        """Return the command with its positional arguments and its required options."""
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
        """Parse as argparse does; raise if arguments remain."""
        arguments, remaining = self.parse_known_args(args, namespace)
        if remaining:
            self._raise_unexpected_word(remaining[0])
        return arguments

    def _raise_unexpected_word(self, word: str) -> NoReturn:
        """Raise `InputError` for a word that is neither an argument nor the value of an option."""
        raise InputError(
            f"unexpected {word!r}: expected {self._usage()} (quote values that contain spaces, and "
            "write lists without spaces)"
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does; unknown options are reported before missing arguments."""
        if args is None:
            return super().parse_known_args(args, namespace)
        line = _CommandLine(self, list(args))
        if line.wants_help:
            text = self.special_help(line.raw_values)
            if text:
                print_result(text)
                self.exit()
            if self.common_names and not line.wants_full_help:
                print_result(self.short_help().removesuffix("\n"))
                self.exit()
            return super().parse_known_args(["--help"], namespace)
        for option, value in line.words_after_flags:
            if suggestion := removed_option_hint(option, value=value):
                self.error(f"{option} {value}{suggestion}")
        if line.unknown_option:
            word, pending_option = line.unknown_option
            option = word.partition("=")[0]
            option_names = [
                name[2:] for name in self._option_string_actions if name.startswith("--")
            ]
            suggestion = (
                removed_option_hint(option, command=self.prog.rpartition(" ")[2])
                or self.hint(option, line.raw_values)
                or suggest(option.strip("-"), option_names, "--")
            )
            if pending_option and not suggestion:
                suggestion = (
                    f" after {pending_option}; to give {pending_option} this value, write "
                    f"{pending_option}={word}"
                )
            self.error(f"unknown option {option}{suggestion}")
        if line.excess_words:
            self._raise_unexpected_word(line.excess_words[0])
        return super().parse_known_args(line.words, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check choices as argparse does; suggest the closest choice."""
        if action.choices is not None and value not in action.choices:
            if self.commands and (hint := removed_command_hint(str(value))):
                raise InputError(hint)
            choices = [str(choice) for choice in action.choices]
            suggestion = suggest(str(value), choices)
            if self.commands:
                self.error(
                    f"unknown command {value}{suggestion}: expected one of {', '.join(choices)}"
                )
            raise argparse.ArgumentError(
                action, f"{value!r}: expected one of {', '.join(choices)}{suggestion}"
            )


class _CommandLine:
    """The words of a command, split into options and unconverted values.

    Attributes
    ----------
    words : list of str
        Words for argparse: positional arguments first, because users may write them anywhere,
        and ``--option=value`` for values that begin with -.
    raw_values : dict of str to str
        Values of options, and of positional arguments by their names in the help.
    unknown_option : tuple of str, optional
        The first unknown option, and the option before it if that lacks a value.
    words_after_flags : list of tuple of str
        Options without values, and the words that follow them.
    excess_words : list of str
        Words after the last positional argument.
    wants_help, wants_full_help : bool
        Whether help is requested; whether help with all options is requested.
    """

    def __init__(self, parser: argparse.ArgumentParser, words: list[str]) -> None:
        self.words: list[str] = []
        self.raw_values: dict[str, str] = {}
        self.unknown_option: tuple[str, str] | None = None
        self.words_after_flags: list[tuple[str, str]] = []
        self.excess_words: list[str] = []
        self.wants_help = self.wants_full_help = False
        self._actions = parser._option_string_actions
        # The words after a subcommand belong to another parser.
        has_subparser = any(
            action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in parser._actions
        )
        arguments = [action for action in parser._actions if not action.option_strings]
        names = [str(action.metavar) for action in arguments]
        positionals: list[str] = []
        pending_option = ""
        while words:
            word = words.pop(0)
            is_option = word.startswith("-") and word != "-" and not _NEGATIVE_NUMBER.match(word)
            if word == "--" or (has_subparser and not is_option):
                self.words += [word, *words]
                break
            if is_option:
                self.words.append(word)
                pending_option = self._read_option(word, words, pending_option)
                continue
            positionals.append(word)
            pending_option = ""
        self.words[:0] = positionals
        self.raw_values |= dict(zip(names, positionals, strict=False))
        if all(action.nargs in (None, "?") for action in arguments):
            self.excess_words = positionals[len(names) :]

    def _read_option(self, word: str, words: list[str], pending_option: str) -> str:
        """Read an option and its value; return the option if it still lacks a value."""
        name, equals, value = word.partition("=")
        action = self._actions.get(name)
        if action is None:
            are_short_flags = not word.startswith("--") and word[:2] in self._actions  # such as -vv
            if not are_short_flags:
                self.unknown_option = self.unknown_option or (word, pending_option)
            return ""
        self.wants_full_help |= name == _HELP_ALL
        self.wants_help |= name in HELP_FLAGS
        if action.nargs == 0 and (value or words):
            self.words_after_flags.append((name, value or words[0]))
        if equals:
            self.raw_values[name] = value
            return ""
        if action.nargs == "?":
            self.words[-1] = f"{name}={words.pop(0) if _is_value(action, words) else action.const}"
        if action.nargs is not None:
            return ""
        next_word = words[0] if words else "--"
        if next_word.startswith("--") or next_word.partition("=")[0] in self._actions:
            return name
        value = self.raw_values[name] = words.pop(0)
        self.words[-1:] = [f"{name}={value}"] if value.startswith("-") else [name, value]
        return ""


def _is_value(action: argparse.Action, words: list[str]) -> bool:
    """Return whether the next word is a valid value of an option whose value is optional."""
    try:
        return bool(words) and callable(action.type) and bool(action.type(words[0]))
    except argparse.ArgumentTypeError:
        return False
