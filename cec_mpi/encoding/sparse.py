"""A sparse X as rows in CSR: what a program holds, or files that are read once, in pieces.

Whatever is not already CSR in memory goes to files of plain numbers beside the store, which are
removed at the end: rows, with their columns in order and repeated entries summed, as in SciPy.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from cec_mpi.encoding.sources.arrays import is_a, name_of, shape_and_dtype
from cec_mpi.encoding.sources.source import reason_of, unreadable
from cec_mpi.errors import InputError
from cec_mpi.files.formats import HDF5_SUFFIXES, library
from cec_mpi.files.npy import check_real
from cec_mpi.files.replacing import temporary

_TOGETHER = 1 << 20  # entries that are read at once
_BUCKET = 1 << 23  # entries of rows that are sorted at once
_MOST_BUCKETS = 200
_MARKET_VALUES = {"real": 1, "double": 1, "integer": 1, "pattern": 0}

Ints = NDArray[np.int64]
Triplets = tuple[Ints, Ints, NDArray[np.float64]]
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
    column_names : tuple of str
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
    pieces: Callable[[], Iterator[Any]]


@dataclass(frozen=True, eq=False)
class _Entries:
    """Entries that come in any order."""

    name: str
    shape: tuple[int, int]
    count: int
    pieces: Callable[[], Iterator[Triplets]]


def is_sparse(source: Any) -> bool:
    """Whether X is sparse: a file of a sparse format, or a sparse array of SciPy."""
    if not isinstance(source, str | Path):
        return is_a(source, "scipy", "_spbase", "spmatrix", "sparray")
    path, _, inner = str(source).partition("::")
    if path.lower().endswith((".npz", ".mtx", ".mtx.gz")):
        return True
    return path.lower().endswith(HDF5_SUFFIXES) and _is_group(Path(path), inner)


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
        It is no matrix of real, finite numbers, or an index is out of range.
    """
    if isinstance(source, str | Path):
        opened = _opened(str(source))
    elif is_a(source, "scipy", "_spbase", "spmatrix", "sparray"):
        opened = _held(source)
    else:
        opened = _sliced(source)
    if min(opened.shape) < 1:
        raise InputError(f"{opened.name} has shape {opened.shape}: expected at least one of each")
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
        rows = opened.pieces() if isinstance(opened, _Pieces) else _sorted(opened, store)
        for piece in rows:
            some = _checked(piece, opened, sum(each.size for each in counts) - 1)
            sinks[0].write(np.ascontiguousarray(some.data, np.float64).data)
            sinks[1].write(np.ascontiguousarray(some.indices, width).data)
            counts.append(np.diff(some.indptr).astype(np.int64))
        for sink in sinks:
            sink.flush()
        pointers = np.cumsum(np.concatenate(counts))
        if pointers.size != opened.shape[0] + 1:
            raise InputError(
                f"{opened.name} gives {pointers.size - 1} rows: expected {opened.shape[0]}, as its "
                "shape says"
            )
        total = int(pointers[-1])
        values, columns = (
            np.memmap(path, kind, "r", shape=(total,)) if total else np.empty(0, kind)
            for (_, path), kind in zip(files, (np.dtype(np.float64), width), strict=True)
        )
        yield SparseRows(opened.name, opened.shape, values, columns, pointers)


def _checked(piece: Any, matrix: Any, before: int) -> Any:
    """A piece of rows in CSR, with finite values, columns in order and none of them twice."""
    check_real(matrix.name, np.dtype(piece.dtype))
    rows = csr_array(piece)
    if rows.shape[1] != matrix.shape[1]:
        raise InputError(
            f"{matrix.name} gives rows of {rows.shape[1]} numbers: expected {matrix.shape[1]}"
        )
    low = int(rows.indices.min(initial=0))
    high = int(rows.indices.max(initial=0))
    if low < 0 or high >= matrix.shape[1] or (np.diff(rows.indptr) < 0).any():
        raise InputError(
            f"{matrix.name} has column {low if low < 0 else high} (counted from 0) in rows "
            f"{before}..{before + rows.shape[0] - 1}: expected 0 to {matrix.shape[1] - 1}"
        )
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(rows.data))
    if bad.size:
        row = before + int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"{matrix.name} holds {rows.data[bad[0]]} at row {row}, column "
            f"{rows.indices[bad[0]]} (counted from 0): expected finite numbers"
        )
    return rows


def _held(array: Any) -> SparseRows:
    name, shape = name_of(array), _two_dimensional(array)
    try:
        rows = csr_array(array)
    except Exception as error:
        raise InputError(f"{name} cannot be read: {reason_of(error)}") from None
    whole = _Pieces(name, shape, lambda: iter(()))
    if not array.nnz:
        check_real(name, np.dtype(array.dtype))
    rows = _checked(rows, whole, 0)
    return SparseRows(name, shape, rows.data, rows.indices, rows.indptr)


def _two_dimensional(array: Any) -> tuple[int, int]:
    shape, _ = shape_and_dtype(array)
    if len(shape) != 2:
        raise InputError(f"{name_of(array)} has shape {shape}: expected (q, r)")
    return shape[0], shape[1]


def _sliced(array: Any) -> _Pieces:
    name, shape = name_of(array), _two_dimensional(array)

    def pieces() -> Iterator[Any]:
        together = max(1, min(shape[0], (_TOGETHER << 3) // max(1, shape[1])))
        for start in range(0, shape[0], together):
            try:
                some = array[start : min(start + together, shape[0])]
            except Exception as error:  # of a program's own
                raise InputError(
                    f"{name} cannot be read from row {start} on: {reason_of(error)}"
                ) from error
            yield some

    return _Pieces(name, shape, pieces)


def _opened(text: str) -> _Pieces | _Entries | SparseRows:
    path, _, inner = text.partition("::")
    if not Path(path).exists():
        raise InputError(f"{path}: no such file")
    try:
        if path.lower().endswith(".npz"):
            return _npz(Path(path))
        if path.lower().endswith((".mtx", ".mtx.gz")):
            return _market(Path(path))
        return _group(Path(path), inner)
    except InputError:
        raise
    except Exception as error:  # whatever a library raises for a damaged file
        raise unreadable(text, error) from None


# Files of SciPy.


def _npz(path: Path) -> _Pieces | _Entries | SparseRows:
    with zipfile.ZipFile(path) as file:
        names = {name.removesuffix(".npy") for name in file.namelist()}
        if not {"format", "shape"} <= names:
            raise InputError(
                f"{path} holds no sparse matrix: expected what scipy.sparse.save_npz writes"
            )
        form = np.lib.format.read_array(file.open("format.npy")).item().decode()
        shape = tuple(np.lib.format.read_array(file.open("shape.npy")).tolist())
        pointers = (
            np.lib.format.read_array(file.open("indptr.npy")).astype(np.int64)
            if form in ("csr", "csc")
            else None
        )
    name = str(path)
    if form == "csr":
        assert pointers is not None
        return _Pieces(name, shape, lambda: _npz_rows(path, pointers, shape[1]))
    if form == "csc":
        assert pointers is not None
        count = int(pointers[-1])
        return _Entries(name, shape, count, lambda: _npz_columns(path, pointers))
    if form == "coo":
        with zipfile.ZipFile(path) as file, _Member(file, "data") as data:
            count = data.count
        return _Entries(name, shape, count, lambda: _npz_triplets(path))
    from scipy.sparse import load_npz

    return _held(load_npz(path))


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
        shape, _, self.dtype = read(self._file)
        self.count = int(np.prod(shape))

    def take(self, count: int) -> NDArray[Any]:
        """The next numbers."""
        data = self._file.read(count * self.dtype.itemsize)
        return np.frombuffer(data, self.dtype, count)

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _npz_rows(path: Path, pointers: Ints, columns: int) -> Iterator[Any]:
    with (
        zipfile.ZipFile(path) as file,
        _Member(file, "data") as data,
        _Member(file, "indices") as indices,
    ):
        for start, stop in _cuts(pointers):
            count = int(pointers[stop] - pointers[start])
            values, at = data.take(count), indices.take(count)
            yield _as_csr(values, at, pointers[start : stop + 1], columns)


def _npz_columns(path: Path, pointers: Ints) -> Iterator[Triplets]:
    with (
        zipfile.ZipFile(path) as file,
        _Member(file, "data") as data,
        _Member(file, "indices") as indices,
    ):
        for start, stop in _cuts(pointers):
            count = int(pointers[stop] - pointers[start])
            columns = np.repeat(np.arange(start, stop), np.diff(pointers[start : stop + 1]))
            yield indices.take(count).astype(np.int64), columns, data.take(count)


def _npz_triplets(path: Path) -> Iterator[Triplets]:
    with zipfile.ZipFile(path) as file, ExitStack() as stack:
        try:
            names = ("row", "col", "data")
            members = [stack.enter_context(_Member(file, name)) for name in names]
        except KeyError:
            raise InputError(f"{path} holds a sparse array that is no matrix") from None
        left = members[2].count
        while left:
            some = min(left, _TOGETHER)
            rows, columns, values = (member.take(some) for member in members)
            yield rows.astype(np.int64), columns.astype(np.int64), values
            left -= some


def _cuts(pointers: Ints) -> Iterator[tuple[int, int]]:
    """Rows with about so many entries as are read at once."""
    start, last = 0, pointers.size - 1
    if pointers[0] != 0 or (np.diff(pointers) < 0).any():
        raise InputError("row pointers that are not ascending from 0")
    while start < last:
        stop = int(np.searchsorted(pointers, pointers[start] + _TOGETHER, side="right")) - 1
        stop = min(max(stop, start + 1), last, start + _TOGETHER)
        yield start, stop
        start = stop


def _as_csr(values: Any, indices: Any, pointers: Ints, columns: int) -> Any:
    matrix = csr_array((pointers.size - 1, columns), dtype=values.dtype)
    matrix.data, matrix.indices = values, indices
    matrix.indptr = (pointers - pointers[0]).astype(indices.dtype)
    return matrix


# HDF5: groups as AnnData writes them.


def _is_group(path: Path, inner: str) -> bool:
    try:
        h5py = library("h5py", path)
        with h5py.File(path, "r") as file:
            node = file[inner or "/"]
            return isinstance(node, h5py.Group) and {"data", "indices", "indptr"} <= set(node)
    except (InputError, OSError, KeyError):
        return False


def _group(path: Path, inner: str) -> _Pieces | _Entries:
    h5py = library("h5py", path)
    name = f"{path}::{inner}" if inner else str(path)
    with h5py.File(path, "r") as file:
        group = file[inner or "/"]
        kind = group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", "csr_matrix"))
        shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
        if shape is None:
            raise InputError(f"{name} has no attribute shape: expected that of AnnData")
        pointers = group["indptr"][:].astype(np.int64)
    size = (int(shape[0]), int(shape[1]))

    def pieces(make: Callable[..., Any]) -> Iterator[Any]:
        with h5py.File(path, "r") as file:
            group = file[inner or "/"]
            for start, stop in _cuts(pointers):
                place = slice(int(pointers[start]), int(pointers[stop]))
                yield make(group["data"][place], group["indices"][place], start, stop)

    if str(kind).startswith("csc"):

        def triplets(values: Any, indices: Any, start: int, stop: int) -> Triplets:
            columns = np.repeat(np.arange(start, stop), np.diff(pointers[start : stop + 1]))
            return indices.astype(np.int64), columns, values

        return _Entries(name, size, int(pointers[-1]), lambda: pieces(triplets))

    def rows(values: Any, indices: Any, start: int, stop: int) -> Any:
        return _as_csr(values, indices, pointers[start : stop + 1], size[1])

    return _Pieces(name, size, lambda: pieces(rows))


# Matrix Market.


def _market(path: Path) -> _Entries | SparseRows:
    from scipy.io import mminfo, mmread

    rows, columns, count, form, field, symmetry = mminfo(path)
    if field not in _MARKET_VALUES:
        raise InputError(f"{path} holds {field} numbers: expected real ones")
    if form != "coordinate":
        return _held(coo_array(mmread(path)))

    def pieces() -> Iterator[Triplets]:
        import pandas as pd

        names = ["row", "column"] + ["value"] * _MARKET_VALUES[field]
        reader = pd.read_csv(
            path, sep=r"\s+", comment="%", header=None, names=names, chunksize=_TOGETHER
        )
        seen = -1  # the first line says how many there are
        for chunk in reader:
            some = chunk.iloc[1:] if seen < 0 else chunk
            seen = max(seen, 0) + len(some)
            at = some["row"].to_numpy(np.int64) - 1, some["column"].to_numpy(np.int64) - 1
            values = some["value"].to_numpy(np.float64) if "value" in some else np.ones(len(some))
            yield *at, values
            if symmetry != "general":
                off = at[0] != at[1]
                sign = -1.0 if symmetry.startswith("skew") else 1.0
                yield at[1][off], at[0][off], sign * values[off]
        if seen != count:
            raise InputError(f"{path} has {max(seen, 0)} entries: its first line says {count}")

    return _Entries(str(path), (rows, columns), count, pieces)


def _sorted(matrix: _Entries, store: Path) -> Iterator[Any]:
    """Rows of entries in any order: those of neighbouring rows are put in files of their own."""
    rows, columns = matrix.shape
    buckets = int(min(_MOST_BUCKETS, rows, max(1, -(-matrix.count // _BUCKET))))
    height = -(-rows // buckets)
    with ExitStack() as stack:
        files = [stack.enter_context(temporary(store)) for _ in range(-(-rows // height))]
        sinks = [stack.enter_context(os.fdopen(os.dup(d), "wb")) for d, _ in files]
        kind = np.dtype([("row", "<i8"), ("column", "<i8"), ("value", "<f8")])
        for at, across, values in matrix.pieces():
            check_real(matrix.name, np.asarray(values).dtype)
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
            yield coo_array((some["value"], (some["row"] - start, some["column"])), shape=shape)
