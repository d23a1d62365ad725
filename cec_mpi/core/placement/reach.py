"""Which steps machines can make that take over shards of those that are away."""

from __future__ import annotations

from collections.abc import Sequence

from cec_mpi.core.placement.placement import Placement
from cec_mpi.core.plan.numbers import without_most


class Reach:
    """What machines could have of a store, if they took over what they have room for.

    Parameters
    ----------
    placement : Placement
        What they have.
    room : (M,) sequence of int
        Shards that each can have more.

    Attributes
    ----------
    machines : int
        M.
    is_plain : bool
        False: what machines need is counted in shards.

    Examples
    --------
    Any of three machines has room for two shards more, and L = 3:

    >>> reach = Reach(Placement.plain(3), (2, 2, 2))
    >>> reach.to_spare(3, (1, 2, 3)), reach.to_spare(3, (2,)), reach.to_spare(3, ())
    (2, 0, -1)
    """

    is_plain = False

    def __init__(self, placement: Placement, room: Sequence[int]) -> None:
        self.machines = placement.machines
        self._placement, self._room = placement, tuple(room)
        self._tried: dict[tuple[int, ...], int] = {}

    def to_spare(self, recovery: int, available: Sequence[int]) -> int:
        """As `Placement.to_spare`, with what they could take over."""
        placement = self._placement
        could = [placement.counts[n - 1] + self._room[n - 1] for n in available]
        spare = without_most([min(each, placement.shards) for each in could], recovery)
        most = self._tried.get(tuple(available), spare)
        return spare if spare <= most else max(most, placement.to_spare(recovery, available))

    def cannot(self, available: Sequence[int], spare: int) -> None:
        """It was tried in vain to have these machines able to miss so many of them."""
        tried = tuple(available)
        self._tried[tried] = min(spare - 1, self._tried.get(tried, spare))

    def largest(self, count: int) -> tuple[int, ...]:
        """So many machines that could have the most shards, ascending."""
        could = [a + b for a, b in zip(self._placement.counts, self._room, strict=True)]
        by_shards = sorted(range(1, self.machines + 1), key=lambda n: -could[n - 1])
        return tuple(sorted(by_shards[:count]))

    def count(self, machines: Sequence[int]) -> int:
        """As `Placement.count`: what they have."""
        return self._placement.count(machines)
