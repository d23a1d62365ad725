"""Which process is which machine, and in what state: every change, allowed or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.elastic.events import Excluded, GivenUp, Joined, Left, Lost
from cec_mpi.runtime.roster import Roster, State

ASKED = {State.COMPUTING, State.LATE, State.GIVEN_UP}
SERVING = {State.IDLE} | ASKED
LIVING = set(State) - {State.LOST}


@pytest.fixture
def told():
    return []


@pytest.fixture
def roster(told):
    """Ranks 1 and 2 are machines 1 and 2, rank 3 is a spare."""
    roster = Roster(iter(range(1000)).__next__, told.append)
    become(roster, 1, 2)
    roster.add()
    return roster


def become(roster, *machines):
    """Processes come, and are these machines from the beginning."""
    roster.expect(machines)
    for machine in machines:
        rank = roster.add().rank
        roster.join(rank, machine)
        roster.joined(rank, quietly=True)


def states(roster):
    return [(each.state, each.machine) for each in roster.processes]


def test_a_machine_computes(roster, told):
    roster.ask(1)
    assert roster.machines(State.COMPUTING) == {1}
    assert roster.machines(State.IDLE) == {2}
    assert roster.state_of(1) is State.COMPUTING
    roster.answer(1)
    roster.ask(1)
    roster.late(1)
    assert roster.state_of(1) is State.LATE
    roster.answer(1)
    assert roster.machines(State.IDLE) == {1, 2}
    assert told == []


def test_who_is_a_machine_from_the_beginning_is_no_news(roster, told):
    assert states(roster) == [(State.IDLE, 1), (State.IDLE, 2), (State.SPARE, 0)]
    assert (roster.vacant, told) == ([], [])
    roster.exclude(1, "wrong", Excluded)
    assert told == [Excluded(1, "wrong")]


def test_who_comes_by_itself_takes_a_vacant_place_and_may_be_forgotten(roster, told):
    roster.expect([7])
    roster.lose(3, "gone")
    come = roster.add()
    roster.set_host(4, "node7")
    assert (come.rank, roster.spares(), roster.vacant) == (4, [come], [7])
    roster.join(4, 7)
    roster.joined(4)
    assert told == [Joined(7, 4, "node7")]
    with pytest.raises(RuntimeError, match="rank 4 is idle: it cannot be forgotten"):
        roster.forget(4)
    roster.lose(4, "gone")
    roster.forget(4)
    assert [each.rank for each in roster.processes] == [1, 2, 3]
    assert roster.add().rank == 5


def test_a_spare_becomes_a_machine_that_is_lost(roster, told):
    roster.lose(1, "gone")
    assert told == [Lost(1, "gone")]
    assert (roster.vacant, roster.state_of(1)) == ([1], None)
    (spare,) = roster.spares()
    roster.join(spare.rank, 1)
    assert roster.vacant == []
    assert roster.serving_as(1) is None
    assert roster.spares() == []
    roster.joined(3)
    assert told[1:] == [Joined(1, 3)]
    assert roster.serving_as(1) is spare is roster[3]
    assert [each.rank for each in roster.living()] == [2, 3]


def test_one_that_was_given_up_is_back(roster, told):
    roster.ask(1)
    roster.give_up(1, "silent")
    assert roster.serving_as(1) is roster[1]
    roster.answer(1)
    assert told == [GivenUp(1, "silent"), Joined(1, 1)]
    assert states(roster)[0] == (State.IDLE, 1)


def test_one_that_was_given_up_is_back_when_it_has_the_stores_that_it_missed(roster, told):
    roster.ask(1)
    roster.give_up(1, "silent")
    roster.join(1, 1)
    roster.joined(1)
    assert told == [GivenUp(1, "silent"), Joined(1, 1)]


def test_one_that_was_given_up_and_replaced_is_a_spare(roster, told):
    roster.ask(1)
    roster.late(1)
    roster.give_up(1, "silent")
    roster.hand_over(1)
    roster.join(3, 1)
    roster.answer(1)
    assert told == [GivenUp(1, "silent")]
    assert states(roster)[0] == (State.SPARE, 0)
    roster.joined(3)
    assert told[1:] == [Joined(1, 3)]


def test_a_machine_that_has_missed_stores_becomes_itself_again(roster, told):
    roster.ask(2)
    roster.join(2, 2)
    assert roster.state_of(2) is None
    roster.joined(2)
    assert told == []  # it was the same machine all the time
    roster.ask(2)
    with pytest.raises(RuntimeError, match="not vacant"):
        roster.join(2, 1)
    with pytest.raises(RuntimeError, match="not vacant"):
        roster.join(3, 2)


def test_a_process_that_is_excluded_leaves_its_machine_to_others(roster, told):
    roster.exclude(1, "it was warned", Left)
    roster.exclude(1, "raised")
    roster.exclude(3, "it was warned", Left)
    assert told == [Left(1, "it was warned")]
    assert (roster.vacant, roster.spares()) == ([1], [])
    roster.lose(1, "gone")
    assert told == [Left(1, "it was warned")]
    roster.exclude(1, "raised")
    assert roster[1].state is State.LOST


def test_it_is_known_since_when(roster):
    before = roster[1].since
    roster.ask(2)
    roster.ask(1)
    assert roster[1].since == roster[2].since + 1 > before + 1


# What each change asks for; from elsewhere it is refused, and nothing is changed.
CHANGES = {
    "join": {State.SPARE} | SERVING,
    "joined": {State.JOINING},
    "ask": {State.IDLE},
    "late": {State.COMPUTING},
    "give_up": {State.COMPUTING, State.LATE},
    "hand_over": {State.GIVEN_UP},
    "answer": ASKED,
    "exclude": set(State),
    "lose": set(State),
}
REASONS = {"give_up", "exclude", "lose"}


def in_state(state, told):
    """A roster whose rank 1 is in this state, and machine 2 is vacant."""
    roster = Roster(float, told.append)
    process = roster.add()
    become(roster, 2)
    roster.lose(2, "gone")
    process.state = state
    process.machine = 0 if state in (State.SPARE, State.EXCLUDED, State.LOST) else 1
    told.clear()
    return roster


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_made_from_these_states_only(state, change, told):
    roster = in_state(state, told)
    machine = 2 if state is State.SPARE else 1
    more = (machine,) if change == "join" else ("why",) * (change in REASONS)
    before = states(roster), list(roster.vacant)
    if state in CHANGES[change]:
        getattr(roster, change)(1, *more)
    else:
        with pytest.raises(
            RuntimeError, match=f"rank 1 is {state.value}|machine 1: it is not vacant"
        ):
            getattr(roster, change)(1, *more)
        assert (states(roster), roster.vacant, told) == (*before, [])


@given(st.data())
def test_whatever_happens_each_machine_has_one_process_or_none(data):
    told = []
    roster = Roster(float, told.append)
    become(roster, 1, 2, 3)
    absent = set()  # as who plans steps has heard
    for _ in range(data.draw(st.integers(0, 40))):
        possible = [("add",)] if len(roster.processes) < 9 else []
        for each in roster.processes:
            for change, allowed in CHANGES.items():
                if change == "join":
                    own = [each.machine] if each.machine else []
                    machines = roster.vacant if each.state is State.SPARE else own
                    if each.state in allowed:
                        possible += [("join", each.rank, n) for n in machines]
                elif change == "hand_over":
                    if each.state in allowed and each.machine:
                        possible.append((change, each.rank))
                elif each.state in allowed:
                    possible.append((change, each.rank, *("why",) * (change in REASONS)))
        change, *given = data.draw(st.sampled_from(possible))
        getattr(roster, change)(*given)
        for event in told:
            (absent.discard if isinstance(event, Joined) else absent.add)(event.machine)
        told.clear()
        taken = [each.machine for each in roster.processes if each.machine]
        assert sorted(taken + roster.vacant) == [1, 2, 3]
        assert set(roster.vacant) <= absent
        assert not roster.machines(State.IDLE) & absent
        for each in roster.processes:
            if each.state in {State.SPARE, State.EXCLUDED, State.LOST}:
                assert each.machine == 0
            elif each.state is not State.GIVEN_UP:
                assert each.machine
        for machine in (1, 2, 3):
            process = roster.serving_as(machine)
            assert process is None or process.state in SERVING
            joins = machine in roster.machines(State.JOINING)
            assert (process is None) == (machine not in taken or joins)
