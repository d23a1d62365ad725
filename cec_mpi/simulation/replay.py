"""Replay of runs in closed form: Theorem 1 for each set of available machines, without noise.

While the set is unchanged, all steps take the same time, so many steps are counted at once. Noise,
stragglers and losses during steps need `cec_mpi.simulation.simulate`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import check_speeds, fractional_load, optimal_c_star
from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import Availability, seconds_between
from cec_mpi.runtime.options.available import AvailabilityOptions
from cec_mpi.runtime.wire.orders import MAX_INLINE_ANSWERS, MAX_INLINE_VECTOR
from cec_mpi.simulation.scenario import Outcome, Scenario
from cec_mpi.simulation.store import csr_row_bytes
from cec_mpi.text import plural

WAIT_EVENT = "waits"  # event: a step waits for machines

_NUMBER_BYTES = 8  # of an entry of a vector

Floats = NDArray[np.float64]
Machines = frozenset[int]


class Reconfiguration(NamedTuple):
    """Effect of a change of the available machines.

    Attributes
    ----------
    seconds : float
    bytes_read : float
        Bytes read from files.
    loses_steps : bool
        Whether the steps since the last checkpoint are lost.
    event : str
    """

    seconds: float
    bytes_read: float = 0.0
    loses_steps: bool = False
    event: str = ""


class Scheme(Protocol):
    """A way to assign rows to the available machines.

    Attributes
    ----------
    answers_per_row : int
        Number of answers that each row of the result needs: L, or 1 without a code.
    min_machines : int
        Number of available machines that a step needs.
    """

    answers_per_row: int
    min_machines: int

    def rows(self, rates: Floats) -> Floats:
        """Return the number of rows of each machine for their rates in rows per second."""

    def reconfigure(
        self, previous: Machines, departed: Machines, current: Machines, rows: Floats
    ) -> Reconfiguration:
        """Return the effect of a change of machines; `previous` is empty before the first step.

        Machines that have `departed` since the previous step may have returned.
        """


class TimeModel:
    """Model of the times of a scenario.

    Parameters
    ----------
    scenario : Scenario

    Attributes
    ----------
    machines : int
    rows : int
        Number of rows of X, q.
    row_bytes : float
        Bytes of a row of a shard.
    size : float
        Bytes of X in the format of shards.
    rates : (N,) ndarray
        Rows per second of each machine.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, options = scenario, scenario.options
        self.machines, self.rows = scenario.machines, scenario.rows
        self.row_bytes = float(scenario.columns * np.dtype(scenario.dtype).itemsize)
        if scenario.recovery is None:
            self.row_bytes = csr_row_bytes(scenario.density * scenario.columns, scenario.dtype)
        self.size = self.row_bytes * self.rows
        speeds = check_speeds(options.emulate_speeds or [1.0] * self.machines)
        if speeds.size != self.machines:
            raise InputError(
                f"found {plural(speeds.size, 'emulated speed')}, expected {self.machines}, one for "
                "each machine"
            )
        self.rates = speeds * (options.emulate_base or scenario.rate / self.row_bytes)

    def overhead(self, machines: int, answers_per_row: int, adjoint: bool = False) -> float:
        """Return the seconds of a step without its products, as in `simulate`.

        Parameters
        ----------
        machines : int
        answers_per_row : int
            Number of answers that each row of the result needs.
        adjoint : bool
        """
        costs, columns = self.scenario.costs, self.scenario.columns
        is_elastic = self.scenario.options.is_elastic
        messages, sent = step_traffic(machines, self.rows, columns, is_elastic, adjoint)
        return (
            costs.call
            + costs.fixed
            + machines * costs.per_machine
            + messages * costs.latency
            + sent / costs.bandwidth
            + costs.decoding(self.rows, answers_per_row)
        )


def step_traffic(
    machines: int, rows: int, columns: int, is_elastic: bool, adjoint: bool = False
) -> tuple[int, int]:
    """Return the sequential messages of a step and the bytes that the master transfers.

    In lockstep, messages to all machines follow a tree of depth d = ceil(log2(N + 1)), along which
    answers to X' v are reduced. The order and a short w are one message. A long w is sent once,
    because machines forward its parts. Short answers are sent with the reports. In an elastic run
    the master exchanges vectors with each machine.

    Examples
    --------
    >>> step_traffic(6, rows=600, columns=500, is_elastic=False)
    (4, 16800)
    """
    vector, answers = _NUMBER_BYTES * columns, _NUMBER_BYTES * rows
    if adjoint:
        vector, answers = answers, vector
    if is_elastic:  # each machine gets its rows of v
        return 2, vector + machines * answers if adjoint else machines * vector + answers
    depth = math.ceil(math.log2(machines + 1))
    is_short = not adjoint and vector <= MAX_INLINE_VECTOR
    messages = depth * (1 if is_short else 2) + (1 if answers <= MAX_INLINE_ANSWERS else 2)
    return messages, vector * (depth if is_short else 1) + answers


class CodedScheme:
    """The scheme of this package: a code, or copies of rows.

    The placement of copies is ignored: any N - J + 1 machines suffice and share all rows by their
    speeds, because encode gives fast machines more rows. A machine that joins reads all of its
    rows, even if it was present before, because it may be another computer.

    Parameters
    ----------
    model : TimeModel

    Attributes
    ----------
    bytes_held : (N,) ndarray
        Bytes that each machine holds.
    """

    def __init__(self, model: TimeModel) -> None:
        self._model, scenario = model, model.scenario
        if scenario.recovery is not None:
            self.answers_per_row = self.min_machines = scenario.recovery
            self.bytes_held = np.full(model.machines, model.size / scenario.recovery)
        else:
            self.answers_per_row, self.min_machines = 1, model.machines - scenario.copies + 1
            shares = fractional_load(model.rates, scenario.copies).mu
            self.bytes_held = np.array(shares, np.float64) * model.size

    def rows(self, rates: Floats) -> Floats:
        """Return the optimal load: Theorem 1."""
        return optimal_rows(rates, self.answers_per_row, self._model.rows)

    def reconfigure(
        self, previous: Machines, departed: Machines, current: Machines, rows: Floats
    ) -> Reconfiguration:
        """Read all rows of the machines that join."""
        sizes = self.bytes_held[[n - 1 for n in current - (previous - departed)]]
        seconds = float(self._model.scenario.costs.source.seconds(sizes))
        return Reconfiguration(seconds, float(sizes.sum()))


def optimal_rows(rates: Floats, machines_per_row: int, rows: int) -> Floats:
    """Return the loads of Theorem 1, as fractional rows of X."""
    c_star = optimal_c_star(rates.tolist(), machines_per_row)
    return np.minimum(rates * c_star, 1.0) * (rows / machines_per_row)


@dataclass(frozen=True, kw_only=True)
class ReplayOutcome(Outcome):
    """The outcome of a replayed run.

    Attributes
    ----------
    first_read : float
        Seconds in which the first machines read their shards.
    changes : int
        Number of later changes of the available machines.
    """

    first_read: float = 0.0
    changes: int = 0


class StepModel(NamedTuple):
    """Rows of each available machine, and seconds of a step with them and of an optimal step."""

    rows: Floats
    seconds: float
    optimal_seconds: float


StepsBySet = dict[Machines, StepModel]


def replay(
    model: TimeModel,
    scheme: Scheme,
    checkpoint_seconds: float = math.inf,
    availability: Availability | None = None,
    steps_by_set: StepsBySet | None = None,
) -> ReplayOutcome:
    """Replay the availability of a scenario with a scheme.

    Parameters
    ----------
    model : TimeModel
    scheme : Scheme
    checkpoint_seconds : float
        Minimum seconds between checkpoints.
    availability : Availability, optional
        Availability; by default that of the scenario.
    steps_by_set : dict, optional
        Results of earlier replays of this model and scheme, to which this replay adds.

    Raises
    ------
    InputError
        The scenario has no end, or its availability comes from a command.
    """
    scenario, options = model.scenario, model.scenario.options
    if scenario.steps is None and scenario.seconds is None:
        raise InputError("a simulation needs a number of steps, or of seconds")
    if availability is None:
        availability = _resolve_availability(model)
    steps_by_set = {} if steps_by_set is None else steps_by_set
    tick_seconds = options.tick_seconds
    limit = math.inf if scenario.seconds is None else scenario.seconds
    max_steps = math.inf if scenario.steps is None else scenario.steps
    now = waiting = bytes_read = 0.0
    machine_seconds = np.zeros(model.machines)
    tick = step = 0
    optimal_seconds = optimal_since_saved = 0.0  # of all steps, and since the last checkpoint
    saved_step, saved_at = 0, 0.0  # the last checkpoint
    last_available: tuple[int, ...] | None = None
    current, previous, departed = Machines(), Machines(), Machines()
    indices, is_waiting = np.zeros(0, np.intp), False
    first_read, changes = 0.0, 0
    events: Counter[str] = Counter()
    ended = ""
    while step < max_steps and now < limit:
        tick = tick if tick_seconds is None else max(tick, int(now / tick_seconds))
        if (available := availability.at(tick)) is not last_available:
            last_available, current = available, frozenset(available)
            indices = np.array(sorted(current), np.intp) - 1
            departed |= previous - current
        if len(current) < scheme.min_machines:
            if not options.wait or availability.max_available(tick) < scheme.min_machines:
                ended = (
                    f"{plural(len(current), 'machine', 'is', 'are')} available at tick {tick}: a "
                    f"step needs {scheme.min_machines}"
                )
                break
            events[WAIT_EVENT] += not is_waiting
            is_waiting = True
            tick += 1
            begin = now
            now = min(limit, now if tick_seconds is None else max(now, tick * tick_seconds))
            waiting += now - begin
            machine_seconds[indices] += now - begin
            continue
        is_waiting = False
        if current != previous or departed:
            if current not in steps_by_set:
                steps_by_set[current] = _model_step(model, scheme, indices)
            step_model = steps_by_set[current]
            change = scheme.reconfigure(previous, departed, current, step_model.rows)
            if change.loses_steps:
                step, optimal_seconds = saved_step, optimal_seconds - optimal_since_saved
            if previous:
                changes += 1
            else:
                first_read = change.seconds
            if change.event:
                events[change.event] += 1
                saved_step, saved_at, optimal_since_saved = step, now + change.seconds, 0.0
            now += change.seconds
            machine_seconds[indices] += change.seconds
            bytes_read += change.bytes_read
            previous, departed = current, Machines()
        count, seconds = 1, step_model.seconds
        if tick_seconds is not None:
            until = min(limit, saved_at + checkpoint_seconds, now + (max_steps - step) * seconds)
            next_tick = tick + 1
            while next_tick * tick_seconds < until and availability.at(next_tick) is last_available:
                next_tick += 1
            until = min(until, next_tick * tick_seconds)
            count = int(min(max_steps - step, max(1, math.ceil((until - now) / seconds))))
        now += count * seconds
        machine_seconds[indices] += count * seconds
        optimal_seconds += count * step_model.optimal_seconds
        optimal_since_saved += count * step_model.optimal_seconds
        step, tick = step + count, tick + 1 if tick_seconds is None else tick
        if now - saved_at >= checkpoint_seconds:
            saved_step, saved_at, optimal_since_saved = step, now, 0.0
    return ReplayOutcome(
        first_read=first_read,
        changes=changes,
        steps=step,
        seconds=now,
        waiting=waiting,
        above_optimum=max(0.0, now - waiting - optimal_seconds),
        bytes_read=round(bytes_read),
        machine_seconds=machine_seconds.tolist(),
        events=dict(events),
        ended=ended,
    )


def _resolve_availability(model: TimeModel) -> Availability:
    resolved = AvailabilityOptions.resolve_machines(model.scenario.options, model.machines)
    availability: Availability = resolved["availability"]
    if len(resolved["machines"]) < model.machines:
        availability = availability.restrict_to(resolved["machines"])
    if seconds_between(availability):
        raise InputError("--availability-command cannot be used in a simulation")
    return availability


def _model_step(model: TimeModel, scheme: Scheme, indices: NDArray[np.intp]) -> StepModel:
    """Return the model of a step with these machines, counted from 0."""
    rates = model.rates[indices]
    rows = scheme.rows(rates)
    adjoints = (False, True) if model.scenario.adjoint else (False,)
    overheads = [model.overhead(rates.size, scheme.answers_per_row, x) for x in adjoints]
    seconds = float((rows / rates).max()) + sum(overheads) / len(overheads)
    return StepModel(rows, seconds, optimal_seconds=model.rows / float(rates.sum()))
