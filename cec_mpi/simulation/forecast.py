"""Forecasts of runs: times over random start times of a trace, or over draws of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import (
    Availability,
    ListedAvailability,
    Machines,
    RandomAvailability,
    all_available,
)
from cec_mpi.simulation.baselines import CHECKPOINT_SECONDS, EqualShares, RestartOnChange
from cec_mpi.simulation.choices import (
    AdviceRequest,
    Choice,
    Interval,
    machine_counts,
    scenario_of,
)
from cec_mpi.simulation.computers import ComputerAvailability, machine_ranges
from cec_mpi.simulation.replay import (
    WAIT_EVENT,
    Coded,
    Replayed,
    Scheme,
    StepsBySet,
    TimeModel,
    replay,
)
from cec_mpi.simulation.scenario import Source
from cec_mpi.simulation.simulate import simulate

_CHANGES = 100, 500  # that the runs of a choice, and of a candidate, see together at least
_FEWEST_RUNS = 8, 20
_MOST_RUNS = 400, 1000
_MOST_TICKS, _FEWEST_TICKS = 40_000, 200  # of a replayed run; the former times machines
_FEWEST_DRAWN = 25  # ticks of a run of a model
_BLOCK = 32  # ticks of a model that are drawn together
_DEFAULT_TICK = 300.0  # seconds
_STARTS = 2  # start times in the trace for each simulated choice
_STEPS, _FEWEST_STEPS, _MACHINE_STEPS = 30, 2, 3000  # steps of each; steps times machines
_MOST_DECODING = 2e9  # N L**3; above it, preparing decoders would dominate
_MOST_WITH_COPIES = 300  # machines; above it, simulating a step with copies takes seconds
_MOST_STRAGGLERS = 2

SchemeMaker = Callable[[TimeModel], Scheme]

OPPONENTS: dict[str, tuple[SchemeMaker, float]] = {
    "restarting": (RestartOnChange, CHECKPOINT_SECONDS),
    "equal shares": (EqualShares, math.inf),
}
"""Schemes without a code, and the seconds between their checkpoints."""


class _DrawnAvailability(RandomAvailability):
    """A random model that is drawn once for many replays, many ticks at a time."""

    def __init__(self, machines: int, probability: float, seed: int) -> None:
        super().__init__(machines, probability, seed)
        self._random, self._ticks = np.random.default_rng(seed), list[Machines]()

    def at(self, tick: int) -> Machines:
        """Return the numbers of the available machines at a tick, in ascending order."""
        while tick >= len(self._ticks):
            drawn = self._random.random((_BLOCK, self._machines)) < self._probability
            self._ticks += [tuple((np.flatnonzero(row) + 1).tolist()) for row in drawn]
        return self._ticks[tick]


class Forecaster:
    """Forecasts for the choices of a question, all with the same draws of availability.

    Parameters
    ----------
    question : AdviceRequest

    Attributes
    ----------
    tick_seconds : float
        Length of a tick.
    """

    def __init__(self, question: AdviceRequest) -> None:
        self._question = question
        self._drawn: dict[tuple[int, int], Availability] = {}
        total = len(question.machines)
        given = None if question.availability is None else self._given(total)
        gap = given.gap_seconds if isinstance(given, ListedAvailability) else None
        self.tick_seconds = question.tick_seconds or gap or _DEFAULT_TICK

    def forecast(self, choice: Choice, is_candidate: bool = False) -> Choice | None:
        """Return a choice with its times and cost; None if too few machines are ever available.

        Runs are replayed until they have seen 100 changes together, at least 8; of a candidate 500
        changes, at least 20 runs.
        """
        outcomes = self._replay(choice, Coded, is_candidate=is_candidate)
        if not outcomes:
            return None
        question, waits = self._question, sum(run.events.get(WAIT_EVENT, 0) for run in outcomes)
        cost = None
        machines = machine_ranges(machine_counts(choice))
        prices = [kind.price for kind in question.machines[: len(machines)]]
        if prices[0] is not None:
            seconds = [np.array(run.machine_seconds) / run.steps for run in outcomes]
            machine_hours = np.mean(seconds, axis=0) * question.steps / 3600
            first = [carried.start - 1 for carried in machines]  # machine of each computer
            cost = float(machine_hours[first] @ [price or 0.0 for price in prices])
        waiting = sum(run.waiting for run in outcomes) / sum(run.seconds for run in outcomes)
        wait = sum(run.waiting for run in outcomes) / waits if waits else 0.0
        waiting, wait = self._enumerate_waiting(choice) or (waiting, wait)
        total = self._totals(outcomes)
        # Of runs that are replayed in part, means of parts spread more than means of whole runs.
        spread = np.sqrt([run.steps / question.steps for run in outcomes])
        runs = total.mean() + spread * (total - total.mean())
        low, high = np.quantile(runs, (0.05, 0.95), method="weibull").tolist()
        return replace(
            choice,
            step=mean_interval([(run.seconds - run.waiting) / run.steps for run in outcomes]),
            waiting=waiting,
            wait=wait,
            total=mean_interval(total),
            single_run=(low, high),
            cost=cost,
        )

    def run_seconds(self, choice: Choice, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Return the seconds of all steps in a run for each seed."""
        return self._totals(self._replay(choice, Coded, seeds=seeds))

    def opponents(
        self, choice: Choice, schemes: Mapping[str, tuple[SchemeMaker, float]] | None = None
    ) -> dict[str, Interval]:
        """Return the seconds of all steps with schemes on the machines of a choice.

        Parameters
        ----------
        choice : Choice
        schemes : mapping of str to (callable, float), optional
            Makers of schemes, and the seconds between their checkpoints; by default `OPPONENTS`.
        """
        found = {}
        for name, (scheme, checkpoint_seconds) in (schemes or OPPONENTS).items():
            if outcomes := self._replay(choice, scheme, checkpoint_seconds, is_candidate=True):
                found[name] = mean_interval(self._totals(outcomes))
        return found

    def _replay(
        self,
        choice: Choice,
        scheme: SchemeMaker,
        checkpoint_seconds: float = math.inf,
        is_candidate: bool = False,
        seeds: Sequence[int] = (),
    ) -> list[Replayed]:
        """Replay runs of a choice; empty if too few machines are available in one of them.

        Given no seeds, as many runs are made as the question asks for, or as see enough changes.
        """
        question, computers = self._question, len(machine_counts(choice))
        fewest, most = _FEWEST_RUNS[is_candidate], _MOST_RUNS[is_candidate]
        if seeds or question.seeds:
            fewest = most = len(seeds) or question.seeds or 0
        elif question.always_available:
            most = 1
        ticks = max(_FEWEST_TICKS, _MOST_TICKS // choice.machines)
        if question.probability is not None and not seeds:  # ticks are alike: parts are enough
            ticks = max(_FEWEST_DRAWN, _CHANGES[True] // fewest)
        scenario = scenario_of(question, choice)
        options = replace(scenario.options, tick_seconds=self.tick_seconds)
        seconds = ticks * self.tick_seconds
        model = TimeModel(replace(scenario, options=options, seconds=seconds))
        made = scheme(model)
        known: StepsBySet = {}
        outcomes: list[Replayed] = []
        changes = 0
        while len(outcomes) < most and (len(outcomes) < fewest or changes < _CHANGES[is_candidate]):
            seed = seeds[len(outcomes)] if seeds else question.first_seed + len(outcomes)
            up = self.availability(choice, computers, seed)
            outcome = replay(model, made, checkpoint_seconds, up, known)
            if not outcome.steps or outcome.ended:
                return []
            outcomes.append(outcome)
            changes += outcome.changes
        return outcomes

    def _totals(self, outcomes: Sequence[Replayed]) -> NDArray[np.float64]:
        """Return the seconds of all steps; of runs that ended earlier, as if they had gone on."""
        steps = self._question.steps
        return np.array(
            [run.opening + (run.seconds - run.opening) * steps / run.steps for run in outcomes]
        )

    def availability(self, choice: Choice, computers: int, seed: int) -> Availability:
        """Return the availability of the machines of a choice in one run."""
        key = computers, seed
        if key not in self._drawn:
            self._drawn[key] = self._draw(computers, seed)
        found = self._drawn[key]
        if choice.carried:
            return ComputerAvailability(found, machine_ranges(choice.carried))
        return found

    def _draw(self, computers: int, seed: int) -> Availability:
        question = self._question
        if question.probability is not None:
            return _DrawnAvailability(computers, question.probability, seed)
        if question.availability is None:
            return all_available(computers)
        given = self._given(computers)
        if not isinstance(given, ListedAvailability):
            return given
        ticks = [given.at(tick) for tick in range(len(given))]
        start = int(np.random.default_rng(seed).integers(len(ticks)))
        return ListedAvailability(ticks[start:] + ticks[:start], repeat=True)

    def _given(self, computers: int) -> Availability:
        """Return the given availability of the first computers; tables and lists describe all."""
        assert self._question.availability is not None
        total = len(self._question.machines)
        try:
            return self._question.availability(computers)
        except InputError:
            if computers == total:
                raise
            return self._question.availability(total).restrict_to(range(1, computers + 1))

    def present(self) -> list[float]:
        """Return the fraction of the time in which each computer is available."""
        total = len(self._question.machines)
        if self._question.probability is not None or self._question.availability is None:
            return [self._question.probability or 1.0] * total
        given = self._given(total)
        ticks = len(given) if isinstance(given, ListedAvailability) else _FEWEST_TICKS
        counts = np.zeros(total)
        for tick in range(ticks):
            counts[np.array(given.at(tick), np.intp) - 1] += 1
        return [float(count) for count in counts / ticks]

    def _enumerate_waiting(self, choice: Choice) -> tuple[float, float] | None:
        """Return the fraction of the time, and the mean seconds, of waiting for machines.

        They are exact for independent machines, and for a trace that repeats; None for others.
        """
        carried, question = machine_counts(choice), self._question
        needed = choice.recovery or choice.machines - (choice.copies or 1) + 1
        if question.probability is not None:
            counts = np.ones(1)  # probability of each number of machines
            for count in carried:
                without = np.append(counts, np.zeros(count)) * (1 - question.probability)
                without[count:] += counts * question.probability
                counts = without
            waiting = float(counts[:needed].sum())
            return waiting, self.tick_seconds / (1 - waiting) if waiting > 1e-12 else 0.0
        if question.availability is None:
            return 0.0, 0.0
        given = self._given(len(carried))
        if not isinstance(given, ListedAvailability):
            return None
        machines = np.array(carried)
        sets = [given.at(tick) for tick in range(len(given))]
        has_too_few = {up: machines[np.array(up, np.intp) - 1].sum() < needed for up in {*sets}}
        waits = np.array([has_too_few[up] for up in sets])
        periods = int((waits & ~np.roll(waits, 1)).sum())
        return float(waits.mean()), self.tick_seconds * float(waits.sum()) / max(periods, 1)

    # Simulated steps.

    def simulate(self, choice: Choice) -> list[Choice]:
        """Return a choice with its simulated time, and faster variants of it with stragglers."""
        is_large = choice.machines * (choice.recovery or 1) ** 3 > _MOST_DECODING
        if is_large or (choice.copies and choice.machines > _MOST_WITH_COPIES):
            return [choice]
        variants, spare = [choice], choice.away
        if self._question.noise:
            most = min(_MOST_STRAGGLERS, spare)
            variants += [replace(choice, stragglers=count) for count in range(1, most + 1)]
        closed = self._step_seconds(choice, is_simulated=False)
        simulated = []
        for variant in variants:
            ratio = float(np.mean(self._step_seconds(variant, is_simulated=True) / closed))
            factor = ratio + (1 - ratio) * choice.waiting  # waiting times do not change
            time = Interval(*(factor * bound for bound in choice.total))
            cost = None if choice.cost is None else factor * choice.cost
            simulated.append(replace(variant, simulated=time, cost=cost))
        best = simulated[0].expected.mean
        return [
            variant
            for variant in simulated
            if not variant.stragglers or variant.expected.mean < best
        ]

    def _step_seconds(self, choice: Choice, is_simulated: bool) -> NDArray[np.float64]:
        """Return the mean seconds of a step from each start time, without waiting and reading."""
        question = self._question
        steps = max(_FEWEST_STEPS, min(_STEPS, question.steps, _MACHINE_STEPS // choice.machines))
        scenario = scenario_of(question, choice)
        costs = replace(question.costs, source=Source(math.inf))
        seconds = []
        for seed in range(min(_STARTS, question.seeds or _STARTS)):
            seed += question.first_seed
            up = self.availability(choice, len(machine_counts(choice)), seed)
            options = replace(
                scenario.options, availability=up, tick_seconds=self.tick_seconds, seed=seed
            )
            made = replace(scenario, options=options, steps=steps, costs=costs)
            model = TimeModel(made)
            outcome = simulate(made) if is_simulated else replay(model, Coded(model))
            seconds.append((outcome.seconds - outcome.waiting) / outcome.steps)
        return np.array(seconds)


def mean_interval(values: Sequence[float] | NDArray[np.float64]) -> Interval:
    """Return the mean of values, and its 95 % confidence interval by Student's distribution.

    The lower end is at least 0.
    """
    from scipy.special import stdtrit  # slow to import

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, mean, mean)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    half = float(stdtrit(count - 1, 0.975)) * error
    return Interval(mean, max(0.0, mean - half), mean + half)
