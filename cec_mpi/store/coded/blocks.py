"""Blocks of a coded store, rebuilt or decoded from the good blocks of other shards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.recombine import Recombination, Recombiner
from cec_mpi.core.accuracy.rounding import encoding_error_bound
from cec_mpi.core.checks.parity import ParityChecker
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.blocks import Blocks, ConsistentShards, Values
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.format.manifest import Sums

_CACHE_SIZE = 64  # recombinations per thread
_PANEL = 1 << 16  # numbers of each shard to compare or multiply at a time


class CodedBlocks(Blocks[CodedManifest]):
    """Blocks of a coded store: any L shards determine the others, and X."""

    def __init__(self, directory: Path, manifest: CodedManifest, sums: Sums) -> None:
        super().__init__(directory, manifest, sums)
        self._encoding_errors = encoding_error_bound(manifest.code.generator, manifest.dtype)
        self._thread_cache = threading.local()

    @property
    def thread_bytes(self) -> int:
        """Memory for a block of all shards and of the parts of X, also in float64."""
        code, numbers = self.manifest.code, self.manifest.block_bytes // self.manifest.itemsize
        doubles = 8 * 2 * (code.machines + code.recovery)
        return numbers * (code.machines * self.manifest.itemsize + doubles)

    def agree(self, block: int, blamed: int | None = None) -> ConsistentShards:
        """See `Blocks.agree`; compares shards if there are more than L."""
        left = self._read(block)
        errors = np.maximum(self._encoding_errors, self._rebuild_errors(block))
        if self._is_consistent(left, errors):
            return ConsistentShards(block, left)
        wrong = [n for n, rows in left.items() if not np.isfinite(rows).all()]
        for n in wrong:
            del left[n]
        while len(left) > self.manifest.code.recovery:
            machines = tuple(sorted(left))
            values = np.stack([left[n] for n in machines]).astype(np.float64)
            scale = self._scale(left)
            verdict = self._checker(errors).identify_faulty(machines, values, scale)
            if verdict.agree:
                break
            if not verdict.faulty and blamed not in left:
                return ConsistentShards(block, left, tuple(wrong), is_settled=False)
            for named in verdict.faulty or (blamed,):
                assert named is not None
                wrong.append(named)
                del left[named]
        return ConsistentShards(block, left, tuple(wrong))

    def read_basis(self, block: int, machines: tuple[int, ...]) -> ConsistentShards:
        """See `Blocks.read_basis`."""
        sources = self.sources_of(block)
        while len(sources) >= self.manifest.recovery:
            basis = self._best(block, sources, machines)[0].basis
            found = self._read(block, basis)
            if len(found) == len(basis):
                return ConsistentShards(block, found)
            sources = [n for n in sources if n in found or n not in basis]
        return ConsistentShards(block, {})

    def rebuild(self, found: ConsistentShards, machines: tuple[int, ...]) -> Values:
        """See `Blocks.rebuild`."""
        return Values(*self._recombine(found, machines))

    def decode(self, found: ConsistentShards) -> tuple[NDArray[Any], list[float]]:
        """Compute the L parts of X, (L, w), and their error bounds."""
        return self._recombine(found, None)

    def _read(self, block: int, machines: Sequence[int] | None = None) -> dict[int, NDArray[Any]]:
        """Return the good contents of a block as arrays of numbers; see `Blocks.read`."""
        found = self.read(block, machines)
        return {n: data.view(self.manifest.dtype) for n, data in found.items()}

    def _rebuild_errors(self, block: int) -> NDArray[np.float64]:
        """Return error bounds of shards that were rebuilt in this block, (N,); 0 for others."""
        start, stop = self.manifest.rows_of(block)
        marks = np.zeros(self.manifest.machines)
        for n, shard in enumerate(self.manifest.shards):
            for rows in shard.rebuilt:
                if rows.start < stop and start < rows.stop:
                    marks[n] = max(marks[n], rows.error_bound)
        return marks

    @property
    def _recombiner(self) -> Recombiner:
        """Recombiner of this thread."""
        kept: Recombiner | None = getattr(self._thread_cache, "recombiner", None)
        if kept is None:
            kept = Recombiner(self.manifest.code.generator, self.manifest.dtype)
            self._thread_cache.recombiner = kept
        return kept

    @property
    def _recombination_to_X(self) -> Callable[[tuple[int, ...]], Recombination]:
        """Return this thread's function from a basis to the recombination to X."""
        kept: Callable[[tuple[int, ...]], Recombination] | None
        kept = getattr(self._thread_cache, "to_parts", None)
        if kept is None:
            generator, parts = self.manifest.code.generator, np.eye(self.manifest.recovery)
            kept = lru_cache(_CACHE_SIZE)(lambda basis: Recombination(generator, basis, parts))
            self._thread_cache.to_parts = kept
        return kept

    def _checker(self, errors: NDArray[np.float64]) -> ParityChecker:
        """Return a checker of shards with these error bounds; each thread caches the last one."""
        kept: tuple[NDArray[np.float64], ParityChecker] | None
        kept = getattr(self._thread_cache, "checker", None)
        if kept is None or not np.array_equal(kept[0], errors):
            least = float(np.finfo(self.manifest.dtype).tiny)
            kept = errors, ParityChecker(self.manifest.code.generator, errors, least)
            self._thread_cache.checker = kept
        return kept[1]

    def _is_consistent(self, shards: dict[int, NDArray[Any]], errors: NDArray[np.float64]) -> bool:
        """Return whether contents are finite and, if there are more than L, agree."""
        if len(shards) <= self.manifest.recovery:
            return all(bool(np.isfinite(rows).all()) for rows in shards.values())
        machines, checker = tuple(sorted(shards)), self._checker(errors)
        for some, values in self._panels([shards[n] for n in machines]):
            shape = 2, len(machines) - self.manifest.recovery, values.shape[1]
            work, scale = self._array("work", shape, np.float64), self._scale(shards, some)
            if checker.has_disagreement(machines, values, scale, work):
                return False
        return True

    def _panels(self, shards: list[NDArray[Any]]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield panels of all shards, in float64, that fit in a CPU cache."""
        for start in range(0, shards[0].size, _PANEL):
            some = slice(start, min(start + _PANEL, shards[0].size))
            panel = self._array("panel", (len(shards), some.stop - start), np.float64)
            for row, numbers in zip(panel, shards, strict=True):
                np.copyto(row, numbers[some])
            yield some, panel

    def _scale(
        self, shards: dict[int, NDArray[Any]], some: slice = slice(None)
    ) -> NDArray[np.floating]:
        """Return bounds of the largest entry of X at each position; one shard may be wrong."""
        basis, dtype = self._recombiner.choose_basis(tuple(sorted(shards))), self.manifest.dtype
        shape = len(basis), shards[basis[0]][some].size
        sizes, work = self._array("sizes", shape, dtype), self._array("entries", shape, dtype)
        for row, n in zip(sizes, basis, strict=True):
            np.abs(shards[n][some], out=row)
        with np.errstate(over="ignore", invalid="ignore"):
            scale = self._recombiner.recombination(basis, ()).scale_bounds(sizes, work)
        np.fmin(scale, np.finfo(dtype).max, out=scale)
        return scale

    def _array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an array that this thread reuses, because allocation is slow."""
        return self._scratch.of(name, shape, np.dtype(dtype))

    def _best(
        self, block: int, machines: Iterable[int], targets: tuple[int, ...] | None
    ) -> tuple[Recombination, NDArray[np.float64]]:
        """Return the recombination of L of these machines with the smallest error bounds.

        Each thread caches the last one.
        """
        marks, sources = self._rebuild_errors(block), tuple(sorted(machines))
        key = sources, targets, marks.tobytes()
        last, *kept = getattr(self._thread_cache, "best", (None,))
        if last == key:
            return tuple(kept)
        errors = np.maximum(self._encoding_errors, marks)
        ways = []
        for basis in self._recombiner.candidate_bases(sources, marks, errors):
            if targets is None:
                recombination = self._recombination_to_X(basis)
            else:
                recombination = self._recombiner.recombination(basis, targets)
            given = errors[np.asarray(basis) - 1]
            bounds = recombination.error_bounds(given, self.manifest.dtype)
            ways.append((float(bounds.max()), basis, recombination, bounds))
        _, _, recombination, bounds = min(ways, key=lambda way: way[:2])
        self._thread_cache.best = key, recombination, bounds
        return recombination, bounds

    def _recombine(
        self, found: ConsistentShards, targets: tuple[int, ...] | None
    ) -> tuple[NDArray[Any], list[float]]:
        """Compute shards or parts of X with the smallest error bounds.

        Parameters
        ----------
        found : ConsistentShards
            At least L shards.
        targets : tuple of int or None
            Machines whose shards are computed; None for the parts of X.
        """
        recombination, bounds = self._best(found.block, found.shards, targets)
        known = [found.shards[n] for n in recombination.basis]
        values = self._array("values", (len(bounds), known[0].size), self.manifest.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for some, panel in self._panels(known):
                sums = self._array("sums", (len(bounds), panel.shape[1]), np.float64)
                values[:, some] = np.matmul(recombination.coefficients, panel, out=sums)
        if not np.isfinite(values).all():
            raise DamagedStoreError(
                f"{self.directory}: a shard is wrong at "
                f"{self.manifest.describe_rows([found.block])}, because X would not be finite"
            )
        return values, bounds.tolist()
