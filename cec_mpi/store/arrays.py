"""Opening ``.npy`` files that somebody else wrote."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

__all__ = ["open_npy"]


def open_npy(path: Path) -> NDArray[Any]:
    """Memory-map an array of real numbers, read-only.

    Raises
    ------
    InputError
        Names the file: it is missing, no ``.npy`` file, or holds no real numbers.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header that is no header earns several kinds
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as error:  # the header is parsed as Python: it can raise anything
        reason = str(error).split("\n")[0]
        raise InputError(f"{path} is not a readable .npy file: {reason}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path} is an archive of arrays: expected one .npy array")
    if array.dtype.kind == "c":
        raise InputError(
            f"{path} holds {array.dtype}: complex numbers are not supported, because codes, shards "
            "and answers are real"
        )
    if array.dtype.kind not in "fiub":
        raise InputError(f"{path} holds {array.dtype}: expected real numbers")
    return array
