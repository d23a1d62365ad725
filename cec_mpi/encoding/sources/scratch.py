"""What has no slices, read once into a file of plain numbers, which is an array then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.sources.binary import FileArray
from cec_mpi.encoding.sources.source import Source, Unread
from cec_mpi.errors import InputError
from cec_mpi.files.appearing import appearing
from cec_mpi.files.durable import check_room, write_at
from cec_mpi.files.replacing import temporary
from cec_mpi.store.format.manifest import array_header

_HEADER_BYTES = len(array_header((0,), "float64"))  # however many numbers there are


@contextmanager
def read_once(matrix: Unread, store: Path, dtype: np.dtype[Any], again: bool) -> Iterator[Source]:
    """Read a matrix into a file beside the store, which is removed at the end of the block.

    Its targets appear at the end of the block.

    Parameters
    ----------
    matrix : Unread
    store : Path
    dtype : numpy.dtype
        Of the shards.
    again : bool
        Whether targets may take the place of those of an interrupted encode.

    Raises
    ------
    InputError
        The matrix is not one of finite numbers, there is no room, or a target has come into
        being meanwhile.
    OSError
        The file cannot be written.
    """
    width, itemsize, rows = matrix.shape[1], matrix.dtype.itemsize, 0
    check_room(store, matrix.shape[0] * width * itemsize)
    with ExitStack() as stack:
        partials = [stack.enter_context(appearing(file, again=again)) for _, file in matrix.targets]
        files = [stack.enter_context(partial.open("xb")) for partial in partials]
        for file in files:
            file.seek(_HEADER_BYTES)
        descriptor, path = stack.enter_context(temporary(store))
        for row, column, values in matrix.pieces(dtype):
            numbers = np.ascontiguousarray(values[:, :width], matrix.dtype)
            _write(descriptor, numbers, itemsize * (row * width + column), itemsize * width)
            for file, target in zip(files, values[:, width:].T, strict=True):
                file.write(target.astype("<f8").data)
            rows = max(rows, row + len(values))
        if not rows:
            raise InputError(
                f"{matrix.name} has shape (0, {width}): expected (q, r), both at least 1"
            )
        for file in files:
            file.seek(0)
            file.write(array_header((rows,), "float64").encode("latin-1"))
            file.flush()
        yield Source(
            name=matrix.name,
            shape=(rows, width),
            dtype=matrix.dtype,
            column_names=matrix.column_names,
            warning=matrix.warning,
            stamps=matrix.stamps,
            stamps_now=matrix.stamps_now,
            array=FileArray(path, (rows, width), matrix.dtype),
        )


def _write(descriptor: int, numbers: NDArray[Any], place: int, row_bytes: int) -> None:
    """Write rows of a matrix to a place, or parts of them."""
    if numbers.nbytes == len(numbers) * row_bytes:
        write_at(descriptor, numbers, place)
        return
    for number, line in enumerate(numbers):
        write_at(descriptor, line, place + number * row_bytes)
