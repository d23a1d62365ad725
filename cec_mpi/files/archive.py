"""Arrays in one ``.npz`` file, whose sizes are looked at before any array is made.

What is written here is never compressed. So no file of ours holds more than its own size, and
one that says so, in its list of members or in the header of an array, is not ours.
"""

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

from cec_mpi.files.regular import open_regular

_HEADERS = {  # what writes arrays without names of fields in other alphabets
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class DamagedError(Exception):
    """A file is none that `packed` has made."""


def packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a file of arrays."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpacked(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file.

    Raises
    ------
    DamagedError
        It is no such file, or holds more than it has bytes or this computer has memory.
    OSError
        It cannot be read.
    """
    with os.fdopen(open_regular(path), "rb") as stream, warnings.catch_warnings(action="ignore"):
        size = os.fstat(stream.fileno()).st_size
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > memory:
            raise DamagedError(f"it has {size} bytes, and this computer {memory} of memory")
        try:
            _check_sizes(stream, size)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (DamagedError, OSError):
            raise
        except Exception as error:  # zipfile and NumPy raise a dozen kinds on altered bytes
            raise DamagedError(f"no whole .npz file of ours: {type(error).__name__}") from None


def _check_sizes(stream: BinaryIO, size: int) -> None:
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > size:
            raise DamagedError(f"it would unpack to {total} bytes from {size}")
        for member in members:
            _check_header(archive, member)


def _check_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array that is another size than its member of the archive."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise DamagedError(f"{member.filename} is of version {version} of the .npy format")
        shape, _, dtype = _HEADERS[version](file)
        begin = file.tell()
    count = math.prod(shape)
    wanted = count * dtype.itemsize
    if min(shape, default=0) < 0 or count > member.file_size or begin + wanted != member.file_size:
        raise DamagedError(
            f"{member.filename} is said to have shape {shape} of {dtype}, and has "
            f"{member.file_size - begin} bytes"
        )
