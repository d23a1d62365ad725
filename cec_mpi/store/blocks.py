"""Blocks of a store: reading, comparison and rebuilding."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.files.regular import open_regular, raise_if_shortage
from cec_mpi.store.format.checksums import block_checksum
from cec_mpi.store.format.manifest import Checksums, Manifest
from cec_mpi.store.format.shard_files import read_block
from cec_mpi.store.limits import count_processors
from cec_mpi.store.products.scratch import Scratch
from cec_mpi.store.work import fit_memory
from cec_mpi.text import warn_caller

M = TypeVar("M", bound=Manifest)

_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class BlockContents:
    """Contents of a block in the files of several machines.

    Attributes
    ----------
    block : int
    by_machine : dict of int to ndarray
    faulty : tuple of int
        Machines whose contents were excluded as wrong, although their checksums match.
    is_consistent : bool
        False if contents disagree, and the faulty machine cannot be identified.
    """

    block: int
    by_machine: dict[int, NDArray[Any]]
    faulty: tuple[int, ...] = ()
    is_consistent: bool = True


class RebuiltBlock(NamedTuple):
    """A block that was rebuilt in the file of a machine."""

    machine: int
    checksum: int
    error_bound: float


@dataclass(frozen=True)
class Outcome:
    """The outcome of comparing and rebuilding or decoding a block.

    Attributes
    ----------
    block : int
    rebuilt : tuple of RebuiltBlock
    error_bound : float
        Largest error bound for rebuilt or decoded entries.
    faulty : tuple of int
        Machines whose contents were excluded as wrong, although their checksums match.
    disagreeing : tuple of int
        Machines that disagree, if the faulty one cannot be identified; nothing was rebuilt then.
    is_lost : bool
        Whether fewer than L contents are good.
    linked : tuple of int
        Machines whose files are links and must be replaced first; nothing was written then.
    """

    block: int
    rebuilt: tuple[RebuiltBlock, ...] = ()
    error_bound: float = 0.0
    faulty: tuple[int, ...] = ()
    disagreeing: tuple[int, ...] = ()
    is_lost: bool = False
    linked: tuple[int, ...] = ()


class RebuiltContents(NamedTuple):
    """Rebuilt contents of a block, valid until this thread rebuilds another block.

    Attributes
    ----------
    arrays : iterable of ndarray
    error_bounds : list of float
        Error bound for each array; see `RebuiltRows`.
    """

    arrays: Iterable[NDArray[Any]]
    error_bounds: list[float]


class Blocks(Generic[M]):
    """The blocks of a store. Methods may be called by several threads.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    checksums : (N, blocks) ndarray of uint64
        Checksums of good blocks; 0 for others.
    """

    def __init__(self, directory: Path, manifest: M, checksums: Checksums) -> None:
        self.directory, self.manifest, self.checksums = directory, manifest, checksums
        self._scratch = Scratch()

    def good_machines(self, block: int) -> list[int]:
        """Return the machines in whose files a block is good."""
        machines: list[int] = (np.flatnonzero(self.checksums[:, block]) + 1).tolist()
        return machines

    def read(
        self, block: int, machines: Sequence[int] | None = None
    ) -> dict[int, NDArray[np.uint8]]:
        """Return the good contents of a block by machine; only L if shards are not compared.

        They are valid until this thread reads another block.

        Parameters
        ----------
        block : int
        machines : sequence of int, optional
            Machines whose files are read. By default all where the block is good.

        Raises
        ------
        ShortageError
            The process or the computer lacks a resource.
        """
        contents: dict[int, NDArray[np.uint8]] = {}
        sources = self.good_machines(block) if machines is None else machines
        size = self.manifest.block_bytes
        buffers = self._scratch.array("blocks", (len(sources), size), np.dtype(np.uint8))
        for machine, buffer in zip(sources, buffers, strict=True):
            data = self.read_from(machine, block, buffer)
            if data is not None:
                contents[machine] = data
            if not self.manifest.compares_shards and len(contents) == self.manifest.code.recovery:
                break
        return contents

    def read_from(
        self, machine: int, block: int, buffer: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8] | None:
        """Return the content of a block in the file of a machine; None if it is damaged.

        Parameters
        ----------
        machine, block : int
        buffer : (block_bytes,) ndarray of uint8, optional
            See `read_block`.

        Raises
        ------
        ShortageError
            The process or the computer lacks a resource.
        """
        path = self.directory / self.manifest.file_of(machine)
        try:
            descriptor = open_regular(path)
        except OSError as error:
            raise_if_shortage(error, path)
            return None
        try:
            data = read_block(descriptor, path, self.manifest, machine, block, buffer)
        finally:
            os.close(descriptor)
        if data is None or block_checksum(data) != self.checksums[machine - 1, block]:
            return None
        return data

    def read_consistent(self, block: int, suspect: int | None = None) -> BlockContents:
        """Read the good contents of a block, and exclude wrong ones.

        Parameters
        ----------
        block : int
        suspect : int, optional
            Machine to treat as faulty if contents disagree and no faulty machine is identified.
        """
        return BlockContents(block, self.read(block))

    def read_basis(self, block: int, machines: tuple[int, ...]) -> BlockContents:
        """Read as many contents as `rebuild` needs for these machines, without comparison."""
        return self.read_consistent(block)

    def rebuild(self, contents: BlockContents, machines: tuple[int, ...]) -> RebuiltContents:
        """Rebuild the contents of a block for these machines from at least L others.

        In this class all contents are equal, so L = 1, and the only one is copied.
        """
        (content,) = contents.by_machine.values()
        return RebuiltContents([content] * len(machines), [0.0] * len(machines))

    @property
    def thread_bytes(self) -> int:
        """Memory of a thread for rebuilding, in addition to the block."""
        return 0

    def total_bytes(self, blocks: Iterable[int]) -> int:
        """Return the size of these blocks in all files, in bytes."""
        total = 0
        for block in blocks:
            holders = np.flatnonzero(self.manifest.block_placement[:, block]) + 1
            total += self.manifest.block_extent(block, int(holders[0]))[1] * len(holders)
        return total

    def pieces(self, blocks: Iterable[int]) -> list[list[int]]:
        """Return the blocks in lists of about 8 MiB, each of which a thread processes."""
        blocks, step = list(blocks), max(1, _PIECE_BYTES // self.manifest.block_bytes)
        return [blocks[k : k + step] for k in range(0, len(blocks), step)]

    def fit_threads(self, memory: int, max_threads: int) -> int:
        """Return how many threads fit in this memory, at most one per processor."""
        threads, _ = fit_memory(
            memory,
            min(max_threads, count_processors()),
            array_count=1,
            thread_bytes=self.thread_bytes,
            min_bytes=self.manifest.block_bytes,
        )
        return threads


def describe_disagreement(
    machines: Iterable[int], blocks: Iterable[int], manifest: Manifest
) -> str:
    """Return the message for disagreeing shards, with the remedy."""
    return (
        f"shards {', '.join(map(str, machines))} disagree at {manifest.describe_rows(blocks)}, and "
        "the wrong one cannot be identified (cec-mpi repair --machine n rebuilds shard n)"
    )


def check_outcomes(
    outcomes: Sequence[Outcome], directory: Path, manifest: Manifest, action: str
) -> None:
    """Raise unless all blocks were rebuilt or decoded, and warn of wrong shards.

    Raises
    ------
    DamagedStoreError
        Fewer than L contents of a block are good, or they disagree and the faulty machine cannot be
        identified.
    """
    if disagreeing := [outcome for outcome in outcomes if outcome.disagreeing]:
        blocks = [outcome.block for outcome in disagreeing]
        problem = describe_disagreement(disagreeing[0].disagreeing, blocks, manifest)
        raise DamagedStoreError(f"{directory} cannot be {action}: {problem}")
    if lost := [outcome.block for outcome in outcomes if outcome.is_lost]:
        raise DamagedStoreError(f"{directory} cannot be {action}: {manifest.describe_lost(lost)}")
    for machine in sorted({n for outcome in outcomes for n in outcome.faulty}):
        rows = manifest.describe_rows(
            outcome.block for outcome in outcomes if machine in outcome.faulty
        )
        warn_caller(
            f"shard {machine} is wrong at {rows} though its checksums match, so it was left out: "
            f"cec-mpi repair {directory} rebuilds it"
        )
