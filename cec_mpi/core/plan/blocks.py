"""A fast version of Algorithm 1, `core.paper.algorithm_1`, for loads in whole rows.

Loads are integers because Algorithm 1 fails in floating point: rounding errors of 1e-17 would count
as remaining rows, and some rows would get the wrong number of machines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import check_machines_per_row
from cec_mpi.errors import InputError
from cec_mpi.text import plural


def check_loads(loads: NDArray[np.generic], machines_per_row: int) -> None:
    """Raise unless an assignment with these loads exists.

    It exists if ``loads.sum() / machines_per_row`` is a positive integer, and all loads are from 0
    to this integer (26).

    Raises
    ------
    InputError
        No assignment has these loads, or `machines_per_row` is less than 1.
    InfeasibleError
        There are fewer than `machines_per_row` loads.
    """
    check_machines_per_row(len(loads), machines_per_row)
    total, largest, smallest = int(loads.sum()), int(loads.max()), int(loads.min())
    if (
        smallest < 0
        or total < machines_per_row
        or total % machines_per_row
        or largest * machines_per_row > total
    ):
        raise InputError(
            f"loads of {smallest} to {largest} rows with sum {total} cannot be met with each "
            f"row on {plural(machines_per_row, 'machine')}: expected their sum to be a positive "
            f"multiple of {machines_per_row}, and each load from 0 to 1/{machines_per_row} of the "
            "sum"
        )


def assign_blocks(
    loads: NDArray[np.generic], machines_per_row: int
) -> tuple[list[int], NDArray[np.int32]]:
    """Return the sizes alpha_f and the machines of the blocks of `core.paper.algorithm_1`.

    Machines with remaining rows are kept sorted, as integer keys ``m * 2**bits + position``. An
    iteration subtracts the same number of rows from the last ``machines_per_row - 1`` keys, so only
    this tail must be merged again, by a stable sort.

    Parameters
    ----------
    loads : (N_t,) ndarray of int
        Loads that pass `check_loads`.
    machines_per_row : int
        Number of machines that compute each row.

    Returns
    -------
    sizes : list of int
    members : (F, machines_per_row) ndarray of int
        Positions of the machines in `loads`, counted from 0, ascending.

    Examples
    --------
    >>> assign_blocks(np.array([3, 2, 1]), 2)
    ([1, 2], array([[0, 2],
           [0, 1]], dtype=int32))
    """
    position_bits = len(loads).bit_length()
    remaining_rows = int(loads.sum()) // machines_per_row  # L'/L
    overflows = remaining_rows.bit_length() + position_bits > 62
    keys = (loads.astype(object) if overflows else loads.astype(np.int64)) * (1 << position_bits)
    keys = np.sort(keys + np.arange(len(loads)))
    one_row, position_mask = 1 << position_bits, (1 << position_bits) - 1
    keys = keys[keys.searchsorted(one_row) :]
    sizes: list[int] = []
    members = np.empty((len(loads), machines_per_row), dtype=np.int32)  # F <= N_t
    while keys.size:
        tail_start = keys.size - machines_per_row + 1
        smallest, tail = keys.item(0), keys[tail_start:]
        alpha = smallest >> position_bits
        if tail_start > 1:
            next_largest = keys.item(tail_start - 1)
            alpha = min(alpha, remaining_rows - (next_largest >> position_bits))
        chosen = members[len(sizes)]
        chosen[0] = smallest & position_mask
        chosen[1:] = tail & position_mask
        sizes.append(alpha)
        remaining_rows -= alpha
        decrement = alpha << position_bits
        keys[0] = smallest - decrement
        tail -= decrement
        if tail_start > 1 and machines_per_row > 1 and keys.item(tail_start) < next_largest:
            keys[keys[:tail_start].searchsorted(tail[0]) :].sort(kind="stable")
        if keys.item(0) < one_row:
            keys = keys[keys.searchsorted(one_row) :]
    members = members[: len(sizes)]
    members.sort(axis=1)
    return sizes, members
