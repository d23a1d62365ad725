"""Copying of a streamed matrix to a temporary file, from which slices are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.sources.binary import FileArray
from cec_mpi.encoding.sources.missing import MissingValueHandler
from cec_mpi.encoding.sources.source import Source, StreamedMatrix
from cec_mpi.errors import InputError
from cec_mpi.store.files.creating import new_path
from cec_mpi.store.files.durable import check_free_space, write_at
from cec_mpi.store.files.npy import npy_header
from cec_mpi.store.files.replacing import temporary_file

_HEADER_BYTES = len(npy_header((0,), np.dtype("<f8")))  # equal for all lengths


@contextmanager
def copy_to_file(
    matrix: StreamedMatrix,
    store: Path,
    dtype: np.dtype[Any],
    is_resumed: bool,
    missing: str,
) -> Iterator[Source]:
    """Copy a matrix to a temporary file next to the store, and yield its source.

    At the end of the context the file is removed, and the files of targets get their final names.

    Parameters
    ----------
    matrix : StreamedMatrix
    store : Path
    dtype : numpy.dtype
        Dtype of the shards.
    is_resumed : bool
        Whether targets may replace those of an interrupted encode.
    missing : {"refuse", "drop-rows", "mean"}
        Treatment of missing values (NaN).

    Raises
    ------
    InputError
        The matrix cannot be read or has no rows, a number is infinite, missing values are refused
        or leave no rows or no mean, the disk is full, or another process has created a target.
    OSError
        The file cannot be written.
    """
    width, itemsize, rows = matrix.shape[1], matrix.dtype.itemsize, 0
    check_free_space(store, matrix.shape[0] * width * itemsize)
    with ExitStack() as stack:
        partial_targets = [
            stack.enter_context(new_path(file, overwrite=is_resumed)) for _, file in matrix.targets
        ]
        target_files = [stack.enter_context(partial.open("x+b")) for partial in partial_targets]
        for file in target_files:
            file.seek(_HEADER_BYTES)
        descriptor, path = stack.enter_context(temporary_file(store))
        handler = MissingValueHandler(matrix, missing, dtype)
        for row, column, values in matrix.pieces(dtype):
            handler.add(row, column, values)
            X_values = np.ascontiguousarray(values[:, :width], matrix.dtype)
            _write_rows(descriptor, X_values, itemsize * (row * width + column), itemsize * width)
            for file, target in zip(target_files, values[:, width:].T, strict=True):
                file.write(target.astype("<f8").data)
            rows = max(rows, row + len(values))
        if not rows:
            raise InputError(f"{matrix.name} has no rows of numbers, expected at least one")
        handler.check()
        for file in target_files:
            file.flush()
        rows = handler.apply(
            rows, descriptor, [(file.fileno(), _HEADER_BYTES) for file in target_files]
        )
        for file in target_files:
            file.seek(0)
            file.write(npy_header((rows,), np.dtype("<f8")))
            file.flush()
        yield Source(
            name=matrix.name,
            shape=(rows, width),
            dtype=matrix.dtype,
            column_names=matrix.column_names,
            warning=matrix.warning,
            stamps=matrix.stamps,
            current_stamps=matrix.current_stamps,
            missing=None if missing == "refuse" else handler.summary,
            array=FileArray(path, (rows, width), matrix.dtype),
            origin={
                "path": str(path),
                "shape": (rows, width),
                "input_dtype": matrix.dtype.str,
            },
        )


def _write_rows(descriptor: int, rows: NDArray[Any], offset: int, row_bytes: int) -> None:
    """Write rows, or adjacent columns of them, at an offset."""
    if rows.nbytes == len(rows) * row_bytes:
        write_at(descriptor, rows, offset)
        return
    for k, row in enumerate(rows):
        write_at(descriptor, row, offset + k * row_bytes)
