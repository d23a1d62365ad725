"""Blocks of copies: one good copy is all others."""

from __future__ import annotations

from cec_mpi.store.blocks import Agreement, Blocks, Values
from cec_mpi.store.copies.manifest import CopiesManifest


class CopiedBlocks(Blocks):
    """Blocks of a store of copies."""

    manifest: CopiesManifest

    def rebuild(self, found: Agreement, machines: tuple[int, ...]) -> Values:
        """As `Blocks.rebuild`."""
        (copy,) = found.shards.values()
        return Values([copy] * len(machines), [0.0] * len(machines))
