"""Uncompressed ``.npz`` files; stated sizes are validated before arrays are allocated."""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.files.regular import open_regular

_HEADER_READERS = {  # version 3 is only for structured arrays
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class ArchiveDamagedError(Exception):
    """A file was not written by `pack_arrays`, was altered, or does not fit into memory."""


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of an ``.npz`` file with these arrays."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a file.

    Raises
    ------
    ArchiveDamagedError
        The file is damaged, or its arrays are larger than the memory of this computer.
    OSError
        The file cannot be read.
    """
    with os.fdopen(open_regular(path), "rb") as stream, warnings.catch_warnings(action="ignore"):
        size = os.fstat(stream.fileno()).st_size
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > memory:
            raise ArchiveDamagedError(
                f"it has {size} bytes, but this computer has only {memory} bytes of memory"
            )
        try:
            _check_sizes(stream, size)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (ArchiveDamagedError, OSError):
            raise
        except Exception as error:  # zipfile and NumPy raise many types of errors
            raise ArchiveDamagedError(
                f"not a complete .npz file of cec_mpi: {type(error).__name__}"
            ) from None


def _check_sizes(stream: BinaryIO, size: int) -> None:
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > size:
            raise ArchiveDamagedError(f"its arrays have {total} bytes, but the file has {size}")
        for member in members:
            _check_header(archive, member)


def _check_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise if the header of an array does not match the size of its member."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADER_READERS:
            raise ArchiveDamagedError(
                f"{member.filename} has version {version} of the .npy format, which is not "
                "supported"
            )
        shape, _, dtype = _HEADER_READERS[version](file)
        data_bytes = member.file_size - file.tell()
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count > data_bytes or count * dtype.itemsize != data_bytes:
        raise ArchiveDamagedError(
            f"the header of {member.filename} states shape {shape} of {dtype}, but it has "
            f"{data_bytes} bytes of data"
        )
