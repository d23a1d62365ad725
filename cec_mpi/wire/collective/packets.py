"""An order and what it shares in one message, where that is short.

A step of little costs what its messages cost, so short ones go together. How long a message is has
to be known at both ends before it comes: both count alike what the steps before have shared.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.core.step.product import SHORT_ANSWERS, SHORT_VECTOR, Product
from cec_mpi.processes.waiting import LONGEST_SLEEP, Rhythm, wait_for
from cec_mpi.wire.opening import Opening
from cec_mpi.wire.orders import MASTER, Order

_NUMBER = 8  # bytes
IDLE_SLEEP = 5e-3  # seconds, where there is nothing to be late for
_HEADER = len(Order._fields)
ORDER_BYTES = _HEADER * _NUMBER


class Sizes:
    """How long what a step shares and answers is, in bytes.

    Parameters
    ----------
    opening : Opening
    """

    def __init__(self, opening: Opening) -> None:
        manifest = opening.manifest
        self._machines = sum(map(bool, opening.machines))
        self._columns, self._itemsize = manifest.columns, opening.arithmetic.itemsize
        self._answers = manifest.code.recovery * manifest.rows_per_shard

    def shared(self, product: Product) -> int:
        """W, or the coefficients of all machines."""
        numbers = self._answers if product.adjoint else self._columns
        return numbers * product.columns * self._itemsize

    def answers_are_short(self, product: Product) -> bool:
        """Whether the answers of all machines go with the reports."""
        if product.adjoint:
            sums = self._columns * product.columns * _NUMBER
            return self._machines * sums <= SHORT_ANSWERS
        return self._answers * product.columns * self._itemsize <= SHORT_ANSWERS


class Packet:
    """An order, and room behind it for as much as one of the last two steps has shared.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm

    Attributes
    ----------
    order : (6,) ndarray of int64
    """

    order: NDArray[np.int64]

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._lengths = deque((0, 0), maxlen=2)  # two: X W and X' V in turn
        self._rhythm = Rhythm()
        self._make(0)

    def _make(self, room: int) -> None:
        self._room = room
        self._numbers = np.zeros(_HEADER + -(-room // _NUMBER), dtype=np.int64)
        self.order = self._numbers[:_HEADER]
        self._content = self._numbers[_HEADER:].view(np.uint8)

    def broadcast(self, idle: bool = False) -> None:
        """Collective: from the master to all; `idle`: a machine looks seldom."""
        requests = [self._comm.Ibcast(self._numbers, root=MASTER)]
        longest = IDLE_SLEEP if idle else LONGEST_SLEEP
        wait_for(requests, self._numbers.nbytes, longest=longest, rhythm=self._rhythm)

    def room(self, size: int) -> NDArray[np.uint8] | None:
        """Where so many bytes are that a step shares; None where they come on their own."""
        return self._content[:size] if size <= self._content.size else None

    def shared(self, size: int) -> None:
        """A step shares so many bytes: both ends say so, once it was announced."""
        self._lengths.append(size if size <= SHORT_VECTOR else 0)
        longest = max(self._lengths)
        if longest != self._room:
            self._make(longest)
