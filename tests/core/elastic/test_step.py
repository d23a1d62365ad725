"""States of machines in an elastic step, and what the step waits for and how long."""

from __future__ import annotations

import math
import re

import pytest

from cec_mpi import make_code
from cec_mpi.core.elastic import events, states
from cec_mpi.core.elastic.events import ExpectedMachines, Request, StepFailed, WaitUntil
from cec_mpi.core.elastic.forward import RowLedger
from cec_mpi.core.elastic.states import (
    Cause,
    Consequence,
    Deadline,
    State,
    seconds_until_late,
    seconds_until_unresponsive,
    transition,
)
from cec_mpi.core.elastic.step import ElasticStep
from cec_mpi.core.step.answers import DecoderCache

ROWS, RECOVERY = 6, 2
ALL_ROWS = ((0, ROWS),)


def count_missing(machines):
    return max(0, 2 - len(machines))


def start_step(machines, planned, *, compare=False, deadline=None, **options):
    """Start a step of four machines; return it and its requests for all rows."""
    idle = dict.fromkeys(machines, State.IDLE)
    step = ElasticStep(idle, {}, count_missing, deadline, **options)
    ledger = RowLedger(ROWS, RECOVERY, (1.0,) * 4, DecoderCache(make_code(4, RECOVERY)), compare)
    ledger.assign_plan(dict.fromkeys(planned, ALL_ROWS))
    step.begin(ledger, (1, 2, 3, 4), None, 0.0)
    requests = step.instructions(0.0)
    assert [type(request) for request in requests] == [Request] * len(planned)
    step.handle(events.RequestsSent(requests), 0.0)
    return step, requests


def start_step_with_loss(**options):
    """Return a step of machines 1 and 2 after machine 1 has answered and machine 2 was lost."""
    step, (first, _) = start_step((1, 2), (1, 2), **options)
    step.handle(events.RequestAnswered(first), 0.1)
    step.handle(events.MachineLost(2, "gone"), 0.2)
    return step


def check_request(step, now, machine):
    (request,) = step.instructions(now)
    assert (request.machine, request.intervals) == (machine, ALL_ROWS)


def test_rows_of_a_late_machine_are_shared_and_the_first_answer_counts():
    step, (first, second) = start_step((1, 2, 3), (1, 2), deadline=Deadline(seconds=1.0))
    step.handle(events.RequestAnswered(first), 0.5)
    assert step.instructions(0.5) == [WaitUntil(pytest.approx(1.0, abs=1e-3))]
    mark_late, request = step.instructions(1.1)
    assert (mark_late, request.machine, request.intervals) == (events.MarkLate(2), 3, ALL_ROWS)
    step.handle(events.RequestsSent([request]), 1.1)
    step.handle(events.RequestAnswered(second), 1.2)
    assert step.instructions(1.2) == [events.Decode(0, ROWS, (1, 2))]
    assert (step.instructions(1.2), step.pending) == ([events.Done()], (3,))


def test_a_silent_machine_is_unresponsive_after_ten_deadlines():
    step, _ = start_step((1, 2), (1, 2), deadline=Deadline(seconds=1.0))
    assert step.instructions(1.1) == [events.MarkLate(1), events.MarkLate(2)]
    assert step.instructions(1.1) == [WaitUntil(pytest.approx(10.0, abs=1e-3))]
    assert step.instructions(10.1) == [
        events.MarkUnresponsive(1, 10.1),
        events.MarkUnresponsive(2, 10.1),
    ]
    assert step.instructions(10.1) == [StepFailed(events.TooFewMachines(()))]


def test_lost_rows_wait_for_a_machine_that_may_join():
    vacant = ExpectedMachines(vacant=frozenset({2}))
    step = start_step_with_loss(waits_for_joins=False)
    step.handle(vacant, 0.2)
    assert step.instructions(0.2) == [StepFailed(events.TooFewMachines((1,)))]
    step = start_step_with_loss(waits_for_joins=True)
    step.handle(vacant, 0.2)
    assert step.instructions(0.2) == [WaitUntil(math.inf)]
    step.handle(events.MachineJoined(2), 0.3)
    check_request(step, 0.3, machine=2)


def test_a_disagreement_waits_ten_seconds_for_vacant_machines():
    step, requests = start_step((1, 2, 3), (1, 2, 3), compare=True)
    step.handle(ExpectedMachines(vacant=frozenset({4})), 0.1)
    for request in requests:
        step.handle(events.RequestAnswered(request), 0.1)
    assert step.instructions(0.1) == [events.Compare(0, ROWS, (1, 2, 3))]
    step.handle(events.RowsDisagree(0, ROWS, (1, 2, 3)), 0.1)
    assert step.instructions(0.1) == [events.IdentifyFaults(0, ROWS, (1, 2, 3))]
    undetermined = events.FaultUndetermined(0, ROWS, (1, 2, 3), ((1,), (2,), (3,)))
    step.handle(undetermined, 0.1)
    assert step.instructions(0.1) == [WaitUntil(pytest.approx(10.1))]
    assert step.instructions(10.2) == [StepFailed(events.Disagreement(undetermined))]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_process_that_has_replaced_a_faulty_one_is_not_excluded(is_replaced):
    step, (first, second) = start_step((1, 2, 3), (1, 2))
    step.handle(events.RequestAnswered(first), 0.1)
    step.handle(events.AnswerRejected(second), 0.1)
    if is_replaced:
        step.handle(events.MachineLost(2, "gone"), 0.1)
        step.handle(events.MachineJoined(2), 0.1)
    instructions = step.instructions(0.1)
    assert (events.Exclude(2, events.MachineExcluded) in instructions) == (not is_replaced)
    machines = {request.machine for request in instructions if isinstance(request, Request)}
    assert machines
    assert machines <= {2, 3}
    step.handle(events.FaultsIdentified((2,)), 0.2)  # by answers of the old process
    assert events.Exclude(2, events.MachineExcluded) not in step.instructions(0.2)


def test_hosts_adopt_a_machine_after_a_shortage():
    step = start_step_with_loss(adopt_after=2.0)
    step.handle(ExpectedMachines(adoptable=frozenset({2, 3, 4})), 0.2)
    assert step.instructions(0.2) == [WaitUntil(pytest.approx(2.2))]
    assert step.instructions(2.3) == [events.Adopt(2)]
    step.handle(ExpectedMachines(opening=frozenset({2}), adoptable=frozenset({3, 4})), 2.3)
    assert step.instructions(2.3) == [WaitUntil(math.inf)]  # no longer a shortage
    step.handle(events.MachineJoined(2), 2.4)
    step.handle(ExpectedMachines(adoptable=frozenset({3, 4})), 2.4)
    check_request(step, 2.4, machine=2)


def test_a_machine_that_is_opening_or_joins_in_time_ends_the_shortage():
    step = start_step_with_loss(adopt_after=2.0)
    step.handle(ExpectedMachines(opening=frozenset({3}), adoptable=frozenset({2, 4})), 0.2)
    assert step.instructions(2.3) == [WaitUntil(math.inf)]
    slow = ExpectedMachines(opening=frozenset({3}), adoptable=frozenset({2, 3, 4}))
    step.handle(slow, 2.3)
    assert step.instructions(2.3) == [WaitUntil(pytest.approx(4.3))]
    step.handle(events.MachineJoined(2), 4.0)
    check_request(step, 4.4, machine=2)


def test_hosts_adopt_the_listed_machine_that_reduces_the_shortage_most():
    def count_missing(machines):  # machine 3 has the same rows as machine 1
        return 2 - len(set(machines) - {3})

    step = ElasticStep({1: State.IDLE}, {}, count_missing, adopt_after=2.0)
    step.handle(events.AvailabilityChanged(frozenset({1, 3, 4})), 0.0)
    step.handle(ExpectedMachines(adoptable=frozenset({2, 3, 4})), 0.0)
    assert step.instructions(0.0) == [WaitUntil(pytest.approx(2.0))]
    assert step.instructions(2.1) == [events.Adopt(4)]
    step.handle(ExpectedMachines(), 2.1)  # no host has memory for it
    assert step.instructions(2.1) == [StepFailed(events.TooFewMachines((1,)))]


# --- states and deadlines -----------------------------------------------------------------


def documented_transitions():
    """Return new states and consequences by cause and state, from the table in the docstring."""
    _, _, table, *_ = re.split(r"(?m)^====.*\n", states.__doc__)
    transitions = {}
    for line in table.splitlines():
        cause, state, new_state, consequence = re.split("  +", line)
        for old_state in State if state == "any" else [State(state)]:
            transitions[Cause(cause), old_state] = State(new_state), Consequence(consequence)
    return transitions


def test_the_documented_transitions_are_those_of_the_code():
    documented = documented_transitions()
    assert {cause for cause, _ in documented} == set(Cause)
    for cause in Cause:
        for state in State:
            expected = documented.get((cause, state), (state, Consequence.NOTHING))
            assert transition(cause, state) == expected


def test_a_machine_is_late_after_a_multiple_of_the_expected_time():
    deadline = Deadline(factor=2.0, min_seconds=0.0)
    assert seconds_until_late(None, [1.0], 1.0) is None
    assert seconds_until_late(deadline, [], None) is None
    assert seconds_until_late(deadline, [1.0, 2.0, 9.0], None) == 4.0
    assert seconds_until_late(deadline, [1.0], 3.0) == 6.0
    assert seconds_until_late(Deadline(factor=2.0, min_seconds=9.0), [1.0], None) == 9.0
    assert seconds_until_late(Deadline(seconds=0.5), [], None) == 0.5


def test_a_machine_is_unresponsive_after_ten_deadlines_and_five_seconds():
    assert seconds_until_unresponsive(None, 1.0) == math.inf
    assert seconds_until_unresponsive(Deadline(), None) == math.inf
    assert seconds_until_unresponsive(Deadline(), 0.1) == 5.0
    assert seconds_until_unresponsive(Deadline(), 2.0) == 20.0
    assert seconds_until_unresponsive(Deadline(seconds=3.0), 2.0) == 30.0
