"""Decoding of X from a store."""

from __future__ import annotations

import os

from cec_mpi.store.files.creating import check_new, new_path
from cec_mpi.store.files.durable import check_free_space
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.saving import convert_to_input_error
from cec_mpi.store.format.checksums import read_verified_checksums
from cec_mpi.store.kinds import open_blocks, open_output
from cec_mpi.store.limits import WORK_MEMORY_BYTES
from cec_mpi.store.reader import open_store
from cec_mpi.store.work import LocalRunner, Runner


def decode(
    store: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    memory: int = WORK_MEMORY_BYTES,
    runner: Runner | None = None,
) -> float:
    """Decode the matrix X of a store into a new file.

    If more than L shards are good, they are compared, and wrong shards are excluded.

    Parameters
    ----------
    store : path
    out : path
        File for the (q, r) array in the store's dtype. Its name determines the format: ``.npy``,
        ``.csv`` or ``.tsv`` (exact numbers, and column names if X has them), ``file.h5::/dataset``
        (by default ``/X``), ``array.zarr`` or ``group.zarr::/array``; ``.npz`` for a sparse X. The
        file appears when it is complete.
    delimiter : str, optional
        Delimiter of a text table, which may then have any name: one character, or ``"comma"``,
        ``"tab"``, ``"semicolon"``, ``"space"`` or ``"pipe"``.
    memory : int
        Bytes that each process may use in addition to the interpreter.
    runner : Runner, optional
        Runner of the work, by default the threads of this process. One process writes text, Zarr
        and ``.npz``.

    Returns
    -------
    float
        Upper bound on the error of an entry of X, including the rounding to the store's dtype.
        It is relative to the largest of the L entries in its code word, after any scaling of rows.

    Raises
    ------
    DamagedStoreError
        Fewer than L shards are good for some rows, shards disagree, or the checksums are damaged.
    InputError
        `out` has an unknown format, exists, or cannot be written.
    """
    source = open_store(store)
    manifest = source.manifest
    output = open_output(manifest, as_path(out), delimiter)
    check_new(output.path)
    check_free_space(output.path, output.size(manifest))
    with convert_to_input_error(output.path), new_path(output.path) as partial:
        checksums = read_verified_checksums(source.path, manifest, manifest.code.recovery)
        blocks = open_blocks(source.path, manifest, checksums)
        return output.write(blocks, partial, memory, runner or LocalRunner())
