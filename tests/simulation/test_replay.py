"""The replay of steps in one go takes as long as a simulation with the objects of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cec_mpi.options.session import SessionOptions
from cec_mpi.simulation.replay import Model, replay
from cec_mpi.simulation.scenario import Costs, Scenario
from cec_mpi.simulation.schemes import Coded, Replicated
from cec_mpi.simulation.simulate import simulate

SPEEDS = (1.0, 1.0, 2.0, 2.0, 3.0, 3.0)
TICKS = [{1, 2, 3, 4, 5, 6}, {1, 2, 4, 5}, {2, 3, 4, 5, 6}, {1, 6}, {1, 2, 3, 4, 5, 6}]
SHAPES = {
    "code": {"recovery": 3},
    "largest code": {"recovery": 6},
    "copies": {"recovery": None, "copies": 3, "density": 0.1},
    "float32": {"recovery": 2, "dtype": "float32"},
}


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_times_are_those_of_a_simulation(shape, elastic):
    options = SessionOptions(
        availability=TICKS if shape != "largest code" else TICKS[:1],
        tick_seconds=40.0,
        wait=True,
        emulate_speeds=SPEEDS,
        speeds=SPEEDS,
        elastic=elastic,
    )
    given = {"machines": 6, "rows": 3_000_000, "columns": 1000, "steps": 150, "adjoint": False}
    scenario = Scenario(**given, **SHAPES[shape], options=options, costs=Costs(disk=1e12))
    model = Model(scenario)
    replayed = replay(model, (Coded if scenario.recovery else Replicated)(model))
    simulated = simulate(scenario)
    assert replayed.steps == simulated.steps == 150
    assert replayed.seconds == pytest.approx(simulated.seconds, rel=0.03)
    assert replayed.waiting == pytest.approx(simulated.waiting, abs=2)
    assert replayed.over == pytest.approx(simulated.over, rel=0.1, abs=0.02 * replayed.seconds)


@pytest.mark.parametrize("stragglers", [0, 1, 2])
def test_times_of_machines_that_vary_are_those_of_a_simulation(stragglers):
    options = SessionOptions(
        emulate_speeds=SPEEDS,
        speeds=SPEEDS,
        emulate_noise=0.2,
        stragglers=stragglers,
        elastic=True,
    )
    given = {"machines": 6, "recovery": 3, "rows": 3_000_000, "columns": 1000, "steps": 150}
    scenario = Scenario(**given, options=options, costs=Costs(disk=1e12))
    model = Model(scenario, draws=1000)
    replayed = replay(model, Coded(model)).seconds
    assert replayed == pytest.approx(simulate(scenario).seconds, rel=0.1)


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("recovery", [3, None])
def test_adjoint_steps_take_as_long_as_in_a_simulation(recovery, elastic):
    options = SessionOptions(emulate_speeds=SPEEDS, speeds=SPEEDS, elastic=elastic)
    given = {"machines": 6, "recovery": recovery, "rows": 600, "columns": 2_000_000, "steps": 20}
    costs = Costs(disk=1e12, bandwidth=1e8, decode=1e-7)  # columns take most of the time
    scenario = Scenario(**given, options=options, costs=costs, rate=1e13)
    model = Model(scenario)
    scheme = (Coded if recovery else Replicated)(model)
    both = [
        [run(replace(scenario, adjoint=adjoint)).seconds for adjoint in (False, True)]
        for run in (simulate, lambda asked: replay(Model(asked), scheme))
    ]
    assert both[0] == pytest.approx(both[1], rel=0.05)
