"""Random plans of a sparse X, compared with HiGHS.

    python scripts/campaigns/plans_of_copies.py [--seed I] [--plans 3000] [--seconds 600]

Rows have random costs, and their parts are stored on random sets of machines with random speeds,
some of which are unavailable; plans tolerate up to two stragglers. Prints the largest difference of
the least makespan from that of the linear program, and quantiles of the makespan of whole rows over
the least one. Fails if the least makespans differ, or if a row is not assigned to 1 + S machines
that store it.
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

from helpers.linear_program import min_makespan

TOLERANCE = 1e-6  # relative difference of the least makespans


def random_case(rng):
    """Return random parts, their placement, available machines and speeds."""
    machines = int(rng.integers(2, 40))
    copies = int(rng.integers(1, min(5, machines) + 1))
    rows = int(rng.integers(machines, 20_000))
    kind = rng.integers(3)
    counts = rng.zipf(2.0, rows) % 1000 if kind == 0 else rng.integers(0, 40, rows)
    if kind == 2:
        counts[rng.integers(rows, size=3)] += 10 * counts.sum() // machines // 10
    parts = cut_parts(np.append(0, np.cumsum(counts)), int(rng.integers(1, 9)) * machines, 64)
    all_machines = np.arange(1, machines + 1)
    holders = tuple(
        tuple(sorted(rng.choice(all_machines, copies, replace=False).tolist()))
        for _ in range(parts.count)
    )
    available = set(rng.choice(all_machines, int(rng.integers(1, machines + 1)), replace=False))
    missing = [group[0] for group in holders if not available.intersection(group)]
    available = tuple(sorted({int(n) for n in available.union(missing)}))
    speeds = tuple(np.exp(rng.uniform(-1, 1, machines)).tolist())
    return parts, ReplicaPlacement(holders, parts.bounds.tolist(), machines), available, speeds


def compare_plan(rng):
    """Return makespan ratios of a random plan, and whether one row alone takes longer than HiGHS.

    The ratios are the least makespan over that of HiGHS, and the makespan over the least one.
    """
    parts, placement, available, speeds = random_case(rng)
    stragglers = int(rng.integers(3))
    plan = ReplicaPlanner(parts, placement, stragglers).plan(available, speeds)
    sets, group = group_by_holders(placement.holders, available)
    copies = 1 + min(stragglers, min(map(len, sets)) - 1)
    computed = np.zeros((parts.count, placement.machines + 1), int)
    for block in plan.assignment.blocks:
        for start, stop, holders in placement.spans(((block.start, block.stop),)):
            part = np.searchsorted(parts.bounds, start, side="right") - 1
            if len(block.machines) != copies or not set(block.machines) <= set(holders):
                raise SystemExit(f"rows {start}..{stop - 1} are on machines {block.machines}")
            computed[part, list(block.machines)] += stop - start
    if (computed.sum(axis=1) != copies * np.diff(parts.bounds)).any():
        raise SystemExit("rows are missing")
    available_speeds = np.array(speeds)[np.array(available) - 1]
    least = min_makespan(np.bincount(group, parts.costs), sets, available_speeds, copies=copies)
    is_limited_by_row = plan.bound > least * (1 + TOLERANCE)  # a row alone takes longer
    return plan.bound / least, plan.makespan / plan.bound, is_limited_by_row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=600, help="start no plan after this time")
    options = parser.parse_args()
    rng, end = np.random.default_rng(options.seed), time.monotonic() + options.seconds
    results = []
    while len(results) < options.plans and time.monotonic() < end:
        results.append(compare_plan(rng))
    least_ratios, ratios, is_limited_by_row = np.array(results).T
    difference = np.abs(least_ratios[is_limited_by_row == 0] - 1).max()
    quantiles = np.quantile(ratios, (0.5, 0.9, 0.99, 1))
    print(
        f"{len(results)} plans; in {int(is_limited_by_row.sum())} of them one row alone takes "
        "longer than HiGHS"
    )
    print(f"least makespan: at most {difference:.1e} from that of HiGHS")
    print(
        "whole rows over the least:",
        *(f"{quantile:.4f}" for quantile in quantiles),
        "(50, 90, 99, 100 %)",
    )
    if difference > TOLERANCE or least_ratios.min() < 1 - TOLERANCE:
        raise SystemExit("the least makespan is not that of HiGHS")


if __name__ == "__main__":
    main()
