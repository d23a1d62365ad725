"""What others would do with the same machines: simpler schemes, by the same model of times.

Each baseline replays the availability of a scenario with its speeds, without noise, and its costs.
Changes take effect between two steps, as in a run whose availability is simulated. Without a code,
each machine has the room that a shard takes: the shares of a step are at most 1/L of X, or J/N in
place of replicas, and with fewer machines than that needs a step waits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cec_mpi.core.plan.load import fractional_load
from cec_mpi.errors import InputError
from cec_mpi.simulation.replay import Change, Floats, Machines, Model, replay
from cec_mpi.simulation.scenario import Outcome, Scenario

CHECKPOINT_SECONDS = 60.0


class _Uncoded:
    """Rows of X on as many machines as there is room for them on."""

    decoded = 1

    def __init__(self, model: Model) -> None:
        scenario = model.scenario
        self._model, self._costs = model, scenario.costs
        self.least = scenario.recovery or -(-model.machines // scenario.copies)


class EqualShares(_Uncoded):
    """Equal shares of X without a code, moved over the network whenever machines come or leave.

    As few rows move as equal shares allow.
    """

    def change(self, before: Machines, left: Machines, now: Machines, rows: Floats) -> Change:
        """Move what machines do not have yet, or read all of it at first."""
        model, costs = self._model, self._costs
        each = model.size / len(now)
        if not before:
            return Change(each / costs.disk, model.size)
        had = model.size / len(before)
        moved = sum(max(0.0, each - (had if n in before - left else 0.0)) for n in now)
        return Change(costs.latency + moved / costs.bandwidth, event="moved")

    def rows(self, rates: Floats) -> Floats:
        """As many for each machine."""
        return np.full(rates.size, self._model.rows / rates.size)


class Fastest(_Uncoded):
    """A coded store, of which the fastest L machines compute their whole shards.

    Processes of machines that leave end if those of the scenario do.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.decoded = self.least
        self._read: set[int] = set()
        self._loses = model.scenario.loses

    def change(self, before: Machines, left: Machines, now: Machines, rows: Floats) -> Change:
        """Read the shards of processes that compute for the first time."""
        if self._loses:
            self._read -= left
        chosen = {n for n, each in zip(sorted(now), rows, strict=True) if each} - self._read
        self._read |= chosen
        shard = self._model.size / self.decoded
        return Change(shard / self._costs.disk if chosen else 0.0, shard * len(chosen))

    def rows(self, rates: Floats) -> Floats:
        """Whole shards, on the fastest machines."""
        rows = np.zeros(rates.size)
        rows[np.argsort(-rates, kind="stable")[: self.decoded]] = self._model.rows / self.decoded
        return rows


class Restarting(_Uncoded):
    """Shares of X in proportion to speeds, without a code, in a job that is started again.

    If machines leave, the steps since the last checkpoint are lost. If machines come, the job
    writes a checkpoint first. Then all machines start, and read their shares.
    """

    def change(self, before: Machines, left: Machines, now: Machines, rows: Floats) -> Change:
        """Start with these machines."""
        size = self._model.size
        seconds = float(rows.max()) * self._model.row_bytes / self._costs.disk
        if not before:
            return Change(seconds, size)
        return Change(self._costs.start + seconds, size, bool(left), "restarted")

    def rows(self, rates: Floats) -> Floats:
        """In proportion to speeds, up to the room of a machine: Theorem 1."""
        load = fractional_load(rates, self.least)
        return np.array(load.mu, np.float64) * (self._model.rows / self.least)


def equal_shares(scenario: Scenario) -> Outcome:
    """Return what comes of `EqualShares` with the machines of a scenario."""
    model = Model(scenario)
    return replay(model, EqualShares(model))


def fastest(scenario: Scenario) -> Outcome:
    """Return what comes of `Fastest` with the machines of a scenario, which has a code."""
    if scenario.recovery is None:
        raise InputError("the fastest L machines: expected a scenario with a code, not replicas")
    model = Model(scenario)
    return replay(model, Fastest(model))


def restarting(scenario: Scenario, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> Outcome:
    """Return what comes of `Restarting`, with checkpoints at least this number of seconds apart."""
    model = Model(scenario)
    return replay(model, Restarting(model), checkpoint_seconds)


BASELINES: dict[str, Callable[[Scenario], Outcome]] = {
    "equal shares": equal_shares,
    "fastest": fastest,
    "restarting": restarting,
}
