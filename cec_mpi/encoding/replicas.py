"""The way in for a sparse X: parts of its rows, each in the files of several machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.rounding import is_exact
from cec_mpi.core.replicas.holders import spread_copies
from cec_mpi.core.replicas.parts import Parts, cut_parts
from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sparse import SparseRows, sparse_rows
from cec_mpi.errors import InputError
from cec_mpi.files.appearing import appearing, check_new
from cec_mpi.files.durable import WriteHandles, check_room, make_file
from cec_mpi.files.saving import storing
from cec_mpi.store.format.array_files import publish_pieces
from cec_mpi.store.format.checksums import block_sum, publish_checksums, row_sum
from cec_mpi.store.format.manifest import (
    CELLS,
    COLUMN_SIZES,
    ArrayEntry,
    Manifest,
    ShardEntry,
    checksums_name,
    publish_manifest,
    replica_manifest,
    store_dtype,
)
from cec_mpi.store.format.scaling import in_bytes
from cec_mpi.store.replicas.layout import INDICES, POINTERS, VALUES, Layout, file_name
from cec_mpi.store.work import Runner

_COPIES = 3  # where nobody says how many
_PARTS_PER_MACHINE = 8
_CELLS = 64  # of a part: what plans tell apart
_ENTRIES_OF_INT32 = 2**31 - 1


def encode_replicas(
    source: Any, directory: Path, options: EncodeOptions, runner: Runner
) -> Manifest:
    """Store the rows of a sparse X as CSR, each on several machines.

    Parameters
    ----------
    source : path or array
        As for `sparse_rows`.
    directory : Path
        Appears when all of it is written.
    options : EncodeOptions
        With `copies`.
    runner : Runner

    Raises
    ------
    InputError
        X is no such matrix or has no nonzeros, the store exists, or there is no room.
    """
    options.refuse_of_codes()
    check_new(directory)
    with storing(directory), sparse_rows(source, directory) as rows:
        if not rows.values.size:
            raise InputError(f"{rows.name} has no nonzero entry: expected at least one")
        parts = cut_parts(rows.pointers, _PARTS_PER_MACHINE * options.machines, _CELLS)
        speeds = options.speeds or (1.0,) * options.machines
        if len(speeds) != options.machines:
            raise InputError(
                f"{len(speeds)} speeds for {options.machines} machines: expected one for each"
            )
        copies = min(_COPIES, options.machines) if options.copies is None else options.copies
        holders = spread_copies(parts.count, speeds, copies, options.spread, options.seed)
        entries = parts.entries[parts.cells]
        wide = int(np.diff(entries).max()) > _ENTRIES_OF_INT32 or rows.shape[1] > _ENTRIES_OF_INT32
        layout = Layout(
            bounds=parts.bounds,
            entries=entries,
            holders=holders,
            machines=options.machines,
            dtype=store_dtype(options.dtype, rows.values.dtype).name,
            index="int64" if wide else "int32",
        )
        files = [layout.file(n) for n in range(1, options.machines + 1)]
        check_room(directory, sum(file.size for file in files))
        with appearing(directory) as partial:
            partial.mkdir()
            for n, file in enumerate(files, start=1):
                make_file(partial / file_name(n), file.header, file.size)
            work = _Writing(partial, layout, rows)
            sums = np.zeros(layout.blocks, np.uint64)
            for first, found in runner.run(work):
                sums[first : first + len(found)] = found
            return _finished(partial, layout, parts, rows, work, sums)


def _finished(
    directory: Path,
    layout: Layout,
    parts: Parts,
    rows: SparseRows,
    work: _Writing,
    sums: NDArray[np.uint64],
) -> Manifest:
    """Write what stands beside the parts: cells, sizes of columns, checksums and the manifest."""
    cells = np.stack([parts.rows, parts.entries])
    usual = (work.squares > 0) & np.isfinite(work.squares)
    typical = np.where(usual, np.sqrt(work.squares / rows.shape[0]), work.largest)
    typical = np.minimum(typical, work.largest)
    sizes, exponent = in_bytes(np.stack([work.largest, typical]))
    entries = {
        name: ArrayEntry(name, publish_pieces(directory, name, array.shape, array.dtype, (array,)))
        for name, array in ((CELLS, cells), (COLUMN_SIZES, sizes))
    }
    publish_checksums(directory, checksums_name(1), sums[None])
    manifest = replica_manifest(
        layout,
        columns=rows.shape[1],
        rounded=not is_exact(rows.values.dtype, layout.dtype),
        checksums=checksums_name(1),
        shards=tuple(
            ShardEntry(file_name(n), layout.file(n).size, row_sum(layout.sums_of(n, sums)))
            for n in range(1, layout.machines + 1)
        ),
        column_sizes=entries[COLUMN_SIZES],
        column_exponent=exponent,
        cells=entries[CELLS],
        cell_count=cells.shape[1] - 1,
    )
    publish_manifest(directory, manifest)
    return manifest


@dataclass
class _Writing:
    """The work of writing all parts to the files of their holders: pieces are parts."""

    directory: Path
    layout: Layout
    rows: SparseRows
    threads: int = 1  # sizes of columns are added up
    pieces: range = field(init=False)
    largest: NDArray[np.float64] = field(init=False)
    squares: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = range(self.layout.parts)
        self.largest, self.squares = np.zeros((2, self.rows.shape[1]))

    def size(self, part: int) -> int:
        """Bytes that are written."""
        return int(self.layout.sizes[part].sum()) * len(self.layout.holders[part])

    def do(self, part: int) -> tuple[int, list[int]]:
        """Write one part; returns the number of its first block, and the checksums."""
        layout, rows = self.layout, self.rows
        start, stop = layout.bounds[part : part + 2].tolist()
        low, high = layout.entries[part : part + 2].tolist()
        sections = rows.values[low:high], rows.columns[low:high], rows.pointers[start : stop + 1]
        kinds = layout.dtype, layout.index, layout.index
        sums = []
        with WriteHandles(self.directory) as handles:
            for block in layout.blocks_of(part):
                size = layout.itemsizes[block.section]
                place = slice(block.start // size, block.stop // size)
                numbers = np.asarray(sections[block.section][place])
                if block.section == POINTERS:
                    numbers = numbers - low
                with np.errstate(over="ignore"):
                    stored = np.ascontiguousarray(numbers, kinds[block.section])
                if block.section == VALUES:
                    if not np.isfinite(stored).all():
                        raise InputError(
                            f"{rows.name} has numbers that {layout.dtype} cannot hold, in rows "
                            f"{start}..{stop - 1}: expected --dtype float64"
                        )
                    columns = np.asarray(sections[INDICES][place])
                    sizes = np.abs(stored, dtype=np.float64)
                    np.maximum.at(self.largest, columns, sizes)
                    with np.errstate(over="ignore"):
                        np.add.at(self.squares, columns, sizes * sizes)
                data = stored.view(np.uint8)
                sums.append(block_sum(data))
                for machine in layout.holders[part]:
                    handles.write(file_name(machine), data, layout.file(machine).place(block))
        return int(layout.first_blocks[3 * part]), sums

    def flush(self) -> None:
        """All is synced when the store appears."""
