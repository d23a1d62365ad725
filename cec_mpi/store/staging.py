"""Copies of shards on the machines' own disks.

A staged shard has its usual name in a directory of the node, beside a small file that identifies
it. The store remembers the pattern of these directories. A copy that is missing or outdated, or
belongs to another store, is ignored.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.files.durable import check_room, publish, write_at
from cec_mpi.files.paths import as_path
from cec_mpi.files.regular import read_regular
from cec_mpi.files.replacing import replacing
from cec_mpi.store.format.checksums import read_row
from cec_mpi.store.format.manifest import INCOMPLETE, MANIFEST, MANIFEST_COPY, Manifest
from cec_mpi.store.format.shard_files import problem_on_opening
from cec_mpi.store.plain import PlainShard

_STAGED = "staged.json"


def node_directory(pattern: str | os.PathLike[str], host: str = "") -> Path:
    """Return the directory of a node, by default this one; ``{host}`` stands for its name."""
    return as_path(os.fsdecode(pattern).replace("{host}", host or socket.gethostname()))


def remember_stage(store: Path, pattern: str) -> bool:
    """Note in the store where its copies are; return False if it cannot be written."""
    try:
        publish(store / _STAGED, json.dumps({"directory": str(Path(pattern).absolute())}).encode())
    except OSError:
        return False
    return True


def remembered_stage(store: Path) -> str | None:
    """Return the pattern of the last staging, if the store has noted one."""
    try:
        pattern = json.loads(read_regular(store / _STAGED))["directory"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # without copies a job reads the store itself
    return pattern if isinstance(pattern, str) else None


def staged_file(pattern: str, manifest: Manifest, machine: int) -> Path | None:
    """Return the copy of a shard on this node, if it is up to date."""
    path = node_directory(pattern) / manifest.shards[machine - 1].file
    try:
        label = json.loads(read_regular(_label(path)))
    except (OSError, ValueError, RecursionError):
        return None
    if label != _content(manifest, machine) or problem_on_opening(path, manifest):
        return None
    return path


def stage_shard(
    store: Path,
    manifest: Manifest,
    machine: int,
    pattern: str,
    watch: Callable[[int], None] = lambda done: None,
) -> int:
    """Copy a shard to this node, and check each block.

    Parameters
    ----------
    store : Path
    manifest : Manifest
    machine : int
    pattern : str
        Directory on each node; ``{host}`` stands for its name.
    watch : callable
        Called with the number of copied bytes.

    Returns
    -------
    int
        Number of copied bytes; 0 if the copy existed.

    Raises
    ------
    DamagedStoreError
        A block of the shard is damaged.
    InputError
        The directory cannot be used.
    """
    copy = staged_file(pattern, manifest, machine)
    if copy is not None and _is_good(copy, store, manifest, machine):
        return 0
    directory = node_directory(pattern)
    path = directory / manifest.shards[machine - 1].file
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in (MANIFEST, MANIFEST_COPY, INCOMPLETE):
            if (directory / name).exists():
                raise InputError(f"{directory} is a store, expected a directory for copies")
        if os.path.lexists(path) and not os.path.lexists(_label(path)):
            raise InputError(
                f"{path} was not made by stage, so it was not replaced: choose another directory"
            )
        check_room(path, manifest.shards[machine - 1].bytes)
        with replacing(path) as (descriptor, _):
            _copy(store, manifest, machine, descriptor, watch)
            publish(_label(path), b"{}")  # ours, but not valid before it names the shard
        publish(_label(path), json.dumps(_content(manifest, machine)).encode())
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error.strerror or error}") from None
    return manifest.shards[machine - 1].bytes


def _is_good(copy: Path, store: Path, manifest: Manifest, machine: int) -> bool:
    try:
        if manifest.replicas is not None:
            from cec_mpi.store.replicas.care import is_whole  # few processes need it

            return is_whole(copy, store, manifest, machine)
        PlainShard(copy, store, manifest, machine).load([(0, manifest.rows_per_shard)])
    except DamagedStoreError:
        return False
    return True


def _copy(
    store: Path,
    manifest: Manifest,
    machine: int,
    descriptor: int,
    watch: Callable[[int], None],
) -> None:
    if manifest.replicas is not None:
        from cec_mpi.store.replicas.care import copy_parts  # few processes need it

        copy_parts(store, manifest, machine, descriptor, watch)
        return
    sums = np.zeros((manifest.code.machines, manifest.grid.count), np.uint64)
    sums[machine - 1] = read_row(store, manifest, machine)
    from cec_mpi.store.rebuilding import Blocks  # which hardly any process needs

    blocks = Blocks(store, manifest, sums)
    write_at(descriptor, manifest.header.encode("latin-1"), 0)
    for number in range(manifest.grid.count):
        block = manifest.grid.block(number)
        rows = blocks.read(machine, block)
        if rows is None:
            raise DamagedStoreError(
                f"{store / manifest.shards[machine - 1].file}: rows {block.start}.."
                f"{block.stop - 1} are damaged: cec-mpi repair {store} rebuilds them"
            )
        write_at(descriptor, rows, manifest.place(block.offset))
        watch(manifest.shard_bytes * (number + 1) // manifest.grid.count)


def _label(path: Path) -> Path:
    return path.with_suffix(".json")


def _content(manifest: Manifest, machine: int) -> dict[str, str]:
    return {"xxh3_128": manifest.shards[machine - 1].xxh3_128}
