"""What the cyclic assignment would have had machines compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.schemes import cyclic_loads
from cec_mpi.report.reading.fields import Floats

Counts = NDArray[np.int64]


def cyclic_rows(here: NDArray[np.bool_], copies: Floats, shard: Floats, held: Counts) -> Floats:
    """Rows of each machine by stretch, if all shards that are here had equal loads.

    Parameters
    ----------
    here : (K, N) ndarray of bool
        Which machines are available.
    copies, shard : (K,) ndarray
        Shards that each row is computed with, and rows of a shard.
    held : (N,) ndarray of int
        Shards of each machine.

    Examples
    --------
    >>> here, held = np.array([[True, True, False]]), np.array([2, 1, 1])
    >>> cyclic_rows(here, np.array([2.0]), np.array([60.0]), held)
    array([[80., 40.,  0.]])
    """
    loads = np.zeros(here.shape)
    known: dict[tuple[int, int, int], Counts] = {}
    counts = (here @ held).tolist()
    for at, (count, of, rows) in enumerate(zip(counts, copies, shard, strict=True)):
        if 0 < of <= count:
            key = count, int(of), int(rows)
            if key not in known:
                known[key] = cyclic_loads(*key)
            starts = np.cumsum(held[here[at]]) - held[here[at]]
            loads[at, here[at]] = np.add.reduceat(known[key], starts)
    return loads
