"""The two schemes that assign rows: Algorithm 1 and the cyclic baseline, both in whole rows.

Blocks that share machines are laid side by side along the rows: then each machine has few
intervals. With the blocks in some order there are ``machines_per_row + sum |P_next - P_previous|``
intervals in all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.plan.assignment import Assignment, Ints, as_integers, check_available, pieces
from cec_mpi.core.plan.blocks import assign_blocks, check_loads
from cec_mpi.core.plan.load import check_machines_per_row, check_rows
from cec_mpi.errors import InputError
from cec_mpi.text import plural

# A path through F blocks costs F**2; more blocks than this are sorted.
_LARGEST_PATH = 256
# Multiplications to have all pairs of blocks compared at once, and those of one product: up to
# here BLAS makes it in one thread, while others would take longer to begin than to end.
_LARGEST_PRODUCT, _SINGLE_THREAD_SIZE = 1 << 21, 1 << 18
_SORTED_COLUMNS = 8


def heterogeneous(available: Sequence[int], loads: ArrayLike, machines_per_row: int) -> Assignment:
    """Run Algorithm 1 on whole rows, for any loads of at most R rows a machine.

    Each block goes to the machine with the fewest rows left and to the ``machines_per_row - 1``
    machines with the most rows left (ties: lower machine number counts as fewer).

    Parameters
    ----------
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending.
    loads : (N_t,) array_like of int
        Rows of each: ``loads.sum() == machines_per_row * R`` and ``loads <= R``.
    machines_per_row : int
        Machines that compute each row.

    Returns
    -------
    Assignment
        With at most N_t blocks.

    Raises
    ------
    InputError
        No assignment can meet these loads.

    Examples
    --------
    >>> [block.machines for block in heterogeneous((1, 2, 3), [3, 2, 1], 2).blocks]
    [(1, 3), (1, 2)]
    """
    loads = as_integers("loads", loads)
    check_machines_per_row(len(available), machines_per_row)
    names = check_available(available).astype(np.int32)
    if loads.shape != names.shape:
        raise InputError(
            f"{plural(loads.size, 'load')} for {plural(names.size, 'available machine')}"
        )
    check_loads(loads, machines_per_row)
    sizes, members = assign_blocks(loads, machines_per_row)
    for some in pieces(members):  # in their own place: these may be all there is room for
        some[:] = names[some]
    return _lay_out(available, loads, np.array(sizes), members)


def _lay_out(
    available: Sequence[int], loads: Ints, sizes: Ints, machines: NDArray[np.int32]
) -> Assignment:
    """Lay the blocks along the rows so that each machine has few intervals."""
    along = order_along_rows(machines, available)
    stops = np.empty_like(sizes)
    stops[along] = np.cumsum(sizes[along])
    for array in (machines, machines.base):  # so that the assignment need not copy it
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return Assignment(available, loads, stops - sizes, stops, machines)


def cyclic(available: Sequence[int], machines_per_row: int, rows: int) -> Assignment:
    """Return the assignment of Yang et al.: N_t equal blocks, block b on the machines from b on.

    Block boundaries at ``floor(b * rows / N_t)`` make the loads differ by at most one row.

    Parameters
    ----------
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending.
    machines_per_row : int
        Machines that compute each row.
    rows : int
        Rows per shard, R.

    Returns
    -------
    Assignment

    Examples
    --------
    >>> cyclic((1, 2, 5, 6), 2, 8).blocks[-1]
    Block(start=6, stop=8, machines=(1, 6))
    """
    count = len(available)
    check_machines_per_row(count, machines_per_row)
    check_rows(rows)
    bounds = _cyclic_bounds(count, rows)
    names = np.asarray(available, dtype=np.int32)
    machines = np.sort(
        names[(np.arange(count)[:, None] + np.arange(machines_per_row)) % count], axis=1
    )
    kept = np.diff(bounds) > 0
    loads = cyclic_loads(count, machines_per_row, rows)
    return Assignment(available, loads, bounds[:-1][kept], bounds[1:][kept], machines[kept])


def cyclic_loads(count: int, machines_per_row: int, rows: int) -> Ints:
    """Return the rows of each of `count` available machines in the assignment of `cyclic`.

    Examples
    --------
    >>> cyclic_loads(4, 3, 10)
    array([7, 8, 7, 8])
    """
    sizes = np.diff(_cyclic_bounds(count, rows))
    sums = np.cumsum(np.concatenate(([0], sizes, sizes)))
    ends = np.arange(count, 2 * count) + 1  # position p has the blocks p-machines_per_row+1 .. p
    return sums[ends] - sums[ends - machines_per_row]  # type: ignore[no-any-return]


def _cyclic_bounds(count: int, rows: int) -> Ints:
    return np.arange(count + 1, dtype=np.int64) * rows // count


def order_along_rows(machines: NDArray[np.int32], available: Sequence[int]) -> NDArray[np.intp]:
    """Return an order of the blocks in which neighbours share many machines.

    Parameters
    ----------
    machines : (F, machines_per_row) ndarray of int
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
        return _sort_blocks(machines)
    member = np.zeros((len(machines), -(-len(available) // 64) * 64), dtype=bool)
    np.put_along_axis(member, np.searchsorted(available, machines), True, axis=1)
    return _greedy_path(member)


def _greedy_path(member: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Start at the first block, and go to the block left that shares most machines."""
    order = np.zeros(len(member), dtype=np.intp)
    if len(member) * member.size <= _LARGEST_PRODUCT:
        numbers = member.astype(np.float32)
        rows = max(1, _SINGLE_THREAD_SIZE // member.size)
        some = (numbers[first : first + rows] for first in range(0, len(numbers), rows))
        shared = np.concatenate([part @ numbers.T for part in some])  # whole numbers, exactly
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
        shared_count = np.bitwise_count(bits & bits[last]).sum(axis=1, dtype=np.int64)
        order[step] = np.where(left, shared_count, -1).argmax()
    return order


def _sort_blocks(machines: NDArray[np.int32]) -> NDArray[np.intp]:
    """Sort blocks by their machines; machines that are in most blocks count first."""
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
