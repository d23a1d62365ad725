"""``.npy`` files: validated reading, and writing through memory maps."""

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
from cec_mpi.store.files.regular import check_regular
from cec_mpi.store.files.replacing import create_or_replace, open_in_place
from cec_mpi.text import plural


def open_npy(path: Path) -> NDArray[Any]:
    """Memory-map an array of real numbers for reading.

    Raises
    ------
    InputError
        The file is missing, is not an ``.npy`` file, has more than one array, or has values that
        are not real numbers.
    """
    check_regular(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid headers cause several warnings
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except Exception as error:  # NumPy parses the header as Python, which can raise anything
        if "Python objects in dtype" in str(error):
            raise InputError(
                f"{path} holds Python objects, expected numbers: convert the array with "
                "X.astype(float) and save it again, or save a sparse X with scipy.sparse.save_npz"
            ) from None
        reason = str(getattr(error, "strerror", None) or error).split("\n")[0]
        if isinstance(error, ValueError) and not _has_npy_magic(path):
            reason = "it does not begin with the .npy header"  # NumPy's message advises unpickling
        raise InputError(f"{path} is not a readable .npy file: {reason}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path} is an archive of arrays (.npz), expected one array (.npy)")
    check_real(path, array.dtype)
    if isinstance(array, np.memmap):
        excess = path.stat().st_size - array.offset - array.nbytes
        if excess > 0:
            raise InputError(
                f"{path} has {plural(excess, 'byte')} after its first array, of shape "
                f"{array.shape}: expected one array in a file"
            )
    return array


def check_real(name: object, dtype: np.dtype[Any]) -> None:
    """Raise if the dtype of an array is not one of real numbers.

    Raises
    ------
    InputError
        Names the dtype.
    """
    if dtype.kind == "c":
        raise InputError(
            f"{name} holds complex numbers ({dtype}), which are not supported: codes, shards and "
            "answers are real"
        )
    if dtype.kind not in "fiub":
        raise InputError(f"{name} has dtype {dtype}, expected real numbers")


def _has_npy_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the header of an array in C order."""
    descr = np.lib.format.dtype_to_descr(dtype)
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def create_memmap(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Create a memory-mapped file of float64, and replace any file of this name.

    Raises
    ------
    OSError
        The file cannot be created, or the disk is full.
    """
    dtype = np.dtype(np.float64)
    with os.fdopen(create_or_replace(path), "r+b") as file:
        offset = file.write(npy_header(shape, dtype))
        # Without reserved space, SIGBUS would end the process when the disk is full.
        os.posix_fallocate(file.fileno(), 0, offset + math.prod(shape) * dtype.itemsize)
        return np.memmap(file, dtype, "r+", offset, shape)


def open_memmap(path: Path) -> np.memmap[Any, Any]:
    """Memory-map a file written by `create_memmap` for reading and writing.

    Raises
    ------
    InputError
        `create_memmap` did not write this file, or it was altered.
    OSError
        The file is a link, has several hard links, or cannot be opened.
    """
    with os.fdopen(open_in_place(path), "r+b") as file:
        try:
            version = np.lib.format.read_magic(file)
            shape, is_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
            if version != (1, 0) or is_fortran_order or dtype.hasobject:
                order = "Fortran" if is_fortran_order else "C"
                raise ValueError(f"{dtype} in {order} order, in format {version}")
            expected = file.tell() + math.prod(shape) * dtype.itemsize
            size = os.fstat(file.fileno()).st_size
            if size != expected:  # np.memmap would pad the file with zeros
                raise ValueError(f"{plural(size, 'byte')}, expected {expected}")
            mapped = np.memmap(file, dtype, "r+", file.tell(), shape)
            mapped.filename = os.fspath(path)  # np.memmap sets the number of the descriptor
            return mapped
        except Exception as error:  # NumPy parses the header as Python, which can raise anything
            reason = str(error).split("\n")[0]
            raise InputError(f"{path} is not an array written by cec_mpi: {reason}") from None
