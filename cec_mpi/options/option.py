"""An option, written once: a field of a frozen group is a flag, and a keyword in Python."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import Field, field, fields
from inspect import Parameter
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from cec_mpi.errors import InputError
from cec_mpi.text import shown

if TYPE_CHECKING:
    import argparse

    from cec_mpi.core.plan.placement import Placement
    from cec_mpi.store.format.manifest import Manifest

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

STUDIES = "for tests and studies: simulated availability, speeds and faults"
"""Title of the options that make a run behave as if machines came and went."""


def option(
    default: Any,
    flag: str = "",
    text: str = "",
    parse: Callable[[str], Any] | None = None,
    *,
    alone: bool = False,
    elastic: bool = False,
    is_common: bool = False,
    below: str = "",
    flags_of: type[Any] | None = None,
    **more: Any,
) -> Any:
    """A field of a group: what a command has of it is an attribute of the same name.

    Parameters
    ----------
    default
        Of the flag, and of the keyword.
    flag, text, parse, **more
        As for `add_flag`. Choices hold for the keyword, too.
    alone : bool
        Excludes the other flags of its group that say so.
    elastic : bool
        Another value than the default makes a run elastic.
    is_common : bool
        The short help of a command shows it.
    below : str
        The title in the help, if it is not that of the group.
    flags_of : type, optional
        The group whose flags say together what this one keyword says.
    """
    shown = {"flag": flag, "text": text, "parse": parse, **more}
    marks: dict[str, Any] = {"alone": alone, "elastic": elastic, "flags_of": flags_of}
    marks |= {"is_common": is_common, "below": below, "shown": shown}
    return field(default=default, metadata=marks)


class Group:
    """Options that belong together: a frozen dataclass whose fields `option` makes."""

    title: ClassVar[str] = ""  # above its flags, in the help of a command

    def completed(self, manifest: Manifest, placement: Placement) -> dict[str, Any]:
        """Check these options against a store whose shards machines have in this placement.

        Returns what takes the place of some.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        """
        raise NotImplementedError


def own_options(group: type[Any]) -> Iterator[Field[Any]]:
    """Options of a group, without those of the groups that it extends."""
    own = inspect.get_annotations(group)
    return (each for each in fields(group) if each.name in own and each.metadata)


def add_flag(
    parser: Any,
    flag: str,
    text: str = "",
    parse: Callable[[str], Any] | None = None,
    default: Any = None,
    **more: Any,
) -> None:
    """Give a command a flag.

    Parameters
    ----------
    parser : argparse.ArgumentParser, or a group in it
    flag : str
        With what stands for its value: ``"--tick SECONDS"``.
    text : str
        Of the help.
    parse : callable, optional
        Makes a value of text.
    default
        With False or True the flag has no value, and changes it; where it is a tuple, the flag may
        be given several times, or with ``nargs`` several values.
    **more
        For `argparse.ArgumentParser.add_argument`: choices, dest, nargs, required.
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
    """Give a command the flag of one option of a group; some of it may be other."""
    (each,) = (each for each in own_options(group) if each.name == name)
    add_flag(parser, dest=name, default=each.default, **{**each.metadata["shown"], **other})


def add_options(parser: Any, group: type[Any]) -> None:
    """Give a command the flags of all options of a group, below their titles if they have any."""
    alone = None
    for each in own_options(group):
        below = _titled(parser, each.metadata["below"] or getattr(group, "title", ""))
        if each.metadata["flags_of"] is not None:
            add_options(below, each.metadata["flags_of"])
        elif each.metadata["alone"]:
            alone = alone or below.add_mutually_exclusive_group()
            add_option(alone, group, each.name)
        else:
            add_option(below, group, each.name)


def _titled(parser: Any, title: str) -> Any:
    """The part of a command's help with this title; the command itself without one."""
    found = [part for part in parser._action_groups if part.title == title]
    return found[0] if found else parser.add_argument_group(title) if title else parser


def common_options(group: type[Any]) -> Iterator[str]:
    """Names of the options of a group that the short help of a command shows."""
    return (each.name for each in own_options(group) if each.metadata["is_common"])


def from_flags(group: type[T], arguments: argparse.Namespace) -> T:
    """A group as a command's flags have it."""
    given = {}
    for each in fields(group):  # type: ignore[arg-type]
        nested = each.metadata.get("flags_of")
        if nested is not None:
            value = from_flags(nested, arguments)
            value = None if value == nested() else value
        else:
            value = getattr(arguments, each.name)
        given[each.name] = tuple(value) if isinstance(value, list) else value
    return group(**given)


def with_keywords(*groups: type[Any]) -> Callable[[F], F]:
    """Give a function with ``**options`` the options of groups: its signature and its help."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *others, _ = signature.parameters.values()
        keywords = [
            Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for group in groups
            for each in own_options(group)
            if each.name not in signature.parameters
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


def check_choices(group: type[Any], options: Any) -> None:
    """Refuse a value that is none of the choices of an option of this group."""
    for each in own_options(group):
        shown, value = each.metadata["shown"], getattr(options, each.name)
        choices = shown.get("choices")
        if isinstance(value, bool) and "const" in shown:  # the bare flag, or none
            continue
        if choices and value not in (each.default, *choices):
            raise InputError(f"{each.name} {value!r}: expected {' or '.join(choices)}")


def whole_number(name: str, value: Any) -> int:
    """What a program gives as the whole number of this name."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} {value!r}: expected a whole number") from None


def real_number(name: str, value: Any) -> float:
    """What a program gives as the number of this name."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} {shown(value)}: expected a number")
    return float(value)


def several(name: str, value: Any, what: str) -> tuple[Any, ...]:
    """What a program gives as several of something under this name."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name} {shown(value)}: expected {what}")
    return tuple(value)
