"""When taking over shards pays, though a step could be made without."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from cec_mpi.core.holding.gaining import Gain, gain_of
from cec_mpi.core.placement.placement import Placement
from cec_mpi.core.plan.planner import Plan
from cec_mpi.core.speeds.given import Speeds
from cec_mpi.errors import CecError
from cec_mpi.master.step import Step
from cec_mpi.store.format.manifest import Manifest

_LEAST = 0.05  # of the makespan: for less nothing is taken over


class Gains:
    """Counts what steps lose since fast machines have too few shards.

    It pays to take over shards when what was lost is as long as reading them takes: who does not
    know how many steps there will be loses at most twice what could not be avoided.

    Parameters
    ----------
    speeds : Speeds
    manifest : Manifest
    """

    def __init__(self, speeds: Speeds, manifest: Manifest) -> None:
        self._speeds, self._manifest = speeds, manifest
        self._lost = 0.0  # seconds
        self._known: tuple[Plan | None, Gain | None] = None, None

    def worth_it(
        self,
        step: Step,
        placement: Placement,
        room: Sequence[int],
        reading: Callable[[int], float],
        failed: Collection[tuple[int, int]],
    ) -> dict[int, list[int]]:
        """Count a step; what machines are to take over now, if that pays.

        Parameters
        ----------
        step : Step
        placement : Placement
        room : (M,) sequence of int
            Shards that each machine can take over.
        reading : callable
            Seconds that a machine takes to read a shard.
        failed : collection of (int, int)
            Machines and shards that they cannot read.
        """
        scale = self._speeds.scale
        if scale is None:
            return {}
        known, gain = self._known
        if known is not step.plan:
            recovery, machines = self._manifest.code.recovery, step.available
            gain = None
            given = placement.holding, machines, step.speeds, recovery, placement.shards, room
            with suppress(CecError):  # speeds that nothing can be made of
                gain = gain_of(*given)
            self._known = step.plan, gain
        if gain is None:
            return {}
        pairs = {(n, shard) for n, mine in gain.taken.items() for shard in mine}
        if gain.after > (1 - _LEAST) * gain.before or pairs & set(failed):
            return {}
        self._lost += (gain.before - gain.after) * self._manifest.rows_per_shard / scale
        if self._lost <= max(len(mine) * reading(n) for n, mine in gain.taken.items()):
            return {}
        self._lost = 0.0
        return {n: list(mine) for n, mine in gain.taken.items()}
