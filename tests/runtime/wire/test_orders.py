"""Orders, exceptions and reports: they arrive as they were sent."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

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
from cec_mpi.store.shard import LoadCost


class TwoArgumentError(ValueError):
    """An exception that cannot be created from its text."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def unknown(base):
    """Return a class that other processes do not have."""
    return type("Unknown", (base,), {})


@pytest.mark.parametrize(
    ("error", "type_", "text", "code"),
    [
        (None, type(None), "None", 1),
        (DamagedStoreError("a\udcff\x1b"), DamagedStoreError, "a\udcff\x1b", 5),
        (TwoArgumentError(1, 2), TwoArgumentError, "1 and 2", 1),
        (OSError(2, "gone"), FileNotFoundError, "[Errno 2] gone", 1),
        (KeyboardInterrupt(), KeyboardInterrupt, "", 1),
        (unknown(InputError)("no"), InputError, "no", 2),
        (unknown(OSError)("no"), CecError, "Unknown: no", 1),
        (SystemExit(3), SystemExit, "3", 1),
        (SystemExit("why"), SystemExit, "why", 1),
    ],
)
def test_an_exception_is_sent_with_class_text_and_exit_code(error, type_, text, code):
    stop = parse_order(Order(OrderKind.STOP), Stop(error).pack_payload())
    assert type(stop.error) is type_
    assert str(stop.error) == text
    assert getattr(stop.error, "exit_code", 1) == code


def test_an_unknown_order_is_refused():
    with pytest.raises(RuntimeError, match="unknown order"):
        parse_order(Order(99), b"")


def test_an_opening_arrives_as_it_was_sent(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9")
    manifest = cec_mpi.encode(np.arange(12.0).reshape(6, 2), tmp_path / "store", 3, 2)
    options = MachineOptions(precision="shard", measures_speed=True, inject="random:1", threads=2)
    sent = Opening(path, manifest, (1, 0, 3), options, (1, 2, 3, 4), path, True, (2,))
    received = unpack_fields(pack_fields(sent), Opening)
    assert replace(received, manifest=manifest) == sent
    assert received.manifest == manifest


def test_a_job_fails_without_an_answer_by_its_machine():
    job = Job(Request(3, ((0, 4), (6, 9))), 7, Product(), np.ones(1), 0.0)
    assert job.row_count == 7
    assert job.has_failed
    for machine, failed in (3, False), (0, True), (2, True), (np.nan, True):
        job.report_fields = pack_report(Report(), machine)
        assert job.has_failed is failed
    report = Report(1.5, LoadCost(0.5, 80), "no memory", leaving=True, damaged=True)
    job.report_fields = pack_report(report, 3, is_finite=False)
    assert job.report_fields == ReportFields(3, 1.5, 0.5, 80, 1, 1, 1, 1)
    assert job.has_failed


@pytest.mark.parametrize(
    ("reported", "clipped"),
    [
        ((1.5, 0.5, 80), (1.5, 0.5, 80)),
        ((9.0, 2.5, 101), (2.0, 2.0, 100)),
        ((-1.0, np.nan, -np.inf), (0, 0, 0)),
        ((np.inf, 1e300, 2.0**62), (2.0, 2.0, 100)),
    ],
)
def test_reported_times_and_bytes_are_clipped(reported, clipped):
    seconds, load_seconds, load_bytes = reported
    report = pack_report(Report(seconds, LoadCost(load_seconds, load_bytes)), 3)
    assert clip_report(report, 2.0, 100)[:4] == (3, *clipped)
