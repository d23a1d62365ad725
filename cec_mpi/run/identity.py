"""What a run is of: another one does not go on from what it has left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import shown

_SHARDS = "shards"  # checksums of the store's shards, and of what their rows were divided by
_DIGITS = 16  # of a checksum


def describe_run(
    task: str, options: Mapping[str, Any], manifest: Manifest, vectors: NDArray[Any] | None = None
) -> dict[str, Any]:
    """What a run is of: one with another description does not go on from its checkpoint.

    Parameters
    ----------
    task : str
    options : mapping
        Of the task; that more iterations are made does not make it another run.
    manifest : Manifest
    vectors : (T, r) ndarray, optional
        What X is multiplied with.
    """
    about = {
        "task": task,
        "rows": manifest.rows,
        "columns": manifest.columns,
        "options": {k: repr(v) for k, v in sorted(options.items()) if k != "iterations"},
        _SHARDS: _shards(manifest),
    }
    if vectors is not None:
        about["vectors"] = _digest(vectors)
    return about


def _shards(manifest: Manifest) -> list[str]:
    """What tells shards of another matrix: those of 2 X have the same bytes, not exponents."""
    exponents = manifest.row_exponents.xxh3_128 if manifest.row_exponents else ""
    sums = [shard.xxh3_128 + exponents for shard in manifest.shards]
    return [xxhash.xxh3_128_hexdigest(each.encode())[:_DIGITS] for each in sums]


def _digest(vectors: NDArray[Any]) -> str:
    digest = xxhash.xxh3_128()
    for vector in vectors:
        digest.update(np.ascontiguousarray(vector).data)
    return digest.hexdigest()[:_DIGITS]


def check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to go on with what another task, other options or another matrix has left.

    A store of the same matrix has at least one shard in common: repairs and further
    machines leave others as they were.

    Raises
    ------
    InputError
        Names the file and what differs.
    """
    shards = found.get(_SHARDS)
    if not isinstance(shards, list) or not any(each in wanted[_SHARDS] for each in shards):
        raise InputError(
            f"{path} is of another matrix, or of one that was encoded otherwise: --resume goes on "
            "with the same task, options and matrix"
        )
    for name in dict.fromkeys((*wanted, *found)):
        if name == _SHARDS:
            continue
        if found.get(name) != wanted.get(name):
            raise InputError(
                f"{path} has {name} {shown(found.get(name))}, this run {shown(wanted.get(name))}: "
                "--resume goes on with the same task, options and matrix"
            )
