"""Jobs: what goes in one message, and what must not change until it is sent."""

import time

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.elastic.events import Request
from cec_mpi.core.elastic.terms import Term
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.wire.jobs import JobsEndpoint
from cec_mpi.runtime.wire.orders import Opening


class SilentHub:
    """A hub whose machines never answer, with one host for these machines."""

    clock, keeps = time, False

    def __init__(self, machines=9):
        self.roster = Roster(lambda change: None)
        self.roster.add_vacant(range(1, machines + 1))
        self.roster.add_host(machines)
        for machine in range(1, machines + 1):
            self.roster.assign(1, machine)
            self.roster.mark_joined(1, machine)
        self.sent = []

    def send_jobs(self, rank, jobs):
        self.sent.append([job.machine for job in jobs])
        for job in jobs:
            job.is_borrowed = self.keeps


class Tracker:
    """As of ZeroMQ."""

    done = False


@pytest.fixture
def end(tmp_path):
    manifest = cec_mpi.encode(np.ones((4, 2)), tmp_path / "store", 2, 2)
    served = tmp_path / "store", manifest, (1, 2)
    opening = Opening(*served, MachineOptions(), (1, 1, 1))
    return JobsEndpoint(SilentHub(), opening)


def send(end, *requests, adjoint=False, content=None):
    w = np.ones(2) if content is None else content
    sent = end.send_jobs(0, Product(adjoint, 1), dict.fromkeys(requests, w))
    return [job for jobs in sent for job in jobs]


def test_jobs_of_a_host_go_in_one_message_unless_they_are_of_different_sums(end):
    rows, lost = ((0, 2),), Term(9, ((0, 2),))
    terms = [Term(1, rows), Term(2, rows), Term(3, rows, lost), Term(4, rows, lost)]
    send(end, *(Request(term.machine, rows, term) for term in terms), adjoint=True)
    send(end, Request(1, rows), Request(2, rows))
    assert end.hub.sent == [[1, 2], [3, 4], [1, 2]]


def test_what_is_sent_must_not_change_until_the_hub_has_released_it(end):
    shared, other = np.ones(4), np.ones(4)
    end.hub.keeps = True
    contents = shared[:2], other
    jobs = [job for w in contents for job in send(end, Request(1, ((0, 1),)), content=w)]
    assert end.is_sending(shared)
    assert not end.is_sending(shared[2:])
    jobs[0].is_borrowed = False  # it was answered
    assert not end.is_sending(shared)
    jobs[1].tracker = Tracker()  # as it is of a lost machine
    assert end.is_sending(other)
    jobs[1].tracker.done = True
    assert not end.is_sending(other)
