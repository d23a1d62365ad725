"""Placement of the shards of a coded store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cec_mpi.core.plan.assignment import Intervals


class CodedPlacement:
    """Placement of a coded store: machine n has shard n, and a step needs any L machines.

    `ReplicaPlacement` has the same interface for copies of sparse rows.

    Parameters
    ----------
    machines : int
        N.

    Attributes
    ----------
    machines : int
    schemes : tuple of str
        Available assignment schemes.
    remedy, redundancy_text : str
        For messages: what to encode X with if the redundancy is too low, and the redundancy.
    cuts : tuple of int
        Rows at which the set of holders changes; empty.
    replacement_spans : None
        Terms of X' V are replaced by terms of L machines, not by those of other holders.

    Examples
    --------
    >>> placement = CodedPlacement(6)
    >>> placement.tolerated_losses(3, (1, 2, 4, 5)), placement.tolerated_losses(3, (1, 2))
    (1, -1)
    >>> placement.count_missing(4, (1, 2)), placement.max_tolerated_losses(3, 5)
    (2, 2)
    """

    schemes = "heterogeneous", "cyclic"
    remedy = "more machines, or a smaller L"
    redundancy_text = "N - L"
    cuts: tuple[int, ...] = ()
    replacement_spans = None

    def __init__(self, machines: int) -> None:
        self.machines, self._all_machines = machines, tuple(range(1, machines + 1))

    def encode_option(self, answers: int) -> str:
        """Return the option of encode that provides this many answers for a row, or ''."""
        return f"--machines {answers}" if self.machines < answers else ""

    def holders_of(self, row: int) -> tuple[int, ...]:
        """Return the machines that hold a row: all machines."""
        return self._all_machines

    def spans(self, intervals: Intervals) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield ``(start, stop, holders)`` for each interval of rows."""
        return ((start, stop, self._all_machines) for start, stop in intervals)

    def tolerated_losses(self, recovery: int, available: Sequence[int] | None = None) -> int:
        """Return how many available machines (default: all) a step can lose in the worst case.

        The result is -1 if they are already too few.
        """
        return self.max_tolerated_losses(
            recovery, self.machines if available is None else len(available)
        )

    def max_tolerated_losses(self, recovery: int, count: int) -> int:
        """Return an upper bound on `tolerated_losses` if `count` machines are available."""
        return max(-1, count - recovery)

    def count_missing(self, needed: int, machines: Sequence[int]) -> int:
        """Return how many more machines are needed for `needed` answers for each row."""
        return max(0, needed - len(machines))

    def describe_need(self, recovery: int, machines: Sequence[int]) -> str:
        """Describe the machines that a step needs."""
        return f"a step needs {recovery}"
