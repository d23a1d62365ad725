"""Scenarios from the options of a command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.options.availability import AvailabilityOptions
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.computers import (
    ComputerAvailability,
    distribute_machines,
    machine_ranges,
    machine_speeds,
)
from cec_mpi.simulation.estimation import estimate_rate_and_costs, estimate_speeds
from cec_mpi.simulation.options import DEFAULT_STEPS, SimulateOptions
from cec_mpi.simulation.replay import CodedScheme, TimeModel
from cec_mpi.simulation.scenario import RATE, Costs, Scenario
from cec_mpi.store.files.paths import as_path, expand_host
from cec_mpi.store.reader import open_store
from cec_mpi.text import plural

_COST_OPTIONS = ("latency", "bandwidth", "source", "decode")


def build_scenario(settings: SimulateOptions, options: SessionOptions) -> Scenario:
    """Return the scenario that options describe.

    Raises
    ------
    InputError
        Options are contradictory, or a file cannot be read.
    """
    steps = settings.steps
    if steps is None and settings.seconds is None:
        steps = DEFAULT_STEPS
    rate, costs = rates_and_costs(settings)
    common: dict[str, Any] = {
        "steps": steps,
        "seconds": settings.seconds,
        "adjoint": settings.adjoint,
        "rate": rate,
        "costs": costs,
        "machine_events": settings.machine_events,
        "lost_when_away": settings.lost_when_away,
        "options": options,
    }
    scenario = (
        _scenario_from_store(settings, common)
        if settings.store is not None
        else _scenario_from_shape(settings, common)
    )
    computers = scenario.machines if settings.memory is None else len(settings.memory)
    options = _with_tick_length(_with_true_speeds(scenario, settings, computers), computers)
    scenario = replace(scenario, options=options)
    return scenario if settings.memory is None else _distribute_machines(scenario, settings.memory)


def rates_and_costs(settings: SimulateOptions) -> tuple[float, Costs]:
    """Return the bytes that a machine of speed 1 multiplies per second, and the other costs."""
    rate, costs = RATE, Costs()
    if settings.rates_of is not None:
        rate, costs = estimate_rate_and_costs(as_path(settings.rates_of))
    values = {name: getattr(settings, name) for name in _COST_OPTIONS}
    given_costs = {name: value for name, value in values.items() if value is not None}
    return settings.rate or rate, replace(costs, **given_costs)


def _scenario_from_store(settings: SimulateOptions, common: dict[str, Any]) -> Scenario:
    for flag, value in (
        ("--shape", settings.shape),
        ("--machines", settings.machine_count),
        ("--recovery", settings.recovery),
        ("--copies", settings.copies),
        ("--density", settings.density),
        ("--dtype", settings.dtype),
    ):
        if value is not None:
            raise InputError(f"{flag} cannot be combined with a store ({settings.store})")
    assert settings.store is not None
    return Scenario.from_store(open_store(expand_host(settings.store)).manifest, **common)


def _scenario_from_shape(settings: SimulateOptions, common: dict[str, Any]) -> Scenario:
    if settings.shape is None or settings.machine_count is None:
        raise InputError("expected a store, or --shape Q,R and --machines N")
    if settings.recovery is not None and settings.copies is not None:
        raise InputError("--recovery and --copies cannot be combined: expected a code or copies")
    rows, columns = settings.shape
    values = {"copies": settings.copies, "density": settings.density, "dtype": settings.dtype}
    common |= {name: value for name, value in values.items() if value is not None}
    return Scenario(
        machines=settings.machine_count,
        recovery=settings.recovery,
        rows=rows,
        columns=columns,
        **common,
    )


def _distribute_machines(scenario: Scenario, memory: Sequence[int]) -> Scenario:
    """Return the scenario with its machines distributed over computers according to memory."""
    options, computers = scenario.options, len(memory)
    model = TimeModel(replace(scenario, options=SessionOptions()))
    shard_bytes = CodedScheme(model).bytes_held.max()
    capacities = [int(computer_bytes // shard_bytes) for computer_bytes in memory]
    machine_counts = distribute_machines(capacities, scenario.machines)
    speeds: dict[str, Any] = {}
    for name in ("speeds", "emulate_speeds"):
        computer_speeds = getattr(options, name)
        if isinstance(computer_speeds, tuple):
            if len(computer_speeds) != computers:
                raise InputError(
                    f"--{name.replace('_', '-')} has {plural(len(computer_speeds), 'speed')}, "
                    f"expected one for each of {plural(computers, 'computer')}"
                )
            speeds[name] = machine_speeds(computer_speeds, machine_counts)
    machines_by_computer = machine_ranges(machine_counts)
    availability = AvailabilityOptions.resolve_machines(options, computers)["availability"]
    for event in scenario.machine_events:
        if event.machine > computers:
            raise InputError(f"computer {event.machine}: expected a computer from 1 to {computers}")
    return replace(
        scenario,
        options=replace(
            options, availability=ComputerAvailability(availability, machines_by_computer), **speeds
        ),
        machine_events=tuple(
            replace(event, machine=machine)
            for event in scenario.machine_events
            for machine in machines_by_computer[event.machine - 1]
        ),
        machines_per_computer=machine_counts,
    )


def _with_true_speeds(scenario: Scenario, settings: SimulateOptions, count: int) -> SessionOptions:
    """Return the options of a scenario with the true speeds of machines or computers."""
    options = scenario.options
    speed_settings: dict[str, object] = {
        "--emulate-speeds": options.emulate_speeds,
        "--draw-speeds": settings.speed_range,
        "--speeds-of": settings.speeds_of,
    }
    flags = [flag for flag, value in speed_settings.items() if value is not None]
    if len(flags) > 1:
        raise InputError(f"{flags[0]} and {flags[1]} cannot be combined")
    if settings.speed_range is not None:
        rng = np.random.default_rng(options.seed)
        random_speeds = rng.uniform(*settings.speed_range, size=count)
        return replace(options, emulate_speeds=tuple(random_speeds.tolist()))
    if settings.speeds_of is not None:
        if settings.memory is not None:
            raise InputError("--speeds-of and --memory cannot be combined")
        return estimate_speeds(as_path(settings.speeds_of), scenario)
    if options.emulate_speeds is None:
        speeds = options.speeds if isinstance(options.speeds, tuple) else (1.0,) * count
        return replace(options, emulate_speeds=speeds)
    return options


def _with_tick_length(options: SessionOptions, count: int) -> SessionOptions:
    """Return options with the tick length of the trace, unless an option sets it."""
    if options.tick_seconds is not None:
        return options
    availability = AvailabilityOptions.resolve_machines(options, count)["availability"]
    gap = availability.gap_seconds if isinstance(availability, ListedAvailability) else None
    return options if gap is None else replace(options, tick_seconds=gap)
