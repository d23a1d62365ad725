"""Comparison of schemes on the same machines."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.simulation.baselines import BASELINES
from cec_mpi.simulation.replay import SchemeFactory, TimeModel, replay
from cec_mpi.simulation.scenario import Outcome, Scenario
from cec_mpi.simulation.simulate import simulate
from cec_mpi.text import plural

Outcomes = dict[str, Outcome | InputError | InfeasibleError]


def scheme_name(scenario: Scenario) -> str:
    """Return the name of the scheme of a scenario."""
    if scenario.recovery is None:
        return plural(scenario.copies, "copy")
    return scenario.options.scheme


def compare(scenario: Scenario, out: str | os.PathLike[str] | None = None) -> Outcomes:
    """Simulate a scenario, and other schemes on the same machines.

    For a code, these are the other load-balancing scheme (equal loads, or loads by speed) and as
    many copies as tolerate the same losses; for copies, a code. Then follow the `BASELINES`, which
    ignore noise. If another scheme is impossible, the result holds an error that says why.

    Parameters
    ----------
    scenario : Scenario
    out : path, optional
        Directory for the records of the scenario.
    """
    runs: dict[str, Callable[[], Outcome]] = {
        scheme_name(scenario): partial(simulate, scenario, out)
    }
    options = scenario.options
    if scenario.recovery is None:
        recovery = scenario.machines - scenario.copies + 1
        coded = replace(scenario, recovery=recovery, code=None)
        runs[f"code, L = {recovery}"] = partial(simulate, coded)
    else:
        other_scheme = "cyclic" if options.scheme == "heterogeneous" else "heterogeneous"
        runs[other_scheme] = partial(
            simulate,
            replace(scenario, options=replace(options, scheme=other_scheme)),  # type: ignore[arg-type]
        )
        copies = scenario.machines - scenario.recovery + 1
        replicated = replace(scenario, recovery=None, copies=copies, holders=None)
        runs[plural(copies, "copy")] = partial(simulate, replicated)
    for name, make_scheme in BASELINES.items():
        runs[name] = partial(_replay_baseline, make_scheme, scenario)
    outcomes: Outcomes = {}
    for name, run in runs.items():
        try:
            outcomes[name] = run()
        except (InputError, InfeasibleError) as error:
            if not outcomes:
                raise
            outcomes[name] = error
    return outcomes


def _replay_baseline(make_scheme: SchemeFactory, scenario: Scenario) -> Outcome:
    options = scenario.options
    if scenario.machine_events or options.inject or options.emulate_changes:
        raise InputError(
            "baselines cannot be combined with --lost, --joins, --inject or --emulate-change"
        )
    model = TimeModel(scenario)
    return replay(model, make_scheme(model))
