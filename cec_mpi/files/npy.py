"""``.npy`` files: opened that somebody else wrote, and filled through memory maps."""

from __future__ import annotations

import io
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.files.regular import check_regular
from cec_mpi.files.replacing import create_new, open_own
from cec_mpi.text import plural


def open_npy(path: Path) -> NDArray[Any]:
    """Memory-map an array of real numbers, read-only.

    Raises
    ------
    InputError
        Names the file: it is missing, no ``.npy`` file, or holds no real numbers.
    """
    check_regular(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header that is no header earns several kinds
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as error:  # the header is parsed as Python: it can raise anything
        reason = str(getattr(error, "strerror", None) or error).split("\n")[0]
        if isinstance(error, ValueError) and not _begins_as_npy(path):
            reason = "it does not begin as one"  # NumPy would advise to unpickle it
        raise InputError(f"{path} is not a readable .npy file: {reason}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path} is an archive of arrays: expected one .npy array")
    check_real(path, array.dtype)
    return array


def check_real(name: object, dtype: np.dtype[Any]) -> None:
    """Refuse an array that holds something else than real numbers.

    Raises
    ------
    InputError
        Says what it holds.
    """
    if dtype.kind == "c":
        raise InputError(
            f"{name} holds {dtype}: complex numbers are not supported, because codes, shards "
            "and answers are real"
        )
    if dtype.kind not in "fiub":
        raise InputError(f"{name} holds {dtype}: expected real numbers")


def _begins_as_npy(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The first bytes of a file, up to its data in C order."""
    descr = np.lib.format.dtype_to_descr(dtype)
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def map_new(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A file of float64 to be filled, memory-mapped, in the place of one that has its name.

    Raises
    ------
    OSError
        It cannot be made, or the disk has no room for it.
    """
    dtype = np.dtype(np.float64)
    with os.fdopen(create_new(path), "r+b") as file:
        offset = file.write(npy_header(shape, dtype))
        # A full disk shows here: while the map is filled it would end the process.
        os.posix_fallocate(file.fileno(), 0, offset + math.prod(shape) * dtype.itemsize)
        return np.memmap(file, dtype, "r+", offset, shape)


def map_own(path: Path) -> np.memmap[Any, Any]:
    """A file that `map_new` has made, memory-mapped to be written to.

    Raises
    ------
    InputError
        It is no such file.
    OSError
        It is a link, has other names, or cannot be opened.
    """
    with os.fdopen(open_own(path), "r+b") as file:
        try:
            version = np.lib.format.read_magic(file)
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            if version != (1, 0) or fortran or dtype.hasobject:
                raise ValueError(f"{dtype} in format {version}")
            wanted = file.tell() + math.prod(shape) * dtype.itemsize
            found = os.fstat(file.fileno()).st_size
            if found != wanted:  # a map would fill the rest with zeros
                raise ValueError(f"{plural(found, 'byte')}, expected {wanted}")
            return np.memmap(file, dtype, "r+", file.tell(), shape)
        except Exception as error:  # the header is parsed as Python: it can raise anything
            reason = str(error).split("\n")[0]
            raise InputError(f"{path} is no array of results: {reason}") from None
