"""Text tables, CSV and TSV: found once line by line, then parsed where they are read."""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.sources.base import FileSource, counted, fill, stamp, unreadable
from cec_mpi.text import few, nearest, plural

_SPACES = re.compile(r"\s+")
_MISSING = {"", "?", "-", "--", ".", "na", "n/a", "#n/a", "null", "none", "missing"}
_MOST_IN_QUOTES = 16 << 20  # bytes of one row with line breaks in quotes
_DELIMITERS = {"comma": ",", "tab": "\t", r"\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}
_RANGE = re.compile(r"(\d+)-(\d+)")
_LISTED = 8
_LONGEST = 40  # characters of a name
_APART = 1 << 18  # bytes between two remembered places in the file, or a row where it is longer
_SHOWN = 40  # characters of a cell
_UNNAMED = ("", "Unnamed: 0")  # what pandas calls the column of an index, written once or twice


def records(file: Iterable[bytes], delimiter: str) -> Iterator[tuple[bytes, int]]:
    """Rows, comments and empty lines of a table, each with the number of lines that it takes.

    A line break in quotes ends a line, not a row.

    Parameters
    ----------
    file : iterable of bytes
        Gives lines.
    delimiter : str
        One character; a blank stands for any white space.

    Raises
    ------
    InputError
        A quote is not closed.
    """
    rest = iter(file)
    number = 1
    for line in rest:
        lines = 1
        if b'"' in line and line.count(b'"') % 2 and is_row(line):
            parts, size = [line], len(line)
            is_open = _split(line.decode("latin-1"), delimiter)[1]
            while is_open:
                more = next(rest, b"")
                parts.append(more)
                size += len(more)
                lines += 1
                if not more or size > _MOST_IN_QUOTES:
                    raise InputError(f"line {number} opens a quote that no line closes")
                if b'"' in more:
                    is_open = _split(f'"{more.decode("latin-1")}', delimiter)[1]
            line = b"".join(parts)
        yield line, lines
        number += lines


def is_row(line: bytes) -> bool:
    """Whether a line is neither empty nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith(b"#")


def cells_of(row: bytes, delimiter: str) -> list[str]:
    """The cells of a row, without their quotes and the blanks around them."""
    return _split(row.decode("utf-8-sig", errors="replace"), delimiter)[0]


def count_cells(row: bytes, delimiter: str) -> int:
    """How many cells a row has."""
    if b'"' in row:
        return len(cells_of(row, delimiter))
    return len(row.split()) if delimiter == " " else row.count(delimiter.encode()) + 1


def is_number(word: str) -> bool:
    """Whether a cell holds a number, NaN and infinity among them.

    Examples
    --------
    >>> [is_number(word) for word in ("-1.5e3", "nan", "inf", "", "?", "1_000", "1,5")]
    [True, True, True, False, False, False, False]
    """
    try:
        float(word)
    except ValueError:
        return False
    return word.isascii() and "_" not in word  # which Python alone takes


def names_or_numbers(cells: list[str]) -> bool | None:
    """Whether the first row of a table is a header; None where nobody can tell.

    Examples
    --------
    >>> names_or_numbers(["age", "size"]), names_or_numbers(["1", "nan"])
    (True, False)
    >>> names_or_numbers(["1", "?", "3"]), names_or_numbers(["?", ""])
    (None, None)
    """
    numbers = sum(map(is_number, cells))
    if numbers == len(cells):
        return False
    if numbers or all(cell.lower() in _MISSING for cell in cells):
        return None
    return True


def _split(text: str, delimiter: str) -> tuple[list[str], bool]:
    """Cells, and whether the last one is in quotes that are still to be closed."""
    gap = _SPACES if delimiter == " " else re.compile(re.escape(delimiter))
    text = text.strip() if delimiter == " " else text
    cells: list[str] = []
    at = 0
    while True:
        quoted = ""
        if text.startswith('"', at):  # elsewhere in a cell a quote is a letter
            at += 1
            while (end := text.find('"', at)) >= 0 and text.startswith('"', end + 1):
                quoted += text[at : end + 1]
                at = end + 2
            if end < 0:
                return [*cells, quoted + text[at:]], True
            quoted += text[at:end]
            at = end + 1
        found = gap.search(text, at)
        stop = found.start() if found else len(text)
        cells.append((quoted + text[at:stop]).strip())
        if not found:
            return cells, False
        at = found.end()


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


@dataclass(frozen=True, kw_only=True)
class TableSource(FileSource):
    """Rows of numbers as text.

    Attributes
    ----------
    delimiter : str
        One character; a blank for any white space.
    names : tuple of str
        Of all columns of the file; empty where it has no header.
    width : int
        How many columns the file has.
    kept : tuple of int
        Those that are read, from 0.
    targets : tuple of (int, Path)
        Columns that are kept apart, and the files that they go to.
    rows, places, lines : (k,) ndarray of int64
        Numbers of some rows, where they begin in the file, in bytes, and in which line, from 1;
        at last the number of all rows and the end of the file.
    """

    delimiter: str
    names: tuple[str, ...] = field(repr=False)
    width: int
    kept: tuple[int, ...] = field(repr=False)
    targets: tuple[tuple[int, Path], ...]
    rows: NDArray[np.int64] = field(repr=False)
    places: NDArray[np.int64] = field(repr=False)
    lines: NDArray[np.int64] = field(repr=False)
    copies: ClassVar[int] = 4

    @property
    def column_names(self) -> tuple[str, ...]:
        """Of the columns that are read."""
        return tuple(self.names[at] for at in self.kept) if self.names else ()

    def only(self, column: int) -> TableSource:
        """One column of the file, by its place from 0."""
        return replace(self, kept=(column,), shape=(self.shape[0], 1))

    def where(self, row: int, column: int) -> str:
        """Line and column of an entry, as an editor and a spreadsheet count them."""
        stretch = int(np.searchsorted(self.rows, row, side="right")) - 1
        with self.path.open("rb") as file:
            walked = [line for _, line in self._walk(file, stretch)]
        within = row - int(self.rows[stretch])
        if within >= len(walked):
            return counted(row, column)  # it has been written to meanwhile
        line = walked[within]
        return f"line {line}, {named(self.kept[column], self.names)}"

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        """Parse the lines of a rectangle."""
        first = int(np.searchsorted(self.rows, start, side="right")) - 1
        with self.path.open("rb") as file:
            for stretch in range(first, int(np.searchsorted(self.rows, stop))):
                begin, end = (int(row) for row in self.rows[stretch : stretch + 2])
                walked = list(self._walk(file, stretch))
                if len(walked) != end - begin:
                    raise InputError(f"{self.path} has other rows than before: it was written to")
                wanted = walked[max(start - begin, 0) : stop - begin]
                top = max(begin - start, 0)
                self._parse(wanted, self.kept[left:right], out[top : top + len(wanted)])

    def _walk(self, file: BinaryIO, stretch: int) -> Iterator[tuple[bytes, int]]:
        """The rows from one remembered place to the next, each with its line."""
        place, end = (int(place) for place in self.places[stretch : stretch + 2])
        line = int(self.lines[stretch])
        file.seek(place)
        text = file.read(end - place)
        if len(text) < end - place:
            raise InputError(f"{self.path} ends before its last row: it was cut short")
        for record, lines in records(BytesIO(text), self.delimiter):
            if is_row(record):
                yield record, line
            line += lines

    def _parse(
        self, rows: list[tuple[bytes, int]], columns: tuple[int, ...], out: NDArray[Any]
    ) -> None:
        everything = columns == tuple(range(self.width))
        try:
            numbers = np.loadtxt(
                BytesIO(b"".join(row for row, _ in rows)),
                delimiter=None if self.delimiter == " " else self.delimiter,
                comments=None,
                quotechar='"',
                usecols=None if everything else columns,
                ndmin=2,
                encoding="latin-1",  # which any text is; numbers are ASCII
            )
        except ValueError as error:
            raise InputError(self._problem(rows, columns, str(error))) from None
        if numbers.shape != out.shape:
            raise InputError(
                f"{self.path} is no table of numbers from line {rows[0][1]} on: expected "
                f"{out.shape[0]} rows of {out.shape[1]} columns, found {numbers.shape}"
            )
        fill(out, numbers)

    def _problem(self, rows: list[tuple[bytes, int]], columns: tuple[int, ...], reason: str) -> str:
        """The first cell that is no number; NumPy's own message where there is none."""
        for row, line in rows:
            cells = cells_of(row, self.delimiter)
            for at in columns:
                if at < len(cells) and not is_number(cells[at]):
                    return (
                        f"{self.path} is no table of numbers: line {line}, "
                        f"{named(at, self.names)} is {_shown(cells[at])}, expected a number"
                        f"{_advice(cells[at], self.delimiter)}"
                    )
        short = reason.split("\n")[0].split(";")[0].rstrip(".")
        return f"{self.path} is no table of numbers after line {rows[0][1]}: {short}"


def table_source(path: Path, delimiter: str, options: TableOptions) -> TableSource:
    """Find the rows of a table, and its columns.

    Parameters
    ----------
    path : Path
    delimiter : str
        By the name of the file.
    options : TableOptions

    Raises
    ------
    InputError
        It cannot be read, its rows are of different widths, nobody can say whether its first
        row is a header, or `options` do not fit.
    """
    scan = _Scan(path, options.delimiter or delimiter, options.header)
    try:
        stamps = (stamp(path),)
        with path.open("rb") as file:
            scan.read(file)
    except OSError as error:
        raise unreadable(path, error) from None
    chosen = choose_columns(path, scan.names, scan.width, options)
    if 0 in chosen.kept and len(scan.names) > 1 and scan.names[0] in _UNNAMED:
        called = f"the name {scan.names[0]}" if scan.names[0] else "no name"
        scan.warnings.append(
            f"column 1 has {called}, as the index of a data frame has: it is a column of X now, "
            "--drop 1 leaves it out"
        )
    rows, places, lines = np.array(scan.marks, dtype=np.int64).reshape(-1, 3).T.copy()
    return TableSource(
        path=path,
        shape=(scan.rows, len(chosen.kept)),
        dtype=np.dtype(np.float64),
        stamps=stamps,
        warning="; ".join(f"{path}: {each}" for each in scan.warnings),
        delimiter=scan.delimiter,
        names=scan.names,
        width=scan.width,
        kept=chosen.kept,
        targets=tuple(
            (at, file) for at, (_, file) in zip(chosen.targets, options.targets, strict=False)
        ),
        rows=rows,
        places=places,
        lines=lines,
    )


class _Scan:
    """What one walk through the file finds."""

    def __init__(self, path: Path, delimiter: str, header: bool | None) -> None:
        self.path = path
        self.delimiter = delimiter
        self.header = header
        self.names: tuple[str, ...] = ()
        self.width = self.rows = 0
        self.marks: list[tuple[int, int, int]] = []  # row, place, line
        self.warnings: list[str] = []
        self._first = 0  # line of the first row, or of the header

    def read(self, file: BinaryIO) -> None:
        """Walk through all lines."""
        place, line = 0, 1
        start = file.read(3)
        if start[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) or b"\0" in start:
            raise InputError(f"{self.path} is UTF-16 or no text: expected a table in UTF-8")
        place = len(BOM_UTF8) if start == BOM_UTF8 else 0
        file.seek(place)
        try:
            for record, lines in records(file, self.delimiter):
                if is_row(record):
                    self._take(record, place, line)
                elif self.rows and not self.warnings and self.width > 1 and record.strip():
                    self._doubt(record, line)
                place += len(record)
                line += lines
        except InputError as error:
            text = str(error)
            raise InputError(text if str(self.path) in text else f"{self.path}: {text}") from None
        self.marks.append((self.rows, place, line))

    def _take(self, record: bytes, place: int, line: int) -> None:
        width = count_cells(record, self.delimiter)
        if not self._first:
            self._first, self.width = line, width
            if b"\r" in record.rstrip(b"\r\n"):
                raise InputError(
                    f"{self.path}: line {line} has a carriage return within it: expected lines "
                    "that end with a line feed"
                )
            if self._is_header(record, line):
                self.names = tuple(cells_of(record, self.delimiter))
                return
        if width != self.width:
            is_other = self.delimiter == "," and b";" in record
            raise InputError(
                f"{self.path} is no table: line {line} has {plural(width, 'column')}, "
                f"line {self._first} has {self.width}"
                f"{' (or --delimiter semicolon, and decimal points)' if is_other else ''}"
            )
        if not self.marks or place - self.marks[-1][1] >= _APART:
            self.marks.append((self.rows, place, line))
        self.rows += 1

    def _is_header(self, record: bytes, line: int) -> bool:
        if self.header is not None:
            return self.header
        cells = cells_of(record, self.delimiter)
        found = names_or_numbers(cells)
        if found and any(_advice(cell, self.delimiter) for cell in cells):
            found = None  # they look like numbers of another delimiter
        if found is None:
            at = next(at for at, cell in enumerate(cells) if not is_number(cell))
            what = "numbers and" if any(map(is_number, cells)) else "no names:"
            raise InputError(
                f"{self.path}: line {line} has {what} {_shown(cells[at])} in column {at + 1}: "
                "--header yes takes it for the names of columns, --header no for numbers"
                f"{_advice(cells[at], self.delimiter)}"
            )
        return found

    def _doubt(self, record: bytes, line: int) -> None:
        """Warn of a comment that looks like a row."""
        if count_cells(record, self.delimiter) == self.width:
            self.warnings.append(f"line {line} and others that begin with # are taken for comments")


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _SHOWN else f"{cell[:_SHOWN]}...") if cell else "an empty cell"


def _advice(cell: str, delimiter: str) -> str:
    """What a cell that is no number looks like, if it looks like something."""
    for other, name in (("\t", "tab"), (";", "semicolon"), (",", "comma"), ("|", "pipe")):
        parts = cell.split(other)
        if other != delimiter and len(parts) > 1 and all(map(is_number, parts)):
            if other == "," and len(parts) == 2:
                return " (decimal points, not commas)"
            return f" (or --delimiter {name})"
    return ""
