"""Matrices to encode, in the formats that people have them in.

A source knows its shape and dtype and reads any rectangle of itself, so that any thread may
read. One of files can be pickled, so that any rank may; of one of arrays each rank has its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.files.npy import check_real
from cec_mpi.files.regular import check_regular
from cec_mpi.store.sources.arrays import (
    ArraySource,
    array_source,
    chunked_source,
    frame_source,
    is_a,
    labelled_source,
    name_of,
    shared,
)
from cec_mpi.store.sources.base import Source
from cec_mpi.store.sources.binary import PartsSource, npy_source, parts_source, raw_source
from cec_mpi.store.sources.containers import HDF5_SUFFIXES, hdf5_source, is_zarr, zarr_source
from cec_mpi.store.sources.market import market_source
from cec_mpi.store.sources.table import (
    TableOptions,
    TableSource,
    checked_delimiter,
    table_options,
    table_source,
)

__all__ = [
    "DELIMITERS",
    "HDF5_SUFFIXES",
    "ArraySource",
    "PartsSource",
    "Source",
    "TableOptions",
    "TableSource",
    "checked_delimiter",
    "name_of",
    "open_array",
    "open_source",
    "shared",
    "table_options",
]

FORMATS = (
    "an .npy file, a directory of .npy parts, file.h5::/dataset, a Zarr array, .csv, .tsv, .mtx, "
    "or raw binary with --shape"
)
DELIMITERS = {".csv": ",", ".tsv": "\t"}


def open_source(
    source: str | os.PathLike[str],
    shape: tuple[int, int] | None = None,
    dtype: str | None = None,
    table: TableOptions = TableOptions(),  # noqa: B008
) -> Source:
    """Open a matrix by the name and look of its file.

    Parameters
    ----------
    source : path
        An ``.npy`` file; a directory of ``.npy`` parts, stacked in the natural order of
        their names; ``file.h5::/dataset`` or an HDF5 file with one matrix;
        ``array.zarr`` or ``group.zarr::/array``; ``.csv`` or ``.tsv``; Matrix Market
        ``.mtx``; with `shape` raw binary, C-ordered.
    shape : (int, int), optional
        Of raw binary.
    dtype : str, optional
        Of raw binary, as NumPy writes it: ``"<f4"``, ``"int16"``.
    table : TableOptions
        Of a text table. With a delimiter, any name will do for one.

    Raises
    ------
    InputError
        Says what is wrong with the file, or that it has no format that is known.
    """
    text = os.fspath(source)
    path, separator, inner = (Path(text), "", "") if shape is not None else _split(text)
    suffix = path.suffix.lower()
    check_regular(path, or_directory=True)  # it is read by many threads, and more than once
    if not _exists(path):
        raise InputError(f"{path}: no such file")
    if shape is not None:
        opened: Source = raw_source(path, shape, dtype)
    elif path.is_dir():
        opened = (
            zarr_source(path, inner)
            if is_zarr(path) or separator or suffix == ".zarr"
            else parts_source(path)
        )
    elif separator or suffix in HDF5_SUFFIXES:
        opened = hdf5_source(path, inner)
    elif suffix in DELIMITERS:
        opened = table_source(path, DELIMITERS[suffix], table)
    elif suffix == ".mtx" or path.name.lower().endswith(".mtx.gz"):
        opened = market_source(path)
    elif suffix in (".npy", ".npz") or _starts_as_npy(path):
        opened = npy_source(path)
    elif table.delimiter is not None:
        opened = table_source(path, table.delimiter, table)
    else:
        raise InputError(f"{path} has no format that is known: expected {FORMATS}")
    if dtype is not None and shape is None:
        raise InputError(f"an input dtype {dtype} is for raw binary: expected --shape with it")
    if table.given and not isinstance(opened, TableSource):
        raise InputError(f"{table.given} is for text tables, .csv or .tsv: {opened.name} is none")
    _check(opened)
    return opened


def open_array(array: Any, memory: int, recovery: int) -> ArraySource:
    """A matrix that a program holds, whatever library made it.

    Parameters
    ----------
    array : object
        Has a shape, a dtype and rows by slices: of NumPy, h5py, Zarr, Dask, SciPy (sparse),
        xarray, or what is like them; or a DataFrame of pandas.
    memory : int
        Bytes that this process may take beside it.
    recovery : int
        L: at so many places it is read at a time.

    Raises
    ------
    InputError
        It is no matrix of real numbers.
    """
    if is_a(array, "dask", "Array"):
        source: ArraySource = chunked_source(array, memory, recovery)
    elif is_a(array, "pandas", "DataFrame"):
        source = frame_source(array)
    elif is_a(array, "xarray", "DataArray"):
        source = labelled_source(array, memory, recovery)
    else:
        source = array_source(array)
    _check(source)
    return source


def _check(source: Source) -> None:
    if len(source.shape) != 2 or min(source.shape) < 1:
        raise InputError(
            f"{source.name} has shape {source.shape}: expected (q, r), both at least 1"
        )
    check_real(source.name, np.dtype(source.dtype))


def _split(text: str) -> tuple[Path, str, str]:
    """A path, then ``::`` and a place within it; names of files may have ``::`` as well."""
    parts = text.split("::")
    ends = [end for end in range(len(parts), 0, -1) if _exists(Path("::".join(parts[:end])))]
    end = ends[0] if ends else 1
    return Path("::".join(parts[:end])), "::" * (end < len(parts)), "::".join(parts[end:])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have
        return False


def _starts_as_npy(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(6) == b"\x93NUMPY"
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
