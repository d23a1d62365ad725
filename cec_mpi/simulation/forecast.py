"""Forecasts of runs, over random start times in a trace or over samples of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from cec_mpi.simulation.baselines import BASELINES
from cec_mpi.simulation.choices import (
    AdviceRequest,
    Choice,
    Interval,
    machine_counts,
    make_scenario,
)
from cec_mpi.simulation.computers import ComputerAvailability, machine_ranges
from cec_mpi.simulation.replay import (
    WAIT_EVENT,
    CodedScheme,
    ReplayOutcome,
    SchemeFactory,
    StepModels,
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
_DEFAULT_TICK_SECONDS = 300.0
_MAX_SIMULATIONS = 2  # of a choice, from different start times in the trace
_MAX_STEPS, _MIN_STEPS, _MAX_MACHINE_STEPS = 30, 2, 3000  # of a simulation
_MAX_DECODING_WORK = 2e9  # N L**3; above, the preparation of decoders would dominate
_MAX_MACHINES_WITH_COPIES = 300  # above, the simulation of a step with copies takes seconds
_MAX_STRAGGLERS = 2

UNCODED_SCHEMES = {name: BASELINES[name] for name in ("restarting", "equal shares")}
"""Schemes without a code."""


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
        self.tick_seconds = request.tick_seconds or gap or _DEFAULT_TICK_SECONDS

    def forecast(self, choice: Choice, is_candidate: bool = False) -> Choice | None:
        """Return a choice with its times and cost; None if a run never has enough machines.

        By default, 8 to 400 runs are replayed, until they have 100 changes of availability; for a
        candidate, 20 to 1000 runs, until they have 500 changes. If all machines are always
        available, one run is replayed.
        """
        outcomes = self._replay(choice, CodedScheme, is_candidate=is_candidate)
        if not outcomes:
            return None
        request, cost = self._request, None
        machines_by_computer = machine_ranges(machine_counts(choice))
        prices = [group.price for group in request.machines[: len(machines_by_computer)]]
        if prices[0] is not None:
            seconds_per_step = [np.array(run.machine_seconds) / run.steps for run in outcomes]
            machine_hours = np.mean(seconds_per_step, axis=0) * request.steps / 3600
            first_machines = [machines.start - 1 for machines in machines_by_computer]
            cost = float(machine_hours[first_machines] @ [price or 0.0 for price in prices])
        waiting_fraction, mean_wait = self._exact_waiting(choice) or _mean_waiting(outcomes)
        totals = self._totals(outcomes)
        # If only a part of each run is replayed, the means of parts vary more than those of runs.
        shrinkage = np.sqrt([run.steps / request.steps for run in outcomes])
        run_totals = totals.mean() + shrinkage * (totals - totals.mean())
        low, high = np.quantile(run_totals, (0.05, 0.95), method="weibull").tolist()
        return replace(
            choice,
            step=mean_interval(
                [(run.seconds - run.waiting_seconds) / run.steps for run in outcomes]
            ),
            waiting_fraction=waiting_fraction,
            mean_wait=mean_wait,
            total=mean_interval(totals),
            single_run_range=(low, high),
            cost=cost,
        )

    def run_seconds(self, choice: Choice, seeds: Sequence[int]) -> NDArray[np.float64]:
        """Return the seconds of all steps in a run for each seed."""
        return self._totals(self._replay(choice, CodedScheme, seeds=seeds))

    def forecast_baselines(
        self, choice: Choice, schemes: Mapping[str, SchemeFactory] = UNCODED_SCHEMES
    ) -> dict[str, Interval]:
        """Return the seconds of all steps with simpler schemes on the machines of a choice."""
        intervals = {}
        for name, make_scheme in schemes.items():
            if outcomes := self._replay(choice, make_scheme, is_candidate=True):
                intervals[name] = mean_interval(self._totals(outcomes))
        return intervals

    def _replay(
        self,
        choice: Choice,
        make_scheme: SchemeFactory,
        is_candidate: bool = False,
        seeds: Sequence[int] = (),
    ) -> list[ReplayOutcome]:
        """Replay runs of a choice; return no outcomes if a run never has enough machines.

        Without seeds, the request sets the number of runs; by default, runs are added until they
        have enough changes of availability.
        """
        request = self._request
        min_changes, min_runs, max_runs = _CANDIDATE_LIMITS if is_candidate else _CHOICE_LIMITS
        if seeds or request.runs:
            min_runs = max_runs = len(seeds) or request.runs or 0
        elif request.always_available:
            max_runs = 1
        ticks = max(_MIN_TICKS, _MAX_MACHINE_TICKS // choice.machines)
        if request.probability is not None and not seeds:  # all ticks are alike
            ticks = max(_MIN_SAMPLED_TICKS, _CANDIDATE_LIMITS.min_changes // min_runs)
        scenario = make_scenario(request, choice)
        options = replace(scenario.options, tick_seconds=self.tick_seconds)
        seconds = ticks * self.tick_seconds
        model = TimeModel(replace(scenario, options=options, seconds=seconds))
        scheme = make_scheme(model)
        step_models: StepModels = {}
        outcomes: list[ReplayOutcome] = []
        changes = 0
        while len(outcomes) < max_runs and (len(outcomes) < min_runs or changes < min_changes):
            seed = seeds[len(outcomes)] if seeds else request.first_seed + len(outcomes)
            availability = self._sample_availability(choice, seed)
            outcome = replay(model, scheme, availability, step_models)
            if not outcome.steps or outcome.end_reason:
                return []
            outcomes.append(outcome)
            changes += outcome.changes
        return outcomes

    def _totals(self, outcomes: Sequence[ReplayOutcome]) -> NDArray[np.float64]:
        """Return the seconds of all steps, extrapolated for runs that ended earlier."""
        first_read_seconds = np.array([run.first_read_seconds for run in outcomes])
        step_seconds = [(run.seconds - run.first_read_seconds) / run.steps for run in outcomes]
        totals: NDArray[np.float64] = (
            first_read_seconds + np.array(step_seconds) * self._request.steps
        )
        return totals

    def _sample_availability(self, choice: Choice, seed: int) -> Availability:
        """Return the availability of the machines of a choice in one run."""
        key = len(machine_counts(choice)), seed
        if key not in self._samples:
            self._samples[key] = self._sample_computers(*key)
        sample = self._samples[key]
        if choice.machines_per_computer:
            return ComputerAvailability(sample, machine_ranges(choice.machines_per_computer))
        return sample

    def _sample_computers(self, computers: int, seed: int) -> Availability:
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
        """Return the requested availability, restricted to the first computers.

        Some files describe all computers, and cannot be read for fewer.
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

    def _exact_waiting(self, choice: Choice) -> tuple[float, float] | None:
        """Return the exact fraction of time spent waiting for machines, and the mean wait.

        Return None if the availability is neither a trace nor random for each machine.
        """
        counts, request = machine_counts(choice), self._request
        min_machines = choice.recovery or choice.machines - (choice.copies or 1) + 1
        if request.probability is not None:
            probabilities = np.ones(1)  # that 0, 1, .. machines are available
            for count in counts:
                updated = np.append(probabilities, np.zeros(count)) * (1 - request.probability)
                updated[count:] += probabilities * request.probability
                probabilities = updated
            waiting = float(probabilities[:min_machines].sum())
            return waiting, self.tick_seconds / (1 - waiting) if waiting > 1e-12 else 0.0
        if request.availability is None:
            return 0.0, 0.0
        trace = self._requested_availability(len(counts))
        if not isinstance(trace, ListedAvailability):
            return None
        machines = np.array(counts)
        sets = [trace.at(tick) for tick in range(len(trace))]
        has_too_few = {
            available: machines[np.array(available, np.intp) - 1].sum() < min_machines
            for available in {*sets}
        }
        is_waiting = np.array([has_too_few[available] for available in sets])
        waits = int((is_waiting & ~np.roll(is_waiting, 1)).sum())
        mean_wait = self.tick_seconds * float(is_waiting.sum()) / max(waits, 1)
        return float(is_waiting.mean()), mean_wait

    # --- simulated steps --------------------------------------------------------------------------

    def simulate_variants(self, choice: Choice) -> list[Choice]:
        """Return a choice with its simulated time, and faster variants with stragglers.

        A choice that would take too long to simulate is returned unchanged.
        """
        is_large = choice.machines * (choice.recovery or 1) ** 3 > _MAX_DECODING_WORK
        if is_large or (choice.copies and choice.machines > _MAX_MACHINES_WITH_COPIES):
            return [choice]
        variants = [choice]
        if self._request.noise:
            max_stragglers = min(_MAX_STRAGGLERS, choice.tolerated_losses)
            variants += [
                replace(choice, stragglers=count) for count in range(1, max_stragglers + 1)
            ]
        replayed_seconds = self._step_seconds(choice, is_simulated=False)
        simulated = []
        for variant in variants:
            simulated_seconds = self._step_seconds(variant, is_simulated=True)
            ratio = float(np.mean(simulated_seconds / replayed_seconds))
            factor = ratio + (1 - ratio) * choice.waiting_fraction  # waiting times do not change
            total = Interval(*(factor * bound for bound in choice.total))
            cost = None if choice.cost is None else factor * choice.cost
            simulated.append(replace(variant, simulated_total=total, cost=cost))
        best = simulated[0].expected_total.mean
        return [
            variant
            for variant in simulated
            if not variant.stragglers or variant.expected_total.mean < best
        ]

    def _step_seconds(self, choice: Choice, is_simulated: bool) -> NDArray[np.float64]:
        """Return the mean seconds of a step, without waiting and reading, for each start time."""
        request = self._request
        steps = max(
            _MIN_STEPS, min(_MAX_STEPS, request.steps, _MAX_MACHINE_STEPS // choice.machines)
        )
        scenario = make_scenario(request, choice)
        costs = replace(request.costs, source=Source(math.inf))
        seconds = []
        runs = min(_MAX_SIMULATIONS, request.runs or _MAX_SIMULATIONS)
        for seed in range(request.first_seed, request.first_seed + runs):
            options = replace(
                scenario.options,
                availability=self._sample_availability(choice, seed),
                tick_seconds=self.tick_seconds,
                seed=seed,
            )
            run_scenario = replace(scenario, options=options, steps=steps, costs=costs)
            model = TimeModel(run_scenario)
            outcome = simulate(run_scenario) if is_simulated else replay(model, CodedScheme(model))
            seconds.append((outcome.seconds - outcome.waiting_seconds) / outcome.steps)
        return np.array(seconds)


def _mean_waiting(outcomes: Sequence[ReplayOutcome]) -> tuple[float, float]:
    """Return the fraction of time spent waiting for machines, and the mean wait, in seconds."""
    waiting_seconds = sum(run.waiting_seconds for run in outcomes)
    waits = sum(run.events.get(WAIT_EVENT, 0) for run in outcomes)
    fraction = waiting_seconds / sum(run.seconds for run in outcomes)
    return fraction, waiting_seconds / waits if waits else 0.0


def mean_interval(values: Sequence[float] | NDArray[np.float64]) -> Interval:
    """Return the mean of values and its 95 % confidence interval by Student's distribution.

    The lower end is at least 0. The interval of a single value has length 0.
    """
    from scipy.special import stdtrit  # imported here, because it is slow

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, mean, mean)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    half_width = float(stdtrit(count - 1, 0.975)) * error
    return Interval(mean, max(0.0, mean - half_width), mean + half_width)
