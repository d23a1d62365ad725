"""Arrays of other libraries: objects with a shape, a dtype and slices of rows.

No library is imported: the class name of an object identifies its library.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.rounding import NO_ROUNDING, Rounding
from cec_mpi.encoding.sources.conventions import effective_attributes
from cec_mpi.encoding.sources.hdf5 import hdf5_view
from cec_mpi.encoding.sources.source import Source, StreamedMatrix, convert_into, describe_error
from cec_mpi.encoding.sources.views import View, apply_attributes
from cec_mpi.encoding.sources.zarr_arrays import zarr_view
from cec_mpi.errors import InputError
from cec_mpi.text import shorten, truncate

_EXPECTED_ARRAY = "a path, or an array with a shape, a dtype and slices of rows"
_shared_sources: dict[str, ArraySource] = {}  # by key
_MAX_LISTED = 5
_PIECE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class ArraySource(Source):
    """An array object, which another process cannot open.

    If all processes have the array (`share_source`), `origin` has the common key.
    """


@contextmanager
def share_source(source: ArraySource, key: str) -> Iterator[ArraySource]:
    """Register the array of this process under a key that all processes use."""
    _shared_sources[key] = source
    try:
        yield replace(source, origin={"path": key})
    finally:
        del _shared_sources[key]


def get_shared_source(key: str) -> ArraySource | None:
    """Return the array that this process registered under a key, or None."""
    return _shared_sources.get(key)


def array_source(array: Any, options: EncodeOptions) -> ArraySource:
    """Return the source of a dense or sparse array with slices like those of NumPy.

    Raises
    ------
    InputError
        The shape or dtype is missing or invalid, the array cannot be read, or an option does not
        apply to it.
    """
    for library, name, make_view in (("h5py", "Dataset", hdf5_view), ("zarr", "Array", zarr_view)):
        if has_class(array, library, name):
            shape_and_dtype(array)  # raises if its file is closed
            return view_source(array, make_view(array, name_of(array), options))
    options.reject_container_options(name_of(array))
    if is_sparse(array):
        return _sparse_source(array)
    shape, dtype = shape_and_dtype(array)
    # Slicing columns is safe in any thread only for NumPy arrays.
    rows_only = not has_class(array, "numpy", "ndarray")
    return ArraySource(
        array=array, name=name_of(array), shape=shape, dtype=dtype, rows_only=rows_only
    )


@dataclass(frozen=True)
class ViewArray:
    """An array object with a view that transposes or decodes it."""

    array: Any
    view: View

    def __getitem__(self, key: slice | tuple[slice, slice]) -> Any:
        slices = key if isinstance(key, tuple) else (key, slice(None))
        return self.view.read(self.array, slices)


def view_source(array: Any, view: View) -> ArraySource:
    """Return the source of an h5py, Zarr or xarray array."""
    return ArraySource(
        array=ViewArray(array, view),
        name=view.name,
        shape=view.shape(array.shape),
        dtype=view.dtype,
        warning="; ".join(view.warnings),
        read_buffers=view.read_buffers,
    )


def _sparse_source(array: Any) -> ArraySource:
    from cec_mpi.encoding.sources.csr import sparse_warning, to_checked_csr

    name = name_of(array)
    rows = to_checked_csr(name, array)
    is_copy = array.format != "csr" or not np.may_share_memory(rows.data, array.data)
    return ArraySource(
        array=rows,
        name=name,
        shape=rows.shape,
        dtype=rows.dtype,
        fixed_bytes=is_copy * (rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes),
        warning=sparse_warning(name, rows),
    )


def has_class(array: Any, library: str, *names: str) -> bool:
    """Return whether an object is an instance of one of these classes, by name."""
    return any(
        base.__name__ in names and base.__module__.partition(".")[0] == library
        for base in type(array).__mro__
    )


def is_sparse(array: Any) -> bool:
    """Return whether an object is a SciPy sparse array or matrix."""
    return has_class(array, "scipy", "_spbase", "spmatrix", "sparray")


def name_of(array: Any) -> str:
    """Return the name of an array for messages: its file or its class."""
    if has_class(array, "h5py", "Dataset"):
        return f"{array.file.filename}::{array.name}"
    array_type = type(array)
    library = array_type.__module__.partition(".")[0]
    name = array_type.__name__
    return f"the {library} Array" if name == "Array" else f"the {name}"


def shape_and_dtype(array: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of an array.

    Raises
    ------
    InputError
        They are missing or invalid.
    """
    class_name = f"{type(array).__module__}.{type(array).__qualname__}".removeprefix("builtins.")
    try:
        shape, dtype = array.shape, array.dtype
    except AttributeError:
        advice = ": try numpy.asarray(X)" if hasattr(array, "__len__") else ""
        advice = ": choose one of its arrays" if hasattr(array, "keys") else advice
        raise InputError(f"X is a {class_name}, expected {_EXPECTED_ARRAY}{advice}") from None
    except Exception as error:  # for example, its file was closed
        raise InputError(f"X, a {class_name}, cannot be read: {describe_error(error)}") from error
    try:
        lengths = tuple(operator.index(length) for length in shape)
    except TypeError:
        raise InputError(
            f"X, a {class_name}, has shape {shape}, expected numbers of rows and columns"
        ) from None
    try:
        if dtype is None:
            raise TypeError
        return lengths, np.dtype(dtype)
    except TypeError:
        raise InputError(
            f"X, a {class_name}, has dtype {dtype}, expected a NumPy dtype: try numpy.asarray(X)"
        ) from None


@dataclass(frozen=True)
class FrameArray:
    """A pandas DataFrame of numbers, with NaN for missing values."""

    frame: Any
    _lock: Any = field(default_factory=threading.Lock)

    def read_into(
        self, start: int, stop: int, left: int, right: int, out: NDArray[Any]
    ) -> Rounding:
        """Read a slice into `out`."""
        with self._lock:  # pandas is not thread-safe
            part = self.frame.iloc[start:stop, left:right]
            dtypes = set(part.dtypes)
            if len(dtypes) == 1 and isinstance(dtype := dtypes.pop(), np.dtype):
                return convert_into(out, part.to_numpy(dtype))
            rounding = NO_ROUNDING
            for k, (_, column) in enumerate(part.items()):
                dtype = getattr(column.dtype, "numpy_dtype", None)  # None if it is not nullable
                missing = column.isna().to_numpy() if dtype is not None else np.zeros(0, bool)
                values = column.to_numpy(dtype, **({"na_value": 0} if missing.any() else {}))
                rounding += convert_into(out[:, k], np.asarray(values))
                if missing.any():
                    out[missing, k] = np.nan
            return rounding


def pandas_source(frame: Any) -> ArraySource:
    """Return the source of a DataFrame of numbers.

    Raises
    ------
    InputError
        Columns hold other values; the message names them.
    """
    dtypes = [_number_dtype(dtype) for dtype in frame.dtypes]
    non_numeric = [k for k, dtype in enumerate(dtypes) if dtype is None]
    if non_numeric:
        columns = [f"{shorten(frame.columns[k])} ({frame.dtypes.iloc[k]})" for k in non_numeric]
        raise InputError(
            f"{name_of(frame)} has columns without numbers, {truncate(columns, _MAX_LISTED)}: "
            "leave them out with X.drop(columns=...)"
        )
    number_dtypes = [dtype for dtype in dtypes if dtype is not None]
    dtype = np.result_type(*number_dtypes) if number_dtypes else np.dtype(np.float64)
    return ArraySource(
        array=FrameArray(frame),
        name=name_of(frame),
        shape=tuple(frame.shape),
        dtype=dtype,
        column_names=_text_labels(frame.columns),
        read_buffers=4,
    )


def xarray_source(array: Any, options: EncodeOptions) -> ArraySource | DaskMatrix:
    """Return the source of an xarray DataArray, which may wrap a Dask array."""
    names: tuple[str, ...] = ()
    if len(array.dims) == 2 and array.dims[1] in array.coords:
        names = _text_labels(array.coords[array.dims[1]].values)
    shape_and_dtype(array)
    limit_names = ("valid_min", "valid_max", "valid_range")
    attributes = dict(array.attrs)
    if not effective_attributes(
        {name: value for name, value in attributes.items() if name not in limit_names}, array.dtype
    ):
        attributes = {}  # xarray has decoded the array, but keeps limits of the stored values
    view = apply_attributes(View(name_of(array), array.dtype), attributes, options)
    if array.chunks is not None:
        dask_array = array.data
        if view.decoder is not None:
            dask_array = dask_array.map_blocks(view.decoder, dtype=view.dtype)
        return dask_matrix(dask_array, names)
    return replace(view_source(array, view), rows_only=True, column_names=names)


def _number_dtype(dtype: Any) -> np.dtype[Any] | None:
    """Return the NumPy dtype for the values of a column of numbers, or None."""
    if type(dtype).__name__ == "SparseDtype":
        dtype = dtype.subtype
    is_nullable = hasattr(dtype, "numpy_dtype")
    try:
        number_dtype = np.dtype(dtype.numpy_dtype if is_nullable else dtype)
    except TypeError:
        return None
    if number_dtype.kind not in "fiubc":
        return None
    return np.dtype(np.float64) if is_nullable and number_dtype.kind != "f" else number_dtype


def _text_labels(labels: Any) -> tuple[str, ...]:
    """Return the labels of columns if all of them are text, else ()."""
    return tuple(map(str, labels)) if all(isinstance(label, str) for label in labels) else ()


@dataclass(frozen=True, kw_only=True, eq=False)
class DaskMatrix(StreamedMatrix):
    """A Dask array, whose chunks are computed once."""

    array: Any = field(repr=False)

    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Yield computed chunks; small adjacent chunks are joined."""
        row_bounds, column_bounds = (
            list(accumulate(sizes, initial=0)) for sizes in self.array.chunks
        )
        max_chunk_bytes = math.prod(map(max, self.array.chunks)) * self.dtype.itemsize
        chunks_at_once = max(1, _PIECE_BYTES // max(1, max_chunk_bytes))
        for i, (top, bottom) in enumerate(pairwise(row_bounds)):
            if top == bottom:
                continue
            for j in range(0, len(column_bounds) - 1, chunks_at_once):
                left, *_, right = column_bounds[j : j + chunks_at_once + 1]
                try:
                    values = self.array.blocks[i, j : j + chunks_at_once].compute()
                except Exception as error:  # Dask tasks may raise anything
                    raise InputError(
                        f"{self.name} cannot be computed, rows {top} to {bottom - 1}: "
                        f"{describe_error(error)}"
                    ) from error
                yield top, left, self.check_slice(values, top, left, (bottom - top, right - left))


def dask_matrix(array: Any, column_names: tuple[str, ...] = ()) -> DaskMatrix:
    """Return the matrix of a Dask array.

    Raises
    ------
    InputError
        The shape or dtype is invalid, or the sizes of chunks are unknown.
    """
    name = name_of(array)
    if any(math.isnan(size) for sizes in array.chunks for size in sizes):
        raise InputError(
            f"{name} has chunks of unknown size, shape {array.shape}: call "
            "X.compute_chunk_sizes() first"
        )
    shape, dtype = shape_and_dtype(array)
    return DaskMatrix(array=array, name=name, shape=shape, dtype=dtype, column_names=column_names)
