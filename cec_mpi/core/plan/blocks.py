"""A fast version of Algorithm 1, `core.paper.algorithm_1`, for loads in whole rows.

In floating point it would take residues of 1e-17 for rows that are left, and give some rows to the
wrong number of machines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import check_machines_per_row
from cec_mpi.errors import InputError
from cec_mpi.text import plural


def check_loads(loads: NDArray[np.generic], machines_per_row: int) -> None:
    """Raise unless blocks can meet these loads.

    That is (26), ``0 <= m <= sum(m) / machines_per_row``, where this is a whole number.

    Raises
    ------
    InputError
        They cannot.
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
            f"row on {plural(machines_per_row, 'machine')}: expected a multiple of "
            f"{machines_per_row} and at most 1/{machines_per_row} of it on one machine"
        )


def assign_blocks(
    loads: NDArray[np.generic], machines_per_row: int
) -> tuple[list[int], NDArray[np.int32]]:
    """Return the sizes alpha_f and the machines of the blocks of `core.paper.algorithm_1`.

    The machines with rows left are kept sorted as integers ``m * 2**bits + position``. In an
    iteration the last ``machines_per_row - 1`` of them all lose the same number of rows, so that
    only this tail must be merged again, by a stable sort.

    Parameters
    ----------
    loads : (N_t,) ndarray of whole numbers
        Loads that pass `check_loads`.
    machines_per_row : int
        Machines that compute each row.

    Returns
    -------
    sizes : list of int
    members : (F, machines_per_row) ndarray of int
        Positions of machines, from 0, ascending.

    Examples
    --------
    >>> assign_blocks(np.array([3, 2, 1]), 2)
    ([1, 2], array([[0, 2],
           [0, 1]], dtype=int32))
    """
    bits = len(loads).bit_length()
    left = int(loads.sum()) // machines_per_row  # L'/L
    wide = left.bit_length() + bits > 62
    keys = (loads.astype(object) if wide else loads.astype(np.int64)) * (1 << bits)
    keys = np.sort(keys + np.arange(len(loads)))
    one_row, mask = 1 << bits, (1 << bits) - 1
    keys = keys[keys.searchsorted(one_row) :]
    sizes: list[int] = []
    members = np.empty((len(loads), machines_per_row), dtype=np.int32)  # F <= N_t
    while keys.size:
        top = keys.size - machines_per_row + 1
        first, most = keys.item(0), keys[top:]
        alpha = first >> bits
        if top > 1:
            beyond = keys.item(top - 1)
            alpha = min(alpha, left - (beyond >> bits))
        chosen = members[len(sizes)]
        chosen[0] = first & mask
        chosen[1:] = most & mask
        sizes.append(alpha)
        left -= alpha
        rows = alpha << bits
        keys[0] = first - rows
        most -= rows
        if top > 1 and machines_per_row > 1 and keys.item(top) < beyond:
            keys[keys[:top].searchsorted(most[0]) :].sort(kind="stable")
        if keys.item(0) < one_row:
            keys = keys[keys.searchsorted(one_row) :]
    members = members[: len(sizes)]
    members.sort(axis=1)
    return sizes, members
