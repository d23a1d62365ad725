"""Which columns of a text table are X, and which are kept apart."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cec_mpi.errors import InputError
from cec_mpi.text import few, nearest

_DELIMITERS = {"comma": ",", "tab": "\t", r"\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}
_RANGE = re.compile(r"(\d+)-(\d+)")
_LISTED = 8
_LONGEST = 40  # characters of a name


@dataclass(frozen=True)
class TableOptions:
    """How a text table is read.

    Attributes
    ----------
    header : bool or None
        Whether its first row has the names of its columns; None where that row shows it.
    delimiter : str or None
        One character; a blank for any white space; None goes by the name of the file.
    columns, drop : tuple of str or int
        Names or numbers from 1 of the columns that are X, or are not; no columns: all.
    targets : tuple of (str or int, Path)
        Columns that are not X, and the files that they go to.
    """

    header: bool | None = None
    delimiter: str | None = None
    columns: tuple[str | int, ...] = ()
    drop: tuple[str | int, ...] = ()
    targets: tuple[tuple[str | int, Path], ...] = ()

    @property
    def given(self) -> str:
        """One of the options that is given, if any is."""
        words = {
            "header": self.header is not None,
            "delimiter": self.delimiter is not None,
            "columns": self.columns,
            "drop": self.drop,
            "target": self.targets,
        }
        return next((word for word, is_given in words.items() if is_given), "")


@dataclass(frozen=True)
class Columns:
    """Columns by their places in the file, from 0.

    Attributes
    ----------
    kept : tuple of int
        Those of X, in its order.
    targets : tuple of int
        Those that go to files of their own.
    """

    kept: tuple[int, ...]
    targets: tuple[int, ...]


def table_options(
    header: bool | None,
    delimiter: str | None,
    columns: Iterable[str | int] | None,
    drop: Iterable[str | int] | None,
    targets: Mapping[str | int, str | os.PathLike[str]] | None,
) -> TableOptions:
    """Check options that a user gave.

    Raises
    ------
    InputError
        A delimiter that is none, a list of columns that is a text, or a target without an
        ``.npy`` file of its own.
    """
    for name, given in (("columns", columns), ("drop", drop)):
        if isinstance(given, str):
            raise InputError(f"{name} {given!r}: expected a list of names or numbers")
    files = tuple((column, Path(file)) for column, file in (targets or {}).items())
    for column, file in files:
        if file.suffix.lower() != ".npy":
            raise InputError(f"target {column}:{file}: expected the name of an .npy file")
    if len({file.absolute() for _, file in files}) < len(files):
        raise InputError("several targets go to one file: expected a file for each")
    return TableOptions(
        header=header,
        delimiter=None if delimiter is None else checked_delimiter(delimiter),
        columns=tuple(columns or ()),
        drop=tuple(drop or ()),
        targets=files,
    )


def checked_delimiter(text: str) -> str:
    """One character, given as such or by its name.

    Raises
    ------
    InputError
        It is none, or one that numbers have.
    """
    found = _DELIMITERS.get(text, text)
    letter = found.isalnum() or not found.isascii() or found in '"#+-._\r\n\0'
    if len(found) != 1 or letter:
        raise InputError(
            f"delimiter {text!r}: expected one character that numbers do not have, or one of "
            f"{', '.join(name for name in _DELIMITERS if name.isalpha())}"
        )
    return found


def choose_columns(
    path: Path, names: tuple[str, ...], width: int, options: TableOptions
) -> Columns:
    """Find the columns that options name.

    Parameters
    ----------
    path : Path
        For errors.
    names : tuple of str
        Of all columns; empty where the file has no header.
    width : int
        How many columns there are.
    options : TableOptions

    Raises
    ------
    InputError
        There is no such column, one is named twice, or none is left.
    """

    def find(option: str, words: Iterable[str | int]) -> list[int]:
        return [at for word in words for at in _find(path, option, word, names, width)]

    if not width:
        return Columns((), ())
    kept = find("columns", options.columns) or list(range(width))
    targets = find("target", (column for column, _ in options.targets))
    for option, found in (("columns", kept), ("target", targets)):
        if len(set(found)) < len(found):
            twice = next(at for at in found if found.count(at) > 1)
            raise InputError(f"{option}: {named(twice, names)} of {path} is there twice")
    if len(targets) != len(options.targets):
        raise InputError(f"target: expected one column of {path} for each file")
    gone = {*find("drop", options.drop), *targets}
    kept = [at for at in kept if at not in gone]
    if not kept:
        raise InputError(f"{path} has {width} columns, and none of them is left")
    return Columns(tuple(kept), tuple(targets))


def named(at: int, names: tuple[str, ...]) -> str:
    """A column as a person finds it: its number from 1, and its name."""
    name = " ".join(names[at].split()) if at < len(names) else ""
    name = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return f"column {at + 1} ({name})" if name else f"column {at + 1}"


def _find(path: Path, option: str, word: str | int, names: tuple[str, ...], width: int) -> range:
    text = str(word).strip()
    if isinstance(word, str) and text and text in names:
        places = [at for at, name in enumerate(names) if name == text]
        if len(places) > 1:
            numbers = ", ".join(str(at + 1) for at in places)
            raise InputError(
                f"{option} {text!r}: {path} has {len(places)} columns of this name, expected the "
                f"number of one ({numbers})"
            )
        return range(places[0], places[0] + 1)
    between = _RANGE.fullmatch(text)
    first, last = (int(end) for end in between.groups()) if between else (text, text)
    if str(first).isdecimal() and str(last).isdecimal():
        if not 1 <= int(first) <= int(last) <= width:
            raise InputError(f"{option} {text!r}: {path} has columns 1 to {width}")
        return range(int(first) - 1, int(last))
    raise InputError(f"{option} {text!r}: {path} has no such column: {_what_there_is(text, names)}")


def _what_there_is(text: str, names: tuple[str, ...]) -> str:
    if not any(names):
        return "it has no names of columns, expected numbers from 1"
    alike = (name for name in names if name.lower() == text.lower())
    if close := nearest(text, names) or next(alike, ""):
        return f"did you mean {close!r}?"
    return f"it has {few(names, _LISTED)}"
