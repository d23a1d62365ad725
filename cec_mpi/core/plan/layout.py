"""Where the blocks of an assignment lie along the rows.

A machine whose blocks lie side by side computes one interval instead of several. With
the blocks in some order there are ``copies + sum |P_next - P_previous|`` intervals in
all, so neighbours should share machines: a shortest path through the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import pieces

# A path through F blocks costs F**2; beyond this many, sorting has to do.
_LARGEST_PATH = 256
# Multiplications to have all pairs of blocks compared at once, and those of one product: up to
# here BLAS makes it in one thread, while others would take longer to begin than to end.
_LARGEST_PRODUCT, _IN_ONE_THREAD = 1 << 21, 1 << 18
_SORTED_COLUMNS = 8


def order_along_rows(machines: NDArray[np.int32], available: Sequence[int]) -> NDArray[np.intp]:
    """An order of the blocks in which neighbours share many machines.

    Parameters
    ----------
    machines : (F, copies) ndarray of int
        The machines of each block, ascending.
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending.

    Returns
    -------
    (F,) ndarray of int
        Indices of the blocks, from the first rows to the last.

    Examples
    --------
    >>> order_along_rows(np.array([[1, 2], [3, 4], [2, 3]], dtype=np.int32), (1, 2, 3, 4))
    array([0, 2, 1])
    """
    if len(machines) > _LARGEST_PATH:
        return _sorted(machines)
    member = np.zeros((len(machines), -(-len(available) // 64) * 64), dtype=bool)
    np.put_along_axis(member, np.searchsorted(available, machines), True, axis=1)
    return _path(member)


def _path(member: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Start at the first block and go on to the block left that shares most machines."""
    order = np.zeros(len(member), dtype=np.intp)
    if len(member) * member.size <= _LARGEST_PRODUCT:
        numbers = member.astype(np.float32)
        rows = max(1, _IN_ONE_THREAD // member.size)
        some = (numbers[first : first + rows] for first in range(0, len(numbers), rows))
        shared = np.concatenate([each @ numbers.T for each in some])  # whole numbers, exactly
        for step in range(1, len(member)):
            last = order[step - 1]
            shared[:, last] = -1
            order[step] = shared[last].argmax()
        return order
    bits = np.packbits(member, axis=1).view(np.uint64)
    left = np.ones(len(member), dtype=bool)
    for step in range(1, len(member)):
        last = order[step - 1]
        left[last] = False
        in_common = np.bitwise_count(bits & bits[last]).sum(axis=1, dtype=np.int64)
        order[step] = np.where(left, in_common, -1).argmax()
    return order


def _sorted(machines: NDArray[np.int32]) -> NDArray[np.intp]:
    """Blocks by their machines, those machines first that are in most blocks."""
    last = int(machines.max())
    often = np.zeros(last + 1, dtype=np.int64)
    for some in pieces(machines):
        often += np.bincount(some.ravel(), minlength=last + 1)
    rank = np.empty(last + 1, dtype=np.min_scalar_type(last))  # the shorter, the sooner sorted
    rank[np.argsort(-often, kind="stable")] = np.arange(last + 1)
    columns = min(_SORTED_COLUMNS, machines.shape[1])
    leading = []
    for some in pieces(machines):
        ranks = rank.take(some)
        ranks.partition(columns - 1, axis=1)
        leading.append(np.sort(ranks[:, :columns], axis=1))
    return np.lexsort(np.concatenate(leading).T[::-1])
