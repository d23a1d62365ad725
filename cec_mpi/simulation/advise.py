"""Recommend a store for given machines: a code or copies, with which N, L or J, or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.conditioning import condition_numbers, sample_subsets
from cec_mpi.core.code.families import default_family, make_generator
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.runtime.availability.models import (
    Availability,
    ListedAvailability,
    RandomAvailability,
    all_available,
)
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.computers import (
    ComputerAvailability,
    count_tolerated_losses,
    machine_ranges,
    machine_speeds,
)
from cec_mpi.simulation.replay import WAIT_EVENT, Coded, TimeModel, replay
from cec_mpi.simulation.scenario import RATE, Costs, Outcome, Scenario, Source
from cec_mpi.simulation.simulate import simulate
from cec_mpi.text import format_bytes, format_count, format_duration, join_names, plural

SEEDS = 8
_FEWEST_SUBSETS, _SUBSETS, _WORK = 6, 500, 1e9  # measured sets of L machines; sets times L**3
_MOST_RECOVERIES = 16  # values of L tried for each number of machines
_MOST_COPIES = 6
_MOST_CARRIED = 8  # machines of a computer
_MOST_STRAGGLERS = 2
_MOST_SIMULATED = 3  # choices that are simulated
_STARTS = 2  # start times in the trace for each simulated choice
_STEPS, _FEWEST_STEPS, _MACHINE_STEPS = 30, 2, 3000  # steps of each; steps times machines
_MOST_DECODING = 2e9  # N L**3; above it, preparing decoders would dominate
_MOST_WITH_COPIES = 300  # machines; above it, simulating a step with copies takes seconds
_MOST_TICKS, _FEWEST_TICKS = 200_000, 200  # of a replayed run; the former times machines
_LEAST_PROBABILITY = 1e-3  # that a machine is available
_DENSE = 0.5  # density from which copies of sparse rows have no advantage
_TOLERANCE = 1.05  # times the shortest time: still as good if the store is smaller
_MOST_WAITING = 0.9
_SAMPLED_TICKS = 1000  # of a random model
_SINGLE_MACHINE_BONUS = 3.0  # a reliable single machine may take this many times as long
_T = (0.0, 0.0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # Student, 95 %


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
    seeds : int
        Number of replayed runs of each choice.
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
    seeds: int = SEEDS

    @cached_property
    def machines(self) -> list[MachineGroup]:
        """Each machine, as a group of one."""
        return [replace(kind, count=1) for kind in self.groups for _ in range(kind.count)]

    @property
    def always_available(self) -> bool:
        """Whether all machines are always available."""
        return self.availability is None and self.probability in (None, 1)


class Interval(NamedTuple):
    """A mean over seeds, with its 95 % confidence interval."""

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
    waiting : Interval
        Fraction of the time with too few available machines.
    wait : float
        Mean seconds of such a period.
    total : Interval
        Seconds of all steps, in closed form.
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
    waiting: Interval = _ZERO
    wait: float = 0.0
    total: Interval = _ZERO
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


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The result of `advise`.

    Attributes
    ----------
    front : list of Choice
        The Pareto front, by storage.
    recommended : Choice
    sentence : str
        A summary of the recommended choice.
    instead : str
        What is better than any of these stores, and why; empty if nothing is.
    rejected : dict of str to str
        Infeasible choices, with the reason.
    machines : list of Kind
    """

    front: list[Choice]
    recommended: Choice
    sentence: str
    instead: str
    rejected: dict[str, str]
    machines: list[MachineGroup]

    @property
    def speeds(self) -> list[float]:
        """The speed of each machine."""
        return [machine.speed for machine in self.machines]


def advise(question: AdviceRequest) -> Advice:
    """Return the Pareto front of stores, and recommend one.

    Parameters
    ----------
    question : AdviceRequest

    Raises
    ------
    InputError
        If a number is out of range.
    InfeasibleError
        If no choice is feasible; the message gives the reasons.

    Notes
    -----
    A choice dominates another if it is no worse in storage, in the total time, in machines that
    may be away at the same time, in digits and, with prices, in cost, and better in one of them.
    Times are those of `replay`. The best few choices are then simulated, with noise also with
    stragglers, and the one with the shortest time (with prices, time multiplied by cost) is
    recommended, or one that takes at most 5 % longer and needs less storage.
    """
    _check(question)
    rejected = _Rejected()
    choices = []
    for choice in _choices(question):
        bytes_held = Coded(TimeModel(_scenario(question, choice))).bytes_held
        sized_choice = _add_sizes(question, choice, bytes_held)
        rejected.record_choice(sized_choice)
        if reason := _rejection_reason(question, sized_choice, bytes_held):
            rejected.add(sized_choice, *reason)
            continue
        outcomes = [_replay_from(question, choice, seed) for seed in range(question.seeds)]
        if any(outcome is None for outcome in outcomes):
            rejected.add(sized_choice, "too few machines are ever available", "")
            continue
        choices.append(
            _add_times(
                question, sized_choice, [outcome for outcome in outcomes if outcome is not None]
            )
        )
        if choices[-1].waiting.mean > _MOST_WAITING:
            waiting = percent(choices[-1].waiting.mean)
            rejected.add(choices.pop(), "it would wait for machines most of the time", waiting)
    if not choices:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in rejected.summary().items())
        single = _best_single_machine(question)
        instead = (
            ""
            if single is None
            else f". {single.description}: a step takes {format_duration(single.seconds)}"
        )
        raise InfeasibleError(f"no choice is feasible: {reasons}{instead}")
    front = pareto(choices)
    candidates: list[Choice] = []
    rest = list(front)
    while rest and len(candidates) < _MOST_SIMULATED:
        candidates.append(recommend(rest))
        rest.remove(candidates[-1])
    simulated = [
        simulated for choice in candidates for simulated in _simulate_choice(question, choice)
    ]
    recommended = recommend(simulated)
    return Advice(
        front=sorted([*rest, *simulated], key=_sort_key),
        recommended=recommended,
        sentence=_summarise(question, recommended),
        instead=_find_alternative(question, recommended),
        rejected=rejected.summary(),
        machines=question.machines,
    )


def pareto(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices that no other dominates, by storage."""
    distinct = {_objectives(choice): choice for choice in reversed(choices)}  # first of equals
    front = [
        choice
        for figures, choice in distinct.items()
        if not any(dominates(other, figures) for other in distinct)
    ]
    return sorted(front, key=_sort_key)


def _sort_key(choice: Choice) -> tuple[float, ...]:
    return choice.storage, choice.total.mean, choice.stragglers


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether figures, to be minimised, are nowhere above others and once below."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


def _objectives(choice: Choice) -> tuple[float, ...]:
    cost = 0.0 if choice.cost is None else choice.cost
    return choice.storage, choice.total.mean, -choice.away, round(choice.digits, 1), cost


def recommend(front: Sequence[Choice]) -> Choice:
    """Return the choice with the shortest time, or a slightly slower one that needs less storage.

    With prices, time is multiplied by cost, unless a choice is free.
    """

    def price(choice: Choice) -> float:
        return choice.expected.mean * (choice.cost or 1.0)

    free = [choice for choice in front if not choice.cost] or front
    least = min(map(price, free))
    close = [choice for choice in free if price(choice) <= _TOLERANCE * least]
    return min(close, key=lambda choice: (choice.storage, -choice.away, price(choice)))


class _Rejected:
    """Infeasible choices, by reason."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[int, str]] = {}
        self._tried: dict[str, set[int]] = {}

    def record_choice(self, choice: Choice) -> tuple[str, int]:
        """Record that a choice was tried; return the name of its L or J, and the number."""
        name = f"N = {choice.machines}, {choice.threshold[0]} ="
        number = choice.recovery or choice.copies or 0
        self._tried.setdefault(name, set()).add(number)
        return name, number

    def add(self, choice: Choice, reason: str, figure: str) -> None:
        """Record why a choice is infeasible, with a figure."""
        name, number = self.record_choice(choice)
        self._found.setdefault((reason, name), {})[number] = figure

    def summary(self) -> dict[str, str]:
        """Return the rejected choices, with the reason and the figure of the last one."""
        summary: dict[str, str] = {}
        for (reason, name), figures in self._found.items():
            last = max(figures)
            figure = figures[last] + (
                f", with {name.rpartition(', ')[2]} {last}" if len(figures) > 1 else ""
            )
            key = f"{name} {_format_ranges(figures, sorted(self._tried[name]))}"
            text = f"{reason} ({figure})" if figures[last] else reason
            summary[key] = f"{summary[key]}; {text}" if key in summary else text
        return summary


def _check(question: AdviceRequest) -> None:
    for name in ("rows", "columns", "steps", "seeds"):
        if getattr(question, name) < 1:
            raise InputError(f"{name} {getattr(question, name)}: expected at least 1")
    if not 0 < question.density <= 1:
        raise InputError(f"density {question.density}: expected a number above 0 and at most 1")
    if question.error is not None and not question.error > 0:
        raise InputError(f"error {question.error}: expected a positive number")
    if not 0 <= question.noise <= 10:
        raise InputError(f"noise {question.noise}: expected 0 to 10")
    if question.availability is not None and question.probability is not None:
        raise InputError("availability and probability cannot be combined")
    if question.probability is not None and question.probability < _LEAST_PROBABILITY:
        raise InputError(
            f"probability {question.probability:g}: expected at least {_LEAST_PROBABILITY:g}, "
            "because runs are replayed until enough machines are up"
        )
    prices = {kind.price is None for kind in question.groups}
    if not question.groups or len(prices) > 1:
        raise InputError("machines: expected at least one, and a price for all of them or for none")
    for kind in question.groups:
        if not kind.is_valid:
            raise InputError(
                f"machines {kind}: expected a positive number, speed and memory, and a price of at "
                "least 0"
            )


def _choices(question: AdviceRequest) -> Iterator[Choice]:
    """Yield the choices to try: numbers of machines, and L or J."""
    total = len(question.machines)
    counts = {total}
    if len(question.groups) == 1:  # all machines are equal
        counts |= {-(-3 * total // 4), -(-total // 2)}
    for count in sorted(counts):
        for recovery in _sample_range(count):
            yield Choice(machines=count, recovery=recovery)
        if question.density < _DENSE:
            for copies in range(1, min(count, _MOST_COPIES) + 1):
                yield Choice(machines=count, copies=copies)
    if carried := _machines_per_computer(question):
        for recovery in _sample_range(sum(carried)):
            yield Choice(machines=sum(carried), recovery=recovery, carried=carried)


def _machines_per_computer(question: AdviceRequest) -> tuple[int, ...]:
    """Return how many machines computers carry that have several times the least memory.

    It is empty if each carries one, or as many as the others.
    """
    memory = [kind.memory for kind in question.machines if kind.memory is not None]
    if len(memory) < len(question.machines):
        return ()
    carried = tuple(min(_MOST_CARRIED, bytes_ // min(memory)) for bytes_ in memory)
    return carried if len(set(carried)) > 1 else ()


def _sample_range(most: int) -> list[int]:
    """Return an even sample of the numbers 1 to `most`, with both ends."""
    return sorted({round(k) for k in np.linspace(1, most, min(most, _MOST_RECOVERIES))})


def _scenario(question: AdviceRequest, choice: Choice) -> Scenario:
    carried = _machine_counts(choice)
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


def _machine_counts(choice: Choice) -> tuple[int, ...]:
    """Return how many machines each computer that the choice uses carries."""
    return choice.carried or (1,) * choice.machines


def _add_sizes(question: AdviceRequest, choice: Choice, held: NDArray[np.float64]) -> Choice:
    """Return a choice with its sizes and errors, given the bytes of each machine."""
    machines, recovery = choice.machines, choice.recovery
    largest = round(_bytes_per_computer(choice, held).max())
    sized = replace(choice, storage=round(held.sum()), largest=largest)
    if recovery is None:
        return replace(sized, away=(choice.copies or 1) - 1, error=_machine_epsilon(question))
    condition = _condition(machines, recovery)
    return replace(
        sized,
        away=count_tolerated_losses(_machine_counts(choice), recovery),
        digits=math.log10(max(1.0, condition)) if math.isfinite(condition) else math.inf,
        error=_machine_epsilon(question) * condition,
    )


def _bytes_per_computer(choice: Choice, held: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bytes of each computer, given the bytes of each machine."""
    machines = machine_ranges(_machine_counts(choice))
    return np.array(
        [
            held[machines_of_computer.start - 1 : machines_of_computer.stop - 1].sum()
            for machines_of_computer in machines
        ]
    )


def _machine_epsilon(question: AdviceRequest) -> float:
    return float(np.finfo(question.dtype).eps)


@cache
def _condition(machines: int, recovery: int) -> float:
    """Return the largest condition number of a sample of sets of L machines."""
    size = max(_FEWEST_SUBSETS, min(_SUBSETS, int(_WORK / recovery**3)))
    sets = np.array(list(sample_subsets(machines, recovery, size)))
    matrix = make_generator(default_family(machines), machines, recovery)
    return float(condition_numbers(matrix[sets]).max())


def _rejection_reason(
    question: AdviceRequest, choice: Choice, held: NDArray[np.float64]
) -> tuple[str, str] | None:
    """Return why a choice is infeasible, and a figure; None if it is feasible."""
    sizes = _bytes_per_computer(choice, held).tolist()
    for n, (kind, size) in enumerate(zip(question.machines, sizes, strict=False), start=1):
        if kind.memory is not None and size > kind.memory:
            figure = f"{format_bytes(size)} needed, {format_bytes(kind.memory)} usable"
            return f"its shard does not fit into the memory of machine {n}", figure
    if question.error is not None and choice.error > question.error:
        return f"its error may exceed {question.error:g}", f"{choice.error:.1g}"
    if choice.error > 1e-2:
        return "it would decode to noise", f"an error of {choice.error:.1g}"
    return None


def _scenario_from(question: AdviceRequest, choice: Choice, seed: int) -> Scenario:
    """Return the scenario of a choice from a random start time in the trace."""
    scenario, machines = _scenario(question, choice), choice.machines
    availability, length = _availability(question, len(_machine_counts(choice)), seed)
    if choice.carried:
        availability = ComputerAvailability(availability, machine_ranges(choice.carried))
    options = replace(scenario.options, availability=availability, tick_seconds=length, seed=seed)
    limit = max(_FEWEST_TICKS, _MOST_TICKS // machines) * length
    return replace(scenario, options=options, seconds=limit)


def _replay_from(question: AdviceRequest, choice: Choice, seed: int) -> Outcome | None:
    """Replay a run from a random start time; return None if too few machines are available."""
    model = TimeModel(_scenario_from(question, choice, seed))
    outcome = replay(model, Coded(model))
    return outcome if outcome.steps and not outcome.ended else None


def _simulate_choice(question: AdviceRequest, choice: Choice) -> list[Choice]:
    """Return a choice with its simulated time, and faster variants of it with stragglers."""
    is_large = choice.machines * (choice.recovery or 1) ** 3 > _MOST_DECODING
    if is_large or (choice.copies and choice.machines > _MOST_WITH_COPIES):
        return [choice]
    variants, spare = [choice], choice.away
    if question.noise:
        most = min(_MOST_STRAGGLERS, spare)
        variants += [replace(choice, stragglers=count) for count in range(1, most + 1)]
    closed = _step_seconds(question, choice, is_simulated=False)
    simulated = []
    for variant in variants:
        ratio = float(np.mean(_step_seconds(question, variant, is_simulated=True) / closed))
        factor = ratio + (1 - ratio) * choice.waiting.mean  # waiting times do not change
        time = Interval(*(factor * bound for bound in choice.total))
        cost = None if choice.cost is None else factor * choice.cost
        simulated.append(replace(variant, simulated=time, cost=cost))
    best = simulated[0].expected.mean
    return [
        variant for variant in simulated if not variant.stragglers or variant.expected.mean < best
    ]


def _step_seconds(
    question: AdviceRequest, choice: Choice, is_simulated: bool
) -> NDArray[np.float64]:
    """Return the mean seconds of a step from each start time, without waiting and reading."""
    steps = max(_FEWEST_STEPS, min(_STEPS, question.steps, _MACHINE_STEPS // choice.machines))
    seconds = []
    for seed in range(min(_STARTS, question.seeds)):
        scenario = _scenario_from(question, choice, seed)
        costs = replace(question.costs, source=Source(math.inf))
        scenario = replace(scenario, steps=steps, costs=costs)
        model = TimeModel(scenario)
        outcome = simulate(scenario) if is_simulated else replay(model, Coded(model))
        seconds.append((outcome.seconds - outcome.waiting) / outcome.steps)
    return np.array(seconds)


def _availability(question: AdviceRequest, machines: int, seed: int) -> tuple[Availability, float]:
    """Return the availability of a run, and the seconds of a tick."""
    length = question.tick_seconds
    if question.probability is not None:
        return RandomAvailability(machines, question.probability, seed), length or 300.0
    if question.availability is None:
        return all_available(machines), length or 300.0
    given = _restrict_to_first(question.availability, machines, len(question.machines))
    if not isinstance(given, ListedAvailability):
        return given, length or 300.0
    ticks = [given.at(tick) for tick in range(len(given))]
    start = int(np.random.default_rng(seed).integers(len(ticks)))
    return ListedAvailability(
        ticks[start:] + ticks[:start], repeat=True
    ), length or given.gap_seconds or 300.0


def _restrict_to_first(
    availability: Callable[[int], Availability], machines: int, total: int
) -> Availability:
    """Return the availability of the first machines; tables and lists describe all."""
    try:
        return availability(machines)
    except InputError:
        if machines == total:
            raise
        return availability(total).restrict_to(range(1, machines + 1))


def _add_times(question: AdviceRequest, choice: Choice, outcomes: Sequence[Outcome]) -> Choice:
    """Return a choice with its times and cost."""
    busy = [(outcome.seconds - outcome.waiting) / outcome.steps for outcome in outcomes]
    waiting = [outcome.waiting / outcome.seconds for outcome in outcomes]
    total = [outcome.seconds * question.steps / outcome.steps for outcome in outcomes]
    waits = sum(outcome.events.get(WAIT_EVENT, 0) for outcome in outcomes)
    cost = None
    machines = machine_ranges(_machine_counts(choice))
    prices = [kind.price for kind in question.machines[: len(machines)]]
    if prices[0] is not None:
        seconds = [np.array(outcome.machine_seconds) / outcome.steps for outcome in outcomes]
        machine_hours = np.mean(seconds, axis=0) * question.steps / 3600
        first = [carried.start - 1 for carried in machines]  # machine of each computer
        cost = float(machine_hours[first] @ [price or 0.0 for price in prices])
    return replace(
        choice,
        step=mean_interval(busy),
        waiting=mean_interval(waiting),
        wait=sum(outcome.waiting for outcome in outcomes) / waits if waits else 0.0,
        total=mean_interval(total),
        cost=cost,
    )


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of values, and its 95 % confidence interval for normal values.

    With more than ten values the interval is up to 15 % too wide. Its lower end is at least 0.
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, mean, mean)
    half = _T[min(count, len(_T) - 1)] * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(mean, max(0.0, mean - half), mean + half)


def _summarise(question: AdviceRequest, choice: Choice) -> str:
    """Return a sentence about the recommended choice."""
    if choice.copies is None:
        count = choice.machines
        is_enough = "is enough" if choice.recovery == 1 else "are enough"
        needed = f"any {choice.recovery} of {plural(count, 'machine')} {is_enough}"
        if choice.recovery == count:
            needed = f"all of its {plural(count, 'machine', 'is', 'are')} needed"
    else:
        needed = f"each row on {plural(choice.copies, 'machine')}"
    waiting = (
        f", {percent(choice.waiting.mean)} of this time waiting" if choice.waiting.mean else ""
    )
    cost = "" if choice.cost is None else f", and cost {choice.cost:.2f}"
    away = plural(choice.away, "computer" if choice.carried else "machine")
    carried = ""
    if choice.carried:
        carried = (
            f" Computers carry {min(choice.carried)} to {max(choice.carried)} machines, by their "
            "memory (cec-mpi join --machines)."
        )
    return (
        f"Take {choice.family}, {choice.threshold}: {needed}, {away} may be away at once, and the "
        f"store has {format_bytes(choice.storage)}. {format_count(question.steps, 'step')} take "
        f"{format_duration(choice.expected.mean)} ({format_duration(choice.expected.low)} to "
        f"{format_duration(choice.expected.high)}){waiting}{cost}.{carried}"
    )


class _SingleMachine(NamedTuple):
    """A single machine with all of X: seconds of a step, with and without the bonus."""

    weighted_seconds: float
    seconds: float
    description: str


def _model(question: AdviceRequest) -> TimeModel:
    """Return the model of X on all machines: with L = 1, or copies of a sparse X."""
    recovery = None if question.density < _DENSE else 1
    return TimeModel(
        _scenario(question, Choice(machines=len(question.machines), recovery=recovery))
    )


def _sampled_machine_sets(question: AdviceRequest) -> list[frozenset[int]]:
    """Return the available machines in all ticks of a trace, or in a sample of a model."""
    availability, _ = _availability(question, len(question.machines), 0)
    ticks = len(availability) if isinstance(availability, ListedAvailability) else _SAMPLED_TICKS
    return [frozenset(availability.at(tick)) for tick in range(ticks)]


def _best_single_machine(question: AdviceRequest) -> _SingleMachine | None:
    """Return the best single machine; None if X fits on none."""
    size, sets = _model(question).size, _sampled_machine_sets(question)
    single_machines = []
    for n, kind in enumerate(question.machines, start=1):
        up = sum(n in available for available in sets) / len(sets)
        if up and (kind.memory is None or kind.memory >= size):
            seconds = size / (question.rate * kind.speed) / up
            bonus_factor = _SINGLE_MACHINE_BONUS if up == 1 and kind.memory is not None else 1.0
            fit = "may fit" if kind.memory is None else "fits"
            availability_text = ", which is always available" if up == 1 else ""
            fits = f"X has {format_bytes(size)} and {fit} on machine {n}{availability_text}"
            single_machines.append(_SingleMachine(seconds / bonus_factor, seconds, fits))
    return min(single_machines, key=lambda available: available.weighted_seconds, default=None)


def _find_alternative(question: AdviceRequest, choice: Choice) -> str:
    """Return what is better than any of the stores, as text; empty if nothing is."""
    step = choice.expected.mean / question.steps
    single = _best_single_machine(question)
    if single and single.weighted_seconds <= step:
        return (
            f"A single machine is better: {single.description}. There a step takes "
            f"{format_duration(single.seconds)} on average; with this store it takes "
            f"{format_duration(step)}."
        )
    speeds = [kind.speed for kind in question.machines]
    model, total = _model(question), len(speeds)
    size = model.size
    if not question.noise and all(
        len(available) == total for available in _sampled_machine_sets(question)
    ):
        seconds = size / (sum(speeds) * question.rate) + model.overhead(total, 0)
        return (
            "No code is needed, because all machines are always available. Shares of X in "
            f"proportion to speeds take {format_duration(seconds)} for a step and "
            f"{format_bytes(size)}, this store {format_duration(step)} and "
            f"{format_bytes(choice.storage)}."
        )
    return ""


def percent(share: float) -> str:
    """Return a fraction as a percentage.

    Examples
    --------
    >>> percent(0.0123)
    '1.2 %'
    """
    return f"{100 * share:.1f} %"


def _format_ranges(numbers: Collection[int], tried: Sequence[int]) -> str:
    """Return a subset of the ascending numbers that were tried as text, with ranges.

    Examples
    --------
    >>> _format_ranges({2, 4, 6, 12}, [2, 4, 6, 8, 10, 12])
    '2 to 6 and 12'
    """
    runs: list[list[int]] = [[]]
    for number in tried:
        if number in numbers:
            runs[-1].append(number)
        elif runs[-1]:
            runs.append([])
    runs = [run for run in runs if run]
    spans = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return join_names(spans, limit=len(spans))
