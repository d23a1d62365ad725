"""Blocks of a store: reading, comparison and rebuilding."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.files.regular import open_regular, raise_if_shortage
from cec_mpi.store.format.checksums import block_checksum
from cec_mpi.store.format.manifest import Manifest, Sums
from cec_mpi.store.format.shard_files import read_block
from cec_mpi.store.limits import count_processors
from cec_mpi.store.products.scratch import Scratch
from cec_mpi.store.work import fit_memory

M = TypeVar("M", bound=Manifest)

_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class ConsistentShards:
    """Consistent contents of a block.

    Attributes
    ----------
    block : int
    shards : dict of int to ndarray
        Contents by machine.
    faulty : tuple of int
        Machines whose contents were excluded as wrong, although their checksums match.
    is_settled : bool
        False if contents disagree, and the faulty machine cannot be identified.
    """

    block: int
    shards: dict[int, NDArray[Any]]
    faulty: tuple[int, ...] = ()
    is_settled: bool = True


@dataclass(frozen=True)
class Outcome:
    """The outcome of comparing and rebuilding a block.

    Attributes
    ----------
    block : int
    rebuilt : tuple of (int, int, float)
        Machine, checksum and error bound of each rebuilt content.
    faulty : tuple of int
        Machines whose contents were excluded as wrong, although their checksums match.
    disagreeing : tuple of int
        Machines that disagree, if the faulty one cannot be identified; nothing was rebuilt then.
    is_lost : bool
        Whether too few contents are good.
    linked : tuple of int
        Machines whose files are links and must be replaced first; nothing was written then.
    """

    block: int
    rebuilt: tuple[tuple[int, int, float], ...] = ()
    faulty: tuple[int, ...] = ()
    disagreeing: tuple[int, ...] = ()
    is_lost: bool = False
    linked: tuple[int, ...] = ()


class Values(NamedTuple):
    """Rebuilt contents of a block, valid until this thread rebuilds another block.

    Attributes
    ----------
    arrays : iterable of ndarray
    error_bounds : list of float
        Error bound of each array; see `Rebuilt`.
    """

    arrays: Iterable[NDArray[Any]]
    error_bounds: list[float]


class Blocks(Generic[M]):
    """The blocks of a store, thread-safe.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    sums : (N, blocks) ndarray of uint64
        Checksums of good blocks; 0 for others.
    """

    def __init__(self, directory: Path, manifest: M, sums: Sums) -> None:
        self.directory, self.manifest, self.sums = directory, manifest, sums
        self._scratch = Scratch()

    def blocks(self) -> range:
        """Return the numbers of all blocks."""
        return range(self.manifest.block_count)

    def sources_of(self, block: int) -> list[int]:
        """Return the machines whose files have a good content of a block."""
        machines: list[int] = (np.flatnonzero(self.sums[:, block]) + 1).tolist()
        return machines

    def read(
        self, block: int, machines: Sequence[int] | None = None
    ) -> dict[int, NDArray[np.uint8]]:
        """Return the good contents of a block, by machine.

        They are valid until this thread reads another block.

        Parameters
        ----------
        block : int
        machines : sequence of int, optional
            Machines whose files are read. By default all with a good content.

        Raises
        ------
        ShortageError
            The process or the computer lacks a resource.
        """
        found: dict[int, NDArray[np.uint8]] = {}
        sources = self.sources_of(block) if machines is None else machines
        size = self.manifest.block_bytes
        buffers = self._scratch.of("blocks", (len(sources), size), np.dtype(np.uint8))
        for machine, buffer in zip(sources, buffers, strict=True):
            data = self.read_from(machine, block, buffer)
            if data is not None:
                found[machine] = data
            if not self.manifest.compares and len(found) == self.manifest.code.recovery:
                break
        return found

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
        return (
            None if data is None or block_checksum(data) != self.sums[machine - 1, block] else data
        )

    def agree(self, block: int, blamed: int | None = None) -> ConsistentShards:
        """Read a block, and exclude wrong contents.

        Parameters
        ----------
        block : int
        blamed : int, optional
            Machine to treat as faulty if contents disagree and no faulty machine is identified.
        """
        return ConsistentShards(block, dict(self.read(block)))

    def read_basis(self, block: int, machines: tuple[int, ...]) -> ConsistentShards:
        """Read as many contents as `rebuild` needs for these machines, without comparison."""
        return self.agree(block)

    def rebuild(self, found: ConsistentShards, machines: tuple[int, ...]) -> Values:
        """Rebuild the contents of a block for these machines from at least L others.

        The default implementation copies a content.
        """
        (copy,) = found.shards.values()
        return Values([copy] * len(machines), [0.0] * len(machines))

    @property
    def thread_bytes(self) -> int:
        """Memory of a thread for rebuilding, in addition to the block."""
        return 0

    def size(self, blocks: Iterable[int]) -> int:
        """Return the size of these blocks in all files."""
        place, held = self.manifest.place_of, self.manifest.held
        holders = ((block, np.flatnonzero(held[:, block]) + 1) for block in blocks)
        return sum(place(block, int(on[0]))[1] * len(on) for block, on in holders)

    def pieces(self, blocks: Iterable[int]) -> list[list[int]]:
        """Return the blocks in groups that are processed as one piece."""
        chosen, step = list(blocks), max(1, _PIECE_BYTES // self.manifest.block_bytes)
        return [chosen[k : k + step] for k in range(0, len(chosen), step)]

    def threads(self, memory: int, most: int) -> int:
        """Return how many threads can hold a block at a time; more than cores would not help."""
        largest, most = self.manifest.block_bytes, min(most, count_processors())
        return fit_memory(memory, most, 1, self.thread_bytes, largest, 1)[0]


def disagreement(machines: Iterable[int], blocks: Iterable[int], manifest: Manifest) -> str:
    """Return the message for disagreeing shards, with the remedy."""
    return (
        f"shards {', '.join(map(str, machines))} disagree at {manifest.describe_rows(blocks)}, and "
        "the wrong one cannot be identified (cec-mpi repair --machine n rebuilds shard n)"
    )


def check_outcomes(
    outcomes: Sequence[Outcome], directory: Path, manifest: Manifest, purpose: str
) -> None:
    """Raise unless all blocks were rebuilt, and warn of wrong shards.

    Raises
    ------
    DamagedStoreError
        Fewer than L contents of a block are good, or they disagree and the faulty machine cannot be
        identified.
    """
    if disagreeing := [outcome for outcome in outcomes if outcome.disagreeing]:
        blocks = [outcome.block for outcome in disagreeing]
        problem = disagreement(disagreeing[0].disagreeing, blocks, manifest)
        raise DamagedStoreError(f"{directory} cannot be {purpose}: {problem}")
    if lost := [outcome.block for outcome in outcomes if outcome.is_lost]:
        raise DamagedStoreError(f"{directory} cannot be {purpose}: {manifest.describe_lost(lost)}")
    for machine in sorted({n for outcome in outcomes for n in outcome.faulty}):
        rows = manifest.describe_rows(
            outcome.block for outcome in outcomes if machine in outcome.faulty
        )
        warnings.warn(
            f"shard {machine} is wrong at {rows} though its checksums match, so it was left out: "
            f"cec-mpi repair {directory} rebuilds it",
            stacklevel=3,
        )
