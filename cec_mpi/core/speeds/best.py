"""The best loads of machines whose speeds, overheads and numbers of shards are known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Ints

Floats = NDArray[np.float64]


def optimum(
    speeds: Floats, overheads: Floats, copies: int, rows: int, shards: Ints | None = None
) -> tuple[float, Floats]:
    """The least makespan with overheads, and its loads, in fractions of rows.

    The time T at which ``sum(clip(speeds * T - overheads, 0, shards * rows)) == copies * rows``.
    Without overheads, with one shard each, this is Theorem 1: ``T = c* rows``.

    Parameters
    ----------
    speeds, overheads : (n,) ndarray
        The latter in rows.
    copies : int
        Shards that compute each row.
    rows : int
        Rows per shard, R.
    shards : (n,) ndarray of int, optional
        Of each machine; by default each has one.

    Examples
    --------
    >>> time, loads = optimum(np.array([1.0, 3.0]), np.zeros(2), 2, 10, np.array([1, 2]))
    >>> time, loads.tolist()
    (5.0, [5.0, 15.0])
    """
    held = speeds.size if shards is None else int(shards.sum())
    most = float(rows) if shards is None else shards * float(rows)
    if held == copies:
        return float(np.max((overheads + most) / speeds)), most + np.zeros(speeds.size)
    # The sum grows along straight lines between the times at which machines begin and end.
    times = np.concatenate((overheads, overheads + most)) / np.concatenate((speeds, speeds))
    order = times.argsort()
    times = times[order]
    slopes = np.concatenate((speeds, -speeds))[order].cumsum()[:-1]
    done = (slopes * (times[1:] - times[:-1])).cumsum()
    line = int(done[:-1].searchsorted(copies * rows))
    before = done[line - 1] if line else 0.0
    finish = float(times[line] + (copies * rows - before) / slopes[line])
    return finish, np.minimum(np.maximum(speeds * finish - overheads, 0.0), most)
