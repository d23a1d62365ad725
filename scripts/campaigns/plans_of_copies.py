"""Random plans of a sparse X, compared with HiGHS.

    python scripts/campaigns/plans_of_copies.py [--seed I] [--plans 3000] [--seconds 600]

Each plan is one of rows with random costs, in parts that random sets of machines hold, some of
which are away, with random speeds, and up to two stragglers. Prints how far the least makespan is
from that of the linear program, and quantiles of the makespan of whole rows over it. Fails if the
least makespan is another one, or if a row is not computed by 1 + S machines that hold it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from cec_mpi.core.replicas.holders import group_by_holders
from cec_mpi.core.replicas.parts import cut_parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.replicas.planner import ReplicaPlanner

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.linear_program import least_time

APART = 1e-6  # that HiGHS and the plan may be


def situation(rng):
    """Parts, who holds them, who is there, speeds and S; each part has an available machine."""
    machines = int(rng.integers(2, 40))
    copies = int(rng.integers(1, min(5, machines) + 1))
    rows = int(rng.integers(machines, 20_000))
    kind = rng.integers(3)
    counts = rng.zipf(2.0, rows) % 1000 if kind == 0 else rng.integers(0, 40, rows)
    if kind == 2:
        counts[rng.integers(rows, size=3)] += 10 * counts.sum() // machines // 10
    parts = cut_parts(np.append(0, np.cumsum(counts)), int(rng.integers(1, 9)) * machines, 64)
    everyone = np.arange(1, machines + 1)
    holders = tuple(
        tuple(sorted(rng.choice(everyone, copies, replace=False).tolist()))
        for _ in range(parts.count)
    )
    available = set(rng.choice(everyone, int(rng.integers(1, machines + 1)), replace=False))
    missing = [each[0] for each in holders if not available.intersection(each)]
    available = tuple(sorted({int(n) for n in available.union(missing)}))
    speeds = tuple(np.exp(rng.uniform(-1, 1, machines)).tolist())
    return parts, ReplicaPlacement(holders, parts.bounds.tolist(), machines), available, speeds


def compared(rng):
    """The least makespan over that of HiGHS, and the makespan over the bound of whole rows."""
    parts, placement, available, speeds = situation(rng)
    stragglers = int(rng.integers(3))
    plan = ReplicaPlanner(parts, placement, stragglers).plan(available, speeds)
    sets, which = group_by_holders(placement.holders, available)
    copies = 1 + min(stragglers, min(map(len, sets)) - 1)
    times = np.zeros((parts.count, placement.machines + 1), int)
    for block in plan.assignment.blocks:
        for start, stop, able in placement.spans(((block.start, block.stop),)):
            part = np.searchsorted(parts.bounds, start, side="right") - 1
            if len(block.machines) != copies or not set(block.machines) <= set(able):
                raise SystemExit(f"rows {start}..{stop - 1} are of machines {block.machines}")
            times[part, list(block.machines)] += stop - start
    if (times.sum(axis=1) != copies * np.diff(parts.bounds)).any():
        raise SystemExit("rows are missing")
    present = np.array(speeds)[np.array(available) - 1]
    least = least_time(np.bincount(which, parts.costs), sets, present, copies=copies)
    heaviest = plan.bound > least * (1 + APART)  # a row alone takes longer
    return plan.bound / least, plan.makespan / plan.bound, heaviest


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    rng, end = np.random.default_rng(options.seed), time.monotonic() + options.seconds
    found = []
    while len(found) < options.plans and time.monotonic() < end:
        found.append(compared(rng))
    least, whole, heaviest = np.array(found).T
    apart = np.abs(least[heaviest == 0] - 1).max()
    quantiles = np.quantile(whole, (0.5, 0.9, 0.99, 1))
    print(f"{len(found)} plans; in {int(heaviest.sum())} of them one row takes longer than HiGHS")
    print(f"least makespan: at most {apart:.1e} from that of HiGHS")
    print("whole rows over it:", *(f"{each:.4f}" for each in quantiles), "(50, 90, 99, 100 %)")
    if apart > APART or least.min() < 1 - APART:
        raise SystemExit("the least makespan is not that of HiGHS")


if __name__ == "__main__":
    main()
