"""Times of simpler schemes on the same machines, compared with calculations by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.machine.emulation import SpeedChange
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.baselines import (
    BASELINES,
    EqualShares,
    FastestMachines,
    RestartOnChange,
)
from cec_mpi.simulation.compare import compare
from cec_mpi.simulation.replay import CodedScheme, TimeModel, replay
from cec_mpi.simulation.scenario import MachineEvent, Outcome, Scenario, Source
from helpers.costs import FREE

# 1200 rows of 1000 bytes; a machine of speed 1 computes 1000 rows in a second and reads 10,000.
COSTS = replace(FREE, source=Source(1e7, is_shared=False), process_start=3)
X = {"rows": 1200, "columns": 125, "rate": 1e6, "costs": COSTS}


def make_scenario(availability, speeds=(1.0, 1.0, 1.0, 2.0), recovery=2, **more):
    options = {"availability": availability, "emulate_speeds": speeds}
    options |= {name: more.pop(name) for name in list(more) if hasattr(SessionOptions, name)}
    fields = {"machines": len(speeds), "recovery": recovery, **X, "steps": 1, **more}
    return Scenario(options=SessionOptions(**options), **fields)


def run(make_scheme, scenario, **more):
    model = TimeModel(scenario)
    return replay(model, make_scheme(model, **more))


def test_equal_shares_are_as_slow_as_the_slowest_machine():
    outcome = run(EqualShares, make_scenario([{1, 2, 3, 4}], steps=10))
    assert outcome.seconds == pytest.approx(10 * 0.3 + 300 / 10_000)
    assert outcome.excess_seconds == pytest.approx(10 * (0.3 - 1200 / 5000) + 0.03)
    assert outcome.bytes_read == 1_200_000
    assert sum(outcome.machine_seconds) == pytest.approx(4 * outcome.seconds)
    assert outcome.cost(3600.0) == pytest.approx(sum(outcome.machine_seconds))


def test_equal_shares_move_as_few_bytes_as_they_can():
    slow = replace(COSTS, source=Source(1e5))  # one server for all machines
    ticks = [{1, 2, 3, 4}, {1, 2, 3}, {1, 2, 3, 4}]  # 300,000 bytes move at each event
    changing = run(EqualShares, make_scenario(ticks, steps=3, costs=slow))
    single = [run(EqualShares, make_scenario([machines], costs=slow)).seconds for machines in ticks]
    assert changing.seconds == pytest.approx(sum(single) - 3 * 12.0 + 12.0 + 2 * 3.0)
    assert changing.events == {"moved": 2}


def test_the_fastest_machines_compute_whole_shards_and_read_them_once():
    ticks = [{1, 2, 3, 4}, {1, 2, 3}, {2, 3, 4}]
    outcome = run(FastestMachines, make_scenario(ticks, steps=3))
    assert outcome.seconds == pytest.approx(3 * 0.6 + 2 * 0.06)  # 4 and 1, 1 and 2, 4 and 2
    assert outcome.bytes_read == 3 * 600_000


def test_a_loss_costs_the_steps_since_the_last_checkpoint():
    # Four machines take 0.24 s for a step, and three 0.4 s; they read X in about 0.04 s.
    loss = make_scenario([{1, 2, 3, 4}, {1, 2, 3}], steps=12, tick_seconds=2.0)
    rare = run(RestartOnChange, loss, checkpoint_seconds=1000)
    often = run(RestartOnChange, loss, checkpoint_seconds=0)
    # Nine steps begin before the loss.
    reading = 0.048
    assert often.seconds == pytest.approx(reading + 9 * 0.24 + 3 + 0.04 + 3 * 0.4)
    assert rare.seconds == pytest.approx(reading + 9 * 0.24 + 3 + 0.04 + 12 * 0.4)
    assert rare.steps == often.steps == 12
    assert rare.events == {"restarted": 1}
    assert rare.excess_seconds == pytest.approx(rare.seconds - 12 * 0.4)


def test_a_machine_that_joins_costs_a_restart_but_no_steps():
    scenario = make_scenario([{1, 2, 3}, {1, 2, 3, 4}], steps=12, tick_seconds=2.0)
    outcome = run(RestartOnChange, scenario, checkpoint_seconds=1000)
    assert outcome.seconds == pytest.approx(0.04 + 5 * 0.4 + 3 + 0.048 + 7 * 0.24)
    assert outcome.bytes_read == 2 * 1_200_000


def test_machines_that_were_absent_while_a_step_waited_have_left():
    # A step takes 0.4 s: five begin before all machines are absent, from 2 s to 6 s.
    ticks = [{1, 2, 3}, set(), set(), {1, 2, 3}]
    scenario = make_scenario(ticks, (1.0, 1.0, 1.0), tick_seconds=2.0, wait=True, steps=12)
    outcome = run(RestartOnChange, scenario, checkpoint_seconds=1000)
    assert outcome.events == {"restarted": 1, "waits": 1}
    assert outcome.bytes_read == 2 * 1_200_000
    assert outcome.seconds == pytest.approx(6 + 3 + 0.04 + 12 * 0.4)
    assert run(EqualShares, scenario).events == {"moved": 1, "waits": 1}
    assert run(CodedScheme, scenario).bytes_read == 2 * 3 * 600_000


def test_the_fastest_machines_read_again_only_if_processes_end():
    ticks = [{1, 2, 3}, {3}, {1, 2, 3}]
    scenario = make_scenario(ticks, (1.0, 1.0, 1.0), tick_seconds=2.0, wait=True, steps=12)
    assert run(FastestMachines, scenario).bytes_read == 2 * 600_000
    assert run(FastestMachines, replace(scenario, lost_when_away=True)).bytes_read == 4 * 600_000


@pytest.mark.parametrize("name", BASELINES)
def test_too_few_machines_are_waited_for_or_end_the_run(name):
    ticks = [{1, 2}, {1}, {1, 2}]
    options = {"tick_seconds": 10.0, "steps": 30}
    waiting = run(BASELINES[name], make_scenario(ticks, wait=True, **options))
    assert 9 < waiting.waiting_seconds <= 10
    assert waiting.steps == 30
    assert waiting.end_reason == ""
    ending = run(BASELINES[name], make_scenario(ticks, **options))
    assert ending.steps < 30
    assert ending.end_reason == "1 machine is available at tick 1: a step needs 2"
    never = run(BASELINES[name], make_scenario(ticks[:2], wait=True, **options))
    assert never.end_reason == ending.end_reason


@pytest.mark.parametrize("name", BASELINES)
def test_a_run_ends_at_its_time_limit(name):
    outcome = run(BASELINES[name], make_scenario([{1, 2, 3, 4}], steps=None, seconds=100.0))
    assert 100 <= outcome.seconds < 101
    assert outcome.steps > 100


@pytest.mark.parametrize("name", BASELINES)
def test_steps_are_as_long_without_ticks_as_within_one(name):
    scenario = make_scenario([{1, 2, 3, 4}], steps=100)
    without_ticks = run(BASELINES[name], scenario)
    ticking = replace(scenario, options=replace(scenario.options, tick_seconds=1e6))
    with_one_tick = run(BASELINES[name], ticking)
    assert with_one_tick.seconds == pytest.approx(without_ticks.seconds)
    assert (with_one_tick.steps, with_one_tick.bytes_read) == (100, without_ticks.bytes_read)
    assert with_one_tick.excess_seconds == pytest.approx(without_ticks.excess_seconds)


def test_a_sparse_x_costs_the_time_of_its_nonzeros():
    dense = run(RestartOnChange, make_scenario([{1, 2, 3, 4}]))
    sparse = make_scenario([{1, 2, 3, 4}], recovery=None, copies=2, density=0.01)
    outcome = run(RestartOnChange, sparse)
    assert outcome.bytes_read == pytest.approx(1200 * (1.25 * 12 + 4))
    assert outcome.seconds < 0.05 * dense.seconds


def test_the_fastest_machines_need_a_code():
    with pytest.raises(InputError, match="expected a scenario with a code"):
        run(FastestMachines, make_scenario([{1, 2, 3, 4}], recovery=None))


@pytest.mark.parametrize(
    "changes",
    [
        {"machine_events": (MachineEvent(1e-3, 2, "lost"),)},
        {"inject": "kill:2@1"},
        {"emulate_changes": (SpeedChange(2, 1, 0.5),)},
    ],
)
def test_baselines_refuse_what_they_cannot_replay(changes):
    outcomes = compare(make_scenario([{1, 2, 3, 4}], elastic=True, **changes))
    for name in BASELINES:
        assert isinstance(outcomes[name], InputError)
        assert "baselines cannot be combined with" in str(outcomes[name])
    assert isinstance(outcomes["heterogeneous"], Outcome)


@pytest.mark.parametrize(
    ("source", "restarting", "fastest"),
    [("server:1MB", 8, 8), ("each:1MB", 2, 4), ("local", 0.002, 0.004)],
)
def test_machines_read_from_the_source(call, tmp_path, source, restarting, fastest):
    """Restarting reads X, 8 MB, on four machines; the fastest two read a shard of 4 MB each."""
    words = "simulate --shape 10000,100 --machines 4 --recovery 2 --steps 1 --compare --json"
    code, out, _ = call([*words.split(), "--source", source], tmp_path)
    assert code == 0
    outcomes = json.loads(out)
    assert outcomes["restarting"]["seconds"] == pytest.approx(restarting, rel=0.01, abs=0.005)
    assert outcomes["fastest"]["seconds"] == pytest.approx(fastest, rel=0.01, abs=0.005)


@pytest.mark.parametrize("source", ["server", "each:fast"])
def test_a_source_needs_a_rate(call, tmp_path, source):
    words = "simulate --shape 10,10 --machines 4 --source"
    code, _, err = call([*words.split(), source], tmp_path)
    assert code == 2
    assert "expected local, server:RATE or each:RATE" in err
