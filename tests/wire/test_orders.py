"""What goes over each wire: orders, and reports of answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.step.product import Product
from cec_mpi.errors import InputError
from cec_mpi.store.shard import Loaded
from cec_mpi.wire.jobs import Job, ReceiveBuffer
from cec_mpi.wire.orders import (
    Kind,
    Order,
    Report,
    Reported,
    Stop,
    pack_report,
    parse_order,
)

NUMBERS = st.integers(0, 2**40)


@given(st.booleans(), NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_an_order_comes_as_it_was_sent(adjoint, columns, shard, step, length):
    product = Product(adjoint, columns)
    order = Order.of(product, shard, step, length)
    header = np.array(order, dtype=np.int64)
    assert header.nbytes == 40
    come = Order(*header.tolist())
    assert come == order
    assert come.product == product
    assert (come.shard, come.step, come.length) == (shard, step, length)


def test_orders_that_are_no_step():
    assert parse_order(Order(Kind.STOP), Stop().packed()) == Stop()
    stop = parse_order(Order(Kind.STOP), Stop(InputError("no")).packed())
    assert isinstance(stop, Stop)
    assert isinstance(stop.error, InputError)
    with pytest.raises(RuntimeError):
        parse_order(Order(99), b"")


def job_of(*intervals):
    return Job(3, 7, Product(), intervals, ReceiveBuffer(0, np.dtype(float)), 0.0)


def test_a_report_comes_as_it_was_sent():
    report = Report(1.5, Loaded(0.5, 80), "no memory", leaving=True, damaged=True)
    job = job_of((0, 4), (6, 9))
    job.buffer.report[:] = pack_report(report, shard=3, finite=False)
    assert job.reported == Reported(3, 1.5, 0.5, 80, 1, 1, 1, 1)
    assert (job.count, job.failed, job.leaving) == (7, True, True)


@pytest.mark.parametrize("answered", [0, 2, np.nan])
def test_an_answer_for_another_shard_is_none(answered):
    job = job_of((0, 4))
    job.buffer.report[:] = pack_report(Report(), shard=3)
    assert not job.failed
    job.buffer.report[0] = answered
    assert job.failed
