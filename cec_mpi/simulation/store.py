"""A store in memory with few rows, which stands for one of any size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from cec_mpi.core.code.conditioning import Conditioning, condition_numbers, sample_subsets
from cec_mpi.core.code.families import make_generator
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.replicas.holders import Holders, spread_copies
from cec_mpi.core.replicas.parts import CELLS, PARTS, ROW_COST, Parts
from cec_mpi.errors import InputError, MachineError
from cec_mpi.store.coded.grid import Grid
from cec_mpi.store.coded.manifest import CodedManifest, rows_per_shard
from cec_mpi.store.copies.layout import Layout
from cec_mpi.store.copies.manifest import CopiesManifest, PartsEntry
from cec_mpi.store.format.manifest import (
    COLUMN_SIZES,
    DTYPES,
    ArrayEntry,
    Manifest,
    ShardEntry,
    SumsEntry,
)
from cec_mpi.store.format.scaling import Scaling
from cec_mpi.store.reader import Store
from cec_mpi.store.shard import Holding, Intervals, Loaded, Shard, Verify

MOST_ROWS = 1_000
"""Rows of a shard that are simulated; with more, each stands for several."""
_MOST_CELLS = 100_000
_INDEX_BYTES = 4
_FEWEST, _MOST, _WORK = 2, 32, 2e9  # sets of L machines, and times L**3


class SimulatedCode(CodedManifest, frozen=True, kw_only=True, dict=True):
    """The manifest of a store of a code with few rows, which has the sizes of shards of X."""

    def __post_init__(self) -> None:
        """Accept sizes that do not fit."""


class SimulatedCopies(CopiesManifest, frozen=True, kw_only=True, dict=True):
    """That of a store of copies."""

    def __post_init__(self) -> None:
        """Accept sizes that do not fit."""


class SimulatedShard(Shard):
    """Rows in memory, of which it is known which were read.

    Parameters
    ----------
    path : Path
    rows : (R, r) ndarray
    row_bytes : float
        Bytes that each of them stands for.
    disk : float
        Bytes per second.
    held : (R,) ndarray of bool, optional
        If these are all rows of X, those that the machine holds: as in a store of replicas.
    """

    def __init__(
        self,
        path: Path,
        rows: NDArray[np.float64],
        row_bytes: float,
        disk: float,
        held: NDArray[np.bool_] | None = None,
    ) -> None:
        self.path, self.count = path, len(rows)
        self._rows, self._row_bytes, self._disk, self._held = rows, row_bytes, disk, held
        self._read = np.zeros(len(rows), dtype=bool)

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """As `Shard.multiply`."""
        done = 0
        for start, stop in intervals:
            end = done + stop - start
            np.matmul(self._rows[start:stop], W.T, out=out[done:end])
            done = end

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """As `Shard.multiply_transposed`."""
        out.fill(0)
        done = 0
        for start, stop in intervals:
            end = done + stop - start
            out += self._rows[start:stop].T @ U[done:end]
            done = end

    def load(self, intervals: Intervals) -> Loaded:
        """Return what is read for the first time.

        Raises
        ------
        MachineError
            Rows that the machine does not hold.
        """
        fresh = 0
        for start, stop in intervals:
            if self._held is not None and not self._held[start:stop].all():
                raise MachineError(f"rows {start}..{stop - 1} are not on this machine")
            some = self._read[start:stop]
            fresh += some.size - int(np.count_nonzero(some))
            some[:] = True
        size = round(fresh * self._row_bytes)
        return Loaded(size / self._disk, size) if fresh else Loaded()


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
    tall : float
        Rows of X that a row stands for.
    row_bytes : float
        Bytes of a row of a shard of X.
    disk : float
        Bytes per second with which a machine reads its shards.
    parts : Parts, optional
        Those of replicas.
    seed : int
        Of the numbers of X.

    Attributes
    ----------
    shape, tall, row_bytes
        As given.
    wide : float
        Columns of X that a column stands for.
    X : (q, r) ndarray
        The few rows.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        shape: tuple[int, int],
        tall: float,
        row_bytes: float,
        disk: float,
        parts: Parts | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(path, manifest)
        self.shape, self.tall, self.wide, self.row_bytes = shape, tall, float(shape[1]), row_bytes
        self._disk, self._parts = disk, parts
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
    ) -> Shard:
        """Return a shard of which nothing was read yet."""
        path = self.path / self.manifest.shards[machine - 1].file
        given = self.row_bytes * self.tall, self._disk
        if self._parts is not None:
            held = np.zeros(self.manifest.rows, dtype=bool)
            for start, stop in self.manifest.rows_of_machine(machine):
                held[start:stop] = True
            return SimulatedShard(path, self.X, *given, held)
        return SimulatedShard(path, self._shards[machine - 1], *given)

    def scaling(self) -> Scaling:
        """Return the sizes of columns; rows are not scaled."""
        return Scaling(None, np.abs(self.X).max(axis=0))

    def parts(self) -> Parts | None:
        """Return the parts of a store of replicas."""
        return self._parts


def coded_store(
    shape: tuple[int, int],
    machines: int,
    recovery: int,
    dtype: str,
    disk: float,
    code: MDSCode | None = None,
    most_rows: int = MOST_ROWS,
    seed: int = 0,
) -> SimulatedStore:
    """Return a store that stands for one that encode makes with a code.

    Parameters
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    machines, recovery : int
        N and L.
    dtype : str
    disk : float
        Bytes per second.
    code : MDSCode, optional
        By default a random orthonormal one.
    most_rows : int
        Rows of each shard.
    seed : int

    Raises
    ------
    InputError
        A number is out of range.
    """
    itemsize = _checked(shape, machines, dtype)
    if not 1 <= recovery <= machines:
        raise InputError(f"recovery {recovery}: expected 1 to {machines}, the number of machines")
    rows, columns = shape
    real = rows_per_shard(rows, recovery)
    few = min(real, most_rows)
    # X is padded as the real one is, where all its rows are simulated.
    kept = rows if few == real else recovery * few
    size = real * columns * itemsize
    manifest = SimulatedCode.of(
        code or _some_code(machines, recovery, seed),
        Grid(few, 1, few, 1),
        kept,
        dtype,
        rounded=False,
        row_exponents=None,
    )
    manifest = replace(manifest, shards=tuple(replace(s, bytes=size) for s in manifest.shards))
    given = shape, real / few, float(columns * itemsize), disk
    return SimulatedStore(Path("simulated"), manifest, *given, seed=seed)


def replicated_store(
    shape: tuple[int, int],
    machines: int,
    copies: int,
    nonzeros: int,
    dtype: str,
    disk: float,
    speeds: Sequence[float] | None = None,
    holders: Holders | None = None,
    seed: int = 0,
) -> SimulatedStore:
    """Return a store that stands for one of replicas.

    Parameters
    ----------
    shape, machines, dtype, disk, seed
        See `coded_store`.
    copies : int
        Machines that hold each row, J.
    nonzeros : int
        Nonzeros of X.
    speeds : (N,) sequence of float, optional
        By which encode gave machines more or fewer parts.
    holders : Holders, optional
        The machines of each part, instead.

    Raises
    ------
    InputError
        A number is out of range.
    """
    _checked(shape, machines, dtype)
    rows, columns = shape
    if not 1 <= copies <= machines:
        raise InputError(f"copies {copies}: expected 1 to {machines}, the number of machines")
    if not 1 <= nonzeros <= rows * columns:
        raise InputError(f"{nonzeros} nonzeros: expected 1 to {rows * columns}, the numbers of X")
    if speeds is not None and len(speeds) != machines:
        raise InputError(f"{len(speeds)} speeds, but {machines} machines: expected one for each")
    if holders is None:
        count = min(rows, PARTS * machines)
        holders = spread_copies(count, speeds or (1.0,) * machines, copies)
    count = len(holders)
    cells = max(1, min(CELLS, _MOST_CELLS // count, rows // count))
    few = count * cells
    tall = rows / few
    starts = np.arange(few + 1)
    entries = np.round(starts * (nonzeros / few)).astype(np.int64)
    parts = Parts(starts[::cells], starts, entries, ROW_COST * tall)
    layout = Layout(starts[::cells], entries[::cells], holders, machines, dtype, "int32")
    row_bytes = bytes_of_row(nonzeros / rows, dtype)
    held = [round(len(mine) * cells * tall * row_bytes) for mine in layout.held]
    manifest = SimulatedCopies(
        rows=few,
        columns=1,
        dtype=dtype,
        rounded=False,
        checksums=SumsEntry.of(1),
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
    given = shape, tall, row_bytes, disk
    return SimulatedStore(Path("simulated"), manifest, *given, parts, seed)


def bytes_of_row(nonzeros: float, dtype: str) -> float:
    """Return the bytes of a row of CSR with this number of nonzeros, and indices of 32 bits."""
    return nonzeros * (np.dtype(dtype).itemsize + _INDEX_BYTES) + _INDEX_BYTES


def _checked(shape: tuple[int, int], machines: int, dtype: str) -> int:
    """Check what all stores have; returns the bytes of a number."""
    rows, columns = shape
    if rows < 1 or columns < 1:
        raise InputError(f"X with {rows} rows and {columns} columns: expected at least 1 of each")
    if machines < 1:
        raise InputError(f"machines {machines}: expected at least 1")
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r}: expected {' or '.join(DTYPES)}")
    return np.dtype(dtype).itemsize


def _some_code(machines: int, recovery: int, seed: int) -> MDSCode:
    """Return a code with few sets of machines measured: times do not depend on it."""
    generator = make_generator("orthonormal", machines, recovery, seed=seed)
    count = max(_FEWEST, min(_MOST, int(_WORK / recovery**3)))
    sets = list(sample_subsets(machines, recovery, count))
    numbers = condition_numbers(generator[np.array(sets)])
    worst = int(numbers.argmax())
    machines_of_worst = tuple(n + 1 for n in sets[worst])
    given = float(np.median(numbers)), float(numbers[worst]), machines_of_worst, count
    return MDSCode(generator, "orthonormal", conditioning=Conditioning(*given, complete=False))
