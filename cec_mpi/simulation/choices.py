"""Requests for advice, and the stores that are compared for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from cec_mpi.runtime.availability.models import Availability
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.computers import machine_speeds
from cec_mpi.simulation.scenario import RATE, Costs, Scenario


@dataclass(frozen=True)
class MachineGroup:
    """A group of equal machines.

    Attributes
    ----------
    count : int
    speed : float
        Relative speed.
    memory : int, optional
        Bytes for the shards of a computer; None if they always fit, in which case each computer
        runs one machine.
    price : float, optional
        Price of a machine per hour.
    """

    count: int
    speed: float = 1.0
    memory: int | None = None
    price: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether all numbers are in range."""
        return (
            self.count >= 1
            and values.MIN_VALUE <= self.speed <= values.MAX_VALUE
            and (self.memory is None or self.memory >= 1)
            and 0 <= (self.price or 0) <= values.MAX_VALUE
        )


@dataclass(frozen=True, kw_only=True)
class AdviceRequest:
    """The matrix, the machines and the run for which a store is recommended.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of X.
    density : float
        Fraction of nonzeros.
    dtype : {"float64", "float32"}
    groups : sequence of MachineGroup
        Groups of machines, in the order of machine numbers.
    availability : callable, optional
        Returns the availability of machines 1..N for a number N. By default all machines are always
        available.
    probability : float, optional
        Probability that a machine is available in a tick, instead of `availability`.
    tick_seconds : float, optional
        Length of a tick; by default that of the trace, or five minutes.
    steps : int
    max_error : float, optional
        Maximum acceptable error of results, relative to |X| |w|.
    noise : float
        Standard deviation of the logarithm of the speed of each machine in each step, which only
        the simulation models.
    rate : float
        Bytes of its shard that a machine of speed 1 multiplies per second.
    costs : Costs
    runs : int, optional
        Number of replayed runs of each choice; by default enough for 100 changes of availability,
        or 500 for the best choices.
    first_seed : int
        Seed of the first run; later runs have the following seeds.
    """

    rows: int
    columns: int
    density: float = 1.0
    dtype: str = "float64"
    groups: Sequence[MachineGroup]
    availability: Callable[[int], Availability] | None = None
    probability: float | None = None
    tick_seconds: float | None = None
    steps: int
    max_error: float | None = None
    noise: float = 0.0
    rate: float = RATE
    costs: Costs = field(default_factory=Costs)
    runs: int | None = None
    first_seed: int = 0

    @cached_property
    def machines(self) -> list[MachineGroup]:
        """All machines, as groups of one."""
        return [replace(group, count=1) for group in self.groups for _ in range(group.count)]

    @property
    def always_available(self) -> bool:
        """Whether all machines are always available."""
        return self.availability is None and self.probability in (None, 1)


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval, which has length 0 for a single run."""

    mean: float
    low: float
    high: float


_ZERO_INTERVAL = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A store, and the predictions for it.

    Attributes
    ----------
    machines : int
        N.
    recovery, copies : int or None
        L of a code, or J of copies; one of them is None.
    stragglers : int
        S.
    machines_per_computer : tuple of int
        Number of machines on each computer; empty if each computer has one.
    storage, max_computer_bytes : int
        Bytes of the store, and maximum bytes on one computer.
    tolerated_losses : int
        Number of arbitrary computers that may be unavailable at once.
    lost_digits : float
        Decimal digits that are lost in decoding with the worst measured set of L machines.
    error : float
        Largest expected error, relative to |X| |w|.
    step : Interval
        Seconds of a step, without waiting.
    waiting_fraction : float
        Fraction of the time with too few available machines.
    mean_wait : float
        Mean seconds of a wait.
    total : Interval
        Seconds of all steps, from replayed runs.
    single_run_range : (float, float)
        The 5 % and 95 % quantiles of these seconds in a single run.
    simulated_total : Interval or None
        As `total`, but with simulated step times; None except for the best choices.
    cost : float or None
        Cost of all available machines during the run.
    """

    machines: int
    recovery: int | None = None
    copies: int | None = None
    stragglers: int = 0
    machines_per_computer: tuple[int, ...] = ()
    storage: int = 0
    max_computer_bytes: int = 0
    tolerated_losses: int = 0
    lost_digits: float = 0.0
    error: float = 0.0
    step: Interval = _ZERO_INTERVAL
    waiting_fraction: float = 0.0
    mean_wait: float = 0.0
    total: Interval = _ZERO_INTERVAL
    single_run_range: tuple[float, float] = (0.0, 0.0)
    simulated_total: Interval | None = None
    cost: float | None = None

    @property
    def expected_total(self) -> Interval:
        """Seconds of all steps, from the simulation if there is one."""
        return self.simulated_total or self.total

    @property
    def threshold_text(self) -> str:
        """L of a code, or J of copies, as text."""
        return f"L = {self.recovery}" if self.copies is None else f"J = {self.copies}"

    @property
    def machines_text(self) -> str:
        """N, and S if any, as text."""
        suffix = f", S = {self.stragglers}" if self.stragglers else ""
        return f"N = {self.machines}{suffix}"

    def encode_command(self, dtype: str, speeds: Sequence[float]) -> str:
        """Return the command that encodes the store for machines with these speeds."""
        return f"cec-mpi encode X store --dtype {dtype} {self.encode_options(speeds)}"

    def encode_options(self, speeds: Sequence[float]) -> str:
        """Return the options of encode that define this choice."""
        if self.copies is not None:
            options = f"--machines {self.machines} --copies {self.copies}"
            if len(set(speeds)) > 1:
                speeds_text = ",".join(f"{speed:g}" for speed in speeds[: self.machines])
                options += f" --speeds {speeds_text}"
            return options
        return f"--machines {self.machines} --recovery {self.recovery}"

    def run_options(self) -> str:
        """Return the options of a run that differ from the defaults."""
        return f"--stragglers {self.stragglers}" if self.stragglers else ""


def make_scenario(request: AdviceRequest, choice: Choice) -> Scenario:
    """Return the scenario of a run with a choice, in which all machines are available."""
    counts = machine_counts(choice)
    speeds = machine_speeds([group.speed for group in request.machines[: len(counts)]], counts)
    options = SessionOptions(
        emulate_speeds=speeds,
        emulate_noise=request.noise,
        speeds=speeds,
        stragglers=choice.stragglers,
        elastic=not request.always_available,
        wait=True,
    )
    return Scenario(
        machines=choice.machines,
        recovery=choice.recovery,
        copies=choice.copies or 1,
        rows=request.rows,
        columns=request.columns,
        density=request.density,
        dtype=request.dtype,
        options=options,
        rate=request.rate,
        costs=request.costs,
        steps=request.steps,
    )


def machine_counts(choice: Choice) -> tuple[int, ...]:
    """Return the number of machines of each computer that a choice uses."""
    return choice.machines_per_computer or (1,) * choice.machines
