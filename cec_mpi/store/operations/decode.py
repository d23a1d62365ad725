"""Decode X from a store."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.store.files.appearing import appearing, check_new
from cec_mpi.store.files.durable import check_room
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.saving import storing
from cec_mpi.store.format.checksums import read_rows
from cec_mpi.store.format.manifest import CodedManifest, CopiesManifest
from cec_mpi.store.format.scaling import open_exponents
from cec_mpi.store.operations.outputs import open_output
from cec_mpi.store.reader import open_store
from cec_mpi.store.rebuilding import Blocks, Computing, compute_all, fit_blocks
from cec_mpi.store.replicas.care import write_npz
from cec_mpi.store.work import MEMORY, LocalRunner, Runner


def decode(
    store: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    memory: int = MEMORY,
    runner: Runner | None = None,
) -> float:
    """Decode the matrix X of a store into a new file.

    If more than L shards are good, they are compared, and a wrong one is left out.

    Parameters
    ----------
    store : path
    out : path
        File of shape (q, r) in the store's dtype. Its name gives the format: ``.npy``, ``.csv`` or
        ``.tsv`` (with all digits, and the names of columns if there are any), ``file.h5::/dataset``
        (by default ``/X``), ``array.zarr`` or ``group.zarr::/array``. It appears when it is
        complete.
    delimiter : str, optional
        Delimiter of a text table, which may then have any name: one character, or ``"tab"``,
        ``"semicolon"``, ``"space"``.
    memory : int
        Bytes that each process may use in addition to the interpreter.
    runner : Runner, optional
        Runner of the work. By default the threads of this process. One process writes text and Zarr
        after all have decoded.

    Returns
    -------
    float
        Upper bound of the error: no entry differs from X in the store's dtype by more than this
        times the largest of the L entries of X that are coded together with it. If rows were
        scaled, this holds for the scaled entries.

    Raises
    ------
    DamagedStoreError
        Fewer than L shards are good at some rows, shards disagree, or the checksums are damaged.
    InputError
        `out` has an unknown format, exists, or cannot be written.
    """
    opened = open_store(store)
    manifest = opened.manifest
    if isinstance(manifest, CopiesManifest):
        _write_sparse(opened.path, manifest, as_path(out))
        return 0.0
    assert isinstance(manifest, CodedManifest)
    output = open_output(out, delimiter)
    check_new(output.path)
    runner = runner or LocalRunner()
    check_room(output.path, output.size(manifest))
    with (
        storing(output.path),
        appearing(output.path) as partial,
        output.being_written(partial, manifest) as (raw, begin),
    ):
        sums = read_rows(opened.path, manifest, manifest.code.recovery)
        work = Computing(
            Blocks(opened.path, manifest, sums),
            np.eye(manifest.code.recovery),
            raw,
            begin,
            manifest.rows * manifest.columns,
            fit_blocks(manifest, memory, runner.threads),
            open_exponents(opened.path, manifest),
        )
        found = compute_all(work, runner, "decoded")
    return max(each.error_bound for each in found)


def _write_sparse(directory: Path, manifest: CopiesManifest, out: Path) -> None:
    """Write a sparse X, of a store of replicas."""
    if out.suffix.lower() != ".npz":
        raise InputError(
            f"{out}: X is sparse, and is written as scipy.sparse.load_npz reads it: expected .npz"
        )
    check_new(out)
    check_room(out, int(manifest.replicas.sizes.sum()))
    with storing(out), appearing(out) as partial:
        write_npz(directory, manifest, partial)
