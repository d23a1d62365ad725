"""The scenario that the options of a command ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import Listed
from cec_mpi.runtime.options.available import Available
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.computers import OnComputers, machines_of, share_out, share_speeds
from cec_mpi.simulation.options import STEPS as USUAL_STEPS
from cec_mpi.simulation.options import SimulateOptions
from cec_mpi.simulation.recorded import recorded_rates, recorded_speeds
from cec_mpi.simulation.replay import Coded, Model
from cec_mpi.simulation.scenario import RATE, Costs, Scenario
from cec_mpi.store.files.paths import as_path, node_directory
from cec_mpi.store.reader import open_store
from cec_mpi.text import plural

_COSTS = ("latency", "bandwidth", "disk", "decode")


def asked(given: SimulateOptions, options: SessionOptions) -> Scenario:
    """Return the scenario that options ask for.

    Raises
    ------
    InputError
        They do not fit together, or a file cannot be read.
    """
    steps = given.steps
    if steps is None and given.seconds is None:
        steps = USUAL_STEPS
    rate, costs = model_of(given)
    more: dict[str, Any] = {
        "steps": steps,
        "seconds": given.seconds,
        "adjoint": given.adjoint,
        "rate": rate,
        "costs": costs,
        "happenings": given.happenings,
        "loses": given.loses,
        "options": options,
    }
    scenario = _of_store(given, more) if given.store is not None else _of_shape(given, more)
    computers = scenario.machines if given.memory is None else len(given.memory)
    options = _with_ticks(_with_speeds(scenario, given, computers), computers)
    scenario = replace(scenario, options=options)
    return scenario if given.memory is None else _on_computers(scenario, given.memory)


def model_of(given: SimulateOptions) -> tuple[float, Costs]:
    """Return how many bytes a machine of speed 1 multiplies in a second, and all other costs."""
    chosen = {name: getattr(given, name) for name in _COSTS}
    rate, costs = RATE, Costs()
    if given.rates_of is not None:
        rate, costs = recorded_rates(as_path(given.rates_of))
    named = {name: value for name, value in chosen.items() if value is not None}
    return given.rate or rate, replace(costs, **named)


def _of_store(given: SimulateOptions, more: dict[str, Any]) -> Scenario:
    for flag, value in (
        ("--shape", given.shape),
        ("--machines", given.count),
        ("--recovery", given.recovery),
        ("--copies", given.copies),
        ("--density", given.density),
        ("--dtype", given.dtype),
    ):
        if value is not None:
            raise InputError(f"{flag} describes X without a store, and {given.store} is a store")
    assert given.store is not None
    return Scenario.of_store(open_store(node_directory(given.store)).manifest, **more)


def _of_shape(given: SimulateOptions, more: dict[str, Any]) -> Scenario:
    if given.shape is None or given.count is None:
        raise InputError("expected a store, or --shape Q,R and --machines N")
    if given.recovery is not None and given.copies is not None:
        raise InputError("--recovery and --copies exclude each other: a code, or replicas")
    rows, columns = given.shape
    chosen = {"copies": given.copies, "density": given.density, "dtype": given.dtype}
    more |= {name: value for name, value in chosen.items() if value is not None}
    return Scenario(
        machines=given.count,
        recovery=given.recovery,
        rows=rows,
        columns=columns,
        **more,
    )


def _on_computers(scenario: Scenario, memory: Sequence[int]) -> Scenario:
    """Return the scenario of machines, given what happens to computers with so much memory."""
    options, computers = scenario.options, len(memory)
    size = Coded(Model(replace(scenario, options=SessionOptions()))).held.max()
    carried = share_out([int(each // size) for each in memory], scenario.machines)
    speeds: dict[str, Any] = {}
    for name in ("speeds", "emulate_speeds"):
        found = getattr(options, name)
        if isinstance(found, tuple):
            if len(found) != computers:
                raise InputError(
                    f"{name.replace('_', ' ')}: {len(found)}, expected one for each of "
                    f"{plural(computers, 'computer')}"
                )
            speeds[name] = share_speeds(found, carried)
    machines = machines_of(carried)
    availability = Available.found(options, computers)["availability"]
    for each in scenario.happenings:
        if each.machine > computers:
            raise InputError(f"computer {each.machine}: expected a computer from 1 to {computers}")
    return replace(
        scenario,
        options=replace(options, availability=OnComputers(availability, machines), **speeds),
        happenings=tuple(
            replace(each, machine=machine)
            for each in scenario.happenings
            for machine in machines[each.machine - 1]
        ),
        carried=carried,
    )


def _with_speeds(scenario: Scenario, given: SimulateOptions, machines: int) -> SessionOptions:
    """Return the options of a scenario with the speeds that machines or computers really have."""
    options = scenario.options
    told: dict[str, object] = {
        "--emulate-speeds": options.emulate_speeds,
        "--draw-speeds": given.drawn,
        "--speeds-of": given.speeds_of,
    }
    named = [flag for flag, value in told.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"{named[0]} and {named[1]} exclude each other")
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


def _with_ticks(options: SessionOptions, machines: int) -> SessionOptions:
    """Return options in which a trace with times is replayed at its own pace."""
    if options.tick_seconds is not None:
        return options
    availability = Available.found(options, machines)["availability"]
    gap = availability.gap_seconds if isinstance(availability, Listed) else None
    return options if gap is None else replace(options, tick_seconds=gap)
