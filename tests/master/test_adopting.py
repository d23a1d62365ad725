"""Machines that take over shards of those that are away, in this process."""

from __future__ import annotations

from functools import partial
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cec_mpi
from cec_mpi.core.demand import CodedDemand
from cec_mpi.core.speeds import SpeedEstimator
from cec_mpi.core.step.product import Product
from cec_mpi.errors import InfeasibleError
from cec_mpi.roster import GivenUp, State
from cec_mpi.store.reader import open_store
from cec_mpi.store.shard import Mended
from cec_mpi.wire.jobs import Answered, AnswerRoom, Job
from cec_mpi.wire.orders import Report, reported
from helpers.elastic_here import Kept, master_of

MACHINES, RECOVERY, ROWS, COLUMNS = 6, 4, 80, 7
rng = np.random.default_rng(3)
W, V = rng.standard_normal((COLUMNS, 2)), rng.standard_normal((ROWS, 2))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("adopting")
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    cec_mpi.encode(X, path / "store", MACHINES, RECOVERY)
    return X, path / "store"


@pytest.fixture
def made(store):
    """X, what makes a master, and what it recorded."""
    X, path = store
    recorder = Kept()
    manifest = open_store(path).manifest
    return X, partial(master_of, path, manifest, recorder, adopt=True), recorder


def check(X, master, adjoint):
    if adjoint:
        np.testing.assert_allclose(master.rmatmat(V), X.T @ V, atol=1e-9)
    else:
        np.testing.assert_allclose(master.matmat(W), X @ W, atol=1e-9)


def adopted(recorder):
    events = (event for record in recorder.records for event in record.events)
    return [(event["adopted"], event["shard"]) for event in events if "adopted" in event]


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_step_ends_when_all_but_one_die_in_it(made, adjoint):
    X, make, recorder = made
    master, hub = make()
    hub.dying = {1, 2, 4, 5, 6}
    check(X, master, adjoint)
    taken = adopted(recorder)
    assert [machine for machine, _ in taken] == [3] * (RECOVERY - 1)
    assert len({shard for _, shard in taken} - {3}) == RECOVERY - 1
    (event, *_) = (event for event in recorder.records[0].events if "adopted" in event)
    assert event["bytes"] > 0
    assert event["seconds"] > 0
    check(X, master, not adjoint)
    assert len(adopted(recorder)) == RECOVERY - 1  # it has them already
    assert recorder.records[1].available == (3,)


@pytest.mark.parametrize("adjoint", [False, True])
def test_masks_that_leave_too_few_do_not_hold_up_a_step(made, adjoint):
    X, make, recorder = made
    master, _ = make(availability=[{2}, {2, 5}, {1, 2, 3, 4, 5, 6}, {6}], wait=True)
    for _ in range(4):
        check(X, master, adjoint)
    assert [record.available for record in recorder.records] == [
        (2,), (2, 5), (1, 2, 3, 4, 5, 6), (6,)
    ]  # fmt: skip
    assert [record.waited_ticks for record in recorder.records] == [0, 0, 0, 0]
    assert {machine for machine, _ in adopted(recorder)} == {2, 6}
    assert len(adopted(recorder)) == 2 * (RECOVERY - 1)


def test_who_comes_back_shares_the_rows_of_its_shard(made):
    """With equal speeds two machines of which one has all shards do half of the rows each."""
    X, make, recorder = made
    master, _ = make(availability=[{2}, {2, 5}, {1, 2}])
    check(X, master, False)
    first = {shard for _, shard in adopted(recorder)}
    check(X, master, False)
    if 5 in first:
        assert recorder.records[1].rows == [0, 20, 0, 0, 20, 0]
    check(X, master, False)
    assert recorder.records[2].rows[:2] == [20, 60]
    assert len(adopted(recorder)) == RECOVERY - 1


def test_a_shard_that_cannot_be_read_is_taken_over_by_another(made):
    X, make, recorder = made
    master, hub = make(availability=[{2, 3}])
    hub.unseen = lambda machine, shard: machine == 2
    check(X, master, False)
    assert {machine for machine, _ in adopted(recorder)} == {3}
    refused = [e for e in recorder.records[0].events if "not adopted" in e]
    assert {event["not adopted"] for event in refused} == {2}
    assert all(event["reason"] == "it raised" for event in refused)


def test_shards_that_nobody_sees_are_left_out(made):
    X, make, recorder = made
    master, hub = make(availability=[{2, 3}])
    hub.unseen = lambda machine, shard: shard in (1, 4)
    check(X, master, False)
    assert {shard for _, shard in adopted(recorder)} == {5, 6}
    master, hub = make(availability=[{2, 3}])
    hub.unseen = lambda machine, shard: shard in (1, 4, 5)
    with pytest.raises(InfeasibleError, match="2 machines are available at tick 0"):
        check(X, master, False)


def test_memory_limits_what_machines_take_over(made):
    X, make, recorder = made
    size = open_store(make.args[0]).manifest.shard_bytes
    master, _ = make(availability=[{2, 3}, {2}], memory_per_machine=2 * size)
    check(X, master, False)
    assert sorted(machine for machine, _ in adopted(recorder)) == [2, 3]
    with pytest.raises(InfeasibleError, match="1 machine is available at tick 1"):
        check(X, master, False)


def test_a_machine_that_dies_while_it_reads_is_done_without(made):
    X, make, recorder = made
    master, hub = make()
    hub.dying = {1, 2, 4}
    reading = []  # the first that takes over a shard

    def kills(job):
        if job.adopted is not None and not reading:
            reading.append(job.machine)
        return job.machine in reading

    hub.kills = kills
    check(X, master, False)
    assert {machine for machine, _ in adopted(recorder)} <= {3, 5, 6}.difference(reading)
    lost = [event["lost"] for event in recorder.records[0].events if "lost" in event]
    assert sorted(lost) == sorted([1, 2, 4, *reading])


def test_a_spare_in_its_place_has_its_own_shard_alone(made):
    X, make, recorder = made
    master, hub = make(spares=1)
    hub.dying = {1, 2, 4, 5}
    check(X, master, False)
    check(X, master, True)
    before = len(adopted(recorder))
    hub.dying = {3, 6}
    check(X, master, False)
    check(X, master, True)
    assert len(adopted(recorder)) > before


@pytest.mark.parametrize("options", [{"stragglers": 1}, {"stragglers": 1, "check": "parity"}])
def test_late_and_wrong_machines_are_done_without_too(made, options):
    X, make, _recorder = made
    master, hub = make(availability=[{1, 2, 3}], **options)
    check(X, master, False)
    check(X, master, True)
    placement = master.steps.placement
    assert placement.to_spare(RECOVERY, (1, 2, 3)) >= 1
    if "check" not in options:  # two machines cannot be compared: they have six shards, not eight
        hub.dying = {2}
        check(X, master, False)


def test_who_is_silent_while_it_reads_is_given_up_in_the_end(made):
    X, make, recorder = made
    master, hub = make(availability=[{1, 2}], deadline=0.05)
    ask = hub.ask

    def silent(job, content):
        hub.silent |= {1} if job.machine == 1 and job.adopted is not None else set()
        ask(job, content)

    hub.ask = silent
    check(X, master, False)
    assert hub.roster.state_of(1) is not State.IDLE
    words = {key for event in recorder.records[0].events for key in event}
    assert GivenUp.word in words
    assert {machine for machine, _ in adopted(recorder)} == {2}


def test_what_was_rebuilt_for_a_takeover_that_counts_no_more_is_not_told(made):
    """A machine that is given up while it rebuilds a shard answers in the end."""
    X, make, recorder = made
    master, hub = make(availability=[{1, 2}])
    check(X, master, False)
    job = Job(3, 0, 1, Product(), (), AnswerRoom(0, np.dtype(float)), 0.0)
    job.adopted = (5,)
    job.room.report[:] = reported(Report(mended=Mended(20, 20, 39, 1e-12)), 3)
    events, late = hub.events, [Answered(job)]
    hub.events = lambda: chain([late.pop()] if late else [], events())
    check(X, master, False)
    assert not late
    assert not any("rebuilt" in event for event in recorder.happened)


@pytest.mark.parametrize("rates", [[1.0] * 6, [1.0, 1.0, 1.0, 1.0, 5.0, 20.0]])
def test_shards_are_spread_so_that_any_machine_can_be_missing(made, rates):
    """The fastest would be done first with all three, and could not be missed."""
    X, make, recorder = made
    master, _ = make(availability=[{4, 5, 6}], speeds=rates, stragglers=1, check="parity")
    check(X, master, False)
    assert sorted(machine for machine, _ in adopted(recorder)) == [4, 5, 6]


def test_a_machine_that_is_lost_when_it_has_answered_leaves_its_step_whole(made):
    X, make, recorder = made
    master, hub = make(availability=[{1, 2}])
    master.steps.speeds = SpeedEstimator(
        CodedDemand(MACHINES, RECOVERY, ROWS // RECOVERY, [1] * MACHINES)
    )
    check(X, master, False)
    assert master.steps.placement.adopted[0]
    events, lost = hub.events, []

    def dies_after_its_answer():
        for event in events():
            yield event
            if not lost and isinstance(event, Answered) and event.job.machine == 1:
                lost.append(1)
                hub.lose(1, "it died")
        yield from events()

    hub.events = dies_after_its_answer
    check(X, master, False)
    assert lost
    assert recorder.records[-1].bound is None  # with its own shards they have fewer than L
    check(X, master, False)
    assert recorder.records[-1].bound is not None


def test_who_answers_for_a_shard_is_wrong_and_not_whose_it_was(made):
    X, make, recorder = made
    everyone = set(range(1, MACHINES + 1))
    master, hub = make(availability=[{1, 2, 5}] * 4 + [everyone] * 2)
    hub.spoils = lambda job, values: (
        values * np.nan if job.machine == 1 and job.step in (1, 2, 3) else values
    )
    for _ in range(6):
        check(X, master, False)
    taken = {shard for machine, shard in adopted(recorder) if machine == 1}
    assert taken
    assert [event["excluded"] for event in recorder.happened if "excluded" in event] == [1]
    assert recorder.records[-1].available == (2, 3, 4, 5, 6)


def test_shards_of_one_machine_are_no_two_opinions_in_the_step_in_which_it_got_them(made):
    """With six shards on four machines, and L = 4, all six answers are needed to see an error."""
    X, make, recorder = made
    master, hub = make(stragglers=1, check="parity")
    check(X, master, False)
    hub.dying = {2, 3}
    check(X, master, False)
    assert len({machine for machine, _ in adopted(recorder)}) == 2
    assert sum(recorder.records[-1].rows) == MACHINES * ROWS // RECOVERY


def test_another_process_has_not_what_the_one_before_took_over(made):
    """A step of another store has heard that machine 1 is another process now, and not this one."""
    X, make, recorder = made
    master, hub = make(availability=[{1}, {1}, {1}], spares=1)
    check(X, master, False)
    assert len(adopted(recorder)) == RECOVERY - 1
    hub.lose(1, "it died")
    assert len(list(hub.events())) == 2  # which nobody of this store hears
    check(X, master, False)
    check(X, master, True)
    assert len(adopted(recorder)) == 2 * (RECOVERY - 1)


@given(data=st.data())
def test_whoever_goes_and_comes_steps_are_right(store, data):
    X, path = store
    manifest, recorder = open_store(path).manifest, Kept()
    sets = st.sets(st.integers(1, MACHINES), min_size=1)
    ticks = data.draw(st.lists(sets, min_size=3, max_size=7), "available")
    options = data.draw(
        st.sampled_from(
            [
                {},
                {"shards_per_machine": (1, 2, 1, 2)},
                {"stragglers": 1},
                {"stragglers": 1, "check": "parity"},
                {"check": "sample"},
            ]
        ),
        "options",
    )
    machines = 4 if "shards_per_machine" in options else MACHINES
    ticks = [{(n - 1) % machines + 1 for n in tick} for tick in ticks]
    if "check" in options:
        ticks = [tick | {1, 2} for tick in ticks]
    speeds = [float(data.draw(st.integers(1, 9))) for _ in range(machines)]
    given_options = {"availability": ticks, "speeds": tuple(speeds), **{"adopt": True, **options}}
    spares = data.draw(st.integers(0, 1), "spares")
    master, hub = master_of(path, manifest, recorder, spares, **given_options)
    refused = ""
    for adjoint in data.draw(st.lists(st.booleans(), min_size=len(ticks), max_size=len(ticks))):
        if "check" not in options and data.draw(st.booleans()):
            hub.dying = set(data.draw(st.sets(st.integers(1, machines), max_size=2), "dying"))
        try:
            check(X, master, adjoint)
        except InfeasibleError as error:
            refused = str(error)
            break
    nobody = "0 machines are available", "0 of its machines are left"
    assert not refused or "check" in options or any(words in refused for words in nobody), refused
