"""What learned speeds cost over an oracle, in simulated clusters that change and make noise.

    python scripts/benchmarks/learning.py [--seeds 8] [--only drift] [--steps 320]
    python scripts/benchmarks/learning.py --only noticed --seeds 240

Needs no MPI. In each scenario the same machines meet the same noise with plans made by the speeds
that a run learns; by averages of rows per second with weight 0.5 (EWMA), which is what is
published; and by an oracle, which knows the speeds and overheads of this very step, but not its
noise. Printed is the regret: measured makespan over the least possible one at the true speeds, less
1, in percent, mean of all steps of a window and all seeds (with outliers, the median); and how
often the plan of the learned speeds changed in 100 steps. ``--only noticed`` prints after how many
steps plans count with a speed that has halved, among noise of 30 %.
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
    rows: int = 600  # per shard

    def windows(self) -> dict[str, slice]:
        """Steps that are told apart."""
        at = CHANGE if self.changed else RETURN if self.absent else 0
        after = {
            f"5 from {at}": slice(at, at + 5),
            f"{at + 3} to {at + 20}": slice(at + 3, at + 20),
        }
        return {"all": slice(None)} | (after if at else {"first 20": slice(0, 20)})


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
    Scenario("overhead 0.3 R, 70% up", noise=0.03, share=0.3, up=0.7),
    Scenario("overhead 1 R, 70% up", noise=0.03, share=1.0, up=0.7),
    Scenario("overhead 0.3 R, all up", noise=0.03, share=0.3),
    Scenario("1% of times x 100", outliers=0.01),
    Scenario("1 x 100 in 60 steps", late=(2,)),
    Scenario("2 back at 0.3", absent=(4, 5), back=0.3),
    Scenario("2 back at 3", absent=(4, 5), back=3.0),
    Scenario("drift 2%", drift=0.02),
    Scenario("drift 5%", drift=0.05),
    Scenario("common factor 30%", common=0.3),
    Scenario("50% up, noise 10%", noise=0.1, up=0.5),
    Scenario("a third, calls cost", 6, 3, 0.1, changed=(3,), factor=1 / 3, seconds=2e-3, rows=4000),
]


class Learned:
    """The speeds that a run learns, asked and taught as there."""

    def __init__(self, scenario: Scenario) -> None:
        self.estimator = SpeedEstimator(
            CodedDemand(scenario.machines, scenario.copies, scenario.rows)
        )
        self.last: tuple[float, ...] = ()
        self.changes = 0

    def speeds(self, available: NDArray[np.int64], *_: Any) -> Floats:
        """Of all machines, to plan a step with."""
        published = self.estimator.plan_speeds(tuple((available + 1).tolist()))
        self.changes += published is not self.last
        self.last = published
        return np.array(published)

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """Take what machines showed."""
        self.estimator.observe("matvec", rows, seconds)


class Average:
    """Exponentially weighted averages of rows per second."""

    def __init__(self, scenario: Scenario) -> None:
        self.rates = np.full(scenario.machines, np.nan)

    def speeds(self, *_: Any) -> Floats:
        """Of all machines, to plan a step with."""
        seen = self.rates[~np.isnan(self.rates)]
        return np.where(np.isnan(self.rates), np.median(seen) if seen.size else 1.0, self.rates)

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """Take what machines showed."""
        some = rows > 0
        new, old = rows[some] / seconds[some], self.rates[some]
        self.rates[some] = np.where(np.isnan(old), new, (old + new) / 2)


class Oracle:
    """The true speeds and overheads of the step."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def speeds(self, available: NDArray[np.int64], speeds: Floats, overheads: Floats) -> Floats:
        """Of all machines, to plan a step with."""
        rows = self.scenario.rows
        time = least(speeds[available], overheads[available], self.scenario.copies, rows)
        loads = np.clip(speeds * time - overheads, 0.0, rows)
        # With these speeds the machines with a part of their shard end together, in `time`; the
        # others are fast enough for all of it.
        return np.where(loads < rows, np.maximum(loads, 1e-9), speeds * time) / time

    def observe(self, rows: Floats, seconds: Floats) -> None:
        """It knows already."""


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


def run(make: Callable[[Scenario], Any], it: Scenario, seed: int, steps: int) -> tuple[Floats, Any]:
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
        overheads = it.share * it.rows + it.seconds * speeds
        planned = estimator.speeds(available, speeds, overheads)
        machines = (available + 1).tolist()
        plan = plan_step(machines, planned.tolist(), it.copies, it.rows)
        rows = plan.assignment.counts(it.machines).astype(float)
        seconds = (overheads + rows) / speeds * disturbed * common * (rows > 0)
        best = least(speeds[available], overheads[available], it.copies, it.rows)
        regrets[step] = seconds.max() / (best * common) - 1
        estimator.observe(rows, seconds)
    return regrets, estimator


def steps_until_noticed(it: Scenario, seed: int) -> float:
    """Steps until plans count with half of a halved speed, on a scale of logs; inf if never."""
    rng, who = np.random.default_rng([seed, 999]), seed % it.machines
    speeds = rng.uniform(1, 4, it.machines) * it.rows * 20
    learned, machines = Learned(it), np.arange(it.machines)
    half_way = speeds[who] / np.median(np.delete(speeds, who)) / np.sqrt(2)
    for step in range(CHANGE + 100):
        if step == CHANGE:
            speeds[who] /= 2
        known = learned.speeds(machines)
        if step > CHANGE and known[who] / np.median(np.delete(known, who)) < half_way:
            return step - CHANGE
        plan = plan_step((machines + 1).tolist(), known.tolist(), it.copies, it.rows)
        rows = plan.assignment.counts(it.machines).astype(float)
        learned.observe(rows, rows / speeds * np.exp(rng.normal(0, it.noise, it.machines)))
    return np.inf


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--only", default="", help="scenarios with this in their names")
    parser.add_argument("--seconds", type=float, default=3600, help="after which none begins")
    chosen = parser.parse_args()
    seeds, end = range(chosen.seed, chosen.seed + chosen.seeds), time.monotonic() + chosen.seconds
    if chosen.only == "noticed":
        found = [steps_until_noticed(Scenario("", 6, 3, 0.3), seed) for seed in seeds]
        print(f"halved, noise 30%, N 6: noticed after {np.median(found):.0f} steps in the median")
        print(f"of {chosen.seeds} seeds, after {max(found):.0f} at most")
        return
    print(f"regret in percent, {chosen.seeds} seeds of {chosen.steps} steps")
    print(f"{'':26}{'steps':>12}{'learned':>9}{'EWMA':>8}{'oracle':>8}  changes")
    for it in (it for it in SCENARIOS if chosen.only in it.name):
        if time.monotonic() > end:
            break
        found, changes = [], 0
        for make in (Learned, Average, Oracle):
            runs = [run(make, it, seed, chosen.steps) for seed in seeds]
            found.append(100 * np.array([regrets for regrets, _ in runs]))
            changes += sum(getattr(each, "changes", 0) for _, each in runs)
        middle = np.median if it.outliers or it.late else np.mean
        for window, part in it.windows().items():
            learned, average, oracle = (middle(each[:, part]) for each in found)
            is_all = window == "all"
            often = f"{100 * changes / len(seeds) / chosen.steps:9.0f}" if is_all else ""
            print(
                f"{it.name if is_all else '':26}{window:>12}{learned:9.1f}{average:8.1f}"
                f"{oracle:8.1f}{often}",
                flush=True,
            )


if __name__ == "__main__":
    main()
