"""Which machine computes which rows of which of its shards: what a plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

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
    splits : mapping of int to tuple of (int, int)
        Of each shard that several available machines hold: who computes how many of its rows,
        in the order of the rows.
    """

    holding: Holding
    available: tuple[int, ...]
    loads: Ints
    types: tuple[RowType, ...]
    makespan: float
    bound: float
    bound_without: float
    splits: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

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
        found = {
            shard: self._intervals_in(machine, shard)
            if shard in self.splits
            else self.intervals_of(shard)
            for shard in self.holding.of(machine)
        }
        return {shard: intervals for shard, intervals in found.items() if intervals}

    def _intervals_in(self, machine: int, shard: int) -> Intervals:
        return tuple((start, stop) for start, stop, n in self._pieces[shard] if n == machine)

    @cached_property
    def _pieces(self) -> dict[int, list[tuple[int, int, int]]]:
        """Rows of each shard that is split: from where to where, and on which machine."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for shard, parts in self.splits.items():
            pieces = found[shard] = []
            spans = list(reversed(self.intervals_of(shard)))
            for machine, left in parts:
                while left:
                    start, stop = spans.pop()
                    end = min(stop, start + left)
                    pieces.append((start, end, machine))
                    left -= end - start
                    if end < stop:
                        spans.append((end, stop))
        return found

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
        """The blocks, type by type, in Algorithm 1's order; cut where a shard changes machines."""
        machine_of = {shard: n for n in self.available for shard in self.holding.of(n)}
        blocks = []
        for rows in self.types:
            for block in rows.assignment.blocks:
                first, last = rows.start + block.start, rows.start + block.stop
                split = [
                    (shard, piece)
                    for shard in block.machines
                    for piece in self._pieces.get(shard, ())
                    if piece[0] < last and first < piece[1]
                ]
                cuts = {first, last, *(max(first, piece[0]) for _, piece in split)}
                for start, stop in pairwise(sorted(cuts)):
                    here = {k: n for k, (begin, end, n) in split if begin <= start < end}
                    machines = tuple(here.get(k, machine_of[k]) for k in block.machines)
                    blocks.append(ShardBlock(start, stop, block.machines, machines))
        return tuple(blocks)
