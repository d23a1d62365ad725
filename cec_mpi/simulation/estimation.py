"""Speeds and rates, estimated from a recorded run."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.records.directory import STEPS
from cec_mpi.runtime.records.reading import RunRecords, read_records
from cec_mpi.runtime.records.step import StepRecord
from cec_mpi.simulation.replay import step_traffic
from cec_mpi.simulation.scenario import Costs, Scenario, Source
from cec_mpi.text import plural

_MIN_STEP_BYTES = 10**6  # transferred in a step; below, latency dominates bandwidth
_MIN_ROWS = 10**5  # below, fixed costs dominate decoding
_MIN_SECONDS = 1e-12  # avoids division by 0
_HEADER_FIELDS = "machines", "recovery", "rows", "columns", "dtype"


def estimate_speeds(directory: Path, scenario: Scenario) -> SessionOptions:
    """Return the options of a scenario with the speeds and the noise of a recorded run.

    Parameters
    ----------
    directory : Path
    scenario : Scenario
        Scenario with the machines, columns and dtype of the run.

    Raises
    ------
    InputError
        The records cannot be read, or do not fit the scenario.
    """
    records = read_records(directory / STEPS)
    columns, dtype = (records.header.get(name) for name in ("columns", "dtype"))
    if (columns, dtype) != (scenario.columns, scenario.dtype):
        raise InputError(
            f"{directory}: found a run with {columns} columns of {dtype}, expected "
            f"{scenario.columns} columns of {scenario.dtype}, as in X"
        )
    if other_counts := {len(step.rows) for step in records.steps} - {scenario.machines}:
        raise InputError(
            f"{directory}: found a run of {plural(max(other_counts), 'machine')}, expected "
            f"{plural(scenario.machines, 'machine')}"
        )
    rates = _rates_by_machine(records.steps, scenario.machines)
    idle = [n for n, rates_of_machine in enumerate(rates, start=1) if not rates_of_machine]
    if idle:
        raise InputError(
            f"{directory}: machine {idle[0]} of {scenario.machines} has computed no rows"
        )
    medians = [median(rates_of_machine) for rates_of_machine in rates]
    log_deviations = [
        np.log(rates_of_machine) - np.log(median_rate)
        for rates_of_machine, median_rate in zip(rates, medians, strict=True)
    ]
    noise = float(np.std(np.concatenate(log_deviations)))
    return replace(
        scenario.options, emulate_speeds=tuple(medians), emulate_base=1.0, emulate_noise=noise
    )


def estimate_rate_and_costs(directory: Path) -> tuple[float, Costs]:
    """Return the rate of a machine in a run, in bytes multiplied per second, and the run's costs.

    The rate is the median over machines. A cost that cannot be estimated keeps its default: the
    bandwidth if a step transferred less than 1 MB, otherwise the latency; both if all machines were
    in one process; decoding if X has fewer than 100,000 rows; reading if nothing was read.

    Raises
    ------
    InputError
        The records cannot be read, are not of a real run that computed X w with a code, have no
        computed rows, or give a rate or cost that is out of range.
    """
    records = read_records(directory / STEPS)
    header = records.header
    if header.get("copies") is not None or "simulated" in header:
        problem = "found a run with copies of rows, expected a run with a code"
        if "simulated" in header:
            problem = "found a simulated run, expected a real run"
        raise InputError(f"{directory}: {problem}")
    steps = [step for step in records.steps if not step.adjoint and step.columns == 1]
    if not steps or not all(header.get(name) for name in _HEADER_FIELDS):
        raise InputError(f"{directory}: found no steps of X w, expected a run that computed X w")
    machines, recovery, rows, columns, dtype = (header[name] for name in _HEADER_FIELDS)
    row_bytes = columns * np.dtype(dtype).itemsize
    rates = [
        median(rates_of_machine)
        for rates_of_machine in _rates_by_machine(steps, machines)
        if rates_of_machine
    ]
    if not rates:
        raise InputError(f"{directory}: no machine has computed rows")
    has_several_hosts = len(header.get("hosts", ())) > 1
    costs = _fit_message_costs(records, steps) if has_several_hosts else Costs()
    if bytes_read := sum(sum(step.load_bytes) for step in records.steps):
        seconds = max(sum(sum(step.load_seconds) for step in records.steps), _MIN_SECONDS)
        costs = replace(costs, source=Source(bytes_read / seconds, is_shared=False))
    if rows >= _MIN_ROWS:
        seconds = max(median(step.decode_seconds for step in steps), _MIN_SECONDS)
        costs = replace(costs, decode=seconds / Costs(decode=1.0).decoding_seconds(rows, recovery))
    rate = row_bytes * median(rates)
    for name, value in (asdict(costs) | {"rate": rate, "source": costs.source.rate}).items():
        if value and not values.MIN_VALUE <= value <= values.MAX_VALUE:
            raise InputError(
                f"{directory}: found {name} {value:g}, expected {values.MIN_VALUE:.0e} to "
                f"{values.MAX_VALUE:.0e}"
            )
    return rate, costs


def _fit_message_costs(records: RunRecords, steps: list[StepRecord]) -> Costs:
    """Return costs with the latency or the bandwidth that fits a run."""
    rows, columns = (records.header[name] for name in ("rows", "columns"))
    is_elastic = records.header.get("mpi_library") == "none"
    machines = len(steps[0].available)
    messages, bytes_transferred = step_traffic(machines, rows, columns, is_elastic)
    seconds = max(median(map(_message_seconds, steps)), _MIN_SECONDS)
    if bytes_transferred >= _MIN_STEP_BYTES:
        return Costs(bandwidth=bytes_transferred / seconds)
    return Costs(latency=seconds / messages)


def _message_seconds(step: StepRecord) -> float:
    """Return the seconds of a step, excluding reading, computing and decoding."""
    computing = max(a + b for a, b in zip(step.load_seconds, step.compute_seconds, strict=True))
    return step.announce_seconds + step.share_seconds + step.collect_seconds - computing


def _rates_by_machine(steps: list[StepRecord], machines: int) -> list[list[float]]:
    """Return the rows per second of each machine in each step in which it computed."""
    rates_by_machine: list[list[float]] = [[] for _ in range(machines)]
    for step in steps:
        for rates, rows, seconds in zip(
            rates_by_machine, step.rows, step.compute_seconds, strict=False
        ):
            if rows > 0 and seconds > 0:
                rates.append(rows / seconds)
    return rates_by_machine
