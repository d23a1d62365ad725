"""The scenario that the options of a command ask for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from cec_mpi.availability.models import Listed
from cec_mpi.errors import InputError
from cec_mpi.files.paths import as_path, node_directory
from cec_mpi.options.available import Available
from cec_mpi.options.session import SessionOptions
from cec_mpi.records.directory import STEPS
from cec_mpi.records.reading import read_lines
from cec_mpi.simulation.options import STEPS as USUAL_STEPS
from cec_mpi.simulation.options import SimulateOptions
from cec_mpi.simulation.scenario import RATE, Costs, Scenario
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
    return replace(scenario, options=_with_ticks(_with_speeds(scenario, given), scenario))


def model_of(given: SimulateOptions) -> tuple[float, Costs]:
    """Return how many bytes a machine of speed 1 multiplies in a second, and all other costs."""
    chosen = {name: getattr(given, name) for name in _COSTS}
    costs = Costs(**{name: value for name, value in chosen.items() if value is not None})
    return given.rate or RATE, costs


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


def _with_speeds(scenario: Scenario, given: SimulateOptions) -> SessionOptions:
    """Return the options of a scenario with the speeds that machines really have."""
    options = scenario.options
    told: dict[str, object] = {
        "--emulate-speeds": options.emulate_speeds,
        "--draw-speeds": given.drawn,
        "--speeds-of": given.speeds_of,
    }
    named = [flag for flag, value in told.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"{named[0]} and {named[1]} exclude each other")
    machines = scenario.machines
    if given.drawn is not None:
        random = np.random.default_rng(options.seed)
        drawn = random.uniform(*given.drawn, size=machines)
        return replace(options, emulate_speeds=tuple(drawn.tolist()))
    if given.speeds_of is not None:
        return _recorded(as_path(given.speeds_of), scenario, machines)
    if options.emulate_speeds is None:
        speeds = options.speeds if isinstance(options.speeds, tuple) else (1.0,) * machines
        return replace(options, emulate_speeds=speeds)
    return options


def _recorded(directory: Path, scenario: Scenario, machines: int) -> SessionOptions:
    """Return options with the speeds, and their noise, that the machines of a run had."""
    found = read_lines(directory / STEPS)
    columns, dtype = (found.header.get(name) for name in ("columns", "dtype"))
    if (columns, dtype) != (scenario.columns, scenario.dtype):
        raise InputError(
            f"{directory}: found a run with {columns} columns of {dtype}, expected "
            f"{scenario.columns} of {scenario.dtype}, as X has"
        )
    if others := {len(step.rows) for step in found.steps} - {machines}:
        raise InputError(
            f"{directory}: found a run of {plural(max(others), 'machine')}, expected "
            f"{plural(machines, 'machine')}"
        )
    shown: list[list[float]] = [[] for _ in range(machines)]
    for step in found.steps:
        for rates, rows, seconds in zip(shown, step.rows, step.seconds, strict=True):
            if rows > 0 and seconds > 0:
                rates.append(rows / seconds)
    silent = [n for n, rates in enumerate(shown, start=1) if not rates]
    if silent:
        raise InputError(f"{directory}: machine {silent[0]} of {machines} has computed no rows")
    base = [median(rates) for rates in shown]
    logs = [np.log(rates) - np.log(one) for rates, one in zip(shown, base, strict=True)]
    noise = float(np.std(np.concatenate(logs)))
    return replace(
        scenario.options, emulate_speeds=tuple(base), emulate_base=1.0, emulate_noise=noise
    )


def _with_ticks(options: SessionOptions, scenario: Scenario) -> SessionOptions:
    """Return options in which a trace with times is replayed at its own pace."""
    if options.tick_seconds is not None:
        return options
    availability = Available.found(options, scenario.machines)["availability"]
    gap = availability.gap_seconds if isinstance(availability, Listed) else None
    return options if gap is None else replace(options, tick_seconds=gap)
