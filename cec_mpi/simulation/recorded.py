"""Speeds and rates of a recorded run."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.records.directory import STEPS
from cec_mpi.runtime.records.reading import Lines, read_lines
from cec_mpi.runtime.records.step import StepRecord
from cec_mpi.simulation.replay import traffic
from cec_mpi.simulation.scenario import Costs, Scenario
from cec_mpi.text import plural

_LONG = 10**6  # bytes from which on they take most of the time of messages
_MANY = 10**5  # numbers from which on their decoding takes most of its time
_LEAST = 1e-12  # seconds that anything takes

_OF_X = "machines", "recovery", "rows", "columns", "dtype"


def recorded_speeds(directory: Path, scenario: Scenario) -> SessionOptions:
    """Return the options of a scenario with the speeds, and their noise, of a recorded run.

    Parameters
    ----------
    directory : Path
    scenario : Scenario
        It has as many machines as the run, and as many columns of the same dtype.

    Raises
    ------
    InputError
        The records cannot be read, or do not fit the scenario.
    """
    found = read_lines(directory / STEPS)
    columns, dtype = (found.header.get(name) for name in ("columns", "dtype"))
    if (columns, dtype) != (scenario.columns, scenario.dtype):
        raise InputError(
            f"{directory}: found a run with {columns} columns of {dtype}, expected "
            f"{scenario.columns} of {scenario.dtype}, as X has"
        )
    if others := {len(step.rows) for step in found.steps} - {scenario.machines}:
        raise InputError(
            f"{directory}: found a run of {plural(max(others), 'machine')}, expected "
            f"{plural(scenario.machines, 'machine')}"
        )
    rates = _rates(found.steps, scenario.machines)
    silent = [n for n, each in enumerate(rates, start=1) if not each]
    if silent:
        raise InputError(
            f"{directory}: machine {silent[0]} of {scenario.machines} has computed no rows"
        )
    base = [median(each) for each in rates]
    logs = [np.log(each) - np.log(one) for each, one in zip(rates, base, strict=True)]
    noise = float(np.std(np.concatenate(logs)))
    return replace(
        scenario.options, emulate_speeds=tuple(base), emulate_base=1.0, emulate_noise=noise
    )


def recorded_rates(directory: Path) -> tuple[float, Costs]:
    """Return the bytes per second that a machine multiplied in a run, and the costs of its steps.

    Machines of different speeds count as their median. What the steps were too short to measure
    has its default: the bandwidth if less than 1 MB was sent in each, otherwise the latency, and
    both if all machines were in one process; decoding if X has fewer than 100,000 rows; reading if
    nothing was read.

    Raises
    ------
    InputError
        The records cannot be read, or are not those of a run with a code that computed X w.
    """
    found = read_lines(directory / STEPS)
    header = found.header
    if header.get("copies") is not None or "simulated" in header:
        kind = "simulated run" if "simulated" in header else "run with copies of rows"
        raise InputError(f"{directory}: found a {kind}, expected a run with a code")
    steps = [each for each in found.steps if not each.adjoint and each.columns == 1]
    if not steps or not all(header.get(name) for name in _OF_X):
        raise InputError(f"{directory}: found no steps of X w, expected a run that made some")
    machines, recovery, rows, columns, dtype = (header[name] for name in _OF_X)
    row_bytes = columns * np.dtype(dtype).itemsize
    rates = [median(each) for each in _rates(steps, machines) if each]
    if not rates:
        raise InputError(f"{directory}: no machine has computed rows")
    costs = Costs()
    if len(header.get("hosts", ())) > 1:
        costs = _with_messages(costs, found, steps)
    read = sum(sum(each.load_bytes) for each in found.steps)
    if read:
        seconds = sum(sum(each.load_seconds) for each in found.steps)
        costs = replace(costs, disk=read / max(seconds, _LEAST))
    if rows >= _MANY:
        seconds = max(median(each.decode_seconds for each in steps), _LEAST)
        costs = replace(costs, decode=seconds / Costs(decode=1.0).decoding(rows, recovery))
    rate = row_bytes * median(rates)
    for name, value in ("rate", rate), *asdict(costs).items():
        if value and not values.LEAST <= value <= values.MOST:
            raise InputError(f"{directory}: found a {name} of {value:g}, which no computer has")
    return rate, costs


def _with_messages(costs: Costs, found: Lines, steps: list[StepRecord]) -> Costs:
    """Return costs with the latency or the bandwidth of a run."""
    rows, columns = (found.header[name] for name in ("rows", "columns"))
    is_elastic = found.header.get("mpi_library") == "none"
    machines = len(steps[0].available)
    messages, sent = traffic(machines, rows, columns, is_elastic)
    seconds = max(median(map(_of_messages, steps)), _LEAST)
    if sent >= _LONG:
        return replace(costs, bandwidth=sent / seconds)
    return replace(costs, latency=seconds / messages)


def _of_messages(step: StepRecord) -> float:
    """Return the seconds of a step in which it did not wait for machines that computed."""
    computing = max(a + b for a, b in zip(step.load_seconds, step.seconds, strict=True))
    return step.announce_seconds + step.share_seconds + step.collect_seconds - computing


def _rates(steps: list[StepRecord], machines: int) -> list[list[float]]:
    """Return the rows per second that each machine had in the steps in which it computed."""
    found: list[list[float]] = [[] for _ in range(machines)]
    for step in steps:
        for rates, rows, seconds in zip(found, step.rows, step.seconds, strict=False):
            if rows > 0 and seconds > 0:
                rates.append(rows / seconds)
    return found
