"""The work of a repair: blocks compared where there is more than enough, and rebuilt."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.files.durable import WriteHandles
from cec_mpi.files.replacing import is_own, sync
from cec_mpi.files.saving import storing
from cec_mpi.store.format.checksums import block_sum
from cec_mpi.store.format.grid import Block
from cec_mpi.store.format.shard_files import make_shard_file
from cec_mpi.store.rebuilding import Blocks, ranges_of_blocks
from cec_mpi.store.work import Runner


@dataclass
class Piece:
    """What was found and done in some blocks."""

    rebuilt: list[tuple[int, int, int, float]] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    unsettled: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    linked: list[int] = field(default_factory=list)


@dataclass
class Repairing:
    """The work of comparing and rebuilding; pieces are lists of block numbers."""

    blocks: Blocks
    good: NDArray[np.bool_]
    allowed: tuple[int, ...]
    blamed: int | None
    threads: int
    pieces: list[list[int]] = field(init=False)
    writable: set[int] = field(default_factory=set)  # whose files are there to be written to

    def __post_init__(self) -> None:
        manifest = self.blocks.manifest
        more = self.good.sum(axis=0) > manifest.code.recovery
        wanted = ~self.good[np.asarray(self.allowed) - 1].all(axis=0)
        self.pieces = ranges_of_blocks(manifest, np.flatnonzero(more | wanted).tolist())

    def size(self, piece: list[int]) -> int:
        """Bytes that are read."""
        return self.blocks.size(piece)

    def do(self, piece: list[int]) -> Piece:
        """Compare and rebuild some blocks."""
        done = Piece()
        directory = self.blocks.directory
        with storing(directory), WriteHandles(directory) as files:
            for number in piece:
                self._do(self.blocks.manifest.grid.block(number), files, done)
        return done

    def flush(self) -> None:
        """Have on the disk what was rebuilt."""
        for n in self.writable:
            sync(self.blocks.directory / self.blocks.manifest.shards[n - 1].file)

    def _do(self, block: Block, files: WriteHandles, done: Piece) -> None:
        manifest = self.blocks.manifest
        found = self.blocks.agreeing(block, self.blocks.read_all(block), self.blamed)
        done.named.extend(found.wrong)
        if not found.settled:
            done.unsettled.append((block.number, tuple(found.shards)))
            return
        wanted = tuple(n for n in self.allowed if n not in found.shards)
        if not wanted:
            return
        if linked := set(wanted) - self.writable:
            done.linked.extend(linked)
            return
        if len(found.shards) < manifest.code.recovery:
            raise DamagedStoreError(
                f"{self.blocks.directory}: shards changed while they were read, at rows "
                f"{block.start}..{block.stop - 1}: repair again"
            )
        recombiner = self.blocks.recombiner
        values, bounds = self.blocks.compute(found, lambda basis: recombiner.toward(basis, wanted))
        place = manifest.place(block.offset)
        for n, rows, bound in zip(wanted, values, bounds.tolist(), strict=True):
            files.write(manifest.shards[n - 1].file, rows, place)
            done.rebuilt.append((block.number, n, block_sum(rows), bound))


def compare_and_rebuild(
    work: Repairing, damaged: set[int], runner: Runner
) -> tuple[list[Piece], dict[int, str]]:
    """Do the work, with files of the store's own in the place of links that it writes to.

    Which shards are wrong though their checksums are right shows only when they are compared:
    then all is done again.

    Parameters
    ----------
    work : Repairing
    damaged : set of int
        Machines whose shards are known to be.
    runner : Runner

    Returns
    -------
    pieces : list of Piece
    replaced : dict of int to str
        Machines whose shards were links, and what each was.
    """
    directory, manifest = work.blocks.directory, work.blocks.manifest
    files = {n: directory / manifest.shards[n - 1].file for n in work.allowed}
    work.writable = {n for n in set(work.allowed) - damaged if is_own(files[n])}
    replaced: dict[int, str] = {}
    while True:
        for n in sorted(damaged):
            kind = make_shard_file(directory, manifest, n, partial(work.blocks.read, n))
            if kind:
                replaced[n] = kind
        work.writable |= damaged
        pieces: list[Piece] = runner.run(work)
        damaged = {n for piece in pieces for n in piece.linked}
        if not damaged:
            return pieces, replaced
