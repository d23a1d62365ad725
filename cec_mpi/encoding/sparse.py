"""A sparse X as rows in CSR: what a program holds, or files that are read once, in pieces.

Whatever is not already CSR in memory goes to files of plain numbers beside the store, which are
removed at the end: rows, with their columns in order and repeated entries summed, as in SciPy.
"""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from cec_mpi.encoding.sources import split_path
from cec_mpi.encoding.sources.arrays import is_a, name_of, shape_and_dtype
from cec_mpi.encoding.sources.market import MARKET_DTYPES
from cec_mpi.encoding.sources.source import reason_of, stamps_of, unreadable
from cec_mpi.encoding.sources.table import EXACT
from cec_mpi.errors import InputError
from cec_mpi.files.formats import HDF5_SUFFIXES, library
from cec_mpi.files.npy import check_real
from cec_mpi.files.paths import as_path
from cec_mpi.files.regular import check_regular
from cec_mpi.files.replacing import temporary
from cec_mpi.text import shown

_TOGETHER = 1 << 20  # entries that are read at once
_BUCKET = 1 << 22  # entries of rows that are sorted at once
_MOST_BUCKETS = 200
_SUFFIXES = (".npz", ".mtx", ".mtx.gz", *HDF5_SUFFIXES)
_LISTED = 5  # groups of a file
_DENSE = "a dense X needs a recovery threshold (--recovery L): any L machines then give X back"

Ints = NDArray[np.int64]
Triplets = tuple[Ints, Ints, NDArray[Any]]
"""Rows, columns and values of some entries, in any order."""


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse X, in CSR.

    Attributes
    ----------
    name : str
        For messages.
    shape : (int, int)
    values : (nnz,) ndarray
    columns : (nnz,) ndarray of int
        Ascending in each row.
    pointers : (q + 1,) ndarray of int
        Entries before each row.
    """

    name: str
    shape: tuple[int, int]
    values: NDArray[Any]
    columns: NDArray[np.integer]
    pointers: NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Rows that come in pieces, the first rows first: each piece is a sparse matrix."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterator[Any]]


@dataclass(frozen=True, eq=False)
class _Entries:
    """Entries that come in any order."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    count: int
    pieces: Callable[[], Iterator[Triplets]]


def _is_sparse(array: Any) -> bool:
    return is_a(array, "scipy", "_spbase", "spmatrix", "sparray")


def check_is_sparse(source: Any) -> None:
    """Raise if a file has no format of sparse matrices.

    Raises
    ------
    InputError
        Says what a dense X needs.
    """
    if isinstance(source, str | os.PathLike):
        path, *_ = split_path(str(as_path(source)))
        if not path.exists():
            raise InputError(f"{path} does not exist")
        if not path.name.lower().endswith(_SUFFIXES):
            raise InputError(
                f"{source} is not a sparse matrix (.npz of SciPy, .mtx, or a group of CSR or CSC "
                f"in HDF5); {_DENSE}"
            )


@contextmanager
def sparse_rows(source: Any, store: Path) -> Iterator[SparseRows]:
    """Give the rows of a sparse X, which are there in the block alone.

    Parameters
    ----------
    source : path or array
        An ``.npz`` file of SciPy, a Matrix Market file, or ``file.h5::/group`` with CSR or CSC as
        AnnData writes it; a sparse array of SciPy, or what has a shape, a dtype and slices of rows
        that are sparse.
    store : Path
        Beside which files are read to.

    Raises
    ------
    InputError
        It is no matrix of real, finite numbers, an index is out of range, or a file changes while
        it is read.
    """
    if not isinstance(source, str | os.PathLike):
        array = _held(name_of(source), source) if _is_sparse(source) else _sliced(source)
        with _in_rows(array, store) as rows:
            yield rows
        return
    text = str(as_path(source))
    path, *_ = split_path(text)
    check_regular(path)
    try:
        stamps = stamps_of(path)
        file = _opened(text)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (InputError, MemoryError):
        raise
    except Exception as error:  # whatever a library raises for a damaged file
        raise unreadable(text, error) from None
    with _in_rows(file, store) as rows:
        if not path.exists() or stamps_of(path) != stamps:
            raise InputError(
                f"{text} changed during the encode: encode it when no other program writes to it"
            )
        yield rows


@contextmanager
def _in_rows(opened: _Pieces | _Entries | SparseRows, store: Path) -> Iterator[SparseRows]:
    """What was opened as rows, all of which are read in the beginning."""
    if isinstance(opened, SparseRows):
        yield opened
        return
    with ExitStack() as stack:
        files = [stack.enter_context(temporary(store)) for _ in range(2)]
        sinks = [
            stack.enter_context(os.fdopen(os.dup(descriptor), "wb")) for descriptor, _ in files
        ]
        width = np.dtype(np.int32 if opened.shape[1] < 2**31 else np.int64)
        counts = [np.zeros(1, np.int64)]
        rows = _read(opened) if isinstance(opened, _Pieces) else _sorted(opened, store)
        stack.enter_context(closing(rows))  # a traceback may hold it, and with it its files
        done = 0
        for piece in rows:
            some = _checked(piece, opened.name, opened.shape[1], done)
            done += some.shape[0]
            sinks[0].write(np.ascontiguousarray(some.data, opened.dtype).data)
            sinks[1].write(np.ascontiguousarray(some.indices, width).data)
            counts.append(np.diff(some.indptr).astype(np.int64))
        for sink in sinks:
            sink.flush()
        if done != opened.shape[0]:
            raise InputError(
                f"{opened.name} gives {done} rows: expected {opened.shape[0]}, as its shape says"
            )
        pointers = np.cumsum(np.concatenate(counts))
        total = int(pointers[-1])
        values, columns = (
            np.memmap(path, kind, "r", shape=(total,)) if total else np.empty(0, kind)
            for (_, path), kind in zip(files, (opened.dtype, width), strict=True)
        )
        yield SparseRows(opened.name, opened.shape, values, columns, pointers)


def _read(matrix: _Pieces | _Entries) -> Generator[Any, None, None]:
    """The pieces of a matrix; whatever a library raises for a damaged file is bad input."""
    try:
        yield from matrix.pieces()
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise unreadable(matrix.name, error) from None


def _checked(rows: Any, name: str, columns: int, before: int) -> Any:
    """Rows in CSR with finite values, columns in order and none of them twice.

    Parameters
    ----------
    rows : csr_array
    name : str
    columns : int
        That X has.
    before : int
        Rows of X before these.
    """
    low, high = int(rows.indices.min(initial=0)), int(rows.indices.max(initial=0))
    if low < 0 or high >= columns:
        raise InputError(
            f"{name} has column {low if low < 0 else high} (counted from 0) in rows "
            f"{before}..{before + rows.shape[0] - 1}: expected 0 to {columns - 1}"
        )
    rows = _summed(name, rows)
    bad = np.flatnonzero(~np.isfinite(rows.data))
    if bad.size:
        row = before + int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"{name} holds {rows.data[bad[0]]} at row {row}, column "
            f"{rows.indices[bad[0]]} (counted from 0): expected finite numbers"
        )
    return rows


def _held(name: str, array: Any) -> SparseRows:
    shape, dtype = shape_and_dtype(array)
    checked = _checked_shape(name, shape)
    check_real(name, dtype)
    rows = _checked(_as_rows(name, array), name, checked[1], 0)
    return SparseRows(name, checked, rows.data, rows.indices, rows.indptr)


def _as_rows(name: str, array: Any) -> Any:
    """A sparse array of somebody else in CSR: SciPy's conversions trust indices."""
    try:
        if hasattr(array, "check_format"):
            array.check_format(full_check=True)
        elif array.format == "coo":
            coo_array((array.data, (array.row, array.col)), shape=array.shape)
        return _summed(name, array)
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{name} cannot be read: {reason_of(error)}") from None


def _summed(name: str, array: Any) -> Any:
    """A sparse array in CSR, with columns in order and none of them twice."""
    rows = csr_array(array)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if rows.nnz < array.nnz and rows.dtype.kind in "iu":
        exact = csr_array(array.astype(np.longdouble))
        exact.sum_duplicates()
        if (exact.data != rows.data).any():
            raise InputError(
                f"{name} has repeated entries whose sum {rows.dtype} cannot hold: convert it to "
                "float64"
            )
    return rows


def _checked_shape(name: str, shape: Any) -> tuple[int, int]:
    """A shape of rows and columns, for which there is memory: X is written row after row."""
    lengths = np.asarray(shape)
    if lengths.shape != (2,) or lengths.dtype.kind not in "iu":
        raise InputError(f"{name} has shape {shape}: expected (q, r)")
    rows, columns = lengths.tolist()
    if min(rows, columns) < 1:
        raise InputError(f"{name} has shape {(rows, columns)}: expected at least one of each")
    try:
        np.empty(2 * (rows + columns))
    except (MemoryError, ValueError):
        raise InputError(
            f"{name} has shape {(rows, columns)}: there is no memory for vectors of this length"
        ) from None
    return rows, columns


def _sliced(array: Any) -> _Pieces:
    name = name_of(array)
    shape, dtype = shape_and_dtype(array)
    rows, columns = _checked_shape(name, shape)
    check_real(name, dtype)

    def pieces() -> Iterator[Any]:
        together = max(1, min(rows, (_TOGETHER << 3) // columns))
        for start in range(0, rows, together):
            try:
                some = array[start : min(start + together, rows)]
            except Exception as error:  # of a program's own
                raise InputError(
                    f"{name} cannot be read from row {start} on: {reason_of(error)}"
                ) from error
            if not _is_sparse(some):
                raise InputError(
                    f"{name} gives rows as {type(some).__name__}, not as a sparse array of SciPy; "
                    f"{_DENSE}"
                )
            if some.dtype != dtype:
                raise InputError(f"{name} gives {some.dtype}: expected {dtype}, as its dtype says")
            expected = (min(start + together, rows) - start, columns)
            if some.shape != expected:
                raise InputError(
                    f"{name} gives rows of shape {some.shape} from row {start} on: expected "
                    f"{expected}"
                )
            yield _as_rows(name, some)

    return _Pieces(name, (rows, columns), dtype, pieces)


def _opened(text: str) -> _Pieces | _Entries | SparseRows:
    path, _, inner = split_path(text)
    name = path.name.lower()
    if name.endswith(".npz"):
        return _npz(path)
    if name.endswith((".mtx", ".mtx.gz")):
        return _market(path)
    return _group(path, inner)


def _pointers(name: str, pointers: Any, size: int, *counts: int) -> Ints:
    """Row pointers, or column pointers, that fit this shape and numbers of values and indices."""
    if pointers.shape != (size + 1,) or pointers.dtype.kind not in "iu":
        raise InputError(
            f"{name} has indptr of shape {pointers.shape} and {pointers.dtype}: expected "
            f"{size + 1} whole numbers"
        )
    if pointers[0] != 0 or (pointers[1:] < pointers[:-1]).any() or pointers[-1] > min(counts):
        raise InputError(
            f"{name} has indptr from {pointers[0]} to {pointers[-1]}: expected them to ascend from "
            f"0 to at most {min(counts)}, as there are values and indices"
        )
    found: Ints = pointers.astype(np.int64)
    return found


def _cuts(pointers: Ints) -> Iterator[tuple[int, int]]:
    """Rows with about so many entries as are read at once."""
    start, last = 0, pointers.size - 1
    while start < last:
        stop = int(np.searchsorted(pointers, pointers[start] + _TOGETHER, side="right")) - 1
        stop = min(max(stop, start + 1), last, start + _TOGETHER)
        yield start, stop
        start = stop


def _compressed(
    name: str,
    shape: Any,
    is_csc: bool,
    pointers: Any,
    arrays: Any,
    pieces: Callable[[Callable[..., Any], Ints], Iterator[Any]],
) -> _Pieces | _Entries:
    """Rows of CSR, or entries of CSC.

    Parameters
    ----------
    name : str
    shape : sequence of int
    is_csc : bool
    pointers : ndarray
    arrays : (object, object)
        Values and indices: their shapes and dtypes.
    pieces : callable
        Gets what to make of values, indices, and the rows or columns that they are of, and the
        pointers; gives one after the other.
    """
    size = _checked_shape(name, shape)
    values, indices = arrays
    _check_numbers(name, values, indices)
    found = _pointers(name, pointers, size[is_csc], values.shape[0], indices.shape[0])
    dtype = _dtype(values)

    def triplets(values: Any, indices: Any, start: int, stop: int) -> Triplets:
        columns = np.repeat(np.arange(start, stop), np.diff(found[start : stop + 1]))
        return indices.astype(np.int64), columns, values

    def rows(values: Any, indices: Any, start: int, stop: int) -> Any:
        matrix = csr_array((stop - start, size[1]), dtype=dtype)
        kind = np.int32 if indices.dtype == np.int32 and indices.size < 2**31 else np.int64
        matrix.data = values.astype(dtype, copy=False)
        matrix.indices = indices.astype(kind, copy=False)
        matrix.indptr = (found[start : stop + 1] - found[start]).astype(kind, copy=False)
        return matrix

    if is_csc:
        return _Entries(name, size, dtype, int(found[-1]), lambda: pieces(triplets, found))
    return _Pieces(name, size, dtype, lambda: pieces(rows, found))


def _check_numbers(name: str, values: Any, *indices: Any) -> None:
    """Refuse values that are not real, and indices that are not whole, or not one for each."""
    check_real(name, values.dtype)
    for each in indices:
        if each.dtype.kind not in "iu":
            raise InputError(f"{name} has indices of {each.dtype}: expected whole numbers")
        if len(each.shape) != 1 or each.shape != values.shape:
            raise InputError(
                f"{name} has values of shape {values.shape} and indices of shape {each.shape}: "
                "expected an index for each value"
            )


def _dtype(values: Any) -> np.dtype[Any]:
    """The dtype in which these values are summed: SciPy has no sparse arrays of float16."""
    found: np.dtype[Any] = values.dtype.newbyteorder("=")
    return np.dtype(np.float32) if found == np.float16 else found


# Files of SciPy.


def _npz(path: Path) -> _Pieces | _Entries | SparseRows:
    name = str(path)
    with zipfile.ZipFile(path) as file, ExitStack() as stack:
        names = {name.removesuffix(".npy") for name in file.namelist()}
        if not {"format", "shape"} <= names:
            raise InputError(
                f"{path} holds no sparse matrix: expected what scipy.sparse.save_npz writes"
            )
        form = str(_array(file, "format").astype(str))
        shape = _array(file, "shape").tolist()

        def members(*names: str) -> list[_Member]:
            return [stack.enter_context(_Member(file, name)) for name in names]

        if form in ("csr", "csc"):
            pointers, arrays = _array(file, "indptr"), members("data", "indices")
            return _compressed(name, shape, form == "csc", pointers, arrays, partial(_of_npz, path))
        if form == "coo":
            size = _checked_shape(name, shape)
            if not {"row", "col"} <= names:
                raise InputError(f"{path} holds a sparse array that is no matrix")
            values, *at = members("data", "row", "col")
            _check_numbers(name, values, *at)
            return _Entries(
                name, size, _dtype(values), values.shape[0], lambda: _npz_triplets(path)
            )
    from scipy.sparse import load_npz

    return _held(name, load_npz(path))


def _array(file: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """A small array of a zip file."""
    with file.open(f"{name}.npy") as member:
        found: NDArray[Any] = np.lib.format.read_array(member)
        return found


class _Member:
    """An array in a zip file, from which numbers are read in order."""

    def __init__(self, file: zipfile.ZipFile, name: str) -> None:
        self._file: Any = file.open(f"{name}.npy")
        version = np.lib.format.read_magic(self._file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        self.shape, _, self.dtype = read(self._file)

    def take(self, count: int) -> NDArray[Any]:
        """The next numbers."""
        data = self._file.read(count * self.dtype.itemsize)
        return np.frombuffer(data, self.dtype, count)

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _of_npz(path: Path, make: Callable[..., Any], pointers: Ints) -> Iterator[Any]:
    with (
        zipfile.ZipFile(path) as file,
        _Member(file, "data") as data,
        _Member(file, "indices") as indices,
    ):
        for start, stop in _cuts(pointers):
            count = int(pointers[stop] - pointers[start])
            yield make(data.take(count), indices.take(count), start, stop)


def _npz_triplets(path: Path) -> Iterator[Triplets]:
    with zipfile.ZipFile(path) as file, ExitStack() as stack:
        names = ("row", "col", "data")
        members = [stack.enter_context(_Member(file, name)) for name in names]
        left = members[2].shape[0]
        while left:
            some = min(left, _TOGETHER)
            rows, columns, values = (member.take(some) for member in members)
            yield rows.astype(np.int64), columns.astype(np.int64), values
            left -= some


# HDF5: groups as AnnData writes them.


def _is_group(node: Any) -> bool:
    return hasattr(node, "keys") and {"data", "indices", "indptr"} <= set(node)


def _groups(file: Any) -> list[str]:
    """The sparse matrices in a file."""
    found: list[str] = ["/"] if _is_group(file) else []
    file.visititems(lambda name, node: found.append(f"/{name}") if _is_group(node) else None)
    return found


def _group(path: Path, inner: str) -> _Pieces | _Entries:
    with library("h5py", path).File(path, "r") as file:
        is_it = inner and inner in file and _is_group(file[inner])
        found = [inner] if is_it else _groups(file)
        if len(found) != 1 or (inner and not is_it):
            name = f"{path}::{inner}" if inner else str(path)
            which = (
                f"expected one of {', '.join(f'{path}::{each}' for each in found[:_LISTED])}"
                if found
                else _DENSE
            )
            raise InputError(
                f"{name} is not a sparse matrix (a group with data, indices and indptr); {which}"
            )
        inner = found[0]
        name, group = f"{path}::{inner}", file[inner]
        kind = group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", "csr_matrix"))
        shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
        if shape is None:
            raise InputError(f"{name} has no attribute shape: expected that of AnnData")
        kind = kind.decode("latin-1") if isinstance(kind, bytes) else str(kind)
        if not kind.startswith(("csr", "csc")):
            raise InputError(f"{name} holds {kind}: expected csr_matrix or csc_matrix")
        pointers, arrays = group["indptr"][()], (group["data"], group["indices"])
        is_csc = kind.startswith("csc")
        return _compressed(name, shape, is_csc, pointers, arrays, partial(_of_group, path, inner))


def _of_group(path: Path, inner: str, make: Callable[..., Any], pointers: Ints) -> Iterator[Any]:
    with library("h5py", path).File(path, "r") as file:
        group = file[inner]
        for start, stop in _cuts(pointers):
            place = slice(int(pointers[start]), int(pointers[stop]))
            yield make(group["data"][place], group["indices"][place], start, stop)


# Matrix Market.


def _market(path: Path) -> _Entries | SparseRows:
    from scipy.io import mminfo

    *shape, count, form, field, symmetry = mminfo(path)
    if field not in MARKET_DTYPES:
        raise InputError(f"{path} holds {field} numbers: expected real ones")
    if form != "coordinate":
        raise InputError(f"{path} is dense; {_DENSE}")
    rows, columns = _checked_shape(str(path), shape)
    dtype = np.dtype(MARKET_DTYPES[field])

    def pieces() -> Iterator[Triplets]:
        import pandas as pd

        kinds = {"row": "i8", "column": "i8"} | ({} if field == "pattern" else {"value": dtype.str})
        version = tuple(map(int, pd.__version__.split(".")[:2]))
        seen = 0
        with _text(path) as file:
            next(line for line in file if _is_content(line))  # says how many
            chunks = pd.read_csv(
                file,
                sep=r"\s+",
                comment="%",
                header=None,
                names=[*kinds, "more"],
                dtype=kinds | {"more": "str"},
                index_col=False,
                **({} if version >= EXACT else {"float_precision": "round_trip"}),
                chunksize=_TOGETHER,
            )
            for chunk in chunks if count else ():
                if chunk["more"].notna().any():
                    raise InputError(
                        f"{path} has lines of more than {len(kinds)} numbers: expected "
                        f"{' and '.join(kinds)}, as its first line says"
                    )
                at = chunk["row"].to_numpy() - 1, chunk["column"].to_numpy() - 1
                values = chunk["value"].to_numpy() if "value" in chunk else np.ones(len(chunk))
                for is_bad, expected in (
                    ((at[0] < 0) | (at[0] >= rows), f"a row from 1 to {rows}"),
                    ((at[1] < 0) | (at[1] >= columns), f"a column from 1 to {columns}"),
                    (np.isnan(values), "a row, a column and a finite number"),
                ):
                    if is_bad.any():
                        line = _entry_line(path, seen + int(np.argmax(is_bad)))
                        raise InputError(f"{path}: {line}, expected {expected}")
                seen += len(chunk)
                yield *at, values
                if symmetry != "general":
                    off = at[0] != at[1]
                    mirrored = values[off]
                    yield at[1][off], at[0][off], -mirrored if symmetry[:4] == "skew" else mirrored
        if seen != count:
            raise InputError(f"{path} has {seen} entries: its first line says {count}")

    return _Entries(str(path), (rows, columns), dtype, count, pieces)


def _text(path: Path) -> Any:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    return opened(path, "rt", encoding="latin-1")


def _is_content(line: str) -> bool:
    return bool(line.strip()) and line.lstrip()[0] != "%"


def _entry_line(path: Path, entry: int) -> str:
    """Name and show the line of an entry, counted from 0."""
    with _text(path) as file:
        lines = ((n, x) for n, x in enumerate(file, start=1) if _is_content(x))
        number, text = next(islice(lines, entry + 1, None))
    return f"line {number} is {shown(text.strip())}"


def _sorted(matrix: _Entries, store: Path) -> Generator[Any, None, None]:
    """Rows of entries in any order: those of neighbouring rows are put in files of their own."""
    rows, columns = matrix.shape
    buckets = int(min(_MOST_BUCKETS, rows, max(1, -(-matrix.count // _BUCKET))))
    height = -(-rows // buckets)
    with ExitStack() as stack:
        files = [stack.enter_context(temporary(store)) for _ in range(-(-rows // height))]
        sinks = [stack.enter_context(os.fdopen(os.dup(d), "wb")) for d, _ in files]
        kind = np.dtype([("row", "i8"), ("column", "i8"), ("value", matrix.dtype)])
        for at, across, values in _read(matrix):
            low, high = int(at.min(initial=0)), int(at.max(initial=0))
            if low < 0 or high >= rows:
                raise InputError(
                    f"{matrix.name} has row {low if low < 0 else high} (counted from 0): expected "
                    f"0 to {rows - 1}"
                )
            records = np.empty(at.size, kind)
            records["row"], records["column"], records["value"] = at, across, values
            which = at // height
            order = np.argsort(which, kind="stable")
            ends = np.cumsum(np.bincount(which, minlength=len(files)))
            for sink, some in zip(sinks, np.split(records[order], ends[:-1]), strict=True):
                sink.write(some.data)
        for (_, path), sink, start in zip(files, sinks, range(0, rows, height), strict=True):
            sink.flush()
            some = np.fromfile(path, kind)
            low, high = int(some["column"].min(initial=0)), int(some["column"].max(initial=0))
            if low < 0 or high >= columns:
                raise InputError(
                    f"{matrix.name} has column {low if low < 0 else high} (counted from 0): "
                    f"expected 0 to {columns - 1}"
                )
            shape = (min(height, rows - start), columns)
            entries = some["value"], (some["row"] - start, some["column"])
            yield _summed(matrix.name, coo_array(entries, shape=shape))
