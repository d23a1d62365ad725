"""Runs in a model of times: steps that are as long as each other while machines stay.

Many steps are replayed at once, so that a choice among many schemes takes little time. What a real
master would do is in `cec_mpi.simulation.simulate`.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.availability.models import seconds_between
from cec_mpi.core.plan.load import check_speeds
from cec_mpi.core.step.costs import StepCosts
from cec_mpi.errors import InputError
from cec_mpi.options.available import Available
from cec_mpi.simulation.scenario import Outcome, Scenario
from cec_mpi.simulation.store import bytes_of_row
from cec_mpi.text import plural

WAITS = "waits"  # event: a step waits for machines

_LATE_STEPS = 64  # over which the time of steps with late machines is averaged

Floats = NDArray[np.float64]
Machines = frozenset[int]


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


class Work(NamedTuple):
    """What machines do in a step.

    Attributes
    ----------
    rows : (n,) ndarray
        Of each available machine.
    late : int
        Machines whose answers are not waited for, S.
    """

    rows: Floats
    late: int = 0


class Scheme(Protocol):
    """How rows are shared out among the available machines.

    Attributes
    ----------
    decoded : int
        Answers of which each number of the result is made: L, and 1 without a code.
    least : int
        Machines without which no step is possible.
    """

    decoded: int
    least: int

    def is_enough(self, machines: Machines) -> bool:
        """Whether a step is possible with these machines."""

    def work(self, machines: Machines, rates: Floats) -> Work:
        """Share out the rows among machines, given the rows per second of each, ascending."""

    def change(self, before: Machines, left: Machines, now: Machines, work: Work) -> Change:
        """Machines come or leave; before the first step none were there.

        Those that have `left` since the step before may be back now.
        """


class Model:
    """The figures of a scenario.

    Parameters
    ----------
    scenario : Scenario
    draws : int
        Draws of the noise of speeds over which the time of all steps is averaged; 0 for a draw in
        each step.

    Attributes
    ----------
    machines : int
    rows : int
        Of X, q.
    row_bytes : float
        Of a row of a shard.
    size : float
        Bytes of X, as it is stored.
    """

    def __init__(self, scenario: Scenario, draws: int = 0) -> None:
        self.scenario, options = scenario, scenario.options
        self.machines, self.rows = scenario.machines, scenario.rows
        self.row_bytes = float(scenario.columns * np.dtype(scenario.dtype).itemsize)
        if scenario.recovery is None:
            self.row_bytes = bytes_of_row(scenario.density * scenario.columns, scenario.dtype)
        self.size = self.row_bytes * self.rows
        given = check_speeds(options.emulate_speeds or [1.0] * self.machines)
        if given.size != self.machines:
            raise InputError(
                f"{plural(given.size, 'emulated speed')}: expected one for each of "
                f"{plural(self.machines, 'machine')}"
            )
        self._rates = given * (options.emulate_base or scenario.rate / self.row_bytes)
        self._changes, self._noise = list(options.emulate_changes), options.emulate_noise
        self._draws = np.zeros((0, 0))
        if draws and self._noise:
            random = np.random.default_rng(options.seed)
            drawn = random.standard_normal((draws, self.machines))
            self._draws = np.exp(self._noise * drawn)

    @property
    def is_steady(self) -> bool:
        """Whether steps are as long as each other while machines stay."""
        return not self._changes and (not self._noise or bool(self._draws.size))

    def rates(self, step: int) -> Floats:
        """Return the rows per second of all machines in a step, without noise."""
        if not self._changes:
            return self._rates
        rates = self._rates.copy()
        for change in self._changes:
            if step >= change.step:
                rates[change.machine - 1] *= change.factor
        return rates

    def seconds(self, work: Work, present: NDArray[np.intp], step: int) -> float:
        """Return the time of the products of machines, counted from 0, in a step."""
        times = work.rows / self.rates(step)[present]
        if self._draws.size:
            times = times / self._draws[:, present]
        elif self._noise:
            random = np.random.default_rng((self.scenario.options.seed, step))
            times = times / np.exp(self._noise * random.standard_normal(self.machines))[present]
        return float(times.max(axis=-1).mean())

    def seconds_with_late(self, scheme: Scheme, machines: Machines, step: int) -> float:
        """Return the mean time of the products if the last answers are not waited for.

        A machine whose answer was not waited for takes no part in the next step, nor in those that
        begin before it has computed.
        """
        random = np.random.default_rng((self.scenario.options.seed, step))
        busy = np.zeros(self.machines)
        rates, now = self.rates(step), 0.0
        for _ in range(_LATE_STEPS):
            free = frozenset(n for n in machines if busy[n - 1] <= now)
            if not scheme.is_enough(free):
                now, free = max(now, float(busy.max())), machines
            present = np.array(sorted(free)) - 1
            work = scheme.work(free, rates[present])
            noise = np.exp(self._noise * random.standard_normal(self.machines))[present]
            ends = now + work.rows / (rates[present] * noise)
            order = np.argsort(ends, kind="stable")
            now = float(ends[order[order.size - 1 - work.late]])
            late = order[order.size - work.late :]
            busy[present[late]] = np.nextafter(ends[late], np.inf)
        return now / _LATE_STEPS

    def overhead(self, machines: int, decoded: int, adjoint: bool) -> float:
        """Return the seconds of a step besides the products."""
        costs, shape = self.scenario.costs, (self.rows, self.scenario.columns)
        coding = 0.0
        if adjoint:  # v is coded, and answers have as many numbers as X has columns
            coding = costs.decode * shape[0] * decoded
            answers = machines if self.scenario.options.is_elastic else 1  # lockstep adds them up
            shape, decoded = (answers * shape[1], shape[0]), 0
        step = StepCosts(
            machines,
            costs.latency,
            costs.bandwidth,
            recovery=decoded,
            several_nodes=not self.scenario.options.is_elastic,
            fixed=costs.fixed,
            each=costs.each,
            decode=costs.decode,
        )
        return costs.call + coding + step.overhead(*shape)


def replay(model: Model, scheme: Scheme, checkpoint_seconds: float = math.inf) -> Outcome:
    """Replay the availability of a scenario with a scheme.

    Parameters
    ----------
    model : Model
    scheme : Scheme
    checkpoint_seconds : float
        Least time between two checkpoints.

    Raises
    ------
    InputError
        The scenario has no end, or asks a command for availability.
    """
    scenario, options = model.scenario, model.scenario.options
    if scenario.steps is None and scenario.seconds is None:
        raise InputError("a simulation needs a number of steps, or of seconds")
    found = Available.found(options, model.machines)
    up = found["availability"].among(found["machines"])
    if seconds_between(up):
        raise InputError("a command cannot be asked for availability in a simulation")
    length = options.tick_seconds
    limit = math.inf if scenario.seconds is None else scenario.seconds
    wanted = math.inf if scenario.steps is None else scenario.steps
    now = waiting = read = 0.0
    there_for = np.zeros(model.machines)
    tick = step = 0
    optimum = since = saved_at = 0.0  # of the steps that count; of those since the last checkpoint
    saved = 0  # step of the last checkpoint
    given: tuple[int, ...] | None = None
    is_enough, machines, before, left = False, Machines(), Machines(), Machines()
    present, work, is_waiting = np.zeros(0, np.intp), Work(np.zeros(0)), False
    times: dict[Machines, float] = {}  # of the products of a step
    events: Counter[str] = Counter()
    ended = ""
    while step < wanted and now < limit:
        tick = tick if length is None else max(tick, int(now / length))
        if (there := up.at(tick)) is not given:
            given, machines = there, frozenset(there)
            present = np.array(sorted(machines), np.intp) - 1
            is_enough = scheme.is_enough(machines)
            left |= before - machines
        if not is_enough:
            if not options.wait or up.most_from(tick) < scheme.least:
                ended = (
                    f"{plural(len(machines), 'machine', 'is', 'are')} available at tick {tick}: a "
                    f"step needs {scheme.least}"
                )
                break
            events[WAITS] += not is_waiting
            is_waiting = True
            tick += 1
            begin = now
            now = min(limit, now if length is None else max(now, tick * length))
            waiting += now - begin
            there_for[present] += now - begin
            continue
        is_waiting = False
        if machines != before or left:
            work = scheme.work(machines, model.rates(step)[present])
            change = scheme.change(before, left, machines, work)
            if change.lost:
                step, optimum = saved, optimum - since
            if change.event:
                events[change.event] += 1
                saved, saved_at, since = step, now + float(change.seconds), 0.0
            now += float(change.seconds)
            there_for[present] += float(change.seconds)
            read += float(change.read)
            before, left = machines, Machines()
        adjoint = scenario.adjoint and step % 2 == 1
        if machines not in times or not model.is_steady:
            if work.late:
                times[machines] = model.seconds_with_late(scheme, machines, step)
            else:
                times[machines] = model.seconds(work, present, step)
        seconds = times[machines] + model.overhead(present.size, scheme.decoded, adjoint)
        best = model.rows / float(model.rates(step)[present].sum())
        some = 1
        if model.is_steady and not scenario.adjoint and length is not None:
            until = min(limit, saved_at + checkpoint_seconds, now + (wanted - step) * seconds)
            following = tick + 1
            while following * length < until and up.at(following) is given:
                following += 1
            until = min(until, following * length)
            some = int(min(wanted - step, max(1, math.ceil((until - now) / seconds))))
        now += some * seconds
        there_for[present] += some * seconds
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
        machine_seconds=there_for.tolist(),
        events=dict(events),
        ended=ended,
    )
