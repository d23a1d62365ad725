"""Validation of sparse arrays, because SciPy's compiled code trusts their indices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import bsr_array, coo_array, csc_array, csr_array, dia_array

from cec_mpi.errors import InputError
from cec_mpi.store.files.npy import check_real

ARRAY_NAMES = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "dia": ("data", "offsets"),
    "coo": ("data", "row", "col"),
}
"""SciPy's formats that consist of arrays: names of the values, then of the indices."""


def to_checked_csr(name: object, array: Any) -> Any:
    """Validate a SciPy sparse array, and convert it to CSR.

    Parameters
    ----------
    name : object
        Name of X, for messages.
    array : sparse array or matrix
        In any SciPy format. It is not changed.

    Returns
    -------
    csr_array
        With sorted columns; repeated entries are summed.

    Raises
    ------
    InputError
        An index is out of range, arrays are inconsistent, or values are not real numbers.
    """
    sparse_format, shape = array.format, check_shape(name, array.shape)
    check_real(name, np.dtype(array.dtype))
    with _convert_scipy_errors(name):
        if sparse_format == "lil":
            columns, values = array.rows, array.data
            if len(columns) != shape[0] or list(map(len, columns)) != list(map(len, values)):
                raise InputError(f"{name} has rows with different numbers of columns and values")
            check_integers(name, np.array([column for row in columns for column in row], None))
            return _to_canonical_csr(name, array, shape)
        if sparse_format == "dok":
            check_integers(name, np.array(list(array.keys()), None))
            return _to_canonical_csr(name, array, shape)
        # A new object, because this one may cache that its entries are sorted.
        names = ARRAY_NAMES[sparse_format]
        return csr_from_arrays(
            name, sparse_format, shape, *(getattr(array, attribute) for attribute in names)
        )


def csr_from_arrays(
    name: object, sparse_format: str, shape: tuple[int, int], data: Any, *indices: Any
) -> Any:
    """Return validated CSR from the arrays of a sparse matrix; see `to_checked_csr`.

    Parameters
    ----------
    name : object
    sparse_format : str
        One of `ARRAY_NAMES`.
    shape : (int, int)
    data, *indices : ndarray
        The arrays of the format.
    """
    check_real(name, data.dtype)
    for array in indices:
        check_integers(name, array)
    data = data.astype(scipy_dtype(data.dtype), copy=False)
    with _convert_scipy_errors(name):
        if sparse_format == "coo":
            matrix: Any = coo_array((data, indices), shape=shape)
        elif sparse_format == "dia":
            offsets = indices[0]
            low, high = int(offsets.min(initial=0)), int(offsets.max(initial=0))
            if low <= -shape[0] or high >= shape[1]:
                raise InputError(
                    f"{name} has a diagonal at offset {low if low <= -shape[0] else high}: "
                    f"expected {1 - shape[0]} to {shape[1] - 1}"
                )
            matrix = dia_array((data, *indices), shape=shape)
        else:
            check_pointers(name, indices[1], indices[0].shape[0])
            constructor = {"csr": csr_array, "csc": csc_array, "bsr": bsr_array}[sparse_format]
            matrix = constructor((data, *indices), shape=shape)
            matrix.check_format(full_check=True)
        return _to_canonical_csr(name, matrix, shape)


@contextmanager
def _convert_scipy_errors(name: object) -> Iterator[None]:
    """Convert errors of SciPy for inconsistent arrays to `InputError`."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{name} is not a valid sparse matrix: {error}") from None


def _to_canonical_csr(name: object, array: Any, shape: tuple[int, int]) -> Any:
    """Convert to CSR with sorted columns, and sum repeated entries."""
    rows = csr_array(array)
    check_columns(name, rows.indices, shape[1])
    rows = rows if rows.has_canonical_format else rows.copy()
    rows.sum_duplicates()
    if rows.nnz < array.nnz and rows.dtype.kind in "iu":
        exact = csr_array(array.astype(np.longdouble))
        exact.sum_duplicates()
        if (exact.data != rows.data).any():
            raise InputError(
                f"{name} has repeated entries whose sum overflows {rows.dtype}: convert it to "
                "float64"
            )
    return rows


def check_finite(name: object, rows: Any, first_row: int = 0) -> None:
    """Raise if a value is NaN or infinite.

    Parameters
    ----------
    name : object
    rows : csr_array
    first_row : int
        Index in X of the first of these rows.
    """
    bad = np.flatnonzero(~np.isfinite(rows.data))
    if bad.size:
        row = first_row + int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"{name} holds {rows.data[bad[0]]} at row {row}, column "
            f"{rows.indices[bad[0]]} (counted from 0), expected finite numbers"
        )


def scipy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of values in a SciPy sparse array; float16 becomes float32."""
    native = np.dtype(dtype).newbyteorder("=")
    return np.dtype(np.float32) if native == np.float16 else native


def check_shape(name: object, shape: Any) -> tuple[int, int]:
    """Return a validated shape of rows and columns.

    Raises
    ------
    InputError
        The shape is invalid, or vectors of these lengths do not fit in memory.
    """
    lengths = np.asarray(shape)
    if lengths.shape != (2,) or lengths.dtype.kind not in "iu":
        raise InputError(f"{name} has shape {shape}: expected (rows, columns)")
    rows, columns = lengths.tolist()
    if min(rows, columns) < 1:
        raise InputError(f"{name} has shape {(rows, columns)}: expected at least one of each")
    try:
        np.empty(2 * (rows + columns))
    except (MemoryError, ValueError):
        raise InputError(
            f"{name} has shape {(rows, columns)}: vectors of this length do not fit in memory"
        ) from None
    return rows, columns


def check_integers(name: object, indices: Any) -> None:
    """Raise if indices are not integers."""
    if indices.dtype.kind not in "iu" and indices.size:
        raise InputError(f"{name} has indices of {indices.dtype}: expected whole numbers")


def check_columns(name: object, indices: NDArray[Any], columns: int) -> None:
    """Raise if a column is out of range."""
    low, high = int(indices.min(initial=0)), int(indices.max(initial=0))
    if low < 0 or high >= columns:
        raise InputError(
            f"{name} has column {low if low < 0 else high} (counted from 0): expected 0 to "
            f"{columns - 1}"
        )


def check_pointers(name: object, pointers: NDArray[Any], count: int) -> None:
    """Raise unless row or column pointers are ascending from 0 to at most `count`."""
    if pointers.ndim != 1 or not pointers.size or pointers.dtype.kind not in "iu":
        raise InputError(
            f"{name} has indptr of shape {pointers.shape} and {pointers.dtype}: expected whole "
            "numbers in one dimension"
        )
    if pointers[0] != 0 or (pointers[1:] < pointers[:-1]).any() or pointers[-1] > count:
        raise InputError(
            f"{name} has indptr from {pointers[0]} to {pointers[-1]}: expected ascending numbers "
            f"from 0 to at most {count}, the number of values and indices"
        )


def sparse_warning(name: object, rows: Any) -> str:
    """Return the warning that shards of a sparse X are dense; the caller formats ``{bytes}``."""
    density = rows.nnz / (rows.shape[0] * rows.shape[1])
    return (
        f"{name} is sparse ({density:.2%} of {rows.shape[0]} x {rows.shape[1]} entries are "
        "stored), but shards are dense: the store needs {bytes} bytes"
    )
