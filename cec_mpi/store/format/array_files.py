"""Strictly validated ``.npy`` files of a store, each with a copy.

Arrays of the manifest (`ArrayEntry`) have a copy, because they cannot be computed from the shards.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.files.durable import read_at, write_at
from cec_mpi.store.files.npy import npy_header
from cec_mpi.store.files.regular import (
    check_regular,
    open_regular,
    raise_if_shortage,
    unreadable_reason,
)
from cec_mpi.store.files.replacing import replacing
from cec_mpi.store.format.manifest import ArrayEntry, Manifest

_MAX_HEADER_BYTES = 4096  # headers written by `npy_header` have 128 bytes
_CHUNK_BYTES = 1 << 20


def publish_array(directory: Path, name: str, array: NDArray[Any]) -> None:
    """Write an array, and a copy of it."""
    publish_pieces(directory, name, array.shape, array.dtype, (array,))


def publish_pieces(
    directory: Path,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    pieces: Iterable[NDArray[Any]],
) -> str:
    """Write an array that may be too large for memory, and a copy of it.

    Parameters
    ----------
    directory : Path
    name : str
    shape, dtype
        Shape and dtype of the array.
    pieces : iterable of ndarray
        Consecutive pieces of the array in C order.

    Returns
    -------
    str
        Checksum of the entries (128-bit XXH3).
    """
    file_dtype = dtype.newbyteorder("<")
    hasher = xxhash.xxh3_128()
    target, copy = (directory / file for file in name_and_copy(name))
    with replacing(target) as (descriptor, _):
        header = npy_header(shape, file_dtype)
        write_at(descriptor, header, 0)
        offset = len(header)
        for piece in pieces:
            data = np.ascontiguousarray(piece, file_dtype).data.cast("B")
            write_at(descriptor, data, offset)
            hasher.update(data)
            offset += data.nbytes
    copy_file(target, copy)
    return hasher.hexdigest()


def copy_file(
    source: Path, target: Path, check_cancelled: Callable[[], None] = lambda: None
) -> None:
    """Replace `target` atomically by a copy of `source`; `check_cancelled` may raise to cancel."""
    with os.fdopen(open_regular(source), "rb") as file, replacing(target) as (descriptor, _):
        offset = 0
        while data := file.read(_CHUNK_BYTES):
            check_cancelled()
            write_at(descriptor, data, offset)
            offset += len(data)


def name_and_copy(name: str) -> tuple[str, str]:
    """Return the name of a file in the manifest, and the name of its copy."""
    return name, name.replace(".npy", ".copy.npy")


class ArrayFile:
    """An open file with an array of a known shape.

    Parameters
    ----------
    path : Path
    shape : tuple of int
    dtype : dtype

    Raises
    ------
    DamagedStoreError
        The file is missing or unreadable, or its shape, dtype or size is wrong. The message does
        not name the file.
    ShortageError
        The process or the computer lacks a resource.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._shape = shape
        self._dtype = np.dtype(dtype).newbyteorder("<")
        try:
            self._descriptor = open_regular(path)
        except OSError as error:
            raise DamagedStoreError(unreadable_reason(error)) from None
        try:
            self._check()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _check(self) -> None:
        size = os.fstat(self._descriptor).st_size
        header = os.pread(self._descriptor, _MAX_HEADER_BYTES, 0)
        try:
            file = io.BytesIO(header)
            version = np.lib.format.read_magic(file)
            shape, is_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        except Exception as error:  # NumPy parses the header as Python, which can raise anything
            reason = str(error).split("\n")[0]
            raise DamagedStoreError(f"unreadable ({reason})") from None
        self._data_offset = file.tell()
        if (version, shape, is_fortran_order, dtype) != ((1, 0), self._shape, False, self._dtype):
            raise DamagedStoreError("wrong shape or dtype")
        expected = self._data_offset + self._dtype.itemsize * math.prod(self._shape)
        if size != expected:
            raise DamagedStoreError(f"{size} bytes, expected {expected}")

    def read_row(self, index: int) -> NDArray[Any]:
        """Read one row."""
        width = self._shape[1]
        return self._read_entries(width * index, width)

    def compute_checksum(self) -> str:
        """Read the entries, and return their checksum; see `publish_pieces`."""
        hasher = xxhash.xxh3_128()
        count = math.prod(self._shape)
        step = _CHUNK_BYTES // self._dtype.itemsize
        for first in range(0, count, step):
            hasher.update(self._read_entries(first, min(step, count - first)).data)
        return hasher.hexdigest()

    def read_columns(self, start: int, stop: int) -> NDArray[Any]:
        """Read columns ``start:stop`` of all rows."""
        width = self._shape[1]
        return np.stack(
            [self._read_entries(k * width + start, stop - start) for k in range(self._shape[0])]
        )

    def read(self) -> NDArray[Any]:
        """Read the whole array."""
        return self._read_entries(0, math.prod(self._shape)).reshape(self._shape)

    def _read_entries(self, first: int, count: int) -> NDArray[Any]:
        entries = np.empty(count, self._dtype)
        offset = self._data_offset + first * self._dtype.itemsize
        try:
            bytes_read = read_at(self._descriptor, entries, offset)
        except OSError as error:
            raise_if_shortage(error, "a file of a store")
            raise DamagedStoreError(unreadable_reason(error)) from None
        if bytes_read < entries.nbytes:
            raise DamagedStoreError("truncated")
        return entries

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def read_array(
    directory: Path, entry: ArrayEntry, shape: tuple[int, ...], dtype: DTypeLike
) -> NDArray[Any]:
    """Read an array from its file or the copy.

    Raises
    ------
    DamagedStoreError
        Neither the file nor its copy matches the manifest; the message names both.
    """
    for name in name_and_copy(entry.file):
        try:
            with ArrayFile(directory / name, shape, dtype) as file:
                array = file.read()
        except DamagedStoreError:
            continue
        if xxhash.xxh3_128_hexdigest(array.data) == entry.xxh3_128:
            return array.astype(dtype, copy=False)
    raise _lost_error(directory, entry)


def find_undamaged_file(
    directory: Path, entry: ArrayEntry, shape: tuple[int, ...], dtype: DTypeLike
) -> Path:
    """Return the path of the file of an array, or of its copy, that matches the manifest.

    Raises
    ------
    DamagedStoreError
        See `read_array`.
    """
    for name in name_and_copy(entry.file):
        if not _find_problem(directory / name, entry, shape, dtype):
            return directory / name
    raise _lost_error(directory, entry)


def find_array_problems(directory: Path, manifest: Manifest) -> dict[str, str]:
    """Return the problems of the arrays next to the shards, and of their copies, by file."""
    return {
        name: problem
        for entry, shape, dtype in manifest.arrays()
        for name in name_and_copy(entry.file)
        if (problem := _find_problem(directory / name, entry, shape, dtype))
    }


def unrecoverable_files(problems: Mapping[str, str], manifest: Manifest) -> list[str]:
    """Return the files that are damaged, and whose copies are also damaged."""
    pairs = [name_and_copy(entry.file) for entry, _, _ in manifest.arrays()]
    return [name for pair in pairs if problems.keys() >= set(pair) for name in pair]


def restore_arrays(directory: Path, manifest: Manifest) -> tuple[list[str], list[str]]:
    """Restore each file from its copy, or the copy from the file.

    Returns
    -------
    restored, lost : list of str
        Names of restored files, and of damaged files whose copies are also damaged.
    """
    problems, restored = find_array_problems(directory, manifest), []
    for entry, _, _ in manifest.arrays():
        names = name_and_copy(entry.file)
        for source, target in (names, names[::-1]):
            if target in problems and source not in problems:
                check_regular(directory / target)
                copy_file(directory / source, directory / target)
                restored.append(target)
    return restored, unrecoverable_files(problems, manifest)


def _find_problem(path: Path, entry: ArrayEntry, shape: tuple[int, ...], dtype: DTypeLike) -> str:
    """Return the problem of a file, or ''."""
    try:
        with ArrayFile(path, shape, dtype) as file:
            checksum = file.compute_checksum()
    except DamagedStoreError as error:
        return str(error)
    return "" if checksum == entry.xxh3_128 else "altered, or from another store"


def _lost_error(directory: Path, entry: ArrayEntry) -> DamagedStoreError:
    names = " and ".join(name_and_copy(entry.file))
    return DamagedStoreError(
        f"{directory}: {names} are missing or altered and cannot be restored: copy one of them "
        "back from a backup, or encode X again"
    )
