"""Text tables, CSV and TSV: pandas reads the numbers, csv says which line is a bad one."""

from __future__ import annotations

import csv
import re
import warnings
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources.source import Unread, stamps_of, unreadable
from cec_mpi.errors import InputError
from cec_mpi.text import few, nearest, plural

_MISSING = {"", "?", "-", "--", ".", "na", "n/a", "#n/a", "null", "none", "missing"}
_TOGETHER_BYTES = 4 << 20  # of text
_MOST_IN_QUOTES = 16 << 20  # bytes of one row with line breaks in quotes
_RANGE = re.compile(r"(\d+)-(\d+)")
_LISTED = 8
_LONGEST = 40  # characters of a name
_SHOWN = 40  # characters of a cell
_UNNAMED = ("", "Unnamed: 0")  # what pandas calls the column of an index, written once or twice
_END = b"end"
_EXACT = (3, 1)  # the version of pandas that reads all digits by default


class _BadRowError(Exception):
    """What is wrong with the row that begins with this line, from 0."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(problem)


def _rows(lines: Iterable[bytes], delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """Rows of a table: the line that they begin with, from 0, the one after them, and cells.

    A line break in quotes ends a line, not a row. Empty lines are no rows.

    Raises
    ------
    _BadRowError
        A line has a carriage return within it, or a cell is too long.
    """
    texts = (line.decode(errors="replace") for line in lines)
    if delimiter == " ":
        texts = (f"{' '.join(text.split())}\n" for text in texts)
    reader, begin = csv.reader(texts, delimiter=delimiter), 0
    try:
        for row in reader:
            if row and not (len(row) == 1 and row[0].isspace()):
                yield begin, reader.line_num, row
            begin = reader.line_num
    except csv.Error as error:
        problem = f"cannot be read: {error}"
        if "new-line" in str(error):
            problem = "has a carriage return within it: expected lines that end with a line feed"
        raise _BadRowError(begin, problem) from None


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


def choose_columns(
    path: Path, names: tuple[str, ...], width: int, options: EncodeOptions
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
    options : EncodeOptions

    Raises
    ------
    InputError
        There is no such column, one is named twice, or none is left.
    """

    def find(option: str, words: Iterable[str | int]) -> list[int]:
        return [at for word in words for at in _find(path, option, word, names, width)]

    if not width:
        return Columns((), ())
    kept = find("columns", options.columns or ()) or list(range(width))
    targets = find("target", (column for column, _ in options.target))
    for option, found in (("columns", kept), ("target", targets)):
        if len(set(found)) < len(found):
            twice = next(at for at in found if found.count(at) > 1)
            raise InputError(f"{option}: {named(twice, names)} of {path} is there twice")
    if len(targets) != len(options.target):
        raise InputError(f"target: expected one column of {path} for each file")
    gone = {*find("drop", options.drop or ()), *targets}
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


@dataclass(frozen=True, kw_only=True, eq=False)
class TextTable(Unread):
    """Rows of numbers as text.

    Attributes
    ----------
    path : Path
    delimiter : str
        One character; a blank for any white space.
    names : tuple of str
        Of all columns of the file; empty where it has no header.
    width : int
        How many columns the file has.
    kept : tuple of int
        Those that are X, from 0.
    first : int
        The line of the header, or of the first row, from 1.
    begin : tuple of int
        Where numbers begin: a place in the file, in bytes, and its line.
    """

    path: Path
    delimiter: str
    names: tuple[str, ...] = field(repr=False)
    width: int
    kept: tuple[int, ...] = field(repr=False)
    first: int
    begin: tuple[int, int]

    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Parse some rows at a time."""
        done = 0
        for line, lines in self._whole_rows():
            try:
                numbers = self._parsed(lines)
            except (ValueError, _BadRowError):  # pandas does not say in which line
                raise InputError(self._problem(line, lines, dtype)) from None
            with np.errstate(over="ignore"):
                if not np.isfinite(numbers.astype(dtype)).all():
                    raise InputError(self._problem(line, lines, dtype))
            if len(numbers):
                yield done, 0, numbers
            done += len(numbers)

    def _whole_rows(self) -> Iterator[tuple[int, list[bytes]]]:
        """Lines that hold whole rows, some at a time, with the number of the first one."""
        place, line = self.begin
        rest: list[bytes] = []
        warned = self.width == 1
        with self.path.open("rb") as file:
            file.seek(place)
            while new := file.readlines(_TOGETHER_BYTES):
                for at, text in enumerate(new):
                    if b"#" in text and text.lstrip().startswith(b"#"):
                        if not warned and self._is_like_a_row(text):
                            warnings.warn(
                                f"{self.path}: line {line + len(rest) + at} and others that begin "
                                "with # are taken for comments",
                                stacklevel=2,
                            )
                            warned = True
                        new[at] = b"\n"
                lines = rest + new
                end = self._end_of_rows(lines)
                rest = lines[end:]
                if sum(map(len, rest)) > _MOST_IN_QUOTES:
                    break
                yield line, lines[:end]
                line += end
        if rest:
            raise InputError(f"{self.path}: line {line} opens a quote that no line closes")

    def _is_like_a_row(self, line: bytes) -> bool:
        return any(len(row) == self.width for _, _, row in _rows([line], self.delimiter))

    def _end_of_rows(self, lines: list[bytes]) -> int:
        """How many of these lines there are without a last row that is not at its end."""
        if not any(b'"' in line for line in lines):
            return len(lines)
        try:
            ((begin, _, row),) = deque(_rows([*lines, _END], self.delimiter), maxlen=1)
        except _BadRowError:  # it is found again, and said, when the row is parsed
            return len(lines)
        return len(lines) if row == [_END.decode()] else begin

    def _parsed(self, lines: list[bytes]) -> NDArray[Any]:
        """Numbers of X and of targets.

        Raises
        ------
        ValueError
            Not all rows have the width of the table, or a cell is no number.
        """
        columns = [*self.kept, *(at for at, _ in self.targets)]
        rows = [line for line in lines if not line.isspace()]
        if columns == list(range(self.width)) and not any(b'"' in line for line in rows):
            cells = self._plain_cells(rows)
        else:
            picked = [row for _, _, row in _rows(lines, self.delimiter)]
            if any(len(row) != self.width for row in picked):
                raise ValueError
            cells = "\n".join([row[at] for row in picked for at in columns]).encode()
            rows = [b""] * len(picked)
        if not rows:
            return np.empty((0, len(columns)))
        import pandas

        version = tuple(map(int, pandas.__version__.split(".")[:2]))
        # One column whatever the width: each column of a frame takes time.
        frame = pandas.read_csv(
            BytesIO(cells),
            header=None,
            dtype=np.float64,
            na_filter=False,
            skip_blank_lines=False,
            quoting=csv.QUOTE_NONE,
            encoding="latin-1",  # which any text is; numbers are ASCII
            **({} if version >= _EXACT else {"float_precision": "round_trip"}),
        )
        if frame.shape != (len(rows) * len(columns), 1):  # as with a line break within a cell
            raise ValueError
        numbers: NDArray[Any] = frame.to_numpy().reshape(len(rows), len(columns))
        return numbers

    def _plain_cells(self, rows: list[bytes]) -> bytes:
        """Cells of rows without quotes, a line for each."""
        if self.delimiter == " ":
            if any(len(row.split()) != self.width for row in rows):
                raise ValueError
            return b"\n".join(b" ".join(rows).split())
        separator = self.delimiter.encode()
        if any(row.count(separator) != self.width - 1 for row in rows):
            raise ValueError
        return b"\n".join([row.rstrip(b"\r\n") for row in rows]).replace(separator, b"\n")

    def _problem(self, line: int, lines: list[bytes], dtype: np.dtype[Any]) -> str:
        """What is wrong with the first bad row."""
        targets = [at for at, _ in self.targets]
        try:
            for begin, _, row in _rows(lines, self.delimiter):
                if len(row) != self.width:
                    is_other = self.delimiter == "," and any(";" in cell for cell in row)
                    return (
                        f"{self.path} is no table: line {line + begin} has "
                        f"{plural(len(row), 'column')}, line {self.first} has {self.width}"
                        f"{' (or --delimiter semicolon, and decimal points)' if is_other else ''}"
                    )
                for at in sorted({*self.kept, *targets}):
                    cell = row[at].strip()
                    place = f"line {line + begin}, {named(at, self.names)}"
                    if not is_number(cell):
                        return (
                            f"{self.path} is no table of numbers: {place} is {_shown(cell)}, "
                            f"expected a number{_advice(cell, self.delimiter)}"
                        )
                    with np.errstate(over="ignore"):
                        is_finite = np.isfinite(np.float64(cell).astype(dtype))
                    if not is_finite:
                        is_target = ", a target" if at in targets else ""
                        return (
                            f"{self.path} holds {np.float64(cell)} at {place}{is_target}: "
                            f"expected finite numbers that fit {dtype}"
                        )
        except _BadRowError as error:
            return f"{self.path} is no table: line {line + error.line} {error}"
        return f"{self.path} is no table of numbers after line {line}"


def text_table(path: Path, delimiter: str, options: EncodeOptions) -> TextTable:
    """Look at the first row of a table, and find its columns.

    Parameters
    ----------
    path : Path
    delimiter : str
        By the name of the file.
    options : EncodeOptions

    Raises
    ------
    InputError
        It cannot be read, nobody can say whether its first row is a header, or `options` do not
        fit.
    """
    between = options.delimiter or delimiter
    try:
        stamps = stamps_of(path)
        with path.open("rb") as file:
            first, cells, following = _first_row(path, file, between)
            place, line = file.tell(), following
            names = tuple(cells) if _is_header(path, first, cells, between, options.header) else ()
            if not names:
                place, line = _begin(file), 1
    except OSError as error:
        raise unreadable(path, error) from None
    chosen = choose_columns(path, names, len(cells), options)
    warning = ""
    if 0 in chosen.kept and len(names) > 1 and names[0] in _UNNAMED:
        called = f"the name {names[0]}" if names[0] else "no name"
        warning = (
            f"{path}: column 1 has {called}, as the index of a data frame has: it is a column of X "
            "now, --drop 1 leaves it out"
        )
    files = (Path(file) for _, file in options.target)
    return TextTable(
        name=str(path),
        path=path,
        shape=(0, len(chosen.kept)),
        dtype=np.dtype(np.float64),
        column_names=tuple(names[at] for at in chosen.kept) if names else (),
        warning=warning,
        stamps=stamps,
        stamps_now=partial(stamps_of, path),
        targets=tuple(zip(chosen.targets, files, strict=False)),
        delimiter=between,
        names=names,
        width=len(cells),
        kept=chosen.kept,
        first=first,
        begin=(place, line),
    )


def _begin(file: BinaryIO) -> int:
    """Go to where text begins, behind a byte order mark."""
    file.seek(0)
    file.seek(len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0)
    return file.tell()


def _first_row(path: Path, file: BinaryIO, delimiter: str) -> tuple[int, list[str], int]:
    """The line of the first row, its cells, and the line after it; the file is read so far."""
    start = file.read(3)
    if start[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) or b"\0" in start:
        raise InputError(f"{path} is UTF-16 or no text: expected a table in UTF-8")
    _begin(file)

    def lines() -> Iterator[bytes]:
        size = 0
        while line := file.readline():
            is_between = not line.strip() or line.lstrip().startswith(b"#")
            size += 0 if is_between else len(line)
            if size > max(_MOST_IN_QUOTES, len(line)):
                raise InputError(f"{path}: its first row opens a quote that no line closes")
            yield b"\n" if is_between else line

    try:
        for begin, end, row in _rows(lines(), delimiter):
            return begin + 1, [cell.strip() for cell in row], end + 1
    except _BadRowError as error:
        raise InputError(f"{path}: line {error.line + 1} {error}") from None
    return 1, [], 1


def _is_header(path: Path, line: int, cells: list[str], delimiter: str, given: bool | None) -> bool:
    """Whether the first row has the names of columns."""
    if given is not None or not cells:
        return bool(given)
    found = names_or_numbers(cells)
    if found and any(_advice(cell, delimiter) for cell in cells):
        found = None  # they look like numbers of another delimiter
    if found is None:
        at = next(at for at, cell in enumerate(cells) if not is_number(cell))
        what = "numbers and" if any(map(is_number, cells)) else "no names:"
        raise InputError(
            f"{path}: line {line} has {what} {_shown(cells[at])} in column {at + 1}: "
            "--header yes takes it for the names of columns, --header no for numbers"
            f"{_advice(cells[at], delimiter)}"
        )
    return found


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
