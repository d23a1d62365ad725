"""Which host carries which machine, and in what state: every change, allowed or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.elastic.events import (
    MachineExcluded,
    MachineGivenUp,
    MachineJoined,
    MachineLeft,
    MachineLost,
)
from cec_mpi.runtime.roster import Roster, State

ASKED = {State.COMPUTING, State.LATE, State.GIVEN_UP}
SERVING = {State.IDLE} | ASKED


@pytest.fixture
def changes():
    return []


@pytest.fixture
def roster(changes):
    """Hosts 1 and 2 carry machines 1 and 2, host 3 is a spare."""
    roster = Roster(changes.append)
    carry(roster, [1], [2])
    roster.add_host()
    return roster


def carry(roster, *hosts):
    """Hosts come, and carry these machines from the beginning."""
    for machines in hosts:
        roster.add_vacant(machines)
        rank = roster.add_host(len(machines)).rank
        for machine in machines:
            roster.assign(rank, machine)
            roster.mark_joined(rank, machine, notify=False)


def carried(roster):
    return [list(host.machines) for host in roster.hosts]


def test_who_has_memory_for_the_most_machines_more_carries_a_missing_one(changes):
    roster = Roster(changes.append)
    carry(roster, [1], [2, 3], [4], [5])
    for rank, capacity in ((1, 1), (2, 4), (3, 3), (4, 3)):
        roster[rank].capacity = capacity
    roster.add_vacant([6, 7])
    assert [host.rank for host in roster.adoption_hosts(6)] == [3, 4, 2]
    roster[3].failed_machines.add(6)
    assert [host.rank for host in roster.adoption_hosts(6)] == [4, 2]
    roster.assign(4, 6)  # a host opens one at a time
    assert [host.rank for host in roster.adoption_hosts(7)] == [3, 2]
    roster.mark_joined(4, 6)
    roster.exclude(2, "wrong", MachineExcluded)
    roster.mark_computing(4)
    roster.give_up(3, "silent")
    assert roster.adoptable == {2, 3, 4, 7}
    assert {
        host.rank for machine in roster.adoptable for host in roster.adoption_hosts(machine)
    } == {4}
    roster.remove_host(4, "gone")
    assert roster.adoptable == set()


def test_a_host_that_comes_by_itself_takes_a_vacant_machine(roster, changes):
    roster.add_vacant([7])
    roster.remove_host(3, "gone")
    host = roster.add_host(name="node7")
    assert (host.rank, roster.spares(), roster.vacant) == (4, [host], [7])
    roster.assign(4, 7)
    roster.mark_joined(4, 7)
    assert changes == [MachineJoined(7, 4, "node7")]
    assert roster.host_names == {7: "node7"}
    roster.remove_host(4, "gone")
    assert [each.rank for each in roster.hosts] == [1, 2]
    assert roster.add_host().rank == 5


def test_a_spare_takes_a_machine_that_is_lost(roster, changes):
    roster.remove_host(1, "gone")
    assert changes == [MachineLost(1, "gone")]
    assert (roster.vacant, roster.state_of(1)) == ([1], None)
    (spare,) = roster.spares()
    roster.assign(spare.rank, 1)
    assert (roster.vacant, roster.opening) == ([], {1})
    assert roster.serving_host(1) is None
    assert roster.spares() == []
    roster.mark_joined(3, 1)
    assert changes[1:] == [MachineJoined(1, 3)]
    assert roster.serving_host(1) is spare is roster[3]


def test_a_host_loses_all_of_its_machines_at_once(changes):
    roster = Roster(changes.append)
    carry(roster, [1, 2], [3])
    roster.mark_computing(2)
    roster.remove_host(1, "gone")
    assert changes == [MachineLost(1, "gone"), MachineLost(2, "gone")]
    assert (roster.vacant, roster.available) == ([1, 2], {3})


@pytest.mark.parametrize("change", [MachineLeft, MachineExcluded])
def test_all_machines_of_a_host_end_like_it(change, changes):
    roster = Roster(changes.append)
    carry(roster, [1, 2], [3])
    roster.exclude(1, "because", change)
    assert changes == [change(1, "because"), change(2, "because")]
    assert (roster.vacant, roster.spares(), roster[1].free_slots) == ([1, 2], [], 0)


def test_one_machine_leaves_a_host_that_keeps_its_others(changes):
    roster = Roster(changes.append)
    carry(roster, [1, 2])
    roster.remove_machine(1, MachineLost(2, "damaged"))
    assert changes == [MachineLost(2, "damaged")]
    assert (carried(roster), roster.vacant, roster[1].free_slots) == ([[1]], [2], 1)


def test_all_machines_of_a_silent_host_are_given_up_and_are_back_when_it_answers(changes):
    roster = Roster(changes.append)
    carry(roster, [1, 2])
    roster.mark_computing(1)
    roster.give_up(1, "silent")
    assert changes == [MachineGivenUp(1, "silent"), MachineGivenUp(2, "silent")]
    assert roster.available == set()
    for machine in (1, 2):
        roster.mark_answered(1, machine)
    assert changes[2:] == [MachineJoined(1, 1), MachineJoined(2, 1)]
    assert roster.machines(State.IDLE) == {1, 2}


def test_a_host_that_was_given_up_and_replaced_is_a_spare_when_it_answers(roster, changes):
    roster.mark_computing(1)
    roster.mark_late(1)
    roster.give_up(1, "silent")
    roster.vacate(1)
    roster.assign(3, 1)
    assert roster.spares() == []
    roster.mark_answered(1, 1)
    assert changes == [MachineGivenUp(1, "silent")]
    assert roster.spares() == [roster[1]]
    roster.mark_joined(3, 1)
    assert changes[1:] == [MachineJoined(1, 3)]


def test_an_adopted_machine_stays_where_it_is_until_another_host_has_opened_it(roster, changes):
    roster.remove_host(1, "gone")
    roster.assign(2, 1)
    roster.mark_joined(2, 1)
    assert (roster[2].adopted, roster[2].free_slots) == ([1], 0)
    roster.assign(3, 1)
    assert (roster.opening, roster.serving_host(1), roster.vacant) == (set(), roster[2], [])
    roster.mark_computing(1)
    roster.mark_answered(2, 1)
    roster.mark_joined(3, 1)
    assert (roster.serving_host(1), carried(roster)) == (roster[3], [[2], [1]])
    assert changes == [MachineLost(1, "gone"), MachineJoined(1, 2), MachineJoined(1, 3)]


def test_a_host_that_dies_while_it_opens_an_adopted_machine_takes_nothing_away(roster, changes):
    roster.remove_host(1, "gone")
    roster.assign(2, 1)
    roster.mark_joined(2, 1)
    roster.assign(3, 1)
    changes.clear()
    roster.remove_host(3, "gone")
    assert (roster.serving_host(1), roster.vacant, changes) == (roster[2], [], [])
    roster.add_host()
    roster.assign(4, 1)
    roster.remove_host(2, "gone")
    assert (changes, roster.vacant, roster.opening) == (
        [MachineLost(2, "gone"), MachineLost(1, "gone")],
        [2],
        {1},
    )


@pytest.mark.parametrize("machine", [1, 2, 9])
def test_only_a_machine_that_is_vacant_or_adopted_can_be_taken(machine, roster, changes):
    with pytest.raises(RuntimeError, match="it is not vacant"):
        roster.assign(3, machine)
    assert (carried(roster), changes) == ([[1], [2], []], [])


# From other states a change is refused, and nothing is changed.
CHANGES = {
    "mark_computing": (State.IDLE,),
    "mark_late": (State.COMPUTING,),
    "vacate": (State.GIVEN_UP,),
    "mark_joined": (State.JOINING,),
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_made_from_these_states_only(state, change, changes):
    roster = Roster(changes.append)
    carry(roster, [2])
    roster.add_vacant([1])
    roster.add_host()
    roster.assign(2, 1)
    if state is not State.JOINING:
        roster.mark_joined(2, 1)
    if state in ASKED:
        roster.mark_computing(1)
    if state is State.LATE:
        roster.mark_late(1)
    if state is State.GIVEN_UP:
        roster.give_up(2, "silent")
    changes.clear()
    given = (2, 1) if change == "mark_joined" else (1,)
    if state in CHANGES[change]:
        getattr(roster, change)(*given)
        return
    with pytest.raises(RuntimeError, match="machine 1"):
        getattr(roster, change)(*given)
    assert (roster[2].machines, roster.vacant, changes) == ({1: state}, [], [])


@given(st.data())
def test_whatever_happens_each_machine_has_one_host_or_none(data):
    changes = []
    roster = Roster(changes.append)
    carry(roster, [1, 2], [3])
    absent = set()  # as who plans steps has heard
    for _ in range(data.draw(st.integers(0, 40))):
        possible = [("add_host", 1), ("add_host", 2)] if len(roster.hosts) < 9 else []
        for host in roster.hosts:
            rank = host.rank
            possible += [
                ("remove_host", rank, "why"),
                ("exclude", rank, "why"),
                ("give_up", rank, "why"),
            ]
            if not (host.is_excluded or host.is_silent):
                elsewhere = [n for other in roster.hosts for n in other.adopted]
                to_take = {*roster.vacant, *elsewhere} - roster.machines(State.JOINING)
                possible += [("assign", rank, n) for n in to_take - set(host.machines)]
            for machine, state in host.machines.items():
                possible.append(("remove_machine", rank, MachineLost(machine, "why")))
                before = roster.serving_host(machine)
                if state is State.JOINING and (before is None or machine in before.adopted):
                    possible.append(("mark_joined", rank, machine))
                if state in ASKED:
                    possible.append(("mark_answered", rank, machine))
                for change in ("mark_computing", "mark_late", "vacate"):
                    if state in CHANGES[change]:
                        possible.append((change, machine))
        change, *given = data.draw(st.sampled_from(possible))
        getattr(roster, change)(*given)
        for event in changes:
            (absent.discard if isinstance(event, MachineJoined) else absent.add)(event.machine)
        changes.clear()
        serving = [n for host in roster.hosts for n, s in host.machines.items() if s in SERVING]
        assert len(serving) == len(set(serving))
        assert sorted({*serving, *roster.opening, *roster.vacant}) == [1, 2, 3]
        assert not set(roster.vacant) & {*serving, *roster.opening}
        assert roster.available == {1, 2, 3} - absent
        assert roster.machines(State.IDLE, State.COMPUTING, State.LATE) <= roster.available
        for host in roster.hosts:
            assert not (host.is_excluded and host.machines)
        for machine in (1, 2, 3):
            assert (roster.serving_host(machine) is None) == (machine not in serving)
