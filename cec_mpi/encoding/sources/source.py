"""Matrices to encode: sources with slices, and streamed matrices."""

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

from cec_mpi.core.masks import is_masked_array
from cec_mpi.encoding.rounding import NO_ROUNDING, Rounding, measure_rounding
from cec_mpi.errors import InputError

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import MissingValues
    from cec_mpi.store.work import ProgressCallback

_LOCK = threading.Lock()  # many libraries are not thread-safe


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrix:
    """A matrix to encode.

    Attributes
    ----------
    name : str
        Name for messages.
    shape : tuple of int
        The number of rows of a text table is 0, because it is unknown before the table is read.
    dtype : numpy.dtype
        Dtype of the entries that are read, before they are converted to that of the shards.
    column_names : tuple of str
        Names of columns, or empty.
    warning : str
        Warning to give before encoding, with ``{bytes}`` for the size of the shards, or empty.
    stamps : tuple of str
        Names, sizes and modification times of the files, before they were opened. If empty, changes
        to X cannot be detected, and an encode is never resumed.
    current_stamps : callable
        Returns the current value of `stamps`; it is equal if the files have not changed.
    missing : MissingValues, optional
        Treatment of missing values. None if they are refused.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    column_names: tuple[str, ...] = field(default=(), repr=False)
    warning: str = ""
    stamps: tuple[str, ...] = ()
    current_stamps: Callable[[], tuple[str, ...]] = field(default=tuple, repr=False)
    missing: MissingValues | None = None

    def location(self, row: int, column: int) -> str:
        """Return the location of an entry, for messages."""
        return f"row {row}, {self.describe_column(column)}"

    def describe_column(self, column: int) -> str:
        """Return the number of a column, and its name, for messages."""
        name = f", {self.column_names[column]!r}" if self.column_names else ""
        return f"column {column} (counted from 0){name}"

    def describe_missing(self, row: int, column: int) -> str:
        """Return the start of a message about a missing value."""
        return f"{self.name} holds nan at {self.location(row, column)}"

    def drop_advice(self, column: int) -> str:
        """Return the end of a message: the option that drops a column, or ''."""
        return ""

    def check_slice(
        self, values: Any, start: int, left: int, shape: tuple[int, int]
    ) -> NDArray[Any]:
        """Convert a slice to an array; raise if its shape or dtype is wrong."""
        if type(values).__module__.startswith("scipy.sparse"):
            from cec_mpi.encoding.sources.csr import to_checked_csr

            values = to_checked_csr(self.name, values)
        if hasattr(values, "toarray"):
            values = values.toarray()
        if is_masked_array(values):
            masked = np.argwhere(np.ma.getmaskarray(values))
            if masked.size:
                row, column = masked[0].tolist()
                raise InputError(
                    f"{self.name} is masked at {self.location(start + row, left + column)}, "
                    "expected numbers everywhere: try X.filled(0)"
                )
            values = values.data
        array: NDArray[Any] = np.asarray(values)
        if array.shape != shape:
            raise InputError(
                f"{self.name} returned shape {array.shape} for {shape[0]} rows from row {start} "
                f"on, expected {shape} (its shape is {self.shape})"
            )
        if not np.can_cast(array.dtype, self.dtype, "safe"):
            raise InputError(
                f"{self.name} returned {array.dtype} at row {start}, expected its dtype "
                f"{self.dtype}"
            )
        return array


@dataclass(frozen=True, kw_only=True, eq=False)
class Source(Matrix):
    """A matrix with slices that any thread can read, and any rank if the matrix is in files.

    Attributes
    ----------
    array : object
        Array with slices ``array[start:stop, left:right]``, or with a method
        ``read_into(start, stop, left, right, out)`` that returns the `Rounding`.
    rows_only : bool
        Whether the array has only slices of rows, and only one thread may read them at a time.
    fixed_bytes : int
        Memory of a process for reading that does not depend on the size of a slice.
    read_buffers : int
        Memory for reading a slice, as a multiple of its size.
    origin : mapping, optional
        Path and options with which `open_source` opens the matrix in another process.
    """

    array: Any = field(repr=False)
    rows_only: bool = False
    fixed_bytes: int = 0
    read_buffers: int = 2
    origin: Mapping[str, Any] | None = field(default=None, repr=False)

    def content(self) -> dict[str, Any]:
        """Return the arguments of `reopen` for another process.

        Raises
        ------
        InputError
            The matrix exists only in this process.
        """
        if self.origin is None:
            raise InputError(
                f"{self.name} exists in one process only: call encode(..., comm=comm) on all ranks"
            )
        return {**self.origin, "name": self.name, "column_names": self.column_names}

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> Rounding:
        """Read rows ``start..stop`` of columns ``left..right``, converted to the dtype of `out`.

        Returns
        -------
        Rounding
            Rounding of the conversion.

        Raises
        ------
        InputError
            Names the matrix and the problem.
        OSError
            A file cannot be read.
        """
        try:
            if hasattr(self.array, "read_into"):
                rounding: Rounding = self.array.read_into(start, stop, left, right, out)
                return rounding
            if self.rows_only:
                return self._read_rows(start, stop, left, right, out)
            values = self.array[start:stop, left:right]
            rounding = convert_into(out, self.check_slice(values, start, left, out.shape))
            if isinstance(self.array, np.ndarray):
                _release_pages(values)
            return rounding
        except (InputError, MemoryError):
            raise
        except Exception as error:  # raised by a library or by the user's code
            if self.stamps and isinstance(error, OSError):
                raise
            raise InputError(
                f"{self.name} cannot be read, rows {start} to {stop - 1}: {describe_error(error)}"
            ) from error

    def _read_rows(
        self, start: int, stop: int, left: int, right: int, out: NDArray[Any]
    ) -> Rounding:
        # Complete rows are read in pieces no larger than the slice.
        rounding = NO_ROUNDING
        rows_at_once = max(1, out.size // self.shape[1])
        for first in range(start, stop, rows_at_once):
            end = min(first + rows_at_once, stop)
            with _LOCK:
                rows = self.check_slice(
                    self.array[first:end], first, 0, (end - first, self.shape[1])
                )
                rounding += convert_into(out[first - start : end - start], rows[:, left:right])
        return rounding


def _release_pages(values: NDArray[Any]) -> None:
    """Release the pages of these values, if they are in a memory map."""
    base: Any = values
    mode = ""
    while base is not None and not isinstance(base, mmap.mmap):
        mode = base.mode if isinstance(base, np.memmap) else mode
        base = getattr(base, "base", None)
    if base is None or mode not in ("r", "r+", "w+"):  # in mode "c" changes would be lost
        return
    start = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    low, high = (address - start for address in np.lib.array_utils.byte_bounds(values))
    low -= low % mmap.PAGESIZE
    base.madvise(mmap.MADV_DONTNEED, low, high - low)


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamedMatrix(Matrix, ABC):
    """A matrix without slices that is read once, from the first row to the last.

    Attributes
    ----------
    targets : tuple of (int, Path)
        Columns of the file, counted from 0, that are not part of X, and the ``.npy`` files to which
        they are written.
    on_progress : callable, optional
        Called with the number of bytes read and the total.
    """

    targets: tuple[tuple[int, Path], ...] = ()
    on_progress: ProgressCallback | None = field(default=None, repr=False)

    @abstractmethod
    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Yield all pieces of the matrix: first row, first column, and values.

        Columns of targets come after those of X.

        Parameters
        ----------
        dtype : numpy.dtype
            Dtype of the shards.

        Raises
        ------
        InputError
            The matrix cannot be read, or a cell is not a number. For a cell, the message names its
            location.
        """


def convert_into(out: NDArray[Any], values: NDArray[Any]) -> Rounding:
    """Copy converted values to `out`; values that are too large become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = values
    return measure_rounding(values, out) if out.dtype.kind == "f" else NO_ROUNDING


def file_stamps(*paths: Path) -> tuple[str, ...]:
    """Return names, sizes and modification times of files."""
    stats = ((path.name, path.stat()) for path in paths)
    return tuple(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in stats)


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{f': {text}' if text else ''}"


def read_error(path: object, error: BaseException) -> InputError:
    """Return an `InputError` for an error of a file or of the library that reads it."""
    reason = (getattr(error, "strerror", None) or str(error)).split("\n")[0]
    return InputError(f"{path} cannot be read: {reason}")
