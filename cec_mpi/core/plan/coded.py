"""Which machines are enough for a step of a coded store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cec_mpi.core.plan.assignment import Intervals


class CodedPlacement:
    """Machines 1..N of a coded store: machine n has shard n, and a step needs any L of them.

    Its methods are those of `ReplicaPlacement`, which answers them for copies of sparse rows.

    Parameters
    ----------
    machines : int
        N.

    Attributes
    ----------
    machines : int
    schemes : tuple of str
        Schemes that can assign rows.
    remedy, spare_rule : str
        What gives a row more answers, and how many machines a step can miss at most, for messages.
    cuts : tuple of int
        Rows at which other machines begin to hold them: none.
    spans_of_terms : None
        `spans`, if machines that hold the same rows compute the same terms of X' V.

    Examples
    --------
    >>> placement = CodedPlacement(6)
    >>> placement.to_spare(3, (1, 2, 4, 5)), placement.to_spare(3, (1, 2))
    (1, -1)
    >>> placement.missing(4, (1, 2)), placement.could_spare(3, 5)
    (2, 2)
    """

    schemes = "heterogeneous", "cyclic"
    remedy = "more machines, or a smaller L"
    spare_rule = "N - L"
    cuts: tuple[int, ...] = ()
    spans_of_terms = None

    def __init__(self, machines: int) -> None:
        self.machines, self._all = machines, tuple(range(1, machines + 1))

    def option_for(self, answers: int) -> str:
        """Return the option of encode that gives a row this many answers; empty if it has them."""
        return f"--machines {answers}" if self.machines < answers else ""

    def able(self, row: int) -> tuple[int, ...]:
        """Return the machines that hold a row: all."""
        return self._all

    def spans(self, intervals: Intervals) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield these rows and the machines that hold them."""
        return ((start, stop, self._all) for start, stop in intervals)

    def to_spare(self, recovery: int, available: Sequence[int] | None = None) -> int:
        """Return how many of these machines, by default all, a step can miss, whichever they are.

        It is -1 if they are too few.
        """
        return self.could_spare(recovery, self.machines if available is None else len(available))

    def could_spare(self, recovery: int, count: int) -> int:
        """Return how many machines a step could miss if `count` are available, at best."""
        return max(-1, count - recovery)

    def missing(self, needed: int, machines: Sequence[int]) -> int:
        """Return how many more machines are needed."""
        return max(0, needed - len(machines))

    def needs(self, recovery: int, machines: Sequence[int]) -> str:
        """Say what a step needs, for messages."""
        return f"a step needs {recovery}"
