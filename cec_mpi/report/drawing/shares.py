"""What a picture shows of an assignment: blocks, and rows new to machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cec_mpi.core.plan.assignment import Block

Intervals = list[tuple[int, int]]


@dataclass(frozen=True)
class Shares:
    """An assignment that is drawn.

    Attributes
    ----------
    machines : int
        N: machines 1..N are drawn, available or not.
    rows : int
        Rows per shard.
    available : tuple of int
    blocks : sequence of Block
        In Algorithm 1's order, which their letters a, b, .. follow.
    title, subtitle : str
    labels : sequence of str
        Of each machine.
    new : mapping of int to list of (int, int)
        Rows by machine that it did not compute in the step before.
    """

    machines: int
    rows: int
    available: tuple[int, ...]
    blocks: Sequence[Block]
    title: str
    subtitle: str
    labels: Sequence[str]
    new: Mapping[int, Intervals] = field(default_factory=dict)

    @property
    def away(self) -> list[int]:
        """The preempted machines."""
        there = set(self.available)
        return [n for n in range(1, self.machines + 1) if n not in there]

    def loads(self) -> list[int]:
        """Rows of machines 1..N."""
        rows = [0] * self.machines
        for block in self.blocks:
            for n in block.machines:
                rows[n - 1] += block.stop - block.start
        return rows


def letter(number: int) -> str:
    """Return the letter of block f: a for f = 1, .. z, aa, ab, ..

    Examples
    --------
    >>> letter(1), letter(26), letter(27), letter(703)
    ('a', 'z', 'aa', 'aaa')
    """
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def new_rows(before: Iterable[Block], after: Iterable[Block]) -> dict[int, Intervals]:
    """Return rows that machines compute after a change and did not before, by machine.

    Examples
    --------
    >>> from cec_mpi.core.plan.assignment import Block
    >>> new_rows([Block(0, 5, (1, 2))], [Block(0, 2, (1, 3)), Block(2, 8, (2, 3))])
    {2: [(5, 8)], 3: [(0, 8)]}
    """
    was, now = _intervals(before), _intervals(after)
    differences = {n: _without(spans, was.get(n, [])) for n, spans in sorted(now.items())}
    return {n: spans for n, spans in differences.items() if spans}


def _intervals(blocks: Iterable[Block]) -> dict[int, Intervals]:
    """Return rows by machine, ascending and merged."""
    found: dict[int, Intervals] = {}
    for block in sorted(blocks, key=lambda block: block.start):
        for n in block.machines:
            spans = found.setdefault(n, [])
            if spans and spans[-1][1] == block.start:
                spans[-1] = (spans[-1][0], block.stop)
            else:
                spans.append((block.start, block.stop))
    return found


def _without(spans: Intervals, others: Intervals) -> Intervals:
    """Return parts of these intervals that are in none of the others; both ascend."""
    left: Intervals = []
    k = 0
    for start, stop in spans:
        place = start
        while k < len(others) and others[k][1] <= place:
            k += 1
        j = k
        while j < len(others) and others[j][0] < stop:
            if others[j][0] > place:
                left.append((place, others[j][0]))
            place = max(place, others[j][1])
            j += 1
        if place < stop:
            left.append((place, stop))
    return left
