"""Options that are written once: a field of a frozen dataclass gives a flag and a keyword."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import Field, field, fields
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
_TRUTH = {"yes": True, "no": False}

STUDIES = "for tests and studies: simulated availability, speeds and faults"
"""Title, in the help, of the options that simulate."""


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
    **more: Any,
) -> Any:
    """Return a field of a group, which is also a flag of a command.

    Parameters
    ----------
    default
        Default of the flag and of the keyword.
    flag, text, parse, **more
        As for `add_flag`. Choices also apply to the keyword.
    exclusive : bool
        Whether it excludes the other flags of its group that are `exclusive`.
    elastic : bool
        Whether a value other than the default makes a run elastic.
    is_common : bool
        Whether the short help of a command shows it.
    section : str
        Title in the help, if it is not that of the group.
    flags_of : type, optional
        Group of flags that together give the value of this keyword.
    """
    shorten = {"flag": flag, "text": text, "parse": parse, **more}
    metadata: dict[str, Any] = {"exclusive": exclusive, "elastic": elastic, "flags_of": flags_of}
    metadata |= {"is_common": is_common, "below": section, "shown": shorten}
    return field(default=default, metadata=metadata)


class Group:
    """Base of groups of options: frozen dataclasses whose fields `option` returns."""

    title: ClassVar[str] = ""  # of its flags in the help

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store; return values to replace.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        """
        raise NotImplementedError


def own_options(group: type[Any]) -> Iterator[Field[Any]]:
    """Return the options of a group, without those of its base classes."""
    own = inspect.get_annotations(group)
    return (entry for entry in fields(group) if entry.name in own and entry.metadata)


def add_flag(
    parser: Any,
    flag: str,
    text: str = "",
    parse: Callable[[str], Any] | None = None,
    default: Any = None,
    **more: Any,
) -> None:
    """Add a flag to a command.

    Parameters
    ----------
    parser : argparse.ArgumentParser, or a group in it
    flag : str
        Its name and a name for its value, such as ``"--tick TIME"``.
    text : str
        Help text.
    parse : callable, optional
        Converts text to a value.
    default
        If it is False or True, the flag takes no value and gives the opposite. If it is a tuple,
        the flag may be repeated, or takes several values with ``nargs``.
    **more
        Passed to `argparse.ArgumentParser.add_argument`: choices, dest, nargs, required.
    """
    name, _, value = flag.partition(" ")
    if isinstance(default, bool):
        more["action"] = "store_false" if default else "store_true"
    else:
        more |= {"type": parse, "metavar": value or None}
    if isinstance(default, tuple):
        default = list(default)
        more |= {} if "nargs" in more else {"action": "append"}
    parser.add_argument(name, help=text or None, default=default, **more)


def add_option(parser: Any, group: type[Any], name: str, **other: Any) -> None:
    """Add the flag of one option of a group to a command, with changes in `other`."""
    (entry,) = (entry for entry in own_options(group) if entry.name == name)
    add_flag(parser, dest=name, default=entry.default, **{**entry.metadata["shown"], **other})


def add_options(parser: Any, group: type[Any], exclude: Container[str] = ()) -> None:
    """Add the flags of a group to a parser under its title, except those in `exclude`."""
    exclusive_group = None
    for entry in own_options(group):
        if entry.name in exclude:
            continue
        section = _argument_group(parser, entry.metadata["below"] or getattr(group, "title", ""))
        if entry.metadata["flags_of"] is not None:
            add_options(section, entry.metadata["flags_of"])
        elif entry.metadata["exclusive"]:
            exclusive_group = exclusive_group or section.add_mutually_exclusive_group()
            add_option(exclusive_group, group, entry.name)
        else:
            add_option(section, group, entry.name)


def _argument_group(parser: Any, title: str) -> Any:
    """Return the argument group with this title, or the parser if the title is empty."""
    found = [part for part in parser._action_groups if part.title == title]
    return found[0] if found else parser.add_argument_group(title) if title else parser


def common_options(group: type[Any]) -> Iterator[str]:
    """Return the names of the options of a group that the short help shows."""
    return (entry.name for entry in own_options(group) if entry.metadata["is_common"])


def from_flags(group: type[T], arguments: argparse.Namespace) -> T:
    """Make a group from the flags of a command."""
    given = {}
    for entry in fields(group):  # type: ignore[arg-type]
        nested = entry.metadata.get("flags_of")
        if nested is not None:
            value = from_flags(nested, arguments)
            value = None if value == nested() else value
        else:
            value = getattr(arguments, entry.name, entry.default)  # which a program alone may give
        given[entry.name] = tuple(value) if isinstance(value, list) else value
    return group(**given)


def with_keywords(*groups: type[Any]) -> Callable[[F], F]:
    """Add the options of groups to the signature and docstring of a function with ``**options``."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *others, _ = signature.parameters.values()
        keywords = [
            Parameter(
                entry.name, Parameter.KEYWORD_ONLY, default=entry.default, annotation=entry.type
            )
            for group in groups
            for entry in own_options(group)
            if entry.name not in signature.parameters
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
    """Name keywords in errors of input, such as ``recovery=L`` in place of ``--recovery L``."""
    try:
        yield
    except (InputError, InfeasibleError) as error:
        given = {}
        for entry in (entry for group in groups for entry in own_options(group)):
            flag, _, _ = entry.metadata["shown"]["flag"].partition(" ")
            choices = entry.metadata["shown"].get("choices") or ()
            given[flag] = entry.name, choices, isinstance(entry.default, bool)

        def keyword(found: re.Match[str]) -> str:
            flag, value = found.groups()
            if flag not in given:
                return found[0]
            name, choices, is_switch = given[flag]
            if is_switch:
                return f"{name}=True{f' {value}' if value else ''}"
            if value in choices or value in _TRUTH:
                return f"{name}={_TRUTH.get(value, value)!r}"
            is_word = value is not None and value.isalpha() and value.islower()
            return f"{name}= {value}" if is_word else f"{name}={value or ''}"

        text, command, more = str(error).partition("cec-mpi ")  # commands stay as they are typed
        error.args = (_FLAG.sub(keyword, text) + command + more,)
        raise


def check_choices(group: type[Any], options: Any) -> None:
    """Raise if an option of this group is not one of its choices, or not a truth value."""
    for entry in own_options(group):
        shorten, value = entry.metadata["shown"], getattr(options, entry.name)
        choices = shorten.get("choices")
        if isinstance(value, bool) and "const" in shorten:  # the bare flag, or none
            continue
        if isinstance(entry.default, bool) and not choices and not isinstance(value, bool):
            raise InputError(f"{entry.name} {value!r}: expected True or False")
        if choices and value not in (entry.default, *choices):
            raise InputError(f"{entry.name} {value!r}: expected {' or '.join(choices)}")


def as_int(name: str, value: Any) -> int:
    """Convert an argument of this name to int, or raise `InputError`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} {value!r}: expected a whole number") from None


def as_float(name: str, value: Any) -> float:
    """Convert an argument of this name to float, or raise `InputError`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} {shorten(value)}: expected a number")
    return float(value)


def as_tuple(name: str, value: Any, what: str) -> tuple[Any, ...]:
    """Convert an iterable argument of this name to a tuple, or raise `InputError`."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name} {shorten(value)}: expected {what}")
    return tuple(value)
