"""Algorithm 1: loads filled up block by block, and what it looked at in each iteration.

It works on whole numbers only: in floating point it takes residues of 1e-17 for rows that
are left, and then no longer gives every row to the right number of machines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import check_copies
from cec_mpi.errors import InputError
from cec_mpi.text import plural

_LISTED_COPIES, _LISTED = 32, 2000  # up to so many machines lists take less than arrays
_MANY = 1500  # machines of which some are marked in less time than these are sorted


class Look(NamedTuple):
    """What one iteration looked at, by positions: of the smallest load, and of the next largest.

    ``next_largest`` is that of the largest load which gets nothing in this iteration, or
    None where as many machines are left as each row needs.
    """

    smallest: int
    next_largest: int | None


@dataclass(frozen=True)
class Iteration:
    """One iteration of Algorithm 1; loads in rows, or in fractions of a shard.

    Attributes
    ----------
    loads : tuple of int or Fraction
        m: what each available machine still has to be given, before this iteration.
    total : int or Fraction
        L': their sum.
    machines : tuple of int
        P_f, ascending.
    smallest : int
        The machine with the smallest load left, l[1].
    load : int or Fraction
        ``m[l[1]]``: the block cannot be larger.
    next_largest : int or None
        The machine with the largest load left that is not in P_f; None where there is none.
    room : int or Fraction or None
        ``L'/L - m[next_largest]``: with a larger block that machine would have more left
        than there will be rows.
    alpha : int or Fraction
        alpha_f: the smaller one of these two bounds.
    """

    loads: tuple[int, ...] | tuple[Fraction, ...]
    total: int | Fraction
    machines: tuple[int, ...]
    smallest: int
    load: int | Fraction
    next_largest: int | None
    room: int | Fraction | None
    alpha: int | Fraction


def check_fillable(loads: NDArray[np.generic], copies: int) -> None:
    """The condition of the filling problem: sum = copies * R and 0 <= m <= R."""
    check_copies(len(loads), copies)
    total, largest, smallest = int(loads.sum()), int(loads.max()), int(loads.min())
    if smallest < 0 or total < copies or total % copies or largest * copies > total:
        raise InputError(
            f"loads of {smallest} to {largest} rows with sum {total} cannot be met with each "
            f"row on {plural(copies, 'machine')}: expected a multiple of {copies} and at most "
            f"1/{copies} of it on one machine"
        )


def fill(
    loads: NDArray[np.generic], copies: int, looks: list[Look] | None = None
) -> tuple[list[int], NDArray[np.int32]]:
    """Algorithm 1: the alpha_f, and the positions of each P_f (ascending), f = 1..F.

    The machines with rows left stay sorted as integers ``m * 2**bits + position``. In an
    iteration the last ``copies - 1`` of them all lose the same number of rows, so that
    only this tail has to be merged again: stable sorting finds the two sorted runs.

    Parameters
    ----------
    loads : (N_t,) ndarray of whole numbers
        As `check_fillable` wants them.
    copies : int
        Machines that compute each row.
    looks : list, optional
        Gets what each iteration looked at.

    Examples
    --------
    >>> looks = []
    >>> fill(np.array([3, 2, 1]), 2, looks)
    ([1, 2], array([[0, 2],
           [0, 1]], dtype=int32))
    >>> looks
    [Look(smallest=2, next_largest=1), Look(smallest=0, next_largest=None)]
    """
    if copies <= _LISTED_COPIES and len(loads) <= _LISTED:
        return _filled_lists(loads, copies, looks)
    return _filled_arrays(loads, copies, looks)


def _filled_lists(
    loads: NDArray[np.generic], copies: int, looks: list[Look] | None
) -> tuple[list[int], NDArray[np.int32]]:
    """`fill` with lists: of few machines, these take less time than arrays."""
    bits = len(loads).bit_length()
    left = int(loads.sum()) // copies
    one_row, mask = 1 << bits, (1 << bits) - 1
    keys = sorted(load * one_row + n for n, load in enumerate(loads.tolist()) if load)
    sizes, members = [], []
    while keys:
        top = len(keys) - copies + 1
        first, most = keys[0], keys[top:]
        alpha, beyond = first >> bits, keys[top - 1]
        if top > 1:
            alpha = min(alpha, left - (beyond >> bits))
        if looks is not None:
            looks.append(Look(first & mask, beyond & mask if top > 1 else None))
        members.append([first & mask, *[key & mask for key in most]])
        sizes.append(alpha)
        left -= alpha
        rows = alpha << bits
        keys[0] = first - rows
        keys[top:] = [key - rows for key in most]
        if top > 1 and copies > 1 and keys[top] < beyond:
            keys.sort()
        if keys[0] < one_row:
            del keys[: bisect_left(keys, one_row)]
    found = np.array(members, dtype=np.int32)
    found.sort(axis=1)
    return sizes, found


def _filled_arrays(
    loads: NDArray[np.generic], copies: int, looks: list[Look] | None
) -> tuple[list[int], NDArray[np.int32]]:
    """`fill` with arrays."""
    bits = len(loads).bit_length()
    left = int(loads.sum()) // copies
    wide = left.bit_length() + bits > 62
    keys = (loads.astype(object) if wide else loads.astype(np.int64)) * (1 << bits)
    keys = np.sort(keys + np.arange(len(loads)))
    one_row, mask = 1 << bits, (1 << bits) - 1
    keys = keys[keys.searchsorted(one_row) :]
    sizes: list[int] = []
    members = np.empty((len(loads), copies), dtype=np.int32)  # F <= N_t
    many = copies >= _MANY
    member = np.zeros(len(loads) if many else 0, dtype=bool)
    while keys.size:
        top = keys.size - copies + 1
        first, most = keys.item(0), keys[top:]
        alpha = first >> bits
        if top > 1:
            beyond = keys.item(top - 1)
            alpha = min(alpha, left - (beyond >> bits))
        if looks is not None:
            looks.append(Look(first & mask, beyond & mask if top > 1 else None))
        chosen = members[len(sizes)]
        if many:
            member.fill(False)
            member[first & mask] = True
            member[np.asarray(most & mask, dtype=np.intp)] = True
            chosen[:] = np.flatnonzero(member)
        else:
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
    if not many:
        members.sort(axis=1)
    return sizes, members


def whole(mu: Sequence[Fraction]) -> tuple[NDArray[np.object_], int]:
    """Fractions of a shard as whole numbers of its parts, and how many parts it has."""
    parts = lcm(*(fraction.denominator for fraction in mu))
    return np.array([int(fraction * parts) for fraction in mu], dtype=object), parts


def iterations(
    available: Sequence[int], loads: Sequence[int] | Sequence[Fraction], copies: int
) -> list[Iteration]:
    """What Algorithm 1 does with these loads, iteration by iteration (the paper's Figure 2).

    Parameters
    ----------
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending.
    loads : (N_t,) sequence of int or Fraction
        Rows of each, or the fraction of its shard.
    copies : int
        Machines that compute each row.

    Returns
    -------
    list of Iteration
        The same computation as the one behind an assignment of these loads.

    Raises
    ------
    InputError
        No assignment can meet these loads.

    Examples
    --------
    >>> for each in iterations((1, 2, 3, 5, 6), [168, 168, 252, 336, 336], 3):
    ...     print(each.alpha, each.machines, each.load, each.room, each.next_largest)
    168 (1, 5, 6) 168 168 3
    84 (2, 3, 6) 168 84 5
    84 (2, 3, 5) 84 84 6
    84 (3, 5, 6) 84 None None
    """
    exact = any(isinstance(load, Fraction) for load in loads)
    numbers, parts = whole([Fraction(load) for load in loads])
    check_fillable(numbers, copies)
    looks: list[Look] = []
    sizes, members = fill(numbers, copies, looks)

    def shown(number: int) -> int | Fraction:
        return Fraction(number, parts) if exact else number

    left = [int(number) for number in numbers]
    total = sum(left)
    found = []
    for alpha, chosen, look in zip(sizes, members.tolist(), looks, strict=True):
        beyond = look.next_largest
        found.append(
            Iteration(
                loads=tuple(shown(number) for number in left),  # type: ignore[arg-type]
                total=shown(total),
                machines=tuple(available[k] for k in chosen),
                smallest=available[look.smallest],
                load=shown(left[look.smallest]),
                next_largest=None if beyond is None else available[beyond],
                room=None if beyond is None else shown(total // copies - left[beyond]),
                alpha=shown(alpha),
            )
        )
        for k in chosen:
            left[k] -= alpha
        total -= copies * alpha
    return found
