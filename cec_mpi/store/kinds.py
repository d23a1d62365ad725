"""The kinds of stores, and their classes.

Classes are imported on first use, because a machine needs only one kind, and only replicated stores
need SciPy.
"""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cec_mpi.errors import InputError
from cec_mpi.store.format.manifest import Checksums, Manifest
from cec_mpi.store.shard import Holding, Verification

if TYPE_CHECKING:
    from cec_mpi.store.blocks import Blocks
    from cec_mpi.store.devices import Device
    from cec_mpi.store.facts import Facts
    from cec_mpi.store.file_shard import FileShard
    from cec_mpi.store.output import Output


class StoreKind(NamedTuple):
    """The classes of a kind of store, as strings ``module:name``.

    Attributes
    ----------
    manifest : str
        A `Manifest`.
    shard : str
        A `FileShard`.
    output : str
        An `Output`, or a function that returns one for a path and a delimiter.
    blocks : str
        A `Blocks`. The default is for a kind whose machines hold identical copies of a block.
    facts : str
        A `Facts`.
    device_shard : str
        A `FileShard` with a `Device` as its last argument, and without the argument `holding`. If
        empty, shards are always in main memory.
    """

    manifest: str
    shard: str
    output: str
    blocks: str = "cec_mpi.store.blocks:Blocks"
    facts: str = "cec_mpi.store.facts:Facts"
    device_shard: str = ""


STORE_KINDS = {
    "code": StoreKind(
        manifest="cec_mpi.store.coded.manifest:CodedManifest",
        shard="cec_mpi.store.coded.shard:CodedShard",
        output="cec_mpi.store.coded.outputs:open_output",
        blocks="cec_mpi.store.coded.blocks:CodedBlocks",
        facts="cec_mpi.store.coded.facts:CodedFacts",
        device_shard="cec_mpi.store.coded.device_shard:DeviceShard",
    ),
    "replicas": StoreKind(
        manifest="cec_mpi.store.replicas.manifest:ReplicaManifest",
        shard="cec_mpi.store.replicas.shard:SparseShard",
        output="cec_mpi.store.replicas.output:NpzOutput",
        facts="cec_mpi.store.replicas.facts:ReplicaFacts",
        device_shard="cec_mpi.store.replicas.device_shard:SparseDeviceShard",
    ),
}
"""Kinds of stores, by the field of ``manifest.json`` that is unique to the kind."""


def convert_manifest(content: dict[str, Any]) -> Manifest:
    """Return the manifest with this content.

    Raises
    ------
    ValueError
        The kind of store is unknown, or a field is missing, has another type, or is out of range.
    """
    for field, kind in STORE_KINDS.items():
        if field in content:
            manifest: Manifest = msgspec.convert(content, resolve_name(kind.manifest))
            return manifest
    raise ValueError(f"it has none of the fields {', '.join(STORE_KINDS)}, expected one of them")


def open_shard(
    path: Path,
    store: Path,
    manifest: Manifest,
    machine: int,
    holding: Holding,
    verify: Verification,
    device: Device | None = None,
) -> FileShard:
    """Open a shard file; see `FileShard`.

    Raises
    ------
    InputError
        Shards of this kind cannot be on a device.
    """
    shard: FileShard
    if device is None:
        shard = _resolve(manifest, "shard")(path, store, manifest, machine, holding, verify)
    else:
        shard_class = _resolve(manifest, "device_shard")
        shard = shard_class(path, store, manifest, machine, verify, device)
    return shard


def open_blocks(directory: Path, manifest: Manifest, checksums: Checksums) -> Blocks[Any]:
    """Return the blocks of a store; see `Blocks`."""
    blocks: Blocks[Any] = _resolve(manifest, "blocks")(directory, manifest, checksums)
    return blocks


def open_output(manifest: Manifest, out: Path, delimiter: str | None) -> Output:
    """Return the output for the decoded X; the name of the file determines the format.

    Raises
    ------
    InputError
        X cannot be written in this format.
    """
    output: Output = _resolve(manifest, "output")(out, delimiter)
    return output


def make_facts(manifest: Manifest) -> Facts:
    """Return the facts about a store that commands print."""
    facts: Facts = _resolve(manifest, "facts")(manifest)
    return facts


def _resolve(manifest: Manifest, role: str) -> Any:
    name = f"{type(manifest).__module__}:{type(manifest).__qualname__}"
    (kind,) = (kind for kind in STORE_KINDS.values() if kind.manifest == name)
    if not getattr(kind, role):
        raise InputError("device: shards of this store can only be on the cpu")
    return resolve_name(getattr(kind, role))
