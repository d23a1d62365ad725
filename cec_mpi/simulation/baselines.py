"""What others would do with the same machines: simpler schemes, by the same model of times.

Each baseline replays the availability of a scenario with its speeds and costs, and messages as in
lockstep. Rows are shared out by the speeds that machines have when others come or leave, without
noise. Changes take effect between two steps, as in a run whose availability is simulated.
Without a code, each machine has the room that a shard takes: the shares of a step are at most 1/L
of X, or J/N in place of replicas, and with fewer machines than that needs a step waits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.availability.models import seconds_between
from cec_mpi.core.plan.load import check_speeds, fractional_load
from cec_mpi.core.plan.placement import Placement
from cec_mpi.core.step.costs import StepCosts
from cec_mpi.errors import InputError
from cec_mpi.options.available import Available
from cec_mpi.simulation.scenario import Outcome, Scenario
from cec_mpi.text import plural

CHECKPOINT_SECONDS = 60.0
_INDEX_BYTES = 4  # of a nonzero of a sparse X

Floats = NDArray[np.float64]


class Change(NamedTuple):
    """What a change of the available machines takes.

    Attributes
    ----------
    seconds : float
    read : float
        Bytes that are read from files.
    lost : bool
        Whether the steps since the last checkpoint are lost.
    event : str
    """

    seconds: float
    read: float = 0.0
    lost: bool = False
    event: str = ""


class Scheme(Protocol):
    """How rows are shared out among the available machines."""

    decoded: int  # answers of each number of the result, L; 0 without a code

    def change(
        self, model: Model, before: frozenset[int], now: frozenset[int], rows: Floats
    ) -> Change:
        """Machines come or leave; before the first step none were there."""

    def rows(self, model: Model, rates: Floats) -> Floats:
        """Return the rows of each available machine, given its rows per second."""


class Model:
    """The figures of a scenario.

    Parameters
    ----------
    scenario : Scenario

    Attributes
    ----------
    machines : int
    needed : int
        Machines without which a step waits.
    rows : int
        Of X, q.
    row_bytes : float
        Of a row of a shard.
    size : float
        Bytes of X.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, options = scenario, scenario.options
        self.machines, self.rows = scenario.machines, scenario.rows
        itemsize = np.dtype(scenario.dtype).itemsize
        self.row_bytes = float(scenario.columns * itemsize)
        self.needed = scenario.recovery or -(-self.machines // scenario.copies)
        if scenario.recovery is None:
            nonzeros = scenario.density * scenario.columns
            self.row_bytes = nonzeros * (itemsize + _INDEX_BYTES) + _INDEX_BYTES
        self.size = self.row_bytes * self.rows
        given = check_speeds(options.emulate_speeds or [1.0] * self.machines)
        if given.size != self.machines:
            raise InputError(
                f"baselines need machines with one shard each: there are {given.size} speeds for "
                f"{self.machines} shards"
            )
        self._rates = given * (options.emulate_base or scenario.rate / self.row_bytes)
        self._changes, self._noise = list(options.emulate_changes), options.emulate_noise

    @property
    def is_steady(self) -> bool:
        """Whether speeds are the same in all steps."""
        return not self._changes and not self._noise

    def rates(self, step: int, noise: bool = True) -> Floats:
        """Return the rows per second of all machines in a step."""
        rates = self._rates.copy()
        for change in self._changes:
            if step >= change.step:
                rates[change.machine - 1] *= change.factor
        if self._noise and noise:
            random = np.random.default_rng((self.scenario.options.seed, step))
            rates *= np.exp(self._noise * random.standard_normal(self.machines))
        return rates

    def overhead(self, machines: int, decoded: int, adjoint: bool) -> float:
        """Return the seconds of a step besides the products."""
        costs, shape = self.scenario.costs, (self.rows, self.scenario.columns)
        if adjoint:  # all machines answer with as many numbers as X has columns
            shape, decoded = (machines * shape[1], shape[0]), 0
        step = StepCosts(
            machines,
            costs.latency,
            costs.bandwidth,
            rate=1.0,
            recovery=max(1, decoded),
            fixed=costs.fixed,
            each=costs.each,
            decode=costs.decode if decoded else 0.0,
        )
        return costs.call + step.overhead(*shape)


class EqualShares:
    """Equal shares of X without a code, moved over the network whenever machines come or leave.

    As few rows move as equal shares allow.
    """

    decoded = 0

    def change(
        self, model: Model, before: frozenset[int], now: frozenset[int], rows: Floats
    ) -> Change:
        """Move what machines do not have yet, or read all of it at first."""
        each = model.size / len(now)
        costs = model.scenario.costs
        if not before:
            return Change(each / costs.disk, model.size)
        had = model.size / len(before)
        moved = sum(max(0.0, each - (had if n in before else 0.0)) for n in now)
        return Change(costs.latency + moved / costs.bandwidth, event="moved")

    def rows(self, model: Model, rates: Floats) -> Floats:
        """As many for each machine."""
        return np.full(rates.size, model.rows / rates.size)


class Fastest:
    """A coded store, of which the fastest L machines compute their whole shards."""

    def __init__(self, recovery: int) -> None:
        self.decoded = recovery
        self._read: set[int] = set()

    def change(
        self, model: Model, before: frozenset[int], now: frozenset[int], rows: Floats
    ) -> Change:
        """Read the shards of machines that compute for the first time."""
        chosen = {n for n, each in zip(sorted(now), rows, strict=True) if each} - self._read
        self._read |= chosen
        shard = model.size / self.decoded
        costs = model.scenario.costs
        return Change(shard / costs.disk if chosen else 0.0, shard * len(chosen))

    def rows(self, model: Model, rates: Floats) -> Floats:
        """Whole shards, on the fastest machines."""
        rows = np.zeros(rates.size)
        rows[np.argsort(-rates, kind="stable")[: self.decoded]] = model.rows / self.decoded
        return rows


class Restarting:
    """Shares of X in proportion to speeds, without a code, in a job that is started again.

    If machines leave, the steps since the last checkpoint are lost. If machines come, the job
    writes a checkpoint first. Then all machines start, and read their shares.
    """

    decoded = 0

    def change(
        self, model: Model, before: frozenset[int], now: frozenset[int], rows: Floats
    ) -> Change:
        """Start with these machines."""
        costs = model.scenario.costs
        seconds = float(rows.max()) * model.row_bytes / costs.disk
        if not before:
            return Change(seconds, model.size)
        return Change(costs.start + seconds, model.size, not before <= now, "restarted")

    def rows(self, model: Model, rates: Floats) -> Floats:
        """In proportion to speeds, up to the room of a machine: Theorem 1."""
        load = fractional_load(rates, model.needed)
        return np.array(load.mu, np.float64) * (model.rows / model.needed)


def equal_shares(scenario: Scenario) -> Outcome:
    """Return what comes of `EqualShares` with the machines of a scenario."""
    return _replay(Model(scenario), EqualShares())


def fastest(scenario: Scenario) -> Outcome:
    """Return what comes of `Fastest` with the machines of a scenario, which has a code."""
    if scenario.recovery is None:
        raise InputError("the fastest L machines: expected a scenario with a code, not replicas")
    return _replay(Model(scenario), Fastest(scenario.recovery))


def restarting(scenario: Scenario, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> Outcome:
    """Return what comes of `Restarting`, with checkpoints at least this number of seconds apart."""
    return _replay(Model(scenario), Restarting(), checkpoint_seconds)


BASELINES: dict[str, Callable[[Scenario], Outcome]] = {
    "equal shares": equal_shares,
    "fastest": fastest,
    "restarting": restarting,
}


def _replay(model: Model, scheme: Scheme, checkpoint_seconds: float = math.inf) -> Outcome:
    """Replay the availability with a scheme."""
    scenario, options = model.scenario, model.scenario.options
    if scenario.steps is None and scenario.seconds is None:
        raise InputError("a simulation needs a number of steps, or of seconds")
    found = Available.found(options, Placement.plain(model.machines))
    up = found["availability"].among(found["machines"])
    if seconds_between(up):
        raise InputError("a command cannot be asked for availability in a simulation")
    length = options.tick_seconds
    limit = math.inf if scenario.seconds is None else scenario.seconds
    wanted = math.inf if scenario.steps is None else scenario.steps
    now = waiting = machine_seconds = read = 0.0
    tick = step = 0
    optimum = since = saved_at = 0.0  # of the steps that count; of those since the last checkpoint
    saved = 0  # step of the last checkpoint
    before: frozenset[int] = frozenset()
    rows = np.zeros(0)
    events: Counter[str] = Counter()
    ended = ""
    while step < wanted and now < limit:
        tick = tick if length is None else max(tick, int(now / length))
        machines = frozenset(up.at(tick))
        if len(machines) < model.needed:
            if not options.wait or up.most_from(tick) < model.needed:
                ended = (
                    f"{plural(len(machines), 'machine', 'is', 'are')} available at tick {tick}: a "
                    f"step needs {model.needed}"
                )
                break
            tick += 1
            begin = now
            now = min(limit, now if length is None else max(now, tick * length))
            waiting += now - begin
            machine_seconds += (now - begin) * len(machines)
            continue
        present = np.array(sorted(machines)) - 1
        if machines != before:
            rows = scheme.rows(model, model.rates(step, noise=False)[present])
            change = scheme.change(model, before, machines, rows)
            if change.lost:
                step, optimum = saved, optimum - since
            if change.event:
                events[change.event] += 1
                saved, saved_at, since = step, now + change.seconds, 0.0
            now += change.seconds
            machine_seconds += change.seconds * len(machines)
            read += change.read
            before = machines
        rates = model.rates(step)[present]
        adjoint = scenario.adjoint and step % 2 == 1
        seconds = float((rows / rates).max()) + model.overhead(rates.size, scheme.decoded, adjoint)
        best = model.rows / float(rates.sum())
        some = 1
        if model.is_steady and not scenario.adjoint and length is not None:
            until = min(limit, (tick + 1) * length, saved_at + checkpoint_seconds)
            some = int(min(wanted - step, max(1, math.ceil((until - now) / seconds))))
        now += some * seconds
        machine_seconds += some * seconds * len(machines)
        optimum, since = optimum + some * best, since + some * best
        step, tick = step + some, tick + 1 if length is None else tick
        if now - saved_at >= checkpoint_seconds:
            saved, saved_at, since = step, now, 0.0
    over = max(0.0, now - waiting - optimum)
    return Outcome(
        steps=step,
        seconds=now,
        waiting=waiting,
        over=over,
        bytes_read=round(read),
        machine_seconds=machine_seconds,
        events=dict(events),
        ended=ended,
    )
