"""Advice before a store is made: code or replicas, how many of what, and whether at all."""

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
from cec_mpi.runtime.availability.models import Availability, Listed, RandomAvailability, everyone
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.computers import OnComputers, count_spared, machines_of, share_speeds
from cec_mpi.simulation.replay import WAITS, Coded, Model, replay
from cec_mpi.simulation.scenario import RATE, Costs, Outcome, Scenario
from cec_mpi.simulation.simulate import simulate
from cec_mpi.text import counted, duration, listed, plural, size_words

SEEDS = 8
_FEWEST_SUBSETS, _SUBSETS, _WORK = 6, 500, 1e9  # sets of L machines that are measured; times L**3
_MOST_RECOVERIES = 16  # different L for each number of machines
_MOST_COPIES = 6
_MOST_CARRIED = 8  # machines of a computer
_MOST_STRAGGLERS = 2
_SIMULATED = 3  # choices that are simulated
_MOMENTS = 2  # from which they are
_STEPS, _FEWEST_STEPS, _MACHINE_STEPS = 30, 2, 3000  # of each; steps times machines
_MOST_DECODING = 2e9  # N L**3: with more, decoders take longer than all else
_MOST_COPIED = 300  # machines of copies that are simulated: a step takes them seconds
_MOST_TICKS, _FEWEST_TICKS = 200_000, 200  # of a replayed run, the most times its machines
_LEAST_PROBABILITY = 1e-3  # with which a machine is up
_DENSE = 0.5  # from which density on copies of rows are not better than dense
_CLOSE = 1.05  # times the shortest: as good, if it needs less room
_MOST_WAITING = 0.9
_LOOKED_AT = 1000  # ticks of a random model
_SIMPLER = 3.0  # times as long may one machine take that stays: it is simpler
_T = (0.0, 0.0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # Student, 95 %


@dataclass(frozen=True)
class Kind:
    """Some machines that are alike.

    Attributes
    ----------
    count : int
    speed : float
        Relative.
    memory : int, optional
        Bytes for its shards; None if they always fit, and it carries one.
    price : float, optional
        Of a machine for an hour.
    """

    count: int
    speed: float = 1.0
    memory: int | None = None
    price: float | None = None

    @property
    def is_possible(self) -> bool:
        """Whether its numbers are in range."""
        return (
            self.count >= 1
            and values.LEAST <= self.speed <= values.MOST
            and (self.memory is None or self.memory >= 1)
            and 0 <= (self.price or 0) <= values.MOST
        )


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is known before a store is made.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of X.
    density : float
        Share of nonzeros.
    dtype : {"float64", "float32"}
    kinds : sequence of Kind
        Machines, in the order of their numbers.
    availability : callable, optional
        Returns the availability of machines 1..N for N. By default all machines stay.
    probability : float, optional
        With which each machine is up in each tick, instead.
    tick_seconds : float, optional
        Length of a tick. By default that of the trace, or five minutes.
    steps : int
    error : float, optional
        Largest acceptable error of results, relative to |X| |w|.
    noise : float
        Standard deviation of the logarithm of each machine's speed in each step; only simulated
        choices have it.
    rate : float
        Bytes per second that a machine of speed 1 multiplies.
    costs : Costs
    seeds : int
        Replayed runs of each choice.
    """

    rows: int
    columns: int
    density: float = 1.0
    dtype: str = "float64"
    kinds: Sequence[Kind]
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
    def machines(self) -> list[Kind]:
        """Each machine, as a kind of one."""
        return [replace(kind, count=1) for kind in self.kinds for _ in range(kind.count)]

    @property
    def stays(self) -> bool:
        """Whether all machines stay."""
        return self.availability is None and self.probability in (None, 1)


class Interval(NamedTuple):
    """A mean over seeds, and its 95 % interval."""

    mean: float
    low: float
    high: float


_NONE = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A store, and what comes of it.

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
    gone : int
        Computers, whichever they are, that may be gone at once.
    digits : float
        Decimal digits that decoding costs: of the worst sets of L machines that were measured.
    error : float
        The largest error to expect, relative to |X| |w|.
    step : Interval
        Seconds of a step, without waiting.
    waiting : Interval
        Share of the time in which too few machines are up.
    wait : float
        Seconds that it lasts each time, on average.
    total : Interval
        Seconds of all steps, in closed form.
    simulated : Interval or None
        The same with steps as long as simulated ones, of the best few choices.
    cost : float or None
        Of all machines that are up meanwhile.
    """

    machines: int
    recovery: int | None = None
    copies: int | None = None
    stragglers: int = 0
    carried: tuple[int, ...] = ()
    storage: int = 0
    largest: int = 0
    gone: int = 0
    digits: float = 0.0
    error: float = 0.0
    step: Interval = _NONE
    waiting: Interval = _NONE
    wait: float = 0.0
    total: Interval = _NONE
    simulated: Interval | None = None
    cost: float | None = None

    @property
    def expected(self) -> Interval:
        """Seconds of all steps, as simulated if they are."""
        return self.simulated or self.total

    @property
    def threshold(self) -> str:
        """L of a code, or J of replicas."""
        return f"L = {self.recovery}" if self.copies is None else f"J = {self.copies}"

    @property
    def family(self) -> str:
        """What choices of different L or J have in common."""
        late = f", S = {self.stragglers}" if self.stragglers else ""
        return f"N = {self.machines}{late}"

    def encode(self, dtype: str, speeds: Sequence[float]) -> str:
        """Return the command that makes the store, for machines of these speeds."""
        return f"cec-mpi encode X store --dtype {dtype} {self.options(speeds)}"

    def options(self, speeds: Sequence[float]) -> str:
        """Return the options of encode that tell choices apart."""
        if self.copies is not None:
            words = f"--machines {self.machines} --copies {self.copies}"
            if len(set(speeds)) > 1:
                given = ",".join(f"{speed:g}" for speed in speeds[: self.machines])
                words += f" --speeds {given}"
            return words
        return f"--machines {self.machines} --recovery {self.recovery}"

    def run(self) -> str:
        """Return the options of a run with the store, which are not the defaults."""
        return f"--stragglers {self.stragglers}" if self.stragglers else ""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do.

    Attributes
    ----------
    front : list of Choice
        Choices of which no other is better in everything, by storage.
    recommended : Choice
    sentence : str
        About the recommended choice.
    instead : str
        Why none of them is worth it, and what is better; empty if one is.
    rejected : dict of str to str
        What cannot work, and why.
    machines : list of Kind
    """

    front: list[Choice]
    recommended: Choice
    sentence: str
    instead: str
    rejected: dict[str, str]
    machines: list[Kind]

    @property
    def speeds(self) -> list[float]:
        """The speed of each machine."""
        return [machine.speed for machine in self.machines]


def advise(question: Question) -> Advice:
    """Return choices of a store on the Pareto front, and recommend one.

    Parameters
    ----------
    question : Question

    Raises
    ------
    InputError
        A number is out of range.
    InfeasibleError
        No choice can work; the message says why.

    Notes
    -----
    A choice is better than another if it is not worse in storage, in the time of all steps with
    waiting, in machines that may be gone at once and in digits, and better in one of these; with
    prices, cost counts too. Times are those of `replay`; the best few choices are then simulated,
    with noise also with stragglers. Recommended is the one of these that takes the shortest time,
    or at most 5 % longer with less room; with prices, time multiplied by cost.
    """
    _check(question)
    rejected = _Rejected()
    found = []
    for choice in _choices(question):
        held = Coded(Model(_scenario(question, choice))).held
        sized = _sized(question, choice, held)
        rejected.tried(sized)
        if reason := _impossible(question, sized, held):
            rejected.add(sized, *reason)
            continue
        outcomes = [_replayed(question, choice, seed) for seed in range(question.seeds)]
        if any(outcome is None for outcome in outcomes):
            rejected.add(sized, "too few machines are ever up", "")
            continue
        found.append(_filled(question, sized, [each for each in outcomes if each is not None]))
        if found[-1].waiting.mean > _MOST_WAITING:
            waits = percent(found[-1].waiting.mean)
            rejected.add(found.pop(), "it would wait for machines most of the time", waits)
    if not found:
        reasons = "; ".join(f"{what}: {why}" for what, why in rejected.told().items())
        alone = _alone(question)
        instead = "" if alone is None else f". {alone.fits}: a step takes {duration(alone.seconds)}"
        raise InfeasibleError(f"no choice can work: {reasons}{instead}")
    front = pareto(found)
    few: list[Choice] = []
    rest = list(front)
    while rest and len(few) < _SIMULATED:
        few.append(recommend(rest))
        rest.remove(few[-1])
    simulated = [each for choice in few for each in _simulated(question, choice)]
    best = recommend(simulated)
    return Advice(
        front=sorted([*rest, *simulated], key=_order),
        recommended=best,
        sentence=_sentence(question, best),
        instead=_instead(question, best),
        rejected=rejected.told(),
        machines=question.machines,
    )


def pareto(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices of which no other is better, by storage."""
    different = {_figures(each): each for each in reversed(choices)}  # of equal ones the first
    front = [
        each
        for figures, each in different.items()
        if not any(is_better(other, figures) for other in different)
    ]
    return sorted(front, key=_order)


def _order(choice: Choice) -> tuple[float, ...]:
    return choice.storage, choice.total.mean, choice.stragglers


def is_better(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether figures, of which less is better, are nowhere above others and once below them."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


def _figures(choice: Choice) -> tuple[float, ...]:
    cost = 0.0 if choice.cost is None else choice.cost
    return choice.storage, choice.total.mean, -choice.gone, round(choice.digits, 1), cost


def recommend(front: Sequence[Choice]) -> Choice:
    """Return the choice to take: the shortest, or one that is nearly as good and needs less room.

    With prices, time is multiplied by cost, unless a choice costs nothing.
    """

    def price(choice: Choice) -> float:
        return choice.expected.mean * (choice.cost or 1.0)

    free = [each for each in front if not each.cost] or front
    least = min(map(price, free))
    close = [each for each in free if price(each) <= _CLOSE * least]
    return min(close, key=lambda each: (each.storage, -each.gone, price(each)))


class _Rejected:
    """Choices that cannot work, by reason."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[int, str]] = {}
        self._tried: dict[str, set[int]] = {}

    def tried(self, choice: Choice) -> tuple[str, int]:
        """Note that a choice is tried; returns the name of its L or J, and that number."""
        name = f"N = {choice.machines}, {choice.threshold[0]} ="
        number = choice.recovery or choice.copies or 0
        self._tried.setdefault(name, set()).add(number)
        return name, number

    def add(self, choice: Choice, reason: str, figure: str) -> None:
        """Note why a choice cannot work, and a figure of it."""
        name, number = self.tried(choice)
        self._found.setdefault((reason, name), {})[number] = figure

    def told(self) -> dict[str, str]:
        """Return what was rejected, with the reason and the figure of the last one."""
        told: dict[str, str] = {}
        for (reason, name), each in self._found.items():
            last = max(each)
            figure = each[last] + (" with the last" if len(each) > 1 else "")
            key = f"{name} {_ranges(each, sorted(self._tried[name]))}"
            why = f"{reason} ({figure})" if each[last] else reason
            told[key] = f"{told[key]}; {why}" if key in told else why
        return told


def _check(question: Question) -> None:
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
    prices = {kind.price is None for kind in question.kinds}
    if not question.kinds or len(prices) > 1:
        raise InputError("machines: expected at least one, and a price for all of them or for none")
    for kind in question.kinds:
        if not kind.is_possible:
            raise InputError(
                f"machines {kind}: expected a positive number, speed and memory, and a price of at "
                "least 0"
            )


def _choices(question: Question) -> Iterator[Choice]:
    """Yield what is tried: numbers of machines, and L or J."""
    total = len(question.machines)
    counts = {total}
    if len(question.kinds) == 1:  # which machines are left out makes no difference
        counts |= {-(-3 * total // 4), -(-total // 2)}
    for count in sorted(counts):
        for recovery in _spread_out(count):
            yield Choice(machines=count, recovery=recovery)
        if question.density < _DENSE:
            for copies in range(1, min(count, _MOST_COPIES) + 1):
                yield Choice(machines=count, copies=copies)
    if carried := _carried(question):
        for recovery in _spread_out(sum(carried)):
            yield Choice(machines=sum(carried), recovery=recovery, carried=carried)


def _carried(question: Question) -> tuple[int, ...]:
    """Return how many machines computers carry that have several times the least memory.

    It is empty if each carries one, or as many as the others.
    """
    memory = [kind.memory for kind in question.machines if kind.memory is not None]
    if len(memory) < len(question.machines):
        return ()
    carried = tuple(min(_MOST_CARRIED, each // min(memory)) for each in memory)
    return carried if len(set(carried)) > 1 else ()


def _spread_out(most: int) -> list[int]:
    """Return some of the numbers 1 to `most`, with both ends."""
    return sorted({round(k) for k in np.linspace(1, most, min(most, _MOST_RECOVERIES))})


def _scenario(question: Question, choice: Choice) -> Scenario:
    carried = _all_carried(choice)
    speeds = share_speeds([kind.speed for kind in question.machines[: len(carried)]], carried)
    options = SessionOptions(
        emulate_speeds=speeds,
        emulate_noise=question.noise,
        speeds=speeds,
        stragglers=choice.stragglers,
        elastic=not question.stays,
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


def _all_carried(choice: Choice) -> tuple[int, ...]:
    """Return how many machines each computer carries that the choice uses."""
    return choice.carried or (1,) * choice.machines


def _sized(question: Question, choice: Choice, held: NDArray[np.float64]) -> Choice:
    """Return a choice with what does not depend on time, given the bytes of each machine."""
    machines, recovery = choice.machines, choice.recovery
    largest = round(_by_computer(choice, held).max())
    sized = replace(choice, storage=round(held.sum()), largest=largest)
    if recovery is None:
        return replace(sized, gone=(choice.copies or 1) - 1, error=_eps(question))
    condition = _condition(machines, recovery)
    return replace(
        sized,
        gone=count_spared(_all_carried(choice), recovery),
        digits=math.log10(max(1.0, condition)) if math.isfinite(condition) else math.inf,
        error=_eps(question) * condition,
    )


def _by_computer(choice: Choice, held: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bytes of each computer, given those of each machine."""
    machines = machines_of(_all_carried(choice))
    return np.array([held[each.start - 1 : each.stop - 1].sum() for each in machines])


def _eps(question: Question) -> float:
    return float(np.finfo(question.dtype).eps)


@cache
def _condition(machines: int, recovery: int) -> float:
    """Return the largest condition number of a sample of sets of L machines."""
    size = max(_FEWEST_SUBSETS, min(_SUBSETS, int(_WORK / recovery**3)))
    sets = np.array(list(sample_subsets(machines, recovery, size)))
    matrix = make_generator(default_family(machines), machines, recovery)
    return float(condition_numbers(matrix[sets]).max())


def _impossible(
    question: Question, choice: Choice, held: NDArray[np.float64]
) -> tuple[str, str] | None:
    """Return why a choice cannot work, and a figure; None if it can."""
    sizes = _by_computer(choice, held).tolist()
    for n, (kind, size) in enumerate(zip(question.machines, sizes, strict=False), start=1):
        if kind.memory is not None and size > kind.memory:
            figure = f"{size_words(size)} of {size_words(kind.memory)}"
            return f"its shard does not fit into the memory of machine {n}", figure
    if question.error is not None and choice.error > question.error:
        return f"its error may exceed {question.error:g}", f"{choice.error:.1g}"
    if choice.error > 1e-2:
        return "it would decode to noise", f"an error of {choice.error:.1g}"
    return None


def _from_moment(question: Question, choice: Choice, seed: int) -> Scenario:
    """Return a run with a choice from a moment of the trace, as long as it can be replayed."""
    scenario, machines = _scenario(question, choice), choice.machines
    availability, length = _availability(question, len(_all_carried(choice)), seed)
    if choice.carried:
        availability = OnComputers(availability, machines_of(choice.carried))
    options = replace(scenario.options, availability=availability, tick_seconds=length, seed=seed)
    limit = max(_FEWEST_TICKS, _MOST_TICKS // machines) * length
    return replace(scenario, options=options, seconds=limit)


def _replayed(question: Question, choice: Choice, seed: int) -> Outcome | None:
    """Replay a run from a moment of the trace; None if machines are never enough."""
    model = Model(_from_moment(question, choice, seed))
    outcome = replay(model, Coded(model))
    return outcome if outcome.steps and not outcome.ended else None


def _simulated(question: Question, choice: Choice) -> list[Choice]:
    """Return a choice with its simulated time, and those of its stragglers that are shorter."""
    is_large = choice.machines * (choice.recovery or 1) ** 3 > _MOST_DECODING
    if is_large or (choice.copies and choice.machines > _MOST_COPIED):
        return [choice]
    late, spare = [choice], choice.gone
    if question.noise:
        most = min(_MOST_STRAGGLERS, spare)
        late += [replace(choice, stragglers=count) for count in range(1, most + 1)]
    closed = _busy(question, choice, is_simulated=False)
    found = []
    for each in late:
        ratio = float(np.mean(_busy(question, each, is_simulated=True) / closed))
        factor = ratio + (1 - ratio) * choice.waiting.mean  # waiting takes as long
        time = Interval(*(factor * bound for bound in choice.total))
        cost = None if choice.cost is None else factor * choice.cost
        found.append(replace(each, simulated=time, cost=cost))
    best = found[0].expected.mean
    return [each for each in found if not each.stragglers or each.expected.mean < best]


def _busy(question: Question, choice: Choice, is_simulated: bool) -> NDArray[np.float64]:
    """Return the seconds of some steps from each of some moments, without waiting and reading."""
    steps = max(_FEWEST_STEPS, min(_STEPS, question.steps, _MACHINE_STEPS // choice.machines))
    found = []
    for seed in range(min(_MOMENTS, question.seeds)):
        scenario = _from_moment(question, choice, seed)
        costs = replace(question.costs, disk=math.inf)
        scenario = replace(scenario, steps=steps, costs=costs)
        model = Model(scenario)
        outcome = simulate(scenario) if is_simulated else replay(model, Coded(model))
        found.append((outcome.seconds - outcome.waiting) / outcome.steps)
    return np.array(found)


def _availability(question: Question, machines: int, seed: int) -> tuple[Availability, float]:
    """Return the availability of a run, and the seconds of a tick."""
    length = question.tick_seconds
    if question.probability is not None:
        return RandomAvailability(machines, question.probability, seed), length or 300.0
    if question.availability is None:
        return everyone(machines), length or 300.0
    given = _for_fewer(question.availability, machines, len(question.machines))
    if not isinstance(given, Listed):
        return given, length or 300.0
    ticks = [given.at(tick) for tick in range(len(given))]
    start = int(np.random.default_rng(seed).integers(len(ticks)))
    return Listed(ticks[start:] + ticks[:start], repeat=True), length or given.gap_seconds or 300.0


def _for_fewer(
    availability: Callable[[int], Availability], machines: int, total: int
) -> Availability:
    """Return the availability of the first machines; tables and lists have that of all."""
    try:
        return availability(machines)
    except InputError:
        if machines == total:
            raise
        return availability(total).among(range(1, machines + 1))


def _filled(question: Question, choice: Choice, outcomes: Sequence[Outcome]) -> Choice:
    """Return a choice with its times."""
    busy = [(each.seconds - each.waiting) / each.steps for each in outcomes]
    waiting = [each.waiting / each.seconds for each in outcomes]
    total = [each.seconds * question.steps / each.steps for each in outcomes]
    waits = sum(each.events.get(WAITS, 0) for each in outcomes)
    cost = None
    machines = machines_of(_all_carried(choice))
    prices = [kind.price for kind in question.machines[: len(machines)]]
    if prices[0] is not None:
        seconds = [np.array(each.machine_seconds) / each.steps for each in outcomes]
        hours = np.mean(seconds, axis=0) * question.steps / 3600
        first = [each.start - 1 for each in machines]  # machine of each computer
        cost = float(hours[first] @ [price or 0.0 for price in prices])
    return replace(
        choice,
        step=mean_interval(busy),
        waiting=mean_interval(waiting),
        wait=sum(each.waiting for each in outcomes) / waits if waits else 0.0,
        total=mean_interval(total),
        cost=cost,
    )


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of values, and where it lies with 95 %.

    Values are taken as normal; of more than ten, the interval is up to 15 % wider than need be.
    Its lower end is at least 0.
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, mean, mean)
    half = _T[min(count, len(_T) - 1)] * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(mean, max(0.0, mean - half), mean + half)


def _sentence(question: Question, choice: Choice) -> str:
    """Return a sentence about the recommended choice."""
    if choice.copies is None:
        count = choice.machines
        is_enough = "is enough" if choice.recovery == 1 else "are enough"
        needed = f"any {choice.recovery} of {plural(count, 'machine')} {is_enough}"
        if choice.recovery == count:
            needed = f"all of its {plural(count, 'machine', 'is', 'are')} needed"
    else:
        needed = f"each row on {plural(choice.copies, 'machine')}"
    waiting = f", {percent(choice.waiting.mean)} of them waiting" if choice.waiting.mean else ""
    cost = "" if choice.cost is None else f", and cost {choice.cost:.2f}"
    gone = plural(choice.gone, "computer" if choice.carried else "machine")
    carried = ""
    if choice.carried:
        carried = (
            f" Computers carry {min(choice.carried)} to {max(choice.carried)} machines, by their "
            "memory (cec-mpi join --machines)."
        )
    return (
        f"Take {choice.family}, {choice.threshold}: {needed}, {gone} may be gone at once, and the "
        f"store has {size_words(choice.storage)}. {counted(question.steps, 'step')} take "
        f"{duration(choice.expected.mean)} ({duration(choice.expected.low)} to "
        f"{duration(choice.expected.high)}){waiting}{cost}.{carried}"
    )


class _Alone(NamedTuple):
    """A machine without others: average seconds of a step, and divided if it is simpler."""

    worth: float
    seconds: float
    fits: str


def _model(question: Question) -> Model:
    """Return the model of a store with all rows on all machines, or copies of a sparse X."""
    recovery = None if question.density < _DENSE else 1
    return Model(_scenario(question, Choice(machines=len(question.machines), recovery=recovery)))


def _sets(question: Question) -> list[frozenset[int]]:
    """Return the machines that are up in the ticks of a trace, or in some of a model."""
    availability, _ = _availability(question, len(question.machines), 0)
    ticks = len(availability) if isinstance(availability, Listed) else _LOOKED_AT
    return [frozenset(availability.at(tick)) for tick in range(ticks)]


def _alone(question: Question) -> _Alone | None:
    """Return the machine that is best without others; None if X fits on none."""
    size, sets = _model(question).size, _sets(question)
    found = []
    for n, kind in enumerate(question.machines, start=1):
        up = sum(n in each for each in sets) / len(sets)
        if up and (kind.memory is None or kind.memory >= size):
            seconds = size / (question.rate * kind.speed) / up
            simpler = _SIMPLER if up == 1 and kind.memory is not None else 1.0
            may = "may fit" if kind.memory is None else "fits"
            stays = ", which stays" if up == 1 else ""
            fits = f"X has {size_words(size)} and {may} on machine {n}{stays}"
            found.append(_Alone(seconds / simpler, seconds, fits))
    return min(found, key=lambda each: each.worth, default=None)


def _instead(question: Question, choice: Choice) -> str:
    """Return what is better than any store; an empty text if nothing is."""
    step = choice.expected.mean / question.steps
    alone = _alone(question)
    if alone and alone.worth <= step:
        return (
            f"None of this is worth it: {alone.fits}. There a step takes "
            f"{duration(alone.seconds)} on average, and {duration(step)} with this store."
        )
    speeds = [kind.speed for kind in question.machines]
    model, total = _model(question), len(speeds)
    size = model.size
    if not question.noise and all(len(each) == total for each in _sets(question)):
        seconds = size / (sum(speeds) * question.rate) + model.overhead(total, 0)
        return (
            "None of this is worth it: all machines stay. Shares of X in proportion to speeds, "
            f"without a code, take {duration(seconds)} for a step and {size_words(size)}, and this "
            f"store {duration(step)} and {size_words(choice.storage)}."
        )
    return ""


def percent(share: float) -> str:
    """Return a share as text.

    Examples
    --------
    >>> percent(0.0123)
    '1.2 %'
    """
    return f"{100 * share:.1f} %"


def _ranges(numbers: Collection[int], tried: Sequence[int]) -> str:
    """Return those numbers of all that were tried, ascending, as text.

    Examples
    --------
    >>> _ranges({2, 4, 6, 12}, [2, 4, 6, 8, 10, 12])
    '2 to 6 and 12'
    """
    found: list[list[int]] = [[]]
    for number in tried:
        if number in numbers:
            found[-1].append(number)
        elif found[-1]:
            found.append([])
    found = [each for each in found if each]
    spans = [f"{each[0]} to {each[-1]}" if len(each) > 1 else str(each[0]) for each in found]
    return listed(spans, most=len(spans))
