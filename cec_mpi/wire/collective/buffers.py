"""What both ends of a step by collectives share.

MPI checks next to nothing: a Fortran-ordered array, another dtype or a count that does
not match give silently wrong data, and a displacement beyond the buffer corrupts memory.
So the modules beside this one own all communication of a step and check each buffer before it
goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.processes.waiting import wait_for
from cec_mpi.wire.orders import MASTER


def broadcast(
    comm: MPI.Intracomm,
    array: NDArray[Any],
    transfer: int = 0,
) -> None:
    """Collective: from the master to all, in `transfer` bytes that are worth waiting for."""
    wait_for([comm.Ibcast(array, root=MASTER)], transfer)


def check_buffer(name: str, array: NDArray[Any], dtype: np.dtype[Any], size: int) -> None:
    """Refuse an array that MPI would misread.

    Raises
    ------
    InputError
    """
    if array.dtype != dtype or array.size != size or not array.flags.c_contiguous:
        raise InputError(
            f"{name} of shape {array.shape} and dtype {array.dtype}"
            f"{'' if array.flags.c_contiguous else ', not contiguous'}: "
            f"expected {size} numbers of {dtype}, contiguous"
        )
