"""Which machine computes which rows of which of its shards: what a plan says."""

from __future__ import annotations

from dataclasses import dataclass

from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.plan.numbers import Ints

Intervals = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RowType:
    """Rows that have at most `at_most` shards of any machine.

    Attributes
    ----------
    start : int
        The first of them; there are ``assignment.rows``.
    at_most : int
        b.
    assignment : Assignment
        Of these rows, counted from 0, to shards: its machines are shards, ``L + S b`` for each.
    """

    start: int
    at_most: int
    assignment: Assignment


@dataclass(frozen=True)
class ShardBlock:
    """Rows ``start <= row < stop`` of `shards`, each computed by the machine at its place."""

    start: int
    stop: int
    shards: tuple[int, ...]
    machines: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HoldingPlan:
    """Who computes which rows in a step when machines hold several shards.

    Attributes
    ----------
    holding : Holding
    available : tuple of int
        Machine numbers, ascending.
    loads : (M_t,) ndarray of int64
        Rows that each of them computes, of all of its shards.
    types : tuple of RowType
        One after the other along the rows; one of them alone where no machine may be late.
    makespan : float
        Time of the slowest machine, in rows per unit of speed.
    bound : float
        What no assignment can beat.
    bound_without : float
        What no assignment could beat if no machine might be late: the difference is what
        the tolerance costs.
    """

    holding: Holding
    available: tuple[int, ...]
    loads: Ints
    types: tuple[RowType, ...]
    makespan: float
    bound: float
    bound_without: float

    def __repr__(self) -> str:
        return f"<HoldingPlan of makespan {self.makespan:g}, at least {self.bound:g}>"

    def count(self, machine: int) -> int:
        """Rows that a machine computes, of all of its shards: 0 when it is preempted."""
        if machine not in self.available:
            return 0
        return int(self.loads[self.available.index(machine)])

    def intervals(self, machine: int) -> dict[int, Intervals]:
        """Row intervals ``(start, stop)`` of a machine, by shard: ascending and merged."""
        if machine not in self.available:
            return {}
        found = {shard: self.intervals_of(shard) for shard in self.holding.of(machine)}
        return {shard: intervals for shard, intervals in found.items() if intervals}

    def intervals_of(self, shard: int) -> Intervals:
        """Row intervals that are computed with a shard, whoever does: ascending and merged."""
        merged: list[tuple[int, int]] = []
        for rows in self.types:
            for first, last in rows.assignment.intervals_of_all().get(shard, ()):
                start, stop = rows.start + first, rows.start + last
                if merged and merged[-1][1] == start:
                    start = merged.pop()[0]
                merged.append((start, stop))
        return tuple(merged)

    @property
    def blocks(self) -> tuple[ShardBlock, ...]:
        """The blocks, type by type, in Algorithm 1's order."""
        machine_of = {shard: n for n in self.available for shard in self.holding.of(n)}
        return tuple(
            ShardBlock(
                rows.start + block.start,
                rows.start + block.stop,
                block.machines,
                tuple(machine_of[shard] for shard in block.machines),
            )
            for rows in self.types
            for block in rows.assignment.blocks
        )
