"""A small in-memory store that represents a store of any size."""

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
from cec_mpi.store.format.manifest import (
    COLUMN_MAXIMA,
    DTYPES,
    ArrayEntry,
    ChecksumsEntry,
    Manifest,
    ShardEntry,
)
from cec_mpi.store.format.scaling import Scaling
from cec_mpi.store.reader import Store
from cec_mpi.store.replicas.layout import Layout
from cec_mpi.store.replicas.manifest import PartsEntry, ReplicaManifest
from cec_mpi.store.shard import Holding, Intervals, LoadCost, Shard, Verification
from cec_mpi.text import plural

if TYPE_CHECKING:
    from cec_mpi.store.devices import Device

MAX_ROWS = 1_000
"""Maximum number of rows of a simulated coded shard; each may represent several rows."""
_MAX_CELLS = 100_000
_INDEX_BYTES = 4
_MIN_SETS, _MAX_SETS, _MAX_WORK = 2, 32, 2e9  # measured sets of L machines; sets times L**3


class SimulatedCodedManifest(CodedManifest, frozen=True, kw_only=True, dict=True):
    """Manifest of a simulated coded store: few rows, but the file sizes of the shards of X."""

    def __post_init__(self) -> None:
        """Skip the check of sizes."""


class SimulatedReplicaManifest(ReplicaManifest, frozen=True, kw_only=True, dict=True):
    """Manifest of a simulated store of copies."""

    def __post_init__(self) -> None:
        """Skip the check of sizes."""


class SimulatedShard(Shard):
    """A shard in memory that records which of its rows were read.

    Parameters
    ----------
    path : Path
    rows : (R, r) ndarray
    row_bytes : float
        Bytes that each simulated row represents, which may be those of several real rows.
    read_rate : float
        Bytes per second.
    is_held : (R,) ndarray of bool, optional
        Rows that the machine holds, in a store of copies, where `rows` are all rows of X.
    """

    def __init__(
        self,
        path: Path,
        rows: NDArray[np.float64],
        row_bytes: float,
        read_rate: float,
        is_held: NDArray[np.bool_] | None = None,
    ) -> None:
        self.path, self.row_count = path, len(rows)
        self._rows, self._row_bytes, self._read_rate = rows, row_bytes, read_rate
        self._is_held = is_held
        self._is_read = np.zeros(len(rows), dtype=bool)

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """See `Shard.multiply`."""
        position = 0
        for start, stop in intervals:
            end = position + stop - start
            np.matmul(self._rows[start:stop], W.T, out=out[position:end])
            position = end

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """See `Shard.multiply_transposed`."""
        out.fill(0)
        position = 0
        for start, stop in intervals:
            end = position + stop - start
            out += self._rows[start:stop].T @ U[position:end]
            position = end

    def load(self, intervals: Intervals) -> LoadCost:
        """Mark rows as read; return the seconds and bytes for those that were not read before.

        Raises
        ------
        MachineError
            The machine does not hold the rows.
        """
        new_rows = 0
        for start, stop in intervals:
            if self._is_held is not None and not self._is_held[start:stop].all():
                raise MachineError(f"rows {start}..{stop - 1} are not on this machine")
            is_read = self._is_read[start:stop]
            new_rows += is_read.size - int(np.count_nonzero(is_read))
            is_read[:] = True
        size = round(new_rows * self._row_bytes)
        return LoadCost(size / self._read_rate, size) if new_rows else LoadCost()


class SimulatedStore(Store):
    """A small store in memory.

    Parameters
    ----------
    manifest : Manifest
        Manifest of the small matrix.
    shape : tuple of int
        Shape (q, r) of X.
    row_scale : float
        Number of rows of X that each row represents.
    row_bytes : float
        Bytes of a real row of a shard of X.
    read_rate : float
        Bytes per second that a machine reads from its shard.
    parts : (Parts, ReplicaPlacement), optional
        Parts of a store of copies, and their holders.
    seed : int
        Seed of the random X.

    Attributes
    ----------
    shape, row_scale, row_bytes
        See the parameters.
    column_scale : float
        Number of columns of X that each column represents.
    X : ndarray
        The small matrix, with the rows and columns of the manifest.
    """

    def __init__(
        self,
        manifest: Manifest,
        shape: tuple[int, int],
        row_scale: float,
        row_bytes: float,
        read_rate: float,
        parts: tuple[Parts, ReplicaPlacement] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(Path("simulated"), manifest)
        self.shape, self.row_bytes = shape, row_bytes
        self.row_scale, self.column_scale = row_scale, float(shape[1])
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
        verify: Verification = "first-read",
        copy: Path | None = None,
        device: Device | None = None,
    ) -> Shard:
        """Return a shard whose rows are all unread."""
        path = self.path / self.manifest.shards[machine - 1].file
        row_bytes = self.row_bytes * self.row_scale
        if self._parts is None:
            return SimulatedShard(path, self._shards[machine - 1], row_bytes, self._read_rate)
        is_held = np.zeros(self.manifest.rows, dtype=bool)
        for start, stop in self.manifest.rows_of_machine(machine):
            is_held[start:stop] = True
        return SimulatedShard(path, self.X, row_bytes, self._read_rate, is_held)

    def scaling(self) -> Scaling:
        """Return the largest absolute values of columns; rows are not scaled."""
        return Scaling(None, np.abs(self.X).max(axis=0))

    def parts(self) -> tuple[Parts, ReplicaPlacement] | None:
        """Return the parts of a store of copies, and their holders."""
        return self._parts


def make_coded_store(
    shape: tuple[int, int],
    machines: int,
    recovery: int,
    dtype: str,
    read_rate: float,
    code: MDSCode | None = None,
    seed: int = 0,
) -> SimulatedStore:
    """Return a small store that represents a coded store.

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
    seed : int

    Raises
    ------
    InputError
        A number is out of range.
    """
    _check_dimensions(shape, machines, dtype)
    if not 1 <= recovery <= machines:
        raise InputError(f"recovery {recovery}: expected 1 to {machines}, the number of machines")
    rows, columns = shape
    real_rows = rows_per_shard(rows, recovery)
    simulated_rows = min(real_rows, MAX_ROWS)
    # Rows of the small X; if all rows are simulated, the store pads it as a real store pads X.
    small_rows = rows if simulated_rows == real_rows else recovery * simulated_rows
    row_bytes = columns * np.dtype(dtype).itemsize
    size = real_rows * row_bytes
    manifest = SimulatedCodedManifest.create(
        code or _make_code(machines, recovery, seed),
        Grid(simulated_rows, 1, simulated_rows, 1),
        small_rows,
        dtype,
        rounded=False,
        row_exponents=None,
    )
    manifest = replace(manifest, shards=tuple(replace(s, bytes=size) for s in manifest.shards))
    return SimulatedStore(
        manifest,
        shape,
        row_scale=real_rows / simulated_rows,
        row_bytes=float(row_bytes),
        read_rate=read_rate,
        seed=seed,
    )


def make_copies_store(
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
    """Return a small store that represents a store of copies.

    Parameters
    ----------
    shape, machines, dtype, read_rate, seed
        See `make_coded_store`.
    copies : int
        Number of machines that hold each row, J.
    nonzeros : int
        Number of nonzeros of X.
    speeds : (N,) sequence of float, optional
        Speeds by which encode distributes parts.
    holders : Holders, optional
        Machines that hold each part, instead of those that encode would choose.

    Raises
    ------
    InputError
        A number is out of range.
    """
    _check_dimensions(shape, machines, dtype)
    rows, columns = shape
    if not 1 <= copies <= machines:
        raise InputError(f"copies {copies}: expected 1 to {machines}, the number of machines")
    if not 1 <= nonzeros <= rows * columns:
        raise InputError(f"{nonzeros} nonzeros: expected 1 to {rows * columns}, the size of X")
    if speeds is not None and len(speeds) != machines:
        raise InputError(
            f"found {plural(len(speeds), 'speed')}, expected {machines}, one for each machine"
        )
    if holders is None:
        part_count = min(rows, PARTS_PER_MACHINE * machines)
        holders = spread_copies(part_count, speeds or (1.0,) * machines, copies)
    part_count = len(holders)
    cells = max(1, min(CELLS_PER_PART, _MAX_CELLS // part_count, rows // part_count))
    simulated_rows = part_count * cells
    row_scale = rows / simulated_rows
    starts = np.arange(simulated_rows + 1)
    entries = np.round(starts * (nonzeros / simulated_rows)).astype(np.int64)
    parts = Parts(starts[::cells], starts, entries, ROW_OVERHEAD * row_scale)
    layout = Layout(starts[::cells], entries[::cells], holders, machines, dtype, "int32")
    row_bytes = csr_row_bytes(nonzeros / rows, dtype)
    shard_sizes = [
        round(len(parts_of_machine) * cells * row_scale * row_bytes)
        for parts_of_machine in layout.parts_by_machine
    ]
    manifest = SimulatedReplicaManifest(
        rows=simulated_rows,
        columns=1,
        dtype=dtype,
        rounded=False,
        checksums=ChecksumsEntry.for_generation(1),
        shards=tuple(
            ShardEntry(SimulatedReplicaManifest.file_of(n), size, "", ())
            for n, size in enumerate(shard_sizes, start=1)
        ),
        column_maxima=ArrayEntry(COLUMN_MAXIMA),
        machines=machines,
        replicas=PartsEntry.from_layout(layout),
        column_exponent=0,
        cells=ArrayEntry("cells"),
        cell_count=simulated_rows,
    )
    return SimulatedStore(
        manifest,
        shape,
        row_scale,
        row_bytes,
        read_rate,
        parts=(parts, manifest.placement),
        seed=seed,
    )


def csr_row_bytes(nonzeros: float, dtype: str) -> float:
    """Return the bytes of a CSR row with this number of nonzeros and 32-bit indices."""
    return nonzeros * (np.dtype(dtype).itemsize + _INDEX_BYTES) + _INDEX_BYTES


def _check_dimensions(shape: tuple[int, int], machines: int, dtype: str) -> None:
    rows, columns = shape
    if rows < 1 or columns < 1:
        raise InputError(f"X with {rows} rows and {columns} columns: expected at least 1 of each")
    if machines < 1:
        raise InputError(f"machines {machines}: expected at least 1")
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r}: expected {' or '.join(DTYPES)}")


def _make_code(machines: int, recovery: int, seed: int) -> MDSCode:
    """Return a code with conditioning from few sets of L machines; times do not depend on it."""
    generator = make_generator("orthonormal", machines, recovery, seed=seed)
    count = max(_MIN_SETS, min(_MAX_SETS, int(_MAX_WORK / recovery**3)))
    sets = list(sample_subsets(machines, recovery, count))
    conditions = condition_numbers(generator[np.array(sets)])
    worst = int(conditions.argmax())
    conditioning = Conditioning(
        float(np.median(conditions)),
        float(conditions[worst]),
        tuple(n + 1 for n in sets[worst]),
        count,
        complete=False,
    )
    return MDSCode(generator, "orthonormal", conditioning=conditioning)
