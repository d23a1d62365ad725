"""The manifest of a coded store: shards of R rows in a grid of blocks."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.code.conditioning import Conditioning, condition_numbers
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.store.coded.grid import Grid
from cec_mpi.store.files.npy import npy_header
from cec_mpi.store.format.manifest import (
    COLUMN_MAXIMA,
    ArrayEntry,
    ChecksumsEntry,
    Count,
    Manifest,
    MissingValues,
    RebuiltRows,
    ShardEntry,
    check_field,
)
from cec_mpi.text import plural, shorten

ROW_EXPONENTS = "row-exponents.npy"
# Range of sizes that are accepted; `make_grid` makes larger blocks than the minimum (unless a shard
# is one block), and smaller ones than the maximum.
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 10, 16 << 20
# The worst condition number is verified for all sets of L machines up to this number of sets and of
# multiplications, otherwise for the stated worst set.
_MAX_SETS, _MAX_MULTIPLICATIONS = 1_000, 10_000_000


class CodeEntry(Struct, frozen=True):
    """Entry of the manifest for the code; see `MDSCode`."""

    family: str
    systematic: bool
    conditioning: Conditioning
    generator: tuple[tuple[float, ...], ...]

    @classmethod
    def from_code(cls, code: MDSCode) -> Self:
        """Return the entry of a code."""
        generator = tuple(map(tuple, code.generator.tolist()))
        return cls(code.family, code.systematic, code.conditioning, generator)

    def check(self) -> None:
        """Raise a ValueError if the entry is inconsistent."""
        generator = np.array(self.generator, np.float64)
        if generator.ndim != 2 or not 1 <= generator.shape[1] <= generator.shape[0]:
            raise ValueError(
                f"a generator of shape {generator.shape}: expected (N, L), 1 <= L <= N"
            )
        if not np.isfinite(generator).all():
            raise ValueError("the generator is not finite")
        square = generator[: generator.shape[1]]
        is_systematic = np.array_equal(square, np.eye(len(square)))
        if self.family not in FAMILIES:
            raise ValueError(f"the code family is {shorten(self.family)}: unknown")
        if self.systematic and not is_systematic:
            raise ValueError("the generator is not systematic")
        _check_conditioning(self.conditioning, generator)


class GridEntry(Struct, frozen=True):
    """Entry of the manifest for the shape of blocks."""

    block_rows: int
    block_columns: int


class CodedManifest(Manifest, frozen=True, kw_only=True, dict=True, omit_defaults=True):
    """Description of a coded store.

    Attributes
    ----------
    recovery : int
        L.
    rows_per_shard : int
        R. X was padded with rows of zeros to L R rows.
    code_entry : CodeEntry
        Code, with the generator matrix.
    grid_entry : GridEntry
        Shape of blocks.
    shard_header : str
        Header of each shard file, as Latin-1 text.
    row_exponents : ArrayEntry or None
        Powers of two by which rows of X were divided; None if they were not.
    column_names : tuple of str
        Names of the columns of X; empty if the source had none.
    missing : MissingValues or None
        Treatment of missing values; None if they were not allowed.
    """

    recovery: Count
    rows_per_shard: Count
    code_entry: CodeEntry = field(name="code")
    grid_entry: GridEntry = field(name="grid")
    shard_header: str
    row_exponents: ArrayEntry | None
    column_names: tuple[str, ...] = ()
    missing: MissingValues | None = None

    compares_shards: ClassVar[bool] = True

    @classmethod
    def create(cls, code: MDSCode, grid: Grid, rows: int, dtype: str, **fields: Any) -> Self:
        """Return the manifest of a new store, without checksums."""
        header = shard_header(grid.rows, grid.columns, dtype)
        size = len(header) + grid.rows * grid.columns * np.dtype(dtype).itemsize
        return cls(
            rows=rows,
            columns=grid.columns,
            machines=code.machines,
            recovery=code.recovery,
            rows_per_shard=grid.rows,
            dtype=dtype,
            code_entry=CodeEntry.from_code(code),
            grid_entry=GridEntry(grid.block_rows, grid.block_columns),
            checksums=ChecksumsEntry.for_generation(1),
            column_maxima=ArrayEntry(COLUMN_MAXIMA),
            shard_header=header,
            shards=tuple(
                ShardEntry(cls.file_of(n), size, "", ()) for n in range(1, code.machines + 1)
            ),
            **fields,
        )

    @property
    def summary(self) -> str:
        """Description of the store in a few words."""
        return f"{self.rows}x{self.columns} {self.dtype}, {self.code.summary}"

    @cached_property
    def code(self) -> MDSCode:
        """Code, with the generator matrix, N and L."""
        entry = self.code_entry
        return MDSCode(entry.generator, entry.family, entry.systematic, entry.conditioning)

    @cached_property
    def grid(self) -> Grid:
        """The grid of blocks of a shard."""
        shape = self.grid_entry.block_rows, self.grid_entry.block_columns
        return Grid(self.rows_per_shard, self.columns, *shape)

    @property
    def block_count(self) -> int:
        """Number of blocks."""
        return self.grid.count

    @property
    def block_bytes(self) -> int:
        """Size of the largest block."""
        return self.grid.block_rows * self.grid.block_columns * self.itemsize

    def bytes_of(self, machine: int) -> int:
        """See `Manifest.bytes_of`; all files have the same size."""
        return self.entry_offset(self.rows_per_shard * self.columns)

    def header_of(self, machine: int) -> bytes:
        """See `Manifest.header_of`; all files have the same header."""
        return self.shard_header.encode("latin-1")

    def block_extent(self, block: int, machine: int) -> tuple[int, int]:
        """See `Manifest.block_extent`; the extent is the same in all files."""
        grid_block = self.grid.block(block)
        return self.entry_offset(grid_block.offset), grid_block.size * self.itemsize

    def entry_offset(self, index: int) -> int:
        """Return the offset of an entry in a shard file, in bytes."""
        return len(self.shard_header) + index * self.itemsize

    def rows_of(self, block: int) -> tuple[int, int]:
        """See `Manifest.rows_of`; the rows are those of a shard."""
        grid_block = self.grid.block(block)
        return grid_block.start, grid_block.stop

    def arrays(self) -> list[tuple[ArrayEntry, tuple[int, ...], DTypeLike]]:
        """See `Manifest.arrays`: column maxima, and exponents of rows."""
        arrays = super().arrays()
        if self.row_exponents is not None:
            arrays.append((self.row_exponents, (self.recovery, self.rows_per_shard), np.int16))
        return arrays

    def extend(self, seed: int) -> Self:
        """See `Manifest.extend`; adds a row to the generator matrix."""
        from cec_mpi.core.code.extension import add_row

        code = add_row(self.code, self.dtype, seed)
        code.check_precision(self.dtype)
        entry = ShardEntry(self.file_of(code.machines), self.shard_bytes, "", ())
        shards = (*self.shards, entry)
        return replace(
            self, machines=code.machines, code_entry=CodeEntry.from_code(code), shards=shards
        )

    def merge_rebuilt(
        self, old: tuple[RebuiltRows, ...], bounds: Mapping[int, float]
    ) -> tuple[RebuiltRows, ...]:
        """See `Manifest.merge_rebuilt`."""
        grid = self.grid
        row_bounds = np.zeros(grid.blocks_down)  # by row of the grid
        for rows in old:
            top, bottom = rows.start // grid.block_rows, -(-rows.stop // grid.block_rows)
            row_bounds[top:bottom] = rows.error_bound
        for number, bound in bounds.items():
            row = number // grid.blocks_across
            # A long row has several blocks, some of which may have been rebuilt before.
            row_bounds[row] = max(row_bounds[row], bound) if grid.blocks_across > 1 else bound
        rebuilt: list[RebuiltRows] = []
        for row in np.flatnonzero(row_bounds).tolist():
            block = grid.block(row * grid.blocks_across)
            start, bound = block.start, float(row_bounds[row])
            if rebuilt and rebuilt[-1].stop == start:
                previous = rebuilt.pop()
                start, bound = previous.start, max(previous.error_bound, bound)
            rebuilt.append(RebuiltRows(start, block.stop, bound))
        return tuple(rebuilt)

    def describe_lost(self, blocks: Iterable[int]) -> str:
        """See `Manifest.describe_lost`; names the lost rows of X."""
        rows, recovery = self.rows_per_shard, self.recovery
        text = (
            f"fewer than {recovery} of {plural(self.machines, 'shard')} are good at "
            f"{self.describe_rows(blocks)}"
        )
        if recovery == 1:
            return f"{text} of X"
        return (
            f"{text} of each of the {recovery} parts of X (row k of part p, counted from 0, is "
            f"row {rows} p + k of X)"
        )

    def check(self) -> None:
        """See `Manifest.check`."""
        self.code_entry.check()
        generator = self.code_entry.generator
        machines, recovery = len(generator), len(generator[0])
        check_field("machines", self.machines, machines)
        check_field("recovery", self.recovery, recovery)
        check_field("rows_per_shard", self.rows_per_shard, rows_per_shard(self.rows, recovery))
        check_field("shard_header", self.shard_header, self._expected_header())
        check_field(
            "row_exponents", (self.row_exponents or ArrayEntry(ROW_EXPONENTS)).file, ROW_EXPONENTS
        )
        grid = self.grid
        is_contiguous = grid.block_columns == grid.columns or grid.block_rows == 1
        fits = 1 <= grid.block_rows <= grid.rows and 1 <= grid.block_columns <= grid.columns
        is_too_small = fits and grid.count > 1 and self.block_bytes < _MIN_BLOCK_BYTES
        if not (is_contiguous and fits) or is_too_small or self.block_bytes > _MAX_BLOCK_BYTES:
            raise ValueError(
                f"grid has blocks of {grid.block_rows} x {grid.block_columns}, invalid "
                f"for shards of {grid.rows} x {grid.columns}"
            )
        for n, shard in enumerate(self.shards, start=1):
            end = 0
            for rows in shard.rebuilt:
                if not end <= rows.start < rows.stop <= grid.rows:
                    raise ValueError(f"rebuilt rows of shard {n} are invalid: {shorten(rows)}")
                end = rows.stop
        if self.column_names:
            check_field("number of column_names", len(self.column_names), self.columns)

    def _expected_header(self) -> str:
        """Return the expected header: the stated one if only its padding differs.

        Versions of NumPy pad headers differently.
        """
        try:
            file = io.BytesIO(self.shard_header.encode("latin-1"))
            version = np.lib.format.read_magic(file)
            shape, is_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
            trailing_bytes = file.read()
        except Exception:  # NumPy parses the header as Python, which can raise anything
            return shard_header(self.rows_per_shard, self.columns, self.dtype)
        expected_shape = (self.rows_per_shard, self.columns)
        expected_dtype = np.dtype(self.dtype).newbyteorder("<")
        expected = ((1, 0), expected_shape, False, expected_dtype, b"")
        if (version, shape, is_fortran_order, dtype, trailing_bytes) == expected:
            return self.shard_header
        return shard_header(*expected_shape, self.dtype)


def _check_conditioning(stated: Conditioning, generator: NDArray[np.float64]) -> None:
    machines, recovery = generator.shape
    worst_set = stated.worst_machines
    if len(set(worst_set)) != len(worst_set) or len(worst_set) != recovery:
        raise ValueError(f"machines {shorten(worst_set)}: expected {recovery} different ones")
    if not all(1 <= n <= machines for n in worst_set):
        raise ValueError(f"machines {shorten(worst_set)}: expected numbers from 1 to {machines}")
    set_count = math.comb(machines, recovery)
    if set_count <= _MAX_SETS and set_count * recovery**3 <= _MAX_MULTIPLICATIONS:
        sets = np.array(list(combinations(range(machines), recovery)))
    else:
        sets = np.array([worst_set]) - 1
    worst = float(condition_numbers(generator[sets]).max())
    tolerance = 1e-6 + 10 * recovery * float(np.finfo(np.float64).eps) * worst
    if not math.isclose(stated.worst, worst, rel_tol=tolerance):
        raise ValueError(f"worst condition number {stated.worst:g}: the generator has {worst:g}")
    measured = stated.measured
    is_possible = measured == set_count if stated.complete else 1 <= measured <= set_count
    if not (is_possible and 0 < stated.median <= stated.worst * (1 + tolerance)):
        raise ValueError(f"conditioning is inconsistent: {shorten(stated)}")


def rows_per_shard(rows: int, recovery: int) -> int:
    """Return R: the q rows of X are divided into L equal parts, the last one padded."""
    return -(-rows // recovery)


def shard_header(rows: int, columns: int, dtype: str) -> str:
    """Return the header of each shard file, as Latin-1 text."""
    return npy_header((rows, columns), np.dtype(dtype).newbyteorder("<")).decode("latin-1")
