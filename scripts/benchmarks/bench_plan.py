"""Time to plan a step: whole-row loads, Algorithm 1, its check and its layout along the rows.

python scripts/benchmarks/bench_plan.py [--machines 1000 10000] [--seed I]

Three kinds of speeds: uniform in (1, 4), powers of two (many ties), all equal. Beside each median
stands its share of the time that a plan is to take: 10 ms for 1,000 machines, 0.3 s for 10,000.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from cec_mpi.core.plan.planner import plan_step

ROWS = 100_000
LIMITS = {1_000: 10.0, 10_000: 300.0}  # ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    print("machines  copies  speeds   blocks  first ms  median ms  worst ms  of limit")
    for machines in arguments.machines:
        kinds = {
            "uniform": rng.uniform(1, 4, machines),
            "powers": rng.choice([1.0, 2.0, 4.0], machines),
            "equal": np.ones(machines),
        }
        for copies in (
            3,
            10,
            machines // 10,
            3 * machines // 10,
            machines // 2,
            9 * machines // 10,
        ):
            for name, speeds in kinds.items():
                times = []
                for _ in range(arguments.repeats):
                    begin = time.perf_counter()
                    plan = plan_step(range(1, machines + 1), speeds, copies, ROWS)
                    times.append(1e3 * (time.perf_counter() - begin))
                median = float(np.median(times))
                share = f"{median / LIMITS[machines]:8.2f}" if machines in LIMITS else ""
                print(
                    f"{machines:8}  {copies:6}  {name:7}  {len(plan.assignment.starts):6}  "
                    f"{times[0]:8.1f}  {median:9.1f}  {max(times):8.1f}  {share}"
                )


if __name__ == "__main__":
    main()
