"""Facts about a replicated store that ``info``, ``plan`` and ``encode`` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cec_mpi.core.replicas.holders import PlacementQuality, assess_placement, fatal_sets
from cec_mpi.store.facts import Facts
from cec_mpi.store.replicas.layout import BLOCK_BYTES, Layout
from cec_mpi.store.replicas.manifest import ReplicaManifest
from cec_mpi.text import format_bytes, plural, truncate

_MAX_LISTED = 8


class ReplicaFacts(Facts):
    """Facts about a replicated store."""

    manifest: ReplicaManifest

    def summary(self) -> str:
        """See `Facts.summary`; compares the size with that of a coded store."""
        manifest = self.manifest
        size = sum(shard.bytes for shard in manifest.shards)
        recovery = manifest.sufficient_machines  # of a code that tolerates as many losses
        shard_bytes = -(-manifest.rows // recovery) * manifest.columns * manifest.itemsize
        return (
            f"{manifest.rows} x {manifest.columns} {manifest.dtype}, "
            f"{plural(manifest.nonzeros, 'nonzero')}, on {self.describe_machines()}; each row on "
            f"{plural(manifest.copies, 'machine')}; {format_bytes(size)} (a code with --recovery "
            f"{recovery}: {format_bytes(manifest.machines * shard_bytes)})"
        )

    def table(self) -> list[tuple[str, str]]:
        """See `Facts.table`."""
        manifest = self.manifest
        layout = manifest.layout
        size = sum(shard.bytes for shard in manifest.shards)
        density = manifest.nonzeros / (manifest.rows * manifest.columns)
        quality = _assess_placement(layout)
        fatal = fatal_sets(layout.holders, range(1, layout.machines + 1))
        return [
            (
                "X",
                f"{manifest.rows} x {manifest.columns} {manifest.dtype}, "
                f"{plural(manifest.nonzeros, 'nonzero')} ({density:.2%})",
            ),
            ("machines", self.describe_machines()),
            (
                "copies",
                f"each row on {plural(manifest.copies, 'machine')}; "
                f"{plural(layout.part_count, 'part')} on "
                f"{plural(quality.holder_sets, 'different set')} of machines",
            ),
            *loss_facts(manifest.copies, quality.loss_probability, fatal),
            balance_fact(quality.mean_ratio, quality.max_ratio, quality.unavailable_machines),
            (
                "shards",
                f"{format_bytes(size)} in blocks of {BLOCK_BYTES >> 20} MiB, each with a checksum",
            ),
        ]

    def details(self) -> dict[str, Any]:
        """See `Facts.details`."""
        manifest = self.manifest
        layout = manifest.layout
        quality = _assess_placement(layout)
        return {
            "nonzeros": manifest.nonzeros,
            "copies": manifest.copies,
            "parts": layout.part_count,
            "sets_of_holders": quality.holder_sets,
            "fatal": fatal_sets(layout.holders, range(1, layout.machines + 1)),
            "loss_probability": quality.loss_probability,
            "over_optimum": {
                "mean": quality.mean_ratio,
                "worst": quality.max_ratio,
                "unavailable": quality.unavailable_machines,
            },
        }

    def shard_details(self, machine: int) -> dict[str, Any]:
        """See `Facts.shard_details`."""
        return {"parts": len(self.manifest.layout.parts_by_machine[machine - 1])}


def _assess_placement(layout: Layout) -> PlacementQuality:
    """Return the quality of the placement, for speeds in proportion to the parts of a machine."""
    costs = layout.sizes.sum(axis=1).astype(np.float64)
    speeds = [max(1.0, float(costs[parts].sum())) for parts in layout.parts_by_machine]
    return assess_placement(layout.holders, speeds, costs.tolist())


def loss_facts(
    copies: int, loss_probability: Mapping[int, float], fatal: Sequence[Sequence[int]]
) -> list[tuple[str, str]]:
    """Return facts about the losses that end a run with copies of sparse rows.

    Parameters
    ----------
    copies : int
        Available machines that hold each row.
    loss_probability : mapping of int to float
        Probability that k random machines hold all copies of some rows, by k.
    fatal : sequence of sequences of int
        Minimal sets of machines that hold all copies of some rows.
    """
    tolerated = f"any {plural(copies - 1, 'machine')}" if copies > 1 else "no machine"
    text = ", ".join(
        f"{p:.1%} if {n} {'leaves' if n == 1 else 'leave'}" for n, p in loss_probability.items()
    )
    probabilities = f"; probability that random losses end a run: {text}" if text else ""
    sets = truncate([" ".join(map(str, machines)) for machines in fatal], _MAX_LISTED)
    return [
        ("losses", f"{tolerated} may leave{probabilities}"),
        ("", f"a run ends when all machines of one of these sets have left: {sets}"),
    ]


def balance_fact(mean_ratio: float, max_ratio: float, unavailable_machines: int) -> tuple[str, str]:
    """Return a fact about the balance of the work with copies of sparse rows."""
    return (
        "step time",
        f"on average {mean_ratio:.3f}, at most {max_ratio:.3f} times as long as if each machine "
        "held all rows (for speeds from half to twice the expected ones, and with "
        f"{plural(unavailable_machines, 'machine')} unavailable)",
    )
