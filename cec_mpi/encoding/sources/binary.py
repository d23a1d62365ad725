"""Binary files: ``.npy``, directories of ``.npy`` parts, and raw binary."""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.rounding import NO_ROUNDING, Rounding
from cec_mpi.encoding.sources.source import Source, convert_into, file_stamps, read_error
from cec_mpi.errors import InputError
from cec_mpi.store.files.durable import read_at
from cec_mpi.store.files.npy import open_npy
from cec_mpi.store.manifest_files import MANIFEST
from cec_mpi.text import plural

_MAX_MAPPED_BYTES = 32 << 20  # pages in memory at a time
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class FileArray:
    """An array in a binary file.

    It is read, not memory-mapped, so that a truncated file or a failing disk raises an error
    instead of a signal. Only arrays in Fortran order are mapped, because their rows are spread over
    the whole file.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int = 0
    is_fortran_order: bool = False

    def read_into(
        self, start: int, stop: int, left: int, right: int, out: NDArray[Any]
    ) -> Rounding:
        """Read a slice into `out`."""
        if self.is_fortran_order:
            return self._read_mapped(start, stop, left, right, out)
        is_direct = out.dtype == self.dtype and out.flags.c_contiguous
        rows = out if is_direct else np.empty(out.shape, self.dtype)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if right - left == self.shape[1]:
                self._read_entries(descriptor, start * self.shape[1], rows)
            else:
                for row, row_out in zip(range(start, stop), rows, strict=True):
                    self._read_entries(descriptor, row * self.shape[1] + left, row_out)
        finally:
            os.close(descriptor)
        return NO_ROUNDING if is_direct else convert_into(out, rows)

    def _read_entries(self, descriptor: int, first: int, out: NDArray[Any]) -> None:
        offset = self.offset + first * self.dtype.itemsize
        if read_at(descriptor, out, offset) < out.nbytes:
            raise InputError(f"{self.path} ends before its last row: the file was truncated")

    def _read_mapped(self, start: int, stop: int, left: int, right: int, out: Any) -> Rounding:
        expected = self.offset + self.shape[0] * self.shape[1] * self.dtype.itemsize
        if self.path.stat().st_size < expected:
            raise InputError(f"{self.path} ends before its last column: the file was truncated")
        # A new map for each piece releases the pages of the previous piece.
        bytes_per_column = (stop - start) * self.dtype.itemsize + mmap.PAGESIZE
        columns_at_once = max(1, _MAX_MAPPED_BYTES // bytes_per_column)
        rounding = NO_ROUNDING
        for first in range(left, right, columns_at_once):
            end = min(first + columns_at_once, right)
            mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, "F")
            rounding += convert_into(
                out[:, first - left : end - left], mapped[start:stop, first:end]
            )
        return rounding


def npy_array(path: Path) -> FileArray:
    """Open the array of an ``.npy`` file, in C or Fortran order."""
    array = open_npy(path)
    offset = array.offset if isinstance(array, np.memmap) else 0
    is_fortran_order = array.flags.f_contiguous and not array.flags.c_contiguous
    return FileArray(path, array.shape, array.dtype, offset, is_fortran_order)


def npy_source(path: Path) -> Source:
    """Return the source of an ``.npy`` file."""
    stamps = file_stamps(path) if path.is_file() else ()
    array = npy_array(path)
    return Source(
        name=str(path),
        shape=array.shape,
        dtype=array.dtype,
        stamps=stamps,
        current_stamps=partial(file_stamps, path),
        array=array,
    )


def raw_source(path: Path, shape: tuple[int, int], dtype_name: str | None) -> Source:
    """Return the source of raw binary in C order."""
    if dtype_name is None:
        raise InputError(f"{path} is raw binary: give its dtype with --input-dtype or --dtype")
    try:
        dtype = np.dtype(dtype_name)
    except (TypeError, ValueError):
        raise InputError(
            f"input dtype {dtype_name!r}: expected a NumPy dtype, such as <f4"
        ) from None
    if min(shape) < 1:
        raise InputError(f"shape {shape[0]},{shape[1]}: expected two numbers of at least 1")
    try:
        size = path.stat().st_size
        stamps = file_stamps(path)
    except OSError as error:
        raise read_error(path, error) from None
    expected = shape[0] * shape[1] * dtype.itemsize
    if path.is_dir() or size != expected:
        problem = "is a directory" if path.is_dir() else f"has {plural(size, 'byte')}"
        raise InputError(
            f"{path} {problem}, expected {expected} bytes for a {shape[0]} x {shape[1]} matrix of "
            f"{dtype}"
        )
    return Source(
        name=str(path),
        shape=shape,
        dtype=dtype,
        stamps=stamps,
        current_stamps=partial(file_stamps, path),
        array=FileArray(path, shape, dtype),
    )


@dataclass(frozen=True)
class StackedArray:
    """Arrays with the same number of columns, stacked vertically."""

    parts: tuple[FileArray, ...]

    def read_into(
        self, start: int, stop: int, left: int, right: int, out: NDArray[Any]
    ) -> Rounding:
        """Read a slice into `out`; it may span several parts."""
        rounding = NO_ROUNDING
        bounds = accumulate((part.shape[0] for part in self.parts), initial=0)
        for part, (first, end) in zip(self.parts, pairwise(bounds), strict=True):
            top, bottom = max(start, first), min(stop, end)
            if top < bottom:
                rows = out[top - start : bottom - start]
                rounding += part.read_into(top - first, bottom - first, left, right, rows)
        return rounding


def parts_source(directory: Path) -> Source:
    """Return the source of a directory of ``.npy`` files, in natural order: 2 before 10."""
    if (directory / MANIFEST).exists():
        raise InputError(
            f"{directory} is a store, expected a matrix (cec-mpi decode writes the matrix of a "
            "store)"
        )
    try:
        paths = [path for path in directory.iterdir() if path.suffix.lower() == ".npy"]
    except OSError as error:
        raise read_error(directory, error) from None
    paths.sort(key=_natural_key)
    if not paths:
        raise InputError(f"{directory} contains neither .npy files nor a Zarr array")
    stamps = file_stamps(*(path for path in paths if path.is_file()))
    parts = tuple(map(npy_array, paths))
    for part in parts:
        if len(part.shape) != 2 or part.shape[1:] != parts[0].shape[1:]:
            raise InputError(
                f"{part.path} has shape {part.shape}, expected as many columns as "
                f"{parts[0].path.name}, which has shape {parts[0].shape}"
            )
    return Source(
        name=str(directory),
        shape=(sum(part.shape[0] for part in parts), parts[0].shape[1]),
        dtype=np.result_type(*(part.dtype for part in parts)),
        stamps=stamps,
        current_stamps=partial(file_stamps, *paths),
        array=StackedArray(parts),
    )


def _natural_key(path: Path) -> list[tuple[int, str]]:
    tokens = re.split(r"(\d+)", path.name)
    return [(int(token), "") if token.isdecimal() else (0, token) for token in tokens]


def check_finite(path: Path, rows: int) -> None:
    """Raise if the first rows of a file have numbers that are not finite.

    Parameters
    ----------
    path : Path
        ``.npy`` file with a matrix of real numbers.
    rows : int
        Maximum number of rows to check.

    Raises
    ------
    InputError
        A number is NaN, infinite, or too large for float64, or the file cannot be read. The message
        names the file, row and column.
    """
    array = npy_array(path)
    columns = array.shape[1]
    rows_at_once = max(1, _PIECE_BYTES // (columns * array.dtype.itemsize))
    for start in range(0, min(rows, array.shape[0]), rows_at_once):
        stop = min(start + rows_at_once, rows, array.shape[0])
        piece = np.empty((stop - start, columns), array.dtype)
        array.read_into(start, stop, 0, columns, piece)
        with np.errstate(over="ignore", invalid="ignore"):
            is_finite = np.isfinite(piece.astype(np.float64))
        if not is_finite.all():
            row, column = np.argwhere(~is_finite)[0].tolist()
            raise InputError(
                f"{path} holds {piece[row, column]} at row {start + row}, column {column} (counted "
                "from 0), expected finite numbers in the range of float64"
            )
