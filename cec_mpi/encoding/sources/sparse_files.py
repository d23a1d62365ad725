"""Reading of sparse files into memory: SciPy's ``.npz`` and Matrix Market."""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.encoding.sources.csr import ARRAY_NAMES, check_shape, csr_from_arrays, sparse_warning
from cec_mpi.encoding.sources.market import read_market
from cec_mpi.encoding.sources.missing import stream_rows
from cec_mpi.encoding.sources.source import Source, StreamedMatrix, file_stamps, read_error
from cec_mpi.errors import InputError
from cec_mpi.store.files.formats import MARKET_SUFFIXES
from cec_mpi.text import as_text


def open_sparse_file(path: Path) -> StreamedMatrix | None:
    """Return the matrix of a sparse file, for dense shards; None for another format."""
    if not _is_sparse_file(path):
        return None
    stamps = file_stamps(path)
    rows = read_sparse(path)
    source = Source(
        name=str(path),
        shape=rows.shape,
        dtype=rows.dtype,
        stamps=stamps,
        current_stamps=partial(file_stamps, path),
        warning="" if isinstance(rows, np.ndarray) else sparse_warning(path, rows),
        array=rows,
        rows_only=True,
    )
    return stream_rows(source)


def _is_sparse_file(path: Path) -> bool:
    """Return whether a file is Matrix Market, or an ``.npz`` that is sparse or damaged."""
    name = path.name.lower()
    if not name.endswith(".npz"):
        return name.endswith(MARKET_SUFFIXES)
    try:
        with path.open("rb") as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                return False
            with zipfile.ZipFile(file) as archive:
                return {"format.npy", "shape.npy"} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return True


def read_sparse(path: Path) -> Any:
    """Read a sparse file into memory.

    Returns
    -------
    csr_array or ndarray
        CSR with sorted columns and without repeated entries; an ndarray if a Matrix Market file has
        the format "array".

    Raises
    ------
    InputError
        The file is damaged, or the matrix is not a valid real matrix.
    """
    if path.name.lower().endswith(MARKET_SUFFIXES):
        return read_market(path)
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray) or not {"format", "shape"} <= set(archive):
                raise InputError(
                    f"{path} contains no sparse matrix: expected a file written by "
                    "scipy.sparse.save_npz"
                )
            sparse_format = as_text(archive["format"].item())
            if sparse_format not in ARRAY_NAMES:
                raise InputError(
                    f"{path} has format {sparse_format!r}: expected one of {', '.join(ARRAY_NAMES)}"
                )
            shape = check_shape(path, archive["shape"].tolist())
            if "fill_value" in archive and archive["fill_value"] != 0:  # written by PyData Sparse
                raise InputError(
                    f"{path} has the fill value {archive['fill_value']}, expected 0 for entries "
                    "that are not stored"
                )
            arrays = [archive[name] for name in ARRAY_NAMES[sparse_format]]
    except (InputError, MemoryError):
        raise
    except Exception as error:  # libraries raise many types of errors for damaged files
        raise read_error(path, error) from None
    return csr_from_arrays(path, sparse_format, shape, *arrays)
