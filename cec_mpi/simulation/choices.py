"""Questions for advice, and the stores that may answer them."""

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
        Bytes for the shards of a computer; None if they always fit, and it carries one machine.
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
    """The problem for which a store is recommended.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of X.
    density : float
        Fraction of nonzeros.
    dtype : {"float64", "float32"}
    groups : sequence of MachineGroup
        Machines, in the order of their numbers.
    availability : callable, optional
        Returns the availability of machines 1..N given N. By default all are always available.
    probability : float, optional
        Instead, the probability that a machine is available in a tick.
    tick_seconds : float, optional
        Length of a tick, by default that of the trace, or five minutes.
    steps : int
    error : float, optional
        Largest acceptable error of results, relative to |X| |w|.
    noise : float
        Standard deviation of the logarithm of each machine's speed in each step; only simulation
        models it.
    rate : float
        Bytes of its shard that a machine of speed 1 multiplies per second.
    costs : Costs
    seeds : int, optional
        Number of replayed runs of each choice; by default as many as see 500 changes.
    first_seed : int
        Seed of the first of them; the others follow.
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
    error: float | None = None
    noise: float = 0.0
    rate: float = RATE
    costs: Costs = field(default_factory=Costs)
    seeds: int | None = None
    first_seed: int = 0

    @cached_property
    def machines(self) -> list[MachineGroup]:
        """Each machine, as a group of one."""
        return [replace(kind, count=1) for kind in self.groups for _ in range(kind.count)]

    @property
    def always_available(self) -> bool:
        """Whether all machines are always available."""
        return self.availability is None and self.probability in (None, 1)


class Interval(NamedTuple):
    """A mean, with its 95 % confidence interval; the interval is empty if the mean is exact."""

    mean: float
    low: float
    high: float


_ZERO = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A store, and the predictions for it.

    Attributes
    ----------
    machines : int
        N.
    recovery, copies : int or None
        L of a code, or J of replicas.
    stragglers : int
        S.
    carried : tuple of int
        Machines that each computer carries; empty if each carries one.
    storage, largest : int
        Bytes of the store, and on the computer with most of it.
    away : int
        The number of computers, whichever they are, that may be away at the same time.
    digits : float
        Decimal digits lost in decoding with the worst measured set of L machines.
    error : float
        Largest expected error, relative to |X| |w|.
    step : Interval
        Seconds of a step, without waiting.
    waiting : float
        Fraction of the time with too few available machines.
    wait : float
        Mean seconds of such a period.
    total : Interval
        Seconds of all steps, in closed form.
    single_run : (float, float)
        The 5 % and the 95 % quantile of these seconds in a single run.
    simulated : Interval or None
        The same with simulated step times, for the best few choices.
    cost : float or None
        Cost of all available machines during the run.
    """

    machines: int
    recovery: int | None = None
    copies: int | None = None
    stragglers: int = 0
    carried: tuple[int, ...] = ()
    storage: int = 0
    largest: int = 0
    away: int = 0
    digits: float = 0.0
    error: float = 0.0
    step: Interval = _ZERO
    waiting: float = 0.0
    wait: float = 0.0
    total: Interval = _ZERO
    single_run: tuple[float, float] = (0.0, 0.0)
    simulated: Interval | None = None
    cost: float | None = None

    @property
    def expected(self) -> Interval:
        """Seconds of all steps, simulated if available."""
        return self.simulated or self.total

    @property
    def threshold(self) -> str:
        """L of a code, or J of copies, as text."""
        return f"L = {self.recovery}" if self.copies is None else f"J = {self.copies}"

    @property
    def family(self) -> str:
        """N, and S if any, as text."""
        late = f", S = {self.stragglers}" if self.stragglers else ""
        return f"N = {self.machines}{late}"

    def encode(self, dtype: str, speeds: Sequence[float]) -> str:
        """Return the command that makes the store for machines of these speeds."""
        return f"cec-mpi encode X store --dtype {dtype} {self.options(speeds)}"

    def options(self, speeds: Sequence[float]) -> str:
        """Return the options of encode that distinguish choices."""
        if self.copies is not None:
            words = f"--machines {self.machines} --copies {self.copies}"
            if len(set(speeds)) > 1:
                given = ",".join(f"{speed:g}" for speed in speeds[: self.machines])
                words += f" --speeds {given}"
            return words
        return f"--machines {self.machines} --recovery {self.recovery}"

    def run(self) -> str:
        """Return the options of a run that are not the defaults."""
        return f"--stragglers {self.stragglers}" if self.stragglers else ""


def scenario_of(question: AdviceRequest, choice: Choice) -> Scenario:
    """Return the scenario of a run with a choice, without availability."""
    carried = machine_counts(choice)
    speeds = machine_speeds([kind.speed for kind in question.machines[: len(carried)]], carried)
    options = SessionOptions(
        emulate_speeds=speeds,
        emulate_noise=question.noise,
        speeds=speeds,
        stragglers=choice.stragglers,
        elastic=not question.always_available,
        wait=True,
    )
    return Scenario(
        machines=choice.machines,
        recovery=choice.recovery,
        copies=choice.copies or 1,
        rows=question.rows,
        columns=question.columns,
        density=question.density,
        dtype=question.dtype,
        options=options,
        rate=question.rate,
        costs=question.costs,
        steps=question.steps,
    )


def machine_counts(choice: Choice) -> tuple[int, ...]:
    """Return how many machines each computer that the choice uses carries."""
    return choice.carried or (1,) * choice.machines
