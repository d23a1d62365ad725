"""Which machines are enough for a step of a coded store."""

from __future__ import annotations

from collections.abc import Sequence


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

    def __init__(self, machines: int) -> None:
        self.machines = machines

    def option_for(self, answers: int) -> str:
        """Return the option of encode that gives a row this many answers; empty if it has them."""
        return f"--machines {answers}" if self.machines < answers else ""

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
