"""A matrix to encode: an array with slices, or one that is read once and is an array then."""

from __future__ import annotations

import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrix:
    """What is known of a matrix before it is read.

    Attributes
    ----------
    name : str
        For messages.
    shape : tuple of int
        Of a text table that was not read yet the first number is 0.
    dtype : numpy.dtype
        As the numbers are in the file.
    column_names : tuple of str
        Empty where columns have no names.
    warning : str
        What the user should know before it is encoded, with ``{bytes}`` for the size of
        the shards; mostly empty.
    stamps : tuple of str
        Names, sizes and times of its files, from before the first look at them. Empty where
        nothing can say whether X is the same: then an encode is never resumed.
    stamps_now : callable
        Gives what `stamps` would be now: the same while nobody has written to the files.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    column_names: tuple[str, ...] = field(default=(), repr=False)
    warning: str = ""
    stamps: tuple[str, ...] = ()
    stamps_now: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False)

    def where(self, row: int, column: int) -> str:
        """Where an entry is, for messages."""
        name = f", {self.column_names[column]!r}" if self.column_names else ""
        return f"row {row}, column {column} (counted from 0){name}"

    def checked(self, values: Any, start: int, left: int, shape: tuple[int, int]) -> NDArray[Any]:
        """What was read from a place on, as an array; refuses what is not as the array says."""
        if hasattr(values, "toarray"):
            values = values.toarray()
        if isinstance(values, np.ma.MaskedArray):
            masked = np.argwhere(np.ma.getmaskarray(values))
            if masked.size:
                row, column = masked[0].tolist()
                raise InputError(
                    f"{self.name} has no number at {self.where(start + row, left + column)}, it is "
                    "masked: expected numbers everywhere, as X.filled(0) has"
                )
            values = values.data
        found: NDArray[Any] = np.asarray(values)
        if found.shape != shape:
            raise InputError(
                f"{self.name} gives an array of shape {found.shape} for {shape[0]} rows from row "
                f"{start} on: expected {shape}, as its shape {self.shape} says"
            )
        if not np.can_cast(found.dtype, self.dtype, "safe"):
            raise InputError(
                f"{self.name} gives {found.dtype} at row {start}: expected {self.dtype}, as its "
                "dtype says"
            )
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Source(Matrix):
    """A matrix with slices; any thread may read, and any rank if it is one of files.

    Attributes
    ----------
    array : object
        Has slices ``array[start:stop, left:right]``. Where it has a method ``read_into``, that is
        called in their place, with an array to fill as the last argument.
    by_rows : bool
        It has slices of rows alone, for one thread at a time.
    held : int
        Bytes that a process keeps of it beside, whatever is read.
    copies : int
        Memory that reading takes, in the sizes of the array that is read into.
    """

    array: Any = field(repr=False)
    by_rows: bool = False
    held: int = 0
    copies: int = 2

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        """Read rows ``start..stop`` of columns ``left..right`` into `out`, converting them.

        Raises
        ------
        InputError
            Names the matrix and what is wrong with it.
        OSError
            A file could not be read now.
        """
        try:
            if hasattr(self.array, "read_into"):
                self.array.read_into(start, stop, left, right, out)
            elif self.by_rows:
                self._read_rows(start, stop, left, right, out)
            else:
                values = self.array[start:stop, left:right]
                fill(out, self.checked(values, start, left, out.shape))
                if isinstance(self.array, np.ndarray):
                    _forget(values)
        except (InputError, MemoryError):
            raise
        except Exception as error:  # of a library, or of a program's own that it calls
            if self.stamps and isinstance(error, OSError):
                raise
            raise InputError(
                f"{self.name} cannot be read, rows {start} to {stop - 1}: {reason_of(error)}"
            ) from error

    def _read_rows(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        # Of long rows few at a time, so that they take no more memory than what is read.
        together = max(1, out.size // self.shape[1])
        for first in range(start, stop, together):
            end = min(first + together, stop)
            with _TURN:
                rows = self.checked(self.array[first:end], first, 0, (end - first, self.shape[1]))
                fill(out[first - start : end - start], rows[:, left:right])


_TURN = threading.Lock()  # many libraries promise threads nothing


def _forget(values: NDArray[Any]) -> None:
    """Let the pages of a file leave this process that were read through its memory map."""
    base: Any = values
    mode = ""
    while base is not None and not isinstance(base, mmap.mmap):
        mode = base.mode if isinstance(base, np.memmap) else mode
        base = getattr(base, "base", None)
    if base is None or mode not in ("r", "r+", "w+"):  # of "c", what was changed would be lost
        return
    begin = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    low, high = (address - begin for address in np.lib.array_utils.byte_bounds(values))
    low -= low % mmap.PAGESIZE
    base.madvise(mmap.MADV_DONTNEED, low, high - low)


@dataclass(frozen=True, kw_only=True, eq=False)
class Unread(Matrix, ABC):
    """A matrix without slices, which is read once.

    Attributes
    ----------
    targets : tuple of (int, Path)
        Columns of the file that are not X, from 0, and the ``.npy`` files that they go to.
    """

    targets: tuple[tuple[int, Path], ...] = ()

    @abstractmethod
    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Give all numbers, each once: some rows and columns, from a row and a column on.

        To the right of those of X are those of targets.

        Parameters
        ----------
        dtype : numpy.dtype
            Of the shards, which numbers should fit.

        Raises
        ------
        InputError
            Says where something is no such number.
        """


def fill(out: NDArray[Any], values: Any) -> None:
    """Convert values into `out`; too large ones become infinite, and are found later."""
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = values


def stamps_of(*paths: Path) -> tuple[str, ...]:
    """Name, size and time of change of each of some files."""
    found = ((path.name, path.stat()) for path in paths)
    return tuple(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in found)


def reason_of(error: BaseException) -> str:
    """What kind of error it is, and what it says, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{f': {text}' if text else ''}"


def unreadable(path: object, error: BaseException) -> InputError:
    """An error of a file or of the library that reads it, as bad input."""
    reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
    return InputError(f"{path} cannot be read: {reason}")
