"""A job and an answer in one message each, where they are short.

A small step costs what its messages cost. A long vector is not copied for it: it goes on its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.plan.numbers import Ints
from cec_mpi.core.step.product import SHORT_ANSWERS, SHORT_VECTOR
from cec_mpi.wire.jobs import Job
from cec_mpi.wire.opening import Opening
from cec_mpi.wire.orders import Adopt, Kind, Multiply, Order

_NUMBER = 8  # bytes
_HEADER = len(Order._fields)


def goes_with_order(content: NDArray[Any]) -> bool:
    """Whether what a job multiplies with goes with its order."""
    return content.nbytes <= SHORT_VECTOR


def packed_job(
    order: Order, intervals: Iterable[tuple[int, int]], content: NDArray[Any]
) -> NDArray[np.int64]:
    """An order of a job, its rows, and what it multiplies with where that goes along.

    The `length` of the order is how many bytes go along.
    """
    rows = chain(*intervals)
    if not goes_with_order(content):
        return np.array([*order, *rows], dtype=np.int64)
    head = [*order._replace(length=content.nbytes), *rows]
    packed = np.zeros(len(head) + -(-content.nbytes // _NUMBER), dtype=np.int64)
    packed[: len(head)] = head
    packed[len(head) :].view(np.uint8)[: content.nbytes] = content.reshape(-1).view(np.uint8)
    return packed


def packed(job: Job, content: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    """The order of a job, or to take over shards; and what goes on its own behind it."""
    if job.adopted is not None:
        order = Order(Kind.ADOPT, job.store, job.machine, job.step)
        return np.array([*order, *job.adopted], dtype=np.int64), None
    header = Order.of(job.product, job.store, job.machine, job.step)
    numbers = packed_job(header, job.intervals, content)
    return numbers, None if goes_with_order(content) else content


def unpacked_job(numbers: NDArray[np.int64]) -> tuple[Order, Ints, NDArray[np.uint8]]:
    """An order, its rows as pairs, and what came along: nothing where it comes on its own.

    Of an order that is no job, the numbers behind its header take the place of rows.
    """
    order = Order(*numbers[:_HEADER].tolist())
    if not order.is_step:
        return order, numbers[_HEADER:], np.empty(0, np.uint8)
    along = order.length
    end = numbers.size - -(-along // _NUMBER)
    content = numbers[end:].view(np.uint8)[:along]
    return order, numbers[_HEADER:end].reshape(-1, 2), content


def asked_for(order: Order, pairs: Ints) -> Multiply | Adopt | None:
    """The job that an unpacked order asks for; None where it is another order."""
    if order.is_step:
        intervals = tuple(map(tuple, pairs.tolist()))
        return Multiply(order.store, order.step, order.shard, order.product, intervals)
    if order.kind == Kind.ADOPT:
        return Adopt(order.store, order.step, order.shard, tuple(pairs.tolist()))
    return None


def shape_for(order: Multiply, opening: Opening) -> tuple[int, int]:
    """The shape of what a job multiplies with."""
    adjoint, columns = order.product
    assert order.intervals is not None
    rows = sum(stop - start for start, stop in order.intervals)
    return (rows, columns) if adjoint else (columns, opening.manifest.columns)


def goes_with_report(values: NDArray[Any]) -> bool:
    """Whether answers go with their report."""
    return values.nbytes <= SHORT_ANSWERS
