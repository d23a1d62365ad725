"""The parts of a sparse X in the shard file of a machine; blocks are verified on first read."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, vstack

from cec_mpi.core.replicas.parts import ROW_OVERHEAD
from cec_mpi.errors import DamagedStoreError, MachineError
from cec_mpi.store.file_shard import FileShard
from cec_mpi.store.replicas.layout import INDICES, POINTERS, VALUES, group_adjacent
from cec_mpi.store.replicas.manifest import ReplicaManifest
from cec_mpi.store.shard import NOTHING_LOADED, Holding, Intervals, LoadCost, Verification

_MAX_ENTRIES = 2**31 - 1  # of a matrix with 32-bit pointers


class _RowSlab(NamedTuple):
    """A CSR matrix of consecutive rows, and its position among the multiplied rows."""

    start: int
    stop: int
    matrix: Any


class SparseShard(FileShard):
    """The rows of X in the file of one machine, read-only; see `FileShard`.

    Rows are numbered as in X. Only rows of parts that the machine holds are available.
    """

    def __init__(
        self,
        path: Path,
        store: Path,
        manifest: ReplicaManifest,
        machine: int,
        holding: Holding,
        verify: Verification,
    ) -> None:
        super().__init__(path, store, manifest, machine, holding, verify)
        layout = self._layout = manifest.layout
        self._columns = manifest.columns
        file = self._file_layout = layout.file_layout(machine)
        sections = zip(file.section_offsets, file.entry_counts, layout.dtypes, strict=True)
        self._sections: list[NDArray[Any]] = [self.array_at(*section) for section in sections]
        self._slab_cache: tuple[Intervals, Any, list[_RowSlab]] = (), None, []
        self._transpose_cache: tuple[object, Any] = None, None

    @property
    def rows(self) -> csr_array:
        """All rows that the machine holds; only those that were loaded are valid."""
        intervals = self._manifest.rows_of_machine(self.machine)
        dtype = np.dtype(self._layout.dtype)
        matrices = [slab.matrix for slab in self._make_row_slabs(intervals, dtype)]
        return vstack(matrices, format="csr") if matrices else csr_array((0, self._columns))

    def sample_rows(self, size: int, row_bytes: int) -> tuple[int, int, int]:
        """See `Shard.sample_rows`; the rows are of one part."""
        if not self._file_layout.parts:
            return 0, 0, 1
        part = self._file_layout.parts[0]
        start, stop = self._layout.bounds[part : part + 2].tolist()
        row_bytes = -(-int(self._layout.sizes[part].sum()) // (stop - start))
        return start, start + max(1, min(stop - start, size // row_bytes)), row_bytes

    def cost(self, intervals: Intervals) -> float:
        """See `Shard.cost`; these rows must be loaded."""
        entries, pointers = 0, self._sections[POINTERS]
        for part, start, stop in self._split_by_part(intervals):
            first = self._file_layout.first_entry(part, POINTERS)
            entries += int(pointers[first + stop]) - int(pointers[first + start])
        mean = self._layout.first_entries[-1] / self.row_count + ROW_OVERHEAD
        return float((entries + ROW_OVERHEAD * super().cost(intervals)) / mean)

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """See `Shard.multiply`."""
        is_single = len(W) == 1
        vectors = W[0] if is_single else np.ascontiguousarray(W.T)
        for start, stop, matrix in self._row_slabs(intervals, W.dtype):
            if is_single:
                out[start:stop, 0] = matrix @ vectors
            else:
                out[start:stop] = matrix @ vectors

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """See `Shard.multiply_transposed`; one product with the matrix of all rows."""
        matrix = self._transpose(self._row_slabs(intervals, U.dtype))
        if U.shape[1] == 1:
            out[:, 0] = matrix @ U[:, 0]
        else:
            out[:] = matrix @ U

    def _transpose(self, slabs: list[_RowSlab]) -> Any:
        """Return the transpose of these rows, cached until other rows are requested."""
        if self._transpose_cache[0] is not slabs:
            self._transpose_cache = slabs, _stack_transposed([slab.matrix for slab in slabs])
        return self._transpose_cache[1]

    def load(self, intervals: Intervals) -> LoadCost:
        """Load these rows, and verify them if `verify` requests it.

        Raises
        ------
        DamagedStoreError
            Rows do not match their checksum, or have invalid row pointers or column indices. The
            message names the file and the rows.
        MachineError
            The machine does not hold some of the rows.
        """
        begin, bytes_read, layout = time.perf_counter(), 0, self._layout
        for part, start, stop in self._split_by_part(intervals):
            bytes_read += self._load_section(part, POINTERS, start, stop + 1)
            first = self._file_layout.first_entry(part, POINTERS)
            pointers = self._sections[POINTERS][first : first + stop + 1]
            entries = int(layout.first_entries[part + 1] - layout.first_entries[part])
            low, high = int(pointers[start]), int(pointers[stop])
            if not 0 <= low <= high <= entries or (np.diff(pointers[start:]) < 0).any():
                problem = "have row pointers that are out of range or not ascending"
                raise self._part_damage_error(part, problem)
            for section in (VALUES, INDICES):
                bytes_read += self._load_section(part, section, low, high)
            first = self._file_layout.first_entry(part, INDICES)
            indices = self._sections[INDICES][first + low : first + high]
            if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < self._columns:
                raise self._part_damage_error(part, "have column indices out of range")
        return LoadCost(time.perf_counter() - begin, bytes_read) if bytes_read else NOTHING_LOADED

    def _split_by_part(self, intervals: Intervals) -> list[tuple[int, int, int]]:
        """Return runs of rows ``(part, start, stop)``; see `FileLayout.split_by_part`."""
        try:
            return [run for rows in intervals for run in self._file_layout.split_by_part(*rows)]
        except KeyError as error:
            raise MachineError(
                f"machine {self.machine} does not hold part {error.args[0] + 1}, whose rows were "
                "requested"
            ) from None

    def _load_section(self, part: int, section: int, start: int, stop: int) -> int:
        """Load the blocks with these entries of a part, and return the number of bytes."""
        size = self._layout.itemsizes[section]
        blocks = self._layout.overlapping_blocks(part, section, start * size, stop * size)
        return self.load_blocks(block.number for block in blocks)

    def _part_damage_error(self, part: int, problem: str) -> DamagedStoreError:
        return self.damage_error(int(self._layout.first_blocks[3 * part]), problem)

    def _row_slabs(self, intervals: Intervals, dtype: np.dtype[Any]) -> list[_RowSlab]:
        """Return CSR matrices of these rows, cached until other rows are requested."""
        cached_intervals, cached_dtype, slabs = self._slab_cache
        if cached_intervals is not intervals or cached_dtype != dtype:
            slabs = list(self._make_row_slabs(intervals, dtype))
            self._slab_cache = intervals, dtype, slabs
        return slabs

    def _make_row_slabs(self, intervals: Intervals, dtype: np.dtype[Any]) -> Iterable[_RowSlab]:
        """Yield CSR matrices of adjacent rows, with views of the file if it has this dtype."""
        values, indices, pointers = self._sections
        position, part_rows = 0, np.diff(self._layout.bounds)
        groups = group_adjacent(self._split_by_part(intervals), part_rows)
        for runs in self._split_large_groups(groups):
            indptr, begin, end = [np.zeros(1, np.int64)], 0, 0
            for part, start, stop in runs:
                entry = self._file_layout.first_entry(part, VALUES)
                pointer = self._file_layout.first_entry(part, POINTERS)
                run_pointers = pointers[pointer + start : pointer + stop + 1].astype(np.int64)
                if len(indptr) == 1:
                    begin = entry + int(run_pointers[0])
                end = entry + int(run_pointers[-1])
                indptr.append(run_pointers[1:] + (entry - begin))
            height = sum(map(len, indptr)) - 1
            matrix = csr_array((height, self._columns), dtype=dtype)
            # The constructor would copy views of less than half of an array.
            matrix.data = values[begin:end].astype(dtype, copy=False)
            matrix.indices = indices[begin:end]
            matrix.indptr = np.concatenate(indptr).astype(self._layout.index_dtype)
            yield _RowSlab(position, position + height, matrix)
            position += height

    def _split_large_groups(
        self, groups: list[list[tuple[int, int, int]]]
    ) -> Iterable[list[tuple[int, int, int]]]:
        """Yield the groups of runs; those with too many entries for 32-bit pointers are split."""
        entries = np.diff(self._layout.first_entries)
        for runs in groups:
            if sum(int(entries[part]) for part, *_ in runs) <= _MAX_ENTRIES:
                yield runs
            else:
                yield from ([run] for run in runs)


def _stack_transposed(matrices: list[Any]) -> Any:
    """Return the transpose of the stacked matrices."""
    rows = matrices[0] if len(matrices) == 1 else vstack(matrices, format="csr")
    transposed = csc_array(rows.shape[::-1], dtype=rows.dtype)
    transposed.data, transposed.indices, transposed.indptr = rows.data, rows.indices, rows.indptr
    return transposed
