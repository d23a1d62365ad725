"""Stores of replicas looked after: read, mended from other copies, written out, extended."""

from __future__ import annotations

import os
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.files.durable import check_room, read_at, write_at
from cec_mpi.files.npy import npy_header
from cec_mpi.files.regular import open_regular, refuse_shortage
from cec_mpi.files.replacing import replacing
from cec_mpi.files.saving import storing
from cec_mpi.store.format.array_files import ArrayFile, with_copy
from cec_mpi.store.format.checksums import block_sum, publish_generation, row_sum
from cec_mpi.store.format.manifest import CopiesManifest, ShardEntry, rows_of
from cec_mpi.store.format.shard_files import problem_on_opening
from cec_mpi.store.replicas.layout import (
    INDICES,
    POINTERS,
    VALUES,
    Block,
    FileLayout,
    Layout,
    file_name,
)
from cec_mpi.store.work import Runner

Sums = NDArray[np.uint64]
Held = NDArray[np.bool_]


def held_blocks(layout: Layout) -> Held:
    """Which blocks each machine holds: shape (N, blocks)."""
    held = np.zeros((layout.machines, layout.blocks), bool)
    first = layout.first_blocks[::3].tolist()
    for part, machines in enumerate(layout.holders):
        for machine in machines:
            held[machine - 1, first[part] : first[part + 1]] = True
    return held


def sums_now(directory: Path, manifest: CopiesManifest, runner: Runner) -> Sums:
    """Checksums of blocks as they are now, (N, blocks); 0 where one cannot be read."""
    layout = manifest.replicas
    sums = np.zeros((layout.machines, layout.blocks), np.uint64)
    for machine, first, found in runner.run(_Reading(directory, layout)):
        sums[machine - 1, first : first + len(found)] = found
    return sums


@dataclass
class _Reading:
    """The work of reading everything: pieces are (machine, part)."""

    directory: Path
    layout: Layout
    threads: int = 1 << 10
    pieces: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        held = enumerate(self.layout.held, start=1)
        self.pieces = [(n, part) for n, parts in held for part in parts]

    def size(self, piece: tuple[int, int]) -> int:
        """Bytes that are read."""
        return int(self.layout.sizes[piece[1]].sum())

    def do(self, piece: tuple[int, int]) -> tuple[int, int, list[int]]:
        """Checksums of a part in the file of a machine; 0 for what cannot be read."""
        machine, part = piece
        path = self.directory / file_name(machine)
        first, sums = int(self.layout.first_blocks[3 * part]), []
        try:
            descriptor = open_regular(path)
        except OSError:
            return machine, first, [0] * sum(1 for _ in self.layout.blocks_of(part))
        try:
            for block in self.layout.blocks_of(part):
                data = read_block(descriptor, self.layout.file(machine), block, path)
                sums.append(0 if data is None else block_sum(data))
        finally:
            os.close(descriptor)
        return machine, first, sums

    def flush(self) -> None:
        """Nothing was written."""


def read_block(
    descriptor: int, file: FileLayout, block: Block, path: Path
) -> NDArray[np.uint8] | None:
    """The bytes of a block; None where they cannot be read."""
    data = np.empty(block.stop - block.start, np.uint8)
    try:
        got = read_at(descriptor, data, file.place(block))
    except OSError as error:
        refuse_shortage(error, path)
        return None
    return data if got == data.nbytes else None


def stated_sums(directory: Path, manifest: CopiesManifest) -> tuple[Sums, dict[str, str]]:
    """Checksums as they should be, (blocks,), 0 where they are damaged; and problems by file."""
    layout = manifest.replicas
    held = held_blocks(layout)
    sums, problems = np.zeros(layout.blocks, np.uint64), dict[str, str]()
    for name in with_copy(manifest.checksums):
        try:
            with ArrayFile(directory / name, (1, layout.blocks), np.uint64) as file:
                found = file.row(0)
        except DamagedStoreError as error:
            problems[name] = str(error)
            continue
        right = [
            row_sum(found[mine]) == shard.xxh3_128
            for mine, shard in zip(held, manifest.shards, strict=True)
        ]
        trusted = held[right].any(axis=0)
        sums[trusted] = found[trusted]
        if not trusted.all():
            problems[name] = "altered"
    return sums, problems


def condition_of(
    directory: Path, manifest: CopiesManifest, runner: Runner
) -> tuple[Sums, Sums, Held, list[str], dict[str, str]]:
    """Read everything: checksums as they are and should be, good blocks, and what is wrong.

    Returns
    -------
    sums, stated : (N, blocks) ndarray of uint64
    good : (N, blocks) ndarray of bool
        Blocks that a machine does not hold are not good.
    problems : list of str
        Of the files of machines 1..N.
    other_problems : dict of str to str
        Of the files of checksums.
    """
    layout = manifest.replicas
    held, sums = held_blocks(layout), sums_now(directory, manifest, runner)
    known, others = stated_sums(directory, manifest)
    stated = np.where(held, known, 0)
    good = held & (sums == stated) & (sums != 0)
    problems = []
    for n, shard in enumerate(manifest.shards, start=1):
        mine = held[n - 1]
        if row_sum(sums[n - 1, mine]) == shard.xxh3_128:
            good[n - 1] = mine  # whatever the file of checksums says
        problem = problem_on_opening(directory / shard.file, manifest)
        bad = np.flatnonzero(mine & ~good[n - 1])
        if not problem and bad.size:
            problem = f"{rows_of(bad, manifest)} do not match their checksum"
        problems.append(problem)
    return sums, stated, good, problems, others


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
    layout = manifest.replicas
    held = held_blocks(layout)
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
            write_parts(directory, layout, n, owners)
            copied[n] = rows_of(np.flatnonzero(held[n - 1] & ~good[n - 1]), manifest)
    return copied


def write_parts(directory: Path, layout: Layout, machine: int, owners: NDArray[np.integer]) -> None:
    """Write the file of a machine, in the place of one that is there, with blocks of others.

    Parameters
    ----------
    directory : Path
    layout : Layout
    machine : int
    owners : (blocks,) ndarray of int
        The machine from whose file each block is taken.

    Raises
    ------
    DamagedStoreError
        A block cannot be read.
    """
    file, path = layout.file(machine), directory / file_name(machine)
    check_room(path, file.size)
    with storing(path), ExitStack() as stack:
        descriptor, _ = stack.enter_context(replacing(path))
        write_at(descriptor, file.header, 0)
        os.ftruncate(descriptor, file.size)
        sources: dict[int, int] = {}
        for part in layout.held[machine - 1]:
            for block in layout.blocks_of(part):
                owner = int(owners[block.number])
                source = directory / file_name(owner)
                if owner not in sources:
                    sources[owner] = open_regular(source)
                    stack.callback(os.close, sources[owner])
                data = read_block(sources[owner], layout.file(owner), block, source)
                if data is None:
                    raise DamagedStoreError(f"{source} cannot be read")
                write_at(descriptor, data, file.place(block))


def extend(directory: Path, manifest: CopiesManifest) -> CopiesManifest:
    """Give machine N + 1 copies of its share of the parts.

    Raises
    ------
    DamagedStoreError
        A part has no good copy.
    """
    layout = manifest.replicas
    sums, problems = stated_sums(directory, manifest)
    if not sums.all():
        raise DamagedStoreError(
            f"{directory}: the checksums are damaged in {' and '.join(problems)} (cec-mpi repair "
            f"{directory} mends that)"
        )
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
            owners[block.number], _ = _good_copy(directory, layout, block, int(sums[block.number]))
    write_parts(directory, grown, number, owners)
    mine = grown.sums_of(number, sums)
    entry = ShardEntry(file_name(number), grown.file(number).size, row_sum(mine), ())
    changed = replace(manifest, replicas=grown)
    shards = (*manifest.shards, entry)
    return publish_generation(directory, changed, shards, sums[None])


def _good_copy(
    directory: Path, layout: Layout, block: Block, expected: int
) -> tuple[int, NDArray[np.uint8]]:
    """A machine whose file has a block as it was written, and its bytes."""
    for machine in layout.holders[block.part]:
        path = directory / file_name(machine)
        try:
            descriptor = open_regular(path)
        except OSError:
            continue
        try:
            data = read_block(descriptor, layout.file(machine), block, path)
        finally:
            os.close(descriptor)
        if data is not None and block_sum(data) == expected:
            return machine, data
    start, stop = layout.rows_of(block.number)
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
    sums, _ = stated_sums(directory, manifest)
    entries, rows = int(layout.entries[-1]), int(layout.bounds[-1])
    with zipfile.ZipFile(out, "x", allowZip64=True) as file:
        for name, section, count, dtype in (
            ("data", VALUES, entries, layout.dtype),
            ("indices", INDICES, entries, layout.index),
        ):
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(npy_header((count,), np.dtype(dtype)))
                for part in range(layout.parts):
                    member.write(_section(directory, layout, sums, part, section).data)
        with file.open("indptr.npy", "w", force_zip64=True) as member:
            wide = np.dtype("int64" if entries >= 2**31 else layout.index)
            member.write(npy_header((rows + 1,), wide))
            member.write(np.zeros(1, wide).data)
            for part in range(layout.parts):
                pointers = _section(directory, layout, sums, part, POINTERS).view(layout.index)
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
    directory: Path, layout: Layout, sums: Sums, part: int, section: int
) -> NDArray[np.uint8]:
    """The bytes of a part's section, each block from a good copy."""
    data = np.empty(int(layout.sizes[part, section]), np.uint8)
    for block in layout.covering(part, section, 0, data.size):
        expected = int(sums[block.number])
        _, data[block.start : block.stop] = _good_copy(directory, layout, block, expected)
    return data
