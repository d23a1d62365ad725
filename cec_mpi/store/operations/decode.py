"""X back from a store, without any machine."""

from __future__ import annotations

import os

import numpy as np

from cec_mpi.files.appearing import appearing, check_new
from cec_mpi.files.durable import check_room
from cec_mpi.files.saving import storing
from cec_mpi.store.format.checksums import read_rows
from cec_mpi.store.format.scaling import open_exponents
from cec_mpi.store.operations.outputs import open_output
from cec_mpi.store.reader import open_store
from cec_mpi.store.rebuilding import Blocks, Computing, compute_all, fit_blocks
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

    Where more than L shards are good they are compared, and one that is found to be wrong
    is left out.

    Parameters
    ----------
    store : path
    out : path
        Of shape (q, r) in the store's dtype, by its name ``.npy``, ``.csv`` or ``.tsv`` (with
        the digits that numbers need, and the names of the columns if there are some),
        ``file.h5::/dataset`` (by default ``/X``), ``array.zarr`` or ``group.zarr::/array``. It
        appears when it is complete.
    delimiter : str, optional
        Of a text table, which may have any name then: one character, or ``"tab"``,
        ``"semicolon"``, ``"space"``.
    memory : int
        Bytes that each process may take above the bare interpreter.
    runner : Runner, optional
        Who does the work; by default the threads of this process. One process writes text
        and Zarr, when all have decoded.

    Returns
    -------
    float
        Certified: no entry differs from what was encoded (X in the store's dtype) by more
        than this times the largest entry at the same place of the L parts of X. Where rows
        were scaled, both are entries of rows divided by their powers of two.

    Raises
    ------
    DamagedStoreError
        Fewer than L shards are good somewhere, or they disagree, or the checksums are
        damaged.
    InputError
        `out` has no format that is known, exists or cannot be written.
    """
    output = open_output(out, delimiter)
    check_new(output.path)
    opened = open_store(store)
    manifest = opened.manifest
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
