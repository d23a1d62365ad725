"""Repair a store: find and rebuild damaged blocks, and compare shards if more than L are good."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError, InputError, StoreError
from cec_mpi.store.files.durable import WriteHandles, locked, publish
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.regular import check_regular, read_regular
from cec_mpi.store.files.replacing import is_own, sync
from cec_mpi.store.files.saving import storing
from cec_mpi.store.format.checksums import (
    block_sum,
    publish_checksums,
    publish_generation,
    row_sum,
)
from cec_mpi.store.format.grid import Block
from cec_mpi.store.format.manifest import (
    MANIFEST,
    MANIFEST_COPY,
    CodedManifest,
    CopiesManifest,
    Manifest,
    parse_manifest,
    read_manifest,
    remove_journal,
    rows_of,
)
from cec_mpi.store.format.scaling import restore_scaling
from cec_mpi.store.format.shard_files import make_shard_file
from cec_mpi.store.operations.verify import Condition, examine
from cec_mpi.store.rebuilding import (
    Blocks,
    disagreement,
    fit_blocks,
    lost_rows,
    merge_marks,
    ranges_of_blocks,
)
from cec_mpi.store.replicas.care import copy_again
from cec_mpi.store.work import MEMORY, LocalRunner, Runner

_WAITING = ".waiting"  # suffix of a file until it gets its name


@dataclass
class Piece:
    """Findings in some blocks."""

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
    writable: set[int] = field(default_factory=set)  # machines whose files can be written

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
                f"{block.start}..{block.stop - 1}: run repair again"
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
    """Compare and rebuild, and replace links by files before writing to them.

    If comparing finds shards that are wrong though their checksums match, everything is repeated.

    Parameters
    ----------
    work : Repairing
    damaged : set of int
        Machines whose shards are damaged.
    runner : Runner

    Returns
    -------
    pieces : list of Piece
    replaced : dict of int to str
        What was replaced, by machine.
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


@dataclass
class Repaired:
    """Results of a repair.

    Attributes
    ----------
    rebuilt : dict of int to str
        Rows that were rebuilt, by machine.
    named : tuple of int
        Machines whose shards were wrong though their checksums matched.
    error_bound : float
        Largest error bound of rebuilt entries, relative to the largest of the entries of X that are
        coded together; 0 if nothing was rebuilt.
    restored : list of str
        Restored files: checksums, manifests, exponents of rows, sizes of columns, and swapped
        shards.
    lost : list of str
        Files that are damaged together with their copies.
    unsettled : list of str
        Disagreements in which the wrong shard cannot be identified.
    left : list of int
        Machines whose shards are still damaged, because another machine was requested.
    replaced : dict of int to str
        Links that were replaced by files, by machine.
    """

    rebuilt: dict[int, str] = field(default_factory=dict)
    named: tuple[int, ...] = ()
    error_bound: float = 0.0
    restored: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    replaced: dict[int, str] = field(default_factory=dict)


def repair(
    store: str | os.PathLike[str],
    machine: int | None = None,
    *,
    memory: int = MEMORY,
    runner: Runner | None = None,
) -> Repaired:
    """Rebuild the damaged and missing blocks of a store from any L good shards.

    If more than L shards are good, they are compared first. L + 3 good shards can identify a shard
    that is wrong though its checksums match, and it is rebuilt. With fewer the caller must name it
    by `machine`.

    Parameters
    ----------
    store : path
    machine : int, optional
        Rebuild only the shard of this machine, and treat it as the wrong one if shards disagree and
        the wrong one cannot be identified.
    memory : int
        Bytes that each process may use in addition to the interpreter.
    runner : Runner, optional
        Runner of the work. By default the threads of this process.

    Returns
    -------
    Repaired

    Raises
    ------
    DamagedStoreError
        Fewer than L shards are good at some rows. The message names the lost rows of X, and nothing
        was written.
    InputError
        The machine does not exist, the store cannot be written, or another process is writing.
    """
    directory = as_path(store)
    runner = runner or LocalRunner()
    if not directory.is_dir() or not (directory / MANIFEST_COPY).exists():
        read_manifest(directory)  # raises if this is not a store
    with storing(directory), locked(directory, f"{directory} is being written by another process"):
        done = Repaired()
        manifest = _mend_manifest(directory, done)
        if machine is not None and not 1 <= machine <= manifest.code.machines:
            raise InputError(
                f"machine {machine}: expected 1 to {manifest.code.machines}, the machines of "
                f"{store}"
            )
        _finish_moves(directory)
        condition = examine(directory, manifest, runner)
        if isinstance(manifest, CopiesManifest):
            done.rebuilt = copy_again(
                directory, manifest, condition.good, condition.problems, machine
            )
            done.left = [n for n in condition.damaged if machine not in (None, n)]
            _restore_beside(directory, manifest, condition, done)
            return done
        assert isinstance(manifest, CodedManifest)
        if machine is None and _put_back(directory, condition, done):
            condition = examine(directory, manifest, runner)
        lost = condition.good.sum(axis=0) < manifest.code.recovery
        if lost.any():
            damaged = [
                f"{shard.file}: {problem}"
                for shard, problem in zip(manifest.shards, condition.problems, strict=True)
                if problem
            ]
            raise DamagedStoreError(
                f"{store} cannot be repaired: {lost_rows(np.flatnonzero(lost), manifest)} "
                f"({'; '.join(damaged)})"
            )
        _rebuild(directory, manifest, condition, machine, memory, runner, done)
        restored, done.lost = restore_scaling(directory, manifest)
        done.restored += restored
        return done


def _restore_beside(
    directory: Path, manifest: Manifest, condition: Condition, done: Repaired
) -> None:
    """Write checksums of a store of replicas again, and the arrays beside them."""
    damaged = [name for name in condition.other_problems if name.startswith("checksums")]
    if damaged:
        sums = np.where(condition.good, condition.sums, 0).max(axis=0, keepdims=True)
        publish_checksums(directory, manifest.checksums, sums)
    restored, done.lost = restore_scaling(directory, manifest)
    done.restored += [*damaged, *restored]


def _mend_manifest(directory: Path, done: Repaired) -> Manifest:
    """Read the manifest or its copy, and write the one that is missing or damaged."""
    try:
        manifest = read_manifest(directory)
        source, other = MANIFEST, MANIFEST_COPY
    except StoreError as error:
        try:
            manifest = parse_manifest(directory / MANIFEST_COPY)
        except (StoreError, FileNotFoundError):
            raise error from None
        check_regular(directory / MANIFEST)
        if (directory / MANIFEST).exists():
            # Raises if it cannot be read now, so that it is not overwritten.
            read_regular(directory / MANIFEST)
        source, other = MANIFEST_COPY, MANIFEST
    check_regular(directory / other)
    data = read_regular(directory / source)
    if not (directory / other).exists() or read_regular(directory / other) != data:
        publish(directory / other, data)
        done.restored.append(other)
    remove_journal(directory)  # if encode was stopped after its last step but one
    return manifest


def _put_back(directory: Path, condition: Condition, done: Repaired) -> bool:
    """Rename shards that were swapped."""
    names = [shard.file for shard in condition.manifest.shards]
    owners = {owner: n for n, owner in condition.exchanged.items() if owner in condition.damaged}
    moves = {names[n - 1]: names[owner - 1] for owner, n in owners.items()}
    done.restored += sorted(moves.values())
    while moves:
        file = next((file for file, name in moves.items() if name not in moves), None)
        if file is not None:
            (directory / file).rename(directory / moves.pop(file))
        else:  # a cycle: one file gets a temporary name
            file, name = moves.popitem()
            (directory / file).rename(directory / f"{name}{_WAITING}")
    _finish_moves(directory)
    return bool(owners)


def _finish_moves(directory: Path) -> None:
    """Rename files with a temporary name, also those of an interrupted repair."""
    for path in directory.glob(f"shard-*{_WAITING}"):
        target = path.with_name(path.name.removesuffix(_WAITING))
        if not target.exists():
            path.rename(target)
    sync(directory)


def _rebuild(
    directory: Path,
    manifest: CodedManifest,
    condition: Condition,
    machine: int | None,
    memory: int,
    runner: Runner,
    done: Repaired,
) -> None:
    allowed = range(1, manifest.code.machines + 1) if machine is None else (machine,)
    blocks = Blocks(directory, manifest, np.where(condition.good, condition.sums, 0))
    work = Repairing(
        blocks,
        condition.good,
        tuple(allowed),
        machine,
        fit_blocks(manifest, memory, runner.threads),
    )
    pieces, done.replaced = compare_and_rebuild(work, set(condition.damaged) & set(allowed), runner)
    sums = np.where(condition.good, condition.sums, condition.stated)
    bounds: dict[int, dict[int, float]] = {}
    unsettled: dict[tuple[int, ...], list[int]] = {}
    named: set[int] = set()
    for piece in pieces:
        for number, n, total, bound in piece.rebuilt:
            sums[n - 1, number] = total
            bounds.setdefault(n, {})[number] = bound
        named.update(piece.named)
        for number, machines in piece.unsettled:
            unsettled.setdefault(machines, []).append(number)
    done.named = tuple(sorted(named))
    done.rebuilt = {n: rows_of(found, manifest) for n, found in sorted(bounds.items())}
    done.error_bound = max((b for found in bounds.values() for b in found.values()), default=0.0)
    done.unsettled = [
        disagreement(machines, numbers, manifest) for machines, numbers in sorted(unsettled.items())
    ]
    done.left = [n for n in condition.damaged if n not in allowed]
    shards = list(manifest.shards)
    for n, found in bounds.items():
        marks = merge_marks(manifest, shards[n - 1].rebuilt, found)
        shards[n - 1] = structs.replace(shards[n - 1], xxh3_128=row_sum(sums[n - 1]), rebuilt=marks)
    damaged_sums = [name for name in condition.other_problems if name.startswith("checksums")]
    if bounds or damaged_sums:
        publish_generation(directory, manifest, tuple(shards), sums)
    done.restored += damaged_sums
