"""Comparison of the blocks of a store, and rebuilding of damaged and missing blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from cec_mpi.store.blocks import Outcome, RebuiltBlock
from cec_mpi.store.files.durable import FileCache
from cec_mpi.store.files.replacing import is_writable_in_place, sync
from cec_mpi.store.files.saving import convert_to_input_error
from cec_mpi.store.format.checksums import block_checksum, publish_checksums, shard_checksum
from cec_mpi.store.format.manifest import Checksums, Manifest
from cec_mpi.store.format.shard_files import make_shard_file
from cec_mpi.store.kinds import open_blocks
from cec_mpi.store.manifest_files import publish_generation
from cec_mpi.store.work import Runner

_MAX_UNSYNCED_BYTES = 64 << 20  # the disk writes while other threads compute


@dataclass
class RebuildWork:
    """Work that compares and rebuilds blocks; pieces are lists of blocks.

    Attributes
    ----------
    directory : Path
    manifest : Manifest
    checksums : (N, blocks) ndarray of uint64
        Checksums of good blocks; 0 for others.
    machines : tuple of int
        Machines whose blocks are rebuilt.
    block_numbers : list of int
        Blocks to compare and rebuild.
    memory, threads : int
        Bytes that each process may use, and its maximum number of threads.
    suspect : int, optional
        Machine to treat as faulty if contents disagree and no faulty machine is identified.
    compares_shards : bool
        Whether the good contents of a block are compared if there are more than L.
    writable_machines : list of int
        Machines whose files can be written in place.
    """

    directory: Path
    manifest: Manifest
    checksums: Checksums
    machines: tuple[int, ...]
    block_numbers: list[int]
    memory: int
    threads: int
    suspect: int | None = None
    compares_shards: bool = True
    writable_machines: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blocks = open_blocks(self.directory, self.manifest, self.checksums)
        self.pieces = self.blocks.pieces(self.block_numbers)
        self.threads = self.blocks.fit_threads(self.memory, self.threads)
        self._unsynced_bytes = 0  # approximate, because threads count without a lock

    def size(self, piece: list[int]) -> int:
        """Return the number of bytes to read."""
        return self.blocks.total_bytes(piece)

    def process(self, piece: list[int]) -> list[Outcome]:
        """Compare and rebuild blocks, and return the outcomes of those with a problem."""
        with convert_to_input_error(self.directory), FileCache(self.directory) as files:
            outcomes = [self._rebuild(block, files) for block in piece]
            if self._unsynced_bytes > _MAX_UNSYNCED_BYTES:
                self._unsynced_bytes = 0
                self.flush()
        return [outcome for outcome in outcomes if outcome != Outcome(outcome.block)]

    def flush(self) -> None:
        """Sync the rebuilt files to disk."""
        for n in self.writable_machines:
            sync(self.directory / self.manifest.file_of(n))

    def _rebuild(self, block: int, files: FileCache) -> Outcome:
        manifest = self.manifest
        if self.compares_shards:
            contents = self.blocks.read_consistent(block, self.suspect)
        else:
            contents = self.blocks.read_basis(block, self._damaged_at(block))
        faulty = contents.faulty
        if not contents.is_consistent:
            return Outcome(block, faulty=faulty, disagreeing=tuple(contents.by_machine))
        damaged = self._damaged_at(block, faulty)
        linked = tuple(n for n in damaged if n not in self.writable_machines)
        if not damaged or linked:
            return Outcome(block, faulty=faulty, linked=linked)
        if len(contents.by_machine) < manifest.code.recovery:
            return Outcome(block, faulty=faulty, is_lost=True)
        rebuilt = []
        for n, data, bound in zip(damaged, *self.blocks.rebuild(contents, damaged), strict=True):
            files.write(manifest.file_of(n), data, manifest.block_extent(block, n)[0])
            rebuilt.append(RebuiltBlock(n, block_checksum(data), bound))
            self._unsynced_bytes += data.nbytes
        error_bound = max(rebuilt_block.error_bound for rebuilt_block in rebuilt)
        return Outcome(block, tuple(rebuilt), error_bound, faulty)

    def _damaged_at(self, block: int, faulty: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return the machines in whose files a block must be rebuilt."""
        good = set(self.blocks.good_machines(block)).difference(faulty)
        is_holder = self.manifest.block_placement[:, block]
        return tuple(n for n in self.machines if is_holder[n - 1] and n not in good)


def rebuild_blocks(
    work: RebuildWork, damaged: set[int], runner: Runner
) -> tuple[list[Outcome], dict[int, str]]:
    """Create missing files, replace damaged ones that are links, and compare and rebuild blocks.

    If the comparison finds wrong contents in other files that are links, the work is repeated after
    these are replaced. The new files have copies of the blocks that are not damaged.

    Parameters
    ----------
    work : RebuildWork
    damaged : set of int
        Machines whose shards are damaged or missing.
    runner : Runner

    Returns
    -------
    outcomes : list of Outcome
    replaced : dict of int to str
        Description of each replaced link, by machine.
    """
    directory, manifest = work.directory, work.manifest
    undamaged = set(work.machines) - damaged
    work.writable_machines = [
        n for n in undamaged if is_writable_in_place(directory / manifest.file_of(n))
    ]
    replaced: dict[int, str] = {}
    while True:
        for n in sorted(damaged):
            link_kind = make_shard_file(directory, manifest, n, partial(work.blocks.read_from, n))
            if link_kind:
                replaced[n] = link_kind
        work.writable_machines += sorted(damaged)
        outcomes = [outcome for piece in runner.run(work) for outcome in piece]
        damaged = {n for outcome in outcomes for n in outcome.linked}
        if not damaged:
            return outcomes, replaced


def publish_rebuilt(
    directory: Path,
    manifest: Manifest,
    checksums: Checksums,
    outcomes: Iterable[Outcome],
    are_checksums_damaged: bool = False,
) -> Manifest:
    """Write the checksums and error bounds for rebuilt blocks.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    checksums : (N, blocks) ndarray of uint64
        Checksums of all blocks; those of rebuilt blocks are replaced.
    outcomes : iterable of Outcome
    are_checksums_damaged : bool
        Whether the file of checksums or its copy is damaged.
    """
    bounds: dict[int, dict[int, float]] = {}
    for outcome in outcomes:
        for n, checksum, bound in outcome.rebuilt:
            checksums[n - 1, outcome.block] = checksum
            bounds.setdefault(n, {})[outcome.block] = bound
    shards = list(manifest.shards)
    for n, bounds_by_block in bounds.items():
        shards[n - 1] = replace(
            shards[n - 1],
            xxh3_128=shard_checksum(checksums[n - 1, manifest.blocks_held_by(n)]),
            rebuilt=manifest.merge_rebuilt(shards[n - 1].rebuilt, bounds_by_block),
        )
    if tuple(shards) != manifest.shards:
        return publish_generation(directory, manifest, tuple(shards), checksums)
    if are_checksums_damaged:
        publish_checksums(directory, manifest, checksums)
    return manifest
