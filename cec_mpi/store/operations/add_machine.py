"""Add a machine to a store: compute its shard from any L shards."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from cec_mpi.core.code.extension import add_row
from cec_mpi.store.files.durable import check_room, locked, write_at
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.replacing import replacing
from cec_mpi.store.files.saving import storing
from cec_mpi.store.format.checksums import publish_generation, read_rows, row_sum
from cec_mpi.store.format.manifest import (
    CodedManifest,
    CopiesManifest,
    Manifest,
    ShardEntry,
    check_sizes,
    read_manifest,
    shard_name,
)
from cec_mpi.store.rebuilding import Blocks, Computing, compute_all, fit_blocks, merge_marks
from cec_mpi.store.replicas.care import extend
from cec_mpi.store.work import MEMORY, LocalRunner, Runner


def add_machine(
    store: str | os.PathLike[str],
    *,
    seed: int = 0,
    memory: int = MEMORY,
    runner: Runner | None = None,
) -> Manifest:
    """Compute the shard of a further machine, N + 1, without X.

    Other shards and running jobs do not change. The store then has N + 1 machines.

    Parameters
    ----------
    store : path
    seed : int
        Seed of the new row of the generator matrix.
    memory : int
        Bytes that each process may use in addition to the interpreter.
    runner : Runner, optional
        Runner of the work. By default the threads of this process.

    Returns
    -------
    Manifest

    Raises
    ------
    DamagedStoreError
        Fewer than L shards are good at some rows, shards disagree, or the checksums are damaged.
    InputError
        The store cannot be written, another process is writing, or the code would be too
        ill-conditioned with one more machine.
    """
    directory = as_path(store)
    runner = runner or LocalRunner()
    read_manifest(directory)
    with storing(directory), locked(directory, f"{directory} is being written by another process"):
        manifest = read_manifest(directory)
        check_sizes(directory, manifest)
        if isinstance(manifest, CopiesManifest):
            return extend(directory, manifest)
        assert isinstance(manifest, CodedManifest)
        check_room(directory / shard_name(manifest.code.machines + 1), manifest.shard_bytes)
        return _add(directory, manifest, seed, memory, runner)


def _add(
    directory: Path, manifest: CodedManifest, seed: int, memory: int, runner: Runner
) -> CodedManifest:
    sums = read_rows(directory, manifest, manifest.code.machines)
    code = add_row(manifest.code, manifest.dtype, seed)
    code.check_precision(manifest.dtype)
    header = manifest.header_of(1)
    name = shard_name(code.machines)
    with replacing(directory / name) as (descriptor, partial):
        write_at(descriptor, header, 0)
        os.ftruncate(descriptor, manifest.shard_bytes)
        work = Computing(
            Blocks(directory, manifest, sums),
            code.generator[-1:],
            partial,
            len(header),
            manifest.grid.rows * manifest.columns,
            fit_blocks(manifest, memory, runner.threads),
        )
        found = compute_all(work, runner, "extended")
    new = np.zeros(manifest.grid.count, np.uint64)
    for each in found:
        new[each.number] = each.sums[0]
    marks = merge_marks(manifest, (), {each.number: each.error_bound for each in found})
    entry = ShardEntry(name, manifest.shard_bytes, row_sum(new), marks)
    shards = (*manifest.shards, entry)
    grown = replace(manifest, code=code)
    return publish_generation(directory, grown, shards, np.vstack((sums, new)))
