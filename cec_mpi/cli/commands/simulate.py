"""``cec-mpi simulate``: simulate a run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.parser import Parser
from cec_mpi.cli.commands.shared import add_json
from cec_mpi.errors import InfeasibleError
from cec_mpi.runtime.options.availability import AvailabilityFlags, AvailabilityOptions
from cec_mpi.runtime.options.elastic import ElasticOptions
from cec_mpi.runtime.options.emulation import EmulationOptions
from cec_mpi.runtime.options.option import SIMULATION_TITLE, add_option, add_options, from_flags
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.options.shards import AssignmentOptions
from cec_mpi.simulation.options import SimulateOptions
from cec_mpi.text import format_bytes, format_count, format_duration, printable
from cec_mpi.text.terminal import format_table, print_note, print_result, warn

if TYPE_CHECKING:
    from cec_mpi.simulation.compare import Outcomes
    from cec_mpi.simulation.scenario import Outcome, Scenario

_ELASTIC_OPTIONS = ("elastic", "stragglers", "deadline", "wait")


def add_simulate(parser: Parser) -> None:
    """``cec-mpi simulate``."""
    parser.usage = "%(prog)s [STORE] [OPTIONS]"
    parser.description = (
        "Simulate the durations and waiting times of the steps of a run, without computing X w. "
        "Needs a store, or --shape, --machines and either --recovery or --copies. --emulate-speeds "
        "sets the true speeds of machines (default: --speeds, or 1); --speeds sets the speeds that "
        "the run assumes at first."
    )
    parser.add_argument("store", metavar="STORE", nargs="?", help="directory made by encode")
    add_options(parser, SimulateOptions)
    elastic = parser.add_argument_group(ElasticOptions.title)
    for name in _ELASTIC_OPTIONS:
        add_option(elastic, ElasticOptions, name)
    add_option(parser, AssignmentOptions, "speeds")
    simulation = parser.add_argument_group(SIMULATION_TITLE)
    add_option(simulation, AssignmentOptions, "scheme")
    add_options(parser, AvailabilityOptions, exclude=("machines",))
    add_options(parser, EmulationOptions)
    add_options(parser, SessionOptions)
    add_json(parser)
    parser.set_defaults(command=_simulate)


def _simulate(arguments: argparse.Namespace) -> int:
    from cec_mpi.simulation.compare import compare, scheme_name
    from cec_mpi.simulation.computers import machine_ranges
    from cec_mpi.simulation.scenario_options import build_scenario
    from cec_mpi.simulation.simulate import simulate

    simulate_options = from_flags(SimulateOptions, arguments)
    scenario = build_scenario(simulate_options, from_flags(SessionOptions, arguments))
    outcomes: Outcomes = {}
    if simulate_options.compare:
        outcomes = compare(scenario, simulate_options.out)
    else:
        outcomes[scheme_name(scenario)] = simulate(scenario, simulate_options.out)
    if scenario.machines_per_computer:  # count the hours of computers, not of their machines
        first_machines = [
            machines.start - 1
            for machines in machine_ranges(scenario.machines_per_computer)
            if machines
        ]
        for name, outcome in outcomes.items():
            if not isinstance(outcome, Exception):
                seconds = [outcome.machine_seconds[n] for n in first_machines]
                outcomes[name] = replace(outcome, machine_seconds=seconds)
    if arguments.json:
        content = {
            name: _as_dict(outcome, simulate_options.price) for name, outcome in outcomes.items()
        }
        print_result(json.dumps(content, allow_nan=False))
    else:
        print_result("\n".join(_table(outcomes, simulate_options.price)))
        if simulate_options.compare and scenario.options.emulate_noise:
            print_note("equal shares, fastest and restarting are replayed without noise")
        if simulate_options.rates_of is not None:
            print_note(_rates_note(scenario))
        if simulate_options.out is not None:
            print_note(
                printable(f"report: cec-mpi report {simulate_options.out} --out report.html")
            )
    for name, outcome in outcomes.items():
        if isinstance(outcome, Exception):
            warn(f"{name}: {outcome}")
        elif outcome.end_reason:
            warn(
                f"{name} ended after {format_count(outcome.steps, 'step')}: {outcome.end_reason}"
                f"{_remedy(scenario, outcome)}"
            )
    first = next(iter(outcomes.values()))
    return 0 if isinstance(first, Exception) else first.exit_code


def _remedy(scenario: Scenario, outcome: Outcome) -> str:
    """Return what to type if the run ended because its availability file ends."""
    options = scenario.options
    if outcome.exit_code != InfeasibleError.exit_code:
        return ""
    availability, tick_seconds = options.availability, options.tick_seconds
    if isinstance(availability, AvailabilityFlags):
        availability = availability.load(scenario.machines)
    last_change = getattr(availability, "last_change", None)
    tick = int(outcome.seconds / tick_seconds) if tick_seconds else outcome.steps
    if not last_change or not (options.wait or tick >= last_change):
        return ""
    shorter = f", or --steps {outcome.steps} to end the run there" if outcome.steps else ""
    return f"; the availability ends at tick {last_change}: add --repeat to repeat it{shorter}"


def _table(outcomes: Mapping[str, Outcome | Exception], price: float | None) -> list[str]:
    columns = ["steps", "time", "time/step", "waiting", "over", "read", "machine hours"]
    columns += ["cost"] if price is not None else []
    rows = []
    for name, outcome in outcomes.items():
        if isinstance(outcome, Exception):
            rows.append([name, *["-"] * len(columns), "not possible"])
            continue
        busy = outcome.seconds - outcome.waiting_seconds
        cells = [
            name,
            str(outcome.steps),
            format_duration(outcome.seconds),
            format_duration(busy / outcome.steps) if outcome.steps else "-",
            format_duration(outcome.waiting_seconds),
            format_duration(max(0.0, outcome.excess_seconds)),
            format_bytes(outcome.bytes_read),
            f"{outcome.machine_hours:.3g}",
            *([] if price is None else [f"{outcome.cost(price):.2f}"]),
        ]
        events = ", ".join(f"{count} {kind}" for kind, count in outcome.events.items())
        rows.append([*cells, events])
    lines = format_table(["scheme", *columns, "events"], rows, columns)
    return [
        *lines,
        "",
        "time includes waiting; time/step and over (the excess over the optimum) do not",
    ]


def _rates_note(scenario: Scenario) -> str:
    """Return the rates that were estimated from a recorded run, as options."""
    costs = scenario.costs
    rates = {
        "rate": scenario.rate,
        "latency": costs.latency,
        "bandwidth": costs.bandwidth,
        "decode": costs.decode,
    }
    source = f"--source {'server' if costs.source.is_shared else 'each'}:{costs.source.rate:.3g}"
    return " ".join(["rates:", *(f"--{name} {value:.3g}" for name, value in rates.items()), source])


def _as_dict(outcome: Outcome | Exception, price: float | None) -> dict[str, Any]:
    if isinstance(outcome, Exception):
        return {"problem": str(outcome)}
    return asdict(outcome) | ({} if price is None else {"cost": outcome.cost(price)})
