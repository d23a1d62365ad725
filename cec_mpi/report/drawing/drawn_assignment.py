"""Assignments to draw, with their blocks and the rows that are new to machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cec_mpi.core.plan.assignment import Block

Intervals = list[tuple[int, int]]


@dataclass(frozen=True)
class DrawnAssignment:
    """An assignment to draw.

    Attributes
    ----------
    machines : int
        Number of drawn machines, N.
    rows : int
        Rows per shard.
    available : tuple of int
    blocks : sequence of Block
        Blocks in the order of Algorithm 1, with letters a, b, ...
    title, subtitle : str
    labels : sequence of str
        Label of each machine.
    new_rows : mapping of int to list of (int, int)
        Rows that each machine did not compute in the previous step.
    """

    machines: int
    rows: int
    available: tuple[int, ...]
    blocks: Sequence[Block]
    title: str
    subtitle: str
    labels: Sequence[str]
    new_rows: Mapping[int, Intervals] = field(default_factory=dict)

    @property
    def unavailable(self) -> list[int]:
        """Machines that are not available."""
        available = set(self.available)
        return [n for n in range(1, self.machines + 1) if n not in available]

    def loads(self) -> list[int]:
        """Return the number of rows of each of machines 1..N."""
        rows = [0] * self.machines
        for block in self.blocks:
            for n in block.machines:
                rows[n - 1] += block.stop - block.start
        return rows


def block_letter(number: int) -> str:
    """Return the letter of block `number`: a, b, .. z, aa, ab, ..

    Examples
    --------
    >>> block_letter(1), block_letter(26), block_letter(27), block_letter(703)
    ('a', 'z', 'aa', 'aaa')
    """
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def find_new_rows(previous: Iterable[Block], current: Iterable[Block]) -> dict[int, Intervals]:
    """Return the rows that each machine computes now, but did not compute in the previous step.

    Examples
    --------
    >>> from cec_mpi.core.plan.assignment import Block
    >>> find_new_rows([Block(0, 5, (1, 2))], [Block(0, 2, (1, 3)), Block(2, 8, (2, 3))])
    {2: [(5, 8)], 3: [(0, 8)]}
    """
    previous_rows, current_rows = _merge_blocks(previous), _merge_blocks(current)
    differences = {
        n: subtract_intervals(spans, previous_rows.get(n, []))
        for n, spans in sorted(current_rows.items())
    }
    return {n: spans for n, spans in differences.items() if spans}


def _merge_blocks(blocks: Iterable[Block]) -> dict[int, Intervals]:
    """Return the rows of each machine as ascending, merged intervals."""
    intervals: dict[int, Intervals] = {}
    for block in sorted(blocks, key=lambda block: block.start):
        for n in block.machines:
            spans = intervals.setdefault(n, [])
            if spans and spans[-1][1] == block.start:
                spans[-1] = (spans[-1][0], block.stop)
            else:
                spans.append((block.start, block.stop))
    return intervals


def subtract_intervals(intervals: Intervals, removed: Intervals) -> Intervals:
    """Return the set difference of two ascending lists of intervals.

    Examples
    --------
    >>> subtract_intervals([(0, 4), (6, 9)], [(1, 2), (3, 7)])
    [(0, 1), (2, 3), (7, 9)]
    """
    remaining: Intervals = []
    k = 0  # index of the next removed interval
    for start, stop in intervals:
        position = start
        while k < len(removed) and removed[k][0] < stop:
            if removed[k][0] > position:
                remaining.append((position, removed[k][0]))
            position = max(position, removed[k][1])
            if removed[k][1] > stop:
                break  # it may extend into the next interval
            k += 1
        if position < stop:
            remaining.append((position, stop))
    return remaining
