"""What learned speeds cost over an oracle, in simulated clusters that change and make noise.

    python scripts/benchmarks/bench_learning.py [--seeds 8] [--only drift] [--steps 320]

Needs no MPI. In each scenario the same machines meet the same noise with plans made by

- `SpeedEstimator`, as a run does;
- EWMA: the published way, an average of rows per second with weight 0.5;
- the filter: a Kalman filter of log speeds that is told the variances of noise and drift, which
  no estimator can beat by much where that is all there is; with jumps or overheads it is not shown;
- the oracle: the loads that finish first if the speeds and overheads of this very step are known.
  It does not know the noise of the step.

Printed is the regret: measured makespan over the least possible one at the true speeds, less 1, in
percent; mean of all steps of a window and all seeds (with outliers, the median). Then how often the
plan changed in 100 steps, and how far predictions were from what was measured: the ratio's
90th percentile, and the largest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.load import whole_row_load
from cec_mpi.core.speeds.learned import SpeedEstimator

Floats = NDArray[np.float64]
ROWS = 600  # per shard
_UNKNOWN = 1e6  # variance of the log of a speed that was never seen
CHANGE, RETURN = 100, 200  # steps at which machines change or leave, and come back


@dataclass
class Scenario:
    """Machines and what happens to them. Speeds are 1 to 4 times 20 shards a second at first."""

    name: str
    machines: int = 20
    copies: int = 10
    noise: float = 0.05  # standard deviation of the log of each measured time
    drift: float = 0.0  # of the steps of a random walk of log speeds
    changed: tuple[int, ...] = ()  # from 0; at step CHANGE
    factor: float = 0.5  # of the speed of those
    absent: tuple[int, ...] = ()  # from step CHANGE to step RETURN
    back: float = 1.0  # factor of the speed of those when they are back
    share: float = 0.0  # of a shard, whose time each call costs besides
    seconds: float = 0.0  # that each call costs besides
    up: float = 1.0  # probability of being available
    outliers: float = 0.0  # probability of a time 100 times as long
    late: tuple[int, ...] = ()  # 100 times as long in one step of 60
    common: float = 0.0  # standard deviation of the log of a factor of all times of a step
    rows: int = ROWS
    windows: dict[str, slice] = field(default_factory=lambda: {"all": slice(None)})


_HALVED = {
    "before": slice(20, CHANGE),
    "5 after": slice(CHANGE, CHANGE + 5),
    "4th-20th": slice(CHANGE + 3, CHANGE + 20),
}
_BACK = {
    "before": slice(20, RETURN),
    "5 back": slice(RETURN, RETURN + 5),
    "4th-20th": slice(RETURN + 3, RETURN + 20),
}
_BEGUN = {"first 20": slice(0, 20), "later": slice(20, None)}

SCENARIOS = [
    Scenario("noise 5%, N 6", 6, 3, windows=_BEGUN),
    Scenario("noise 20%, N 6", 6, 3, 0.2, windows=_BEGUN),
    Scenario("noise 5%, N 20", windows=_BEGUN),
    Scenario("noise 10%, N 50", 50, 25, 0.1, windows=_BEGUN),
    Scenario("noise 20%, N 50", 50, 25, 0.2, windows=_BEGUN),
    Scenario("noise 40%, N 50", 50, 25, 0.4, windows=_BEGUN),
    Scenario("1 of 20 halved", changed=(3,), windows=_HALVED),
    Scenario("6 of 20 halved", changed=tuple(range(6)), windows=_HALVED),
    Scenario("12 of 20 halved", changed=tuple(range(12)), windows=_HALVED),
    Scenario("1 of 6 halved, noise 10%", 6, 3, 0.1, changed=(3,), windows=_HALVED),
    Scenario("overhead 0.3 R, 70% up", noise=0.03, share=0.3, up=0.7, windows=_BEGUN),
    Scenario("overhead 1 R, 70% up", noise=0.03, share=1.0, up=0.7, windows=_BEGUN),
    Scenario("overhead 0.3 R, all up", noise=0.03, share=0.3, windows=_BEGUN),
    Scenario("1% of times x 100", outliers=0.01, windows=_BEGUN),
    Scenario("1 x 100 in 60 steps", late=(2,), windows=_BEGUN),
    Scenario("2 back at 0.3", absent=(4, 5), back=0.3, windows=_BACK),
    Scenario("2 back at 3", absent=(4, 5), back=3.0, windows=_BACK),
    Scenario("drift 2%", drift=0.02, windows=_BEGUN),
    Scenario("drift 5%", drift=0.05, windows=_BEGUN),
    Scenario("common factor 30%", common=0.3, windows=_BEGUN),
    Scenario("50% up, noise 10%", noise=0.1, up=0.5, windows=_BEGUN),
    Scenario("a third, calls cost", 6, 3, 0.1, changed=(3,), factor=1 / 3, seconds=2e-3,
             rows=4000, windows=_HALVED),
]  # fmt: skip


class Learned:
    """Plans with a `SpeedEstimator`, asked and taught as a run does."""

    def __init__(self, scenario: Scenario) -> None:
        self.estimator = SpeedEstimator(scenario.machines, scenario.copies, scenario.rows)
        self.last: tuple[float, ...] = ()
        self.changes = 0
        self.ratios: list[float] = []

    def speeds(self, available: NDArray[np.int64], truth: Truth) -> Floats:
        """Speeds of the available machines to plan a step with."""
        published = self.estimator.plan_speeds(tuple((available + 1).tolist()))
        self.changes += published is not self.last
        self.last = published
        return np.array(published)[available]

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """Take what machines showed."""
        expected = self.estimator.predict("matvec", rows)
        if expected is not None:
            self.ratios.append(expected / float(seconds.max()))
        self.estimator.observe("matvec", rows, seconds)


class Average:
    """Plans with exponentially weighted averages of rows per second."""

    def __init__(self, scenario: Scenario) -> None:
        self.rates = np.full(scenario.machines, np.nan)

    def speeds(self, available: NDArray[np.int64], truth: Truth) -> Floats:
        """Speeds of the available machines to plan a step with."""
        rates = self.rates[available]
        seen = self.rates[~np.isnan(self.rates)]
        return np.where(np.isnan(rates), np.median(seen) if seen.size else 1.0, rates)

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """Take what machines showed."""
        some = rows > 0
        new, old = rows[some] / seconds[some], self.rates[some]
        self.rates[some] = np.where(np.isnan(old), new, (old + new) / 2)


class Filter:
    """Plans with Kalman filters that know the variances of noise and drift."""

    def __init__(self, scenario: Scenario) -> None:
        self.noise, self.drift = scenario.noise**2, scenario.drift**2
        self.logs = np.zeros(scenario.machines)
        self.variances = np.full(scenario.machines, _UNKNOWN)

    def speeds(self, available: NDArray[np.int64], truth: Truth) -> Floats:
        """Speeds of the available machines to plan a step with."""
        logs = self.logs[available]
        seen = self.logs[self.variances < _UNKNOWN]
        unseen = self.variances[available] >= _UNKNOWN
        return np.asarray(np.exp(np.where(unseen, np.median(seen) if seen.size else 0.0, logs)))

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """Take what machines showed."""
        some = rows > 0
        logs = np.log(rows[some] / seconds[some])
        gain = self.variances[some] / (self.variances[some] + self.noise)
        self.logs[some] += gain * (logs - self.logs[some])
        self.variances[some] *= 1 - gain
        self.variances += self.drift


class Oracle:
    """Plans with the true speeds and overheads of the step."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def speeds(self, available: NDArray[np.int64], truth: Truth) -> Floats:
        """Speeds of the available machines to plan a step with."""
        rows = self.scenario.rows
        speeds, overheads = truth.speeds[available], truth.overheads[available]
        time = least(speeds, overheads, self.scenario.copies, rows)
        loads = np.clip(speeds * time - overheads, 0.0, rows)
        # With these speeds the machines with a part of their shard end together, in `time`; the
        # others are fast enough for all of it.
        return np.where(loads < rows, np.maximum(loads, 1e-9), speeds * time) / time

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """It knows already."""


@dataclass
class Truth:
    """What machines are like in a step."""

    speeds: Floats  # rows per second
    overheads: Floats  # rows


def least(speeds: Floats, overheads: Floats, copies: int, rows: int) -> float:
    """The least makespan, in fractions of rows: by bisection of what all can do in a time."""
    low, high = 0.0, float(np.max((overheads + rows) / speeds))
    for _ in range(60):
        middle = (low + high) / 2
        if np.clip(speeds * middle - overheads, 0, rows).sum() < copies * rows:
            low = middle
        else:
            high = middle
    return high


Estimator = Learned | Average | Filter | Oracle


def run(make: Callable[[Scenario], Estimator], it: Scenario, seed: int, steps: int):
    """Regret of each step, and the estimator at the end."""
    rng = np.random.default_rng([seed, 999])
    speeds = rng.uniform(1, 4, it.machines) * it.rows * 20
    estimator, regrets = make(it), np.zeros(steps)
    for step in range(steps):
        if step == CHANGE:
            speeds[list(it.changed)] *= it.factor
        if it.drift:
            speeds *= np.exp(rng.normal(0, it.drift, it.machines))
        available = np.arange(it.machines)
        if CHANGE <= step < RETURN:
            available = np.setdiff1d(available, it.absent)
        if step == RETURN:
            speeds[list(it.absent)] *= it.back
        if it.up < 1:
            here = rng.random(it.machines) < it.up
            here[: it.copies] = True
            available = np.flatnonzero(here)
        disturbed = np.exp(rng.normal(0, it.noise, it.machines))
        if it.outliers:
            disturbed[rng.random(it.machines) < it.outliers] *= 100
        if step % 60 == 50:
            disturbed[list(it.late)] *= 100
        common = np.exp(rng.normal(0, it.common)) if it.common else 1.0
        truth = Truth(speeds, it.share * it.rows + it.seconds * speeds)
        rows = np.zeros(it.machines)
        planned = estimator.speeds(available, truth)
        rows[available] = whole_row_load(planned, it.copies, it.rows)
        seconds = (truth.overheads + rows) / speeds * disturbed * common * (rows > 0)
        best = least(speeds[available], truth.overheads[available], it.copies, it.rows)
        regrets[step] = seconds.max() / (best * common) - 1
        estimator.observe(rows, seconds)
    return regrets, estimator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--only", default="", help="scenarios with this in their names")
    chosen = parser.parse_args()
    print(f"regret in percent, {chosen.seeds} seeds of {chosen.steps} steps")
    print(
        f"{'':26}{'steps':>9}{'learned':>9}{'EWMA':>8}{'filter':>8}{'oracle':>8}"
        "  changes  predicted"
    )
    for it in SCENARIOS:
        if chosen.only not in it.name:
            continue
        found, changes, ratios = {}, 0, []
        for make in (Learned, Average, Filter, Oracle):
            runs = [run(make, it, seed, chosen.steps) for seed in range(chosen.seeds)]
            found[make] = np.array([regrets for regrets, _ in runs])
            if make is Learned:
                changes = sum(each.changes for _, each in runs)
                ratios = [ratio for _, each in runs for ratio in each.ratios]
        often = 100 * changes / chosen.seeds / chosen.steps
        off = np.exp(np.abs(np.log(ratios)))
        end = f"{often:9.0f}{np.quantile(off, 0.9):7.2f}{max(ratios):6.1f}"
        middle = np.median if it.outliers or it.late else np.mean
        plain = not (it.changed or it.absent or it.share or it.seconds)
        for window, part in {"all": slice(None), **it.windows}.items():
            told = [100 * middle(found[make][:, part]) for make in found]
            shown = f"{told[2]:8.1f}" if plain else f"{'':8}"
            print(
                f"{it.name if window == 'all' else '':26}{window:>9}{told[0]:9.1f}{told[1]:8.1f}"
                f"{shown}{told[3]:8.1f}{end}",
                flush=True,
            )
            end = ""


if __name__ == "__main__":
    main()
