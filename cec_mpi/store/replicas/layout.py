"""Layout of the parts of a sparse X in shard files.

A shard file has the parts of its machine in the order of rows: first the values of all parts, then
their column indices, then their row pointers, which start with 0 in each part. So rows of adjacent
parts form a CSR matrix in which only the row pointers are copied. A part has the same bytes in
every file, in blocks with checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

BLOCK_BYTES = 1 << 20
HEADER_BYTES = 64
_ALIGNMENT = 64
VALUES, INDICES, POINTERS = range(3)  # sections of a file


class Block(NamedTuple):
    """A range of bytes of a part: the unit of checksums and repair.

    Attributes
    ----------
    number : int
        Index of the block, counted through all parts.
    part, section : int
    start, stop : int
        Range of bytes in the section of the part.
    """

    number: int
    part: int
    section: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Layout:
    """The parts of X, their holders, and their position in shard files.

    Attributes
    ----------
    bounds : (P + 1,) ndarray of int64
        First row of each part, and the number of rows.
    first_entries : (P + 1,) ndarray of int64
        Index of the first nonzero of each part, and the number of nonzeros.
    holders : tuple of tuple of int
        The machines of each part.
    machines : int
        N.
    dtype, index_dtype : str
        Dtype of values, and of column indices and row pointers.
    """

    bounds: Ints
    first_entries: Ints
    holders: tuple[tuple[int, ...], ...]
    machines: int
    dtype: str
    index_dtype: str

    @property
    def part_count(self) -> int:
        """Number of parts, P."""
        return self.bounds.size - 1

    @property
    def dtypes(self) -> tuple[str, str, str]:
        """Dtypes of the sections."""
        return self.dtype, self.index_dtype, self.index_dtype

    @cached_property
    def itemsizes(self) -> tuple[int, ...]:
        """Bytes per entry of each section."""
        return tuple(np.dtype(dtype).itemsize for dtype in self.dtypes)

    @cached_property
    def sizes(self) -> Ints:
        """Size of each section of each part in bytes, shape (P, 3)."""
        rows, entries = np.diff(self.bounds), np.diff(self.first_entries)
        sizes: Ints = np.stack([entries, entries, rows + 1], axis=1) * np.array(self.itemsizes)
        return sizes

    @cached_property
    def first_blocks(self) -> Ints:
        """Index of the first block of each section of each part, and the total, (3 P + 1,)."""
        counts = -(-self.sizes // BLOCK_BYTES)
        return np.append(0, np.cumsum(counts.reshape(-1))).astype(np.int64)

    @property
    def block_count(self) -> int:
        """Number of blocks."""
        return int(self.first_blocks[-1])

    def blocks_of(self, part: int) -> Iterator[Block]:
        """Yield the blocks of a part, in order."""
        for section in range(3):
            yield from self.overlapping_blocks(part, section, 0, int(self.sizes[part, section]))

    def overlapping_blocks(self, part: int, section: int, start: int, stop: int) -> Iterator[Block]:
        """Yield the blocks of a section that overlap a range of bytes."""
        first, size = int(self.first_blocks[3 * part + section]), int(self.sizes[part, section])
        for k in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES)):
            begin = k * BLOCK_BYTES
            yield Block(first + k, part, section, begin, min(begin + BLOCK_BYTES, size))

    def block(self, number: int) -> Block:
        """Return a block."""
        k = int(np.searchsorted(self.first_blocks, number, side="right")) - 1
        part, section = divmod(k, 3)
        begin = (number - int(self.first_blocks[k])) * BLOCK_BYTES
        size = int(self.sizes[part, section])
        return Block(number, part, section, begin, min(begin + BLOCK_BYTES, size))

    def blocks_held_by(self, machine: int) -> NDArray[np.bool_]:
        """Return a mask of the blocks that a machine holds, (blocks,)."""
        mask, first = np.zeros(self.block_count, bool), self.first_blocks[::3]
        for part in self.parts_by_machine[machine - 1]:
            mask[first[part] : first[part + 1]] = True
        return mask

    @cached_property
    def parts_by_machine(self) -> list[list[int]]:
        """Parts of each machine 1..N, in ascending order."""
        parts: list[list[int]] = [[] for _ in range(self.machines)]
        for part, machines in enumerate(self.holders):
            for machine in machines:
                parts[machine - 1].append(part)
        return parts

    @cached_property
    def _file_layouts(self) -> list[FileLayout]:
        """Layouts of the shard files of machines 1..N."""
        return [FileLayout(self, parts) for parts in self.parts_by_machine]

    def file_layout(self, machine: int) -> FileLayout:
        """Return the layout of the shard file of a machine."""
        return self._file_layouts[machine - 1]


class FileLayout:
    """Layout of the shard file of a machine.

    Attributes
    ----------
    parts : list of int
        Parts in the file, ascending.
    entry_counts : (3,) tuple of int
        Number of entries in each section.
    section_offsets : (3,) tuple of int
        Offset of each section in bytes.
    size : int
        Size of the file in bytes.
    """

    def __init__(self, layout: Layout, parts: list[int]) -> None:
        self._layout, self.parts = layout, parts
        sizes = layout.sizes[parts] if parts else np.zeros((0, 3), np.int64)
        # Offset of each part in each section, and the end of the last part, in bytes.
        self._part_offsets = np.concatenate([np.zeros((1, 3), np.int64), np.cumsum(sizes, axis=0)])
        ends = self._part_offsets[-1].tolist()
        self.entry_counts = tuple(e // i for e, i in zip(ends, layout.itemsizes, strict=True))
        offset, offsets = HEADER_BYTES, []
        for end in ends:
            offsets.append(offset)
            offset += -(-end // _ALIGNMENT) * _ALIGNMENT
        self.section_offsets, self.size = tuple(offsets), offset
        self._index_of_part = {part: k for k, part in enumerate(parts)}

    @property
    def header(self) -> bytes:
        """Header of the file."""
        layout = self._layout
        text = f"cec_mpi csr {layout.dtype} {layout.index_dtype} {self.entry_counts[VALUES]}"
        return text.ljust(HEADER_BYTES - 1).encode() + b"\n"

    def block_offset(self, block: Block) -> int:
        """Return the offset of a block in the file, in bytes."""
        part_offset = int(self._part_offsets[self._index_of_part[block.part], block.section])
        return self.section_offsets[block.section] + part_offset + block.start

    def first_entry(self, part: int, section: int) -> int:
        """Return the index of the first entry of a part in a section of the file."""
        part_offset = int(self._part_offsets[self._index_of_part[part], section])
        return part_offset // self._layout.itemsizes[section]

    def split_by_part(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield ``(part, start, stop)`` for each part that overlaps these rows of X.

        The rows that are yielded are counted from the first row of the part.

        Raises
        ------
        KeyError
            The machine does not hold one of the parts.
        """
        bounds = self._layout.bounds
        part = int(np.searchsorted(bounds, start, side="right")) - 1
        while start < stop:
            if part not in self._index_of_part:
                raise KeyError(part)
            first_row, end = int(bounds[part]), min(stop, int(bounds[part + 1]))
            yield part, start - first_row, end - first_row
            start, part = end, part + 1


def group_adjacent(
    runs: list[tuple[int, int, int]], part_rows: Ints
) -> list[list[tuple[int, int, int]]]:
    """Group runs of rows that follow each other in the file without a gap.

    Parameters
    ----------
    runs : list of (int, int, int)
        ``(part, start, stop)`` with rows counted in the part; ascending.
    part_rows : (P,) ndarray of int
        Number of rows of each part.
    """
    groups: list[list[tuple[int, int, int]]] = []
    for run in runs:
        if groups:
            part, _, stop = groups[-1][-1]
            if run[0] == part + 1 and run[1] == 0 and stop == part_rows[part]:
                groups[-1].append(run)
                continue
        groups.append([run])
    return groups
