"""Jobs of a host in one message: short vectors go with them, long ones follow, w once."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.core.elastic.events import Request
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import Order, OrderKind, Part
from cec_mpi.runtime.wire.sockets.messages import copy_frames, pack_jobs, unpack_order

PARTS = (Part(3, ((0, 4), (6, 9))), Part(5, ((2, 3),)))


def jobs_of(product, *contents):
    requests = [Request(*part) for part in PARTS[: len(contents)]]
    given = zip(requests, contents, strict=True)
    return [Job(each, 7, product, content, np.empty(0), 0.0) for each, content in given]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("numbers", [1, 7, 8, 8192])
def test_a_short_vector_goes_with_the_jobs_once(numbers, dtype):
    w = np.arange(numbers, dtype=dtype).reshape(1, -1)
    message, follow = pack_jobs(jobs_of(Product(columns=1), w, w))
    order, job, content = unpack_order(message)
    assert (order.step, order.length, follow) == (7, w.nbytes, [])
    assert (job.step, job.product, job.parts) == (7, Product(columns=1), PARTS)
    np.testing.assert_array_equal(content.view(dtype), w[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_short_coefficients_lie_one_behind_the_other(dtype):
    first, second = np.arange(7, dtype=dtype), np.array([9], dtype)
    message, follow = pack_jobs(jobs_of(Product(True, 1), first, second))
    _, job, content = unpack_order(message)
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
    order, job, content = unpack_order(message)
    assert (order.length, job.parts, content.size) == (0, PARTS, 0)


def test_an_order_that_is_no_job_has_no_parts():
    order = Order(OrderKind.OPEN, 1, length=4096)
    come, job, content = unpack_order(np.array(order, dtype=np.int64))
    assert (come, job, content.size) == (order, None, 0)


@pytest.mark.parametrize("cuts", [(), (16,), (3, 24), (8, 8, 31)])
def test_frames_fill_arrays_one_after_the_other_however_they_are_cut(cuts):
    octets = np.arange(4.0).tobytes()
    ends = (*cuts, len(octets))
    frames = [octets[start:stop] for start, stop in zip((0, *cuts), ends, strict=True)]
    arrays = np.empty(1), np.empty(0), np.empty((3, 1))
    assert copy_frames(frames, *arrays)
    assert [array.ravel().tolist() for array in arrays] == [[0], [], [1, 2, 3]]
    assert not copy_frames([*frames, b"x"], *arrays)
    assert not copy_frames([octets[:-1]], *arrays)
