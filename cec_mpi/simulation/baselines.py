"""Simpler schemes on the same machines, with the same timing model.

Each baseline replays the availability of a scenario with its speeds and costs, without noise.
Changes take effect between steps, as in a run with simulated availability. Without a code, each
machine has space for one shard: its share is at most 1/L of X (J/N with copies), and a step waits
while the available machines cannot store all of X.
"""

from __future__ import annotations

import math

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.simulation.replay import (
    Floats,
    MachineSet,
    Reconfiguration,
    SchemeFactory,
    TimeModel,
    optimal_rows,
)


class _OneShardScheme:
    """Base class of schemes in which each machine has space for one shard."""

    answers_per_row, checkpoint_seconds = 1, math.inf

    def __init__(self, model: TimeModel) -> None:
        scenario = model.scenario
        self._model, self._costs = model, scenario.costs
        self.min_machines = scenario.recovery or -(-model.machines // scenario.copies)


class EqualShares(_OneShardScheme):
    """Equal shares of X without a code, where machines read missing rows on each change.

    They read as few rows as equal shares allow.
    """

    def reconfigure(
        self, previous: MachineSet, departed: MachineSet, current: MachineSet, rows: Floats
    ) -> Reconfiguration:
        """Read the missing rows."""
        share = self._model.matrix_bytes / len(current)
        previous_share = self._model.matrix_bytes / max(len(previous), 1)
        remaining = previous - departed
        sizes = [max(0.0, share - (previous_share if n in remaining else 0.0)) for n in current]
        event = "moved" if previous else ""
        return Reconfiguration(self._costs.source.read_seconds(sizes), sum(sizes), event=event)

    def assign_rows(self, rates: Floats) -> Floats:
        """Return equal shares."""
        return np.full(rates.size, self._model.rows / rates.size)


class FastestMachines(_OneShardScheme):
    """A coded store whose fastest L machines compute their whole shards."""

    def __init__(self, model: TimeModel) -> None:
        if model.scenario.recovery is None:
            raise InputError("fastest: expected a scenario with a code, found one with copies")
        super().__init__(model)
        self.answers_per_row = self.min_machines
        self._machines_with_shard: set[int] = set()
        self._lost_when_away = model.scenario.lost_when_away

    def reconfigure(
        self, previous: MachineSet, departed: MachineSet, current: MachineSet, rows: Floats
    ) -> Reconfiguration:
        """Read the shards that the processes of the fastest machines have not read yet."""
        if self._lost_when_away:
            self._machines_with_shard -= departed
        fastest = {n for n, count in zip(sorted(current), rows, strict=True) if count}
        new_machines = fastest - self._machines_with_shard
        self._machines_with_shard |= fastest
        shard_bytes = self._model.matrix_bytes / self.answers_per_row
        sizes = [shard_bytes] * len(new_machines)
        return Reconfiguration(self._costs.source.read_seconds(sizes), sum(sizes))

    def assign_rows(self, rates: Floats) -> Floats:
        """Return whole shards for the fastest machines."""
        rows = np.zeros(rates.size)
        rows[np.argsort(-rates, kind="stable")[: self.answers_per_row]] = (
            self._model.rows / self.answers_per_row
        )
        return rows


class RestartOnChange(_OneShardScheme):
    """Shares of X in proportion to speeds, without a code, in a job that restarts on each change.

    If machines leave, the steps since the last checkpoint are lost. If machines join, the job
    first writes a checkpoint. Then all machines start and read their shares.
    """

    def __init__(self, model: TimeModel, checkpoint_seconds: float = 60.0) -> None:
        super().__init__(model)
        self.checkpoint_seconds = checkpoint_seconds

    def reconfigure(
        self, previous: MachineSet, departed: MachineSet, current: MachineSet, rows: Floats
    ) -> Reconfiguration:
        """Start the job on the available machines."""
        bytes_read = self._model.matrix_bytes
        seconds = self._costs.source.read_seconds((rows * self._model.row_bytes).tolist())
        if not previous:
            return Reconfiguration(seconds, bytes_read)
        return Reconfiguration(
            self._costs.process_start + seconds, bytes_read, bool(departed), "restarted"
        )

    def assign_rows(self, rates: Floats) -> Floats:
        """Return shares in proportion to speeds, of at most one shard, by Theorem 1."""
        return optimal_rows(rates, self.min_machines, self._model.rows)


BASELINES: dict[str, SchemeFactory] = {
    "equal shares": EqualShares,
    "fastest": FastestMachines,
    "restarting": RestartOnChange,
}
