"""Plans of steps: the time to compute them, and their makespans over those of the cyclic scheme.

    python scripts/benchmarks/plans.py seconds [--machines 1000] [--recovery 3 10 100 300 500 900]
    python scripts/benchmarks/plans.py makespan --machines 20 --recovery 10 [--stragglers 0 2]

- seconds: whole-row loads, Algorithm 1 and its layout along the rows, over a plan of the cyclic
  scheme, for speeds that are uniform, powers of two, or equal.
- makespan: of the cyclic scheme over ours, in the situation of the method's authors on EC2: half of
  the machines are twice as fast, L + 2 machines are always available, and each other machine in
  half of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
import measure
from measure import Figure, make_timer, ratio, time_in_turns

MAX_CYCLIC_SIZE = 1 << 24  # N L of a cyclic plan; larger ones take seconds and gigabytes


def figures(options: Any, directory: Path) -> list[Figure]:
    """Return the figures of the selected part."""
    return list({"seconds": time_figures, "makespan": makespan_figures}[options.part](options))


def time_figures(options: Any) -> Iterator[Figure]:
    rng = np.random.default_rng(options.seed)
    machine_count = options.machines
    kinds = {
        "uniform": rng.uniform(1, 4, machine_count),
        "powers of 2": rng.choice([1.0, 2.0, 4.0], machine_count),
        "equal": np.ones(machine_count),
    }
    for recovery in options.recovery:
        for kind, speeds in kinds.items():
            machines = range(1, machine_count + 1)
            plan = partial(cec_mpi.plan_step, machines, speeds.tolist(), recovery, options.rows)
            candidates = {"heterogeneous": make_timer(plan)}
            if machine_count * recovery <= MAX_CYCLIC_SIZE:
                candidates["cyclic"] = make_timer(partial(plan, scheme="cyclic"))
            times = time_in_turns(candidates, options.turns)
            name = f"L = {recovery}, {kind} speeds"
            if "cyclic" in times:
                yield ratio(times, "heterogeneous", "cyclic", name)
            yield measure.figure(name, times["heterogeneous"], "s")


def makespan_figures(options: Any) -> Iterator[Figure]:
    rng = np.random.default_rng(options.seed)
    speeds = [1.0 + n % 2 for n in range(options.machines)]
    for recovery in options.recovery:
        for stragglers in options.stragglers:
            ratios = []
            for _ in range(10 * options.turns):
                is_available = rng.random(options.machines) < 0.5
                is_available[: recovery + 2] = True
                available = (1 + np.flatnonzero(is_available)).tolist()
                plan = partial(
                    cec_mpi.plan_step, available, speeds, recovery + stragglers, options.rows
                )
                ratios.append(plan(scheme="cyclic").makespan / plan().makespan)
            name = f"cyclic, L = {recovery}, S = {stragglers}"
            yield measure.figure(name, ratios, "", "heterogeneous", speed=True)


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["seconds", "makespan"])
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--recovery", type=int, nargs="+", default=[3, 10, 100, 300, 500, 900])
    parser.add_argument("--rows", type=int, default=100_000, help="per shard")
    parser.add_argument("--stragglers", type=int, nargs="+", default=[0, 2])


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options)
