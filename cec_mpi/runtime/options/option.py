"""Define options once: a field of a frozen dataclass defines a flag and a keyword argument."""

from __future__ import annotations

import dataclasses
import inspect
import operator
import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import Field, fields
from inspect import Parameter
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import shorten

if TYPE_CHECKING:
    import argparse

    from cec_mpi.store.format.manifest import Manifest

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_FLAG = re.compile(r"(--[a-z][a-z-]*[a-z])(?: ([\w,-]*\w))?")
_BOOL_OF_WORD = {"yes": True, "no": False}

SIMULATION_TITLE = "for tests and studies: simulated availability, speeds and faults"
"""Title of the simulation options in the help."""


def option(
    default: Any,
    flag: str = "",
    text: str = "",
    parse: Callable[[str], Any] | None = None,
    *,
    exclusive: bool = False,
    elastic: bool = False,
    is_common: bool = False,
    section: str = "",
    flags_of: type[Any] | None = None,
    **flag_options: Any,
) -> Any:
    """Return a dataclass field that defines an option.

    Parameters
    ----------
    default
        Default of the flag and of the keyword.
    flag, text, parse, **flag_options
        See `add_flag`. Choices also apply to the keyword.
    exclusive : bool
        Whether the option cannot be combined with other `exclusive` options of its group.
    elastic : bool
        Whether a value other than the default makes a run elastic.
    is_common : bool
        Whether ``--help`` shows the option, and not only ``--help-all``.
    section : str
        Title in the help, by default that of the group.
    flags_of : type, optional
        Group of flags that define the value of this keyword.
    """
    arguments = {"flag": flag, "text": text, "parse": parse, **flag_options}
    metadata: dict[str, Any] = {"exclusive": exclusive, "elastic": elastic, "flags_of": flags_of}
    metadata |= {"is_common": is_common, "section": section, "flag": arguments}
    return dataclasses.field(default=default, metadata=metadata)


class Options:
    """Base class of groups of options: frozen dataclasses whose fields `option` makes."""

    title: ClassVar[str] = ""  # of the group in the help

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store; return the resolved values of options, by name.

        Raises
        ------
        InputError
            The message names the option, the value and the expected values.
        """
        raise NotImplementedError


def own_options(group: type[Any]) -> Iterator[Field[Any]]:
    """Return the options of a group, without those of its base classes."""
    own_names = inspect.get_annotations(group)
    return (field for field in fields(group) if field.name in own_names and field.metadata)


def add_flag(
    parser: Any,
    flag: str,
    text: str = "",
    parse: Callable[[str], Any] | None = None,
    default: Any = None,
    **options: Any,
) -> None:
    """Add a flag to a command.

    Parameters
    ----------
    parser : argparse.ArgumentParser, or a group in it
    flag : str
        Name of the flag and of its value, such as ``"--tick TIME"``.
    text : str
        Help text.
    parse : callable, optional
        Converts text to a value.
    default
        If it is a bool, the flag takes no value and sets the opposite. If it is a tuple, the flag
        may be repeated, or takes several values with ``nargs``.
    **options
        Passed to `argparse.ArgumentParser.add_argument`: action, choices, dest, nargs, required.
    """
    name, _, value = flag.partition(" ")
    if isinstance(default, bool):
        options["action"] = "store_false" if default else "store_true"
    else:
        options |= {"type": parse, "metavar": value or None}
    if isinstance(default, tuple):
        default = list(default)
        options |= {} if "nargs" in options else {"action": "append"}
    parser.add_argument(name, help=text or None, default=default, **options)


def add_option(parser: Any, group: type[Any], name: str, **changes: Any) -> None:
    """Add the flag of one option of a group to a command, with changed arguments of `add_flag`."""
    (field,) = (field for field in own_options(group) if field.name == name)
    add_flag(parser, dest=name, default=field.default, **{**field.metadata["flag"], **changes})


def add_options(parser: Any, group: type[Any], exclude: Container[str] = ()) -> None:
    """Add the flags of a group to a parser under its title, except those in `exclude`."""
    exclusive_group = None
    for field in own_options(group):
        if field.name in exclude:
            continue
        section = _argument_group(parser, field.metadata["section"] or getattr(group, "title", ""))
        if field.metadata["flags_of"] is not None:
            add_options(section, field.metadata["flags_of"])
        elif field.metadata["exclusive"]:
            exclusive_group = exclusive_group or section.add_mutually_exclusive_group()
            add_option(exclusive_group, group, field.name)
        else:
            add_option(section, group, field.name)


def _argument_group(parser: Any, title: str) -> Any:
    """Return the argument group with this title, or the parser if the title is empty."""
    groups = [group for group in parser._action_groups if group.title == title]
    return groups[0] if groups else parser.add_argument_group(title) if title else parser


def common_options(group: type[Any]) -> Iterator[str]:
    """Return the names of the options of a group that ``--help`` shows."""
    return (field.name for field in own_options(group) if field.metadata["is_common"])


def from_flags(group: type[T], arguments: argparse.Namespace) -> T:
    """Return a group with the values of flags."""
    values = {}
    for field in fields(group):  # type: ignore[arg-type]
        flags = field.metadata.get("flags_of")
        if flags is not None:
            value = from_flags(flags, arguments)
            value = None if value == flags() else value
        else:
            value = getattr(arguments, field.name, field.default)  # some options have no flag
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return group(**values)


def with_keywords(*groups: type[Any]) -> Callable[[F], F]:
    """Decorate a function: replace ``**options`` in its signature and docstring by keywords."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *others, _ = signature.parameters.values()
        keywords = [
            Parameter(
                field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
            )
            for group in groups
            for field in own_options(group)
            if field.name not in signature.parameters
        ]
        texts = ((inspect.getdoc(group) or "").partition("----------\n")[2] for group in groups)
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*others, *keywords]
        )
        function.__doc__ = (inspect.getdoc(function) or "").replace(
            "**options", "\n".join(text.rstrip() for text in texts)
        )
        return function

    return decorate


@contextmanager
def rename_flags_in_errors(*groups: type[Any]) -> Iterator[None]:
    """Replace flags in error messages by keywords, such as ``--recovery L`` by ``recovery=L``."""
    try:
        yield
    except (InputError, InfeasibleError) as error:
        keywords = {}
        for field in (field for group in groups for field in own_options(group)):
            flag, _, _ = field.metadata["flag"]["flag"].partition(" ")
            choices = field.metadata["flag"].get("choices") or ()
            keywords[flag] = field.name, choices, isinstance(field.default, bool)

        def to_keyword(match: re.Match[str]) -> str:
            flag, value = match.groups()
            if flag not in keywords:
                return match[0]
            name, choices, is_switch = keywords[flag]
            if is_switch:
                return f"{name}=True{f' {value}' if value else ''}"
            if value in choices or value in _BOOL_OF_WORD:
                return f"{name}={_BOOL_OF_WORD.get(value, value)!r}"
            is_word = value is not None and value.isalpha() and value.islower()
            return f"{name}= {value}" if is_word else f"{name}={value or ''}"

        text, command, rest = str(error).partition("cec-mpi ")  # do not change commands
        error.args = (_FLAG.sub(to_keyword, text) + command + rest,)
        raise


def check_choices(group: type[Any], options: Any) -> None:
    """Raise if an option of this group is not one of its choices, or a switch is not a bool."""
    for field in own_options(group):
        arguments, value = field.metadata["flag"], getattr(options, field.name)
        choices = arguments.get("choices")
        if isinstance(value, bool) and "const" in arguments:  # the value of the flag is optional
            continue
        if isinstance(field.default, bool) and not choices and not isinstance(value, bool):
            raise InputError(f"{field.name} {value!r}: expected True or False")
        if choices and value not in (field.default, *choices):
            raise InputError(f"{field.name} {value!r}: expected {' or '.join(choices)}")


def as_int(name: str, value: Any) -> int:
    """Convert an argument to int, or raise `InputError` with its name."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} {value!r}: expected a whole number") from None


def as_float(name: str, value: Any) -> float:
    """Convert an argument to float, or raise `InputError` with its name."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} {shorten(value)}: expected a number")
    return float(value)


def as_tuple(name: str, value: Any, expected: str) -> tuple[Any, ...]:
    """Convert an iterable argument to a tuple, or raise `InputError` with its name."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name} {shorten(value)}: expected {expected}")
    return tuple(value)
