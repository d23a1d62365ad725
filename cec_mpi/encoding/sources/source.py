"""A matrix to encode: an array with slices, or a matrix that is read once."""

from __future__ import annotations

import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.rounding import NO_ROUNDING, Rounding, measure_rounding
from cec_mpi.errors import InputError

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import MissingValues
    from cec_mpi.store.work import Watch


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrix:
    """A matrix to encode, before it is read.

    Attributes
    ----------
    name : str
        Name for messages.
    shape : tuple of int
        Shape; the first number is 0 for a text table that was not read yet.
    dtype : numpy.dtype
        Dtype in the file.
    column_names : tuple of str
        Names of columns; empty if they have none.
    warning : str
        Warning before encoding, with ``{bytes}`` for the size of the shards; mostly empty.
    stamps : tuple of str
        Names, sizes and times of its files before they were opened. If it is empty, changes of X
        cannot be detected, and an encode is never resumed.
    stamps_now : callable
        Returns the present value of `stamps`, which is the same if the files have not changed.
    missing : MissingValues, optional
        How its missing values were treated, if there could be any.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    column_names: tuple[str, ...] = field(default=(), repr=False)
    warning: str = ""
    stamps: tuple[str, ...] = ()
    stamps_now: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False)
    missing: MissingValues | None = None

    def where(self, row: int, column: int) -> str:
        """Return the place of an entry, for messages."""
        return f"row {row}, {self.column(column)}"

    def column(self, column: int) -> str:
        """Return the number of a column, and its name, for messages."""
        name = f", {self.column_names[column]!r}" if self.column_names else ""
        return f"column {column} (counted from 0){name}"

    def describe_missing(self, row: int, column: int) -> str:
        """Describe a missing value and its place, to begin a message."""
        return f"{self.name} holds nan at {self.where(row, column)}"

    def drop_advice(self, column: int) -> str:
        """Return how encode leaves a column out, to end a message; empty if it cannot."""
        return ""

    def checked(self, values: Any, start: int, left: int, shape: tuple[int, int]) -> NDArray[Any]:
        """Convert a slice to an array, and raise if it does not have the stated shape and dtype."""
        if type(values).__module__.startswith("scipy.sparse"):
            from cec_mpi.encoding.sources.csr import to_checked_csr

            values = to_checked_csr(self.name, values)
        if hasattr(values, "toarray"):
            values = values.toarray()
        if isinstance(values, np.ma.MaskedArray):
            masked = np.argwhere(np.ma.getmaskarray(values))
            if masked.size:
                row, column = masked[0].tolist()
                raise InputError(
                    f"{self.name} is masked at {self.where(start + row, left + column)}, expected "
                    "numbers everywhere: try X.filled(0)"
                )
            values = values.data
        found: NDArray[Any] = np.asarray(values)
        if found.shape != shape:
            raise InputError(
                f"{self.name} returned shape {found.shape} for {shape[0]} rows from row {start} "
                f"on, expected {shape} (its shape is {self.shape})"
            )
        if not np.can_cast(found.dtype, self.dtype, "safe"):
            raise InputError(
                f"{self.name} returned {found.dtype} at row {start}, expected its dtype "
                f"{self.dtype}"
            )
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Source(Matrix):
    """A matrix with slices, which any thread may read, and any rank if it is in files.

    Attributes
    ----------
    array : object
        Array with slices ``array[start:stop, left:right]``. If it has a method ``read_into``, that
        is called instead, with an array to fill as the last argument, and returns the `Rounding`.
    by_rows : bool
        Whether it has only slices of rows, for one thread at a time.
    held : int
        Bytes that a process keeps in addition, for any slice.
    copies : int
        Memory for reading, as a multiple of the size of the array to fill.
    origin : mapping, optional
        Path and options with which `open_source` opens it in another process.
    """

    array: Any = field(repr=False)
    by_rows: bool = False
    held: int = 0
    copies: int = 2
    origin: Mapping[str, Any] | None = field(default=None, repr=False)

    def content(self) -> dict[str, Any]:
        """Return what another process needs to open it.

        Raises
        ------
        InputError
            It exists in this process only.
        """
        if self.origin is None:
            raise InputError(
                f"{self.name} exists in one process only: call encode(..., comm=comm) on all ranks"
            )
        return {**self.origin, "name": self.name, "column_names": self.column_names}

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> Rounding:
        """Read rows ``start..stop`` of columns ``left..right`` into `out`, and convert them.

        Returns
        -------
        Rounding
            Of the numbers that were read.

        Raises
        ------
        InputError
            Names the matrix and the problem.
        OSError
            A file cannot be read at present.
        """
        try:
            if hasattr(self.array, "read_into"):
                found: Rounding = self.array.read_into(start, stop, left, right, out)
                return found
            if self.by_rows:
                return self._read_rows(start, stop, left, right, out)
            values = self.array[start:stop, left:right]
            found = fill(out, self.checked(values, start, left, out.shape))
            if isinstance(self.array, np.ndarray):
                _release_pages(values)
            return found
        except (InputError, MemoryError):
            raise
        except Exception as error:  # of a library, or of the user's code
            if self.stamps and isinstance(error, OSError):
                raise
            raise InputError(
                f"{self.name} cannot be read, rows {start} to {stop - 1}: {reason_of(error)}"
            ) from error

    def _read_rows(
        self, start: int, stop: int, left: int, right: int, out: NDArray[Any]
    ) -> Rounding:
        # Few long rows at a time, so that they need no more memory than the slice.
        rounding = NO_ROUNDING
        rows_at_once = max(1, out.size // self.shape[1])
        for first in range(start, stop, rows_at_once):
            end = min(first + rows_at_once, stop)
            with _LOCK:
                rows = self.checked(self.array[first:end], first, 0, (end - first, self.shape[1]))
                rounding += fill(out[first - start : end - start], rows[:, left:right])
        return rounding


_LOCK = threading.Lock()  # many libraries are not thread-safe


def _release_pages(values: NDArray[Any]) -> None:
    """Release pages of a memory map that were read."""
    base: Any = values
    mode = ""
    while base is not None and not isinstance(base, mmap.mmap):
        mode = base.mode if isinstance(base, np.memmap) else mode
        base = getattr(base, "base", None)
    if base is None or mode not in ("r", "r+", "w+"):  # in mode "c" changes would be lost
        return
    begin = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    low, high = (address - begin for address in np.lib.array_utils.byte_bounds(values))
    low -= low % mmap.PAGESIZE
    base.madvise(mmap.MADV_DONTNEED, low, high - low)


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamedMatrix(Matrix, ABC):
    """A matrix without slices, which is read once.

    Attributes
    ----------
    targets : tuple of (int, Path)
        Columns of the file, from 0, to write to ``.npy`` files instead of X.
    watch : callable, optional
        Called with the number of bytes read, and of all bytes.
    """

    targets: tuple[tuple[int, Path], ...] = ()
    watch: Watch | None = field(default=None, repr=False)

    @abstractmethod
    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Yield all numbers once: some rows and columns, with the first row and column.

        Columns of targets follow those of X.

        Parameters
        ----------
        dtype : numpy.dtype
            Dtype of the shards.

        Raises
        ------
        InputError
            A cell is not a number of this dtype. The message names its place.
        """


def fill(out: NDArray[Any], values: NDArray[Any]) -> Rounding:
    """Convert values into `out`; values that are too large become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = values
    return measure_rounding(values, out) if out.dtype.kind == "f" else NO_ROUNDING


def stamps_of(*paths: Path) -> tuple[str, ...]:
    """Return names, sizes and times of change of files."""
    found = ((path.name, path.stat()) for path in paths)
    return tuple(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in found)


def reason_of(error: BaseException) -> str:
    """Return the type and the message of an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{f': {text}' if text else ''}"


def unreadable(path: object, error: BaseException) -> InputError:
    """Return an `InputError` for an error of a file or of the library that reads it."""
    reason = (getattr(error, "strerror", None) or str(error)).split("\n")[0]
    return InputError(f"{path} cannot be read: {reason}")
