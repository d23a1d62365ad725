"""Validated assignments of rows to machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InputError
from cec_mpi.text import plural

Ints = NDArray[np.int64]
Intervals = tuple[tuple[int, int], ...]
"""Pairs ``(start, stop)``, each for the rows ``start <= row < stop``, ascending."""
Integers = NDArray[np.integer]
_Scalar = TypeVar("_Scalar", bound=np.generic)

_BATCH_SIZE = 1 << 18  # array entries
Scheme = Literal["heterogeneous", "cyclic"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)


@dataclass(frozen=True)
class Block:
    """Rows ``start <= row < stop`` of every shard (M_f), computed by ``machines`` (P_f)."""

    start: int
    stop: int
    machines: tuple[int, ...]


class Assignment:
    """An assignment of each row to exactly ``machines_per_row`` machines.

    Assignments are immutable and hashable. The constructor validates them.

    Parameters
    ----------
    available : (N_t,) sequence of int
        The available machines, ascending, counted from 1.
    loads : (N_t,) array_like of int
        Number of rows of each available machine.
    starts, stops : (F,) array_like of int
        Each block f has the rows ``starts[f] <= row < stops[f]``.
    machines : (F, machines_per_row) array_like of int
        The machines of each block, ascending.

    Attributes
    ----------
    rows : int
        Rows per shard, R.
    machines_per_row : int
        Number of machines that compute each row.

    Raises
    ------
    InputError
        The blocks do not partition the rows, the machines of a block are not ascending or not
        available, the blocks contradict the loads, or an argument has the wrong shape or numbers.

    Examples
    --------
    >>> from cec_mpi.core.plan.schemes import assign_loads
    >>> assignment = assign_loads((1, 2, 3, 5), [4, 4, 6, 7], 3)
    >>> for block in assignment.blocks:
    ...     print(block.stop - block.start, block.machines)
    3 (1, 3, 5)
    1 (1, 2, 5)
    3 (2, 3, 5)
    >>> assignment.row_count(5), assignment.intervals(5)
    (7, ((0, 7),))
    """

    available: tuple[int, ...]
    loads: Ints
    starts: Ints
    stops: Ints
    machines: NDArray[np.int32]
    rows: int
    machines_per_row: int

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
            "loads": _as_readonly("loads", loads, np.int64),
            "starts": _as_readonly("starts", starts, np.int64),
            "stops": _as_readonly("stops", stops, np.int64),
            "machines": _as_readonly("machines", machines, np.int32),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        _check_shapes(self)
        object.__setattr__(self, "rows", int((self.stops - self.starts).sum()))
        object.__setattr__(self, "machines_per_row", int(self.machines.shape[1]))
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

    def __reduce__(self) -> tuple[object, ...]:
        return Assignment.from_array, (self.to_array(),)

    def __repr__(self) -> str:
        return (
            f"<Assignment of {plural(self.rows, 'row')} to "
            f"{plural(len(self.available), 'machine')}: "
            f"{plural(len(self.starts), 'block')} on "
            f"{plural(self.machines_per_row, 'machine')} each>"
        )

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks f = 1..F; for `assign_loads` in the order of Algorithm 1."""
        return tuple(
            Block(start, stop, tuple(machines))
            for start, stop, machines in zip(
                self.starts.tolist(), self.stops.tolist(), self.machines.tolist(), strict=True
            )
        )

    def row_count(self, machine: int) -> int:
        """Return the number of rows of a machine, 0 if it is unavailable."""
        available = self.available
        return int(self.loads[available.index(machine)]) if machine in available else 0

    def intervals(self, machine: int) -> Intervals:
        """Return the row intervals ``(start, stop)`` of a machine, ascending and merged."""
        if "_intervals" in vars(self):
            return self._intervals.get(machine, ())
        blocks = np.flatnonzero((self.machines == machine).any(axis=1))
        blocks = blocks[np.argsort(self.starts[blocks])]
        return tuple(_merge_intervals(blocks * 0, self.starts[blocks], self.stops[blocks])[1])

    def all_intervals(self) -> Mapping[int, Intervals]:
        """Return the `intervals` of each available machine; the result is cached."""
        return self._intervals

    def row_counts(self, machines: int) -> Ints:
        """Return the number of rows of each machine 1..`machines`, 0 if it is unavailable."""
        counts = np.zeros(machines, dtype=np.int64)
        counts[np.asarray(self.available) - 1] = self.loads
        return counts

    @cached_property
    def positions(self) -> Ints:
        """Positions of each block in the concatenated answers, shape (F, machines_per_row).

        The answers of machines are concatenated in ascending order, each in the order of rows.
        ``positions[f, k]`` is the index of the answer of ``machines[f, k]`` for the first row of
        block f.
        """
        block_order, _, machine_order = self._sort_orders
        sizes = np.repeat((self.stops - self.starts)[block_order], self.machines_per_row)
        ends = np.cumsum(sizes[machine_order])
        offsets = np.empty_like(ends)
        offsets[machine_order] = ends - sizes[machine_order]
        positions = np.empty(self.machines.shape, dtype=np.int64)
        positions[block_order] = offsets.reshape(self.machines.shape)
        positions.flags.writeable = False
        return positions

    @cached_property
    def _sort_orders(self) -> tuple[Ints, Integers, Ints]:
        """The order of blocks by rows, their machines, and the order that sorts the machines."""
        block_order = np.argsort(self.starts, kind="stable")
        owners = self.machines[block_order].ravel()
        if self.available[-1] <= np.iinfo(np.uint16).max:
            owners = owners.astype(np.uint16)  # NumPy's radix sort is ten times as fast
        return block_order, owners, np.argsort(owners, kind="stable")

    @cached_property
    def _intervals(self) -> dict[int, Intervals]:
        block_order, owners, machine_order = self._sort_orders
        starts = np.repeat(self.starts[block_order], self.machines_per_row)[machine_order]
        stops = np.repeat(self.stops[block_order], self.machines_per_row)[machine_order]
        owners, pairs = _merge_intervals(owners[machine_order], starts, stops)
        bounds = [*np.searchsorted(owners, self.available).tolist(), len(pairs)]
        return {
            machine: tuple(pairs[first:last])
            for machine, (first, last) in zip(self.available, pairwise(bounds), strict=True)
        }

    def to_array(self) -> Ints:
        """Return the assignment as one int64 array."""
        header = [len(self.available), len(self.starts), self.machines_per_row]
        parts = (header, self.available, self.loads, self.starts, self.stops, self.machines.ravel())
        return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])

    @classmethod
    def from_array(cls, array: Ints) -> Assignment:
        """Return the assignment of an array from `to_array`; raise `InputError` if invalid."""
        if array.size < 3:
            raise InputError(f"an assignment of {array.size} numbers: expected at least 3")
        count, blocks, machines_per_row = array[:3].tolist()
        sizes = [count, count, blocks, blocks, blocks * machines_per_row]
        if array.size != 3 + sum(sizes):
            raise InputError(f"an assignment of {array.size} numbers: expected {3 + sum(sizes)}")
        parts = np.split(array[3:], np.cumsum(sizes)[:-1])
        available, loads, starts, stops, machines = parts
        return cls(
            available.tolist(), loads, starts, stops, machines.reshape(blocks, machines_per_row)
        )


def _merge_intervals(
    owners: Integers, starts: Ints, stops: Ints
) -> tuple[Integers, list[tuple[int, int]]]:
    """Merge adjacent intervals of the same owner, and return the owners and the intervals."""
    is_first = np.ones(len(owners), dtype=bool)
    is_first[1:] = (owners[1:] != owners[:-1]) | (starts[1:] != stops[:-1])
    is_last = np.append(is_first[1:], True)[: len(owners)]
    pairs = list(zip(starts[is_first].tolist(), stops[is_last].tolist(), strict=True))
    return owners[is_first], pairs


def _check_shapes(assignment: Assignment) -> None:
    available = check_available(assignment.available)
    if assignment.loads.shape != available.shape:
        loads = plural(assignment.loads.size, "load")
        raise InputError(f"{loads} for {plural(available.size, 'available machine')}")
    shape = (
        *assignment.starts.shape,
        assignment.machines.shape[-1] if assignment.machines.ndim else 0,
    )
    if assignment.starts.ndim != 1 or assignment.stops.shape != assignment.starts.shape:
        raise InputError(
            f"starts and stops of blocks have shapes {assignment.starts.shape} and "
            f"{assignment.stops.shape}: expected two vectors of equal length"
        )
    if assignment.machines.shape != shape or 0 in shape:
        raise InputError(
            f"machines of blocks have shape {assignment.machines.shape}: expected {shape}"
        )


def _check_rows(assignment: Assignment) -> None:
    """Raise unless the blocks partition the rows."""
    order = np.argsort(assignment.starts)
    starts, stops = assignment.starts[order], assignment.stops[order]
    if starts[0] != 0 or (starts[1:] != stops[:-1]).any() or (stops <= starts).any():
        raise InputError("the blocks of an assignment do not partition its rows")


def _check_machines(assignment: Assignment) -> None:
    """Raise unless each block has distinct available machines, and the blocks match the loads."""
    largest, sizes, first = assignment.available[-1], assignment.stops - assignment.starts, 0
    assigned = np.zeros(largest + 1)
    for batch in row_batches(assignment.machines):
        if (batch[:, 1:] <= batch[:, :-1]).any():
            raise InputError("a block of an assignment lists a machine twice or out of order")
        if batch[:, 0].min() < 1 or batch[:, -1].max() > largest:
            raise InputError("a block of an assignment lists a machine that is not available")
        block_sizes = sizes[first : first + len(batch)]
        rows = np.repeat(block_sizes, assignment.machines_per_row).astype(np.float64)
        assigned += np.bincount(batch.ravel(), weights=rows, minlength=largest + 1)
        first += len(batch)
    expected = np.zeros(largest + 1)
    expected[np.asarray(assignment.available)] = assignment.loads
    mismatches = np.flatnonzero(assigned != expected)
    if mismatches.size:
        n = int(mismatches[0])
        raise InputError(
            f"machine {n} is assigned {plural(round(assigned[n]), 'row')}: "
            f"expected {expected[n]:.0f}"
        )


def count_rows(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the number of rows in intervals.

    Examples
    --------
    >>> count_rows([(0, 2), (5, 9)])
    6
    """
    return sum([stop - start for start, stop in intervals])


def as_integers(name: str, values: ArrayLike) -> Ints:
    """Return an int64 array; raise `InputError` unless the values are integers."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} of an assignment are {array.dtype}: expected whole numbers")
    return array.astype(np.int64, copy=False)


def _as_readonly(
    name: str, values: ArrayLike, dtype: type[np.signedinteger]
) -> NDArray[np.signedinteger]:
    """Return integers as a read-only array of this dtype."""
    array = values if isinstance(values, np.ndarray) and values.dtype == dtype else None
    if array is None:
        integers = as_integers(name, values)
        if integers.size and not np.can_cast(np.min_scalar_type(int(integers.max())), dtype):
            raise InputError(f"{name} of an assignment are up to {integers.max()}: too large")
        array = integers.astype(dtype, copy=False)
    if _has_writeable_base(array.base) or (array is values and array.flags.writeable):
        array = array.copy()
    array.flags.writeable = False
    return array


def _has_writeable_base(base: object) -> bool:
    """Return whether an array with this base may be writeable through one of its bases."""
    if isinstance(base, np.ndarray):
        return base.flags.writeable or _has_writeable_base(base.base)
    return base is not None


def row_batches(array: NDArray[_Scalar]) -> Iterator[NDArray[_Scalar]]:
    """Yield batches of rows that fit in the CPU caches."""
    rows = max(1, _BATCH_SIZE // array.shape[1])
    return (array[first : first + rows] for first in range(0, len(array), rows))


def check_available(machines: Sequence[int]) -> Ints:
    """Return machine numbers as an array; raise `InputError` unless positive and ascending."""
    try:
        available = np.asarray(machines, dtype=np.int64)
    except OverflowError:
        raise InputError(f"available machines {tuple(machines)}: too large a number") from None
    if not available.size or available[0] < 1 or (np.diff(available) <= 0).any():
        raise InputError(
            f"available machines {tuple(machines)}: expected positive numbers in ascending order"
        )
    return available


def check_scheme(scheme: str) -> None:
    """Raise `InputError` for an unknown scheme."""
    if scheme not in SCHEMES:
        raise InputError(f"scheme {scheme!r}: expected one of {', '.join(SCHEMES)}")
