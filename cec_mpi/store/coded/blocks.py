"""Blocks of a coded store, rebuilt or decoded from the good blocks of other shards."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.recombine import Recombination, RecombinationCache
from cec_mpi.core.accuracy.rounding import encoding_error_bound
from cec_mpi.core.checks.parity import ParityChecker
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.blocks import BlockContents, Blocks, RebuiltContents
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.format.manifest import Checksums

_CACHE_SIZE = 64  # recombinations per thread
_PANEL_ENTRIES = 1 << 16  # entries of each shard to compare or multiply at a time


class CodedBlocks(Blocks[CodedManifest]):
    """Blocks of a coded store: any L shards determine the others, and X."""

    def __init__(self, directory: Path, manifest: CodedManifest, checksums: Checksums) -> None:
        super().__init__(directory, manifest, checksums)
        self._encoding_bounds = encoding_error_bound(manifest.code.generator, manifest.dtype)
        self._thread_cache = threading.local()

    @property
    def thread_bytes(self) -> int:
        """See `Blocks.thread_bytes`: a block of all shards, and work arrays in float64."""
        code, entries = self.manifest.code, self.manifest.block_bytes // self.manifest.itemsize
        float64_bytes = 8 * 2 * (code.machines + code.recovery)
        return entries * (code.machines * self.manifest.itemsize + float64_bytes)

    def read_consistent(self, block: int, suspect: int | None = None) -> BlockContents:
        """See `Blocks.read_consistent`; compares contents if there are more than L."""
        contents = self._read(block)
        shard_bounds = np.maximum(self._encoding_bounds, self._rebuilt_bounds(block))
        if self._is_consistent(contents, shard_bounds):
            return BlockContents(block, contents)
        faulty = [n for n, entries in contents.items() if not np.isfinite(entries).all()]
        for n in faulty:
            del contents[n]
        while len(contents) > self.manifest.code.recovery:
            machines = tuple(sorted(contents))
            values = np.stack([contents[n] for n in machines]).astype(np.float64)
            scale = self._scale(contents)
            verdict = self._checker(shard_bounds).identify_faulty(machines, values, scale)
            if verdict.agree:
                break
            if not verdict.faulty and suspect not in contents:
                return BlockContents(block, contents, tuple(faulty), is_consistent=False)
            for excluded in verdict.faulty or (suspect,):
                assert excluded is not None
                faulty.append(excluded)
                del contents[excluded]
        return BlockContents(block, contents, tuple(faulty))

    def read_basis(self, block: int, machines: tuple[int, ...]) -> BlockContents:
        """See `Blocks.read_basis`; the result is empty if fewer than L contents are good."""
        sources = self.good_machines(block)
        while len(sources) >= self.manifest.recovery:
            basis = self._best_recombination(block, sources, machines)[0].basis
            contents = self._read(block, basis)
            if len(contents) == len(basis):
                return BlockContents(block, contents)
            sources = [n for n in sources if n in contents or n not in basis]
        return BlockContents(block, {})

    def rebuild(self, contents: BlockContents, machines: tuple[int, ...]) -> RebuiltContents:
        """See `Blocks.rebuild`."""
        return RebuiltContents(*self._recombine(contents, machines))

    def decode(self, contents: BlockContents) -> tuple[NDArray[Any], list[float]]:
        """Compute the L parts of X, (L, entries), and their error bounds."""
        return self._recombine(contents, None)

    def _read(self, block: int, machines: Sequence[int] | None = None) -> dict[int, NDArray[Any]]:
        """Return the good contents of a block in the dtype of the store; see `Blocks.read`."""
        contents = self.read(block, machines)
        return {n: data.view(self.manifest.dtype) for n, data in contents.items()}

    def _rebuilt_bounds(self, block: int) -> NDArray[np.float64]:
        """Return error bounds for shards that were rebuilt in this block, (N,); 0 for others."""
        start, stop = self.manifest.rows_of(block)
        bounds = np.zeros(self.manifest.machines)
        for n, shard in enumerate(self.manifest.shards):
            for rows in shard.rebuilt:
                if rows.start < stop and start < rows.stop:
                    bounds[n] = max(bounds[n], rows.error_bound)
        return bounds

    @property
    def _recombinations(self) -> RecombinationCache:
        """The recombinations that this thread has cached."""
        cached: RecombinationCache | None = getattr(self._thread_cache, "recombinations", None)
        if cached is None:
            cached = RecombinationCache(self.manifest.code.generator)
            self._thread_cache.recombinations = cached
        return cached

    def _checker(self, shard_bounds: NDArray[np.float64]) -> ParityChecker:
        """Return a checker of shards with these error bounds; each thread caches the last one."""
        cached: tuple[NDArray[np.float64], ParityChecker] | None
        cached = getattr(self._thread_cache, "checker", None)
        if cached is None or not np.array_equal(cached[0], shard_bounds):
            tiny = float(np.finfo(self.manifest.dtype).tiny)
            cached = shard_bounds, ParityChecker(self.manifest.code.generator, shard_bounds, tiny)
            self._thread_cache.checker = cached
        return cached[1]

    def _is_consistent(
        self, contents: dict[int, NDArray[Any]], shard_bounds: NDArray[np.float64]
    ) -> bool:
        """Return whether contents are finite and, if there are more than L, agree."""
        if len(contents) <= self.manifest.recovery:
            return all(bool(np.isfinite(entries).all()) for entries in contents.values())
        machines, checker = tuple(sorted(contents)), self._checker(shard_bounds)
        for panel, values in self._panels([contents[n] for n in machines]):
            shape = 2, len(machines) - self.manifest.recovery, values.shape[1]
            work, scale = self._work_array("work", shape, np.float64), self._scale(contents, panel)
            if checker.has_disagreement(machines, values, scale, work):
                return False
        return True

    def _panels(self, contents: list[NDArray[Any]]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yield slices that fit in a CPU cache, and these entries of all contents, in float64."""
        for start in range(0, contents[0].size, _PANEL_ENTRIES):
            panel = slice(start, min(start + _PANEL_ENTRIES, contents[0].size))
            values = self._work_array("panel", (len(contents), panel.stop - start), np.float64)
            for row, entries in zip(values, contents, strict=True):
                np.copyto(row, entries[panel])
            yield panel, values

    def _scale(
        self, contents: dict[int, NDArray[Any]], panel: slice = slice(None)
    ) -> NDArray[np.floating]:
        """Return finite bounds on the largest entry of X at each position.

        They hold if the contents of the L machines that are chosen as basis are right.
        """
        basis = self._recombinations.choose_basis(tuple(sorted(contents)))
        dtype, shape = self.manifest.dtype, (len(basis), contents[basis[0]][panel].size)
        magnitudes, work = (
            self._work_array("magnitudes", shape, dtype),
            self._work_array("entries", shape, dtype),
        )
        for row, n in zip(magnitudes, basis, strict=True):
            np.abs(contents[n][panel], out=row)
        with np.errstate(over="ignore", invalid="ignore"):
            scale = self._recombinations.recombination(basis, ()).entry_bounds(magnitudes, work)
        np.fmin(scale, np.finfo(dtype).max, out=scale)
        return scale

    def _work_array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an array that this thread reuses, because allocation is slow."""
        return self._scratch.array(name, shape, np.dtype(dtype))

    def _best_recombination(
        self, block: int, machines: Iterable[int], targets: tuple[int, ...] | None
    ) -> tuple[Recombination, NDArray[np.float64]]:
        """Return the most accurate recombination of L of these machines, and its error bounds."""
        rebuilt_bounds, sources = self._rebuilt_bounds(block), tuple(sorted(machines))
        key = sources, targets, rebuilt_bounds.tobytes()
        cache: dict[Any, tuple[Recombination, NDArray[np.float64]]]
        cache = self._thread_cache.__dict__.setdefault("best", {})
        if key in cache:
            return cache[key]
        shard_bounds = np.maximum(self._encoding_bounds, rebuilt_bounds)
        candidates = []
        for basis in self._recombinations.candidate_bases(sources, rebuilt_bounds, shard_bounds):
            if targets is None:
                parts = np.eye(self.manifest.recovery)
                recombination = Recombination(self.manifest.code.generator, basis, parts)
            else:
                recombination = self._recombinations.recombination(basis, targets)
            basis_bounds = shard_bounds[np.asarray(basis) - 1]
            bounds = recombination.error_bounds(basis_bounds, self.manifest.dtype)
            candidates.append((float(bounds.max()), basis, recombination, bounds))
        _, _, recombination, bounds = min(candidates, key=lambda candidate: candidate[:2])
        if len(cache) >= _CACHE_SIZE:
            cache.clear()
        cache[key] = recombination, bounds
        return recombination, bounds

    def _recombine(
        self, contents: BlockContents, targets: tuple[int, ...] | None
    ) -> tuple[NDArray[Any], list[float]]:
        """Return shards or parts of X, computed with the smallest error bounds, and these bounds.

        Parameters
        ----------
        contents : BlockContents
            Of at least L machines.
        targets : tuple of int or None
            Machines whose shards are computed; None for the parts of X.
        """
        recombination, bounds = self._best_recombination(
            contents.block, contents.by_machine, targets
        )
        basis = [contents.by_machine[n] for n in recombination.basis]
        values = self._work_array("values", (len(bounds), basis[0].size), self.manifest.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for panel, basis_values in self._panels(basis):
                sums = self._work_array("sums", (len(bounds), basis_values.shape[1]), np.float64)
                values[:, panel] = np.matmul(recombination.coefficients, basis_values, out=sums)
        # The deallocation of a mask of `np.isfinite` would interrupt threads on other cores.
        if not (values.min() > -np.inf and values.max() < np.inf):
            raise DamagedStoreError(
                f"{self.directory}: decoding {self.manifest.describe_rows([contents.block])} gives "
                "numbers that are not finite, so a shard is wrong there"
            )
        return values, bounds.tolist()
