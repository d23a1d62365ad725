"""Facts about a replicated store that ``info``, ``plan`` and ``encode`` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cec_mpi.core.replicas.holders import PlacementQuality, assess_placement, fatal_sets
from cec_mpi.store.copies.layout import BLOCK_BYTES, Layout
from cec_mpi.store.copies.manifest import CopiesManifest
from cec_mpi.store.facts import Facts
from cec_mpi.text import format_bytes, plural, truncate

_MAX_LISTED = 8


class CopiesFacts(Facts):
    """Facts about a replicated store."""

    manifest: CopiesManifest

    def summary(self) -> str:
        """See `Facts.summary`, with what a code would take."""
        manifest = self.manifest
        size = sum(shard.bytes for shard in manifest.shards)
        needed = manifest.sufficient_machines  # L of a code that tolerates as many losses
        share = -(-manifest.rows // needed) * manifest.columns * manifest.itemsize
        return (
            f"{manifest.rows} x {manifest.columns} {manifest.dtype}, "
            f"{plural(manifest.nonzeros, 'nonzero')}, on {self.machines_text()}; each row on "
            f"{plural(manifest.copies, 'machine')}; {format_bytes(size)} (a code with --recovery "
            f"{needed}: {format_bytes(manifest.machines * share)})"
        )

    def table(self) -> list[tuple[str, str]]:
        """See `Facts.table`."""
        manifest = self.manifest
        layout = manifest.layout
        entries, size = int(layout.entries[-1]), sum(shard.bytes for shard in manifest.shards)
        share = entries / (manifest.rows * manifest.columns)
        spread = _spread(layout)
        fatal = fatal_sets(layout.holders, range(1, layout.machines + 1))
        return [
            (
                "X",
                f"{manifest.rows} x {manifest.columns} {manifest.dtype}, "
                f"{plural(entries, 'nonzero')} ({share:.2%})",
            ),
            ("machines", self.machines_text()),
            (
                "copies",
                f"each row on {plural(manifest.copies, 'machine')}; {plural(layout.parts, 'part')} "
                f"with {plural(spread.holder_sets, 'different set')} of machines",
            ),
            *loss_facts(manifest.copies, spread.loss_probability, fatal),
            balance_fact(spread.mean_ratio, spread.max_ratio, spread.unavailable),
            (
                "shards",
                f"{format_bytes(size)} in blocks of {BLOCK_BYTES >> 20} MiB with a checksum",
            ),
        ]

    def details(self) -> dict[str, Any]:
        """See `Facts.details`."""
        manifest = self.manifest
        layout = manifest.layout
        spread = _spread(layout)
        return {
            "nonzeros": manifest.nonzeros,
            "copies": manifest.copies,
            "parts": layout.parts,
            "sets_of_holders": spread.holder_sets,
            "fatal": fatal_sets(layout.holders, range(1, layout.machines + 1)),
            "lost": spread.loss_probability,
            "over_optimum": {
                "mean": spread.mean_ratio,
                "worst": spread.max_ratio,
                "away": spread.unavailable,
            },
        }

    def shard_details(self, machine: int) -> dict[str, Any]:
        """See `Facts.shard_details`."""
        return {"parts": len(self.manifest.layout.held[machine - 1])}


def _spread(layout: Layout) -> PlacementQuality:
    """Return the quality of the placement, for speeds in proportion to the held parts."""
    costs = layout.sizes.sum(axis=1).astype(np.float64)
    held = [float(costs[parts].sum()) for parts in layout.held]
    return assess_placement(layout.holders, [max(size, 1.0) for size in held], costs.tolist())


def loss_facts(
    copies: int, lost: Mapping[int, float], fatal: Sequence[Sequence[int]]
) -> list[tuple[str, str]]:
    """Return facts about losses that end a run with copies of sparse rows.

    Parameters
    ----------
    copies : int
        Available machines that hold each row.
    lost : mapping of int to float
        Probability that k random machines hold all copies of some rows, by k.
    fatal : sequence of sequences of int
        Minimal sets of machines that hold all copies of some rows.
    """
    may = f"any {plural(copies - 1, 'machine')}" if copies > 1 else "no machine"
    probabilities = ", ".join(f"{share:.1%} if {n} leave" for n, share in lost.items())
    often = f"; probability that random losses end a run: {probabilities}" if lost else ""
    sets = truncate([" ".join(map(str, machines)) for machines in fatal], _MAX_LISTED)
    return [
        ("losses", f"{may} may leave{often}"),
        ("", f"a run ends when all machines of one of these sets have left: {sets}"),
    ]


def balance_fact(mean: float, worst: float, away: int) -> tuple[str, str]:
    """Return a fact about the balance of the work with copies of sparse rows."""
    return (
        "step time",
        f"a step takes {mean:.3f} times as long as if each machine held all rows, at most "
        f"{worst:.3f} times (tried with speeds from half to twice the expected ones, and with "
        f"{plural(away, 'machine')} unavailable)",
    )
