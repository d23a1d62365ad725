"""Plans of a step: what they take to be made, and what they gain over the cyclic scheme.

    python scripts/benchmarks/plans.py seconds [--machines 1000] [--recovery 3 10 100 300 500 900]
    python scripts/benchmarks/plans.py makespan --machines 20 --recovery 10 [--stragglers 0 2]

- seconds: whole-row loads, Algorithm 1 and its layout along the rows, over a plan of the cyclic
  scheme, for speeds that are uniform, powers of two, or equal.
- makespan: of the cyclic scheme over ours, as the method's authors had it on EC2: half of the
  machines twice as fast, L + 2 machines always there, each of the others in half of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
import measure
from measure import Figure, clocked, in_turns, ratio

MOST_PLACES = 1 << 24  # N L of a cyclic plan: with more it takes seconds, and gigabytes


def figures(options: Any, directory: Path) -> list[Figure]:
    """Of one part."""
    return list({"seconds": seconds, "makespan": makespan}[options.part](options))


def seconds(options: Any) -> Iterator[Figure]:
    rng = np.random.default_rng(options.seed)
    several = options.machines
    kinds = {
        "uniform": rng.uniform(1, 4, several),
        "powers of 2": rng.choice([1.0, 2.0, 4.0], several),
        "equal": np.ones(several),
    }
    for recovery in options.recovery:
        for kind, speeds in kinds.items():
            machines = range(1, several + 1)
            plan = partial(cec_mpi.plan_step, machines, speeds.tolist(), recovery, options.rows)
            ways = {"heterogeneous": clocked(plan)}
            if several * recovery <= MOST_PLACES:
                ways["cyclic"] = clocked(partial(plan, scheme="cyclic"))
            times = in_turns(ways, options.turns)
            name = f"L = {recovery}, {kind} speeds"
            if "cyclic" in times:
                yield ratio(times, "heterogeneous", "cyclic", name)
            yield measure.figure(name, times["heterogeneous"], "s")


def makespan(options: Any) -> Iterator[Figure]:
    rng = np.random.default_rng(options.seed)
    speeds = [1.0 + n % 2 for n in range(options.machines)]
    for recovery in options.recovery:
        for stragglers in options.stragglers:
            found = []
            for _ in range(10 * options.turns):
                is_there = rng.random(options.machines) < 0.5
                is_there[: recovery + 2] = True
                available = (1 + np.flatnonzero(is_there)).tolist()
                plan = partial(
                    cec_mpi.plan_step, available, speeds, recovery + stragglers, options.rows
                )
                found.append(plan(scheme="cyclic").makespan / plan().makespan)
            name = f"cyclic, L = {recovery}, S = {stragglers}"
            yield measure.figure(name, found, "", "heterogeneous", speed=True)


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["seconds", "makespan"])
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--recovery", type=int, nargs="+", default=[3, 10, 100, 300, 500, 900])
    parser.add_argument("--rows", type=int, default=100_000, help="per shard")
    parser.add_argument("--stragglers", type=int, nargs="+", default=[0, 2])


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options)
