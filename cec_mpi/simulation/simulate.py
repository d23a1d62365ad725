"""Simulation of runs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.errors import CecError, InfeasibleError, InputError, MachineError
from cec_mpi.runtime.availability.models import ListedAvailability, polling_interval
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.master.master import Master
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.resources import ProcessInfo
from cec_mpi.runtime.records.directory import (
    STEPS,
    SUMMARY,
    SUMMARY_VERSION,
    discard_earlier_results,
    move_results_aside,
    prepare_directory,
    remove_if_rejected,
)
from cec_mpi.runtime.session.session import ExecutionMode, Session
from cec_mpi.simulation.hub import SimulatedHub
from cec_mpi.simulation.recording import SimulatedRecorder
from cec_mpi.simulation.scenario import MachineEvent, Outcome, Scenario, availability_events
from cec_mpi.simulation.store import SimulatedStore, make_coded_store, make_copies_store
from cec_mpi.store.files.durable import publish
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.saving import convert_to_results_error, open_text

HOST = "simulated"
TASK = "simulate"


class _DurationReachedError(Exception):
    """The run has reached its duration."""


@dataclass(frozen=True)
class SimulatedRun:
    """A simulated run that has not begun.

    Attributes
    ----------
    master : Master
        Master, which multiplies by `X` in simulated time.
    X : ndarray
        Small matrix that represents X of the scenario.
    recorder : SimulatedRecorder
    """

    master: Master
    X: np.ndarray[Any, np.dtype[np.float64]]
    recorder: SimulatedRecorder


def simulate(scenario: Scenario, out: str | os.PathLike[str] | None = None) -> Outcome:
    """Simulate a run; return its outcome.

    Parameters
    ----------
    scenario : Scenario
    out : path, optional
        Directory for records, for ``cec-mpi report``.

    Raises
    ------
    InputError
        The scenario is inconsistent.
    InfeasibleError
        Too few machines take part.

    Examples
    --------
    Any three of six machines suffice; the last has twice the speed of the others:

    >>> from cec_mpi.runtime.options.session import SessionOptions
    >>> options = SessionOptions(speeds=(1, 1, 1, 1, 1, 2), emulate_speeds=(1, 1, 1, 1, 1, 2))
    >>> scenario = Scenario(
    ...     machines=6, recovery=3, rows=3_000_000, columns=1000, options=options, steps=10
    ... )
    >>> outcome = simulate(scenario)
    >>> outcome.steps, round(outcome.seconds)
    (10, 31)
    """
    if scenario.steps is None and scenario.seconds is None:
        raise InputError("a simulation needs a number of steps, or of seconds")
    directory = None if out is None else as_path(out)
    with nullcontext() if directory is None else remove_if_rejected(directory):
        if directory is not None:
            prepare_directory(directory, allow_existing=False)
        return _run_simulation(scenario, directory)


def _run_simulation(scenario: Scenario, directory: Path | None) -> Outcome:
    """Simulate a run; write its records to a directory, if any."""
    with open_simulation(scenario) as run:
        if directory is not None:
            move_results_aside(directory)
            discard_earlier_results(directory)
        recorder = run.recorder
        lines = nullcontext() if directory is None else open_text(directory / STEPS, append=False)
        with lines as stream:
            if stream is not None:
                recorder.write_to(stream)
            error = _run_steps(scenario, run)
            recorder.finish()
        outcome = recorder.outcome(error)
        if directory is not None:
            summary = {"version": SUMMARY_VERSION, "task": TASK, "seconds": outcome.seconds}
            text = json.dumps(summary | recorder.summary() | {"warnings": []}, indent=2)
            with convert_to_results_error(directory / SUMMARY):
                publish(directory / SUMMARY, f"{text}\n".encode())
    return outcome


def _run_steps(scenario: Scenario, run: SimulatedRun) -> CecError | None:
    """Run the steps of a scenario; return the error that ended them early, or None."""
    rng = np.random.default_rng(scenario.options.seed)
    w, v = (rng.standard_normal(size) for size in reversed(run.X.shape))
    clock, steps = run.recorder.hub.clock, 0
    try:
        while scenario.steps is None or steps < scenario.steps:
            if scenario.adjoint and steps % 2:
                run.master.rmatvec(v)
            else:
                run.master.matvec(w)
            steps += 1
            if clock.monotonic() >= scenario.max_seconds:
                break
    except _DurationReachedError:
        pass
    except (InfeasibleError, MachineError) as error:
        return error
    return None


@contextmanager
def open_simulation(scenario: Scenario) -> Iterator[SimulatedRun]:
    """Open the store of a scenario on simulated machines, in a context.

    Raises
    ------
    CecError
        See `simulate`.
    """
    store = make_store(scenario)
    options = _complete_emulation(scenario, store)
    elastic = options.is_elastic or bool(scenario.machine_events) or scenario.lost_when_away
    for event in scenario.machine_events:
        if not 1 <= event.machine <= scenario.machines or not 0 <= event.seconds < math.inf:
            raise InputError(
                f"machine {event.machine} at {event.seconds} seconds: expected a machine from 1 to "
                f"{scenario.machines}, and a time of at least 0"
            )
    options = replace(options, elastic=elastic).validate(store.manifest)
    if polling_interval(options.availability):
        raise InputError("--availability-command cannot be used in a simulation")
    machine_events = scenario.machine_events
    if scenario.lost_when_away:
        options, process_events = _events_from_availability(scenario, options)
        machine_events += process_events
    assert options.emulate_speeds is not None
    assert options.emulate_base is not None
    hub = SimulatedHub(store, scenario.costs, elastic, options.wait, machine_events)
    noiseless_emulation = Emulation(
        options.emulate_speeds, options.emulate_base, 0.0, options.emulate_changes
    )
    recorder = SimulatedRecorder(hub, noiseless_emulation)
    mode = ExecutionMode.ELASTIC if elastic else ExecutionMode.SERIAL
    with ExitStack() as stack:
        processes = [ProcessInfo(HOST, 1, 1, 1)]
        session = Session(hub, processes, stack, mode=mode)
        master = session.open(store, options, recorder)
        recorder.schedule = session.schedule
        rows, columns = scenario.rows, scenario.columns
        recorder.header |= {"task": TASK, "planned_steps": scenario.steps}
        recorder.header["simulated"] = {"rows": rows, "columns": columns}

        def check_duration() -> None:
            if hub.clock.monotonic() >= scenario.max_seconds:
                raise _DurationReachedError

        session.check_limits = check_duration
        yield SimulatedRun(master, store.X, recorder)


def _events_from_availability(
    scenario: Scenario, options: SessionOptions
) -> tuple[SessionOptions, tuple[MachineEvent, ...]]:
    """Return options in which all machines are available, and the events of their processes."""
    tick_seconds = options.tick_seconds
    availability = options.availability.restrict_to(options.machines)
    if tick_seconds is None:
        raise InputError(
            "--lost-when-away needs the duration of a tick: expected --tick, or a trace with times"
        )
    if scenario.seconds is None and getattr(availability, "last_change", None) is None:
        raise InputError(
            "--lost-when-away needs --duration TIME, such as 24h, because the availability is "
            "random or repeats"
        )
    events = availability_events(availability, tick_seconds, scenario.max_seconds)
    machines = tuple(sorted({*availability.at(0), *(event.machine for event in events)}))
    all_machines = ListedAvailability([machines])
    return replace(options, availability=all_machines, machines=machines, tick_seconds=None), events


def make_store(scenario: Scenario) -> SimulatedStore:
    """Return a small in-memory store that represents the store of a scenario."""
    shape, speeds = (scenario.rows, scenario.columns), scenario.options.speeds
    common: dict[str, Any] = {
        "dtype": scenario.dtype,
        "read_rate": scenario.costs.source.rate,
        "seed": scenario.options.seed,
    }
    if not 0 < scenario.density <= 1:
        raise InputError(f"density {scenario.density}: expected a number above 0 and at most 1")
    if scenario.recovery is not None:
        return make_coded_store(
            shape, scenario.machines, scenario.recovery, code=scenario.code, **common
        )
    return make_copies_store(
        shape,
        scenario.machines,
        scenario.copies,
        nonzeros=max(1, round(scenario.density * scenario.rows * scenario.columns)),
        speeds=speeds if isinstance(speeds, tuple) else None,
        holders=scenario.holders,
        **common,
    )


def _complete_emulation(scenario: Scenario, store: SimulatedStore) -> SessionOptions:
    """Return options with the speed of each machine in rows per second, and without a cache."""
    options, base = scenario.options, scenario.options.emulate_base
    return replace(
        options,
        emulate_speeds=options.emulate_speeds or (1.0,) * scenario.machines,
        emulate_base=scenario.rate / store.row_bytes if base is None else base,
        cache=None,
        cache_limit=None,
    )
