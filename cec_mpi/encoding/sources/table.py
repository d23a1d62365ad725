"""Reading of text tables (CSV, TSV) with pandas, in blocks of rows.

A block that pandas rejects is parsed again cell by cell, so that errors name the line and column.
"""

from __future__ import annotations

import csv
import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO, StringIO
from itertools import islice, pairwise
from pathlib import Path
from string import whitespace
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.rounding import NO_ROUNDING, Rounding, warn_of_rounding
from cec_mpi.encoding.sources.columns import choose_columns, column_label, column_selector
from cec_mpi.encoding.sources.source import StreamedMatrix, file_stamps, read_error
from cec_mpi.errors import InputError
from cec_mpi.text import plural, truncate, warn_caller

_MISSING_MARKS = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "-NaN", "null", "None", "?", ".", r"\N")
_MISSING_LOWERCASE = {mark.lower() for mark in _MISSING_MARKS}
_MISSING_SPELLINGS = {
    change_case(mark)
    for mark in _MISSING_MARKS
    for change_case in (str, str.lower, str.upper, str.capitalize)
}
_NOT_NAMES = {*_MISSING_LOWERCASE, "-", "--", "missing"}
_BLOCK_BYTES = 8 << 20
_EXACT_PANDAS = (3, 1)  # the first version that parses floats exactly by default
_MAX_FRAME_COLUMNS = 500  # above this a DataFrame is slow
_COMMENT = re.compile(rb"^[ \t]*#.*", re.MULTILINE)
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER_WITH_COMMAS = re.compile(r"[+-]?(\d+,\d+|\d{1,3}(,\d{3})+(\.\d*)?)([eE][+-]?\d+)?")
_MAX_EXACT_INTEGER = 2.0**53
_MAX_LISTED = 5
_MAX_CELL_LENGTH = 40  # characters, in messages
_INDEX_NAMES = ("", "Unnamed: 0")  # names that pandas gives to an index column
_BOOLEANS = (b"true", b"True", b"TRUE", b"false", b"False", b"FALSE")
_SENTINEL = b"end"  # parsed as a row, unless a quote before it is open


class _BadRowError(Exception):
    """A row is invalid; `line` is its first line, from 0."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(problem)


def _iter_rows(lines: Iterable[bytes], delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the rows of a table: first line from 0, line after the last, and cells.

    A row may span lines, because quoted cells may have line breaks. Empty lines and comments are
    skipped.

    Raises
    ------
    _BadRowError
        A line has a NUL byte or a carriage return inside, or a cell is very long, for example
        because a quote is not closed.
    """
    start, is_row_start = 0, True

    def decoded_lines() -> Iterator[str]:
        nonlocal is_row_start
        for line in lines:
            if b"\0" in line:
                raise _BadRowError(start, "contains a NUL byte: the file is damaged or binary")
            is_skipped = False
            if is_row_start and line[:1] in b"# \t\r\n\v\f":
                is_blank = line.isspace() and (delimiter == " " or delimiter.encode() not in line)
                is_skipped = is_blank or line.lstrip().startswith(b"#")
            is_row_start = False
            text = "\n" if is_skipped else line.decode(errors="replace")
            # Trailing white space is not a delimiter.
            yield text.replace("\t", " ").rstrip() + "\n" if delimiter == " " else text

    reader = csv.reader(decoded_lines(), delimiter=delimiter, skipinitialspace=True)
    try:
        for row in reader:
            if row:
                yield start, reader.line_num, row
            start, is_row_start = reader.line_num, True
    except csv.Error as error:
        problem = f"cannot be read: {error}"
        if "new-line" in str(error):
            problem = "contains a carriage return, expected lines that end with a line feed"
        if "field limit" in str(error):
            problem = "opens a quote that is never closed, or has a very long cell"
        raise _BadRowError(start, problem) from None


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, including NaN and infinity.

    Examples
    --------
    >>> [is_number(word) for word in ("-1.5e3", "nan", "inf", "", "?", "1_000", "1,5")]
    [True, True, True, False, False, False, False]
    """
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell  # only Python allows underscores in numbers


def is_header_row(cells: list[str]) -> bool | None:
    """Return whether the first row of a table is a header; None if this is ambiguous.

    Examples
    --------
    >>> is_header_row(["age", "size"]), is_header_row(["1", "nan"])
    (True, False)
    >>> is_header_row(["1", "?", "3"]), is_header_row(["?", ""])
    (None, None)
    """
    number_count = sum(map(is_number, cells))
    if number_count == len(cells):
        return False
    if number_count or all(cell.lower() in _NOT_NAMES for cell in cells):
        return None
    return True


@dataclass(frozen=True, kw_only=True, eq=False)
class TextTable(StreamedMatrix):
    """A text table of numbers.

    Attributes
    ----------
    path : Path
    delimiter : str
        One character; a space stands for any white space.
    names : tuple of str
        Names of all columns of the file; empty without a header.
    width : int
        Number of columns of the file.
    columns : tuple of int
        Columns of X and of targets, counted from 0.
    first_line : int
        Line of the header or the first row, counted from 1.
    data_start : tuple of int
        Offset in bytes and line, counted from 1, from which rows of numbers are read.
    """

    path: Path
    delimiter: str
    names: tuple[str, ...] = field(repr=False)
    width: int
    columns: tuple[int, ...] = field(repr=False)
    first_line: int
    data_start: tuple[int, int]
    _last_block: list[Any] = field(default_factory=list, repr=False)  # first row, line and text

    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Yield parsed rows; missing values are NaN."""
        rows_parsed, rounding = 0, NO_ROUNDING
        for line, text in self._read_blocks():
            self._last_block[:] = rows_parsed, line, text
            numbers = self._parse(line, text)
            is_large = np.isfinite(numbers) & (np.abs(numbers) >= _MAX_EXACT_INTEGER)
            if is_large.any():
                rounding += self._measure_rounding(line, text, numbers, is_large)
            if len(numbers):
                yield rows_parsed, 0, numbers
            rows_parsed += len(numbers)
        warn_of_rounding(self.path, rounding, "float64")

    def location(self, row: int, column: int) -> str:
        """Return the location of a cell of the last block, for messages."""
        prefix = "target " if column >= self.shape[1] else ""
        return f"line {self._line_and_cells(row)[0]}, {prefix}{self.describe_column(column)}"

    def describe_column(self, column: int) -> str:
        """Return the number of a column in the file and its name, for messages."""
        return column_label(self.columns[column], self.names)

    def describe_missing(self, row: int, column: int) -> str:
        """Return the start of a message about a missing value."""
        cell = self._line_and_cells(row)[1][self.columns[column]].strip()
        return f"{self.path}: {self.location(row, column)} is {_format_cell(cell)}"

    def drop_advice(self, column: int) -> str:
        """Return the end of a message: the option that leaves a column out."""
        return f", --drop {column_selector(self.columns[column], self.names)} drops this column"

    def _line_and_cells(self, row: int) -> tuple[int, list[str]]:
        first_row, line, text = self._last_block
        return next(islice(self._checked_rows(line, text), row - first_row, None))

    def _checked_rows(self, line: int, text: bytes) -> Iterator[tuple[int, list[str]]]:
        """Yield the line and the cells of each row of a block; raise `InputError` if invalid."""
        try:
            for start, _, cells in _iter_rows(BytesIO(text), self.delimiter):
                if len(cells) != self.width:
                    hint = ""
                    if self.delimiter == "," and any(";" in cell for cell in cells):
                        hint = " (try --delimiter semicolon; numbers need decimal points)"
                    raise InputError(
                        f"{self.path}: line {line + start} has {plural(len(cells), 'column')}, but "
                        f"line {self.first_line} has {self.width}{hint}"
                    )
                yield line + start, cells
        except _BadRowError as error:
            raise InputError(f"{self.path}: line {line + error.line} {error}") from None

    def _read_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of complete rows: number of the first line, and text."""
        offset, line = self.data_start
        incomplete_row, is_end = b"", False
        skips_warning = self.width < 2  # with one column, every comment looks like a row
        with self.path.open("rb") as file:
            file.seek(offset)
            size = os.fstat(file.fileno()).st_size
            while not is_end:
                data = file.read(_BLOCK_BYTES)
                is_end = not data
                if self.on_progress is not None:
                    self.on_progress(file.tell(), size)
                text = incomplete_row + data
                if is_end and text and not text.endswith(b"\n"):
                    text += b"\n"
                end = self._end_of_rows(text)
                incomplete_row, text = text[end:], text[:end]
                skips_warning = skips_warning or self._warn_of_comment(line, text)
                yield line, text
                line += text.count(b"\n")
        if incomplete_row:
            raise InputError(f"{self.path}: line {line} opens a quote that is never closed")

    def _end_of_rows(self, text: bytes) -> int:
        """Return the length of the complete rows of a text."""
        end = text.rfind(b"\n") + 1
        if b'"' not in text:
            return end
        lines = BytesIO(text[:end]).readlines()
        try:
            ((start, _, row),) = deque(_iter_rows([*lines, _SENTINEL], self.delimiter), maxlen=1)
        except _BadRowError:  # raised again when the row is parsed
            return end
        return end if row == [_SENTINEL.decode()] else sum(map(len, lines[:start]))

    def _warn_of_comment(self, line: int, text: bytes) -> bool:
        """Warn if a comment looks like a row, and return whether one does."""
        for comment in _COMMENT.finditer(text) if b"#" in text else ():
            with suppress(_BadRowError):
                row = comment[0].replace(b"#", b"", 1)
                if any(len(cells) == self.width for *_, cells in _iter_rows([row], self.delimiter)):
                    comment_line = line + text.count(b"\n", 0, comment.start())
                    warn_caller(
                        f"{self.path}: line {comment_line} and other lines that begin with # are "
                        "skipped as comments"
                    )
                    return True
        return False

    def _parse(self, line: int, text: bytes) -> NDArray[Any]:
        """Return the numbers of X and of targets, with NaN for missing values.

        Raises
        ------
        InputError
            A row has the wrong number of columns, or a cell is not a number.
        """
        if self.width <= _MAX_FRAME_COLUMNS and b'"' not in text:
            with suppress(ValueError):
                return self._parse_unquoted(text)
        rows = list(self._checked_rows(line, text))
        shape = len(rows), len(self.columns)
        cells = [row[k] for _, row in rows for k in self.columns]
        with suppress(ValueError):  # parsed as one column, because pandas is slow per column
            numbers = _parse_numbers(
                "\n".join(cells).encode(), skip_blank_lines=False, quoting=csv.QUOTE_NONE
            )
            if numbers.shape == (len(cells), 1):  # no cell has a line break or a comma
                return np.reshape(numbers, shape)
        return np.array(
            [self._parse_cell(line, k, row) for line, row in rows for k in self.columns]
        ).reshape(shape)

    def _parse_cell(self, line: int, k: int, row: list[str]) -> float:
        cell = row[k].strip(whitespace)  # does not strip a no-break space
        if cell.lower() in _MISSING_LOWERCASE:
            return np.nan
        if is_number(cell):
            return float(cell)
        raise InputError(
            f"{self.path}: line {line}, {column_label(k, self.names)} is {_format_cell(cell)}, "
            f"expected a number{_number_format_hint(cell, self.delimiter)}; "
            f"--drop {column_selector(k, self.names)} drops this column, --columns chooses others"
        )

    def _parse_unquoted(self, text: bytes) -> NDArray[Any]:
        """Return the numbers of rows without quotes.

        Raises
        ------
        ValueError
            A line has a NUL byte or a carriage return inside, a row has the wrong number of
            columns, or pandas rejects a cell.
        """
        if b"\0" in text or text.count(b"\r") != text.count(b"\r\n"):
            raise ValueError
        text = _COMMENT.sub(b"", text) if b"#" in text else text
        cell_counts = _count_cells(text, self.delimiter)
        if not len(cell_counts):
            return np.empty((0, len(self.columns)))
        sorted_columns = sorted(self.columns)
        if (cell_counts != self.width).any():
            raise ValueError
        numbers = _parse_numbers(
            text,
            sep=r"\s+" if self.delimiter == " " else self.delimiter,
            names=range(self.width),
            usecols=sorted_columns,
            index_col=False,
            skipinitialspace=True,
        )
        if len(numbers) != len(cell_counts):
            raise ValueError
        if sorted_columns != [*self.columns]:
            numbers = numbers[:, np.argsort(self.columns).argsort()]
        return numbers

    def _measure_rounding(self, line: int, text: bytes, numbers: Any, is_large: Any) -> Rounding:
        """Count integers that float64 cannot represent."""
        rounding = NO_ROUNDING
        rows = self._checked_rows(line, text)
        for (_, row), parsed, large in zip(rows, numbers, is_large, strict=True):
            for column in np.flatnonzero(large).tolist():
                cell = row[self.columns[column]].strip()
                if _INTEGER.fullmatch(cell):
                    error = abs(int(cell.lstrip("+-0")) - int(abs(parsed[column])))
                    rounding += Rounding(int(error > 0), float(error))
        return rounding


def float_precision() -> Literal["round_trip"] | None:
    """Return the pandas option for exact parsing of floats."""
    import pandas

    version = tuple(map(int, pandas.__version__.split(".")[:2]))
    return None if version >= _EXACT_PANDAS else "round_trip"


def _parse_numbers(text: bytes, **options: Any) -> NDArray[np.float64]:
    """Parse a text with pandas; raise ValueError if a cell is not a number."""
    import pandas

    numbers: NDArray[np.float64] = pandas.read_csv(
        BytesIO(text),
        header=None,
        dtype=np.float64,
        keep_default_na=False,
        na_values=_MISSING_SPELLINGS,
        encoding="latin-1",  # accepts any bytes; numbers are ASCII
        float_precision=float_precision(),
        **options,
    ).to_numpy()
    # pandas parses true and false as 1 and 0 if a column has only these.
    may_be_boolean = np.isnan(numbers[:1]) | np.isin(numbers[:1], (0, 1))
    if may_be_boolean.any() and any(boolean in text for boolean in _BOOLEANS):
        raise ValueError
    return numbers


def _count_cells(text: bytes, delimiter: str) -> NDArray[np.int64]:
    """Return the number of cells of each row of a text without quotes, omitting blank rows."""
    characters = np.frombuffer(text, np.uint8)
    is_newline, is_separator = characters == ord("\n"), characters == ord(delimiter)
    if delimiter == " ":  # count the first characters of words instead
        is_space = is_newline | is_separator | (characters == ord("\t")) | (characters == ord("\r"))
        is_separator = ~is_space
        is_separator[1:] &= is_space[:-1]
    separators = np.flatnonzero(is_separator | is_newline)
    counts = np.diff(np.flatnonzero(is_newline[separators]), prepend=-1) - (delimiter == " ")
    if delimiter == " ":
        return counts[counts > 0]
    if (counts > 1).all():
        return counts
    is_space = (
        (characters == ord(" ")) | (characters == ord("\t")) | (characters == ord("\r"))
    ) & ~is_separator
    is_space |= is_newline
    starts = np.concatenate([[0], np.flatnonzero(is_newline)[:-1] + 1])
    return counts[~np.logical_and.reduceat(is_space, starts)]


def open_text_table(path: Path, delimiter: str, options: EncodeOptions) -> TextTable:
    """Open a text table: read its first row, and choose its columns.

    Parameters
    ----------
    path : Path
    delimiter : str
        Delimiter implied by the name of the file.
    options : EncodeOptions

    Raises
    ------
    InputError
        The file cannot be read, it is ambiguous whether its first row is a header, or `options` do
        not match the file.
    """
    delimiter = options.delimiter or delimiter
    try:
        stamps = file_stamps(path)
        with path.open("rb") as file:
            start = _skip_bom(path, file)
            first_line, next_line, cells, text = _read_row(path, file, delimiter)
            data_start, second_row = (file.tell(), next_line), file.readline()
            is_header = options.header
            if is_header is None and _is_quoted(text, delimiter):
                is_header = None if _is_quoted(second_row, delimiter) else True
            if is_header is None:
                is_header = _decide_header(path, first_line, cells, delimiter)
    except OSError as error:
        raise read_error(path, error) from None
    names = tuple(cells) if is_header else ()
    selected, targets = choose_columns(path, names, len(cells), options)
    warning = ""
    if 0 in selected and len(names) > 1 and names[0] in _INDEX_NAMES:
        name = f"the name {names[0]}" if names[0] else "no name"
        warning = (
            f"{path}: column 1 has {name}, like the index of a data frame, and becomes a column "
            f"of X: use --drop {column_selector(0, names)} to leave it out"
        )
    elif (
        options.header is None
        and not names
        and _is_sequence(text, delimiter)
        and not _is_sequence(second_row, delimiter)
    ):
        warning = (
            f"{path}: the first row ({truncate(cells, _MAX_LISTED)}) looks like column names, but "
            "becomes a row of X: use --header yes if it has names, --header no if it is data"
        )
    files = (Path(file) for _, file in options.target)
    return TextTable(
        name=str(path),
        path=path,
        shape=(0, len(selected)),
        dtype=np.dtype(np.float64),
        column_names=tuple(names[k] for k in selected) if names else (),
        warning=warning,
        stamps=stamps,
        current_stamps=partial(file_stamps, path),
        targets=tuple(zip(targets, files, strict=False)),
        delimiter=delimiter,
        names=names,
        width=len(cells),
        columns=(*selected, *targets),
        first_line=first_line,
        data_start=data_start if names else (start, 1),
    )


def _skip_bom(path: Path, file: BinaryIO) -> int:
    """Skip a byte order mark, and return its size."""
    start = file.read(3)
    if start[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) or b"\0" in start:
        raise InputError(f"{path} is UTF-16 or binary, expected a text table in UTF-8")
    return file.seek(len(BOM_UTF8) if start == BOM_UTF8 else 0)


def _read_row(path: Path, file: BinaryIO, delimiter: str) -> tuple[int, int, list[str], bytes]:
    """Read the first row, and return its line, the next line, its cells and its text."""
    lines_read: list[bytes] = []

    def lines() -> Iterator[bytes]:
        while line := file.readline():
            lines_read.append(line)
            yield line

    try:
        for start, stop, row in _iter_rows(lines(), delimiter):
            return start + 1, stop + 1, [cell.strip() for cell in row], b"".join(lines_read[start:])
    except _BadRowError as error:
        raise InputError(f"{path}: line {error.line + 1} {error}") from None
    return 1, 1, [], b""


def _decide_header(path: Path, line: int, cells: list[str], delimiter: str) -> bool:
    """Return whether the first row has column names; raise if this is ambiguous."""
    is_header = is_header_row(cells) if cells else False
    if is_header and any(_number_format_hint(cell, delimiter) for cell in cells):
        is_header = None  # these names look like numbers with another delimiter
    if is_header is None:
        k = next(k for k, cell in enumerate(cells) if not is_number(cell))
        content = "numbers and" if any(map(is_number, cells)) else "no names:"
        raise InputError(
            f"{path}: line {line} has {content} {_format_cell(cells[k])} in column {k + 1}: "
            "use --header yes if this row has column names, --header no if it has numbers"
            f"{_number_format_hint(cells[k], delimiter)}"
        )
    return is_header


def _is_quoted(row: bytes, delimiter: str) -> bool:
    """Return whether all cells of a row are in quotes, as R and ``decode`` write names."""
    text = StringIO(row.decode(errors="replace"), newline="")
    options: dict[str, Any] = {"skipinitialspace": True, "quoting": csv.QUOTE_NONNUMERIC}
    try:
        cells = next(csv.reader(text, delimiter=delimiter, **options), [0.0])
    except (ValueError, csv.Error):  # a cell is neither a number nor in quotes
        return False
    return row.count(b'"') >= 2 * len(cells) > 0 and all(isinstance(cell, str) for cell in cells)


def _is_sequence(row: bytes, delimiter: str) -> bool:
    """Return whether a row has integers in equal steps, such as 0, 1, 2 or 1990, 2000, 2010."""
    with suppress(ValueError, _BadRowError):
        ((_, _, cells),) = _iter_rows(BytesIO(row), delimiter)
        steps = {int(after) - int(before) for before, after in pairwise(cells)}
        return len(cells) > 2 and len(steps) == 1 and steps != {0}
    return False


def _format_cell(cell: str) -> str:
    return (
        repr(cell if len(cell) <= _MAX_CELL_LENGTH else f"{cell[:_MAX_CELL_LENGTH]}...")
        if cell
        else "an empty cell"
    )


def _number_format_hint(cell: str, delimiter: str) -> str:
    """Return a hint if a cell has numbers in another format, else ''."""
    if _NUMBER_WITH_COMMAS.fullmatch(cell):
        return " (with a decimal point and without commas)"
    for other_delimiter, name in (("\t", "tab"), (";", "semicolon"), (",", "comma"), ("|", "pipe")):
        parts = cell.split(other_delimiter)
        are_numbers = (all if other_delimiter == "," else any)(map(is_number, parts))
        if other_delimiter != delimiter and len(parts) > 1 and are_numbers:
            return f" (try --delimiter {name})"
    return ""
