"""Arrays of other libraries as sources: whatever has a shape, a dtype and rows by slices.

No library is imported here: whose an object is says the name of its class.
"""

from __future__ import annotations

import mmap
import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.sources.base import counted, fill

_WITH_COLUMNS = (("numpy", "ndarray"), ("h5py", "Dataset"), ("zarr", "Array"))  # and with threads
_EXPECTED = "a path, or an array with a shape, a dtype and rows by slices"
_shared: dict[str, ArraySource] = {}  # by their keys


@dataclass(frozen=True, kw_only=True, eq=False)
class ArraySource:
    """An array that a program holds; each number is read once.

    Attributes
    ----------
    array : object
        Read by slices of rows, one thread at a time.
    key : str
        Under which the process that it is sent to has it; empty: it is not sent.
    """

    array: Any = field(repr=False)
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    column_names: tuple[str, ...] = field(default=(), repr=False)
    warning: str = ""
    held: int = 0
    key: str = ""
    copies: ClassVar[int] = 2
    stamps: ClassVar[tuple[str, ...]] = ()
    _turn: Any = field(default_factory=threading.Lock, repr=False)

    def stamps_now(self) -> tuple[str, ...]:
        """None: an array has no files."""
        return ()

    def where(self, row: int, column: int) -> str:
        """Where an entry is, with the name of its column."""
        name = f", {self.column_names[column]!r}" if self.column_names else ""
        return f"{counted(row, column)}{name}"

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        """Read a rectangle.

        Raises
        ------
        InputError
            The array raises something, or gives other rows than its shape and dtype say.
        """
        try:
            self._read(start, stop, left, right, out)
        except (InputError, MemoryError):
            raise
        except Exception as error:  # of a library, or of a program's own that it calls
            raise InputError(
                f"{self.name} cannot be read, rows {start} to {stop - 1}: {_reason(error)}"
            ) from error

    def _read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        # Of long rows few at a time, so that they take no more memory than what is read.
        together = max(1, out.size // self.shape[1])
        for first in range(start, stop, together):
            end = min(first + together, stop)
            with self._turn:
                rows = self.checked(self.array[first:end], first, 0, (end - first, self.shape[1]))
                fill(out[first - start : end - start], rows[:, left:right])

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

    def under(self, key: str) -> ArraySource:
        """The same, to be sent to processes that have one of their own under this key."""
        return replace(self, key=key)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        if not self.key:
            raise InputError(
                f"{self.name} is in one process: expected encode(..., comm=comm) on all ranks"
            )
        return _shared_here, (self.key,)


def _shared_here(key: str) -> ArraySource:
    return _shared[key]


@contextmanager
def shared(source: ArraySource) -> Iterator[None]:
    """Have this process find its own array where the one of another process is sent to it."""
    _shared[source.key] = source
    try:
        yield
    finally:
        del _shared[source.key]


class PlainSource(ArraySource):
    """An array that any rectangle can be read of, by several threads at a time."""

    def _read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        values = self.array[start:stop, left:right]
        fill(out, self.checked(values, start, left, out.shape))
        if isinstance(self.array, np.ndarray):
            _forget(values)


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


class SparseSource(ArraySource):
    """A sparse matrix of SciPy in CSR, whose rows become dense as they are read."""

    def _read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        rows = self.array[start:stop, left:right].toarray()
        fill(out, self.checked(rows, start, left, out.shape))


def array_source(array: Any) -> ArraySource:
    """An array, sparse or not, that is sliced as NumPy's are, or at least by rows.

    Raises
    ------
    InputError
        It has no shape of numbers, or no dtype of NumPy's.
    """
    if is_a(array, "scipy", "_spbase", "spmatrix", "sparray"):
        return _sparse_source(array)
    shape, dtype = shape_and_dtype(array)
    with_columns = any(is_a(array, *each) for each in _WITH_COLUMNS)
    kind = PlainSource if with_columns else ArraySource
    return kind(array=array, name=name_of(array), shape=shape, dtype=dtype)


def _sparse_source(array: Any) -> ArraySource:
    shape, dtype = shape_and_dtype(array)
    held, rows = 0, array
    if array.format != "csr" and len(shape) == 2:
        rows = array.tocsr()
        held = rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes
    name = name_of(array)
    size = max(1, shape[0] * shape[-1]) if shape else 1
    return SparseSource(
        array=rows,
        name=name,
        shape=shape,
        dtype=dtype,
        held=held,
        warning=(
            f"{name} is sparse, {array.nnz / size:.2%} of {' x '.join(map(str, shape))} are "
            "stored, but shards are dense: the store takes {bytes} bytes"
        ),
    )


def is_a(array: Any, library: str, *names: str) -> bool:
    """Whether an object is of one of these classes, or inherits from it."""
    return any(
        each.__name__ in names and each.__module__.partition(".")[0] == library
        for each in type(array).__mro__
    )


def name_of(array: Any) -> str:
    """What messages call an array: the file that it is in, or what it is."""
    if is_a(array, "h5py", "Dataset"):
        return f"{array.file.filename}::{array.name}"
    kind = type(array)
    library = kind.__module__.partition(".")[0]
    return f"the {library} Array" if kind.__name__ == "Array" else f"the {kind.__name__}"


def shape_and_dtype(array: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """What an array says of itself.

    Raises
    ------
    InputError
        It says nothing, or what no array is.
    """
    kind = f"{type(array).__module__}.{type(array).__qualname__}".removeprefix("builtins.")
    try:
        shape, dtype = array.shape, array.dtype
    except AttributeError:
        advice = ": numpy.asarray(X) may be one" if hasattr(array, "__len__") else ""
        raise InputError(f"X is a {kind}: expected {_EXPECTED}{advice}") from None
    except Exception as error:  # as of a file that was closed
        raise InputError(f"X, a {kind}, cannot be read: {_reason(error)}") from error
    try:
        lengths = tuple(operator.index(length) for length in shape)
    except TypeError:
        raise InputError(
            f"X, a {kind}, has shape {shape}: expected numbers of rows and columns"
        ) from None
    try:
        if dtype is None:
            raise TypeError
        found = np.dtype(dtype)
    except TypeError:
        raise InputError(
            f"X, a {kind}, has dtype {dtype}: expected one of NumPy's, as numpy.asarray(X) has"
        ) from None
    return lengths, found


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{f': {text}' if text else ''}"
