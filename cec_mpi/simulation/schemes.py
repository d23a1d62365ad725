"""Schemes of this package for the replay of `cec_mpi.simulation.replay`: codes, and replicas."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cec_mpi.core.plan.load import fractional_load
from cec_mpi.core.replicas.holders import Holders, held_together, spread_copies
from cec_mpi.core.replicas.least import Groups
from cec_mpi.core.replicas.parts import PARTS
from cec_mpi.simulation.replay import Change, Floats, Machines, Model, Work


class Coded:
    """A coded store: Theorem 1 for the machines that are available.

    A machine that comes reads its shard, also if it was there before: another computer may have
    taken its place.

    Parameters
    ----------
    model : Model
        Of a scenario with a code.
    """

    def __init__(self, model: Model) -> None:
        scenario = model.scenario
        assert scenario.recovery is not None
        self.decoded = self._recovery = scenario.recovery
        self._model, self._stragglers = model, scenario.options.stragglers
        self.least = self._recovery
        self._shard = model.size / self._recovery
        self._known: dict[Machines, Work] = {}

    def is_enough(self, machines: Machines) -> bool:
        """See `Scheme.is_enough`."""
        return len(machines) >= self._recovery

    def work(self, machines: Machines, rates: Floats) -> Work:
        """The optimal load, for as many stragglers as these machines allow."""
        if machines not in self._known or not self._model.is_steady:
            late = min(self._stragglers, len(machines) - self._recovery)
            load = fractional_load(rates, self._recovery + late)
            rows = np.array(load.mu, np.float64) * (self._model.rows / self._recovery)
            self._known[machines] = Work(rows, late)
        return self._known[machines]

    def change(self, before: Machines, left: Machines, now: Machines, work: Work) -> Change:
        """Read the shards of machines that come."""
        shards = len(now - (before - left))
        seconds = self._shard / self._model.scenario.costs.disk if shards else 0.0
        return Change(seconds, shards * self._shard)


@lru_cache
def _holders(parts: int, speeds: tuple[float, ...], copies: int) -> Holders:
    """Return who holds each part: the same for all runs with a store."""
    return spread_copies(parts, speeds, copies)


class Replicated:
    """A store of replicas: the flow of its rows to the machines that hold them.

    Parameters
    ----------
    model : Model
        Of a scenario with replicas.
    """

    decoded = 1

    def __init__(self, model: Model) -> None:
        scenario = model.scenario
        self._model, self._stragglers = model, scenario.options.stragglers
        parts = min(model.rows, PARTS * model.machines)
        self.holders = _holders(parts, tuple(model.rates(0).tolist()), scenario.copies)
        self._sets = [frozenset(each) for each in set(self.holders)]
        self.least = 1
        self.held = np.zeros(model.machines)
        for each in self.holders:
            self.held[np.array(each) - 1] += 1 / parts  # share of X
        self._known: dict[Machines, Work] = {}

    def is_enough(self, machines: Machines) -> bool:
        """See `Scheme.is_enough`."""
        return bool(machines) and all(each & machines for each in self._sets)

    def work(self, machines: Machines, rates: Floats) -> Work:
        """The least time, for as many stragglers as these machines allow."""
        if machines not in self._known or not self._model.is_steady:
            numbers = sorted(machines)
            sets, which = held_together(self.holders, numbers)
            late = min(self._stragglers, min(map(len, sets)) - 1)
            costs = np.bincount(which, minlength=len(sets)).astype(np.float64)
            groups = Groups(costs, sets, len(numbers), 1 + late)
            _, amounts = groups.least(rates)
            row_cost = len(self.holders) / self._model.rows / groups.unit
            rows: Floats = np.bincount(groups.machine, amounts, len(numbers)) / row_cost
            self._known[machines] = Work(rows, late)
        return self._known[machines]

    def change(self, before: Machines, left: Machines, now: Machines, work: Work) -> Change:
        """Read what machines that come hold."""
        sizes = [self.held[n - 1] * self._model.size for n in now - (before - left)]
        return Change(max(sizes, default=0.0) / self._model.scenario.costs.disk, sum(sizes))
