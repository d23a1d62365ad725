"""Scenarios from the options of a command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.options.available import AvailabilityOptions
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.computers import (
    ComputerAvailability,
    distribute_machines,
    machine_ranges,
    machine_speeds,
)
from cec_mpi.simulation.options import STEPS as USUAL_STEPS
from cec_mpi.simulation.options import SimulateOptions
from cec_mpi.simulation.recorded import recorded_rates, recorded_speeds
from cec_mpi.simulation.replay import Coded, TimeModel
from cec_mpi.simulation.scenario import RATE, Costs, Scenario
from cec_mpi.store.files.paths import as_path, node_directory
from cec_mpi.store.reader import open_store
from cec_mpi.text import plural

_COSTS = ("latency", "bandwidth", "source", "decode")


def build_scenario(given: SimulateOptions, options: SessionOptions) -> Scenario:
    """Return the scenario that options describe.

    Raises
    ------
    InputError
        If options contradict each other, or a file cannot be read.
    """
    steps = given.steps
    if steps is None and given.seconds is None:
        steps = USUAL_STEPS
    rate, costs = rates_and_costs(given)
    common: dict[str, Any] = {
        "steps": steps,
        "seconds": given.seconds,
        "adjoint": given.adjoint,
        "rate": rate,
        "costs": costs,
        "machine_events": given.machine_events,
        "loses": given.loses,
        "options": options,
    }
    scenario = (
        _scenario_of_store(given, common)
        if given.store is not None
        else _scenario_of_shape(given, common)
    )
    computers = scenario.machines if given.memory is None else len(given.memory)
    options = _set_tick_length(_set_true_speeds(scenario, given, computers), computers)
    scenario = replace(scenario, options=options)
    return scenario if given.memory is None else _distribute_machines(scenario, given.memory)


def rates_and_costs(given: SimulateOptions) -> tuple[float, Costs]:
    """Return the bytes that a machine of speed 1 multiplies per second, and all other costs."""
    values = {name: getattr(given, name) for name in _COSTS}
    rate, costs = RATE, Costs()
    if given.rates_of is not None:
        rate, costs = recorded_rates(as_path(given.rates_of))
    named = {name: value for name, value in values.items() if value is not None}
    return given.rate or rate, replace(costs, **named)


def _scenario_of_store(given: SimulateOptions, common: dict[str, Any]) -> Scenario:
    for flag, value in (
        ("--shape", given.shape),
        ("--machines", given.count),
        ("--recovery", given.recovery),
        ("--copies", given.copies),
        ("--density", given.density),
        ("--dtype", given.dtype),
    ):
        if value is not None:
            raise InputError(f"{flag} cannot be combined with a store ({given.store})")
    assert given.store is not None
    return Scenario.from_store(open_store(node_directory(given.store)).manifest, **common)


def _scenario_of_shape(given: SimulateOptions, common: dict[str, Any]) -> Scenario:
    if given.shape is None or given.count is None:
        raise InputError("expected a store, or --shape Q,R and --machines N")
    if given.recovery is not None and given.copies is not None:
        raise InputError("--recovery and --copies cannot be combined: a code, or copies")
    rows, columns = given.shape
    values = {"copies": given.copies, "density": given.density, "dtype": given.dtype}
    common |= {name: value for name, value in values.items() if value is not None}
    return Scenario(
        machines=given.count,
        recovery=given.recovery,
        rows=rows,
        columns=columns,
        **common,
    )


def _distribute_machines(scenario: Scenario, memory: Sequence[int]) -> Scenario:
    """Return the scenario of machines, given a scenario of computers with this memory."""
    options, computers = scenario.options, len(memory)
    size = Coded(TimeModel(replace(scenario, options=SessionOptions()))).bytes_held.max()
    carried = distribute_machines([int(bytes_ // size) for bytes_ in memory], scenario.machines)
    speeds: dict[str, Any] = {}
    for name in ("speeds", "emulate_speeds"):
        given = getattr(options, name)
        if isinstance(given, tuple):
            if len(given) != computers:
                raise InputError(
                    f"{name.replace('_', ' ')}: {len(given)}, expected one for each of "
                    f"{plural(computers, 'computer')}"
                )
            speeds[name] = machine_speeds(given, carried)
    machines = machine_ranges(carried)
    availability = AvailabilityOptions.resolve_machines(options, computers)["availability"]
    for event in scenario.machine_events:
        if event.machine > computers:
            raise InputError(f"computer {event.machine}: expected a computer from 1 to {computers}")
    return replace(
        scenario,
        options=replace(
            options, availability=ComputerAvailability(availability, machines), **speeds
        ),
        machine_events=tuple(
            replace(event, machine=machine)
            for event in scenario.machine_events
            for machine in machines[event.machine - 1]
        ),
        carried=carried,
    )


def _set_true_speeds(scenario: Scenario, given: SimulateOptions, machines: int) -> SessionOptions:
    """Return the options of a scenario with the true speeds of machines or computers."""
    options = scenario.options
    sources: dict[str, object] = {
        "--emulate-speeds": options.emulate_speeds,
        "--draw-speeds": given.drawn,
        "--speeds-of": given.speeds_of,
    }
    named = [flag for flag, value in sources.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"{named[0]} and {named[1]} cannot be combined")
    if given.drawn is not None:
        random = np.random.default_rng(options.seed)
        drawn = random.uniform(*given.drawn, size=machines)
        return replace(options, emulate_speeds=tuple(drawn.tolist()))
    if given.speeds_of is not None:
        if given.memory is not None:
            raise InputError("--speeds-of and --memory exclude each other")
        return recorded_speeds(as_path(given.speeds_of), scenario)
    if options.emulate_speeds is None:
        speeds = options.speeds if isinstance(options.speeds, tuple) else (1.0,) * machines
        return replace(options, emulate_speeds=speeds)
    return options


def _set_tick_length(options: SessionOptions, machines: int) -> SessionOptions:
    """Return options with the tick length of the trace, if it has one and none is given."""
    if options.tick_seconds is not None:
        return options
    availability = AvailabilityOptions.resolve_machines(options, machines)["availability"]
    gap = availability.gap_seconds if isinstance(availability, ListedAvailability) else None
    return options if gap is None else replace(options, tick_seconds=gap)
