"""Replayed runs take as long as simulated ones, or as calculated by hand."""

from __future__ import annotations

import pytest

from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.replay import CodedScheme, TimeModel, replay, step_traffic
from cec_mpi.simulation.scenario import Costs, Scenario, Source
from cec_mpi.simulation.simulate import simulate

LOCAL = Source(1e12, is_shared=False)
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
    sizes = {"machines": 6, "rows": 3_000_000, "columns": 1000, "steps": 150}
    costs = Costs(source=LOCAL)
    scenario = Scenario(**sizes, **SHAPES[shape], options=options, costs=costs)
    model = TimeModel(scenario)
    replayed = replay(model, CodedScheme(model))
    simulated = simulate(scenario)
    assert replayed.steps == simulated.steps == 150
    assert replayed.seconds == pytest.approx(simulated.seconds, rel=0.03)
    assert replayed.waiting_seconds == pytest.approx(simulated.waiting_seconds, abs=2)
    tolerance = {"rel": 0.1, "abs": 0.02 * replayed.seconds}
    assert replayed.excess_seconds == pytest.approx(simulated.excess_seconds, **tolerance)


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("recovery", [3, None])
def test_adjoint_steps_take_as_long_as_in_a_simulation(recovery, elastic):
    options = SessionOptions(emulate_speeds=SPEEDS, speeds=SPEEDS, elastic=elastic)
    sizes = {"machines": 6, "recovery": recovery, "rows": 600, "columns": 2_000_000, "steps": 20}
    # Columns take most of the time.
    costs = Costs(source=LOCAL, bandwidth=1e8, decode=1e-7)
    for adjoint in (False, True):
        scenario = Scenario(**sizes, adjoint=adjoint, options=options, costs=costs, rate=1e13)
        model = TimeModel(scenario)
        replayed = replay(model, CodedScheme(model))
        assert replayed.seconds == pytest.approx(simulate(scenario).seconds, rel=0.05)


@pytest.mark.parametrize(
    ("machines", "rows", "columns", "is_elastic", "messages", "copies_of_w"),
    [
        (7, 100, 100, False, 3 + 1, 3),  # along a tree
        (8, 100, 100, False, 4 + 1, 4),
        (6, 100, 10_000, False, 2 * 3 + 1, 1),  # in parts that machines pass on
        (6, 100_000, 100, False, 3 + 2, 3),
        (6, 1000, 10_000, True, 2, 6),  # to each machine
    ],
)
def test_messages_and_bytes_of_a_step_are_counted(
    machines, rows, columns, is_elastic, messages, copies_of_w
):
    traffic = 8 * (copies_of_w * columns + rows)
    assert step_traffic(machines, rows, columns, is_elastic) == (messages, traffic)


def test_the_overhead_of_a_step_is_the_sum_of_its_costs():
    # Six machines: three messages in a row for header and w, one for the answers.
    costs = Costs(
        latency=1e-4,
        bandwidth=1e8,
        product_overhead=5e-3,
        step_overhead=1e-3,
        machine_overhead=1e-4,
        decode=1e-9,
    )
    model = TimeModel(Scenario(machines=6, recovery=3, rows=1000, columns=500, costs=costs))
    messages, overheads = 4e-4 + 8 * (3 * 500 + 1000) / 1e8, 5e-3 + 1e-3 + 6e-4
    decoding = 1000 * (25 + 3) * 1e-9
    assert model.overhead(6, 3) == pytest.approx(messages + overheads + decoding)


@pytest.mark.parametrize("copies", [1, 2, 3, 6])
def test_machines_hold_copies_by_their_speeds(copies):
    sizes = {"machines": 6, "copies": copies, "rows": 1000, "columns": 10, "density": 0.3}
    model = TimeModel(Scenario(**sizes, options=SessionOptions(emulate_speeds=SPEEDS)))
    scheme = CodedScheme(model)
    assert scheme.bytes_held.sum() == pytest.approx(copies * model.matrix_bytes)
    assert scheme.bytes_held.max() <= model.matrix_bytes * (1 + 1e-12)
    assert scheme.assign_rows(model.rates).sum() == pytest.approx(1000)
    assert scheme.min_machines == 7 - copies
