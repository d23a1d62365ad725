"""The two assignment schemes: Algorithm 1 and the cyclic baseline, both in whole rows.

Blocks are ordered so that neighbours share machines, because then each machine has few intervals:
all machines together have ``machines_per_row + sum |P_f - P_(f-1)|`` intervals, where P_f is the
set of machines of block f, and the sum is over f = 2..F.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.plan.assignment import Assignment, Ints, as_integers, check_available, row_batches
from cec_mpi.core.plan.blocks import assign_blocks, check_loads
from cec_mpi.core.plan.load import check_machines_per_row, check_rows
from cec_mpi.errors import InputError
from cec_mpi.text import plural

_MAX_PATH_BLOCKS = 256  # the greedy order takes time F**2; more blocks are sorted
_MAX_PRODUCT_SIZE = 1 << 21  # multiplications up to which BLAS compares all pairs of blocks
_MAX_SINGLE_THREAD_SIZE = 1 << 18  # multiplications; for more, BLAS would start threads
_SORT_KEYS = 8  # machines of each block by which blocks are sorted


def assign_loads(available: Sequence[int], loads: ArrayLike, machines_per_row: int) -> Assignment:
    """Return the assignment of Algorithm 1 for loads in whole rows.

    Each block goes to the machine with the fewest remaining rows and to the
    ``machines_per_row - 1`` machines with the most. Of two machines with equally many rows, the one
    with the lower number counts as the one with fewer.

    Parameters
    ----------
    available : (N_t,) sequence of int
        The available machines, ascending.
    loads : (N_t,) array_like of int
        Rows of each machine: ``loads.sum() == machines_per_row * R`` and ``loads <= R``.
    machines_per_row : int
        Number of machines that compute each row.

    Returns
    -------
    Assignment
        With at most N_t blocks.

    Raises
    ------
    InputError
        No assignment has these loads.

    Examples
    --------
    >>> [block.machines for block in assign_loads((1, 2, 3), [3, 2, 1], 2).blocks]
    [(1, 3), (1, 2)]
    """
    loads = as_integers("loads", loads)
    check_machines_per_row(len(available), machines_per_row)
    machine_numbers = check_available(available).astype(np.int32)
    if loads.shape != machine_numbers.shape:
        raise InputError(
            f"{plural(loads.size, 'load')} for {plural(machine_numbers.size, 'available machine')}"
        )
    check_loads(loads, machines_per_row)
    sizes, machines = assign_blocks(loads, machines_per_row)
    for batch in row_batches(machines):  # in place, because a second array may not fit in memory
        batch[:] = machine_numbers[batch]
    order, block_sizes = order_blocks(machines, available), np.array(sizes)
    stops = np.empty_like(block_sizes)
    stops[order] = np.cumsum(block_sizes[order])
    for array in (machines, machines.base):  # Assignment does not copy read-only arrays
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return Assignment(available, loads, stops - block_sizes, stops, machines)


def assign_cyclically(available: Sequence[int], machines_per_row: int, rows: int) -> Assignment:
    """Return the cyclic assignment of Yang et al.: N_t equal blocks, block b on machines b, b+1, ..

    Block boundaries are at ``floor(b * rows / N_t)``, so the loads differ by at most one row.

    Parameters
    ----------
    available : (N_t,) sequence of int
        The available machines, ascending.
    machines_per_row : int
        Number of machines that compute each row.
    rows : int
        Rows per shard, R.

    Returns
    -------
    Assignment

    Examples
    --------
    >>> assign_cyclically((1, 2, 5, 6), 2, 8).blocks[-1]
    Block(start=6, stop=8, machines=(1, 6))
    """
    count = len(available)
    check_machines_per_row(count, machines_per_row)
    check_rows(rows)
    bounds = _cyclic_bounds(count, rows)
    machine_numbers = np.asarray(available, dtype=np.int32)
    machines = np.sort(
        machine_numbers[(np.arange(count)[:, None] + np.arange(machines_per_row)) % count], axis=1
    )
    is_nonempty = np.diff(bounds) > 0
    starts, stops = bounds[:-1][is_nonempty], bounds[1:][is_nonempty]
    loads = cyclic_loads(count, machines_per_row, rows)
    return Assignment(available, loads, starts, stops, machines[is_nonempty])


def cyclic_loads(count: int, machines_per_row: int, rows: int) -> Ints:
    """Return the loads of `assign_cyclically` for `count` available machines.

    Examples
    --------
    >>> cyclic_loads(4, 3, 10)
    array([7, 8, 7, 8])
    """
    sizes = np.diff(_cyclic_bounds(count, rows))
    sums = np.cumsum(np.concatenate(([0], sizes, sizes)))
    ends = np.arange(count, 2 * count) + 1  # machine p has the blocks p - machines_per_row + 1 .. p
    return sums[ends] - sums[ends - machines_per_row]  # type: ignore[no-any-return]


def _cyclic_bounds(count: int, rows: int) -> Ints:
    return np.arange(count + 1, dtype=np.int64) * rows // count


def order_blocks(machines: NDArray[np.int32], available: Sequence[int]) -> NDArray[np.intp]:
    """Return an order of the blocks in which neighbours share many machines.

    Parameters
    ----------
    machines : (F, machines_per_row) ndarray of int
        The machines of each block, ascending.
    available : (N_t,) sequence of int
        The available machines, ascending.

    Returns
    -------
    (F,) ndarray of int
        Indices of the blocks.

    Examples
    --------
    >>> order_blocks(np.array([[1, 2], [3, 4], [2, 3]], dtype=np.int32), (1, 2, 3, 4))
    array([0, 2, 1])
    """
    if len(machines) > _MAX_PATH_BLOCKS:
        return _sort_blocks(machines)
    membership = np.zeros((len(machines), -(-len(available) // 64) * 64), dtype=bool)
    np.put_along_axis(membership, np.searchsorted(available, machines), True, axis=1)
    return _greedy_path(membership)


def _greedy_path(membership: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return a greedy order: each block is followed by the one that shares the most machines."""
    order = np.zeros(len(membership), dtype=np.intp)
    if len(membership) * membership.size <= _MAX_PRODUCT_SIZE:
        indicator = membership.astype(np.float32)
        rows = max(1, _MAX_SINGLE_THREAD_SIZE // membership.size)
        batches = (indicator[first : first + rows] for first in range(0, len(indicator), rows))
        shared_counts = np.concatenate([batch @ indicator.T for batch in batches])  # exact integers
        for step in range(1, len(membership)):
            last = order[step - 1]
            shared_counts[:, last] = -1
            order[step] = shared_counts[last].argmax()
        return order
    bits = np.packbits(membership, axis=1).view(np.uint64)
    is_remaining = np.ones(len(membership), dtype=bool)
    for step in range(1, len(membership)):
        last = order[step - 1]
        is_remaining[last] = False
        shared_counts = np.bitwise_count(bits & bits[last]).sum(axis=1, dtype=np.int64)
        order[step] = np.where(is_remaining, shared_counts, -1).argmax()
    return order


def _sort_blocks(machines: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the lexicographic order of the blocks, comparing most frequent machines first."""
    largest = int(machines.max())
    frequency = np.zeros(largest + 1, dtype=np.int64)
    for batch in row_batches(machines):
        frequency += np.bincount(batch.ravel(), minlength=largest + 1)
    rank = np.empty(largest + 1, dtype=np.min_scalar_type(largest))  # small dtypes sort faster
    rank[np.argsort(-frequency, kind="stable")] = np.arange(largest + 1)
    columns = min(_SORT_KEYS, machines.shape[1])
    leading_ranks = []
    for batch in row_batches(machines):
        ranks = rank.take(batch)
        ranks.partition(columns - 1, axis=1)
        leading_ranks.append(np.sort(ranks[:, :columns], axis=1))
    return np.lexsort(np.concatenate(leading_ranks).T[::-1])
