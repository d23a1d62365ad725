"""Jobs and answers in one message: as they were packed, and long ones on their own."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.core.step.product import Product
from cec_mpi.runtime.wire.jobs import ReceiveBuffer
from cec_mpi.runtime.wire.orders import Kind, Order, Reported
from cec_mpi.runtime.wire.sockets.messages import (
    goes_with_order,
    goes_with_report,
    packed_job,
    unpacked_job,
)

ROWS = ((0, 4), (6, 9))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("numbers", [1, 7, 8, 8192])
def test_a_short_job_comes_as_it_was_packed(numbers, dtype):
    content = np.arange(numbers, dtype=dtype).reshape(1, -1)
    order = Order.of(Product(columns=1), shard=3, step=7)
    come, rows, along = unpacked_job(packed_job(order, ROWS, content))
    assert goes_with_order(content)
    assert come == order._replace(length=content.nbytes)
    assert tuple(map(tuple, rows.tolist())) == ROWS
    np.testing.assert_array_equal(along.view(dtype), content[0])


def test_a_long_vector_comes_on_its_own():
    content = np.ones((1, 8193))
    order = Order.of(Product(columns=1))
    packed = packed_job(order, ROWS, content)
    assert not goes_with_order(content)
    assert packed.tolist() == [*order, 0, 4, 6, 9]
    come, _, along = unpacked_job(packed)
    assert (come, along.size) == (order, 0)


def test_what_follows_an_order_that_is_no_job_comes_on_its_own():
    order = Order(Kind.OPEN, 1, length=4096)
    come, rows, along = unpacked_job(np.array(order, dtype=np.int64))
    assert (come, rows.size, along.size) == (order, 0, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("numbers", [0, 1, 8, 16385])
def test_answers_lie_behind_their_report_and_none_counts_as_failed(numbers, dtype):
    buffer = ReceiveBuffer(numbers, np.dtype(dtype))
    assert buffer.values.shape == (numbers,)
    assert buffer.values.dtype == dtype
    buffer.clear()
    assert np.isnan(buffer.report).all()
    assert np.isnan(buffer.values).all()
    sent = ReceiveBuffer(numbers, np.dtype(dtype))
    sent.report[:] = range(Reported.size())
    sent.values[:] = range(numbers)
    buffer.packed[:] = sent.packed
    assert buffer.report.tolist() == list(range(Reported.size()))
    np.testing.assert_array_equal(buffer.values, np.arange(numbers, dtype=dtype))
    assert goes_with_report(buffer.values) == (numbers * np.dtype(dtype).itemsize <= 131072)
