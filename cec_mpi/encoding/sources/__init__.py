"""Sources: matrices to encode, from files of several formats and from arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.encoding.options import FORMATS, EncodeOptions
from cec_mpi.encoding.sources.arrays import (
    ArraySource,
    array_source,
    dask_matrix,
    get_shared_source,
    has_class,
    name_of,
    pandas_source,
    share_source,
    xarray_source,
)
from cec_mpi.encoding.sources.binary import npy_source, parts_source, raw_source
from cec_mpi.encoding.sources.hdf5 import hdf5_source
from cec_mpi.encoding.sources.missing import stream_rows, summarise_missing
from cec_mpi.encoding.sources.scratch import copy_to_file
from cec_mpi.encoding.sources.source import Matrix, Source, StreamedMatrix, read_error
from cec_mpi.encoding.sources.table import TextTable, open_text_table
from cec_mpi.encoding.sources.views import ContainerArray
from cec_mpi.encoding.sources.zarr_arrays import is_zarr, zarr_source
from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.packing import DECODERS
from cec_mpi.store.files.formats import DELIMITERS, HDF5_INPUT_SUFFIXES, SPARSE_SUFFIXES
from cec_mpi.store.files.npy import check_real
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.regular import check_regular

__all__ = [
    "ArraySource",
    "Matrix",
    "Source",
    "StreamedMatrix",
    "reopen",
    "open_array",
    "open_source",
    "copy_to_file",
    "summarise_missing",
    "stream_rows",
    "share_source",
]


def open_source(
    source: str | os.PathLike[str],
    options: EncodeOptions = EncodeOptions(),  # noqa: B008
) -> Source | StreamedMatrix:
    """Open a matrix in a file or directory; its name and content determine the format.

    Parameters
    ----------
    source : path
        A file or directory in one of `FORMATS`. Parts (files of a directory) are stacked in the
        natural order of their names. Raw binary is in C order.
    options : EncodeOptions
        Options of raw binary, text tables, HDF5 and Zarr. With a delimiter, a text table may have
        any name.

    Raises
    ------
    InputError
        The file cannot be read, its format is unknown, an option does not apply to it, or it is not
        a matrix of real numbers.
    """
    name, shape, delimiter = str(as_path(source)), options.shape, options.delimiter
    path, separator, inner_path = (Path(name), "", "") if shape is not None else split_path(name)
    suffix = path.suffix.lower()
    check_regular(path, allow_directory=True)  # not a pipe: threads read it several times
    if not _exists(path):
        file, colon, dataset = name.partition(":")
        has_one_colon = bool(colon) and not separator and _exists(Path(file))
        hint = f": expected {file}::{dataset}" if has_one_colon else ""
        raise InputError(f"{path} does not exist{hint}")
    matrix: Source | StreamedMatrix
    if shape is not None:
        matrix = raw_source(path, shape, options.input_dtype or options.dtype)
    elif path.is_dir():
        matrix = (
            zarr_source(path, inner_path, options)
            if is_zarr(path) or separator or suffix == ".zarr"
            else parts_source(path)
        )
    elif separator or suffix in HDF5_INPUT_SUFFIXES:
        matrix = hdf5_source(path, inner_path, options)
    elif suffix in DELIMITERS:
        matrix = open_text_table(path, DELIMITERS[suffix], options)
    elif (sparse := _open_sparse_file(path)) is not None:
        matrix = sparse
    elif suffix in (".npy", ".npz") or _is_npy(path):
        matrix = npy_source(path)
    elif delimiter is not None:
        matrix = open_text_table(path, delimiter, options)
    else:
        raise InputError(f"{path} has an unknown format, expected {FORMATS}")
    if options.input_dtype is not None and shape is None:
        raise InputError(
            f"--input-dtype {options.input_dtype} is only for raw binary: expected --shape as well"
        )
    if not isinstance(getattr(matrix, "array", None), ContainerArray):
        options.reject_container_options(matrix.name)
    if isinstance(matrix, TextTable):
        return matrix
    if isinstance(matrix, Source):
        origin = {
            "path": name,
            "shape": shape,
            "input_dtype": options.input_dtype or options.dtype if shape else None,
            "raw_values": options.raw_values,
            "decode_cf": options.decode_cf,
        }
        matrix = replace(matrix, origin=origin)
    if options.table_options:
        option = options.table_options[0]
        raise InputError(f"{option} is only for text tables (.csv, .tsv), not for {matrix.name}")
    _check_matrix(matrix)
    return matrix


def reopen(
    path: str, name: str, column_names: Sequence[str], shape: Any = None, **options: Any
) -> Source:
    """Open a matrix from the `Source.content` that another process sent."""
    if (shared := get_shared_source(path)) is not None:
        return shared
    matrix = open_source(path, EncodeOptions(shape=shape and tuple(shape), **options))
    assert isinstance(matrix, Source)
    return replace(matrix, name=name, column_names=tuple(column_names))


DECODERS[Source] = lambda content: reopen(**content)


def open_array(
    array: Any,
    options: EncodeOptions = EncodeOptions(),  # noqa: B008
) -> ArraySource | StreamedMatrix:
    """Open an array of any library as a matrix.

    Parameters
    ----------
    array : object
        An object with a shape, a dtype and slices of rows, for example of NumPy, h5py, Zarr, Dask,
        SciPy (sparse) or xarray; or a pandas DataFrame.
    options : EncodeOptions
        Options of h5py, Zarr and xarray arrays.

    Raises
    ------
    InputError
        The object is not a matrix of real numbers, or an option does not apply to it.
    """
    source: ArraySource | StreamedMatrix
    if has_class(array, "xarray", "DataArray"):
        source = xarray_source(array, options)
    elif has_class(array, "dask", "Array") or has_class(array, "pandas", "DataFrame"):
        options.reject_container_options(name_of(array))
        source = dask_matrix(array) if has_class(array, "dask", "Array") else pandas_source(array)
    else:
        source = array_source(array, options)
    _check_matrix(source)
    return source


def _open_sparse_file(path: Path) -> StreamedMatrix | None:
    """Return the matrix of a sparse file, or None for another format."""
    if not path.name.lower().endswith(SPARSE_SUFFIXES):
        return None
    from cec_mpi.encoding.sources.sparse_files import open_sparse_file  # imports SciPy

    return open_sparse_file(path)


def _check_matrix(source: Matrix) -> None:
    if len(source.shape) != 2 or min(source.shape) < 1:
        raise InputError(
            f"{source.name} has shape {source.shape}, expected (rows, columns), both at least 1"
        )
    check_real(source.name, np.dtype(source.dtype))


def split_path(name: str) -> tuple[Path, str, str]:
    """Split a name of X into a path, ``::`` and a path in that file; both may contain ``::``."""
    parts = name.split("::")
    ends = [end for end in range(len(parts), 0, -1) if _exists(Path("::".join(parts[:end])))]
    end = ends[0] if ends else 1
    return Path("::".join(parts[:end])), "::" * (end < len(parts)), "::".join(parts[end:])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # not a valid file name
        return False


def _is_npy(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(6) == b"\x93NUMPY"
    except OSError as error:
        raise read_error(path, error) from None
