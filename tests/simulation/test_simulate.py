"""Simulated runs: times calculated by hand, products compared with NumPy, and events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.plan.load import c_star_and_k_star
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.runtime.machine.emulation import SpeedChange
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.simulation.scenario import Costs, MachineEvent, Scenario, Source
from cec_mpi.simulation.simulate import open_simulation, simulate
from helpers.costs import FREE

SPEEDS = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)


def make_scenario(
    costs=FREE, rows=1260, steps=3, recovery=3, machine_events=(), adjoint=False, **options
):
    """Return a scenario with machines of the paper's speeds, in rows per second."""
    options = {"speeds": SPEEDS, "emulate_speeds": SPEEDS, "emulate_base": 1.0, **options}
    return Scenario(
        machines=len(options["emulate_speeds"]),
        recovery=recovery,
        rows=rows,
        columns=10,
        options=SessionOptions(**options),
        costs=costs,
        steps=steps,
        machine_events=machine_events,
        adjoint=adjoint,
    )


@pytest.mark.parametrize("elastic", [False, True])
def test_steps_take_the_time_of_theorem_1(elastic):
    outcome = simulate(make_scenario(elastic=elastic))
    level, _ = c_star_and_k_star(SPEEDS, 3)
    assert outcome.steps == 3
    assert outcome.seconds == pytest.approx(3 * level * 420, rel=1e-3)
    assert outcome.excess_seconds == pytest.approx(0, abs=0.5)
    assert sum(outcome.machine_seconds) == pytest.approx(6 * outcome.seconds)
    assert outcome.bytes_read == 3 * 420 * 10 * 8


@pytest.mark.parametrize("elastic", [False, True])
def test_times_are_proportional_to_the_rows(elastic):
    few, many = (simulate(make_scenario(elastic=elastic, rows=n)) for n in (1260, 1_260_000))
    assert many.seconds == pytest.approx(1000 * few.seconds, rel=1e-2)
    assert many.bytes_read == pytest.approx(1000 * few.bytes_read, rel=1e-2)


@pytest.mark.parametrize("elastic", [False, True])
def test_machines_read_from_one_server_one_after_the_other(elastic):
    """At equal speeds each of 6 machines reads half of its shard, a sixth of X."""
    size = 6000 * 800
    options = SessionOptions(emulate_base=1e9, elastic=elastic)
    shape = {"machines": 6, "recovery": 3, "rows": 6000, "columns": 100, "steps": 1}
    for source, seconds in (
        (Source(1e6), size / 1e6),
        (Source(1e6, is_shared=False), size / 6 / 1e6),
    ):
        outcome = simulate(Scenario(**shape, options=options, costs=replace(FREE, source=source)))
        assert outcome.seconds == pytest.approx(seconds, rel=1e-3)
        assert outcome.bytes_read == size


def test_a_step_takes_the_sum_of_its_costs():
    costs = replace(FREE, latency=1, product_overhead=5, step_overhead=7, decode=1)
    seconds = simulate(make_scenario(costs, steps=1)).seconds
    # Announce with a short w along a tree of depth 3, answer, call, master, and decode q numbers.
    assert seconds == pytest.approx(70 + 3 + 1 + 5 + 7 + 1260 * (25 + 3), rel=1e-2)


def test_time_passes_while_too_few_machines_are_available():
    available = ListedAvailability([(1, 2, 3, 4, 5, 6), (1, 2), (1, 2), (1, 2, 3, 4, 5, 6)])
    outcome = simulate(make_scenario(availability=available, tick_seconds=80.0, wait=True, steps=2))
    # The first step ends at 70, the second begins there; the third finds too few until 240.
    assert outcome.seconds == pytest.approx(140, rel=1e-2)
    outcome = simulate(make_scenario(availability=available, tick_seconds=80.0, wait=True))
    assert outcome.waiting_seconds == pytest.approx(100, rel=1e-2)
    assert outcome.seconds == pytest.approx(310, rel=1e-2)
    assert sum(outcome.machine_seconds) == pytest.approx(6 * 210 + 2 * 100, rel=1e-2)


def test_a_loss_ends_lockstep_and_not_an_elastic_run():
    outcome = simulate(make_scenario(inject="kill:2@1"))
    assert outcome.steps == 1
    assert outcome.end_reason == "machine 2 is lost in step 1, which ends a lockstep run"
    outcome = simulate(make_scenario(inject="kill:2@1", elastic=True))
    assert (outcome.steps, outcome.end_reason) == (3, "")
    assert outcome.events["lost"] == 1


def test_machines_count_until_the_moment_of_their_loss():
    machine_events = (MachineEvent(35.0, 2, "lost"), MachineEvent(60.0, 2, "joins"))
    for events, absence in ((machine_events[:1], None), (machine_events, 25.0)):
        outcome = simulate(make_scenario(machine_events=events, steps=1))
        assert outcome.seconds > 70
        assert outcome.events["lost"] == 1
        assert outcome.events.get("joined", 0) == len(events) - 1
        expected = 35.0 if absence is None else outcome.seconds - absence
        assert outcome.machine_seconds[1] == pytest.approx(expected, rel=1e-3)
        assert outcome.machine_seconds[0] == pytest.approx(outcome.seconds)


def test_processes_end_when_availability_takes_machines_away():
    available = ListedAvailability([(1, 2, 3, 4, 5, 6)] * 2 + [(1, 2)] * 2 + [(1, 2, 4, 5, 6)])
    scenario = make_scenario(availability=available, tick_seconds=100.0, wait=True, steps=6)
    idle, lost = simulate(scenario), simulate(replace(scenario, lost_when_away=True))
    assert idle.events == {}
    assert (lost.events["lost"], lost.events["joined"], lost.steps) == (4, 3, 6)
    assert lost.bytes_read > idle.bytes_read
    assert lost.seconds > idle.seconds  # the step at 200 does not end before 400
    with pytest.raises(InputError, match="needs the duration of a tick"):
        simulate(replace(make_scenario(availability=available), lost_when_away=True))


def test_a_run_waits_for_machines_that_will_join():
    machine_events = tuple(MachineEvent(500.0, n, "joins") for n in (3, 4, 5, 6))
    outcome = simulate(make_scenario(machine_events=machine_events, wait=True))
    assert outcome.waiting_seconds == pytest.approx(500.0, rel=1e-3)
    assert outcome.seconds == pytest.approx(500 + 3 * 70, rel=1e-2)


def test_a_lost_machine_that_joins_again_is_waited_for_if_no_other_will_be_available():
    machine_events = (MachineEvent(100.0, 3, "lost"), MachineEvent(1000.0, 3, "joins"))
    available = ListedAvailability([(1, 2, 3)])
    options = {"availability": available, "tick_seconds": 10.0, "wait": True}
    outcome = simulate(make_scenario(machine_events=machine_events, **options))
    assert (outcome.steps, outcome.end_reason) == (3, "")
    outcome = simulate(make_scenario(machine_events=machine_events[:1], **options))
    assert "a step needs 3; not reachable: 3" in outcome.end_reason


def test_a_silent_machine_is_late_and_unresponsive():
    outcome = simulate(make_scenario(inject="stop:2@1", elastic=True, steps=30, deadline="x2"))
    assert (outcome.steps, outcome.events["late"], outcome.events["unresponsive"]) == (30, 1, 1)


@pytest.mark.parametrize("stragglers", [0, 2])
def test_machines_that_take_minutes_are_not_unresponsive(stragglers):
    options = {"speeds": "learn", "emulate_base": 0.1, "emulate_noise": 0.5}
    outcome = simulate(make_scenario(elastic=True, stragglers=stragglers, **options))
    assert (outcome.steps, outcome.events) == (3, {})


def test_speeds_are_learned_and_change():
    learned = simulate(make_scenario(speeds="learn", steps=20))
    assert learned.seconds == pytest.approx(20 * 70, rel=0.05)
    changes = (SpeedChange(10, 6, 0.25),)
    slower = simulate(make_scenario(speeds="learn", steps=20, emulate_changes=changes))
    assert slower.seconds > 1.1 * learned.seconds


def test_a_run_ends_at_its_time_limit():
    scenario = make_scenario(steps=None)
    outcome = simulate(replace(scenario, seconds=700.0))
    assert outcome.steps == 10
    assert outcome.seconds == pytest.approx(700, rel=1e-2)


@pytest.mark.parametrize("elastic", [False, True])
def test_records_are_those_of_a_run(tmp_path, elastic):
    outcome = simulate(make_scenario(Costs(), elastic=elastic), tmp_path / "out")
    header, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert header["simulated"] == {"rows": 1260, "columns": 10}
    assert len(steps) == outcome.steps == 3
    assert sum(sum(step["load_bytes"]) for step in steps) == outcome.bytes_read
    assert steps[0]["payload_bytes"]["collect"] == 1260 * 8


def test_replicas_take_the_time_of_their_rows():
    coded = make_scenario(rows=1_000_000, steps=4, emulate_base=1e5)
    scenario = replace(coded, recovery=None, copies=3, density=0.5)
    outcome = simulate(scenario)
    assert outcome.seconds == pytest.approx(4 * 1e6 / (sum(SPEEDS) * 1e5), rel=0.03)
    assert simulate(replace(scenario, options=replace(scenario.options, elastic=True))).events == {}
    assert outcome.bytes_read == pytest.approx(1e6 * (5 * 12 + 4), rel=0.05)


def test_replicas_are_where_encode_puts_them_for_these_speeds():
    speeds = (1.0, 1.0, 1.0, 1.0, 1.0, 10.0)
    fields = {"machines": 6, "copies": 2, "rows": 60_000, "columns": 50, "steps": 4, "costs": FREE}

    def seconds(assumed_speeds):
        options = SessionOptions(emulate_speeds=speeds, speeds=assumed_speeds, emulate_base=1e3)
        return simulate(Scenario(**fields, options=options)).seconds

    assert seconds(speeds) == pytest.approx(4 * 60_000 / (sum(speeds) * 1e3), rel=0.05)
    assert seconds("learn") > 1.2 * seconds(speeds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": None}, "a simulation needs a number of steps, or of seconds"),
        ({"recovery": 7}, "recovery 7: expected 1 to 6"),
        ({"rows": 0}, "X with 0 rows"),
        ({"density": 7.0}, "density 7.0: expected a number above 0 and at most 1"),
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"machine_events": (MachineEvent(0.0, 9, "lost"),)}, "machine 9 at 0.0 seconds"),
    ],
)
def test_invalid_scenarios_are_rejected(change, message):
    with pytest.raises(InputError, match=message):
        simulate(replace(make_scenario(), **change))


def test_too_few_machines_from_the_beginning_are_refused():
    with pytest.raises(InfeasibleError, match="2 machines take part"):
        simulate(make_scenario(machines=(1, 2)))


@st.composite
def scenarios(draw):
    """Draw scenarios: a code or copies, machines available at each tick, losses and joins."""
    machines = draw(st.integers(2, 7))
    recovery = draw(st.integers(1, machines))
    is_coded = draw(st.booleans())
    everyone = st.sets(st.integers(1, machines), min_size=recovery)
    ticks = draw(st.lists(everyone, min_size=1, max_size=5))
    times = st.lists(st.floats(0, 300), max_size=3, unique=True)
    lost = draw(st.sets(st.integers(1, machines), max_size=machines - recovery))
    machine_events = []
    for n in sorted(lost):
        kinds = draw(st.sampled_from([("lost", "joins"), ("joins", "lost")]))
        times_of_machine = sorted(draw(times))
        machine_events += [MachineEvent(t, n, kinds[k % 2]) for k, t in enumerate(times_of_machine)]
    speeds = draw(st.lists(st.floats(0.5, 4), min_size=machines, max_size=machines))
    elastic = bool(machine_events) or draw(st.booleans())
    options = {
        "availability": ListedAvailability(ticks),
        "tick_seconds": 40.0 if machine_events else draw(st.sampled_from([None, 40.0])),
        "emulate_speeds": tuple(speeds),
        "speeds": draw(st.sampled_from(["learn", (1.0,) * machines])),
        "emulate_noise": draw(st.sampled_from([0.0, 0.3])),
        "elastic": elastic,
        "stragglers": draw(st.integers(0, machines - recovery)) if elastic else 0,
        "wait": True,
    }
    rows = draw(st.integers(recovery, 60))
    scenario = make_scenario(Costs(), rows, None, recovery, tuple(machine_events), **options)
    if is_coded:
        return scenario
    return replace(scenario, recovery=None, copies=machines - recovery + 1, density=0.2)


@settings(max_examples=40, deadline=None)
@given(scenarios())
def test_products_are_those_of_numpy_whatever_happens(scenario):
    with open_simulation(scenario) as run:
        X, rng = run.X, np.random.default_rng(1)
        for _ in range(3):
            w, v = rng.standard_normal(X.shape[1]), rng.standard_normal(X.shape[0])
            try:
                products = run.master.matvec(w), run.master.rmatvec(v)
            except InfeasibleError:  # too few machines remain
                return
            for product, expected in zip(products, (X @ w, X.T @ v), strict=True):
                np.testing.assert_allclose(product, expected, atol=1e-8 * max(1, np.abs(v).sum()))
