"""Forecasts of runs, over random start times in a trace or over samples of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

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
    CodedScheme,
    ReplayOutcome,
    Scheme,
    StepsBySet,
    TimeModel,
    replay,
)
from cec_mpi.simulation.scenario import Source
from cec_mpi.simulation.simulate import simulate


class _ReplayLimits(NamedTuple):
    """Limits of the replayed runs of a choice."""

    min_changes: int  # of availability, in all runs
    min_runs: int
    max_runs: int


_CHOICE_LIMITS, _CANDIDATE_LIMITS = _ReplayLimits(100, 8, 400), _ReplayLimits(500, 20, 1000)
_MAX_MACHINE_TICKS, _MIN_TICKS = 40_000, 200  # of a replayed run: ticks times machines, and ticks
_MIN_SAMPLED_TICKS = 25  # of a run with a random model
_SAMPLE_BLOCK = 32  # ticks of a random model that are sampled at once
_DEFAULT_TICK = 300.0  # seconds
_MAX_STARTS = 2  # start times in the trace for each simulated choice
_MAX_STEPS, _MIN_STEPS, _MAX_MACHINE_STEPS = 30, 2, 3000  # of a simulation
_MAX_DECODING = 2e9  # N L**3, above which the preparation of decoders would dominate
_MAX_WITH_COPIES = 300  # machines, above which the simulation of a step with copies takes seconds
_MAX_STRAGGLERS = 2

SchemeFactory = Callable[[TimeModel], Scheme]

BASELINES: dict[str, tuple[SchemeFactory, float]] = {
    "restarting": (RestartOnChange, CHECKPOINT_SECONDS),
    "equal shares": (EqualShares, math.inf),
}
"""Schemes without a code, with the seconds between their checkpoints."""


class _SampledAvailability(RandomAvailability):
    """A random model whose ticks are sampled once, in blocks, for many replays."""

    def __init__(self, machines: int, probability: float, seed: int) -> None:
        super().__init__(machines, probability, seed)
        self._random, self._ticks = np.random.default_rng(seed), list[Machines]()

    def at(self, tick: int) -> Machines:
        """Return the numbers of the available machines at a tick, in ascending order."""
        while tick >= len(self._ticks):
            drawn = self._random.random((_SAMPLE_BLOCK, self._machines)) < self._probability
            self._ticks += [tuple((np.flatnonzero(row) + 1).tolist()) for row in drawn]
        return self._ticks[tick]


class Forecaster:
    """Forecasts the times of choices, all with the same samples of availability.

    Parameters
    ----------
    request : AdviceRequest

    Attributes
    ----------
    tick_seconds : float
        Length of a tick.
    """

    def __init__(self, request: AdviceRequest) -> None:
        self._request = request
        self._samples: dict[tuple[int, int], Availability] = {}
        total = len(request.machines)
        trace = None if request.availability is None else self._requested_availability(total)
        gap = trace.gap_seconds if isinstance(trace, ListedAvailability) else None
        self.tick_seconds = request.tick_seconds or gap or _DEFAULT_TICK

    def forecast(self, choice: Choice, is_candidate: bool = False) -> Choice | None:
        """Return a choice with its times and cost; None if too few machines are ever available.

        At least 8 runs with at least 100 changes of availability are replayed, or 20 runs with 500
        changes for a candidate.
        """
        outcomes = self._replay(choice, CodedScheme, is_candidate=is_candidate)
        if not outcomes:
            return None
        request, waits = self._request, sum(run.events.get(WAIT_EVENT, 0) for run in outcomes)
        cost = None
        machines_by_computer = machine_ranges(machine_counts(choice))
        prices = [group.price for group in request.machines[: len(machines_by_computer)]]
        if prices[0] is not None:
            seconds = [np.array(run.machine_seconds) / run.steps for run in outcomes]
            machine_hours = np.mean(seconds, axis=0) * request.steps / 3600
            first_machines = [machines.start - 1 for machines in machines_by_computer]
            cost = float(machine_hours[first_machines] @ [price or 0.0 for price in prices])
        waiting = sum(run.waiting for run in outcomes) / sum(run.seconds for run in outcomes)
        wait = sum(run.waiting for run in outcomes) / waits if waits else 0.0
        waiting, wait = self._enumerate_waiting(choice) or (waiting, wait)
        total = self._totals(outcomes)
        # If only a part of each run is replayed, the means of parts vary more than those of runs.
        spread = np.sqrt([run.steps / request.steps for run in outcomes])
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
        return self._totals(self._replay(choice, CodedScheme, seeds=seeds))

    def baselines(
        self, choice: Choice, schemes: Mapping[str, tuple[SchemeFactory, float]] | None = None
    ) -> dict[str, Interval]:
        """Return the seconds of all steps with simpler schemes on the machines of a choice.

        Parameters
        ----------
        choice : Choice
        schemes : mapping of str to (callable, float), optional
            Factories of schemes, and the seconds between their checkpoints; by default `BASELINES`.
        """
        intervals = {}
        for name, (make_scheme, checkpoint_seconds) in (schemes or BASELINES).items():
            if outcomes := self._replay(choice, make_scheme, checkpoint_seconds, is_candidate=True):
                intervals[name] = mean_interval(self._totals(outcomes))
        return intervals

    def _replay(
        self,
        choice: Choice,
        make_scheme: SchemeFactory,
        checkpoint_seconds: float = math.inf,
        is_candidate: bool = False,
        seeds: Sequence[int] = (),
    ) -> list[ReplayOutcome]:
        """Replay runs of a choice; return none if too few machines are available in any run.

        Without seeds, the number of runs is that of the request, or enough for the changes.
        """
        request, computers = self._request, len(machine_counts(choice))
        min_changes, min_runs, max_runs = _CANDIDATE_LIMITS if is_candidate else _CHOICE_LIMITS
        if seeds or request.seeds:
            min_runs = max_runs = len(seeds) or request.seeds or 0
        elif request.always_available:
            max_runs = 1
        ticks = max(_MIN_TICKS, _MAX_MACHINE_TICKS // choice.machines)
        if request.probability is not None and not seeds:  # all ticks are alike
            ticks = max(_MIN_SAMPLED_TICKS, _CANDIDATE_LIMITS.min_changes // min_runs)
        scenario = scenario_of(request, choice)
        options = replace(scenario.options, tick_seconds=self.tick_seconds)
        seconds = ticks * self.tick_seconds
        model = TimeModel(replace(scenario, options=options, seconds=seconds))
        scheme = make_scheme(model)
        steps_by_set: StepsBySet = {}
        outcomes: list[ReplayOutcome] = []
        changes = 0
        while len(outcomes) < max_runs and (len(outcomes) < min_runs or changes < min_changes):
            seed = seeds[len(outcomes)] if seeds else request.first_seed + len(outcomes)
            availability = self.availability(choice, computers, seed)
            outcome = replay(model, scheme, checkpoint_seconds, availability, steps_by_set)
            if not outcome.steps or outcome.ended:
                return []
            outcomes.append(outcome)
            changes += outcome.changes
        return outcomes

    def _totals(self, outcomes: Sequence[ReplayOutcome]) -> NDArray[np.float64]:
        """Return the seconds of all steps, extrapolated for runs that ended earlier."""
        first_read = np.array([run.first_read for run in outcomes])
        step_seconds = [(run.seconds - run.first_read) / run.steps for run in outcomes]
        totals: NDArray[np.float64] = first_read + np.array(step_seconds) * self._request.steps
        return totals

    def availability(self, choice: Choice, computers: int, seed: int) -> Availability:
        """Return the availability of the machines of a choice in one run."""
        key = computers, seed
        if key not in self._samples:
            self._samples[key] = self._sample(computers, seed)
        sample = self._samples[key]
        if choice.machines_per_computer:
            return ComputerAvailability(sample, machine_ranges(choice.machines_per_computer))
        return sample

    def _sample(self, computers: int, seed: int) -> Availability:
        request = self._request
        if request.probability is not None:
            return _SampledAvailability(computers, request.probability, seed)
        if request.availability is None:
            return all_available(computers)
        trace = self._requested_availability(computers)
        if not isinstance(trace, ListedAvailability):
            return trace
        ticks = [trace.at(tick) for tick in range(len(trace))]
        start = int(np.random.default_rng(seed).integers(len(ticks)))
        return ListedAvailability(ticks[start:] + ticks[:start], repeat=True)

    def _requested_availability(self, computers: int) -> Availability:
        """Return the requested availability of the first computers.

        Tables and lists describe all computers, so their availability is restricted.
        """
        assert self._request.availability is not None
        total = len(self._request.machines)
        try:
            return self._request.availability(computers)
        except InputError:
            if computers == total:
                raise
            return self._request.availability(total).restrict_to(range(1, computers + 1))

    def availability_fractions(self) -> list[float]:
        """Return the fraction of the time in which each computer is available."""
        total = len(self._request.machines)
        if self._request.probability is not None or self._request.availability is None:
            return [self._request.probability or 1.0] * total
        trace = self._requested_availability(total)
        ticks = len(trace) if isinstance(trace, ListedAvailability) else _MIN_TICKS
        counts = np.zeros(total)
        for tick in range(ticks):
            counts[np.array(trace.at(tick), np.intp) - 1] += 1
        return [float(count) for count in counts / ticks]

    def _enumerate_waiting(self, choice: Choice) -> tuple[float, float] | None:
        """Return the fraction of time and the mean seconds of waits for machines.

        They are exact for independent machines and for a trace that repeats; otherwise None.
        """
        counts, request = machine_counts(choice), self._request
        needed = choice.recovery or choice.machines - (choice.copies or 1) + 1
        if request.probability is not None:
            probabilities = np.ones(1)  # that 0, 1, .. machines are available
            for count in counts:
                updated = np.append(probabilities, np.zeros(count)) * (1 - request.probability)
                updated[count:] += probabilities * request.probability
                probabilities = updated
            waiting = float(probabilities[:needed].sum())
            return waiting, self.tick_seconds / (1 - waiting) if waiting > 1e-12 else 0.0
        if request.availability is None:
            return 0.0, 0.0
        trace = self._requested_availability(len(counts))
        if not isinstance(trace, ListedAvailability):
            return None
        machines = np.array(counts)
        sets = [trace.at(tick) for tick in range(len(trace))]
        has_too_few = {
            available: machines[np.array(available, np.intp) - 1].sum() < needed
            for available in {*sets}
        }
        waits = np.array([has_too_few[available] for available in sets])
        periods = int((waits & ~np.roll(waits, 1)).sum())
        return float(waits.mean()), self.tick_seconds * float(waits.sum()) / max(periods, 1)

    # --- simulated steps --------------------------------------------------------------------------

    def simulate(self, choice: Choice) -> list[Choice]:
        """Return a choice with its simulated time, and faster variants with stragglers."""
        is_large = choice.machines * (choice.recovery or 1) ** 3 > _MAX_DECODING
        if is_large or (choice.copies and choice.machines > _MAX_WITH_COPIES):
            return [choice]
        variants = [choice]
        if self._request.noise:
            max_stragglers = min(_MAX_STRAGGLERS, choice.away)
            variants += [
                replace(choice, stragglers=count) for count in range(1, max_stragglers + 1)
            ]
        replayed_seconds = self._step_seconds(choice, is_simulated=False)
        simulated = []
        for variant in variants:
            simulated_seconds = self._step_seconds(variant, is_simulated=True)
            ratio = float(np.mean(simulated_seconds / replayed_seconds))
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
        """Return the mean seconds of a step for each start time, without waiting and reading."""
        request = self._request
        steps = max(
            _MIN_STEPS, min(_MAX_STEPS, request.steps, _MAX_MACHINE_STEPS // choice.machines)
        )
        scenario = scenario_of(request, choice)
        costs = replace(request.costs, source=Source(math.inf))
        seconds = []
        for seed in range(min(_MAX_STARTS, request.seeds or _MAX_STARTS)):
            seed += request.first_seed
            availability = self.availability(choice, len(machine_counts(choice)), seed)
            options = replace(
                scenario.options,
                availability=availability,
                tick_seconds=self.tick_seconds,
                seed=seed,
            )
            run = replace(scenario, options=options, steps=steps, costs=costs)
            model = TimeModel(run)
            outcome = simulate(run) if is_simulated else replay(model, CodedScheme(model))
            seconds.append((outcome.seconds - outcome.waiting) / outcome.steps)
        return np.array(seconds)


def mean_interval(values: Sequence[float] | NDArray[np.float64]) -> Interval:
    """Return the mean of values and its 95 % confidence interval by Student's distribution.

    The lower end is at least 0.
    """
    from scipy.special import stdtrit  # imported here, because it is slow

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, mean, mean)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    half = float(stdtrit(count - 1, 0.975)) * error
    return Interval(mean, max(0.0, mean - half), mean + half)
