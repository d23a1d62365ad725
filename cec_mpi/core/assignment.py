"""Which machines compute which rows: Algorithm 1 and the cyclic baseline.

Both work on whole rows only: in floating point Algorithm 1 takes residues of 1e-17 for
rows that are left, and then no longer gives every row to the right number of machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from numbers import Rational

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.load import check_copies, check_rows
from cec_mpi.core.placement import order_along_rows
from cec_mpi.errors import InputError

__all__ = ["Assignment", "Block", "cyclic", "fractional_blocks", "heterogeneous"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Rows ``start <= row < stop`` of every shard (M_f), computed by ``machines`` (P_f)."""

    start: int
    stop: int
    machines: tuple[int, ...]


class Assignment:
    """Every row of the shards, each on exactly ``copies`` machines.

    An assignment is a value: it never changes, equal assignments compare equal, and it
    can be a key of a dict. That it is what it says is checked once, here.

    Parameters
    ----------
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending, counted from 1.
    loads : (N_t,) array_like of int
        Rows that each of them computes.
    starts, stops : (F,) array_like of int
        Where each block lies along the rows.
    machines : (F, copies) array_like of int
        The machines of each block, ascending.

    Attributes
    ----------
    rows : int
        Rows per shard, R.
    copies : int
        Machines that compute each row.

    Raises
    ------
    InputError
        The blocks do not partition the rows, a block names a machine twice or one that
        is not available, there are more blocks than machines, or a load is not met.

    Examples
    --------
    >>> plan = heterogeneous((1, 2, 3, 5), [4, 4, 6, 7], 3)
    >>> for block in plan.blocks:
    ...     print(block.stop - block.start, block.machines)
    3 (1, 3, 5)
    1 (1, 2, 5)
    3 (2, 3, 5)
    >>> plan.count(5), plan.intervals(5)
    (7, ((0, 7),))
    """

    __slots__ = ("__dict__", "available", "copies", "loads", "machines", "rows", "starts", "stops")

    available: tuple[int, ...]
    loads: Ints
    starts: Ints
    stops: Ints
    machines: NDArray[np.int32]
    rows: int
    copies: int

    def __init__(
        self,
        available: Sequence[int],
        loads: ArrayLike,
        starts: ArrayLike,
        stops: ArrayLike,
        machines: ArrayLike,
    ) -> None:
        fields: dict[str, object] = {
            "available": tuple(int(n) for n in available),
            "loads": _frozen("loads", loads, np.int64),
            "starts": _frozen("starts", starts, np.int64),
            "stops": _frozen("stops", stops, np.int64),
            "machines": _frozen("machines", machines, np.int32),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        _check_shapes(self)
        object.__setattr__(self, "rows", int((self.stops - self.starts).sum()))
        object.__setattr__(self, "copies", int(self.machines.shape[1]))
        _check_rows(self)
        _check_machines(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an Assignment cannot be changed (tried to set {name!r})")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"an Assignment cannot be changed (tried to delete {name!r})")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Assignment):
            return NotImplemented
        return self is other or np.array_equal(self.to_array(), other.to_array())

    def __hash__(self) -> int:
        return hash(self.to_array().tobytes())

    def __repr__(self) -> str:
        return (
            f"<Assignment of {self.rows} rows to {len(self.available)} machines: "
            f"{len(self.starts)} blocks on {self.copies} machines each>"
        )

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in Algorithm 1's order, f = 1..F."""
        return tuple(
            Block(start, stop, tuple(machines))
            for start, stop, machines in zip(
                self.starts.tolist(), self.stops.tolist(), self.machines.tolist(), strict=True
            )
        )

    def count(self, machine: int) -> int:
        """Rows that machine number `machine` computes: 0 when it is preempted."""
        position = self._position.get(machine)
        return 0 if position is None else int(self.loads[position])

    def intervals(self, machine: int) -> tuple[tuple[int, int], ...]:
        """Row intervals ``(start, stop)`` of one machine, ascending and merged."""
        mine = np.flatnonzero((self.machines == machine).any(axis=1))
        mine = mine[np.argsort(self.starts[mine])]
        starts, stops = self.starts[mine], self.stops[mine]
        breaks = np.flatnonzero(starts[1:] != stops[:-1])
        firsts = starts[np.concatenate(([0], breaks + 1))] if mine.size else starts
        lasts = stops[np.concatenate((breaks, [mine.size - 1]))] if mine.size else stops
        return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))

    def counts(self, machines: int) -> Ints:
        """Rows of each of the machines 1..`machines`, 0 for the preempted: shape (machines,)."""
        counts = np.zeros(machines, dtype=np.int64)
        counts[np.asarray(self.available) - 1] = self.loads
        return counts

    @cached_property
    def positions(self) -> Ints:
        """Where the answers to each block lie when all answers stand one after the other.

        Machines come in ascending order and each machine's answers in the order of its
        rows, so ``positions[f, k]`` is the index of the answer of ``machines[f, k]`` to
        the first row of block f. Shape (F, copies).
        """
        along = np.argsort(self.starts, kind="stable")
        owners = self.machines[along].ravel()
        if self.available[-1] <= np.iinfo(np.uint16).max:
            owners = owners.astype(np.uint16)  # which NumPy sorts by radix, ten times as fast
        sizes = np.repeat((self.stops - self.starts)[along], self.copies)
        grouped = np.argsort(owners, kind="stable")
        ends = np.cumsum(sizes[grouped])
        flat = np.empty_like(ends)
        flat[grouped] = ends - sizes[grouped]
        positions = np.empty(self.machines.shape, dtype=np.int64)
        positions[along] = flat.reshape(self.machines.shape)
        positions.flags.writeable = False
        return positions

    @cached_property
    def _position(self) -> dict[int, int]:
        return {machine: index for index, machine in enumerate(self.available)}

    def to_array(self) -> Ints:
        """All of the assignment as one int64 array, for the wire."""
        head = [len(self.available), len(self.starts), self.copies]
        parts = (head, self.available, self.loads, self.starts, self.stops, self.machines.ravel())
        return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])

    @classmethod
    def from_array(cls, array: Ints) -> Assignment:
        """The assignment that `to_array` wrote, checked again."""
        if array.size < 3:
            raise InputError(f"an assignment of {array.size} numbers: expected at least 3")
        available, blocks, copies = array[:3].tolist()
        sizes = [available, available, blocks, blocks, blocks * copies]
        if array.size != 3 + sum(sizes):
            raise InputError(f"an assignment of {array.size} numbers: expected {3 + sum(sizes)}")
        parts = np.split(array[3:], np.cumsum(sizes)[:-1])
        machines, loads, starts, stops, members = parts
        return cls(machines.tolist(), loads, starts, stops, members.reshape(blocks, copies))


def _whole(name: str, values: ArrayLike) -> Ints:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} of an assignment are {array.dtype}: expected whole numbers")
    return array.astype(np.int64, copy=False)


def _frozen(
    name: str, values: ArrayLike, dtype: type[np.signedinteger]
) -> NDArray[np.signedinteger]:
    array = values if isinstance(values, np.ndarray) and values.dtype == dtype else None
    if array is None:
        array = _whole(name, values).astype(dtype, copy=False)
    if array.base is not None or (array is values and array.flags.writeable):
        array = array.copy()  # somebody may still change it
    array.flags.writeable = False
    return array


def _check_shapes(plan: Assignment) -> None:
    available = np.asarray(plan.available)
    if not len(available) or available[0] < 1 or (np.diff(available) <= 0).any():
        raise InputError(f"available machines {plan.available}: expected ascending numbers from 1")
    if plan.loads.shape != available.shape:
        raise InputError(f"{plan.loads.size} loads for {available.size} available machines")
    shape = (*plan.starts.shape, plan.machines.shape[-1] if plan.machines.ndim else 0)
    if plan.starts.ndim != 1 or plan.stops.shape != plan.starts.shape:
        raise InputError(f"{plan.starts.size} starts and {plan.stops.size} stops of blocks")
    if plan.machines.shape != shape or 0 in shape:
        raise InputError(f"machines of blocks have shape {plan.machines.shape}: expected {shape}")


def _check_rows(plan: Assignment) -> None:
    """The blocks partition the rows, and there are at most N_t of them."""
    along = np.argsort(plan.starts)
    starts, stops = plan.starts[along], plan.stops[along]
    if starts[0] != 0 or (starts[1:] != stops[:-1]).any() or (stops <= starts).any():
        raise InputError("the blocks of an assignment do not partition its rows")
    if len(starts) > len(plan.available):
        raise InputError(
            f"{len(starts)} blocks for {len(plan.available)} machines: expected F <= N_t"
        )


def _check_machines(plan: Assignment) -> None:
    """Each block has different, available machines, and the loads are met exactly."""
    if (np.diff(plan.machines, axis=1) <= 0).any():
        raise InputError("a block of an assignment names a machine twice or out of order")
    last = plan.available[-1]
    named = plan.machines
    if named[:, 0].min() < 1 or named[:, -1].max() > last:
        raise InputError("a block of an assignment names a machine that is not available")
    sizes = np.repeat(plan.stops - plan.starts, plan.copies).astype(np.float64)
    sums = np.bincount(named.ravel(), weights=sizes, minlength=last + 1)
    expected = np.zeros(last + 1)
    expected[np.asarray(plan.available)] = plan.loads
    wrong = np.flatnonzero(sums != expected)
    if wrong.size:
        n = int(wrong[0])
        raise InputError(f"machine {n} is assigned {sums[n]:.0f} rows: expected {expected[n]:.0f}")


def heterogeneous(available: Sequence[int], loads: ArrayLike, copies: int) -> Assignment:
    """Algorithm 1 on whole rows: blocks that meet any load of at most R rows a machine.

    Each block goes to the machine with the fewest rows left and to the ``copies - 1``
    machines with the most rows left (ties: lower machine number counts as fewer).

    Parameters
    ----------
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending.
    loads : (N_t,) array_like of int
        Rows of each: ``loads.sum() == copies * R`` and ``loads <= R``.
    copies : int
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
    loads = _whole("loads", loads)
    names = np.asarray(available, dtype=np.int32)
    if loads.shape != names.shape:
        raise InputError(f"{loads.size} loads for {names.size} available machines")
    _check_fillable(loads, copies)
    sizes, members = _fill(loads, copies)
    return _placed(available, loads, np.array(sizes), names[members])


def _placed(
    available: Sequence[int], loads: Ints, sizes: Ints, machines: NDArray[np.int32]
) -> Assignment:
    """Lay the blocks along the rows so that machines have few intervals."""
    along = order_along_rows(machines, available)
    stops = np.empty_like(sizes)
    stops[along] = np.cumsum(sizes[along])
    machines.flags.writeable = False  # so that the assignment need not copy it
    return Assignment(available, loads, stops - sizes, stops, machines)


def _check_fillable(loads: NDArray[np.generic], copies: int) -> None:
    """The condition of the filling problem: sum = copies * R and 0 <= m <= R."""
    check_copies(len(loads), copies)
    total, largest, smallest = int(loads.sum()), int(loads.max()), int(loads.min())
    if smallest < 0 or total < copies or total % copies or largest * copies > total:
        raise InputError(
            f"loads of {smallest} to {largest} rows with sum {total} cannot be met with each "
            f"row on {copies} machines: expected a multiple of {copies} and at most "
            f"1/{copies} of it on one machine"
        )


def _fill(loads: NDArray[np.generic], copies: int) -> tuple[list[int], NDArray[np.int32]]:
    """Algorithm 1: the alpha_f, and the positions of each P_f (ascending), f = 1..F.

    The machines with rows left stay sorted as integers ``m * 2**bits + position``. In an
    iteration the last ``copies - 1`` of them all lose the same number of rows, so that
    only this tail has to be merged again: stable sorting finds the two sorted runs.
    """
    bits = len(loads).bit_length()
    left = int(loads.sum()) // copies
    wide = left.bit_length() + bits > 62
    keys = (loads.astype(object) if wide else loads.astype(np.int64)) * (1 << bits)
    keys = np.sort(keys + np.arange(len(loads)))
    one_row, mask = 1 << bits, (1 << bits) - 1
    keys = keys[keys.searchsorted(one_row) :]
    sizes: list[int] = []
    members = np.empty((len(loads), copies), dtype=np.int32)  # F <= N_t
    while keys.size:
        top = keys.size - copies + 1
        alpha = keys.item(0) >> bits
        if top > 1:
            alpha = min(alpha, left - (keys.item(top - 1) >> bits))
        chosen = members[len(sizes)]
        chosen[0] = keys.item(0) & mask
        chosen[1:] = keys[top:] & mask
        sizes.append(alpha)
        left -= alpha
        keys[0] -= alpha << bits
        keys[top:] -= alpha << bits
        if copies > 1 and keys.item(top) < keys.item(top - 1):
            keys[keys[:top].searchsorted(keys[top]) :].sort(kind="stable")
        if keys.item(0) < one_row:
            keys = keys[keys.searchsorted(one_row) :]
    members = members[: len(sizes)]
    members.sort(axis=1)
    return sizes, members


def fractional_blocks(
    mu: Sequence[Fraction], copies: int
) -> list[tuple[Fraction, tuple[int, ...]]]:
    """Algorithm 1 on fractions of a shard, as the paper prints it.

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
        `mu` are not such fractions.
    InfeasibleError
        There are fewer than `copies` of them.

    Examples
    --------
    >>> from cec_mpi.core.load import fractional_load
    >>> for alpha, machines in fractional_blocks(fractional_load([2, 2, 3, 4], 3).mu, 3):
    ...     print(alpha, machines)
    3/7 (0, 2, 3)
    1/7 (0, 1, 3)
    3/7 (1, 2, 3)
    """
    if not all(isinstance(part, Rational) for part in mu):
        raise InputError("loads that are not whole numbers or Fractions")
    check_copies(len(mu), copies)
    if sum(mu) != copies or not 0 <= min(mu) <= max(mu) <= 1:
        raise InputError(
            f"loads of {min(mu)} to {max(mu)} with sum {sum(mu)} cannot be met: expected a sum of "
            f"{copies} and at most 1 on one machine"
        )
    whole = lcm(*(fraction.denominator for fraction in mu))
    loads = np.array([int(fraction * whole) for fraction in mu], dtype=object)
    _check_fillable(loads, copies)
    sizes, members = _fill(loads, copies)
    return [
        (Fraction(alpha, whole), tuple(machines))
        for alpha, machines in zip(sizes, members.tolist(), strict=True)
    ]


def cyclic(available: Sequence[int], copies: int, rows: int) -> Assignment:
    """The assignment of Yang et al.: N_t equal blocks, block b on the machines b..b+copies-1.

    Block boundaries at ``floor(b * rows / N_t)`` make the loads differ by at most one row.

    Parameters
    ----------
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending.
    copies : int
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
    check_copies(count, copies)
    check_rows(rows)
    bounds = np.arange(count + 1, dtype=np.int64) * rows // count
    positions = np.sort((np.arange(count)[:, None] + np.arange(copies)) % count, axis=1)
    sizes = np.diff(bounds)
    loads = np.zeros(count, dtype=np.int64)
    np.add.at(loads, positions, np.broadcast_to(sizes[:, None], positions.shape))
    kept = sizes > 0
    names = np.asarray(available, dtype=np.int32)
    return Assignment(available, loads, bounds[:-1][kept], bounds[1:][kept], names[positions[kept]])
