"""Repair of a store: damaged blocks are rebuilt; without damage, shards are compared."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cec_mpi.errors import DamagedStoreError, InputError, StoreError
from cec_mpi.store.blocks import describe_disagreement
from cec_mpi.store.files.durable import locked, publish
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.regular import check_regular, read_regular
from cec_mpi.store.files.replacing import sync
from cec_mpi.store.files.saving import convert_to_input_error
from cec_mpi.store.format.array_files import restore_arrays
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.limits import WORK_MEMORY_BYTES
from cec_mpi.store.manifest_files import (
    MANIFEST,
    MANIFEST_COPY,
    parse_manifest,
    read_manifest,
    remove_journal,
)
from cec_mpi.store.operations.verify import Condition, examine
from cec_mpi.store.rebuilding import RebuildWork, publish_rebuilt, rebuild_blocks
from cec_mpi.store.work import LocalRunner, Runner

_RENAME_SUFFIX = ".waiting"  # of a shard file while two are swapped


@dataclass
class RepairResult:
    """Results of a repair.

    Attributes
    ----------
    rebuilt : dict of int to str
        Intervals of rebuilt rows, by machine.
    faulty : tuple of int
        Machines whose shards had wrong numbers with valid checksums.
    error_bound : float
        Largest error bound for rebuilt entries, relative to the largest entry of X in the code
        word; 0 if nothing was rebuilt.
    restored : list of str
        Restored files: checksums, manifests, arrays next to the shards, and renamed shards.
    lost : list of str
        Files that are damaged together with their copies.
    unresolved : list of str
        Descriptions of disagreements between shards, if the faulty one was not identified.
    still_damaged : list of int
        Machines whose shards are still damaged, because the repair was limited to another machine.
    replaced : dict of int to str
        Description of each link that was replaced with a file, by machine.
    """

    rebuilt: dict[int, str] = field(default_factory=dict)
    faulty: tuple[int, ...] = ()
    error_bound: float = 0.0
    restored: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    still_damaged: list[int] = field(default_factory=list)
    replaced: dict[int, str] = field(default_factory=dict)


def repair(
    store: str | os.PathLike[str],
    machine: int | None = None,
    *,
    memory: int = WORK_MEMORY_BYTES,
    runner: Runner | None = None,
) -> RepairResult:
    """Rebuild the damaged and missing blocks of a store from any L good shards.

    If no block is damaged, shards are compared. L + 3 shards identify a shard that is wrong
    although its checksums match, and it is rebuilt. With fewer shards, `machine` must name it.

    Parameters
    ----------
    store : path
    machine : int, optional
        Rebuild only the shard of this machine, and treat it as wrong if shards disagree and no
        wrong shard is identified.
    memory : int
        Bytes that each process may use in addition to the interpreter.
    runner : Runner, optional
        Runner of the work, by default the threads of this process.

    Returns
    -------
    RepairResult

    Raises
    ------
    DamagedStoreError
        For some rows, fewer than L shards are good, so no shard was rebuilt, and the message names
        the lost rows of X; or shards changed while they were read.
    InputError
        The machine does not exist, the store cannot be written, or another process is writing.
    """
    directory = as_path(store)
    runner = runner or LocalRunner()
    if not directory.is_dir() or not (directory / MANIFEST_COPY).exists():
        read_manifest(directory)  # raises if this is not a store
    with (
        convert_to_input_error(directory),
        locked(directory, f"{directory} is being written by another process"),
    ):
        result = RepairResult()
        manifest = _restore_manifest(directory, result)
        if machine is not None and not 1 <= machine <= manifest.machines:
            raise InputError(
                f"machine {machine}: expected 1 to {manifest.machines}, the machines of {store}"
            )
        _finish_renames(directory)
        condition = examine(directory, manifest, runner)
        if machine is None and _undo_swaps(directory, condition, result):
            condition = examine(directory, manifest, runner)
        is_lost = condition.good.sum(axis=0) < manifest.code.recovery
        if is_lost.any():
            problems = "; ".join(
                f"{shard.file}: {problem}"
                for shard, problem in zip(manifest.shards, condition.problems, strict=True)
                if problem
            )
            raise DamagedStoreError(
                f"{store} cannot be repaired: {manifest.describe_lost(np.flatnonzero(is_lost))} "
                f"({problems})"
            )
        _rebuild(directory, condition, machine, memory, runner, result)
        restored, result.lost = restore_arrays(directory, manifest)
        result.restored += restored
        return result


def _restore_manifest(directory: Path, result: RepairResult) -> Manifest:
    """Read the manifest or its copy, and restore the other if it is missing or damaged."""
    try:
        manifest = read_manifest(directory)
        source, target = MANIFEST, MANIFEST_COPY
    except StoreError as error:
        try:
            manifest = parse_manifest(directory / MANIFEST_COPY)
        except (StoreError, FileNotFoundError):
            raise error from None
        check_regular(directory / MANIFEST)
        if (directory / MANIFEST).exists():
            # Raises if the file is temporarily unreadable, so that it is not overwritten.
            read_regular(directory / MANIFEST)
        source, target = MANIFEST_COPY, MANIFEST
    check_regular(directory / target)
    data = read_regular(directory / source)
    if not (directory / target).exists() or read_regular(directory / target) != data:
        publish(directory / target, data)
        result.restored.append(target)
    remove_journal(directory)  # an encode may have been killed before this last step
    return manifest


def _undo_swaps(directory: Path, condition: Condition, result: RepairResult) -> bool:
    """Rename shard files whose names were swapped, and return whether there were any."""
    names = [shard.file for shard in condition.manifest.shards]
    swapped = {n: owner for n, owner in condition.swapped.items() if owner in condition.damaged}
    renames = {names[n - 1]: names[owner - 1] for n, owner in swapped.items()}
    result.restored += sorted(renames.values())
    while renames:
        file = next((file for file, target in renames.items() if target not in renames), None)
        if file is not None:
            (directory / file).rename(directory / renames.pop(file))
        else:  # a cycle; one file gets a temporary name
            file, target = renames.popitem()
            (directory / file).rename(directory / f"{target}{_RENAME_SUFFIX}")
    _finish_renames(directory)
    return bool(swapped)


def _finish_renames(directory: Path) -> None:
    """Remove the temporary suffix from file names, including those of an interrupted repair."""
    for path in directory.glob(f"shard-*{_RENAME_SUFFIX}"):
        target = path.with_name(path.name.removesuffix(_RENAME_SUFFIX))
        if not target.exists():
            path.rename(target)
    sync(directory)


def _rebuild(
    directory: Path,
    condition: Condition,
    machine: int | None,
    memory: int,
    runner: Runner,
    result: RepairResult,
) -> None:
    """Rebuild damaged blocks of one or all machines; if no block is damaged, compare shards."""
    manifest, good = condition.manifest, condition.good
    machines = range(1, manifest.machines + 1) if machine is None else (machine,)
    damaged = manifest.block_placement & ~good
    selected = damaged[np.array(machines) - 1].any(axis=0)
    good_checksums = np.where(good, condition.checksums, 0)
    compares_shards = manifest.compares_shards and not selected.any()
    if compares_shards:
        selected = good.sum(axis=0) > manifest.code.recovery
    work = RebuildWork(
        directory,
        manifest,
        good_checksums,
        tuple(machines),
        np.flatnonzero(selected).tolist(),
        memory,
        runner.threads,
        suspect=machine,
        compares_shards=compares_shards,
    )
    outcomes, result.replaced = rebuild_blocks(work, set(condition.damaged) & set(machines), runner)
    changed_blocks = [outcome.block for outcome in outcomes if outcome.is_lost]
    if changed_blocks:
        rows = manifest.describe_rows(changed_blocks)
        raise DamagedStoreError(
            f"{directory}: shards changed while they were read, at {rows}: run repair again"
        )
    unresolved: dict[tuple[int, ...], list[int]] = {}
    for outcome in outcomes:
        if outcome.disagreeing:
            unresolved.setdefault(outcome.disagreeing, []).append(outcome.block)
    result.unresolved = [
        describe_disagreement(disagreeing, blocks, manifest)
        for disagreeing, blocks in sorted(unresolved.items())
    ]
    result.faulty = tuple(sorted({n for outcome in outcomes for n in outcome.faulty}))
    rebuilt: dict[int, list[int]] = {}
    for outcome in outcomes:
        for rebuilt_block in outcome.rebuilt:
            rebuilt.setdefault(rebuilt_block.machine, []).append(outcome.block)
    result.error_bound = max((outcome.error_bound for outcome in outcomes), default=0.0)
    result.rebuilt = {n: manifest.describe_rows(blocks) for n, blocks in sorted(rebuilt.items())}
    result.still_damaged = [n for n in condition.damaged if n not in machines]
    damaged_checksum_files = [
        name for name in condition.other_problems if name.startswith("checksums")
    ]
    result.restored += damaged_checksum_files
    checksums = np.where(good, condition.checksums, condition.expected_checksums)
    publish_rebuilt(
        directory, manifest, checksums, outcomes, are_checksums_damaged=bool(damaged_checksum_files)
    )
