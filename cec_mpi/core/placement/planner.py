"""Plans for machines with several shards, remembered as those with one are."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.holding.planned import HoldingPlan, Intervals
from cec_mpi.core.holding.planner import plan_holding
from cec_mpi.core.placement.placement import Placement
from cec_mpi.core.plan.numbers import Ints
from cec_mpi.core.plan.planner import Piece, Plan, Planner
from cec_mpi.core.plan.scheme import Scheme
from cec_mpi.errors import InfeasibleError


@dataclass(frozen=True, eq=False, repr=False)
class PlacedPlan(Plan):
    """A plan whose assignment is of shards, which machines have several of.

    Attributes
    ----------
    assignment : Assignment
        Of the first type of rows: of all where no machine may be late.
    placement : Placement
        With these machines available.
    whole : HoldingPlan
    """

    placement: Placement = field(kw_only=True)
    whole: HoldingPlan = field(kw_only=True)
    _intervals: dict[int, Intervals] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        size = sum(rows.assignment.machines.size for rows in self.whole.types)
        object.__setattr__(self, "numbers", self.numbers // self.assignment.machines.size * size)
        rows = sum(each.assignment.rows for each in self.whole.types)
        for n in self.whole.available:
            mine = self.whole.intervals(n)
            self._intervals[n] = self.placement.stack(n, mine, rows)

    def intervals(self, machine: int) -> Intervals:
        """The rows of a machine, counted through all of its shards."""
        return self._intervals.get(machine, ())

    def pieces(self) -> list[Piece]:
        """As `Plan.pieces`; where machines share the rows of a shard, as they lie in it."""
        found = [
            Piece(n, shard, intervals)
            for n in self.whole.available
            for shard, intervals in self.whole.intervals(n).items()
        ]
        return sorted(found, key=lambda piece: (piece.shard, piece.intervals))

    @property
    def most_rows(self) -> int:
        """The largest number of rows of a machine, of all of its shards."""
        return int(self.whole.loads.max())

    def counts(self, machines: int) -> Ints:
        """Rows of each of the machines 1..`machines`, of all of its shards."""
        found = np.zeros(machines, dtype=np.int64)
        found[np.array(self.whole.available) - 1] = self.whole.loads
        return found

    def bounds(self, machines: int) -> list[list[int]]:
        """Bounds of the rows of each machine, which are counted through all of its shards."""
        if machines not in self._bounds:
            self._bounds[machines] = [
                [bound for interval in self._intervals.get(n, ()) for bound in interval]
                for n in range(1, machines + 1)
            ]
        return self._bounds[machines]


class PlacedPlanner(Planner):
    """A `Planner` of machines with several shards: its plans are of shards.

    Parameters
    ----------
    placement : Placement
    recovery : int
        Shards that each row needs, L.
    rows : int
        Rows per shard, R.
    scheme : {"heterogeneous", "cyclic"}
    stragglers : int
        S machines, any of which may be late; fewer where too few are available for that.
    splits : bool
        Whether the rows of a shard that several have may be split between them; else they are
        all of the machine that it is asked from.
    """

    def __init__(
        self,
        placement: Placement,
        recovery: int,
        rows: int,
        scheme: Scheme = "heterogeneous",
        stragglers: int = 0,
        splits: bool = False,
    ) -> None:
        super().__init__(recovery, rows, scheme)
        self._placement, self._stragglers = placement, stragglers
        self._splits = splits and not stragglers

    def _planned(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        placement = self._placement.among(available)
        most = placement.to_spare(self.copies, available)
        whole = self._tolerant(
            placement.holding if self._splits else placement.asked,
            available,
            speeds,
            max(0, min(self._stragglers, most)),
        )
        assignment = whole.types[0].assignment
        given = assignment, whole.makespan, whole.bound
        return PlacedPlan(*given, placement=placement, whole=whole)

    def _tolerant(
        self,
        holding: Holding,
        available: tuple[int, ...],
        speeds: tuple[float, ...],
        stragglers: int,
    ) -> HoldingPlan:
        """With as many machines that may be late as the scheme can do without, up to these."""
        given = holding, available, speeds, self.copies, self.rows
        while stragglers:
            try:
                return plan_holding(*given, stragglers, self.scheme)
            except InfeasibleError:
                if self.scheme == "heterogeneous":
                    raise
                stragglers -= 1  # cyclic rows cannot be as many
        return plan_holding(*given, 0, self.scheme)
