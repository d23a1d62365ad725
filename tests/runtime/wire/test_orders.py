"""What goes over each wire: orders, and reports of answers."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cec_mpi
from cec_mpi.core.elastic.events import Request
from cec_mpi.errors import CecError, DamagedStoreError, InputError
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.processes.packing import pack_fields, unpack_fields
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import (
    Opening,
    Order,
    OrderKind,
    ReportFields,
    Stop,
    clip_report,
    pack_report,
    parse_order,
)
from cec_mpi.store.shard import Loaded

NUMBERS = st.integers(0, 2**40)


@given(st.booleans(), NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_an_order_comes_as_it_was_sent(adjoint, columns, shard, step, length):
    product = Product(adjoint, columns)
    order = Order.for_step(product, shard, step, length)
    header = np.array(order, dtype=np.int64)
    assert header.nbytes == 40
    come = Order(*header.tolist())
    assert come == order
    assert come.product == product
    assert (come.shard, come.step, come.length) == (shard, step, length)


def test_orders_that_are_no_step():
    assert parse_order(Order(OrderKind.STOP), Stop().packed()) == Stop()
    stop = parse_order(Order(OrderKind.STOP), Stop(InputError("no")).packed())
    assert isinstance(stop, Stop)
    assert isinstance(stop.error, InputError)
    with pytest.raises(RuntimeError):
        parse_order(Order(99), b"")


class Mine(ValueError):
    """An exception that cannot be made from its text."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def unknown(base):
    """A class that other processes do not have."""
    return type("Unknown", (base,), {})


@pytest.mark.parametrize(
    ("error", "kind", "text", "code"),
    [
        (InputError("no such store"), InputError, "no such store", 2),
        (DamagedStoreError("a\udcff\x1b"), DamagedStoreError, "a\udcff\x1b", 5),
        (Mine(1, 2), Mine, "1 and 2", 1),
        (KeyError("w"), KeyError, "'w'", 1),
        (OSError(2, "gone"), FileNotFoundError, "[Errno 2] gone", 1),
        (KeyboardInterrupt(), KeyboardInterrupt, "", 1),
        (unknown(InputError)("no"), InputError, "no", 2),
        (unknown(OSError)("no"), CecError, "Unknown: no", 1),
    ],
)
def test_an_exception_crosses_as_kind_text_and_exit_code(error, kind, text, code):
    stop = parse_order(Order(OrderKind.STOP), Stop(error).packed())
    assert type(stop.error) is kind
    assert str(stop.error) == text
    assert getattr(stop.error, "exit_code", 1) == code


@pytest.mark.parametrize(("given", "code"), [(None, 0), (3, 3), ("why", "why")])
def test_the_end_of_a_program_crosses_with_its_exit_code(given, code):
    stop = parse_order(Order(OrderKind.STOP), Stop(SystemExit(given)).packed())
    assert (stop.error.code or 0) == code


def test_an_opening_comes_as_it_was_sent(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9")
    manifest = cec_mpi.encode(np.arange(12.0).reshape(6, 2), tmp_path / "store", 3, 2)
    options = MachineOptions(precision="shard", measures_speed=True, inject="random:1", threads=2)
    opening = Opening(path, manifest, (1, 0, 3), options, (1, 2, 3, 4), path, True, (2,))
    come = unpack_fields(pack_fields(opening), Opening)
    assert replace(come, manifest=manifest) == replace(opening, manifest=manifest)
    assert come.manifest == manifest
    assert (come.store, come.options) == (path, options)


def job_of(*intervals):
    return Job(Request(3, intervals), 7, Product(), np.ones(1), 0.0)


def test_a_report_comes_as_it_was_sent():
    report = Report(1.5, Loaded(0.5, 80), "no memory", leaving=True, damaged=True)
    job = job_of((0, 4), (6, 9))
    job.report_fields = pack_report(report, shard=3, finite=False)
    assert job.report_fields == ReportFields(3, 1.5, 0.5, 80, 1, 1, 1, 1)
    assert (job.count, job.failed) == (7, True)


@pytest.mark.parametrize(
    ("reported", "bounded"),
    [
        ((1.5, 0.5, 80), (1.5, 0.5, 80)),
        ((9.0, 2.5, 101), (2.0, 2.0, 100)),
        ((-1.0, np.nan, -np.inf), (0, 0, 0)),
        ((np.inf, 1e300, 2.0**62), (2.0, 2.0, 100)),
    ],
)
def test_what_a_machine_reports_is_bounded_by_what_is_possible(reported, bounded):
    seconds, load_seconds, size = reported
    report = pack_report(Report(seconds, Loaded(load_seconds, size)), shard=3)
    assert clip_report(report, 2.0, 100)[:4] == (3, *bounded)


@pytest.mark.parametrize("answered", [0, 2, np.nan])
def test_an_answer_for_another_shard_is_none(answered):
    job = job_of((0, 4))
    assert job.failed  # before it is answered
    job.report_fields = pack_report(Report(), shard=3)
    assert not job.failed
    job.report_fields = job.report_fields._replace(shard=answered)
    assert job.failed
