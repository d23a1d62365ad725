"""A small store in memory that represents one of any size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from cec_mpi.core.code.conditioning import Conditioning, condition_numbers, sample_subsets
from cec_mpi.core.code.families import make_generator
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.replicas.holders import Holders, spread_copies
from cec_mpi.core.replicas.parts import CELLS_PER_PART, PARTS_PER_MACHINE, ROW_OVERHEAD, Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InputError, MachineError
from cec_mpi.store.coded.grid import Grid
from cec_mpi.store.coded.manifest import CodedManifest, rows_per_shard
from cec_mpi.store.copies.layout import Layout
from cec_mpi.store.copies.manifest import CopiesManifest, PartsEntry
from cec_mpi.store.format.manifest import (
    COLUMN_SIZES,
    DTYPES,
    ArrayEntry,
    ChecksumsEntry,
    Manifest,
    ShardEntry,
)
from cec_mpi.store.format.scaling import Scaling
from cec_mpi.store.reader import Store
from cec_mpi.store.shard import Holding, Intervals, Loaded, Shard, Verify

if TYPE_CHECKING:
    from cec_mpi.store.devices import Device

MOST_ROWS = 1_000
"""Most rows of a simulated shard; each may represent several rows."""
_MOST_CELLS = 100_000
_INDEX_BYTES = 4
_FEWEST, _MOST, _WORK = 2, 32, 2e9  # measured sets of L machines; sets times L**3


class SimulatedCode(CodedManifest, frozen=True, kw_only=True, dict=True):
    """The manifest of a store of a code with few rows, which has the sizes of shards of X."""

    def __post_init__(self) -> None:
        """Accept sizes that do not fit."""


class SimulatedCopies(CopiesManifest, frozen=True, kw_only=True, dict=True):
    """The manifest of a simulated store of copies."""

    def __post_init__(self) -> None:
        """Accept sizes that do not fit."""


class SimulatedShard(Shard):
    """Rows in memory that record which of them were read.

    Parameters
    ----------
    path : Path
    rows : (R, r) ndarray
    row_bytes : float
        Bytes that each row represents.
    read_rate : float
        Bytes per second.
    held : (R,) ndarray of bool, optional
        In a store of copies, where `rows` are all of X, the rows that the machine holds.
    """

    def __init__(
        self,
        path: Path,
        rows: NDArray[np.float64],
        row_bytes: float,
        read_rate: float,
        held: NDArray[np.bool_] | None = None,
    ) -> None:
        self.path, self.count = path, len(rows)
        self._rows, self._row_bytes, self._read_rate, self._held = rows, row_bytes, read_rate, held
        self._read = np.zeros(len(rows), dtype=bool)

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """See `Shard.multiply`."""
        done = 0
        for start, stop in intervals:
            end = done + stop - start
            np.matmul(self._rows[start:stop], W.T, out=out[done:end])
            done = end

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """See `Shard.multiply_transposed`."""
        out.fill(0)
        done = 0
        for start, stop in intervals:
            end = done + stop - start
            out += self._rows[start:stop].T @ U[done:end]
            done = end

    def load(self, intervals: Intervals) -> Loaded:
        """Mark rows as read; return the seconds and bytes of rows not read before.

        Raises
        ------
        MachineError
            If the machine does not hold the rows.
        """
        new_rows = 0
        for start, stop in intervals:
            if self._held is not None and not self._held[start:stop].all():
                raise MachineError(f"rows {start}..{stop - 1} are not on this machine")
            is_read = self._read[start:stop]
            new_rows += is_read.size - int(np.count_nonzero(is_read))
            is_read[:] = True
        size = round(new_rows * self._row_bytes)
        return Loaded(size / self._read_rate, size) if new_rows else Loaded()


class SimulatedStore(Store):
    """A store in memory.

    Parameters
    ----------
    path : Path
        Its name; nothing is read.
    manifest : Manifest
        That of the few rows.
    shape : tuple of int
        Shape (q, r) of X.
    row_scale : float
        Rows of X that a row stands for.
    row_bytes : float
        Bytes of a row of a shard of X.
    read_rate : float
        Bytes per second that a machine reads from its shard.
    parts : (Parts, ReplicaPlacement), optional
        The parts of a store of copies, and their holders.
    seed : int
        Seed of the random X.

    Attributes
    ----------
    shape, tall, row_bytes
        As given.
    column_scale : float
        Columns of X that a column stands for.
    X : (q, r) ndarray
        The few rows.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        shape: tuple[int, int],
        row_scale: float,
        row_bytes: float,
        read_rate: float,
        parts: tuple[Parts, ReplicaPlacement] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(path, manifest)
        self.shape, self.row_scale, self.column_scale, self.row_bytes = (
            shape,
            row_scale,
            float(shape[1]),
            row_bytes,
        )
        self._read_rate, self._parts = read_rate, parts
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((manifest.rows, manifest.columns))
        self._shards = [self.X]
        if parts is None:
            recovery, rows = manifest.code.recovery, manifest.rows_per_shard
            padded = np.zeros((recovery * rows, manifest.columns))
            padded[: manifest.rows] = self.X
            coded = manifest.code.generator @ padded.reshape(recovery, -1)
            self._shards = list(coded.reshape(-1, rows, manifest.columns))

    def open_shard(
        self,
        machine: int,
        holding: Holding = "mmap",
        verify: Verify = "first-read",
        copy: Path | None = None,
        device: Device | None = None,
    ) -> Shard:
        """Return a shard with no rows read yet."""
        path = self.path / self.manifest.shards[machine - 1].file
        given = self.row_bytes * self.row_scale, self._read_rate
        if self._parts is not None:
            held = np.zeros(self.manifest.rows, dtype=bool)
            for start, stop in self.manifest.rows_of_machine(machine):
                held[start:stop] = True
            return SimulatedShard(path, self.X, *given, held)
        return SimulatedShard(path, self._shards[machine - 1], *given)

    def scaling(self) -> Scaling:
        """Return the sizes of columns; rows are not scaled."""
        return Scaling(None, np.abs(self.X).max(axis=0))

    def parts(self) -> tuple[Parts, ReplicaPlacement] | None:
        """Return the parts of a store of copies, and their holders."""
        return self._parts


def coded_store(
    shape: tuple[int, int],
    machines: int,
    recovery: int,
    dtype: str,
    read_rate: float,
    code: MDSCode | None = None,
    most_rows: int = MOST_ROWS,
    seed: int = 0,
) -> SimulatedStore:
    """Return a store that represents a coded store.

    Parameters
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    machines, recovery : int
        N and L.
    dtype : str
    read_rate : float
        Bytes per second.
    code : MDSCode, optional
        By default a random orthonormal code.
    most_rows : int
        Most rows of each simulated shard.
    seed : int

    Raises
    ------
    InputError
        A number is out of range.
    """
    itemsize = _check(shape, machines, dtype)
    if not 1 <= recovery <= machines:
        raise InputError(f"recovery {recovery}: expected 1 to {machines}, the number of machines")
    rows, columns = shape
    real = rows_per_shard(rows, recovery)
    few = min(real, most_rows)
    # If all rows are simulated, X is padded like the real one.
    kept = rows if few == real else recovery * few
    size = real * columns * itemsize
    manifest = SimulatedCode.of(
        code or _make_code(machines, recovery, seed),
        Grid(few, 1, few, 1),
        kept,
        dtype,
        rounded=False,
        row_exponents=None,
    )
    manifest = replace(manifest, shards=tuple(replace(s, bytes=size) for s in manifest.shards))
    given = shape, real / few, float(columns * itemsize), read_rate
    return SimulatedStore(Path("simulated"), manifest, *given, seed=seed)


def copies_store(
    shape: tuple[int, int],
    machines: int,
    copies: int,
    nonzeros: int,
    dtype: str,
    read_rate: float,
    speeds: Sequence[float] | None = None,
    holders: Holders | None = None,
    seed: int = 0,
) -> SimulatedStore:
    """Return a store that represents a store of copies.

    Parameters
    ----------
    shape, machines, dtype, read_rate, seed
        See `coded_store`.
    copies : int
        Machines that hold each row, J.
    nonzeros : int
        Nonzeros of X.
    speeds : (N,) sequence of float, optional
        Speeds by which encode distributes parts.
    holders : Holders, optional
        Instead, the machines that hold each part.

    Raises
    ------
    InputError
        A number is out of range.
    """
    _check(shape, machines, dtype)
    rows, columns = shape
    if not 1 <= copies <= machines:
        raise InputError(f"copies {copies}: expected 1 to {machines}, the number of machines")
    if not 1 <= nonzeros <= rows * columns:
        raise InputError(f"{nonzeros} nonzeros: expected 1 to {rows * columns}, the size of X")
    if speeds is not None and len(speeds) != machines:
        raise InputError(f"{len(speeds)} speeds, but {machines} machines: expected one for each")
    if holders is None:
        count = min(rows, PARTS_PER_MACHINE * machines)
        holders = spread_copies(count, speeds or (1.0,) * machines, copies)
    count = len(holders)
    cells = max(1, min(CELLS_PER_PART, _MOST_CELLS // count, rows // count))
    few = count * cells
    row_scale = rows / few
    starts = np.arange(few + 1)
    entries = np.round(starts * (nonzeros / few)).astype(np.int64)
    parts = Parts(starts[::cells], starts, entries, ROW_OVERHEAD * row_scale)
    layout = Layout(starts[::cells], entries[::cells], holders, machines, dtype, "int32")
    row_bytes = csr_row_bytes(nonzeros / rows, dtype)
    held = [
        round(len(parts_of_machine) * cells * row_scale * row_bytes)
        for parts_of_machine in layout.held
    ]
    manifest = SimulatedCopies(
        rows=few,
        columns=1,
        dtype=dtype,
        rounded=False,
        checksums=ChecksumsEntry.of(1),
        shards=tuple(
            ShardEntry(SimulatedCopies.file_of(n), size, "", ())
            for n, size in enumerate(held, start=1)
        ),
        column_sizes=ArrayEntry(COLUMN_SIZES),
        machines=machines,
        replicas=PartsEntry.of(layout),
        column_exponent=0,
        cells=ArrayEntry("cells"),
        cell_count=few,
    )
    given = shape, row_scale, row_bytes, read_rate
    return SimulatedStore(Path("simulated"), manifest, *given, (parts, manifest.placement), seed)


def csr_row_bytes(nonzeros: float, dtype: str) -> float:
    """Return the bytes of a CSR row with this number of nonzeros and 32-bit indices."""
    return nonzeros * (np.dtype(dtype).itemsize + _INDEX_BYTES) + _INDEX_BYTES


def _check(shape: tuple[int, int], machines: int, dtype: str) -> int:
    """Check shape, machines and dtype; return the item size in bytes."""
    rows, columns = shape
    if rows < 1 or columns < 1:
        raise InputError(f"X with {rows} rows and {columns} columns: expected at least 1 of each")
    if machines < 1:
        raise InputError(f"machines {machines}: expected at least 1")
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r}: expected {' or '.join(DTYPES)}")
    return np.dtype(dtype).itemsize


def _make_code(machines: int, recovery: int, seed: int) -> MDSCode:
    """Return a code with few measured sets, since simulated times do not depend on it."""
    generator = make_generator("orthonormal", machines, recovery, seed=seed)
    count = max(_FEWEST, min(_MOST, int(_WORK / recovery**3)))
    sets = list(sample_subsets(machines, recovery, count))
    numbers = condition_numbers(generator[np.array(sets)])
    worst = int(numbers.argmax())
    machines_of_worst = tuple(n + 1 for n in sets[worst])
    given = float(np.median(numbers)), float(numbers[worst]), machines_of_worst, count
    return MDSCode(generator, "orthonormal", conditioning=Conditioning(*given, complete=False))
