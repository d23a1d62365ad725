"""Simulate a run."""

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
from cec_mpi.runtime.availability.models import Listed, seconds_between
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.master.master import Master
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.places import Place
from cec_mpi.runtime.records.directory import (
    STEPS,
    SUMMARY,
    SUMMARY_VERSION,
    keep_results,
    prepare_directory,
    removed_if_refused,
    set_results_aside,
)
from cec_mpi.runtime.session.session import Running, Session
from cec_mpi.simulation.hub import SimulatedHub
from cec_mpi.simulation.recording import SimulatedRecorder
from cec_mpi.simulation.scenario import Happening, Outcome, Scenario, happenings_of
from cec_mpi.simulation.store import SimulatedStore, coded_store, replicated_store
from cec_mpi.store.files.durable import publish
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.saving import open_lines, writing

HOST = "simulated"
TASK = "simulate"


class _OverError(Exception):
    """The time of the run is over."""


@dataclass(frozen=True)
class Simulated:
    """A simulated run before its first step.

    Attributes
    ----------
    master : Master
        Its products are those of `X`, and take simulated time.
    X : (q, r) ndarray
        The few rows that stand for those of the scenario.
    recorder : SimulatedRecorder
    """

    master: Master
    X: np.ndarray[Any, np.dtype[np.float64]]
    recorder: SimulatedRecorder


def simulate(scenario: Scenario, out: str | os.PathLike[str] | None = None) -> Outcome:
    """Simulate a run, and return what came of it.

    Parameters
    ----------
    scenario : Scenario
    out : path, optional
        Directory for the records, which ``cec-mpi report`` shows.

    Raises
    ------
    InputError
        The scenario does not fit together.
    InfeasibleError
        Too few machines take part.

    Examples
    --------
    Six machines of which any three are enough; the fastest has twice the speed of the others:

    >>> from cec_mpi.runtime.options.session import SessionOptions
    >>> options = SessionOptions(speeds=(1, 1, 1, 1, 1, 2), emulate_speeds=(1, 1, 1, 1, 1, 2))
    >>> scenario = Scenario(
    ...     machines=6, recovery=3, rows=3_000_000, columns=1000, options=options, steps=10
    ... )
    >>> outcome = simulate(scenario)
    >>> outcome.steps, round(outcome.seconds)
    (10, 14)
    """
    if scenario.steps is None and scenario.seconds is None:
        raise InputError("a simulation needs a number of steps, or of seconds")
    directory = None if out is None else as_path(out)
    with nullcontext() if directory is None else removed_if_refused(directory):
        if directory is not None:
            prepare_directory(directory, used=False)
        return _simulated(scenario, directory)


def _simulated(scenario: Scenario, directory: Path | None) -> Outcome:
    """Simulate a run, and write its records to a directory."""
    with opened(scenario) as run:
        if directory is not None:
            set_results_aside(directory)
            keep_results(directory)
        recorder = run.recorder
        lines = nullcontext() if directory is None else open_lines(directory / STEPS, more=False)
        with lines as stream:
            if stream is not None:
                recorder.write_to(stream)
            ended = _make_steps(scenario, run)
            recorder.end()
        outcome = recorder.outcome(ended)
        if directory is not None:
            own = {"version": SUMMARY_VERSION, "task": TASK, "seconds": outcome.seconds}
            text = json.dumps(own | recorder.summary() | {"warnings": []}, indent=2)
            with writing(directory / SUMMARY):
                publish(directory / SUMMARY, f"{text}\n".encode())
    return outcome


def _make_steps(scenario: Scenario, run: Simulated) -> CecError | None:
    """Make the steps of a scenario; returns the error that ended them before their time."""
    rng = np.random.default_rng(scenario.options.seed)
    w, v = (rng.standard_normal(size) for size in reversed(run.X.shape))
    limit = float("inf") if scenario.seconds is None else scenario.seconds
    clock, made = run.recorder.hub.clock, 0
    try:
        while scenario.steps is None or made < scenario.steps:
            if scenario.adjoint and made % 2:
                run.master.rmatvec(v)
            else:
                run.master.matvec(w)
            made += 1
            if clock.monotonic() >= limit:
                break
    except _OverError:
        pass
    except (InfeasibleError, MachineError) as error:
        return error
    return None


@contextmanager
def opened(scenario: Scenario) -> Iterator[Simulated]:
    """Open the store of a scenario on simulated machines.

    Raises
    ------
    CecError
        See `simulate`.
    """
    store, options = store_of(scenario), scenario.options
    options = _with_speeds(scenario, options, store)
    elastic = options.is_elastic or bool(scenario.happenings) or scenario.loses
    for each in scenario.happenings:
        if not 1 <= each.machine <= scenario.machines or not 0 <= each.seconds < float("inf"):
            raise InputError(
                f"machine {each.machine} at {each.seconds} seconds: expected a machine from 1 to "
                f"{scenario.machines}, and a time of at least 0"
            )
    options = replace(options, elastic=elastic).checked(store.manifest)
    if seconds_between(options.availability):
        raise InputError("a command cannot be asked for availability in a simulation")
    happenings = scenario.happenings
    if scenario.loses:
        options, more = _lost_when_away(scenario, options)
        happenings += more
    assert options.emulate_speeds is not None
    assert options.emulate_base is not None
    hub = SimulatedHub(store, scenario.costs, elastic, options.wait, happenings)
    given = options.emulate_speeds, options.emulate_base, 0.0, options.emulate_changes
    recorder = SimulatedRecorder(hub, Emulation(*given))
    running = Running.ELASTIC if elastic else Running.ALONE
    with ExitStack() as kept:
        places = [Place(HOST, 1, 1, 1)]
        session = Session(hub, places, "", kept, running=running)
        master = session.open(store, options, recorder)
        recorder.schedule = session.schedule
        rows, columns = scenario.rows, scenario.columns
        recorder.common |= {"task": TASK, "planned_steps": scenario.steps}
        recorder.common["simulated"] = {"rows": rows, "columns": columns}
        limit = float("inf") if scenario.seconds is None else scenario.seconds

        def gate() -> None:
            if hub.clock.monotonic() >= limit:
                raise _OverError

        session.check_run = gate
        yield Simulated(master, store.X, recorder)


def _lost_when_away(
    scenario: Scenario, options: SessionOptions
) -> tuple[SessionOptions, tuple[Happening, ...]]:
    """Return options with all machines that come at some time, and when they are lost and join."""
    length, limit = options.tick_seconds, scenario.seconds
    availability = options.availability.among(options.machines)
    if length is None:
        raise InputError(
            "machines that are lost when they are away need ticks with a duration (--tick), or a "
            "trace with times"
        )
    if limit is None and getattr(availability, "last", None) is None:
        raise InputError("this availability changes for ever: expected a duration (--duration)")
    found = happenings_of(availability, length, math.inf if limit is None else limit)
    come = tuple(sorted({*availability.at(0), *(each.machine for each in found)}))
    everyone = Listed([come])
    return replace(options, availability=everyone, machines=come, tick_seconds=None), found


def store_of(scenario: Scenario) -> SimulatedStore:
    """Return the store in memory that stands for that of a scenario."""
    shape, disk = (scenario.rows, scenario.columns), scenario.costs.disk
    given, seed = (scenario.dtype, disk), scenario.options.seed
    if not 0 < scenario.density <= 1:
        raise InputError(f"density {scenario.density}: expected a number above 0 and at most 1")
    if scenario.recovery is not None:
        known = shape, scenario.machines, scenario.recovery
        return coded_store(*known, *given, scenario.code, seed=seed)
    nonzeros = max(1, round(scenario.density * scenario.rows * scenario.columns))
    known = shape, scenario.machines, scenario.copies
    speeds = scenario.options.speeds
    known_speeds = speeds if isinstance(speeds, tuple) else None  # as encode is told
    return replicated_store(
        *known, nonzeros, *given, known_speeds, holders=scenario.holders, seed=seed
    )


def _with_speeds(
    scenario: Scenario, options: SessionOptions, store: SimulatedStore
) -> SessionOptions:
    """Return options with the true speeds of machines, and nothing that belongs to files."""
    speeds, base = options.emulate_speeds, options.emulate_base
    return replace(
        options,
        emulate_speeds=speeds or (1.0,) * scenario.machines,
        emulate_base=scenario.rate / store.row_bytes if base is None else base,
        cache=None,
        cache_limit=None,
    )
