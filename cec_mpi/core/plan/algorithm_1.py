"""Algorithm 1: which machines compute which rows, given the load of each machine.

It works on whole numbers only: rows, or equal parts of a shard. In floating point it would take
residues of 1e-17 for rows that are left, and give some rows to the wrong number of machines.
`algorithm_1` follows the paper line by line and reports each iteration; `fill` finds the same
blocks faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from numbers import Rational
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import check_copies
from cec_mpi.errors import InputError
from cec_mpi.text import plural


class Iteration(NamedTuple):
    """One iteration of Algorithm 1; machines are positions, from 0.

    Attributes
    ----------
    loads : tuple of int
        m: the load of each machine that is not assigned yet, before this iteration.
    total : int
        L': the sum of these loads.
    machines : tuple of int
        P_f, ascending.
    smallest : int
        The machine with the smallest load left, l[1]: the block cannot be larger than its load.
    next_largest : int or None
        l[N' - L + 1], the machine with the largest load left that is not in P_f. If the block were
        larger than ``L'/L - m[next_largest]``, this machine would have a larger load than the rows
        that are left. None if N' = L.
    alpha : int
        alpha_f.
    """

    loads: tuple[int, ...]
    total: int
    machines: tuple[int, ...]
    smallest: int
    next_largest: int | None
    alpha: int


def algorithm_1(mu: Sequence[int], copies: int) -> list[Iteration]:
    """Run Algorithm 1 as the paper prints it.

    Parameters
    ----------
    mu : (N_t,) sequence of int
        Loads whose sum is a multiple of `copies`, none above 1/copies of it (26).
    copies : int
        Machines that compute each row, L.

    Returns
    -------
    list of Iteration
        F <= N_t iterations. Each uses up the load of a machine, or puts a machine into all further
        blocks.

    Raises
    ------
    InputError
        No blocks can meet these loads.

    Examples
    --------
    The paper's example with t = 2, in fifths of a shard:

    >>> for each in algorithm_1([2, 2, 3, 4, 4], 3):
    ...     print(each.alpha, each.machines, each.loads, each.total)
    2 (0, 3, 4) (2, 2, 3, 4, 4) 15
    1 (1, 2, 4) (0, 2, 3, 2, 2) 9
    1 (1, 2, 3) (0, 1, 2, 2, 1) 6
    1 (2, 3, 4) (0, 0, 1, 1, 1) 3
    """
    check_fillable(np.array(mu, dtype=object), copies)
    m, L = list(mu), copies
    found = []
    while any(m):
        total = sum(m)  # L'
        # Indices of non-zero elements of m from smallest to largest; equal ones as they come.
        ell = sorted((n for n in range(len(m)) if m[n]), key=lambda n: m[n])
        count = len(ell)  # N'
        P = [ell[0], *ell[count - L + 1 :]]
        if count >= L + 1:
            beyond = ell[count - L]
            alpha = min(total // L - m[beyond], m[ell[0]])
        else:
            beyond = None
            alpha = m[ell[0]]
        found.append(Iteration(tuple(m), total, tuple(sorted(P)), ell[0], beyond, alpha))
        for n in P:
            m[n] -= alpha
    return found


def check_fillable(loads: NDArray[np.generic], copies: int) -> None:
    """Raise unless blocks can meet these loads: ``0 <= m <= sum(m) / copies`` (26), a whole number.

    Raises
    ------
    InputError
        They cannot.
    InfeasibleError
        There are fewer than `copies` loads.
    """
    check_copies(len(loads), copies)
    total, largest, smallest = int(loads.sum()), int(loads.max()), int(loads.min())
    if smallest < 0 or total < copies or total % copies or largest * copies > total:
        raise InputError(
            f"loads of {smallest} to {largest} rows with sum {total} cannot be met with each "
            f"row on {plural(copies, 'machine')}: expected a multiple of {copies} and at most "
            f"1/{copies} of it on one machine"
        )


def fill(loads: NDArray[np.generic], copies: int) -> tuple[list[int], NDArray[np.int32]]:
    """Find the alpha_f, and the positions of each P_f (ascending), f = 1..F, of `algorithm_1`.

    The machines with rows left are kept sorted as integers ``m * 2**bits + position``. In an
    iteration the last ``copies - 1`` of them all lose the same number of rows, so that only this
    tail must be merged again, by a stable sort.

    Parameters
    ----------
    loads : (N_t,) ndarray of whole numbers
        Loads that pass `check_fillable`.
    copies : int
        Machines that compute each row.

    Examples
    --------
    >>> fill(np.array([3, 2, 1]), 2)
    ([1, 2], array([[0, 2],
           [0, 1]], dtype=int32))
    """
    bits = len(loads).bit_length()
    left = int(loads.sum()) // copies  # L'/L
    wide = left.bit_length() + bits > 62
    keys = (loads.astype(object) if wide else loads.astype(np.int64)) * (1 << bits)
    keys = np.sort(keys + np.arange(len(loads)))
    one_row, mask = 1 << bits, (1 << bits) - 1
    keys = keys[keys.searchsorted(one_row) :]
    sizes: list[int] = []
    members = np.empty((len(loads), copies), dtype=np.int32)  # F <= N_t
    while keys.size:
        top = keys.size - copies + 1
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
        if top > 1 and copies > 1 and keys.item(top) < beyond:
            keys[keys[:top].searchsorted(most[0]) :].sort(kind="stable")
        if keys.item(0) < one_row:
            keys = keys[keys.searchsorted(one_row) :]
    members = members[: len(sizes)]
    members.sort(axis=1)
    return sizes, members


def fractional_blocks(
    mu: Sequence[Fraction], copies: int
) -> list[tuple[Fraction, tuple[int, ...]]]:
    """Run Algorithm 1 on fractions of a shard.

    Parameters
    ----------
    mu : (N_t,) sequence of Fraction
        Load vector with ``sum(mu) == copies`` and ``0 <= mu <= 1``.
    copies : int
        Machines that compute each row.

    Returns
    -------
    list of (Fraction, tuple of int)
        ``alpha_f`` and the positions (from 0, ascending) of the machines of P_f.

    Raises
    ------
    InputError
        `mu` has other values.
    InfeasibleError
        There are fewer than `copies` loads.

    Examples
    --------
    >>> from cec_mpi.core.plan.load import fractional_load
    >>> for alpha, machines in fractional_blocks(fractional_load([2, 2, 3, 4], 3).mu, 3):
    ...     print(alpha, machines)
    3/7 (0, 2, 3)
    1/7 (0, 1, 3)
    3/7 (1, 2, 3)
    """
    if not all(isinstance(part, Rational) for part in mu):
        raise InputError("loads must be whole numbers or Fractions")
    check_copies(len(mu), copies)
    if sum(mu) != copies or not 0 <= min(mu) <= max(mu) <= 1:
        raise InputError(
            f"loads of {min(mu)} to {max(mu)} with sum {sum(mu)} cannot be met: expected a sum of "
            f"{copies} and at most 1 on one machine"
        )
    loads, parts = in_parts([Fraction(part) for part in mu])
    sizes, members = fill(np.array(loads, dtype=object), copies)
    return [
        (Fraction(alpha, parts), tuple(machines))
        for alpha, machines in zip(sizes, members.tolist(), strict=True)
    ]


def in_parts(mu: Sequence[Fraction]) -> tuple[list[int], int]:
    """Return fractions of a shard as whole numbers of equal parts, and the number of parts.

    Examples
    --------
    >>> in_parts([Fraction(1, 2), Fraction(2, 3)])
    ([3, 4], 6)
    """
    parts = lcm(*(fraction.denominator for fraction in mu))
    return [int(fraction * parts) for fraction in mu], parts
