"""The manifest of a replicated store: parts of the rows of a sparse X on several machines."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.code.conditioning import Conditioning
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.format.array_files import read_array
from cec_mpi.store.format.manifest import ArrayEntry, Manifest, ShardEntry, check_field
from cec_mpi.store.replicas.layout import BLOCK_BYTES, Layout
from cec_mpi.text import plural, shorten

CELLS = "cells.npy"


class PartsEntry(Struct, frozen=True):
    """Entry of the manifest for parts and their holders.

    Attributes
    ----------
    rows, nonzeros : tuple of int
        Numbers of rows and of nonzeros before each part, followed by those of all parts.
    holders : tuple of tuple of int
        Machines that hold each part, ascending.
    index : str
        Dtype of indices.
    """

    rows: tuple[int, ...]
    nonzeros: tuple[int, ...]
    holders: tuple[tuple[int, ...], ...]
    index: Annotated[str, Meta(pattern=r"\Aint(32|64)\Z")]

    @classmethod
    def from_layout(cls, layout: Layout) -> Self:
        """Return the entry of a layout."""
        rows, nonzeros = tuple(layout.bounds.tolist()), tuple(layout.first_entries.tolist())
        return cls(rows, nonzeros, layout.holders, layout.index_dtype)

    def check(self, machines: int, rows: int) -> None:
        """Raise a ValueError if the entry does not fit this number of machines and rows."""
        bounds, entries, holders = np.array(self.rows), np.array(self.nonzeros), self.holders
        if not (bounds.dtype == entries.dtype == np.int64):
            raise ValueError("rows or nonzeros of parts are empty, or do not fit in int64")
        if bounds.size < 2 or entries.size != bounds.size or len(holders) != bounds.size - 1:
            raise ValueError(
                f"{bounds.size} bounds of rows and {entries.size} of nonzeros of parts, expected "
                f"{max(1, len(holders)) + 1} of each"
            )
        is_ascending = (np.diff(bounds) >= 1).all() and (np.diff(entries) >= 0).all()
        if bounds[0] != 0 or bounds[-1] != rows or entries[0] != 0 or not is_ascending:
            raise ValueError(
                f"rows or nonzeros of parts are not ascending from 0, or rows do not end at {rows}"
            )
        for part_holders in holders:
            if not part_holders or tuple(sorted(set(part_holders))) != part_holders:
                raise ValueError(
                    f"holders of a part are {shorten(part_holders)}, expected machines in "
                    "ascending order"
                )
            if not 1 <= part_holders[0] <= part_holders[-1] <= machines:
                raise ValueError(
                    f"holders of a part are {shorten(part_holders)}, expected 1 to {machines}"
                )


class ReplicaManifest(Manifest, frozen=True, kw_only=True, dict=True):
    """Description of a replicated store of a sparse X.

    Attributes
    ----------
    replicas : PartsEntry
        The parts of X and their holders.
    column_exponent : int
        Common exponent of the column maxima; see `quantise_maxima`.
    cells : ArrayEntry
        Numbers of rows and nonzeros before each cell of the parts, and their totals; see `Parts`.
    cell_count : int
        Number of cells.
    """

    replicas: PartsEntry
    column_exponent: Annotated[int, Meta(gt=-1100, lt=1100)]
    cells: ArrayEntry
    cell_count: int

    suffix: ClassVar[str] = ".csr"

    @cached_property
    def layout(self) -> Layout:
        """Parts of X and their layout in shard files."""
        entry = self.replicas
        bounds, entries = np.array(entry.rows), np.array(entry.nonzeros)
        return Layout(bounds, entries, entry.holders, self.machines, self.dtype, entry.index)

    @property
    def summary(self) -> str:
        """See `Manifest.summary`."""
        copies = f"{plural(self.copies, 'copy')} on {plural(self.machines, 'machine')}"
        return f"{self.rows}x{self.columns} {self.dtype}, {copies}"

    @cached_property
    def code(self) -> MDSCode:
        """Code with L = 1, in which every shard is X."""
        conditioning = Conditioning(1.0, 1.0, (1,), self.machines, complete=True)
        return MDSCode(np.ones((self.machines, 1)), "replicas", False, conditioning)

    @property
    def copies(self) -> int:
        """Smallest number of machines that hold a row, J; `extend` adds copies of some rows."""
        return min(map(len, self.replicas.holders))

    @property
    def nonzeros(self) -> int:
        """Number of stored entries of X."""
        return self.replicas.nonzeros[-1]

    @property
    def sufficient_machines(self) -> int:
        """Smallest n such that any n machines suffice for a step: N - J + 1."""
        return self.machines - self.copies + 1

    @cached_property
    def placement(self) -> ReplicaPlacement:
        """Placement of rows on machines."""
        return ReplicaPlacement(self.replicas.holders, self.replicas.rows, self.machines)

    @property
    def accurate_along(self) -> tuple[str, ...]:
        """See `Manifest.accurate_along`; both, because no code combines entries."""
        return "rows", "columns"

    @property
    def distribution(self) -> dict[str, Any]:
        """Distribution of X; see `Manifest.distribution`."""
        density = self.nonzeros / (self.rows * self.columns)
        return {"copies": self.copies, "density": density, "holders": self.replicas.holders}

    @property
    def rows_per_shard(self) -> int:
        """Number of rows of X, although a machine holds only some of them."""
        return self.rows

    @property
    def block_count(self) -> int:
        """Number of blocks."""
        return self.layout.block_count

    @property
    def block_bytes(self) -> int:
        """Maximum size of a block, which blocks of a small X do not reach."""
        return BLOCK_BYTES

    @property
    def checksums_shape(self) -> tuple[int, int]:
        """Shape of the file of checksums, (1, blocks), because copies have equal checksums."""
        return 1, self.block_count

    def bytes_of(self, machine: int) -> int:
        """See `Manifest.bytes_of`."""
        return self.layout.file_layout(machine).size

    def header_of(self, machine: int) -> bytes:
        """See `Manifest.header_of`."""
        return self.layout.file_layout(machine).header

    def rows_of_machine(self, machine: int) -> list[tuple[int, int]]:
        """See `Manifest.rows_of_machine`; the rows are those of X."""
        bounds = self.replicas.rows
        return [
            (bounds[part], bounds[part + 1]) for part in self.layout.parts_by_machine[machine - 1]
        ]

    @cached_property
    def block_placement(self) -> NDArray[np.bool_]:
        """Mask of the blocks that each machine holds, (N, blocks)."""
        return np.array([self.blocks_held_by(n) for n in range(1, self.machines + 1)])

    def blocks_held_by(self, machine: int) -> NDArray[np.bool_]:
        """See `Manifest.blocks_held_by`."""
        return self.layout.blocks_held_by(machine)

    def block_extent(self, block: int, machine: int) -> tuple[int, int]:
        """See `Manifest.block_extent`."""
        layout_block = self.layout.block(block)
        size = layout_block.stop - layout_block.start
        return self.layout.file_layout(machine).block_offset(layout_block), size

    def rows_of(self, block: int) -> tuple[int, int]:
        """See `Manifest.rows_of`; the rows of the part in X."""
        part = self.layout.block(block).part
        return self.replicas.rows[part], self.replicas.rows[part + 1]

    def arrays(self) -> list[tuple[ArrayEntry, tuple[int, ...], DTypeLike]]:
        """See `Manifest.arrays`: column maxima, and cells."""
        return [
            (self.column_maxima, (self.columns,), np.uint8),
            (self.cells, (2, self.cell_count + 1), np.int64),
        ]

    def convert_maxima(self, stored: NDArray[Any]) -> NDArray[np.float64]:
        """See `Manifest.convert_maxima`."""
        return dequantise_maxima(stored, self.column_exponent)

    def extend(self, seed: int) -> Self:
        """See `Manifest.extend`; the new machine has copies of some parts."""
        machine, parts = self.machines + 1, self.layout.part_count
        count = max(1, round(parts * self.copies / machine))
        copied_parts = set(np.linspace(0, parts - 1, count).astype(int).tolist())
        holders = tuple(
            (*part_holders, machine) if part in copied_parts else part_holders
            for part, part_holders in enumerate(self.replicas.holders)
        )
        layout = replace_fields(self.layout, holders=holders, machines=machine)
        entry = ShardEntry(self.file_of(machine), layout.file_layout(machine).size, "", ())
        shards = (*self.shards, entry)
        return replace(
            self, machines=machine, replicas=PartsEntry.from_layout(layout), shards=shards
        )

    def read_parts(self, directory: Path) -> tuple[Parts, ReplicaPlacement]:
        """See `Manifest.read_parts`; reads the file of cells.

        Raises
        ------
        DamagedStoreError
            Neither the file nor its copy matches the manifest, or the cells do not match the parts.
        """
        bounds, nonzeros = np.array(self.replicas.rows), np.array(self.replicas.nonzeros)
        first_rows, entries_before = read_array(directory, *self.arrays()[1])
        first_cells = np.searchsorted(first_rows, bounds)
        if (
            (np.diff(first_rows) < 1).any()
            or (np.diff(entries_before) < 0).any()
            or first_cells[-1] != first_rows.size - 1
            or (first_rows[first_cells] != bounds).any()
            or (entries_before[first_cells] != nonzeros).any()
        ):
            raise DamagedStoreError(f"{directory}: the cells are inconsistent with the parts")
        return Parts(first_cells, first_rows, entries_before), self.placement

    def check(self) -> None:
        """See `Manifest.check`."""
        self.replicas.check(self.machines, self.rows)
        check_field("cells", self.cells.file, CELLS)
        if not self.layout.part_count <= self.cell_count <= self.rows:
            parts = self.layout.part_count
            raise ValueError(f"{self.cell_count} cells, expected {parts} to {self.rows}")


def quantise_maxima(maxima: NDArray[np.float64]) -> tuple[NDArray[np.uint8], int]:
    """Return column maxima (largest absolute values) as powers of two, rounded up.

    Parameters
    ----------
    maxima : (r,) ndarray of float64
        Largest absolute value of each column.

    Returns
    -------
    levels : (r,) ndarray of uint8
        0 for zero, otherwise k for ``2 ** (exponent + 1 - k)``; 255 also for smaller ones.
    exponent : int

    Examples
    --------
    >>> levels, exponent = quantise_maxima(np.array([8.0, 3.0, 0.0]))
    >>> levels.tolist(), exponent
    ([1, 2, 0], 3)
    >>> dequantise_maxima(levels, exponent).tolist()
    [8.0, 4.0, 0.0]
    """
    mantissas, exponents = np.frexp(maxima)
    exponents = exponents - (mantissas <= 0.5)
    exponent = int(exponents.max())
    levels = np.clip(exponent + 1 - exponents, 1, 255) * (maxima > 0)
    return levels.astype(np.uint8), exponent


def dequantise_maxima(levels: NDArray[np.uint8], exponent: int) -> NDArray[np.float64]:
    """Return the column maxima from the result of `quantise_maxima`."""
    with np.errstate(over="ignore"):
        maxima = np.ldexp(1.0, exponent + 1 - levels.astype(np.int64))
    return np.minimum(maxima, np.finfo(np.float64).max) * (levels > 0)
