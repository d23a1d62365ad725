"""X back from a store, without any machine."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.store.checksums import read_rows
from cec_mpi.store.computing import Computing, compute_all
from cec_mpi.store.files import check_room, sync
from cec_mpi.store.manifest import shard_header
from cec_mpi.store.reader import open_store
from cec_mpi.store.rebuild import Blocks, fit_blocks
from cec_mpi.store.work import MEMORY, LocalRunner, Runner

__all__ = ["decode"]


def decode(
    store: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: int = MEMORY,
    runner: Runner | None = None,
) -> float:
    """Decode the matrix X of a store into a new ``.npy`` file.

    Where more than L shards are good they are compared, and one that is found to be wrong
    is left out.

    Parameters
    ----------
    store : path
    out : path
        Of shape (q, r) in the store's dtype. It appears when it is complete.
    memory : int
        Bytes that each process may take above the bare interpreter.
    runner : Runner, optional
        Who does the work; by default the threads of this process.

    Returns
    -------
    float
        Certified: no entry differs from what was encoded (X in the store's dtype) by more
        than this times the largest entry at the same place of the L parts of X.

    Raises
    ------
    DamagedStoreError
        Fewer than L shards are good somewhere, or they disagree, or the checksums are
        damaged.
    InputError
        `out` exists or cannot be written.
    """
    target = Path(out)
    if target.exists() or target.is_symlink():
        raise InputError(f"{target} exists: give the matrix a new name")
    parent = target.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{parent} is not a directory: cannot make {target}")
    opened = open_store(store)
    manifest = opened.manifest
    runner = runner or LocalRunner()
    header = shard_header(manifest.rows, manifest.columns, manifest.dtype).encode("latin-1")
    size = len(header) + manifest.rows * manifest.columns * manifest.itemsize
    check_room(target, size)
    partial = parent / f".{target.name}.partial-{os.getpid()}"
    try:
        try:
            with partial.open("xb") as file:
                file.write(header)
                file.truncate(size)
            sums = read_rows(opened.path, manifest, manifest.code.recovery)
            work = Computing(
                Blocks(opened.path, manifest, sums),
                np.eye(manifest.code.recovery),
                partial,
                len(header),
                manifest.rows * manifest.columns,
                fit_blocks(manifest, memory, runner.threads),
            )
            found = compute_all(work, runner, "decoded")
            if target.exists():
                raise InputError(f"{target} exists: give the matrix a new name")
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)
        sync(parent)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from None
    return max(each.error_bound for each in found)
