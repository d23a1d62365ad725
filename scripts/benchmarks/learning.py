"""Regret of learned speeds over an oracle, in simulated clusters with noise and changes.

    python scripts/benchmarks/learning.py [--seeds 8] [--only drift] [--steps 320]
    python scripts/benchmarks/learning.py --only noticed --seeds 240

Needs no MPI. In each scenario the same machines and noise are used with plans for three kinds of
speeds: those that a run learns; the published averages of rows per second with weight 0.5 (EWMA);
and those of an oracle, which knows the speeds and overheads of the step, but not its noise. Prints
the regret, which is the measured makespan over the least possible one at the true speeds, minus 1,
in percent: the mean over the steps of a window and all seeds (with outliers, the median). Also
prints how often plans for learned speeds change in 100 steps. ``--only noticed`` prints the number
of steps until plans use half of a speed that was halved, with noise of 30 %.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi import plan_step
from cec_mpi.core.demand import CodedDemand
from cec_mpi.core.speeds import SpeedEstimator

Floats = NDArray[np.float64]
CHANGE, RETURN = 100, 200  # steps at which machines change or leave, and come back


@dataclass
class Scenario:
    """Machines and their changes. Initial speeds are 1 to 4 times 20 shards per second."""

    name: str
    machines: int = 20
    recovery: int = 10
    noise: float = 0.05  # standard deviation of the log of each measured time
    drift: float = 0.0  # standard deviation of the steps of a random walk of log speeds
    changed: tuple[int, ...] = ()  # machines, from 0, whose speed changes at step CHANGE
    factor: float = 0.5  # by which this speed changes
    absent: tuple[int, ...] = ()  # machines that are absent from step CHANGE to step RETURN
    return_factor: float = 1.0  # by which their speed changes at their return
    overhead: float = 0.0  # of each call, in units of the time of a whole shard
    seconds: float = 0.0  # additional seconds of each call
    availability: float = 1.0  # probability of being available
    outliers: float = 0.0  # probability of a time 100 times as long
    late: tuple[int, ...] = ()  # machines that take 100 times as long in one step of 60
    common_noise: float = 0.0  # standard deviation of the log of a factor of all times of a step
    rows: int = 600  # per shard

    def windows(self) -> dict[str, slice]:
        """Return the windows of steps for which the regret is printed."""
        start = CHANGE if self.changed else RETURN if self.absent else 0
        after = {
            f"5 from {start}": slice(start, start + 5),
            f"{start + 3} to {start + 20}": slice(start + 3, start + 20),
        }
        return {"all": slice(None)} | (after if start else {"first 20": slice(0, 20)})


SCENARIOS = [
    Scenario("noise 5%, N 6", 6, 3),
    Scenario("noise 20%, N 6", 6, 3, 0.2),
    Scenario("noise 5%, N 20"),
    Scenario("noise 10%, N 50", 50, 25, 0.1),
    Scenario("noise 20%, N 50", 50, 25, 0.2),
    Scenario("noise 40%, N 50", 50, 25, 0.4),
    Scenario("1 of 20 halved", changed=(3,)),
    Scenario("6 of 20 halved", changed=tuple(range(6))),
    Scenario("12 of 20 halved", changed=tuple(range(12))),
    Scenario("1 of 6 halved, noise 10%", 6, 3, 0.1, changed=(3,)),
    Scenario("overhead 0.3 R, 70% up", noise=0.03, overhead=0.3, availability=0.7),
    Scenario("overhead 1 R, 70% up", noise=0.03, overhead=1.0, availability=0.7),
    Scenario("overhead 0.3 R, all up", noise=0.03, overhead=0.3),
    Scenario("1% of times x 100", outliers=0.01),
    Scenario("1 x 100 in 60 steps", late=(2,)),
    Scenario("2 back at 0.3", absent=(4, 5), return_factor=0.3),
    Scenario("2 back at 3", absent=(4, 5), return_factor=3.0),
    Scenario("drift 2%", drift=0.02),
    Scenario("drift 5%", drift=0.05),
    Scenario("common factor 30%", common_noise=0.3),
    Scenario("50% up, noise 10%", noise=0.1, availability=0.5),
    Scenario("a third, calls cost", 6, 3, 0.1, changed=(3,), factor=1 / 3, seconds=2e-3, rows=4000),
]


class LearnedSpeeds:
    """The speeds that a run learns, with its estimator."""

    def __init__(self, scenario: Scenario) -> None:
        self.estimator = SpeedEstimator(
            CodedDemand(scenario.machines, scenario.recovery, scenario.rows)
        )
        self.last: tuple[float, ...] = ()
        self.changes = 0

    def plan_speeds(self, available: NDArray[np.int64], *_: Any) -> Floats:
        """Return the speeds of all machines for the plan of a step."""
        speeds = self.estimator.plan_speeds(tuple((available + 1).tolist()))
        self.changes += speeds is not self.last
        self.last = speeds
        return np.array(speeds)

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """Record the measured times of a step."""
        self.estimator.observe("matvec", rows, seconds)


class AverageSpeeds:
    """Exponentially weighted averages of rows per second."""

    def __init__(self, scenario: Scenario) -> None:
        self.rates = np.full(scenario.machines, np.nan)

    def plan_speeds(self, *_: Any) -> Floats:
        """Return the speeds of all machines for the plan of a step."""
        measured = self.rates[~np.isnan(self.rates)]
        default = np.median(measured) if measured.size else 1.0
        return np.where(np.isnan(self.rates), default, self.rates)

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """Record the measured times of a step."""
        has_rows = rows > 0
        new, old = rows[has_rows] / seconds[has_rows], self.rates[has_rows]
        self.rates[has_rows] = np.where(np.isnan(old), new, (old + new) / 2)


class OracleSpeeds:
    """The true speeds and overheads of the step."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def plan_speeds(
        self, available: NDArray[np.int64], speeds: Floats, overheads: Floats
    ) -> Floats:
        """Return the speeds of all machines for the plan of a step."""
        rows = self.scenario.rows
        time = min_makespan(speeds[available], overheads[available], self.scenario.recovery, rows)
        loads = np.clip(speeds * time - overheads, 0.0, rows)
        # With these speeds, machines with a part of their shard all finish at `time`; the others
        # are fast enough for their whole shards.
        return np.where(loads < rows, np.maximum(loads, 1e-9), speeds * time) / time

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """Do nothing, because the true speeds are known."""


def min_makespan(speeds: Floats, overheads: Floats, recovery: int, rows: int) -> float:
    """Return the least makespan if rows can be divided, by bisection."""
    low, high = 0.0, float(np.max((overheads + rows) / speeds))
    for _ in range(60):
        middle = (low + high) / 2
        if np.clip(speeds * middle - overheads, 0, rows).sum() < recovery * rows:
            low = middle
        else:
            high = middle
    return high


def simulate(
    make_estimator: Callable[[Scenario], Any], scenario: Scenario, seed: int, steps: int
) -> tuple[Floats, Any]:
    """Return the regret of each step, and the estimator at the end."""
    rng = np.random.default_rng([seed, 999])
    speeds = rng.uniform(1, 4, scenario.machines) * scenario.rows * 20
    estimator, regrets = make_estimator(scenario), np.zeros(steps)
    for step in range(steps):
        if step == CHANGE:
            speeds[list(scenario.changed)] *= scenario.factor
        if scenario.drift:
            speeds *= np.exp(rng.normal(0, scenario.drift, scenario.machines))
        available = np.arange(scenario.machines)
        if CHANGE <= step < RETURN:
            available = np.setdiff1d(available, scenario.absent)
        if step == RETURN:
            speeds[list(scenario.absent)] *= scenario.return_factor
        if scenario.availability < 1:
            is_available = rng.random(scenario.machines) < scenario.availability
            is_available[: scenario.recovery] = True
            available = np.flatnonzero(is_available)
        factors = np.exp(rng.normal(0, scenario.noise, scenario.machines))
        if scenario.outliers:
            factors[rng.random(scenario.machines) < scenario.outliers] *= 100
        if step % 60 == 50:
            factors[list(scenario.late)] *= 100
        common = np.exp(rng.normal(0, scenario.common_noise)) if scenario.common_noise else 1.0
        overheads = scenario.overhead * scenario.rows + scenario.seconds * speeds
        planned_speeds = estimator.plan_speeds(available, speeds, overheads)
        machines = (available + 1).tolist()
        plan = plan_step(machines, planned_speeds.tolist(), scenario.recovery, scenario.rows)
        rows = plan.assignment.row_counts(scenario.machines).astype(float)
        seconds = (overheads + rows) / speeds * factors * common * (rows > 0)
        best = min_makespan(
            speeds[available], overheads[available], scenario.recovery, scenario.rows
        )
        regrets[step] = seconds.max() / (best * common) - 1
        estimator.observe(rows, seconds)
    return regrets, estimator


def steps_until_noticed(scenario: Scenario, seed: int) -> float:
    """Return the steps until the logarithm of a halved speed is half-way, or inf."""
    rng, changed = np.random.default_rng([seed, 999]), seed % scenario.machines
    speeds = rng.uniform(1, 4, scenario.machines) * scenario.rows * 20
    learned, machines = LearnedSpeeds(scenario), np.arange(scenario.machines)
    half_way = speeds[changed] / np.median(np.delete(speeds, changed)) / np.sqrt(2)
    for step in range(CHANGE + 100):
        if step == CHANGE:
            speeds[changed] /= 2
        estimates = learned.plan_speeds(machines)
        if (
            step > CHANGE
            and estimates[changed] / np.median(np.delete(estimates, changed)) < half_way
        ):
            return step - CHANGE
        plan = plan_step(
            (machines + 1).tolist(), estimates.tolist(), scenario.recovery, scenario.rows
        )
        rows = plan.assignment.row_counts(scenario.machines).astype(float)
        learned.observe(
            rows, rows / speeds * np.exp(rng.normal(0, scenario.noise, scenario.machines))
        )
    return np.inf


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument(
        "--only", default="", help="run only scenarios whose names contain this text"
    )
    parser.add_argument(
        "--seconds", type=float, default=3600, help="start no scenario after this time"
    )
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.seeds)
    deadline = time.monotonic() + options.seconds
    if options.only == "noticed":
        results = [steps_until_noticed(Scenario("", 6, 3, 0.3), seed) for seed in seeds]
        print(f"halved, noise 30%, N 6: noticed after {np.median(results):.0f} steps in the median")
        print(f"of {options.seeds} seeds, after {max(results):.0f} at most")
        return
    print(f"regret in percent, {options.seeds} seeds of {options.steps} steps")
    print(f"{'':26}{'steps':>12}{'learned':>9}{'EWMA':>8}{'oracle':>8}  changes")
    for scenario in (item for item in SCENARIOS if options.only in item.name):
        if time.monotonic() > deadline:
            break
        results, changes = [], 0
        for make_estimator in (LearnedSpeeds, AverageSpeeds, OracleSpeeds):
            runs = [simulate(make_estimator, scenario, seed, options.steps) for seed in seeds]
            results.append(100 * np.array([regrets for regrets, _ in runs]))
            changes += sum(getattr(estimator, "changes", 0) for _, estimator in runs)
        average = np.median if scenario.outliers or scenario.late else np.mean
        for window, steps in scenario.windows().items():
            learned, ewma, oracle = (average(regrets[:, steps]) for regrets in results)
            is_all = window == "all"
            change_rate = f"{100 * changes / len(seeds) / options.steps:9.0f}" if is_all else ""
            print(
                f"{scenario.name if is_all else '':26}{window:>12}{learned:9.1f}{ewma:8.1f}"
                f"{oracle:8.1f}{change_rate}",
                flush=True,
            )


if __name__ == "__main__":
    main()
