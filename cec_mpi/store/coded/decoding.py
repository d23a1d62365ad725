"""Work that computes X from any L shards, into one file in the layout of memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.store.coded.blocks import CodedBlocks
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.files.durable import WriteHandles
from cec_mpi.store.files.replacing import sync
from cec_mpi.store.files.saving import input_errors
from cec_mpi.store.format.manifest import Sums
from cec_mpi.store.format.scaling import RowExponents
from cec_mpi.store.rebuilding import Outcome


@dataclass
class Decoding:
    """The work of decoding; pieces are lists of blocks.

    Attributes
    ----------
    directory : Path
    manifest : CodedManifest
    sums : (N, blocks) ndarray of uint64
        Checksums of good blocks, and 0 for others.
    target : Path
        File, which already exists with its size.
    begin : int
        Where X begins in it, in bytes.
    exponents : RowExponents or None
        Exponents of the powers of two with which rows of X are multiplied.
    threads : int
    """

    directory: Path
    manifest: CodedManifest
    sums: Sums
    target: Path
    begin: int
    exponents: RowExponents | None
    memory: int
    threads: int

    def __post_init__(self) -> None:
        self.blocks = CodedBlocks(self.directory, self.manifest, self.sums)
        self.pieces = self.blocks.pieces(self.blocks.blocks())
        self.threads = self.blocks.threads(self.memory, self.threads)

    def size(self, piece: list[int]) -> int:
        """Bytes that are read."""
        return self.blocks.size(piece)

    def do(self, piece: list[int]) -> list[Outcome]:
        """Decode some blocks; the machines of `Outcome.rebuilt` are parts of X."""
        with input_errors(self.target), WriteHandles(self.target.parent) as files:
            return [self._do(number, files) for number in piece]

    def flush(self) -> None:
        """Write the file to disk."""
        sync(self.target)

    def _do(self, number: int, files: WriteHandles) -> Outcome:
        manifest, found = self.manifest, self.blocks.agree(number)
        if not found.is_settled:
            return Outcome(number, disagreeing=tuple(found.shards))
        if len(found.shards) < manifest.recovery:
            return Outcome(number, is_lost=True)
        parts, bounds = self.blocks.decode(found)
        if self.exponents is not None:
            exponents = self.exponents.rows(*manifest.rows_of(number))
            parts = _multiplied(parts, exponents)
        grid, end = manifest.grid, manifest.rows * manifest.columns
        for part, rows in enumerate(parts):
            first = part * grid.rows * grid.columns + grid.block(number).offset
            kept = rows[: max(0, end - first)]
            files.write(self.target.name, kept, self.begin + first * manifest.itemsize)
        return Outcome(number, ((0, 0, max(bounds)),), found.wrong)


def _multiplied(parts: NDArray[Any], exponents: NDArray[np.int16]) -> NDArray[Any]:
    """Multiply rows of parts of X, (L, w), with powers of two, (L, rows)."""
    rows = parts.reshape(*exponents.shape, -1)
    largest = np.finfo(rows.dtype).max
    with np.errstate(over="ignore", under="ignore"):
        product = np.ldexp(rows, exponents.astype(np.int32)[..., np.newaxis])
    # X is finite: only a rounded value can be too large.
    finite: NDArray[Any] = np.clip(product, -largest, largest)
    return finite.reshape(parts.shape)
