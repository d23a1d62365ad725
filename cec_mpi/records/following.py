"""``steps.jsonl`` read while it grows: each time only what is new."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.files.regular import NotAFileError, open_regular
from cec_mpi.records.reading import LONGEST_LINE, LineReader, WrongLineError


class Following:
    """Reads a record of steps that is perhaps still written.

    A last line without an end is waited for. A file that has been replaced, or that is shorter
    than it was, is read anew.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    is_there : bool
        Whether there was such a file when it was read last.
    behind : int
        Bytes that are still to be read.
    changed : float
        When the file was written last, in seconds since the epoch; 0 without a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._reader = LineReader()
        self._file: tuple[int, int] | None = None
        self._rest = b""
        self._read = self._number = 0
        self.is_there = False
        self.behind = 0
        self.changed = 0.0

    def new(self, most: int = 1 << 24) -> tuple[bool, list[dict[str, Any]]]:
        """What is new since it was asked last.

        Parameters
        ----------
        most : int
            Bytes, about, that are read at once; `behind` says what is left.

        Returns
        -------
        anew : bool
            The file is another one than before: what was read of it counts no more.
        lines : list of dict
            As a run writes them: each with its ``kind``.

        Raises
        ------
        InputError
            The file cannot be read, or a line is none of such a record.
        """
        try:
            with os.fdopen(open_regular(self._path), "rb", buffering=0) as stream:
                found = os.fstat(stream.fileno())
                file = found.st_dev, found.st_ino
                anew = self.is_there and (file != self._file or found.st_size < self._read)
                if anew:
                    self._forget()
                self.is_there, self._file = True, file
                stream.seek(self._read)
                data = stream.read(most)
        except FileNotFoundError:
            anew = self.is_there
            self._forget()
            return anew, []
        except NotAFileError as error:
            raise InputError(f"{self._path} is {error.kind}: expected a file") from None
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror}") from None
        self._read += len(data)
        self.behind, self.changed = max(0, found.st_size - self._read), found.st_mtime
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise InputError(
                f"{self._path}, line {self._number + len(lines) + 1} has more than "
                f"{LONGEST_LINE} bytes: expected one JSON object"
            )
        return anew, [self._taken(line) for line in lines]

    def _taken(self, line: bytes) -> dict[str, Any]:
        self._number += 1
        try:
            return self._reader.take(line + b"\n")
        except WrongLineError as error:
            raise InputError(f"{self._path}, line {self._number} {error}") from None
