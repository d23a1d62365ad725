"""All blocks of something, X or a further shard, computed from a store into one file."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.recombine import Recombination
from cec_mpi.errors import DamagedStoreError
from cec_mpi.files.durable import WriteHandles
from cec_mpi.files.replacing import sync
from cec_mpi.files.saving import storing
from cec_mpi.store.format.checksums import block_sum
from cec_mpi.store.format.grid import Block
from cec_mpi.store.format.manifest import rows_of
from cec_mpi.store.format.scaling import RowExponents
from cec_mpi.store.rebuilding import Blocks, disagreement, lost_rows, ranges_of_blocks
from cec_mpi.store.work import PerThread, Runner

_KEPT = 64  # recombinations of a thread


@dataclass(frozen=True)
class Computed:
    """A block that was computed.

    Attributes
    ----------
    number : int
    sums : tuple of int
        Checksums of the results.
    error_bound : float
        The largest of them; infinite when fewer than L shards were good.
    disagreeing : tuple of int
        Machines that disagree, where nobody can be named; nothing was computed.
    wrong : tuple of int
        Machines whose shards were left out, as wrong though their checksums are right.
    """

    number: int
    sums: tuple[int, ...] = ()
    error_bound: float = math.inf
    disagreeing: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()


@dataclass
class Computing:
    """The work of computing all blocks of something from any L shards, into one file.

    Parameters
    ----------
    blocks : Blocks
    targets : (T, L) ndarray of float
        As in `Recombination`.
    target : Path
        The file, which is there and has its size.
    header_bytes : int
    numbers : int
        How many numbers the file has: the result t begins at t R r, and what would lie
        beyond the end is left out.
    threads : int
    exponents : RowExponents, optional
        What each row of a result is multiplied with, as powers of two.
    """

    blocks: Blocks
    targets: NDArray[np.float64]
    target: Path
    header_bytes: int
    numbers: int
    threads: int
    exponents: RowExponents | None = None
    pieces: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = ranges_of_blocks(self.blocks.manifest)
        self._kept = PerThread()

    def size(self, piece: list[int]) -> int:
        """Bytes that are read."""
        return self.blocks.size(piece)

    def do(self, piece: list[int]) -> list[Computed]:
        """Compute some blocks."""
        with storing(self.target), WriteHandles(self.target.parent) as files:
            return [self._do(self.blocks.manifest.grid.block(n), files) for n in piece]

    def flush(self) -> None:
        """Have the file on the disk."""
        sync(self.target)

    def _do(self, block: Block, files: WriteHandles) -> Computed:
        manifest = self.blocks.manifest
        found = self.blocks.agreeing(block, self.blocks.read_all(block))
        if not found.settled:
            return Computed(block.number, disagreeing=tuple(found.shards))
        if len(found.shards) < manifest.code.recovery:
            return Computed(block.number)
        values, bounds = self.blocks.compute(found, self._recombination)
        if self.exponents is not None:
            values = _multiplied(values, self.exponents.rows(block.start, block.stop))
        for t, rows in enumerate(values):
            first = t * manifest.grid.rows * manifest.columns + block.offset
            kept = rows[: max(0, self.numbers - first)]
            files.write(self.target.name, kept, self.header_bytes + first * manifest.itemsize)
        sums = tuple(map(block_sum, values))
        return Computed(block.number, sums, float(bounds.max()), wrong=found.wrong)

    @property
    def _recombination(self) -> Callable[[tuple[int, ...]], Recombination]:
        """By basis, each made once by this thread."""
        kept: Callable[[tuple[int, ...]], Recombination] | None
        kept = getattr(self._kept, "recombination", None)
        if kept is None:
            generator = self.blocks.manifest.code.generator
            kept = lru_cache(_KEPT)(lambda basis: Recombination(generator, basis, self.targets))
            self._kept.recombination = kept
        return kept


def _multiplied(values: NDArray[Any], exponents: NDArray[np.int16]) -> NDArray[Any]:
    """Results (T, w) whose rows are multiplied with powers of two, (T, rows)."""
    rows = values.reshape(*exponents.shape, -1)
    largest = np.finfo(rows.dtype).max
    with np.errstate(over="ignore", under="ignore"):
        product = np.ldexp(rows, exponents.astype(np.int32)[..., np.newaxis])
    # What was encoded is finite: only its rounding can be too large.
    finite: NDArray[Any] = np.clip(product, -largest, largest)
    return finite.reshape(values.shape)


def compute_all(work: Computing, runner: Runner, purpose: str) -> list[Computed]:
    """Do the work.

    Raises
    ------
    DamagedStoreError
        Fewer than L shards are good somewhere, or shards disagree and nobody can be
        named: says where.
    """
    found: list[Computed] = [each for piece in runner.run(work) for each in piece]
    manifest, directory = work.blocks.manifest, work.blocks.directory
    if disagreeing := [each for each in found if each.disagreeing]:
        numbers = [each.number for each in disagreeing]
        problem = disagreement(disagreeing[0].disagreeing, numbers, manifest)
        raise DamagedStoreError(f"{directory} cannot be {purpose}: {problem}")
    if lost := [each.number for each in found if each.error_bound == math.inf]:
        raise DamagedStoreError(f"{directory} cannot be {purpose}: {lost_rows(lost, manifest)}")
    for machine in sorted({n for each in found for n in each.wrong}):
        rows = rows_of([each.number for each in found if machine in each.wrong], manifest)
        warnings.warn(
            f"shard {machine} is wrong at {rows} though its checksums are right, and was left "
            f"out: cec-mpi repair {directory} rebuilds it",
            stacklevel=3,
        )
    return found
