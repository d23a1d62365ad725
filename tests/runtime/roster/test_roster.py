"""Hosts, their machines, and the states of these machines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.elastic.events import (
    MachineExcluded,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineUnresponsive,
)
from cec_mpi.runtime.roster import Roster, State

BUSY = {State.COMPUTING, State.LATE, State.UNRESPONSIVE}
SERVING = {State.IDLE} | BUSY
NEXT_CHANGES = {
    State.IDLE: "mark_computing",
    State.COMPUTING: "mark_late",
    State.UNRESPONSIVE: "vacate",
}


@pytest.fixture
def changes():
    return []


@pytest.fixture
def roster(changes):
    """Hosts 1 and 2 carry machines 1 and 2, host 3 is a spare."""
    roster = Roster(changes.append)
    add_hosts(roster, [1], [2])
    roster.add_host()
    return roster


def add_hosts(roster, *hosts):
    """Add hosts that carry these machines."""
    for machines in hosts:
        roster.add_vacant(machines)
        rank = roster.add_host(len(machines)).rank
        for machine in machines:
            roster.assign(rank, machine)
            roster.mark_joined(rank, machine, notify=False)


def test_hosts_for_adoption_are_ordered_by_spare_capacity(changes):
    roster = Roster(changes.append)
    add_hosts(roster, [1], [2, 3], [4], [5])
    for rank, capacity in ((1, 1), (2, 4), (3, 3), (4, 3)):
        roster[rank].capacity = capacity
    roster.add_vacant([6, 7])
    assert [host.rank for host in roster.adoption_hosts(6)] == [3, 4, 2]
    roster[3].failed_machines.add(6)
    assert [host.rank for host in roster.adoption_hosts(6)] == [4, 2]
    roster.assign(4, 6)  # a host opens one machine at a time
    assert [host.rank for host in roster.adoption_hosts(7)] == [3, 2]
    roster.mark_joined(4, 6)
    roster.exclude(2, "wrong", MachineExcluded)
    roster.mark_computing(4)
    roster.mark_unresponsive(3, "silent")
    assert roster.adoptable == {2, 3, 4, 7}
    assert [host.rank for host in roster.adoption_hosts(7)] == [4]
    roster.remove_host(4, "gone")
    assert roster.adoptable == set()


@pytest.mark.parametrize("change", [MachineLost, MachineLeft, MachineExcluded])
def test_all_machines_of_a_host_share_its_fate(change, changes):
    roster = Roster(changes.append)
    add_hosts(roster, [1, 2], [3])
    roster.mark_computing(2)
    if change is MachineLost:
        roster.remove_host(1, "because")
    else:
        roster.exclude(1, "because", change)
        assert roster[1].free_slots == 0
    assert changes == [change(1, "because"), change(2, "because")]
    assert (roster.vacant, roster.available, roster.spares()) == ([1, 2], {3}, [])


def test_machines_of_a_silent_host_are_unresponsive_until_it_answers(changes):
    roster = Roster(changes.append)
    add_hosts(roster, [1, 2])
    roster.mark_computing(1)
    roster.mark_unresponsive(1, "silent")
    assert changes == [MachineUnresponsive(1, "silent"), MachineUnresponsive(2, "silent")]
    assert roster.available == set()
    for machine in (1, 2):
        roster.mark_answered(1, machine)
    assert changes[2:] == [MachineJoined(1, 1), MachineJoined(2, 1)]
    assert roster.machines(State.IDLE) == {1, 2}


def test_an_adopted_machine_moves_when_another_host_has_opened_it(roster, changes):
    roster.remove_host(1, "gone")
    roster.assign(2, 1)
    roster.mark_joined(2, 1)
    assert (roster[2].adopted, roster[2].free_slots) == ([1], 0)
    with pytest.raises(RuntimeError, match="it is not vacant"):
        roster.assign(2, 1)
    roster.assign(3, 1)
    assert (roster.opening, roster.serving_host(1), roster.vacant) == (set(), roster[2], [])
    roster.remove_host(3, "gone")
    assert (roster.serving_host(1), roster.vacant) == (roster[2], [])
    roster.add_host()
    roster.assign(4, 1)
    roster.mark_computing(1)
    roster.mark_answered(2, 1)
    roster.mark_joined(4, 1)
    assert [list(host.machines) for host in roster.hosts] == [[2], [1]]
    assert changes == [MachineLost(1, "gone"), MachineJoined(1, 2), MachineJoined(1, 4)]


@given(st.data())
def test_each_machine_always_has_at_most_one_serving_host(data):
    changes = []
    roster = Roster(changes.append)
    add_hosts(roster, [1, 2], [3])
    absent = set()  # according to the reported changes
    for _ in range(data.draw(st.integers(0, 40))):
        possible_changes = [("add_host", 1), ("add_host", 2)] if len(roster.hosts) < 9 else []
        for host in roster.hosts:
            rank = host.rank
            possible_changes += [
                ("remove_host", rank, "why"),
                ("exclude", rank, "why"),
                ("mark_unresponsive", rank, "why"),
            ]
            if not (host.is_excluded or host.is_silent):
                adopted_machines = [n for other in roster.hosts for n in other.adopted]
                assignable = {*roster.vacant, *adopted_machines} - roster.machines(State.JOINING)
                possible_changes += [("assign", rank, n) for n in assignable - set(host.machines)]
            for machine, state in host.machines.items():
                possible_changes.append(("remove_machine", rank, MachineLost(machine, "why")))
                server = roster.serving_host(machine)
                if state is State.JOINING and (server is None or machine in server.adopted):
                    possible_changes.append(("mark_joined", rank, machine))
                if state in BUSY:
                    possible_changes.append(("mark_answered", rank, machine))
                if state in NEXT_CHANGES:
                    possible_changes.append((NEXT_CHANGES[state], machine))
        change, *arguments = data.draw(st.sampled_from(possible_changes))
        getattr(roster, change)(*arguments)
        for event in changes:
            (absent.discard if isinstance(event, MachineJoined) else absent.add)(event.machine)
        changes.clear()
        serving_machines = [n for h in roster.hosts for n, s in h.machines.items() if s in SERVING]
        assert len(serving_machines) == len(set(serving_machines))
        assert sorted({*serving_machines, *roster.opening, *roster.vacant}) == [1, 2, 3]
        assert not set(roster.vacant) & {*serving_machines, *roster.opening}
        assert roster.available == {1, 2, 3} - absent
        assert roster.machines(State.IDLE, State.COMPUTING, State.LATE) <= roster.available
        for host in roster.hosts:
            assert not (host.is_excluded and host.machines)
        for machine in (1, 2, 3):
            assert (roster.serving_host(machine) is None) == (machine not in serving_machines)
