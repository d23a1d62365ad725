"""Adding a machine to a store: its shard is computed from other shards."""

from __future__ import annotations

import os

import numpy as np

from cec_mpi.store.blocks import check_outcomes
from cec_mpi.store.files.durable import check_free_space, locked
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.replacing import is_writable_in_place
from cec_mpi.store.files.saving import convert_to_input_error
from cec_mpi.store.format.checksums import read_verified_checksums
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.limits import WORK_MEMORY_BYTES
from cec_mpi.store.manifest_files import check_sizes, read_manifest
from cec_mpi.store.rebuilding import RebuildWork, publish_rebuilt, rebuild_blocks
from cec_mpi.store.work import LocalRunner, Runner


def add_machine(
    store: str | os.PathLike[str],
    *,
    seed: int = 0,
    memory: int = WORK_MEMORY_BYTES,
    runner: Runner | None = None,
) -> Manifest:
    """Add a machine to a store: compute the shard of machine N + 1, without X.

    Other shards do not change, and running jobs are not affected.

    Parameters
    ----------
    store : path
    seed : int
        Seed of the new row of the generator matrix.
    memory : int
        Bytes that each process may use in addition to the interpreter.
    runner : Runner, optional
        Runner of the work, by default the threads of this process.

    Returns
    -------
    Manifest

    Raises
    ------
    DamagedStoreError
        For some rows, fewer than L shards are good; or shards disagree, or the checksums are
        damaged.
    InputError
        The store cannot be written, another process is writing, or the code would be too
        ill-conditioned with one more machine.
    """
    directory = as_path(store)
    runner = runner or LocalRunner()
    read_manifest(directory)
    with (
        convert_to_input_error(directory),
        locked(directory, f"{directory} is being written by another process"),
    ):
        manifest = read_manifest(directory)
        check_sizes(directory, manifest)
        checksums = read_verified_checksums(directory, manifest, manifest.machines)
        extended = manifest.extend(seed)
        machine, path = extended.machines, directory / extended.file_of(extended.machines)
        check_free_space(path, extended.bytes_of(machine))
        checksums = np.vstack((checksums, np.zeros_like(checksums[:1])))
        blocks = np.flatnonzero(extended.blocks_held_by(machine)).tolist()
        work = RebuildWork(
            directory, extended, checksums, (machine,), blocks, memory, runner.threads
        )
        try:
            outcomes, _ = rebuild_blocks(work, {machine}, runner)
            check_outcomes(outcomes, directory, manifest, "extended")
        except BaseException:
            if is_writable_in_place(path):
                path.unlink()
            raise
        return publish_rebuilt(directory, extended, checksums, outcomes)
