"""Encoding of a sparse X as copies: each part of its rows is in the shards of several machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.replicas.holders import spread_copies
from cec_mpi.core.replicas.parts import PARTS_PER_MACHINE, Parts, cut_parts
from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.rounding import NO_ROUNDING, measure_rounding, warn_of_rounding
from cec_mpi.encoding.sparse import SparseRows, check_is_sparse, sparse_rows
from cec_mpi.errors import InputError
from cec_mpi.store.files.creating import check_new, new_directory
from cec_mpi.store.files.durable import FileCache, check_free_space, make_file
from cec_mpi.store.files.saving import convert_to_input_error
from cec_mpi.store.format.array_files import publish_pieces
from cec_mpi.store.format.checksums import block_checksum, publish_checksums, shard_checksum
from cec_mpi.store.format.manifest import (
    COLUMN_MAXIMA,
    ArrayEntry,
    ChecksumsEntry,
    ShardEntry,
    store_dtype,
)
from cec_mpi.store.manifest_files import publish_manifest
from cec_mpi.store.replicas.layout import INDICES, POINTERS, VALUES, Layout
from cec_mpi.store.replicas.manifest import CELLS, PartsEntry, ReplicaManifest, quantise_maxima
from cec_mpi.store.work import ProgressCallback

_DEFAULT_COPIES = 3
_MAX_INT32 = 2**31 - 1


def encode_replicas(
    source: Any,
    directory: Path,
    options: EncodeOptions,
    on_progress: ProgressCallback | None,
) -> None:
    """Store each row of a sparse X, as CSR, on several machines; one process writes all files.

    Parameters
    ----------
    source : path or array
        See `sparse_rows`.
    directory : Path
        Directory of the store. It appears when it is complete.
    options : EncodeOptions
        `copies` is by default 3, or the number of machines if that is less.
    on_progress : callable, optional
        Called with the progress.

    Raises
    ------
    InputError
        X is not a sparse matrix or has no nonzeros, the store exists, or the disk is full.
    """
    check_is_sparse(source)
    options.reject_code_options()
    check_new(directory)
    with convert_to_input_error(directory), sparse_rows(source, directory, options) as rows:
        parts = cut_parts(rows.pointers, PARTS_PER_MACHINE * options.machines)
        speeds = options.speeds or (1.0,) * options.machines
        if len(speeds) != options.machines:
            raise InputError(
                f"{len(speeds)} speeds for {options.machines} machines: expected one for each"
            )
        copies = (
            min(_DEFAULT_COPIES, options.machines) if options.copies is None else options.copies
        )
        holders = spread_copies(parts.count, speeds, copies, options.spread, options.seed)
        first_entries = parts.entries_before[parts.first_cells]
        needs_int64 = int(np.diff(first_entries).max()) > _MAX_INT32 or rows.shape[1] > _MAX_INT32
        layout = Layout(
            bounds=parts.bounds,
            first_entries=first_entries,
            holders=holders,
            machines=options.machines,
            dtype=store_dtype(options.dtype, rows.values.dtype).name,
            index_dtype="int64" if needs_int64 else "int32",
        )
        files = [layout.file_layout(n) for n in range(1, options.machines + 1)]
        total_bytes = sum(file.size for file in files)
        check_free_space(directory, total_bytes)
        with new_directory(directory) as staging:
            for n, file in enumerate(files, start=1):
                make_file(staging / ReplicaManifest.file_of(n), file.header, file.size)
            writer = _ShardWriter(staging, layout, rows)
            checksums, bytes_written = [], 0
            for part, part_holders in enumerate(holders):
                checksums += writer.write(part)
                bytes_written += int(layout.sizes[part].sum()) * len(part_holders)
                if on_progress is not None:
                    on_progress(bytes_written, total_bytes)
            if not writer.column_maxima.any():
                raise InputError(f"{rows.name} has no nonzero entry: expected at least one")
            _write_metadata(writer, parts, np.array(checksums, np.uint64))
    warn_of_rounding(rows.name, writer.rounding, layout.dtype)


def _write_metadata(writer: _ShardWriter, parts: Parts, checksums: NDArray[np.uint64]) -> None:
    """Write all files except the shards: cells, column maxima, checksums, manifest."""
    directory, layout, rows = writer.directory, writer.layout, writer.rows
    cells = np.stack([parts.first_rows, parts.entries_before])
    maxima, exponent = quantise_maxima(writer.column_maxima)
    entries = {
        name: ArrayEntry(name, publish_pieces(directory, name, array.shape, array.dtype, (array,)))
        for name, array in ((CELLS, cells), (COLUMN_MAXIMA, maxima))
    }
    manifest = ReplicaManifest(
        rows=int(layout.bounds[-1]),
        columns=rows.shape[1],
        dtype=layout.dtype,
        machines=layout.machines,
        replicas=PartsEntry.from_layout(layout),
        rounded=bool(writer.rounding.count)
        or (rows.values.dtype.kind == "f" and not np.can_cast(rows.values.dtype, layout.dtype)),
        checksums=ChecksumsEntry.for_generation(1),
        shards=tuple(
            ShardEntry(
                ReplicaManifest.file_of(n),
                layout.file_layout(n).size,
                shard_checksum(checksums[layout.blocks_held_by(n)]),
                (),
            )
            for n in range(1, layout.machines + 1)
        ),
        column_maxima=entries[COLUMN_MAXIMA],
        column_exponent=exponent,
        cells=entries[CELLS],
        cell_count=cells.shape[1] - 1,
    )
    publish_checksums(directory, manifest, checksums[None])
    publish_manifest(directory, manifest)


@dataclass
class _ShardWriter:
    """Writes parts, in order, to the shard files of their holders."""

    directory: Path
    layout: Layout
    rows: SparseRows

    def __post_init__(self) -> None:
        self.column_maxima = np.zeros(self.rows.shape[1])  # largest absolute value in each column
        self.rounding = NO_ROUNDING

    def write(self, part: int) -> list[int]:
        """Write one part block by block, and return the checksums of its blocks."""
        layout, rows = self.layout, self.rows
        start, stop = layout.bounds[part : part + 2].tolist()
        low, high = layout.first_entries[part : part + 2].tolist()
        sections = rows.values[low:high], rows.columns[low:high], rows.pointers[start : stop + 1]
        checksums = []
        with FileCache(self.directory) as files:
            for block in layout.blocks_of(part):
                itemsize = layout.itemsizes[block.section]
                entries = slice(block.start // itemsize, block.stop // itemsize)
                values = np.asarray(sections[block.section][entries])
                if block.section == POINTERS:
                    values = values - low
                with np.errstate(over="ignore"):
                    stored = np.ascontiguousarray(values, layout.dtypes[block.section])
                if block.section == VALUES:
                    if not np.isfinite(stored).all():
                        advice = "they are too large"
                        if layout.dtype == "float32":
                            advice = "use --dtype float64"
                        raise InputError(
                            f"{rows.name} has numbers that {layout.dtype} cannot hold, in rows "
                            f"{start}..{stop - 1}: {advice}"
                        )
                    self.rounding += measure_rounding(values, stored)
                    magnitudes = np.abs(stored, dtype=np.float64)
                    columns = np.asarray(sections[INDICES][entries])
                    np.maximum.at(self.column_maxima, columns, magnitudes)
                data = stored.view(np.uint8)
                checksums.append(block_checksum(data))
                for machine in layout.holders[part]:
                    files.write(
                        ReplicaManifest.file_of(machine),
                        data,
                        layout.file_layout(machine).block_offset(block),
                    )
        return checksums
