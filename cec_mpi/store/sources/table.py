"""Text tables, CSV and TSV: found once line by line, then parsed where they are read."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.sources.base import FileSource, fill, stamp, unreadable

__all__ = ["TableSource", "table_source"]

_APART = 1 << 18  # bytes between two remembered places in the file, or a row where it is longer


@dataclass(frozen=True, kw_only=True)
class TableSource(FileSource):
    """Rows of numbers as text.

    Attributes
    ----------
    rows, places : (k,) ndarray of int64
        Numbers of some rows, and where they begin in the file, in bytes; at last the
        number of all rows and the end of the file.
    """

    delimiter: str
    rows: NDArray[np.int64] = field(repr=False)
    places: NDArray[np.int64] = field(repr=False)
    copies: ClassVar[int] = 16

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        """Parse the lines of a rectangle."""
        before = int(np.searchsorted(self.rows, start, side="right")) - 1
        after = int(np.searchsorted(self.rows, stop))
        first, begin = int(self.rows[before]), int(self.places[before])
        with self.path.open("rb") as file:
            file.seek(begin)
            text = file.read(int(self.places[after]) - begin)
        text = b"".join(line for line in text.splitlines(True) if _is_row(line))
        skip = start - first
        try:
            rows = np.loadtxt(
                BytesIO(text),
                delimiter=self.delimiter,
                comments=None,
                quotechar='"',
                ndmin=2,
                encoding="utf-8",
            )
        except (ValueError, UnicodeDecodeError) as error:
            raise InputError(self._parse_problem(str(error), first)) from None
        if rows.shape[1] != self.shape[1]:
            raise InputError(
                f"{self.path} has {rows.shape[1]} columns from row {start} on: expected "
                f"{self.shape[1]}"
            )
        if len(rows) < skip + stop - start:
            raise InputError(f"{self.path} ends before its last row: it was cut short")
        fill(out, rows[skip : skip + stop - start, left:right])

    def _parse_problem(self, reason: str, first: int) -> str:
        """NumPy's message, with the row counted from the start of the file."""
        shifted = re.sub(
            r"row (\d+)",
            lambda match: f"row {int(match[1]) + first}",
            reason.split("\n")[0].split(";")[0],
        )
        return f"{self.path} is no table of numbers: {shifted.rstrip('.')}"


def table_source(path: Path, delimiter: str) -> TableSource:
    """Find the rows of a table; a first line that is not all numbers is a header."""
    places: list[tuple[int, int]] = []
    rows, place, columns, header = 0, 0, 0, ""
    try:
        with path.open("rb") as file:
            for line in file:
                begin, place = place, place + len(line)
                if not begin and line.startswith(BOM_UTF8):
                    begin = len(BOM_UTF8)
                if not _is_row(line):
                    continue
                if not rows and not header:
                    fields = _fields(line, delimiter)
                    columns = len(fields)
                    if not all(map(_is_number, fields)):
                        header = ", ".join(fields)
                        continue
                if not places or begin - places[-1][1] >= _APART:
                    places.append((rows, begin))
                rows += 1
        stamps = (stamp(path),)
    except OSError as error:
        raise unreadable(path, error) from None
    places.append((rows, place))
    shown = header if len(header) <= 40 else header[:37] + "..."
    warning = f"{path}: its first line is taken for a header ({shown})" if header else ""
    return TableSource(
        path=path,
        shape=(rows, columns),
        dtype=np.dtype(np.float64),
        stamps=stamps,
        warning=warning,
        delimiter=delimiter,
        rows=np.array([row for row, _ in places], dtype=np.int64),
        places=np.array([place for _, place in places], dtype=np.int64),
    )


def _fields(line: bytes, delimiter: str) -> list[str]:
    text = line.decode("utf-8-sig", errors="replace")
    return [word.strip().strip('"') for word in text.split(delimiter)]


def _is_row(line: bytes) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(b"#")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
