"""Arrays for answers: those of the last steps are used again, and no more are kept."""

import time
import tracemalloc

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.elastic.events import Request
from cec_mpi.core.elastic.terms import Term
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.wire.jobs import JobsEnd
from cec_mpi.runtime.wire.orders import Opening

ROWS, MIB = 1 << 18, 1 << 20  # 2 MiB of answers


class SilentHub:
    """A hub whose machines never answer, with one host for these machines."""

    clock, keeps = time, False

    def __init__(self, machines=9):
        self.roster = Roster(lambda change: None)
        self.roster.expect(range(1, machines + 1))
        self.roster.add(machines)
        for machine in range(1, machines + 1):
            self.roster.join(1, machine)
            self.roster.mark_joined(1, machine)
        self.sent = []

    def send_jobs(self, rank, jobs):
        self.sent.append([job.machine for job in jobs])
        for job in jobs:
            job.is_held = self.keeps


class Tracker:
    """As of ZeroMQ."""

    done = False


@pytest.fixture
def end(tmp_path):
    manifest = cec_mpi.encode(np.ones((4, 2)), tmp_path / "store", 2, 2)
    served = tmp_path / "store", manifest, (1, 2)
    opening = Opening(*served, MachineOptions(), (1, 1, 1))
    return JobsEnd(SilentHub(), opening)


def send(end, *requests, adjoint=False, content=None):
    w = np.ones(2) if content is None else content
    sent = end.send_jobs(0, Product(adjoint, 1), dict.fromkeys(requests, w))
    return [job for jobs in sent for job in jobs]


def step(end, *rows):
    jobs = send(end, *(Request(n, ((0, count),)) for n, count in enumerate(rows, start=1)))
    end.release(jobs)
    return [job.values for job in jobs]


def test_jobs_of_a_host_are_one_message_and_terms_of_one_sum_have_one_array(end):
    rows, lost = ((0, 2),), Term(9, ((0, 2),))
    terms = [Term(1, rows), Term(2, rows), Term(3, rows, lost), Term(4, rows, lost)]
    jobs = send(end, *(Request(term.machine, rows, term) for term in terms), adjoint=True)
    assert end.hub.sent == [[1, 2], [3, 4]]
    assert [job.values is jobs[0].values for job in jobs] == [True, True, False, False]
    assert jobs[2].values is jobs[3].values
    end.release(jobs)
    step(end, 3, 4)
    assert end.hub.sent[2:] == [[1, 2]]


def test_the_same_rows_are_answered_into_the_same_arrays(end):
    first = step(end, ROWS, ROWS // 2, 3)
    for _ in range(5):
        again = step(end, 3, ROWS, ROWS // 2)
        assert {id(values) for values in again} == {id(values) for values in first}
        assert all(np.isnan(values).all() for values in again)


def test_two_plans_in_turn_have_their_arrays(end):
    first, second = step(end, 8 * ROWS), step(end, 9 * ROWS)
    assert step(end, 8 * ROWS)[0] is first[0]
    assert step(end, 9 * ROWS)[0] is second[0]


def test_what_is_sent_must_not_change_until_the_hub_has_released_it(end):
    shared, other = np.ones(4), np.ones(4)
    end.hub.keeps = True
    contents = shared[:2], other
    jobs = [job for w in contents for job in send(end, Request(1, ((0, 1),)), content=w)]
    assert end.is_sending(shared)
    assert not end.is_sending(shared[2:])
    jobs[0].is_held = False  # it was answered
    assert not end.is_sending(shared)
    jobs[1].tracker = Tracker()  # as it is of a lost machine
    assert end.is_sending(other)
    jobs[1].tracker.done = True
    assert not end.is_sending(other)


@pytest.mark.parametrize(("rows", "most"), [(ROWS, 17 * MIB), (8 * ROWS, 70 * MIB)])
def test_rows_that_change_each_step_take_no_more_than_some_steps(end, rows, most):
    tracemalloc.start()
    try:
        for count in range(100):
            step(end, rows + count)
            assert tracemalloc.get_traced_memory()[0] < most
    finally:
        tracemalloc.stop()
