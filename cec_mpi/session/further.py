"""Options for a further store, which the machines of a session are to serve too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cec_mpi.core.placement.placement import Placement
from cec_mpi.core.placement.spreading import spread
from cec_mpi.core.plan.scheme import Scheme
from cec_mpi.errors import InfeasibleError
from cec_mpi.options.session import SessionOptions
from cec_mpi.options.speeds import SpeedsOption
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import plural


def further_options(
    first: SessionOptions,
    served: tuple[int, ...],
    path: Path,
    manifest: Manifest,
    speeds: SpeedsOption,
    scheme: Scheme,
) -> SessionOptions:
    """The options of a session's first store, as they are for a further one.

    Parameters
    ----------
    first : SessionOptions
        Checked.
    served : tuple of int
        The machines that serve it.
    path : Path
        Of the further store.
    manifest : Manifest
        Of this.
    speeds, scheme
        As in `SessionOptions`.

    Raises
    ------
    InfeasibleError
        The machines have too few of its shards.
    """
    placement = _placement(first.placement, manifest)
    total, recovery = placement.machines, manifest.code.recovery
    machines = tuple(n for n in served if n <= total)
    if (held := placement.count(machines)) < recovery:
        shards = "" if placement.is_plain else f" with {plural(held, 'shard')}"
        raise InfeasibleError(
            f"{plural(len(machines), 'machine', 'serves', 'serve')} {path}{shards}: a step needs "
            f"{recovery}"
        )
    emulated = first.emulate_speeds
    if emulated is not None:
        emulated = (emulated + (1.0,) * total)[:total]
    return replace(
        first,
        stragglers=min(first.stragglers, placement.to_spare(recovery)),
        availability=None,
        speeds=speeds,
        scheme=scheme,
        machines=machines,
        shards_per_machine=placement,
        staged=None,
        emulate_speeds=emulated,
        emulate_changes=tuple(c for c in first.emulate_changes if c.machine <= total),
    )


def _placement(first: Placement, manifest: Manifest) -> Placement:
    """All of its shards, in proportion to what machines have of the first store."""
    code = manifest.code
    if first.is_plain:
        return Placement.plain(code.machines)
    return Placement(
        spread(code.machines, first.counts[: code.machines], code.recovery), code.machines
    )
