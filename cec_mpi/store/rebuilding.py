"""Blocks of shards, or of X, computed from the good blocks of other shards."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.recombine import Recombination, Recombiner
from cec_mpi.core.accuracy.rounding import encoding_error
from cec_mpi.core.checks.parity import ParityChecker
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.files.durable import WriteHandles
from cec_mpi.store.files.regular import open_regular, refuse_shortage
from cec_mpi.store.files.replacing import sync
from cec_mpi.store.files.saving import storing
from cec_mpi.store.format.checksums import block_sum
from cec_mpi.store.format.grid import Block
from cec_mpi.store.format.manifest import CodedManifest, Rebuilt, rows_of
from cec_mpi.store.format.scaling import RowExponents
from cec_mpi.store.format.shard_files import read_block
from cec_mpi.store.work import PerThread, Runner, fit_memory
from cec_mpi.text import plural

_PIECE_BYTES = 8 << 20
_KEPT = 64  # recombinations of a thread


class Blocks:
    """Read blocks of a store, check them, and compute others from them.

    It can be pickled, and threads may share it.

    Parameters
    ----------
    directory : Path
    manifest : CodedManifest
    sums : (N, blocks) ndarray of uint64
        Checksums of good blocks.
    """

    def __init__(self, directory: Path, manifest: CodedManifest, sums: NDArray[np.uint64]) -> None:
        self.directory = directory
        self.manifest = manifest
        self.sums = sums
        self._exact = encoding_error(manifest.code.generator, manifest.dtype)
        self._kept = PerThread()

    @property
    def recombiner(self) -> Recombiner:
        """Recombiner of this thread."""
        kept: Recombiner | None = getattr(self._kept, "recombiner", None)
        if kept is None:
            kept = Recombiner(self.manifest.code.generator, self.manifest.dtype)
            self._kept.recombiner = kept
        return kept

    def size(self, numbers: Iterable[int]) -> int:
        """Bytes of these blocks in all shards together."""
        return self.manifest.size_of(map(self.manifest.grid.block, numbers))

    def read(self, machine: int, block: Block) -> NDArray[Any] | None:
        """Return a block of a shard, or None if it is damaged.

        Raises
        ------
        ShortageError
            The process or the computer lacks a resource.
        """
        path = self.directory / self.manifest.file_of(machine)
        try:
            descriptor = open_regular(path)
        except OSError as error:
            refuse_shortage(error, path)
            return None
        try:
            data = read_block(descriptor, path, self.manifest, machine, block.number)
        finally:
            os.close(descriptor)
        if data is None or block_sum(data) != self.sums[machine - 1, block.number]:
            return None
        return data.view(self.manifest.dtype)

    def read_all(self, block: Block) -> dict[int, NDArray[Any]]:
        """Return the block of all shards in which it is good, by machine."""
        found = {n: self.read(n, block) for n in range(1, self.manifest.code.machines + 1)}
        return {n: rows for n, rows in found.items() if rows is not None}

    def marks(self, block: Block) -> NDArray[np.float64]:
        """Return error bounds of rebuilt shards in this block, and 0 for the others: (N,)."""
        marks = np.zeros(self.manifest.code.machines)
        for n, shard in enumerate(self.manifest.shards):
            for rows in shard.rebuilt:
                if rows.start < block.stop and block.start < rows.stop:
                    marks[n] = max(marks[n], rows.error_bound)
        return marks

    def agreeing(
        self, block: Block, shards: dict[int, NDArray[Any]], blamed: int | None = None
    ) -> Agreement:
        """Compare shards if there are more than L, and leave out wrong ones.

        Parameters
        ----------
        block : Block
        shards : dict of int to (w,) ndarray
            Returned by `read_all`.
        blamed : int, optional
            Machine to treat as wrong if shards disagree and the wrong one cannot be identified.
        """
        marks = self.marks(block)
        errors = np.maximum(self._exact, marks)
        left = dict(shards)
        wrong = [n for n, rows in shards.items() if not np.isfinite(rows).all()]
        for n in wrong:
            del left[n]
        while len(left) > self.manifest.code.recovery:
            machines = tuple(sorted(left))
            values = np.stack([left[n] for n in machines]).astype(np.float64)
            verdict = self._checker(errors).find_wrong(machines, values, self._scale(left))
            if verdict.agree:
                break
            if not verdict.wrong and blamed not in left:
                return Agreement(block, left, tuple(wrong), False, marks, errors)
            for named in verdict.wrong or (blamed,):
                assert named is not None
                wrong.append(named)
                del left[named]
        return Agreement(block, left, tuple(wrong), True, marks, errors)

    def _checker(self, errors: NDArray[np.float64]) -> ParityChecker:
        """Return what compares shards with these error bounds; this thread keeps the last."""
        kept: tuple[NDArray[np.float64], ParityChecker] | None
        kept = getattr(self._kept, "checker", None)
        if kept is None or not np.array_equal(kept[0], errors):
            least = float(np.finfo(self.manifest.dtype).tiny)
            kept = errors, ParityChecker(self.manifest.code.generator, errors, least)
            self._kept.checker = kept
        return kept[1]

    def _scale(self, shards: dict[int, NDArray[Any]]) -> NDArray[np.float64]:
        """Bound the largest entry of X at each place, from shards of which one may be wrong."""
        basis = self.recombiner.basis(tuple(sorted(shards)))
        known = np.stack([shards[n] for n in basis]).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            scale = self.recombiner.toward(basis, ()).scale(known)
        most = float(np.finfo(self.manifest.dtype).max)
        return np.where(scale <= most, scale, most)

    def compute(
        self, found: Agreement, make: Callable[[tuple[int, ...]], Recombination]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Compute from L or more shards, with the smallest error bound.

        Parameters
        ----------
        found : Agreement
            Agreement of at least L shards.
        make : callable
            Returns the recombination of a basis.

        Returns
        -------
        values : (T, w) ndarray
            In the dtype of the store.
        bounds : (T,) ndarray of float64
            Relative error bounds, as in `Recombination.errors`.
        """
        ways = []
        machines = tuple(sorted(found.shards))
        for basis in self.recombiner.bases(machines, found.marks, found.errors):
            recombination = make(basis)
            given = found.errors[np.asarray(basis) - 1]
            bounds = recombination.errors(given, self.manifest.dtype)
            ways.append((float(bounds.max()), basis, recombination, bounds))
        _, basis, recombination, bounds = min(ways, key=lambda way: way[:2])
        known = np.stack([found.shards[n] for n in basis]).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            values = (recombination.coefficients @ known).astype(self.manifest.dtype)
        if not np.isfinite(values).all():
            raise DamagedStoreError(
                f"{self.directory}: a shard is wrong at rows "
                f"{found.block.start}..{found.block.stop - 1}, because X would not be finite"
            )
        return values, bounds


@dataclass(frozen=True)
class Agreement:
    """Blocks of shards that agree with each other.

    Attributes
    ----------
    block : Block
    shards : dict of int to (w,) ndarray
    wrong : tuple of int
        Machines that were left out as wrong.
    settled : bool
        False if shards disagree, and the wrong one cannot be identified.
    marks, errors : (N,) ndarray of float64
        Error bounds of the block in all shards, from rebuilding, and including encoding.
    """

    block: Block
    shards: dict[int, NDArray[Any]]
    wrong: tuple[int, ...]
    settled: bool
    marks: NDArray[np.float64]
    errors: NDArray[np.float64]


def disagreement(machines: Iterable[int], numbers: Iterable[int], manifest: CodedManifest) -> str:
    """Return a message that says which shards disagree, and what to do."""
    return (
        f"shards {', '.join(map(str, machines))} disagree at {rows_of(numbers, manifest)}, and "
        "the wrong one cannot be identified (cec-mpi repair --machine n rebuilds shard n)"
    )


def lost_rows(lost: Iterable[int], manifest: CodedManifest) -> str:
    """Return a message that says where fewer than L shards are good, with the rows of X."""
    rows, recovery = manifest.rows_per_shard, manifest.code.recovery
    text = (
        f"fewer than {recovery} of {plural(manifest.code.machines, 'shard')} are good at "
        f"{rows_of(lost, manifest)} of X"
    )
    if recovery == 1:
        return text
    return text.removesuffix("of X") + (
        f"of each of the {recovery} parts of X (row k of part p, counted from 0, is row {rows} p "
        "+ k of X)"
    )


def ranges_of_blocks(
    manifest: CodedManifest, numbers: Iterable[int] | None = None
) -> list[list[int]]:
    """Return these blocks, or all, in pieces that are processed together."""
    grid = manifest.grid
    chosen = list(range(grid.count) if numbers is None else numbers)
    block = grid.block_rows * grid.block_columns * manifest.itemsize
    step = max(1, _PIECE_BYTES // block)
    return [chosen[k : k + step] for k in range(0, len(chosen), step)]


def fit_blocks(manifest: CodedManifest, memory: int, threads: int) -> int:
    """Return how many threads can hold a block of all shards at a time."""
    code, grid = manifest.code, manifest.grid
    numbers = grid.block_rows * grid.block_columns
    doubles = 8 * 2 * (code.machines + code.recovery)
    fixed = numbers * (code.machines * manifest.itemsize + doubles)
    return fit_memory(memory, threads, 1, fixed, numbers * manifest.itemsize, 1)[0]


def merge_marks(
    manifest: CodedManifest, old: tuple[Rebuilt, ...], bounds: dict[int, float]
) -> tuple[Rebuilt, ...]:
    """Return the entries ``rebuilt`` of a shard after blocks of it were rebuilt.

    Parameters
    ----------
    manifest : CodedManifest
    old : tuple of Rebuilt
    bounds : dict of int to float
        Error bounds of the rebuilt blocks, by number.
    """
    grid = manifest.grid
    rows = np.zeros(grid.down)
    for mark in old:
        rows[mark.start // grid.block_rows : -(-mark.stop // grid.block_rows)] = mark.error_bound
    for number, bound in bounds.items():
        row = number // grid.across
        # A long row has several blocks, some of which may have been rebuilt before.
        rows[row] = max(rows[row], bound) if grid.across > 1 else bound
    marks: list[Rebuilt] = []
    for row in np.flatnonzero(rows).tolist():
        block = grid.block(row * grid.across)
        start, bound = block.start, float(rows[row])
        if marks and marks[-1].stop == start:
            last = marks.pop()
            start, bound = last.start, max(last.error_bound, bound)
        marks.append(Rebuilt(start, block.stop, bound))
    return tuple(marks)


@dataclass(frozen=True)
class Computed:
    """Results of computing a block.

    Attributes
    ----------
    number : int
    sums : tuple of int
        Checksums of the computed blocks.
    error_bound : float
        Largest error bound; infinite if fewer than L shards were good.
    disagreeing : tuple of int
        Machines that disagree, if the wrong one cannot be identified; then nothing was computed.
    wrong : tuple of int
        Machines whose shards were left out as wrong, though their checksums match.
    """

    number: int
    sums: tuple[int, ...] = ()
    error_bound: float = math.inf
    disagreeing: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()


@dataclass
class Computing:
    """Work that computes all blocks of an array from any L shards, into one file.

    Parameters
    ----------
    blocks : Blocks
    targets : (T, L) ndarray of float
        See `Recombination`.
    target : Path
        File, which already exists with its size.
    header_bytes : int
    numbers : int
        Number of entries of the file. Result t begins at entry t R r; entries beyond the end are
        left out.
    threads : int
    exponents : RowExponents, optional
        Exponents of the powers of two with which rows of results are multiplied.
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
        """Write the file to disk."""
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
        """Return a cached function that makes the recombination of a basis."""
        kept: Callable[[tuple[int, ...]], Recombination] | None
        kept = getattr(self._kept, "recombination", None)
        if kept is None:
            generator = self.blocks.manifest.code.generator
            kept = lru_cache(_KEPT)(lambda basis: Recombination(generator, basis, self.targets))
            self._kept.recombination = kept
        return kept


def _multiplied(values: NDArray[Any], exponents: NDArray[np.int16]) -> NDArray[Any]:
    """Multiply rows of results, (T, w), with powers of two, (T, rows)."""
    rows = values.reshape(*exponents.shape, -1)
    largest = np.finfo(rows.dtype).max
    with np.errstate(over="ignore", under="ignore"):
        product = np.ldexp(rows, exponents.astype(np.int32)[..., np.newaxis])
    # X is finite: only a rounded value can be too large.
    finite: NDArray[Any] = np.clip(product, -largest, largest)
    return finite.reshape(values.shape)


def compute_all(work: Computing, runner: Runner, purpose: str) -> list[Computed]:
    """Compute all blocks.

    Raises
    ------
    DamagedStoreError
        Fewer than L shards are good at some rows, or shards disagree and the wrong one cannot be
        identified.
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
            f"shard {machine} is wrong at {rows} though its checksums match, so it was left out: "
            f"cec-mpi repair {directory} rebuilds it",
            stacklevel=3,
        )
    return found
