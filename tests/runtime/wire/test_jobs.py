"""Jobs: those of one message, and operands that must not change until they are sent."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from cec_mpi.core.elastic.events import Request
from cec_mpi.core.elastic.terms import Term
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.wire.jobs import JobsEndpoint

ROWS = ((0, 2),)


class OneHostHub:
    """A hub with one host for all machines, which never answers."""

    clock, borrows = time, False

    def __init__(self, machines=4):
        self.roster = Roster(lambda change: None)
        self.roster.add_vacant(range(1, machines + 1))
        self.roster.add_host(machines)
        for machine in range(1, machines + 1):
            self.roster.assign(1, machine)
            self.roster.mark_joined(1, machine)
        self.messages = []

    def send_jobs(self, rank, jobs):
        self.messages.append([job.machine for job in jobs])
        for job in jobs:
            job.is_borrowed = self.borrows


@pytest.fixture
def endpoint():
    return JobsEndpoint(OneHostHub())


def send(endpoint, *requests, adjoint=False, operand=None):
    operand = np.ones(2) if operand is None else operand
    messages = endpoint.send_jobs(0, Product(adjoint, 1), dict.fromkeys(requests, operand))
    return [job for jobs in messages for job in jobs]


def test_jobs_of_a_host_are_one_message_unless_their_terms_belong_to_different_sums(endpoint):
    lost = Term(9, ROWS)
    terms = [Term(1, ROWS), Term(2, ROWS), Term(3, ROWS, lost), Term(4, ROWS, lost)]
    send(endpoint, *(Request(term.machine, ROWS, term) for term in terms), adjoint=True)
    send(endpoint, Request(1, ROWS), Request(2, ROWS))
    assert endpoint.hub.messages == [[1, 2], [3, 4], [1, 2]]


def test_an_operand_must_not_change_until_the_hub_has_released_it(endpoint):
    shared, other = np.ones(4), np.ones(4)
    endpoint.hub.borrows = True
    (first,) = send(endpoint, Request(1, ROWS), operand=shared[:2])
    (second,) = send(endpoint, Request(1, ROWS), operand=other)
    assert endpoint.is_sending(shared)
    assert not endpoint.is_sending(shared[2:])
    first.is_borrowed = False  # it was answered
    assert not endpoint.is_sending(shared)
    second.tracker = SimpleNamespace(done=False)  # of a lost machine
    assert endpoint.is_sending(other)
    second.tracker.done = True
    assert not endpoint.is_sending(other)
