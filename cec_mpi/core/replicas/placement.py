"""Machines that hold parts of X, where a run wants to know whether those that are up are enough."""

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
    """Machines 1..N of a store of replicas: a step needs one machine for each part.

    Machine n has shard n, which are the rows that it holds, and L = 1. What machines are enough for
    a step, it says as `CodedPlacement` does.

    Parameters
    ----------
    holders : Holders
    bounds : (P + 1,) sequence of int
        First row of each part, and the number of rows.
    machines : int

    Attributes
    ----------
    holders, bounds, machines
        As given.
    schemes, remedy, spare_rule, cuts, spans_of_terms
        As of `CodedPlacement`.

    Examples
    --------
    >>> placement = ReplicaPlacement(((1, 2), (2, 3)), (0, 10, 20), 3)
    >>> placement.count((1, 2, 3)), placement.count((1, 3)), placement.count((1, 2))
    (2, 1, 1)
    >>> placement.to_spare(1, (1, 2, 3)), placement.to_spare(1, (1,))
    (1, -1)
    >>> placement.able(9), list(placement.spans(((5, 12),)))
    ((1, 2), [(5, 10, (1, 2)), (10, 12, (2, 3))])
    """

    schemes = ("heterogeneous",)
    remedy = "more copies"

    def __init__(self, holders: Holders, bounds: Sequence[int], machines: int) -> None:
        self.machines, self.holders = machines, holders
        self.bounds: tuple[int, ...] = tuple(bounds)
        self.cuts, self.spans_of_terms = self.bounds[1:-1], self.spans
        self._sets = [frozenset(holders) for holders in set(self.holders)]
        self._least = lru_cache(256)(self._least_copies)

    def __reduce__(self) -> tuple[object, ...]:
        return ReplicaPlacement, (self.holders, self.bounds, self.machines)

    @property
    def spare_rule(self) -> str:
        """How many machines a step can miss at most, for messages."""
        return f"each row is on {plural(self.to_spare(0), 'machine')}"

    def option_for(self, answers: int) -> str:
        """As `CodedPlacement.option_for`."""
        return f"--copies {answers}" if self.to_spare(0) < answers else ""

    def count(self, machines: Sequence[int]) -> int:
        """How many of these machines hold a part, of the part that fewest of them hold."""
        return self._least(frozenset(machines))

    def to_spare(self, recovery: int, available: Sequence[int] | None = None) -> int:
        """How many of these machines, by default all, a step can miss, whichever they are."""
        machines = range(1, self.machines + 1) if available is None else available
        return max(-1, self.count(machines) - recovery)

    def could_spare(self, recovery: int, count: int) -> int:
        """How many machines a step could miss, of all: whose parts `count` hold is not known."""
        return self.to_spare(recovery) if count else -1

    def missing(self, needed: int, machines: Sequence[int]) -> int:
        """How many more machines are needed so that each part has so many holders.

        Examples
        --------
        >>> placement = ReplicaPlacement(((1, 2), (2, 3), (3, 4)), (0, 10, 20, 30), 4)
        >>> placement.missing(1, (1,)), placement.missing(1, (1, 3)), placement.missing(2, (1, 3))
        (1, 0, 2)
        """
        there, added = set(machines), 0
        while lacking := [holders for holders in self._sets if len(holders & there) < needed]:
            gains = Counter(n for holders in lacking for n in holders - there)
            if not gains:
                return max(1, added)
            there.add(max(gains, key=lambda n: (gains[n], -n)))
            added += 1
        return added

    def needs(self, recovery: int, machines: Sequence[int]) -> str:
        """Say what a step needs that these machines do not have, for messages."""
        there = set(machines)
        for part, holders in enumerate(self.holders):
            if len(there.intersection(holders)) < recovery:
                start, stop = self.bounds[part : part + 2]
                which = " or ".join(map(str, holders))
                if recovery > 1:
                    return f"rows {start}..{stop - 1} need {recovery} of the machines {which}"
                return f"rows {start}..{stop - 1} are on machine {which}"
        return f"a step with this store needs {recovery} for each row"

    def able(self, row: int) -> tuple[int, ...]:
        """The machines that hold a row."""
        return self.holders[bisect_right(self.bounds, row) - 1]

    def spans(self, intervals: Intervals) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """These rows, cut where other machines begin to hold them; and these machines."""
        for start, stop in intervals:
            part = bisect_right(self.bounds, start) - 1
            while start < stop:
                end = min(stop, self.bounds[part + 1])
                yield start, end, self.holders[part]
                start, part = end, part + 1

    def _least_copies(self, machines: frozenset[int]) -> int:
        return min(len(holders & machines) for holders in self._sets)
