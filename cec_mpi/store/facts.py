"""Facts about a store that ``info``, ``encode`` and ``add-machine`` print."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import format_bytes, plural


class Facts:
    """Facts about a store from its manifest; each kind of store may add more."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def summary(self) -> str:
        """Return a description of the store in one line."""
        manifest = self.manifest
        return (
            f"{manifest.rows} x {manifest.columns} {manifest.dtype} on {self.describe_machines()}"
        )

    def describe_machines(self) -> str:
        """Return the number of machines, and how many of them suffice, as text."""
        machines, sufficient = self.manifest.machines, self.manifest.sufficient_machines
        verb = "suffices" if sufficient == 1 else "suffice"
        return f"{plural(machines, 'machine')}, any {sufficient} of them {verb}"

    def table(self) -> list[tuple[str, str]]:
        """Return names and values for ``info``."""
        manifest = self.manifest
        size = format_bytes(sum(shard.bytes for shard in manifest.shards))
        blocks = plural(manifest.block_count, "block")
        return [
            ("X", f"{manifest.rows} x {manifest.columns} {manifest.dtype}"),
            ("machines", self.describe_machines()),
            ("shards", f"{size} in all, in {blocks}, each with a checksum"),
        ]

    def details(self) -> dict[str, Any]:
        """Return the fields of ``info --json`` for this kind of store."""
        return {}

    def shard_details(self, machine: int) -> dict[str, Any]:
        """Return the fields of ``info --json`` for a shard of this kind of store."""
        return {"rebuilt": to_builtins(self.manifest.shards[machine - 1].rebuilt)}
