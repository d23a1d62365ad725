"""Stores of replicas looked after: read, mended from other copies, written out, extended."""

from __future__ import annotations

import os
import zipfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.files.durable import check_room, write_at
from cec_mpi.store.files.npy import npy_header
from cec_mpi.store.files.regular import open_regular
from cec_mpi.store.files.replacing import replacing
from cec_mpi.store.files.saving import storing
from cec_mpi.store.format.checksums import block_sum, publish_generation, read_rows, row_sum
from cec_mpi.store.format.manifest import CopiesManifest, ShardEntry, rows_of
from cec_mpi.store.format.shard_files import read_block
from cec_mpi.store.replicas.layout import (
    INDICES,
    POINTERS,
    VALUES,
    file_name,
)

Sums = NDArray[np.uint64]
Held = NDArray[np.bool_]


def copy_again(
    directory: Path,
    manifest: CopiesManifest,
    good: Held,
    problems: list[str],
    machine: int | None = None,
) -> dict[int, str]:
    """Write the files of machines that are not whole again, with blocks from good copies.

    Parameters
    ----------
    directory : Path
    manifest : CopiesManifest
    good : (N, blocks) ndarray of bool
    problems : list of str
        Of the files of machines 1..N.
    machine : int, optional
        Mend the file of this machine alone.

    Returns
    -------
    dict of int to str
        By machine the rows that were copied from other machines.

    Raises
    ------
    DamagedStoreError
        Some block is good nowhere: names the rows of X that are lost. Nothing was written.
    """
    held = manifest.held
    lost = np.flatnonzero(~good.any(axis=0))
    if lost.size:
        wrong = [f"{file_name(n)}: {text}" for n, text in enumerate(problems, start=1) if text]
        raise DamagedStoreError(
            f"{directory} cannot be repaired: {rows_of(lost, manifest)} of X are lost, no machine "
            f"has a good copy ({'; '.join(wrong)})"
        )
    copied = {}
    for n, problem in enumerate(problems, start=1):
        if problem and machine in (None, n):
            owners = np.where(good[n - 1], n, good.argmax(axis=0) + 1)
            write_parts(directory, manifest, n, owners)
            copied[n] = rows_of(np.flatnonzero(held[n - 1] & ~good[n - 1]), manifest)
    return copied


def write_parts(
    directory: Path, manifest: CopiesManifest, machine: int, owners: NDArray[np.integer]
) -> None:
    """Write the file of a machine, in the place of one that is there, with blocks of others.

    Parameters
    ----------
    directory : Path
    manifest : CopiesManifest
    machine : int
    owners : (blocks,) ndarray of int
        The machine from whose file each block is taken.

    Raises
    ------
    DamagedStoreError
        A block cannot be read.
    """
    path, size = directory / manifest.file_of(machine), manifest.bytes_of(machine)
    check_room(path, size)
    with storing(path), ExitStack() as stack:
        descriptor, _ = stack.enter_context(replacing(path))
        write_at(descriptor, manifest.header_of(machine), 0)
        os.ftruncate(descriptor, size)
        sources: dict[int, int] = {}
        for number in np.flatnonzero(manifest.held[machine - 1]).tolist():
            owner = int(owners[number])
            source = directory / manifest.file_of(owner)
            if owner not in sources:
                sources[owner] = open_regular(source)
                stack.callback(os.close, sources[owner])
            data = read_block(sources[owner], source, manifest, owner, number)
            if data is None:
                raise DamagedStoreError(f"{source} cannot be read")
            write_at(descriptor, data, manifest.place_of_block(machine, number)[0])


def extend(directory: Path, manifest: CopiesManifest) -> CopiesManifest:
    """Give machine N + 1 copies of its share of the parts.

    Raises
    ------
    DamagedStoreError
        A part has no good copy.
    """
    layout = manifest.replicas
    sums = read_rows(directory, manifest, layout.machines).max(axis=0)
    number = layout.machines + 1
    share = max(1, round(layout.parts * layout.copies / number))
    chosen = set(np.linspace(0, layout.parts - 1, share).astype(int).tolist())
    holders = tuple(
        (*each, number) if part in chosen else each for part, each in enumerate(layout.holders)
    )
    grown = replace(layout, holders=holders, machines=number)
    owners = np.zeros(layout.blocks, np.int64)
    for part in chosen:
        for block in layout.blocks_of(part):
            expected = int(sums[block.number])
            owners[block.number], _ = _good_copy(directory, manifest, block.number, expected)
    changed = replace(manifest, replicas=grown)
    write_parts(directory, changed, number, owners)
    mine = grown.sums_of(number, sums)
    entry = ShardEntry(file_name(number), grown.file(number).size, row_sum(mine), ())
    shards = (*manifest.shards, entry)
    return publish_generation(directory, changed, shards, sums[None])


def _good_copy(
    directory: Path, manifest: CopiesManifest, number: int, expected: int
) -> tuple[int, NDArray[np.uint8]]:
    """A machine whose file has a block as it was written, and its bytes."""
    for machine in (np.flatnonzero(manifest.held[:, number]) + 1).tolist():
        path = directory / manifest.file_of(machine)
        try:
            descriptor = open_regular(path)
        except OSError:
            continue
        try:
            data = read_block(descriptor, path, manifest, machine, number)
        finally:
            os.close(descriptor)
        if data is not None and block_sum(data) == expected:
            return machine, data
    start, stop = manifest.rows_of_block(number)
    raise DamagedStoreError(f"{directory}: rows {start}..{stop - 1} have no good copy")


def write_npz(directory: Path, manifest: CopiesManifest, out: Path) -> None:
    """Write X as `scipy.sparse.load_npz` reads it, part after part.

    Parameters
    ----------
    directory : Path
    manifest : CopiesManifest
    out : Path
        A new file.

    Raises
    ------
    DamagedStoreError
        A part has no good copy.
    """
    layout = manifest.replicas
    sums = read_rows(directory, manifest, 0).max(axis=0)
    entries, rows = int(layout.entries[-1]), int(layout.bounds[-1])
    with zipfile.ZipFile(out, "x", allowZip64=True) as file:
        for name, section, count, dtype in (
            ("data", VALUES, entries, layout.dtype),
            ("indices", INDICES, entries, layout.index),
        ):
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(npy_header((count,), np.dtype(dtype)))
                for part in range(layout.parts):
                    member.write(_section(directory, manifest, sums, part, section).data)
        with file.open("indptr.npy", "w", force_zip64=True) as member:
            wide = np.dtype("int64" if entries >= 2**31 else layout.index)
            member.write(npy_header((rows + 1,), wide))
            member.write(np.zeros(1, wide).data)
            for part in range(layout.parts):
                pointers = _section(directory, manifest, sums, part, POINTERS).view(layout.index)
                own = pointers[1:].astype(wide) + wide.type(layout.entries[part])
                member.write(own.data)
        for name, array in (
            ("format", np.array(b"csr")),
            ("shape", np.array([rows, manifest.columns])),
            ("_is_array", np.array(True)),
        ):
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _section(
    directory: Path, manifest: CopiesManifest, sums: Sums, part: int, section: int
) -> NDArray[np.uint8]:
    """The bytes of a part's section, each block from a good copy."""
    layout = manifest.replicas
    data = np.empty(int(layout.sizes[part, section]), np.uint8)
    for block in layout.covering(part, section, 0, data.size):
        expected = int(sums[block.number])
        found = _good_copy(directory, manifest, block.number, expected)
        data[block.start : block.stop] = found[1]
    return data
