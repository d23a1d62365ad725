"""The blocks of a shard: the units of encoding, checksums and repair.

A shard has R rows of r numbers. A block consists of whole rows or, if rows are long, of a part of
one row, so it is contiguous in the file. All blocks with the same columns form a span. Block k of
every shard is computed from the same entries of X, in one matrix product. BLAS rounds products of
different shapes differently. Here the shapes depend only on the grid in the manifest, so the bytes
of a store do not depend on ranks, threads or memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

BLOCK_BYTES = 1 << 20
"""Maximum size of a block: large enough for disks and BLAS, small enough for caches."""

_MIN_BLOCK_BYTES = 1 << 12
_WORKING_SET_BYTES = 16 << 20  # of a thread: a block of every shard and of every part of X


class Block(NamedTuple):
    """Rows ``start..stop`` and columns ``left..right`` of a shard (ends excluded).

    Attributes
    ----------
    number : int
        Index of the block, in the order of the file.
    start, stop, left, right : int
    offset : int
        Offset in the data of the file, in entries.
    """

    number: int
    start: int
    stop: int
    left: int
    right: int
    offset: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return (self.stop - self.start) * (self.right - self.left)


@dataclass(frozen=True)
class Rectangle:
    """Blocks of one span in rows ``top <= row < bottom`` of the grid, processed as one piece."""

    top: int
    bottom: int
    span: int


@dataclass(frozen=True)
class Grid:
    """The blocks of the shards of a store.

    Attributes
    ----------
    rows, columns : int
        Shape (R, r) of a shard.
    block_rows, block_columns : int
        Shape of a block, except at the edges. A block has all columns, or one row.
    """

    rows: int
    columns: int
    block_rows: int
    block_columns: int

    @property
    def blocks_down(self) -> int:
        """Number of blocks in the vertical direction."""
        return -(-self.rows // self.block_rows)

    @property
    def blocks_across(self) -> int:
        """Number of blocks in the horizontal direction."""
        return -(-self.columns // self.block_columns)

    @property
    def count(self) -> int:
        """Number of blocks of a shard."""
        return self.blocks_down * self.blocks_across

    def block(self, number: int) -> Block:
        """Return one block."""
        row, span = divmod(number, self.blocks_across)
        start, left = row * self.block_rows, span * self.block_columns
        return Block(
            number,
            start,
            min(start + self.block_rows, self.rows),
            left,
            min(left + self.block_columns, self.columns),
            start * self.columns + left,
        )

    def blocks_of_rows(self, start: int, stop: int) -> range:
        """Return the indices of the blocks that have these rows."""
        top, bottom = start // self.block_rows, -(-stop // self.block_rows)
        return range(top * self.blocks_across, bottom * self.blocks_across)

    def blocks(self, rectangle: Rectangle) -> Iterator[Block]:
        """Yield the blocks of a rectangle, from top to bottom."""
        for row in range(rectangle.top, rectangle.bottom):
            yield self.block(row * self.blocks_across + rectangle.span)

    def rectangles(self, max_entries: int, height_step: int = 1) -> list[Rectangle]:
        """Return rectangles that cover all blocks, of at most `max_entries` entries if possible.

        Heights are multiples of `height_step` blocks, except at the end.
        """
        width = min(self.block_columns, self.columns)
        height = max(1, max_entries // (self.block_rows * width))
        height = min(self.blocks_down, max(height_step, height - height % height_step))
        return [
            Rectangle(top, min(top + height, self.blocks_down), span)
            for top in range(0, self.blocks_down, height)
            for span in range(self.blocks_across)
        ]


def make_grid(
    rows: int, columns: int, itemsize: int, blocks_at_once: int, block_bytes: int = BLOCK_BYTES
) -> Grid:
    """Return the grid of a new store.

    Parameters
    ----------
    rows, columns : int
        Shape (R, r) of a shard.
    itemsize : int
        Bytes per entry.
    blocks_at_once : int
        Number of blocks in memory at the same time: one of each part of X and of each shard, L + N.
    block_bytes : int
        Maximum size of a block.

    Examples
    --------
    >>> make_grid(1000, 300, 4, 9)
    Grid(rows=1000, columns=300, block_rows=873, block_columns=300)
    >>> make_grid(1000, 10**6, 4, 9)
    Grid(rows=1000, columns=1000000, block_rows=1, block_columns=262144)
    """
    max_bytes = min(block_bytes, max(_MIN_BLOCK_BYTES, _WORKING_SET_BYTES // blocks_at_once))
    entries = max_bytes // itemsize
    return Grid(rows, columns, min(rows, max(1, entries // columns)), min(columns, entries))
