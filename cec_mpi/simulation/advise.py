"""Recommend a store for given machines (N and L of a code, or N and J of copies), or no store."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.conditioning import condition_numbers, sample_subsets
from cec_mpi.core.code.families import default_family, make_generator
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.simulation.choices import (
    AdviceRequest,
    Choice,
    Interval,
    MachineGroup,
    machine_counts,
    make_scenario,
)
from cec_mpi.simulation.computers import count_tolerated_losses, machine_ranges
from cec_mpi.simulation.forecast import Forecaster
from cec_mpi.simulation.replay import CodedScheme, TimeModel
from cec_mpi.simulation.scenario import Source
from cec_mpi.text import format_bytes, format_count, format_duration, join_names, plural

_MIN_SETS, _MAX_SETS, _MAX_WORK = 6, 500, 1e9  # measured sets of L machines; sets times L**3
_MAX_TRIED_THRESHOLDS = 16  # tried values of L for each number of machines
_MAX_SMALL_COPIES = 6  # all J up to this number are tried
_MAX_MACHINES_PER_COMPUTER = 8
_MAX_SIMULATED_CHOICES = 3
_MIN_PROBABILITY = 1e-3  # that a machine is available
_MAX_COPIES_DENSITY = 0.5  # of X; from here on, copies of sparse rows have no advantage
_MIN_CODE_DENSITY = 0.1  # of X; up to here, a code has no advantage, because shards are dense
_TOLERANCE = 1.05  # ratio to the shortest time up to which times count as equal
_MAX_WAITING_FRACTION = 0.9  # of the time of a run
_LONG_TICK, _LONG_TICK_SECONDS = "2h", 7200.0  # for a second forecast if no tick is set
_ALLOWED_SLOWDOWN = 3.0  # a reliable single machine may take this many times as long


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The result of `advise`.

    Attributes
    ----------
    front : list of Choice
        The Pareto front by storage, including variants of its best choices with S > 0.
    recommended : Choice
    summary : str
        Sentences about the recommended choice.
    alternative : str
        Sentences about a better alternative to these stores; may be empty.
    rejections : dict of str to str
        Why choices such as "N = 6, L = 2 to 4" are infeasible.
    machines : list of MachineGroup
    baselines : dict of str to Interval
        Seconds of the run with simpler schemes on the machines of the recommended choice.
    """

    front: list[Choice]
    recommended: Choice
    summary: str
    alternative: str
    rejections: dict[str, str]
    machines: list[MachineGroup]
    baselines: dict[str, Interval]

    @property
    def speeds(self) -> list[float]:
        """Speed of each machine."""
        return [machine.speed for machine in self.machines]


def advise(request: AdviceRequest) -> Advice:
    """Return the Pareto front of stores and the recommended store.

    Parameters
    ----------
    request : AdviceRequest

    Raises
    ------
    InputError
        A number is out of range, or attributes of the request cannot be combined.
    InfeasibleError
        No choice is feasible. The message says why.

    Notes
    -----
    A choice dominates another if it is no worse in storage, total time, tolerated losses, digits
    and, with prices, cost, and better in one of them. Times are those of `replay`. The best choices
    are then simulated; if the request has noise, also with S > 0 stragglers. The recommended choice
    has the shortest time (with prices, time multiplied by cost), or takes at most 5 % longer and
    needs less storage.
    """
    _check_request(request)
    rejections, forecaster = _Rejections(), Forecaster(request)
    choices = _feasible_choices(request, forecaster, rejections)
    if not choices:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in rejections.summary().items())
        if single := _best_single_machine(request, forecaster):
            seconds = format_duration(single.seconds)
            reasons += f". {single.description}: a step takes {seconds}"
        raise InfeasibleError(f"no choice is feasible: {reasons}")
    front = pareto_front(choices)
    candidates: list[Choice] = []
    remaining = list(front)
    for _ in range(min(_MAX_SIMULATED_CHOICES, len(front))):
        candidate = recommend(remaining)
        remaining.remove(candidate)
        candidates.append(forecaster.forecast(candidate, is_candidate=True) or candidate)
    front = pareto_front([*remaining, *candidates])
    others = [choice for choice in front if choice not in candidates]
    best = [choice for choice in candidates if choice in front] or candidates
    simulated = [variant for choice in best for variant in forecaster.simulate_variants(choice)]
    recommended = recommend(simulated)
    baselines = forecaster.forecast_baselines(recommended)
    return Advice(
        front=sorted([*others, *simulated], key=_sort_key),
        recommended=recommended,
        summary=_summarise(request, recommended, baselines) + _tick_hint(request, recommended),
        alternative=_find_alternative(request, forecaster, recommended),
        rejections=rejections.summary(),
        machines=request.machines,
        baselines=baselines,
    )


def _feasible_choices(
    request: AdviceRequest, forecaster: Forecaster, rejections: _Rejections
) -> list[Choice]:
    """Return the feasible choices with their times; add others to `rejections`."""
    choices = []
    for choice in _choices(request):
        bytes_held = CodedScheme(TimeModel(make_scenario(request, choice))).bytes_held
        sized_choice = _add_sizes(request, choice, bytes_held)
        rejections.record_choice(sized_choice)
        if reason := _rejection_reason(request, sized_choice, bytes_held):
            rejections.add(sized_choice, *reason)
            continue
        forecast = forecaster.forecast(sized_choice)
        if forecast is None:
            rejections.add(sized_choice, "there are never enough available machines", "")
        elif forecast.waiting_fraction > _MAX_WAITING_FRACTION:
            waiting = format_percent(forecast.waiting_fraction)
            rejections.add(forecast, "it would wait for machines most of the time", waiting)
        else:
            choices.append(forecast)
    return choices


def pareto_front(choices: Sequence[Choice]) -> list[Choice]:
    """Return the choices that no other choice dominates, sorted by storage."""
    distinct = {_objectives(choice): choice for choice in reversed(choices)}  # first of equals
    front = [
        choice
        for objectives, choice in distinct.items()
        if not any(dominates(other, objectives) for other in distinct)
    ]
    return sorted(front, key=_sort_key)


def _sort_key(choice: Choice) -> tuple[float, ...]:
    return choice.storage, choice.total.mean, choice.stragglers


def dominates(objectives: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether no objective is larger than its counterpart, and at least one is smaller."""
    return all(a <= b for a, b in zip(objectives, other, strict=True)) and objectives != other


def _objectives(choice: Choice) -> tuple[float, ...]:
    cost = 0.0 if choice.cost is None else choice.cost
    return (
        choice.storage,
        choice.total.mean,
        -choice.tolerated_losses,
        round(choice.lost_digits, 1),
        cost,
    )


def recommend(front: Sequence[Choice]) -> Choice:
    """Return the choice with the shortest time, or a slightly slower one that needs less storage.

    With prices, time is multiplied by cost; if some choices are free, only these are compared, by
    time.
    """

    def objective(choice: Choice) -> float:
        return choice.expected_total.mean * (choice.cost or 1.0)

    candidates = [choice for choice in front if not choice.cost] or front
    best = min(map(objective, candidates))
    nearly_best = [choice for choice in candidates if objective(choice) <= _TOLERANCE * best]
    return min(
        nearly_best,
        key=lambda choice: (choice.storage, -choice.tolerated_losses, objective(choice)),
    )


class _Rejections:
    """Why choices are infeasible."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], dict[int, str]] = {}  # by L or J
        self._tried_numbers: dict[str, set[int]] = {}  # values of L or J

    def record_choice(self, choice: Choice) -> tuple[str, int]:
        """Record that a choice was tried; return its text ``N = .., L =``, and L or J."""
        name = f"N = {choice.machines}, {choice.threshold_text[0]} ="
        number = choice.recovery or choice.copies or 0
        self._tried_numbers.setdefault(name, set()).add(number)
        return name, number

    def add(self, choice: Choice, reason: str, figure: str) -> None:
        """Record the reason why a choice is infeasible, with a figure."""
        name, number = self.record_choice(choice)
        self._figures.setdefault((reason, name), {})[number] = figure

    def summary(self) -> dict[str, str]:
        """Return the reasons for each group of choices, with the figure of its largest L or J."""
        summary: dict[str, str] = {}
        for (reason, name), figures in self._figures.items():
            last = max(figures)
            figure = figures[last] + (
                f", with {name.rpartition(', ')[2]} {last}" if len(figures) > 1 else ""
            )
            key = f"{name} {_format_ranges(figures, sorted(self._tried_numbers[name]))}"
            text = f"{reason} ({figure})" if figures[last] else reason
            summary[key] = f"{summary[key]}; {text}" if key in summary else text
        return summary


def _check_request(request: AdviceRequest) -> None:
    for name in ("rows", "columns", "steps", "runs"):
        if getattr(request, name) is not None and getattr(request, name) < 1:
            raise InputError(f"{name} {getattr(request, name)}: expected at least 1")
    if not 0 < request.density <= 1:
        raise InputError(f"density {request.density}: expected a number above 0 and at most 1")
    if request.max_error is not None and not request.max_error > 0:
        raise InputError(f"error {request.max_error}: expected a positive number")
    if not 0 <= request.noise <= 10:
        raise InputError(f"noise {request.noise}: expected 0 to 10")
    if request.availability is not None and request.probability is not None:
        raise InputError("availability and probability cannot be combined")
    if request.probability is not None and request.probability < _MIN_PROBABILITY:
        raise InputError(
            f"probability {request.probability:g}: expected at least {_MIN_PROBABILITY:g}, "
            "because runs are replayed until enough machines are available"
        )
    prices = {group.price is None for group in request.groups}
    if not request.groups or len(prices) > 1:
        raise InputError("machines: expected at least one, and a price for all of them or for none")
    for group in request.groups:
        if not group.is_valid:
            raise InputError(
                f"machines {group}: expected a positive count, speed and memory, and a price "
                "of at least 0"
            )


def _choices(request: AdviceRequest) -> Iterator[Choice]:
    """Yield the choices to try: numbers of machines, and L or J."""
    total = len(request.machines)
    counts = {total}
    if len(request.groups) == 1:  # all machines are equal
        counts |= {-(-3 * total // 4), -(-total // 2)}
    for count in sorted(counts):
        for recovery in _sample_range(count) if request.density > _MIN_CODE_DENSITY else ():
            yield Choice(machines=count, recovery=recovery)
        if request.density < _MAX_COPIES_DENSITY:
            large_copies = {-(-count // 4), -(-count // 2), count}
            for copies in sorted({*range(1, min(count, _MAX_SMALL_COPIES) + 1), *large_copies}):
                yield Choice(machines=count, copies=copies)
    if request.density > _MIN_CODE_DENSITY and (per_computer := _machines_per_computer(request)):
        total = sum(per_computer)
        for recovery in _sample_range(total):
            yield Choice(machines=total, recovery=recovery, machines_per_computer=per_computer)


def _machines_per_computer(request: AdviceRequest) -> tuple[int, ...]:
    """Return the number of machines of each computer, in proportion to its memory, at most 8.

    The result is empty if all computers carry the same number, or if the memory of one is
    unknown.
    """
    memory = [group.memory for group in request.machines if group.memory is not None]
    if len(memory) < len(request.machines):
        return ()
    counts = tuple(min(_MAX_MACHINES_PER_COMPUTER, size // min(memory)) for size in memory)
    return counts if len(set(counts)) > 1 else ()


def _sample_range(last: int) -> list[int]:
    """Return evenly spaced whole numbers from 1 to `last`, including both."""
    return sorted({round(k) for k in np.linspace(1, last, min(last, _MAX_TRIED_THRESHOLDS))})


def _add_sizes(request: AdviceRequest, choice: Choice, bytes_held: NDArray[np.float64]) -> Choice:
    """Return a choice with its sizes and errors; `bytes_held` has the bytes of each machine."""
    machines, recovery = choice.machines, choice.recovery
    largest = round(_bytes_per_computer(choice, bytes_held).max())
    sized = replace(choice, storage=round(bytes_held.sum()), max_computer_bytes=largest)
    if recovery is None:
        return replace(
            sized, tolerated_losses=(choice.copies or 1) - 1, error=_machine_epsilon(request)
        )
    condition = _worst_condition(machines, recovery)
    return replace(
        sized,
        tolerated_losses=count_tolerated_losses(machine_counts(choice), recovery),
        lost_digits=math.log10(max(1.0, condition)) if math.isfinite(condition) else math.inf,
        error=_machine_epsilon(request) * condition,
    )


def _bytes_per_computer(choice: Choice, bytes_held: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bytes of each computer from the bytes of each machine."""
    ranges = machine_ranges(machine_counts(choice))
    return np.array([bytes_held[numbers.start - 1 : numbers.stop - 1].sum() for numbers in ranges])


def _machine_epsilon(request: AdviceRequest) -> float:
    return float(np.finfo(request.dtype).eps)


@cache
def _worst_condition(machines: int, recovery: int) -> float:
    """Return the largest condition number of a sample of sets of L machines."""
    size = max(_MIN_SETS, min(_MAX_SETS, int(_MAX_WORK / recovery**3)))
    sets = np.array(list(sample_subsets(machines, recovery, size)))
    matrix = make_generator(default_family(machines), machines, recovery)
    return float(condition_numbers(matrix[sets]).max())


def _rejection_reason(
    request: AdviceRequest, choice: Choice, bytes_held: NDArray[np.float64]
) -> tuple[str, str] | None:
    """Return the reason why a choice is infeasible, with a figure; None if it is feasible."""
    sizes = _bytes_per_computer(choice, bytes_held).tolist()
    for n, (group, size) in enumerate(zip(request.machines, sizes, strict=False), start=1):
        if group.memory is not None and size > group.memory:
            figure = f"{format_bytes(size)} needed, {format_bytes(group.memory)} usable"
            return f"its shards do not fit in the memory of computer {n}", figure
    if request.max_error is not None and choice.error > request.max_error:
        return f"its error may exceed {request.max_error:g}", f"{choice.error:.1g}"
    if choice.error > 1e-2:
        return "it would decode to noise", f"an error of {choice.error:.1g}"
    return None


def _summarise(request: AdviceRequest, choice: Choice, baselines: Mapping[str, Interval]) -> str:
    """Return sentences about the recommended choice."""
    if choice.copies is None:
        count = choice.machines
        verb = "is" if choice.recovery == 1 else "are"
        threshold = f"any {choice.recovery} of {plural(count, 'machine')} {verb} enough"
        if choice.recovery == count:
            threshold = f"all of its {count} machines are needed"
            if count == 1:
                threshold = "its only machine is needed"
    else:
        threshold = f"each row on {plural(choice.copies, 'machine')}"
    counts = choice.machines_per_computer
    losses = plural(choice.tolerated_losses, "computer" if counts else "machine")
    mean, low, high = choice.expected_total
    times = f"{format_count(request.steps, 'step')} take {format_duration(mean)}"
    if low < high:
        scale = mean / choice.total.mean
        single_run = [format_duration(scale * bound) for bound in choice.single_run_range]
        times += (
            f" on average ({format_duration(low)} to {format_duration(high)}; 9 of 10 single runs "
            f"take {single_run[0]} to {single_run[1]})"
        )
    if choice.waiting_fraction:
        times += f", {format_percent(choice.waiting_fraction)} of this time waiting"
    if choice.cost is not None:
        times += f", and cost {choice.cost:.2f}"
    digits = f"Results have about {math.floor(-math.log10(choice.error))} correct digits."
    if counts:
        digits += (
            f" Computers carry {min(counts)} to {max(counts)} machines, depending on their memory "
            "(cec-mpi join --machines)."
        )
    return (
        f"Take {choice.machines_text}, {choice.threshold_text}: {threshold}, {losses} may be away "
        f"at once, and the store takes up {format_bytes(choice.storage)}. {times}. {digits}"
        f"{_compare_with_baselines(request.costs.source, choice, baselines)}"
    )


def _compare_with_baselines(
    source: Source, choice: Choice, baselines: Mapping[str, Interval]
) -> str:
    """Return a sentence about simpler schemes, which read X or missing rows at each change."""
    ratios = {name: baselines[name].mean / choice.total.mean for name in baselines}
    if not ratios:
        return ""
    times = join_names(
        [f"{name} would take {ratio:.2f} times" for name, ratio in ratios.items()], len(ratios)
    )
    equal = [name for name, ratio in ratios.items() if ratio <= _TOLERANCE]
    store, verb = ("a code", "gains") if choice.copies is None else ("copies", "gain")
    verdict = f"; {store} {verb} little over {join_names(equal, len(equal))}" if equal else ""
    readers = "all machines together read" if source.is_shared else "each machine reads"
    rate = f"{readers} X at {format_bytes(source.rate)}/s"
    return f" Without {store}, {times} as long ({rate}){verdict}."


def _tick_hint(request: AdviceRequest, choice: Choice) -> str:
    """Return a sentence if the choice depends on the unknown length of outages; otherwise ""."""
    if request.tick_seconds is not None or request.probability in (None, 1):
        return ""
    longer = replace(request, tick_seconds=_LONG_TICK_SECONDS)
    choices = _feasible_choices(longer, Forecaster(longer), _Rejections())
    if not choices:
        return ""
    other = recommend(pareto_front(choices))
    if (other.machines, other.threshold_text) == (choice.machines, choice.threshold_text):
        return ""
    name = other.threshold_text
    if other.machines != choice.machines:
        name = f"N = {other.machines}, {name}"
    return (
        " The length of outages matters: this assumes 5 minutes; with --tick "
        f"{_LONG_TICK}, take {name}."
    )


class _SingleMachine(NamedTuple):
    """A single machine that holds X, and the mean seconds of a step on it.

    The `weighted_seconds` are divided by the allowed slowdown.
    """

    weighted_seconds: float
    seconds: float
    description: str


def _model_of_all_machines(request: AdviceRequest) -> TimeModel:
    """Return a model with the size of X without a code: L = 1, or copies of a sparse X."""
    recovery = None if request.density < _MAX_COPIES_DENSITY else 1
    return TimeModel(
        make_scenario(request, Choice(machines=len(request.machines), recovery=recovery))
    )


def _best_single_machine(request: AdviceRequest, forecaster: Forecaster) -> _SingleMachine | None:
    """Return the best single machine; None if X fits on none that is ever available."""
    size = _model_of_all_machines(request).matrix_bytes
    fractions = forecaster.availability_fractions()
    single_machines = []
    for n, (group, fraction) in enumerate(zip(request.machines, fractions, strict=True), start=1):
        if not fraction or (group.memory is not None and group.memory < size):
            continue
        seconds = size / (request.rate * group.speed) / fraction
        slowdown = _ALLOWED_SLOWDOWN if fraction == 1 and group.memory is not None else 1.0
        fits = "may fit" if group.memory is None else "fits"
        always = ", which is always available" if fraction == 1 else ""
        description = f"X is {format_bytes(size)} and {fits} on machine {n}{always}"
        single_machines.append(_SingleMachine(seconds / slowdown, seconds, description))
    return min(single_machines, key=lambda single: single.weighted_seconds, default=None)


def _find_alternative(request: AdviceRequest, forecaster: Forecaster, choice: Choice) -> str:
    """Return sentences about a better alternative; may be empty."""
    step_seconds = choice.expected_total.mean / request.steps
    single = _best_single_machine(request, forecaster)
    if single and single.weighted_seconds <= step_seconds:
        return (
            f"A single machine is better: {single.description}. A step on it takes "
            f"{format_duration(single.seconds)} on average; with this store it takes "
            f"{format_duration(step_seconds)}."
        )
    speeds = [group.speed for group in request.machines]
    model = _model_of_all_machines(request)
    size = model.matrix_bytes
    if not request.noise and min(forecaster.availability_fractions()) == 1:
        seconds = size / (sum(speeds) * request.rate) + model.overhead(len(speeds), 0)
        return (
            "No code is needed, because all machines are always available. With shares of X in "
            f"proportion to speeds, a step takes {format_duration(seconds)} and X needs "
            f"{format_bytes(size)}; with this store, {format_duration(step_seconds)} and "
            f"{format_bytes(choice.storage)}."
        )
    return ""


def format_percent(share: float) -> str:
    """Return a fraction as text in percent.

    Examples
    --------
    >>> format_percent(0.0123)
    '1.2 %'
    """
    return f"{100 * share:.1f} %"


def _format_ranges(subset: Collection[int], tried: Sequence[int]) -> str:
    """Return a subset of the tried numbers, which are ascending, as text with ranges.

    Examples
    --------
    >>> _format_ranges({2, 4, 6, 12}, [2, 4, 6, 8, 10, 12])
    '2 to 6 and 12'
    """
    ranges: list[list[int]] = [[]]
    for number in tried:
        if number in subset:
            ranges[-1].append(number)
        elif ranges[-1]:
            ranges.append([])
    texts = [f"{r[0]} to {r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges if r]
    return join_names(texts, limit=len(texts))
