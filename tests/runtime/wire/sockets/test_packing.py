"""Jobs of a host in one message: short vectors go with them, long ones follow, w once."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.core.elastic.events import Request
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import Order, OrderKind, Part
from cec_mpi.runtime.wire.sockets.messages import pack_jobs, unpack_answer, unpack_order

PARTS = (Part(3, ((0, 4), (6, 9))), Part(5, ((2, 3),)))


def jobs_of(product, *contents):
    requests = [Request(*part) for part in PARTS[: len(contents)]]
    given = zip(requests, contents, strict=True)
    return [Job(each, 7, product, content, 0.0) for each, content in given]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("numbers", [1, 7, 8, 8192])
def test_a_short_vector_goes_with_the_jobs_once(numbers, dtype):
    w = np.arange(numbers, dtype=dtype).reshape(1, -1)
    message, follow = pack_jobs(jobs_of(Product(columns=1), w, w))
    order, job, content = unpack_order(np.frombuffer(message, np.int64))
    assert (order.step, order.length, follow) == (7, w.nbytes, [])
    assert (job.step, job.product, job.parts) == (7, Product(columns=1), PARTS)
    np.testing.assert_array_equal(content.view(dtype), w[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_short_coefficients_lie_one_behind_the_other(dtype):
    first, second = np.arange(7, dtype=dtype), np.array([9], dtype)
    message, follow = pack_jobs(jobs_of(Product(True, 1), first, second))
    _, job, content = unpack_order(np.frombuffer(message, np.int64))
    assert (job.parts, follow) == (PARTS, [])
    assert content.view(dtype).tolist() == [*range(7), 9]


@pytest.mark.parametrize("adjoint", [False, True])
def test_long_vectors_follow_and_w_only_once(adjoint):
    w = np.ones((1, 8193))
    other = np.zeros((1, 8193)) if adjoint else w
    message, follow = pack_jobs(jobs_of(Product(adjoint, 1), w, other))
    assert [each is given for each, given in zip(follow, (w, other), strict=False)] == [True] * (
        1 + adjoint
    )
    order, job, content = unpack_order(np.frombuffer(message, np.int64))
    assert (order.length, job.parts, content.size) == (0, PARTS, 0)


def test_an_order_that_is_no_job_has_no_parts():
    order = Order(OrderKind.OPEN, 1, length=4096)
    come, job, content = unpack_order(np.array(order, dtype=np.int64))
    assert (come, job, content.size) == (order, None, 0)


@pytest.mark.parametrize("cuts", [(), (16,), (8, 24), (8, 8, 56)])
def test_an_answer_is_split_by_jobs_however_it_is_cut(cuts):
    jobs = jobs_of(Product(columns=1), *np.zeros((2, 1, 1)))
    numbers = np.arange(8.0)  # of seven rows and one
    ends = (*cuts, numbers.nbytes)
    frames = [numbers.tobytes()[a:b] for a, b in zip((0, *cuts), ends, strict=True)]
    reports = np.arange(16.0).tobytes()
    for answer in ([reports + frames[0], *frames[1:]], [reports, *frames]):
        found, pieces = unpack_answer(list(map(memoryview, answer)), jobs, 9, numbers.dtype)
        assert [report.shard for report in found] == [0, 8]
        assert [np.concatenate(each).tolist() for each in pieces] == [[*range(7)], [7]]


@pytest.mark.parametrize(
    ("frames", "adjoint"),
    [
        ([bytes(63)], False),
        ([bytes(64), bytes(55)], False),
        ([bytes(64), bytes(64)], False),
        ([bytes(64), bytes(57), bytes(7)], True),
        ([bytes(64 + 56)], True),
    ],
)
def test_an_answer_of_another_length_is_refused(frames, adjoint):
    jobs = jobs_of(Product(adjoint, 1), np.zeros((1, 1)))
    with pytest.raises(ValueError):
        unpack_answer(list(map(memoryview, frames)), jobs, 8, np.dtype(np.float64))
