"""Traces of spot machines: what advise chooses, other schemes beside it, and a real run.

    python scripts/campaigns/traces.py [--real 0] TRACE [TRACE ...]

TRACE is `example` or a file of `--availability`; several files with + between them are groups of
machines. For 16 machines of three speeds and an X of 160 GB, asks `advise`, and replays its choice
and other schemes from random moments of the trace, with three sources of X: times over that of the
choice, the time to read X over the time between changes, and decoding over products.
With --real K a run of K steps on this computer follows the trace, compressed in time, on machines
with emulated speeds; its time is compared with the simulated one. Fails if they are more than 10 %
apart.
"""

from __future__ import annotations

import argparse
import json
import math
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
from cec_mpi.simulation.choices import AdviceRequest, Choice, MachineGroup, scenario_of
from cec_mpi.simulation.forecast import BASELINES, Forecaster
from cec_mpi.simulation.replay import CodedScheme, Floats, TimeModel
from cec_mpi.simulation.scenario import Costs, Scenario, Source
from cec_mpi.text.terminal import format_table

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.commands import run_to_end

KINDS = [MachineGroup(6, 1.0), MachineGroup(5, 1.5), MachineGroup(5, 2.0)]
SPEEDS = tuple(kind.speed for kind in KINDS for _ in range(kind.count))
MACHINES, ROWS, COLUMNS = len(SPEEDS), 20_000_000, 1000
SOURCES = {
    "local": Source(1e9, is_shared=False),
    "each:200MB": Source(2e8, is_shared=False),
    "server:1GB": Source(1e9),
}
APART = 0.1  # of the real time, that the simulated one may be


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--real", type=int, default=0, metavar="K", help="steps of a real run")
    parser.add_argument("--seconds", type=float, default=500.0, help="limit of a real run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    worst = 0.0
    for trace in options.traces:
        print(f"\n{Path(trace.partition('+')[0]).name}", flush=True)
        worst = max(worst, tried(trace, options))
    if worst > APART:
        sys.exit(f"a real run took {worst:.1%} more or less than simulated")


def tried(trace: str, options: argparse.Namespace) -> float:
    """Print what comes of a trace; returns how far a real run is from the simulated one."""
    given = read_availability(trace.split("+"), MACHINES)
    assert isinstance(given, ListedAvailability)
    question = AdviceRequest(
        rows=ROWS,
        columns=COLUMNS,
        groups=KINDS,
        availability=lambda machines: read_availability(trace.split("+"), machines),
        steps=5000,
    )
    try:
        advice = advise(question)
    except CecError as error:
        print(f"advise: {error}")
        return 0.0
    print(advice.sentence)
    if advice.instead:
        print(advice.instead)
    choice = advice.recommended
    print(*compare_sources(question, choice, given), sep="\n", flush=True)
    if not options.real:
        return 0.0
    scenario = scenario_of(question, choice)
    return real(scenario, given, given.gap_seconds or 300.0, options)


class Cyclic(CodedScheme):
    """The store of the choice, with equal loads."""

    def rows(self, rates: Floats) -> Floats:
        """Return equal loads."""
        return np.full(rates.size, ROWS / rates.size)


def compare_sources(
    question: AdviceRequest, choice: Choice, given: ListedAvailability
) -> Iterator[str]:
    """Yield lines of a table with the schemes, for each source."""
    sets = [given.at(tick) for tick in range(len(given))]
    changes = sum(before != after for before, after in pairwise([sets[-1], *sets]))
    between = len(sets) * (given.gap_seconds or 300.0) / changes
    schemes = BASELINES | {"fastest": (FastestMachines, math.inf), "cyclic": (Cyclic, math.inf)}
    copies = Choice(machines=MACHINES, copies=MACHINES - (choice.recovery or 1) + 1)
    rows = []
    for name, source in SOURCES.items():
        asked = replace(question, costs=Costs(source=source))
        forecaster, model = Forecaster(asked), TimeModel(scenario_of(asked, choice))
        ours, its = forecaster.forecast(choice, True), forecaster.forecast(copies, True)
        assert ours is not None
        found = forecaster.baselines(choice, schemes) | ({"copies": its.total} if its else {})
        ratios = {peer: f"{total.mean / ours.total.mean:.2f}" for peer, total in found.items()}
        bringing = source.seconds([model.size / MACHINES] * MACHINES)
        decoding = asked.costs.decoding(ROWS, choice.recovery or 1)
        products = ROWS / float(model.rates.sum())
        rows.append(
            [
                name,
                *(ratios.get(peer, "-") for peer in (*schemes, "copies")),
                f"{ours.waiting:.1%}",
                f"{bringing / between:.4f}",
                f"{decoding / products:.4f}",
            ]
        )
    head = ["source", *schemes, "copies", "waiting", "reading/between", "decoding/products"]
    yield f"a change each {between:.0f} s"
    yield from format_table(head, rows, head[1:])


def real(
    scenario: Scenario, given: ListedAvailability, seconds: float, options: argparse.Namespace
) -> float:
    """Run the choice on this computer; returns how far the time is from the simulated one."""
    faster = 60.0  # than the trace
    columns = 20
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        rng = np.random.default_rng(options.seed)
        height = 100 * scenario.recovery
        cec_mpi.encode(
            rng.standard_normal((height, columns)),
            directory / "store",
            scenario.machines,
            scenario.recovery,
        )
        np.save(directory / "W.npy", rng.standard_normal((options.real, columns)))
        begin = max(range(len(given)), key=lambda tick: len(given.at(tick)))
        ticks = [given.at((begin + tick) % len(given)) for tick in range(len(given))]
        (directory / "ticks.json").write_text(json.dumps({"available": ticks}))
        speeds = ",".join(map(str, SPEEDS))
        same = ["--emulate-speeds", speeds, "--speeds", speeds, "--emulate-base", height // 8]
        same += ["--availability", "ticks.json", "--repeat", "--tick", seconds / faster, "--wait"]
        run = ["run", "store", "vectors=W.npy", "--out", "real", "--elastic", "--local", MACHINES]
        command([*run, *same], directory, options.seconds)
        simulated = ["simulate", "store", "--steps", options.real, "--elastic", "--json"]
        told = json.loads(command([*simulated, *same], directory, options.seconds))
        promised = next(iter(told.values()))["seconds"]
        summary = json.loads((directory / "real" / "summary.json").read_text())
        took = summary["seconds"]
    off = promised / took - 1
    print(
        f"a real run of {options.real} steps: {took:.1f} s, simulated {promised:.1f} s ({off:+.1%})"
    )
    return abs(off)


def command(words: list[object], directory: Path, seconds: float) -> str:
    program = [sys.executable, "-m", "cec_mpi", *map(str, words)]
    done = run_to_end(program, cwd=directory, limit=seconds)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.errors}")
    return done.stdout


if __name__ == "__main__":
    main()
