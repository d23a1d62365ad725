"""Verification of a store: every block is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import StoreError
from cec_mpi.store.files.regular import open_regular
from cec_mpi.store.format.array_files import find_array_problems, unrecoverable_files
from cec_mpi.store.format.checksums import block_checksum, read_checksums, shard_checksum
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.format.shard_files import find_file_problem, read_block
from cec_mpi.store.manifest_files import MANIFEST_COPY, check_sizes, parse_manifest
from cec_mpi.store.reader import open_store
from cec_mpi.store.work import LocalRunner, Runner

_MAX_PIECE_BYTES = 128 << 20  # long pieces benefit from the read-ahead of disks
_PIECES_PER_THREAD = 4
_MAX_THREADS = 1 << 10


@dataclass(frozen=True)
class Condition:
    """Condition of a store after reading it.

    Attributes
    ----------
    manifest : Manifest
        Manifest of the store.
    checksums : (N, blocks) ndarray of uint64
        Checksums of the current content; 0 for blocks that are unreadable or not in the file.
    expected_checksums : (N, blocks) ndarray of uint64
        Expected checksums; 0 if unreadable.
    good : (N, blocks) ndarray of bool
        Whether each block is good.
    problems : list of str
        Problem of each shard, or ''.
    other_problems : dict of str to str
        Problems of checksums, arrays next to the shards and the copy of the manifest, by file.
    swapped : dict of int to int
        By machine, the other machine whose shard is in its file.
    """

    manifest: Manifest
    checksums: NDArray[np.uint64]
    expected_checksums: NDArray[np.uint64]
    good: NDArray[np.bool_]
    problems: list[str]
    other_problems: dict[str, str]
    swapped: dict[int, int]

    @property
    def damaged(self) -> list[int]:
        """Machines whose shards are damaged."""
        return [n for n, problem in enumerate(self.problems, start=1) if problem]

    @property
    def lost(self) -> list[str]:
        """Files that are damaged together with their copies."""
        return unrecoverable_files(self.other_problems, self.manifest)


def verify(store: str | os.PathLike[str], runner: Runner | None = None) -> Condition:
    """Read every block of a store and compare it with its checksum.

    Parameters
    ----------
    store : path
    runner : Runner, optional
        Runner of the work, by default the threads of this process.

    Raises
    ------
    StoreError
        The directory is not a store, or its manifest is damaged.
    """
    source = open_store(store)
    return examine(source.path, source.manifest, runner or LocalRunner())


def examine(directory: Path, manifest: Manifest, runner: Runner) -> Condition:
    """Return the condition of a store whose manifest was read."""
    check_sizes(directory, manifest)
    checksums = compute_checksums(directory, manifest, runner)
    expected_checksums, other_problems = read_checksums(directory, manifest)
    good = manifest.block_placement & (checksums == expected_checksums) & (checksums != 0)
    owners = {shard.xxh3_128: n for n, shard in enumerate(manifest.shards, start=1)}
    problems, swapped = [], {}
    for n, shard in enumerate(manifest.shards, start=1):
        is_held = manifest.blocks_held_by(n)
        checksum = shard_checksum(checksums[n - 1, is_held])
        if checksum == shard.xxh3_128:
            good[n - 1] = is_held  # even if the file of checksums is damaged
        problem = find_file_problem(directory / shard.file, manifest)
        bad_blocks = np.flatnonzero(is_held & ~good[n - 1]).tolist()
        if not problem and bad_blocks:
            owner = owners.get(checksum)
            if owner is not None:
                swapped[n] = owner
                problem = f"holds the data of {manifest.file_of(owner)}"
            else:
                problem = f"{manifest.describe_rows(bad_blocks)} do not match their checksum"
        problems.append(problem)
    other_problems |= _find_other_problems(directory, manifest)
    return Condition(
        manifest, checksums, expected_checksums, good, problems, other_problems, swapped
    )


def _find_other_problems(directory: Path, manifest: Manifest) -> dict[str, str]:
    """Return the problems of the copy of the manifest and of arrays, by file."""
    problems = {}
    try:
        if not _is_copy(parse_manifest(directory / MANIFEST_COPY), manifest):
            problems[MANIFEST_COPY] = "outdated, or from another store"
    except FileNotFoundError:
        problems[MANIFEST_COPY] = "missing"
    except StoreError:
        problems[MANIFEST_COPY] = "altered"
    return problems | find_array_problems(directory, manifest)


def compute_checksums(
    directory: Path,
    manifest: Manifest,
    runner: Runner,
    selected: NDArray[np.bool_] | None = None,
    threads: int = _MAX_THREADS,
) -> NDArray[np.uint64]:
    """Return checksums of the current content of blocks, (N, blocks); 0 for blocks not read.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    runner : Runner
    selected : (blocks,) ndarray of bool, optional
        Mask of the blocks to read. By default all.
    threads : int
        Maximum number of threads of a process.
    """
    mask = manifest.block_placement if selected is None else manifest.block_placement & selected
    blocks_per_piece = int(mask.sum()) // (_PIECES_PER_THREAD * runner.threads * runner.processes)
    step = max(1, min(blocks_per_piece, _MAX_PIECE_BYTES // manifest.block_bytes))
    machines, count = mask.shape
    pieces = [
        (n, start, min(start + step, count))
        for n in range(1, machines + 1)
        for start in range(0, count, step)
        if mask[n - 1, start : start + step].any()
    ]
    checksums = np.zeros(mask.shape, np.uint64)
    work = ChecksumWork(directory, manifest, threads, pieces)
    for machine, start, piece_checksums in runner.run(work):
        checksums[machine - 1, start : start + len(piece_checksums)] = piece_checksums
    return checksums


def _is_copy(copy: Manifest, manifest: Manifest) -> bool:
    """Return whether `copy` is a copy of `manifest`; it may briefly be one generation newer."""
    generations_ahead = copy.checksums.generation - manifest.checksums.generation
    machines = min(copy.machines, manifest.machines)
    return (
        type(copy) is type(manifest)
        and (copy.rows, copy.columns, copy.dtype)
        == (manifest.rows, manifest.columns, manifest.dtype)
        and copy.rows_of(0) == manifest.rows_of(0)
        and np.array_equal(copy.code.generator[:machines], manifest.code.generator[:machines])
        and 0 <= generations_ahead <= 1
        and (generations_ahead == 1 or copy.shards == manifest.shards)
    )


@dataclass
class ChecksumWork:
    """Work that computes checksums; pieces are ``(machine, start, stop)`` of blocks."""

    directory: Path
    manifest: Manifest
    threads: int
    pieces: list[tuple[int, int, int]]

    def size(self, piece: tuple[int, int, int]) -> int:
        """Return an upper bound on the bytes to read."""
        return len(self._blocks(piece)) * self.manifest.block_bytes

    def process(self, piece: tuple[int, int, int]) -> tuple[int, int, list[int]]:
        """Return the machine, the first block, and the checksums of all blocks of the piece.

        Blocks that are unreadable or not in the file have 0.

        Raises
        ------
        ShortageError
            The process or the computer lacks a resource.
        """
        machine, start, stop = piece
        checksums, buffer = [0] * (stop - start), np.empty(self.manifest.block_bytes, np.uint8)
        path = self.directory / self.manifest.shards[machine - 1].file
        try:
            descriptor = open_regular(path)
        except OSError:
            return machine, start, checksums
        try:
            for block in self._blocks(piece):
                data = read_block(descriptor, path, self.manifest, machine, block, buffer)
                checksums[block - start] = 0 if data is None else block_checksum(data)
        finally:
            os.close(descriptor)
        return machine, start, checksums

    def flush(self) -> None:
        """Do nothing: this work writes no files."""

    def _blocks(self, piece: tuple[int, int, int]) -> list[int]:
        """Return the blocks of a piece that the machine holds."""
        machine, start, stop = piece
        is_held = self.manifest.block_placement[machine - 1, start:stop]
        blocks: list[int] = (start + np.flatnonzero(is_held)).tolist()
        return blocks
