"""Arrays for answers: those of the last steps are used again, and no more are kept."""

import time
import tracemalloc

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.step.product import Product
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.wire.jobs import JobsEnd
from cec_mpi.runtime.wire.orders import Opening

ROWS, MIB = 1 << 18, 1 << 20  # 2 MiB of answers


class Asked:
    """A hub whose machines never answer: who asks has the job."""

    clock, keeps = time, False

    def ask(self, job, content):
        job.content = content if self.keeps else None


class Tracker:
    """As of ZeroMQ."""

    done = False


@pytest.fixture
def end(tmp_path):
    manifest = cec_mpi.encode(np.ones((4, 2)), tmp_path / "store", 2, 2)
    served = tmp_path / "store", manifest, (1, 2)
    opening = Opening(*served, MachineOptions(), (1, 1, 1))
    return JobsEnd(Asked(), opening)


def step(end, *rows):
    jobs = [end.ask(1, 0, Product(), ((0, count),), np.ones(2)) for count in rows]
    end.release(jobs)
    return [job.values for job in jobs]


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
    jobs = [end.ask(1, 0, Product(), ((0, 1),), content) for content in (shared[:2], other)]
    assert end.is_sending(shared)
    assert not end.is_sending(shared[2:])
    jobs[0].content = None  # it was answered
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
