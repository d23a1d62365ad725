"""Which machines the store of a run says there are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cec_mpi.errors import InputError
from cec_mpi.options.option import from_flags
from cec_mpi.options.placed import Placed

if TYPE_CHECKING:
    from cec_mpi.core.placement.placement import Placement


def placement_of(run: argparse.Namespace) -> tuple[Placement, int]:
    """Which machine of a run has which shards, and how many of them a step needs."""
    from cec_mpi.store.reader import open_store
    from cec_mpi.store.staging import node_directory

    manifest = open_store(node_directory(run.store)).manifest
    if run.shards_per_machine == "auto" and not isinstance(run.speeds, tuple):
        raise InputError("shards per machine auto: the number of machines is not known")
    placement = from_flags(Placed, run).placed(manifest, None, None, run.speeds)
    return placement, manifest.code.recovery
