"""Simulate a run before there is one: simulate."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cec_mpi.cli.commands.shared import add_json
from cec_mpi.runtime.options.available import Available
from cec_mpi.runtime.options.elastic import Elastic
from cec_mpi.runtime.options.emulated import Emulated
from cec_mpi.runtime.options.option import STUDIES, add_option, add_options, from_flags
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.options.sharing import Sharing
from cec_mpi.simulation.options import SimulateOptions
from cec_mpi.terminal import aligned, put, say, warn
from cec_mpi.text import counted, duration, printable, size_words

if TYPE_CHECKING:
    from cec_mpi.simulation.compare import Compared
    from cec_mpi.simulation.scenario import Outcome, Scenario

_ELASTIC = ("elastic", "stragglers", "deadline", "wait")


def add_simulate(commands: Any) -> None:
    """``cec-mpi simulate``."""
    p = commands.add_parser(
        "simulate",
        help="simulate a run on machines that come and go",
        usage="%(prog)s [STORE] [OPTIONS]",
        description="Simulate the steps of a run, without computing X w: how long it takes, and "
        "how long it waits. With a store, or with --shape, --machines and --recovery or --copies. "
        "Machines have the speeds --emulate-speeds (default: --speeds, or 1); --speeds is what "
        "the run knows of them.",
    )
    p.add_argument("store", metavar="STORE", nargs="?", help="directory made by encode")
    add_options(p, SimulateOptions)
    more = p.add_argument_group(Elastic.title)
    for name in _ELASTIC:
        add_option(more, Elastic, name)
    add_option(p, Sharing, "speeds")
    studies = p.add_argument_group(STUDIES)
    add_option(studies, Sharing, "scheme")
    add_options(p, Available, but=("machines",))
    add_options(p, Emulated)
    add_options(p, SessionOptions)
    add_json(p)
    p.set_defaults(command=_simulate)


def _simulate(arguments: argparse.Namespace) -> int:
    from cec_mpi.simulation.asked import asked
    from cec_mpi.simulation.compare import compare, name_of
    from cec_mpi.simulation.computers import machines_of
    from cec_mpi.simulation.simulate import simulate

    given = from_flags(SimulateOptions, arguments)
    scenario = asked(given, from_flags(SessionOptions, arguments))
    found: Compared = {}
    if given.compares:
        found = compare(scenario, given.out)
    else:
        found[name_of(scenario)] = simulate(scenario, given.out)
    if scenario.carried:  # hours of computers
        of_each = [machines.start - 1 for machines in machines_of(scenario.carried) if machines]
        for name, outcome in found.items():
            if not isinstance(outcome, Exception):
                seconds = [outcome.machine_seconds[n] for n in of_each]
                found[name] = replace(outcome, machine_seconds=seconds)
    if arguments.json:
        told = {name: _told(each, given.price) for name, each in found.items()}
        put(json.dumps(told, allow_nan=False))
    else:
        put("\n".join(_table(found, given.price)))
        if given.compares and scenario.options.emulate_noise:
            say("equal shares, fastest and restarting: without the noise of speeds")
        if given.rates_of is not None:
            say(_rates(scenario))
        if given.out is not None:
            say(printable(f"report: cec-mpi report {given.out} --out report.html"))
    for name, each in found.items():
        if isinstance(each, Exception):
            warn(f"{name}: {each}")
        elif each.ended:
            warn(f"{name} ended after {counted(each.steps, 'step')}: {each.ended}")
    first = next(iter(found.values()))
    return 0 if isinstance(first, Exception) else first.exit_code


def _table(found: Mapping[str, Outcome | Exception], price: float | None) -> list[str]:
    numbers = ["steps", "time", "a step", "waiting", "over", "read", "machine hours"]
    numbers += ["cost"] if price is not None else []
    rows = []
    for name, each in found.items():
        if isinstance(each, Exception):
            rows.append([name, *["-"] * len(numbers), "not possible"])
            continue
        took = each.seconds - each.waiting
        cells = [name, str(each.steps), duration(each.seconds)]
        cells += [duration(took / each.steps) if each.steps else "-", duration(each.waiting)]
        cells += [duration(max(0.0, each.over)), size_words(each.bytes_read)]
        cells += [f"{each.machine_hours:.3g}"]
        cells += [f"{each.cost(price):.2f}"] if price is not None else []
        events = ", ".join(f"{count} {kind}" for kind, count in each.events.items())
        rows.append([*cells, events])
    lines = aligned(["scheme", *numbers, "events"], rows, numbers)
    return [*lines, "", "time: with waiting; over: above the optimum, without waiting"]


def _rates(scenario: Scenario) -> str:
    """Return the rates of a recorded run as options."""
    costs = scenario.costs
    given = {"rate": scenario.rate, "disk": costs.disk, "latency": costs.latency}
    given |= {"bandwidth": costs.bandwidth, "decode": costs.decode}
    return " ".join(["rates:", *(f"--{name} {value:.3g}" for name, value in given.items())])


def _told(found: Outcome | Exception, price: float | None) -> dict[str, Any]:
    if isinstance(found, Exception):
        return {"problem": str(found)}
    return asdict(found) | ({} if price is None else {"cost": found.cost(price)})
