"""Reading of a sparse X, from an array or a file, as validated rows in CSR.

CSR in HDF5, and objects with slices, are read in pieces into temporary files next to the store.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources import split_path
from cec_mpi.encoding.sources.arrays import has_class, is_sparse, name_of, shape_and_dtype
from cec_mpi.encoding.sources.csr import (
    check_finite,
    check_pointers,
    check_shape,
    csr_from_arrays,
    scipy_dtype,
    to_checked_csr,
)
from cec_mpi.encoding.sources.hdf5 import foreign_format_error, hdf5_view, is_sparse_group
from cec_mpi.encoding.sources.source import describe_error, file_stamps, read_error
from cec_mpi.encoding.sources.sparse_files import read_sparse
from cec_mpi.errors import InputError
from cec_mpi.store.files.formats import HDF5_INPUT_SUFFIXES, SPARSE_SUFFIXES, import_library
from cec_mpi.store.files.npy import check_real
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.regular import check_regular
from cec_mpi.store.files.replacing import temporary_file
from cec_mpi.text import as_text, warn_caller

_PIECE_ENTRIES = 1 << 20  # entries to read at a time
_MAX_LISTED = 5  # groups of a file, in messages
_DENSE_HINT = "a dense X needs a recovery threshold (--recovery L): any L machines can decode X"
_RAW_OPTIONS = EncodeOptions(raw_values=True)

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse X in CSR.

    Attributes
    ----------
    name : str
        Name of X, for messages.
    shape : (int, int)
    values : (nnz,) ndarray
    columns : (nnz,) ndarray of int
        Ascending in each row.
    pointers : (q + 1,) ndarray of int
        Number of entries before each row.
    """

    name: str
    shape: tuple[int, int]
    values: NDArray[Any]
    columns: NDArray[np.integer]
    pointers: NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class _PiecewiseRows:
    """A matrix whose rows are read in consecutive pieces of validated CSR."""

    name: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterator[Any]]


def check_is_sparse(source: Any) -> None:
    """Raise if X is a file whose name shows that its format is not sparse.

    Raises
    ------
    InputError
        The suffix is not that of a sparse format or HDF5, or the file does not exist.
    """
    if isinstance(source, str | os.PathLike):
        path, *_ = split_path(str(as_path(source)))
        if not path.exists():
            raise InputError(f"{path} does not exist")
        if not path.name.lower().endswith((*SPARSE_SUFFIXES, *HDF5_INPUT_SUFFIXES)):
            raise InputError(
                f"{source} is not a sparse matrix (.npz of SciPy, .mtx, or a group of CSR or CSC "
                f"in HDF5); {_DENSE_HINT}"
            )


@contextmanager
def sparse_rows(source: Any, store: Path, options: EncodeOptions) -> Iterator[SparseRows]:
    """Yield the rows of a sparse X, valid only in this context.

    Parameters
    ----------
    source : path or array
        A SciPy ``.npz`` file, a Matrix Market file, or ``file.h5::/group`` with CSR or CSC as
        written by AnnData; a SciPy sparse array, or an object with a shape, a dtype and slices of
        sparse rows.
    store : Path
        Directory of the store; temporary files are next to it.
    options : EncodeOptions

    Raises
    ------
    InputError
        X is not sparse or cannot be read, a value is not real and finite, an index is out of range,
        or a file changes while it is read.
    """
    if not isinstance(source, str | os.PathLike):
        name = name_of(source)
        options.reject_container_options(name)
        matrix = (
            _rows_in_memory(name, to_checked_csr(name, source))
            if is_sparse(source)
            else _row_pieces(source)
        )
        with _read_rows(matrix, store) as rows:
            yield rows
        return
    name = str(as_path(source))
    path, *_ = split_path(name)
    check_regular(path)
    try:
        stamps = file_stamps(path)
        matrix = _open_file(name, options)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (InputError, MemoryError):
        raise
    except Exception as error:  # libraries raise many types of errors for damaged files
        raise foreign_format_error(path) or read_error(name, error) from None
    with _read_rows(matrix, store) as rows:
        if not path.exists() or file_stamps(path) != stamps:
            raise InputError(
                f"{name} changed during the encode: encode it when no other program writes to it"
            )
        yield rows


@contextmanager
def _read_rows(source: _PiecewiseRows | SparseRows, store: Path) -> Iterator[SparseRows]:
    """Yield rows in memory, or read all pieces into temporary files and yield their rows."""
    if isinstance(source, SparseRows):
        yield source
        return
    with ExitStack() as stack:
        files = [stack.enter_context(temporary_file(store)) for _ in range(2)]
        sinks = [
            stack.enter_context(os.fdopen(os.dup(descriptor), "wb")) for descriptor, _ in files
        ]
        index_dtype = np.dtype(np.int32 if source.shape[1] < 2**31 else np.int64)
        counts = [np.zeros(1, np.int64)]
        rows_read = 0
        # The generator is closed explicitly, because a traceback could keep its files open.
        for piece in stack.enter_context(closing(_iter_pieces(source))):
            check_finite(source.name, piece, rows_read)
            rows_read += piece.shape[0]
            sinks[0].write(np.ascontiguousarray(piece.data, source.dtype).data)
            sinks[1].write(np.ascontiguousarray(piece.indices, index_dtype).data)
            counts.append(np.diff(piece.indptr).astype(np.int64))
        for sink in sinks:
            sink.flush()
        if rows_read != source.shape[0]:
            raise InputError(
                f"{source.name} returned {rows_read} rows, but its shape has {source.shape[0]}"
            )
        pointers = np.cumsum(np.concatenate(counts))
        total = int(pointers[-1])
        values, columns = (
            np.memmap(path, dtype, "r", shape=(total,)) if total else np.empty(0, dtype)
            for (_, path), dtype in zip(files, (source.dtype, index_dtype), strict=True)
        )
        yield SparseRows(source.name, source.shape, values, columns, pointers)


def _iter_pieces(matrix: _PiecewiseRows) -> Generator[Any, None, None]:
    """Yield the pieces of a matrix, and convert errors of libraries to `InputError`."""
    try:
        yield from matrix.pieces()
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise read_error(matrix.name, error) from None


def _rows_in_memory(name: str, rows: Any) -> SparseRows:
    check_finite(name, rows)
    return SparseRows(name, rows.shape, rows.data, rows.indices, rows.indptr)


def _row_pieces(array: Any) -> _PiecewiseRows:
    name = name_of(array)
    if has_class(array, "pandas", "DataFrame"):  # has no dtype
        raise InputError(f"{name} is not a sparse matrix; {_DENSE_HINT}")
    shape, dtype = shape_and_dtype(array)
    rows, columns = check_shape(name, shape)
    check_real(name, dtype)

    def pieces() -> Iterator[Any]:
        rows_at_once = max(1, min(rows, (_PIECE_ENTRIES << 3) // columns))
        for start in range(0, rows, rows_at_once):
            try:
                piece = array[start : min(start + rows_at_once, rows)]
            except Exception as error:  # raised by the user's array
                raise InputError(
                    f"{name} cannot be read from row {start} on: {describe_error(error)}"
                ) from error
            if not is_sparse(piece):
                raise InputError(
                    f"{name} returned rows as {type(piece).__name__}, not as a SciPy sparse array; "
                    f"{_DENSE_HINT}"
                )
            if piece.dtype != dtype:
                raise InputError(f"{name} returned {piece.dtype}: expected its dtype, {dtype}")
            expected = (min(start + rows_at_once, rows) - start, columns)
            if piece.shape != expected:
                raise InputError(
                    f"{name} returned rows of shape {piece.shape} from row {start} on: expected "
                    f"{expected}"
                )
            yield to_checked_csr(name, piece)

    return _PiecewiseRows(name, (rows, columns), scipy_dtype(dtype), pieces)


def _open_file(name: str, options: EncodeOptions) -> _PiecewiseRows | SparseRows:
    path, _, inner_path = split_path(name)
    if path.name.lower().endswith(HDF5_INPUT_SUFFIXES):
        return _open_group(path, inner_path, options)
    options.reject_container_options(name)
    rows = read_sparse(path)
    if isinstance(rows, np.ndarray):
        raise InputError(f"{path} is dense; {_DENSE_HINT}")
    return _rows_in_memory(name, rows)


def _find_sparse_groups(file: Any) -> list[str]:
    """Return the paths of the sparse matrices in an HDF5 file."""
    paths: list[str] = ["/"] if is_sparse_group(file) else []
    file.visititems(lambda name, node: paths.append(f"/{name}") if is_sparse_group(node) else None)
    return paths


def _open_group(path: Path, inner_path: str, options: EncodeOptions) -> _PiecewiseRows | SparseRows:
    with import_library("h5py", path).File(path, "r") as file:
        is_matrix = inner_path and inner_path in file and is_sparse_group(file[inner_path])
        group_paths = [inner_path] if is_matrix else _find_sparse_groups(file)
        if len(group_paths) != 1 or (inner_path and not is_matrix):
            name = f"{path}::{inner_path}" if inner_path else str(path)
            expectation = _DENSE_HINT
            if group_paths:
                full_paths = (f"{path}::{group_path}" for group_path in group_paths[:_MAX_LISTED])
                expectation = f"expected one of {', '.join(full_paths)}"
            raise InputError(
                f"{name} is not a sparse matrix (a group with data, indices and indptr); "
                f"{expectation}"
            )
        inner_path = group_paths[0]
        name, group = f"{path}::{inner_path}", file[inner_path]
        sparse_format, shape, array_names = _sparse_layout(name, group)
        data, indices, pointers = (group[array_name] for array_name in array_names)
        attributes = ChainMap(data.attrs, group.attrs)
        view = hdf5_view(data, f"{name}/{array_names[0]}", options, attributes)
        views = [view, *(hdf5_view(node, node.name, _RAW_OPTIONS) for node in (indices, pointers))]
        for array_view in views:
            for warning in array_view.warnings:
                warn_caller(warning)
        check_real(name, view.dtype)
        if view.decoder and "add_offset" in view.decoder.attributes:
            raise InputError(
                f"{name} has the attribute add_offset, which would change entries that are not "
                "stored: expected a sparse matrix without it, or --raw-values"
            )
        decode = view.decoder or np.asarray
        if sparse_format == "csc":
            arrays = decode(data[()]), indices[()], pointers[()]
            return _rows_in_memory(name, csr_from_arrays(name, "csc", shape, *arrays))
        check_pointers(name, pointers[()], data.size)
        if len(pointers) != shape[0] + 1 or data.shape != indices.shape or len(data.shape) != 1:
            raise InputError(
                f"{name} has {data.shape} values, {indices.shape} indices and {pointers.shape} "
                f"pointers: expected an index for each value, and {shape[0] + 1} pointers"
            )
        row_pointers = pointers[()].astype(np.int64)
        pieces = partial(_csr_pieces, path, inner_path, shape[1], row_pointers, decode)
        return _PiecewiseRows(name, shape, scipy_dtype(view.dtype), pieces)


def _sparse_layout(name: str, group: Any) -> tuple[str, tuple[int, int], tuple[str, str, str]]:
    """Return the format of a sparse matrix in HDF5, its shape, and the names of its arrays."""
    if "MATLAB_sparse" in group.attrs:  # its value is the number of rows
        if not {"data", "ir", "jc"} <= set(group):
            raise InputError(f"{name} has no nonzero entry: expected at least one")
        shape = (int(group.attrs["MATLAB_sparse"]), max(0, group["jc"].size - 1))
        return "csc", check_shape(name, shape), ("data", "ir", "jc")
    encoding = group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", "csr_matrix"))
    shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
    if shape is None:
        raise InputError(f"{name} has no attribute shape: expected one, as in AnnData")
    encoding = as_text(encoding)
    if not encoding.startswith(("csr", "csc")):
        raise InputError(f"{name} holds {encoding}: expected csr_matrix or csc_matrix")
    return encoding[:3], check_shape(name, shape), ("data", "indices", "indptr")


def _csr_pieces(
    path: Path, inner_path: str, columns: int, pointers: Ints, decode: Callable[[Any], Any]
) -> Iterator[Any]:
    """Yield rows in CSR, in pieces of about `_PIECE_ENTRIES` entries."""
    with import_library("h5py", path).File(path, "r") as file:
        group = file[inner_path]
        start, row_count = 0, pointers.size - 1
        while start < row_count:
            stop = (
                int(np.searchsorted(pointers, pointers[start] + _PIECE_ENTRIES, side="right")) - 1
            )
            stop = min(max(stop, start + 1), row_count, start + _PIECE_ENTRIES)
            entries = slice(int(pointers[start]), int(pointers[stop]))
            piece_pointers = pointers[start : stop + 1] - pointers[start]
            arrays = decode(group["data"][entries]), group["indices"][entries], piece_pointers
            piece_shape = (stop - start, columns)
            yield csr_from_arrays(f"{path}::{inner_path}", "csr", piece_shape, *arrays)
            start = stop
