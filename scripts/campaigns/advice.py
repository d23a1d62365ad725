"""Confidence intervals of advise: how often they cover the mean of many runs.

    python scripts/campaigns/advice.py [--questions 1000] [--runs 20000] [--real 0] [--seed 0]

Forecasts choices for requests like those of `docs/howto/advise.md`, with other seeds: six
workstations with several probabilities and lengths of outages, and 16 nodes with the
included trace. Prints for each kind the share of intervals that cover the mean of `--runs` runs
(of a trace: of all start times), and the share of single runs between the quantiles. Fails if the
intervals of all kinds together cover less than 0.93 or more than 0.97.
With --real K it makes four runs of K steps on this computer instead, with emulated speeds, and
compares their times with the forecasts; 1,000 steps take about ten minutes.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np

import cec_mpi
from cec_mpi.availability import read_availability
from cec_mpi.runtime.records.reading import read_records
from cec_mpi.simulation.choices import AdviceRequest, Choice, MachineGroup
from cec_mpi.simulation.forecast import Forecaster
from cec_mpi.text.terminal import format_table

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.commands import run_cec_mpi

MIN_COVERED, MAX_COVERED = 0.93, 0.97


def make_requests() -> Iterator[tuple[str, AdviceRequest, Choice]]:
    """Yield the name of a request, the request, and a choice for it."""
    groups = [MachineGroup(2, 1), MachineGroup(3, 2), MachineGroup(1, 4)]
    request = AdviceRequest(rows=4_000_000, columns=1000, groups=groups, steps=10_000)
    uneven = Choice(
        machines=12, recovery=8, machines_per_computer=(1, 1, 2, 2, 2, 4), tolerated_losses=1
    )
    for probability in (0.85, 0.9, 0.95):
        for minutes in (5, 30, 120):
            outages = replace(request, probability=probability, tick_seconds=60.0 * minutes)
            name = f"workstations, {probability}, {minutes} min"
            yield f"{name}, L = 8 of 12", outages, uneven
            yield f"{name}, L = 4 of 6", outages, Choice(machines=6, recovery=4, tolerated_losses=2)
    trace = AdviceRequest(
        rows=20_000_000,
        columns=1000,
        groups=[MachineGroup(16)],
        availability=lambda machines: read_availability(["example"], machines),
        steps=20_000,
    )
    for recovery in (8, 10):
        yield f"example, L = {recovery} of 16", trace, Choice(machines=16, recovery=recovery)


def simulate_runs(request: AdviceRequest, choice: Choice, runs: int) -> np.ndarray:
    """Return the seconds of simulated runs, for a trace from all of its start times."""
    forecaster = Forecaster(request)
    return forecaster.run_seconds(choice, range(10**6, 10**6 + runs))


def make_real_runs(steps: int, first_seed: int, deadline: float) -> None:
    """Make real runs; print their times and forecasts."""
    speeds, base, rows, columns, tick = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0), 120.0, 1200, 50, 5.0
    rng, rows_of_table = np.random.default_rng(first_seed), []
    for probability, recovery, seed in ((0.9, 3, 1), (0.9, 4, 2), (0.8, 3, 3), (0.95, 5, 4)):
        if time.monotonic() > deadline:
            break
        request = AdviceRequest(
            rows=rows,
            columns=columns,
            groups=[MachineGroup(1, speed) for speed in speeds],
            probability=probability,
            tick_seconds=tick,
            steps=steps,
            rate=base * columns * 8,
        )
        forecast = Forecaster(request).forecast(Choice(machines=6, recovery=recovery), True)
        assert forecast is not None
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            cec_mpi.encode(rng.standard_normal((rows, columns)), directory / "store", 6, recovery)
            np.save(directory / "W.npy", rng.standard_normal((steps, columns)))
            speed_list = ",".join(map(str, speeds))
            run = ["run", "store", "vectors=W.npy", "--out", "real", "--elastic", "--local", "6"]
            run += ["--emulate-speeds", speed_list, "--speeds", speed_list]
            run += ["--emulate-base", str(base)]
            run += ["--available-probability", str(probability), "--tick", str(tick), "--wait"]
            run += ["--seed", str(first_seed + seed), "-q"]
            run_cec_mpi(run, directory, 10 * steps)
            records = read_records(directory / "real" / "steps.jsonl")
            begin, end = map(
                datetime.fromisoformat, (records.header["started"], records.steps[-1].time)
            )
            seconds = (end - begin).total_seconds()
        low, high = forecast.single_run_range
        cells = f"{seconds:.1f}", f"{forecast.total.mean:.1f}", f"{low:.1f} to {high:.1f}"
        ratio = f"{forecast.total.mean / seconds:.3f}"
        rows_of_table.append([f"p = {probability}, L = {recovery}", *cells, ratio])
        print(rows_of_table[-1], flush=True)
    head = ["run", "measured (s)", "forecast (s)", "9 of 10 runs", "forecast over measured"]
    print("\n".join(format_table(head, rows_of_table, head[1:])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--real", type=int, default=0, metavar="K", help="steps of real runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=7200.0, help="start no measurement after this time"
    )
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    if options.real:
        make_real_runs(options.real, options.seed, deadline)
        return
    all_requests = list(make_requests())
    seeds_per_request = math.ceil(options.questions / len(all_requests))
    rows, covered, tried = [], 0, 0
    for name, request, choice in all_requests:
        if time.monotonic() > deadline:
            break
        runs = simulate_runs(request, choice, options.runs if request.probability else 3000)
        mean, hits, shares_inside, widths = runs.mean(), 0, [], []
        for seed in range(seeds_per_request):
            seeded = replace(request, first_seed=10_000 * (options.seed + seed))
            forecast = Forecaster(seeded).forecast(choice, True)
            assert forecast is not None
            hits += forecast.total.low <= mean <= forecast.total.high
            widths.append((forecast.total.high - forecast.total.low) / mean)
            low, high = forecast.single_run_range
            shares_inside.append(((low <= runs) & (runs <= high)).mean())
        covered, tried = covered + hits, tried + seeds_per_request
        cells = f"{hits / seeds_per_request:.3f}", f"{np.median(widths):.1%}"
        rows.append([name, *cells, f"{np.mean(shares_inside):.3f}"])
        print(rows[-1], flush=True)
    share = covered / max(1, tried)
    rows.append(["all", f"{share:.3f}", "", ""])
    head = ["request", "covered", "width", "runs between quantiles"]
    print("\n".join(format_table(head, rows, head[1:])))
    if not MIN_COVERED <= share <= MAX_COVERED:
        sys.exit(
            f"intervals cover {share:.3f} of the means, expected {MIN_COVERED} to {MAX_COVERED}"
        )


if __name__ == "__main__":
    main()
