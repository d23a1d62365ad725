"""Replay of runs in closed form: Theorem 1 for each set of available machines, without noise.

While the set is unchanged, all steps take the same time, so many steps are counted at once. Noise,
stragglers and losses during steps need `cec_mpi.simulation.simulate`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import check_speeds, fractional_load, unchecked_c_star
from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import Availability, polling_interval
from cec_mpi.runtime.options.availability import AvailabilityOptions
from cec_mpi.runtime.wire.orders import MAX_INLINE_ANSWERS, MAX_INLINE_OPERAND
from cec_mpi.simulation.scenario import Outcome, Scenario
from cec_mpi.simulation.store import csr_row_bytes
from cec_mpi.text import plural

WAIT_EVENT = "waits"  # event: a step waits for machines

_NUMBER_BYTES = 8  # of an entry of a vector

Floats = NDArray[np.float64]
MachineSet = frozenset[int]


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
        Kind of event to count; empty if none.
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
    checkpoint_seconds : float
        Minimum seconds between checkpoints; infinite without checkpoints.
    """

    answers_per_row: int
    min_machines: int
    checkpoint_seconds: float

    def assign_rows(self, rates: Floats) -> Floats:
        """Return the number of rows of each machine, given their rates in rows per second."""

    def reconfigure(
        self, previous: MachineSet, departed: MachineSet, current: MachineSet, rows: Floats
    ) -> Reconfiguration:
        """Return the effect of a change of machines; `previous` is empty before the first step.

        Machines that have `departed` since the previous step may have returned. `rows` has the
        number of rows of each current machine, in the order of machine numbers.
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
    matrix_bytes : float
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
        self.matrix_bytes = self.row_bytes * self.rows
        speeds = check_speeds(options.emulate_speeds or [1.0] * self.machines)
        if speeds.size != self.machines:
            raise InputError(
                f"found {plural(speeds.size, 'emulated speed')}, expected {self.machines}, one for "
                "each machine"
            )
        self.rates = speeds * (options.emulate_base or scenario.rate / self.row_bytes)

    def overhead(self, machines: int, answers_per_row: int, adjoint: bool = False) -> float:
        """Return the seconds of a step without the computation on machines, as in `simulate`.

        Parameters
        ----------
        machines : int
        answers_per_row : int
            Number of answers that each row of the result needs.
        adjoint : bool
        """
        costs, columns = self.scenario.costs, self.scenario.columns
        is_elastic = self.scenario.options.is_elastic
        messages, transferred = step_traffic(machines, self.rows, columns, is_elastic, adjoint)
        return (
            costs.product_overhead
            + costs.step_overhead
            + machines * costs.machine_overhead
            + messages * costs.latency
            + transferred / costs.bandwidth
            + costs.decoding_seconds(self.rows, answers_per_row)
        )


def step_traffic(
    machines: int, rows: int, columns: int, is_elastic: bool, adjoint: bool = False
) -> tuple[int, int]:
    """Return the number of sequential messages of a step, and the bytes that the master transfers.

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
    is_short = not adjoint and vector <= MAX_INLINE_OPERAND
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

    checkpoint_seconds = math.inf

    def __init__(self, model: TimeModel) -> None:
        self._model, scenario = model, model.scenario
        if scenario.recovery is not None:
            self.answers_per_row = self.min_machines = scenario.recovery
            self.bytes_held = np.full(model.machines, model.matrix_bytes / scenario.recovery)
        else:
            self.answers_per_row, self.min_machines = 1, model.machines - scenario.copies + 1
            shares = fractional_load(model.rates, scenario.copies).mu
            self.bytes_held = np.array(shares, np.float64) * model.matrix_bytes

    def assign_rows(self, rates: Floats) -> Floats:
        """Return the optimal load: Theorem 1."""
        return optimal_rows(rates, self.answers_per_row, self._model.rows)

    def reconfigure(
        self, previous: MachineSet, departed: MachineSet, current: MachineSet, rows: Floats
    ) -> Reconfiguration:
        """Read all rows of the machines that join."""
        sizes = self.bytes_held[[n - 1 for n in current - (previous - departed)]]
        seconds = float(self._model.scenario.costs.source.read_seconds(sizes))
        return Reconfiguration(seconds, float(sizes.sum()))


def optimal_rows(rates: Floats, machines_per_row: int, rows: int) -> Floats:
    """Return the loads of Theorem 1, as fractional rows of X."""
    c_star = unchecked_c_star(rates.tolist(), machines_per_row)
    return np.minimum(rates * c_star, 1.0) * (rows / machines_per_row)


@dataclass(frozen=True, kw_only=True)
class ReplayOutcome(Outcome):
    """The outcome of a replayed run.

    Attributes
    ----------
    first_read_seconds : float
        Seconds in which the first machines read their shards.
    changes : int
        Number of later changes of the available machines.
    """

    first_read_seconds: float = 0.0
    changes: int = 0


class StepModel(NamedTuple):
    """Rows of each available machine, and seconds of a step with them and of an optimal step."""

    rows: Floats
    seconds: float
    optimal_seconds: float


StepModels = dict[MachineSet, StepModel]
SchemeFactory = Callable[[TimeModel], Scheme]


class _Checkpoint(NamedTuple):
    """Number of steps, time, and optimal seconds of all steps at a checkpoint."""

    steps: int = 0
    seconds: float = 0.0
    optimal_seconds: float = 0.0


def replay(
    model: TimeModel,
    scheme: Scheme,
    availability: Availability | None = None,
    step_models: StepModels | None = None,
) -> ReplayOutcome:
    """Replay the availability of a scenario with a scheme.

    Parameters
    ----------
    model : TimeModel
    scheme : Scheme
    availability : Availability, optional
        Availability; by default that of the scenario.
    step_models : dict, optional
        Model of a step of each set of machines, to which this replay adds. Replays of the same
        model and scheme may share it.

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
    step_models = {} if step_models is None else step_models
    tick_seconds, max_seconds = options.tick_seconds, scenario.max_seconds
    max_steps = math.inf if scenario.steps is None else scenario.steps
    now = waiting_seconds = bytes_read = 0.0
    machine_seconds = np.zeros(model.machines)
    tick = steps = 0
    optimal_seconds = 0.0  # of all steps
    checkpoint = _Checkpoint()
    last_available: tuple[int, ...] | None = None
    current, previous, departed = MachineSet(), MachineSet(), MachineSet()
    indices, is_waiting = np.zeros(0, np.intp), False
    first_read_seconds, changes = 0.0, 0
    events: Counter[str] = Counter()
    end_reason = ""
    while steps < max_steps and now < max_seconds:
        tick = tick if tick_seconds is None else max(tick, int(now / tick_seconds))
        if (available := availability.at(tick)) is not last_available:
            last_available, current = available, frozenset(available)
            indices = np.array(sorted(current), np.intp) - 1
            departed |= previous - current
        if len(current) < scheme.min_machines:
            if not options.wait or availability.max_available(tick) < scheme.min_machines:
                end_reason = (
                    f"{plural(len(current), 'machine', 'is', 'are')} available at tick {tick}: a "
                    f"step needs {scheme.min_machines}"
                )
                break
            events[WAIT_EVENT] += not is_waiting
            is_waiting = True
            tick += 1
            wait_end = now if tick_seconds is None else max(now, tick * tick_seconds)
            wait_end = min(wait_end, max_seconds)
            waiting_seconds += wait_end - now
            machine_seconds[indices] += wait_end - now
            now = wait_end
            continue
        is_waiting = False
        if current != previous or departed:
            if current not in step_models:
                step_models[current] = _model_step(model, scheme, indices)
            step_model = step_models[current]
            change = scheme.reconfigure(previous, departed, current, step_model.rows)
            if change.loses_steps:
                steps, optimal_seconds = checkpoint.steps, checkpoint.optimal_seconds
            if previous:
                changes += 1
            else:
                first_read_seconds = change.seconds
            if change.event:
                events[change.event] += 1
                checkpoint = _Checkpoint(steps, now + change.seconds, optimal_seconds)
            now += change.seconds
            machine_seconds[indices] += change.seconds
            bytes_read += change.bytes_read
            previous, departed = current, MachineSet()
        count, step_seconds = 1, step_model.seconds
        if tick_seconds is not None:
            end = now + (max_steps - steps) * step_seconds
            end = min(end, max_seconds, checkpoint.seconds + scheme.checkpoint_seconds)
            next_tick = tick + 1
            while next_tick * tick_seconds < end and availability.at(next_tick) is last_available:
                next_tick += 1
            end = min(end, next_tick * tick_seconds)
            count = int(min(max_steps - steps, max(1, math.ceil((end - now) / step_seconds))))
        now += count * step_seconds
        machine_seconds[indices] += count * step_seconds
        optimal_seconds += count * step_model.optimal_seconds
        steps, tick = steps + count, tick + 1 if tick_seconds is None else tick
        if now - checkpoint.seconds >= scheme.checkpoint_seconds:
            checkpoint = _Checkpoint(steps, now, optimal_seconds)
    return ReplayOutcome(
        first_read_seconds=first_read_seconds,
        changes=changes,
        steps=steps,
        seconds=now,
        waiting_seconds=waiting_seconds,
        excess_seconds=max(0.0, now - waiting_seconds - optimal_seconds),
        bytes_read=round(bytes_read),
        machine_seconds=machine_seconds.tolist(),
        events=dict(events),
        end_reason=end_reason,
    )


def _resolve_availability(model: TimeModel) -> Availability:
    resolved = AvailabilityOptions.resolve_machines(model.scenario.options, model.machines)
    availability: Availability = resolved["availability"]
    if len(resolved["machines"]) < model.machines:
        availability = availability.restrict_to(resolved["machines"])
    if polling_interval(availability):
        raise InputError("--availability-command cannot be used in a simulation")
    return availability


def _model_step(model: TimeModel, scheme: Scheme, indices: NDArray[np.intp]) -> StepModel:
    """Return the model of a step with these machines, counted from 0."""
    rates = model.rates[indices]
    rows = scheme.assign_rows(rates)
    adjoints = (False, True) if model.scenario.adjoint else (False,)
    overheads = [model.overhead(rates.size, scheme.answers_per_row, x) for x in adjoints]
    seconds = float((rows / rates).max()) + sum(overheads) / len(overheads)
    return StepModel(rows, seconds, optimal_seconds=model.rows / float(rates.sum()))
