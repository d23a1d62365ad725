"""Placement of the replicated parts of a sparse X."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from cec_mpi.core.plan.assignment import Intervals
from cec_mpi.text import plural

if TYPE_CHECKING:
    from cec_mpi.core.replicas.holders import Holders


class ReplicaPlacement:
    """Placement of a replicated store: a step needs one holder of each part.

    Shard n has the rows that machine n holds, and L = 1. `CodedPlacement` has the same interface.

    Parameters
    ----------
    holders : Holders
        The machines that hold each part.
    bounds : (P + 1,) sequence of int
        First row of each part, and the number of rows.
    machines : int

    Attributes
    ----------
    holders, bounds, machines
        The parameters.
    schemes, remedy, redundancy_text, cuts, replacement_spans
        See `CodedPlacement`.

    Examples
    --------
    >>> placement = ReplicaPlacement(((1, 2), (2, 3)), (0, 10, 20), 3)
    >>> placement.min_holders((1, 2, 3)), placement.min_holders((1, 3))
    (2, 1)
    >>> placement.tolerated_losses(1, (1, 2, 3)), placement.tolerated_losses(1, (1,))
    (1, -1)
    >>> placement.holders_of(9), list(placement.spans(((5, 12),)))
    ((1, 2), [(5, 10, (1, 2)), (10, 12, (2, 3))])
    """

    schemes = ("heterogeneous",)
    remedy = "more copies"

    def __init__(self, holders: Holders, bounds: Sequence[int], machines: int) -> None:
        self.machines, self.holders = machines, holders
        self.bounds: tuple[int, ...] = tuple(bounds)
        self.cuts, self.replacement_spans = self.bounds[1:-1], self.spans
        self._holder_sets = [frozenset(holders) for holders in set(self.holders)]
        self._min_holders = lru_cache(256)(self._count_holders)

    def __reduce__(self) -> tuple[object, ...]:
        return ReplicaPlacement, (self.holders, self.bounds, self.machines)

    @property
    def redundancy_text(self) -> str:
        """The redundancy of the store, in words."""
        return f"each row is on {plural(self.tolerated_losses(0), 'machine')}"

    def encode_option(self, answers: int) -> str:
        """Return the option of encode that provides this many answers for a row, or ''."""
        return f"--copies {answers}" if self.tolerated_losses(0) < answers else ""

    def min_holders(self, machines: Sequence[int]) -> int:
        """Return how many of these machines hold the part with the fewest holders among them."""
        return self._min_holders(frozenset(machines))

    def tolerated_losses(self, recovery: int, available: Sequence[int] | None = None) -> int:
        """Return how many available machines (default: all) a step can lose in the worst case.

        The result is -1 if they are already too few.
        """
        machines = range(1, self.machines + 1) if available is None else available
        return max(-1, self.min_holders(machines) - recovery)

    def max_tolerated_losses(self, recovery: int, count: int) -> int:
        """Return an upper bound on `tolerated_losses` if `count` machines are available."""
        return self.tolerated_losses(recovery) if count else -1

    def count_missing(self, needed: int, machines: Sequence[int]) -> int:
        """Return how many more machines are needed for `needed` holders of each part.

        Machines are chosen greedily, so the result is an upper bound. If even all machines are too
        few, it is at least 1.

        Examples
        --------
        >>> placement = ReplicaPlacement(((1, 2), (2, 3), (3, 4)), (0, 10, 20, 30), 4)
        >>> placement.count_missing(1, (1,)), placement.count_missing(2, (1, 3))
        (1, 2)
        """
        present, added = set(machines), 0
        while deficient_sets := [s for s in self._holder_sets if len(s & present) < needed]:
            gains = Counter(n for holders in deficient_sets for n in holders - present)
            if not gains:
                return max(1, added)
            present.add(max(gains, key=lambda n: (gains[n], -n)))
            added += 1
        return added

    def describe_need(self, recovery: int, machines: Sequence[int]) -> str:
        """Describe the first rows that have too few holders among these machines."""
        present = set(machines)
        for part, holders in enumerate(self.holders):
            if len(present.intersection(holders)) < recovery:
                start, stop = self.bounds[part : part + 2]
                names = ", ".join(map(str, holders))
                return f"rows {start}..{stop - 1} need {recovery} of these machines: {names}"
        return f"a step with this store needs {plural(recovery, 'machine')} for each row"

    def holders_of(self, row: int) -> tuple[int, ...]:
        """Return the machines that hold a row."""
        return self.holders[bisect_right(self.bounds, row) - 1]

    def spans(self, intervals: Intervals) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield ``(start, stop, holders)``: the rows, split where the holders change."""
        for start, stop in intervals:
            part = bisect_right(self.bounds, start) - 1
            while start < stop:
                end = min(stop, self.bounds[part + 1])
                yield start, end, self.holders[part]
                start, part = end, part + 1

    def _count_holders(self, machines: frozenset[int]) -> int:
        return min(len(holders & machines) for holders in self._holder_sets)
