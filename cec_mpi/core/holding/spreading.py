"""The rows of a machine spread over its shards, and Algorithm 1 over shards."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.holding.holding import Held
from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.plan.filling import check_fillable, fill
from cec_mpi.core.plan.layout import order_along_rows

Ints = NDArray[np.int64]


def full_first(loads: Ints, held: Held, rows: int) -> Ints:
    """Rows of each shard: of each machine's first ones all, and of the next what is left.

    Parameters
    ----------
    loads : (M,) ndarray of int64
        Rows that each machine computes: at most `rows` for each of its shards.
    held : Held
        Their K shards.
    rows : int
        Rows of a shard that there are to compute.

    Returns
    -------
    (K,) ndarray of int64

    Examples
    --------
    >>> from cec_mpi.core.holding.holding import Holding
    >>> held = Holding.consecutive([1, 4]).among((1, 2))
    >>> full_first(np.array([3, 25]), held, 10)
    array([ 3, 10, 10,  5,  0])
    """
    return (loads[held.machines] - held.places * rows).clip(0, rows)


def over_shards(shards: Ints, loads: Ints, copies: int, rows: int) -> Assignment:
    """Algorithm 1 over shards: every row on exactly `copies` of them, and each load met.

    Parameters
    ----------
    shards : (K,) ndarray of int64
        Numbers of the shards that available machines hold, all different.
    loads : (K,) ndarray of int64
        Rows of each that are computed: at most `rows`, in all ``copies * rows``.
    copies : int
        Shards that each row needs.
    rows : int
        Rows that there are to compute.

    Returns
    -------
    Assignment
        Whose machines are the shards that have rows: at most as many blocks as shards of which
        some and not all rows are computed (one, where there are none).

    Raises
    ------
    InputError
        No assignment can meet these loads.

    Notes
    -----
    A shard of which all rows are computed is in every block, and Algorithm 1 would choose it each
    time, since nothing has more rows left. So it runs over the others, which makes it as fast for
    machines with many shards as for as many machines with one.

    Examples
    --------
    >>> for block in over_shards(np.arange(1, 5), np.array([6, 6, 4, 2]), 3, 6).blocks:
    ...     print(block.start, block.stop, block.machines)
    0 2 (1, 2, 4)
    2 6 (1, 2, 3)
    """
    check_fillable(loads, copies)
    ascending = shards.argsort()
    ascending = ascending[loads[ascending] > 0]
    names, counts = shards[ascending].astype(np.int32), loads[ascending]
    part = counts < rows
    full, some = names[~part], names[part]
    sizes, others = np.array([rows]), np.empty((1, 0), dtype=np.int32)
    along = np.zeros(1, dtype=np.intp)
    if some.size:
        found, members = fill(counts[part], copies - full.size)
        sizes, others = np.array(found, dtype=np.int64), some[members]
        along = order_along_rows(others, some.tolist())
    stops = np.empty_like(sizes)
    stops[along] = np.cumsum(sizes[along])
    blocks = np.empty((len(sizes), copies), dtype=np.int32)
    blocks[:, : full.size], blocks[:, full.size :] = full, others
    blocks.sort(axis=1)
    blocks.flags.writeable = False
    return Assignment(names.tolist(), counts, stops - sizes, stops, blocks)
