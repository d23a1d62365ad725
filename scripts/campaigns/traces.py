"""Traces of spot machines: the choice of advise, compared with other schemes and a real run.

    python scripts/campaigns/traces.py [--real 0] TRACE [TRACE ...]

TRACE is `example` or a file of `--availability`; several files joined by + are groups of
machines. For 16 machines of three speeds and an X of 160 GB, the choice of `advise` and other
schemes are replayed from random moments of the trace, with three sources of X. Prints their times
over that of the choice, the time to read X over the time between changes, and that of decoding over
products. With --real K a run of K steps on this computer follows the trace, compressed in time, on
machines with emulated speeds; its time is compared with the simulated one. Fails if they are more
than 10 % apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

import cec_mpi
from cec_mpi.availability import read_availability
from cec_mpi.errors import CecError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.simulation.advise import advise
from cec_mpi.simulation.baselines import FastestMachines
from cec_mpi.simulation.choices import AdviceRequest, Choice, MachineGroup, make_scenario
from cec_mpi.simulation.forecast import UNCODED_SCHEMES, Forecaster
from cec_mpi.simulation.replay import CodedScheme, Floats, TimeModel
from cec_mpi.simulation.scenario import Costs, Scenario, Source
from cec_mpi.text.terminal import format_table

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.commands import run_cec_mpi

GROUPS = [MachineGroup(6, 1.0), MachineGroup(5, 1.5), MachineGroup(5, 2.0)]
SPEEDS = tuple(group.speed for group in GROUPS for _ in range(group.count))
MACHINES, ROWS, COLUMNS = len(SPEEDS), 20_000_000, 1000
SOURCES = {
    "local": Source(1e9, is_shared=False),
    "each:200MB": Source(2e8, is_shared=False),
    "server:1GB": Source(1e9),
}
MAX_DIFFERENCE = 0.1  # between simulated and real time, relative to the real time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--real", type=int, default=0, metavar="K", help="steps of a real run")
    parser.add_argument("--seconds", type=float, default=500.0, help="time limit of a real run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    worst = 0.0
    for trace in options.traces:
        print(f"\n{Path(trace.partition('+')[0]).name}", flush=True)
        worst = max(worst, check_trace(trace, options))
    if worst > MAX_DIFFERENCE:
        sys.exit(f"the time of a real run differs from the simulated time by {worst:.1%}")


def check_trace(trace: str, options: argparse.Namespace) -> float:
    """Print the results of a trace; return the relative difference of a real run, or 0."""
    availability = read_availability(trace.split("+"), MACHINES)
    assert isinstance(availability, ListedAvailability)
    request = AdviceRequest(
        rows=ROWS,
        columns=COLUMNS,
        groups=GROUPS,
        availability=lambda machines: read_availability(trace.split("+"), machines),
        steps=5000,
    )
    try:
        advice = advise(request)
    except CecError as error:
        print(f"advise: {error}")
        return 0.0
    print(advice.summary)
    if advice.alternative:
        print(advice.alternative)
    choice = advice.recommended
    print(*compare_sources(request, choice, availability), sep="\n", flush=True)
    if not options.real:
        return 0.0
    scenario = make_scenario(request, choice)
    return run_real(scenario, availability, availability.gap_seconds or 300.0, options)


class CyclicScheme(CodedScheme):
    """A scheme with the store of the choice and equal loads."""

    def assign_rows(self, rates: Floats) -> Floats:
        """Return equal loads."""
        return np.full(rates.size, ROWS / rates.size)


def compare_sources(
    request: AdviceRequest, choice: Choice, availability: ListedAvailability
) -> Iterator[str]:
    """Yield the lines of a table of schemes, with a row for each source."""
    sets = [availability.at(tick) for tick in range(len(availability))]
    changes = sum(before != after for before, after in pairwise([sets[-1], *sets]))
    interval = len(sets) * (availability.gap_seconds or 300.0) / changes
    schemes = UNCODED_SCHEMES | {"fastest": FastestMachines, "cyclic": CyclicScheme}
    copies = Choice(machines=MACHINES, copies=MACHINES - (choice.recovery or 1) + 1)
    rows = []
    for name, source in SOURCES.items():
        source_request = replace(request, costs=Costs(source=source))
        forecaster = Forecaster(source_request)
        model = TimeModel(make_scenario(source_request, choice))
        forecast, copies_forecast = (forecaster.forecast(c, True) for c in (choice, copies))
        assert forecast is not None
        totals = forecaster.forecast_baselines(choice, schemes)
        if copies_forecast:
            totals |= {"copies": copies_forecast.total}
        ratios = {peer: f"{total.mean / forecast.total.mean:.2f}" for peer, total in totals.items()}
        reading = source.read_seconds([model.matrix_bytes / MACHINES] * MACHINES)
        decoding = source_request.costs.decoding_seconds(ROWS, choice.recovery or 1)
        products = ROWS / float(model.rates.sum())
        cells = [ratios.get(peer, "-") for peer in (*schemes, "copies")]
        cells += [
            f"{forecast.waiting_fraction:.1%}",
            f"{reading / interval:.4f}",
            f"{decoding / products:.4f}",
        ]
        rows.append([name, *cells])
    head = ["source", *schemes, "copies", "waiting", "reading/interval", "decoding/products"]
    yield f"one change every {interval:.0f} s"
    yield from format_table(head, rows, head[1:])


def run_real(
    scenario: Scenario,
    availability: ListedAvailability,
    seconds: float,
    options: argparse.Namespace,
) -> float:
    """Run the choice on this computer; return the relative difference of the simulated time."""
    speed_up = 60.0  # over the trace
    columns = 20
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        rng = np.random.default_rng(options.seed)
        rows = 100 * scenario.recovery
        cec_mpi.encode(
            rng.standard_normal((rows, columns)),
            directory / "store",
            scenario.machines,
            scenario.recovery,
        )
        np.save(directory / "W.npy", rng.standard_normal((options.real, columns)))
        begin = max(range(len(availability)), key=lambda tick: len(availability.at(tick)))
        order = [*range(begin, len(availability)), *range(begin)]
        ticks = [availability.at(tick) for tick in order]
        (directory / "ticks.json").write_text(json.dumps({"available": ticks}))
        speeds = ",".join(map(str, SPEEDS))
        common = ["--emulate-speeds", speeds, "--speeds", speeds, "--emulate-base", rows // 8]
        common += ["--availability", "ticks.json", "--repeat", "--wait"]
        common += ["--tick", seconds / speed_up]
        run = ["run", "store", "vectors=W.npy", "--out", "real", "--elastic", "--local", MACHINES]
        run_cec_mpi([*run, *common], directory, options.seconds)
        simulated = ["simulate", "store", "--steps", options.real, "--elastic", "--json"]
        output = json.loads(run_cec_mpi([*simulated, *common], directory, options.seconds))
        simulated_seconds = next(iter(output.values()))["seconds"]
        summary = json.loads((directory / "real" / "summary.json").read_text())
        real_seconds = summary["seconds"]
    difference = simulated_seconds / real_seconds - 1
    print(
        f"a real run of {options.real} steps: {real_seconds:.1f} s, "
        f"simulated {simulated_seconds:.1f} s ({difference:+.1%})"
    )
    return abs(difference)


if __name__ == "__main__":
    main()
