"""How many numbers are decoded at a time: they are in the caches from being copied together on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.decoder import Decoder

# As many as OpenBLAS multiplies with an L x L matrix without copying them again, and no fewer.
_FEWEST, _SMALL = 8192, 10**6


def width(recovery: int) -> int:
    """How many numbers of each of L machines are decoded at a time.

    Parameters
    ----------
    recovery : int
        L.

    Examples
    --------
    >>> width(3), width(40)
    (111111, 8192)
    """
    return max(_FEWEST, (_SMALL - 1) // recovery**2)


def decode(
    decoder: Decoder,
    answers: Sequence[NDArray[np.floating]],
    out: NDArray[np.float64],
    work: NDArray[np.float64],
) -> None:
    """Decode L answers, some numbers at a time.

    Parameters
    ----------
    decoder : Decoder
    answers : L of (m,) ndarray of float
        In the order of the decoder.
    out : (L, m) ndarray of float64
    work : ndarray of float64
        Scratch, of L m numbers or more.
    """
    recovery, numbers = out.shape
    most = width(recovery)
    for first in range(0, numbers, most):
        last = min(numbers, first + most)
        panel = work[: recovery * (last - first)].reshape(recovery, last - first)
        for row, answer in zip(panel, answers, strict=True):
            row[:] = answer[first:last]
        decoder.decode(panel, out[:, first:last])
