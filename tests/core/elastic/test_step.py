"""What a step waits for, and for how long."""

from __future__ import annotations

import math

import pytest

from cec_mpi import make_code
from cec_mpi.core.elastic.events import (
    Adopt,
    AnswerRejected,
    AvailabilityTick,
    BusyMachineAnswered,
    Compare,
    Decode,
    Disagreement,
    Done,
    Exclude,
    FaultUndetermined,
    GiveUp,
    IdentifyFaulty,
    MachineExcluded,
    MachineJoined,
    MachineLost,
    MarkLate,
    PendingMachines,
    Request,
    RequestAnswered,
    RequestsSent,
    RowsDisagree,
    StartStep,
    StepFailed,
    TooFewMachines,
    WaitUntil,
)
from cec_mpi.core.elastic.forward import RowLedger
from cec_mpi.core.elastic.losses import Deadline, State
from cec_mpi.core.elastic.step import ElasticStep
from cec_mpi.core.step.answers import Decoders

ROWS, MACHINES, RECOVERY = 6, (1, 2, 3, 4), 2
ALL = ((0, ROWS),)


def missing_of_two(machines):
    return max(0, 2 - len(machines))


def step_of(machines, planned, *, compares=False, deadline=None, predicted=None, **options):
    """A running step, and its requests for all rows."""
    states = dict.fromkeys(machines, State.IDLE)
    step = ElasticStep(states, {}, missing_of_two, deadline, **options)
    ledger = RowLedger(ROWS, RECOVERY, (1.0,) * 4, Decoders(make_code(4, RECOVERY)), compares)
    ledger.plan(dict.fromkeys(planned, ALL))
    step.begin(ledger, MACHINES, predicted, 0.0)
    requests = step.instructions(0.0)
    assert [type(each) for each in requests] == [Request] * len(planned)
    step.handle(RequestsSent(requests), 0.0)
    return step, requests


def test_it_begins_when_enough_machines_are_idle():
    states = {1: State.IDLE, 2: State.BUSY}
    step = ElasticStep(states, {2: 0.0}, missing_of_two)
    step.handle(AvailabilityTick(frozenset({1, 2})), 0.0)
    assert step.instructions(0.0) == [WaitUntil(math.inf)]
    step.handle(BusyMachineAnswered(2), 1.0)
    assert step.instructions(1.0) == [StartStep((1, 2))]


def test_it_does_not_begin_with_machines_that_never_come():
    step = ElasticStep({1: State.IDLE}, {}, missing_of_two)
    step.handle(AvailabilityTick(frozenset({1})), 0.0)
    assert step.instructions(0.0) == [StepFailed(TooFewMachines((1,)))]
    step.handle(PendingMachines(opening=frozenset({2})), 0.0)
    assert step.instructions(0.0) == [WaitUntil(math.inf)]


def test_rows_of_a_late_machine_are_shared_and_its_answer_counts_if_it_is_first():
    step, (first, second) = step_of((1, 2, 3), (1, 2), deadline=Deadline(seconds=1.0))
    step.handle(RequestAnswered(first), 0.5)
    assert step.instructions(0.5) == [WaitUntil(pytest.approx(1.0, abs=1e-3))]
    late, other = step.instructions(1.1)
    assert (late, other.machine, other.intervals) == (MarkLate(2), 3, ALL)
    step.handle(RequestsSent([other]), 1.1)
    step.handle(RequestAnswered(second), 1.2)
    assert step.instructions(1.2) == [Decode(0, ROWS, (1, 2))]
    assert step.instructions(1.2) == [Done((other.machine,))]


def test_a_silent_machine_is_given_up_after_ten_deadlines():
    step, _ = step_of((1, 2), (1, 2), deadline=Deadline(seconds=1.0))
    assert step.instructions(1.1) == [MarkLate(1), MarkLate(2)]
    assert step.instructions(1.1) == [WaitUntil(pytest.approx(10.0, abs=1e-3))]
    assert step.instructions(10.1) == [GiveUp(1, 10.1), GiveUp(2, 10.1)]
    assert step.instructions(10.1) == [StepFailed(TooFewMachines(()))]


@pytest.mark.parametrize("waits", [False, True])
def test_lost_rows_wait_for_a_machine_that_may_join(waits):
    step, (first, _) = step_of((1, 2), (1, 2), waits_for_vacant=waits)
    step.handle(RequestAnswered(first), 0.1)
    step.handle(MachineLost(2, "gone"), 0.2)
    step.handle(PendingMachines(vacant=frozenset({2})), 0.2)
    assert step.instructions(0.2) == [
        WaitUntil(math.inf) if waits else StepFailed(TooFewMachines((1,)))
    ]
    if waits:
        step.handle(MachineJoined(2), 0.3)
        (again,) = step.instructions(0.3)
        assert (again.machine, again.intervals) == (2, ALL)


def test_a_disagreement_waits_ten_seconds_for_machines_that_may_never_join():
    step, requests = step_of((1, 2, 3), (1, 2, 3), compares=True)
    step.handle(PendingMachines(vacant=frozenset({4})), 0.1)
    for request in requests:
        step.handle(RequestAnswered(request), 0.1)
    assert step.instructions(0.1) == [Compare(0, ROWS, (1, 2, 3))]
    step.handle(RowsDisagree(0, ROWS, (1, 2, 3)), 0.1)
    assert step.instructions(0.1) == [IdentifyFaulty(0, ROWS, (1, 2, 3))]
    found = FaultUndetermined(0, ROWS, (1, 2, 3), ((1,), (2,), (3,)))
    step.handle(found, 0.1)
    assert step.instructions(0.1) == [WaitUntil(pytest.approx(10.1))]
    assert step.instructions(10.2) == [StepFailed(Disagreement(found))]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_process_that_has_replaced_a_wrong_one_is_not_excluded(is_replaced):
    step, (first, second) = step_of((1, 2, 3), (1, 2))
    step.handle(RequestAnswered(first), 0.1)
    step.handle(AnswerRejected(second), 0.1)
    if is_replaced:
        step.handle(MachineLost(2, "gone"), 0.1)
        step.handle(MachineJoined(2), 0.1)
    found = step.instructions(0.1)
    assert (Exclude(2, MachineExcluded) in found) == (not is_replaced)
    assert {each.machine for each in found if isinstance(each, Request)} <= {2, 3}
    assert sum(isinstance(each, Request) for each in found) >= 1


def test_hosts_carry_missing_machines_once_too_few_were_left_for_this_long():
    step, (first, _) = step_of((1, 2), (1, 2), adopt_after=2.0)
    step.handle(RequestAnswered(first), 0.1)
    step.handle(MachineLost(2, "gone"), 0.2)
    step.handle(PendingMachines(adoptable=frozenset({2, 3, 4})), 0.2)
    assert step.instructions(0.2) == [WaitUntil(pytest.approx(2.2))]
    assert step.instructions(2.3) == [Adopt(2)]
    step.handle(PendingMachines(opening=frozenset({2}), adoptable=frozenset({3, 4})), 2.3)
    assert step.instructions(2.3) == [WaitUntil(math.inf)]  # that is enough
    step.handle(MachineJoined(2), 2.4)
    step.handle(PendingMachines(adoptable=frozenset({3, 4})), 2.4)
    (again,) = step.instructions(2.4)
    assert (again.machine, again.intervals) == (2, ALL)


def test_no_host_carries_another_machine_if_one_joins_in_time_or_is_opening():
    step, (first, _) = step_of((1, 2), (1, 2), adopt_after=2.0)
    step.handle(RequestAnswered(first), 0.1)
    step.handle(MachineLost(2, "gone"), 0.2)
    step.handle(PendingMachines(opening=frozenset({3}), adoptable=frozenset({2, 4})), 0.2)
    assert step.instructions(2.3) == [WaitUntil(math.inf)]
    step.handle(
        PendingMachines(adoptable=frozenset({2, 3, 4})), 2.3
    )  # machine 3 could not be opened
    assert step.instructions(2.3) == [WaitUntil(pytest.approx(4.3))]
    step.handle(MachineJoined(2), 4.0)
    assert [type(each) for each in step.instructions(4.4)] == [Request]


def test_a_machine_whose_host_is_slow_to_open_it_is_carried_by_another():
    step, (first, _) = step_of((1, 2), (1, 2), adopt_after=2.0)
    step.handle(RequestAnswered(first), 0.1)
    step.handle(MachineLost(2, "gone"), 0.2)
    step.handle(PendingMachines(opening=frozenset({3}), adoptable=frozenset({3})), 0.2)
    assert step.instructions(0.2) == [WaitUntil(pytest.approx(2.2))]
    assert step.instructions(2.3) == [Adopt(3)]


def test_hosts_carry_only_listed_machines_and_those_that_help_first():
    states = {1: State.IDLE}

    def missing(machines):  # machine 3 has the same rows as machine 1
        return 2 - len(set(machines) - {3})

    step = ElasticStep(states, {}, missing, adopt_after=2.0)
    step.handle(AvailabilityTick(frozenset({1, 3, 4})), 0.0)
    step.handle(PendingMachines(adoptable=frozenset({2, 3, 4})), 0.0)
    assert step.instructions(0.0) == [WaitUntil(pytest.approx(2.0))]
    assert step.instructions(2.1) == [Adopt(4)]
    step.handle(PendingMachines(), 2.1)  # no host has memory for it
    assert step.instructions(2.1) == [StepFailed(TooFewMachines((1,)))]
