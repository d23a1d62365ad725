"""Arrays of other libraries as sources: whatever has a shape, a dtype and rows by slices.

No library is imported here: whose an object is says the name of its class.
"""

from __future__ import annotations

import math
import mmap
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.sources.base import counted, fill
from cec_mpi.text import few, shown

_WITH_COLUMNS = (("numpy", "ndarray"), ("h5py", "Dataset"), ("zarr", "Array"))  # and with threads
_EXPECTED = "a path, or an array with a shape, a dtype and rows by slices"
_shared: dict[str, ArraySource] = {}  # by their keys
_LISTED = 5
_BESIDE = 192 << 20  # bytes that encoding takes anyway


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


class FrameSource(ArraySource):
    """A DataFrame of pandas; what it misses is NaN, and found as that."""

    copies: ClassVar[int] = 4

    def _read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        with self._turn:  # pandas promises threads nothing
            part = self.array.iloc[start:stop, left:right]
            missing = any(hasattr(dtype, "na_value") for dtype in part.dtypes)
            rows = part.to_numpy(self.dtype, **({"na_value": np.nan} if missing else {}))
            fill(out, self.checked(rows, start, left, out.shape))


def frame_source(frame: Any) -> FrameSource:
    """A DataFrame of numbers.

    Raises
    ------
    InputError
        Names the columns that hold something else.
    """
    found = [_number_dtype(dtype) for dtype in frame.dtypes]
    others = [at for at, dtype in enumerate(found) if dtype is None]
    if others:
        columns = [f"{shown(frame.columns[at])} ({frame.dtypes.iloc[at]})" for at in others]
        raise InputError(
            f"{name_of(frame)} has columns that hold no numbers, {few(columns, _LISTED)}: expected "
            "real numbers, X.drop(columns=...) leaves out what is none"
        )
    numbers = [dtype for dtype in found if dtype is not None]
    return FrameSource(
        array=frame,
        name=name_of(frame),
        shape=tuple(frame.shape),
        dtype=np.result_type(*numbers) if numbers else np.dtype(np.float64),
        column_names=_names(frame.columns),
    )


def labelled_source(array: Any, memory: int, recovery: int) -> ArraySource:
    """A DataArray of xarray; what is not loaded is read, or computed by Dask, as it is needed."""
    names: tuple[str, ...] = ()
    if len(array.dims) == 2 and array.dims[1] in array.coords:
        names = _names(array.coords[array.dims[1]].values)
    if array.chunks is not None:
        return chunked_source(array.data, memory, recovery, names)
    plain = array_source(array)
    return ArraySource(
        array=array, name=plain.name, shape=plain.shape, dtype=plain.dtype, column_names=names
    )


def _number_dtype(dtype: Any) -> np.dtype[Any] | None:
    """Of the numbers of a column; None where it holds others, or none."""
    if type(dtype).__name__ == "SparseDtype":
        dtype = dtype.subtype
    missing = hasattr(dtype, "numpy_dtype")  # a column of pandas's own, which may lack numbers
    try:
        found = np.dtype(dtype.numpy_dtype if missing else dtype)
    except TypeError:
        return None
    if found.kind not in "fiubc":
        return None
    return np.dtype(np.float64) if missing and found.kind != "f" else found


def _names(labels: Any) -> tuple[str, ...]:
    """Labels of columns, if all of them are text."""
    return tuple(map(str, labels)) if all(isinstance(label, str) for label in labels) else ()


class Chunks:
    """Chunks that were computed, the last used ones, for several threads.

    Parameters
    ----------
    room : int
        Bytes that those take which are kept and those that are being computed, if there are
        more than one.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._kept: OrderedDict[Any, tuple[int, NDArray[Any]]] = OrderedDict()
        self._computed: dict[Any, int] = {}  # just now: bytes by key
        self._changed = threading.Condition()

    def get(self, key: Any, size: int, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """A chunk, computed unless it is kept; one thread computes it for all."""
        with self._changed:
            while True:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key][1]
                if key not in self._computed and self._made_room(size):
                    break
                self._changed.wait()
            self._computed[key] = size
        try:
            chunk = compute()
            with self._changed:
                self._kept[key] = (size, chunk)
            return chunk
        finally:
            with self._changed:
                del self._computed[key]
                self._changed.notify_all()

    def _made_room(self, size: int) -> bool:
        computed = sum(self._computed.values())
        while self._kept and computed + size + sum(n for n, _ in self._kept.values()) > self._room:
            self._kept.popitem(last=False)
        return not computed or computed + size <= self._room


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkedSource(ArraySource):
    """A Dask array.

    Attributes
    ----------
    downs, acrosses : tuple of int
        Where chunks begin, from row 0 and column 0, and at last the end of all.
    """

    downs: tuple[int, ...] = field(repr=False)
    acrosses: tuple[int, ...] = field(repr=False)
    chunks: Chunks = field(repr=False)
    copies: ClassVar[int] = 1

    def _read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        for i, top, bottom in _overlapping(self.downs, start, stop):
            for j, first, last in _overlapping(self.acrosses, left, right):
                row, column = self.downs[i], self.acrosses[j]
                chunk = self._chunk(i, j)
                fill(
                    out[top - start : bottom - start, first - left : last - left],
                    chunk[top - row : bottom - row, first - column : last - column],
                )

    def _chunk(self, i: int, j: int) -> NDArray[Any]:
        shape = (self.downs[i + 1] - self.downs[i], self.acrosses[j + 1] - self.acrosses[j])

        def compute() -> NDArray[Any]:
            values = self.array.blocks[i, j].compute(**_scheduler())
            return self.checked(values, self.downs[i], self.acrosses[j], shape)

        return self.chunks.get((i, j), math.prod(shape) * self.dtype.itemsize, compute)


def chunked_source(
    array: Any, memory: int, recovery: int, column_names: tuple[str, ...] = ()
) -> ChunkedSource:
    """A Dask array.

    Parameters
    ----------
    array : dask.array.Array
    memory : int
        Bytes that this process may take: chunks get up to half of what is left of them.
    recovery : int
        L: X is read at L places, each from its beginning to its end.
    column_names : tuple of str

    Raises
    ------
    InputError
        It is no matrix, or nobody knows how many rows its chunks have.
    """
    name = name_of(array)
    if any(math.isnan(size) for sizes in array.chunks for size in sizes):
        raise InputError(
            f"{name} has chunks of unknown size, shape {array.shape}: "
            "X.compute_chunk_sizes() finds them"
        )
    shape, dtype = shape_and_dtype(array)
    if len(shape) != 2:
        raise InputError(f"{name} has shape {shape}: expected (q, r), both at least 1")
    downs, acrosses = (tuple(accumulate(sizes, initial=0)) for sizes in array.chunks)
    height, width = (max(b - a for a, b in pairwise(ends)) for ends in (downs, acrosses))
    size = math.prod(shape) * dtype.itemsize
    # At each place a row of chunks, one more where it goes on to the next, and one to come.
    wanted = min(size, (recovery + 2) * height * shape[1] * dtype.itemsize)
    room = max(min(wanted, (memory - _BESIDE) // 2), height * width * dtype.itemsize)
    warning = ""
    if room < wanted:
        warning = (
            f"{name} has chunks of {height} x {width}: each is computed more than once, but only "
            f"once with memory {_BESIDE + 2 * wanted >> 20}M or with smaller chunks"
        )
    return ChunkedSource(
        array=array,
        name=name,
        shape=shape,
        dtype=dtype,
        column_names=column_names,
        warning=warning,
        held=room,
        downs=downs,
        acrosses=acrosses,
        chunks=Chunks(room),
    )


def _overlapping(ends: tuple[int, ...], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Chunks that hold a stretch: their number, and where it begins and ends in each."""
    first = int(np.searchsorted(ends, start, side="right")) - 1
    for number in range(first, len(ends) - 1):
        begin, end = max(start, ends[number]), min(stop, ends[number + 1])
        if ends[number] >= stop:
            return
        if begin < end:
            yield number, begin, end


def _scheduler() -> dict[str, str]:
    """One thread computes a chunk, unless the user has chosen how Dask computes."""
    from dask import base

    chosen = base.get_scheduler()  # type: ignore[no-untyped-call]
    return {} if chosen else {"scheduler": "synchronous"}
