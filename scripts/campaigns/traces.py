"""Traces of spot machines: what advise chooses, other schemes beside it, and a real run.

    python scripts/campaigns/traces.py [--moments 5] [--steps 400] [--real 0] TRACE [TRACE ...]

TRACE is `example` or a file of `--availability`; several files with + between them are groups of
machines. For 16 machines of three speeds and an X of 160 GB, asks `advise`, then simulates its
choice and other schemes from some random moments of the trace: time over that of the choice, with
95 % intervals of the mean, the share of it that is waiting, the rest over the optimum, and bytes
read over those of X.
With --real K a run of K steps on this computer follows the trace, compressed in time, on machines
with emulated speeds; its time is compared with the simulated one. Fails if they are more than 10 %
apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import cec_mpi
from cec_mpi.availability import read_availability
from cec_mpi.errors import CecError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.advise import AdviceRequest, MachineGroup, advise, mean_interval
from cec_mpi.simulation.compare import compare
from cec_mpi.simulation.scenario import Outcome, Scenario
from cec_mpi.text.terminal import format_table

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.commands import run_to_end

KINDS = [MachineGroup(6, 1.0), MachineGroup(5, 1.5), MachineGroup(5, 2.0)]
SPEEDS = tuple(kind.speed for kind in KINDS for _ in range(kind.count))
MACHINES, ROWS, COLUMNS = len(SPEEDS), 20_000_000, 1000
APART = 0.1  # of the real time, that the simulated one may be


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--moments", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400, help="simulated steps of each run")
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
    scenario = Scenario(
        machines=advice.recommended.machines,
        recovery=advice.recommended.recovery,
        rows=ROWS,
        columns=COLUMNS,
        options=SessionOptions(
            emulate_speeds=SPEEDS,
            speeds=SPEEDS,
            wait=True,
        ),
        steps=options.steps,
    )
    seconds = given.gap_seconds or 300.0
    rng = np.random.default_rng(options.seed)
    found: dict[str, list[Outcome]] = {}
    for moment in rng.integers(len(given), size=options.moments).tolist():
        for name, outcome in compare(at(scenario, given, moment, seconds)).items():
            if isinstance(outcome, Outcome) and not outcome.ended:
                found.setdefault(name, []).append(outcome)
    print(*table(found), sep="\n", flush=True)
    return real(scenario, given, seconds, options) if options.real else 0.0


def at(scenario: Scenario, given: ListedAvailability, moment: int, seconds: float) -> Scenario:
    """The scenario from a moment of the trace on, which is repeated."""
    ticks = [given.at((moment + tick) % len(given)) for tick in range(len(given))]
    availability = ListedAvailability(ticks, repeat=True)
    options = replace(scenario.options, availability=availability, tick_seconds=seconds)
    return replace(scenario, options=options)


def table(found: dict[str, list[Outcome]]) -> list[str]:
    """A line for each scheme."""
    size, rows = ROWS * COLUMNS * 8, []
    first = [each.seconds for each in next(iter(found.values()))]
    for name, outcomes in found.items():
        if len(outcomes) < len(first):
            rows.append([name, "cannot end", "", "", ""])
            continue
        ratio = mean_interval(np.array([each.seconds for each in outcomes]) / first)
        waiting = np.mean([each.waiting / each.seconds for each in outcomes])
        busy = np.array([each.seconds - each.waiting for each in outcomes])
        optimum = np.mean(busy / (busy - [each.above_optimum for each in outcomes]))
        read = np.mean([each.bytes_read for each in outcomes]) / size
        time = f"{ratio.mean:.2f} +- {ratio.high - ratio.mean:.2f}"
        cells = time, f"{waiting:.1%}", f"{optimum:.2f}"
        rows.append([name, *cells, f"{read:.1f}"])
    head = ["scheme", "time", "waiting", "over the optimum", "read"]
    return list(format_table(head, rows, head[1:]))


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
