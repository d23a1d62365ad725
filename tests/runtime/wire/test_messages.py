"""Messages arrive as they were sent, and invalid ones are refused."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.elastic.events import Request
from cec_mpi.core.elastic.terms import Term
from cec_mpi.errors import CecError, DamagedStoreError, InputError
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.processes.packing import pack, pack_fields, unpack_fields
from cec_mpi.runtime.processes.resources import detect_process
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import Roster
from cec_mpi.runtime.wire.jobs import Job, JobsEndpoint
from cec_mpi.runtime.wire.orders import (
    Open,
    Opening,
    OpenReport,
    Order,
    OrderKind,
    Part,
    ReportFields,
    Stop,
    clip_report,
    pack_report,
    parse_order,
)
from cec_mpi.runtime.wire.sockets.machine_endpoint import ShutdownRequested, SocketMachineEndpoint
from cec_mpi.runtime.wire.sockets.messages import (
    ANSWER,
    LEAVE,
    LEAVE_ACK,
    ORDER,
    Hello,
    copy_frames,
    pack_jobs,
    package_fingerprint,
    unpack_answer,
    unpack_order,
    unpack_status,
)
from cec_mpi.runtime.wire.sockets.zeromq import FRAME_BYTES, to_frames
from cec_mpi.store.shard import LoadCost

PARTS = (Part(3, ((0, 4), (6, 9))), Part(5, ((2, 3),)))
UNSAFE = "a\x1b[2J\ud800\nb"
HELLO = Hello(package_fingerprint(), detect_process(), 3, (2, 5), 4, 10**9, True)


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES // 8, FRAME_BYTES // 8 + 1])
def test_an_array_is_sent_in_pieces(size):
    sent = np.random.default_rng(1).standard_normal(size)
    frames = [frame.bytes for frame in to_frames(sent)]
    assert all(0 < len(frame) <= FRAME_BYTES for frame in frames)
    received = np.full(size, np.nan)
    assert copy_frames(frames, received)
    np.testing.assert_array_equal(received, sent)
    assert not copy_frames([*frames, bytes(8)], received)


def test_texts_are_safe_for_terminals_and_names_are_short():
    assert unpack_status(pack(UNSAFE)) == "a\\x1b[2J\\ud800\nb"
    names = ("problem", "shard_path", "log_problem", "cache_problem")
    status = unpack_status(pack(OpenReport(**dict.fromkeys(names, UNSAFE), rate=np.inf)))
    assert status == OpenReport(**dict.fromkeys(names, "a\\x1b[2J\\ud800\nb"))
    for name, expected in (UNSAFE, "a\\x1b[2J\\ud800\\nb"), ("a" * 10**6, "a" * 255):
        hello = replace(HELLO, process=replace(HELLO.process, host_name=name))
        assert Hello.unpack(pack(hello)).process.host_name == expected


REPORT, VALID_HELLO = json.loads(pack(OpenReport())), json.loads(pack(HELLO))
PROCESS = VALID_HELLO["process"]
INVALID_REPORT = {"shard_path": [1], "rate": "fast", "is_shard_missing": 2}
INVALID_HELLO = {
    "package": [["1"], None],
    "initial_rank": [-1, 1 << 62],
    "machines": [-1, [-1], [1] * 10**5],
    "slots": [-1, None],
    "memory": [1 << 62],
    "process": [
        None,
        {},
        PROCESS | {"ranks": -1},
        PROCESS | {"pid": "many"},
        PROCESS | {"core_numbers": [0] * 10**5},
    ],
}


@pytest.mark.parametrize(
    ("unpack", "content"),
    [(unpack_status, 1), (unpack_status, [None]), (Hello.unpack, {}), (Hello.unpack, [VALID_HELLO])]
    + [(unpack_status, REPORT | {name: value}) for name, value in INVALID_REPORT.items()]
    + [
        (Hello.unpack, VALID_HELLO | {name: value})
        for name, values in INVALID_HELLO.items()
        for value in values
    ],
)
def test_an_invalid_message_is_refused(unpack, content):
    with pytest.raises(ValueError):
        unpack(json.dumps(content).encode())
    with pytest.raises(ValueError):
        unpack(b"[" * 100_000)


# --- orders and reports -------------------------------------------------------------------


class TwoArgumentError(ValueError):
    """An exception that cannot be created from its text."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def make_unknown_class(base):
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
        (make_unknown_class(InputError)("no"), InputError, "no", 2),
        (make_unknown_class(OSError)("no"), CecError, "Unknown: no", 1),
        (SystemExit(3), SystemExit, "3", 1),
        (SystemExit("why"), SystemExit, "why", 1),
    ],
)
def test_an_exception_is_sent_with_class_text_and_exit_code(error, type_, text, code):
    stop = parse_order(Order(OrderKind.STOP), Stop(error).pack_payload())
    assert type(stop.error) is type_
    assert str(stop.error) == text
    assert getattr(stop.error, "exit_code", 1) == code


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
    for machine, has_failed in (3, False), (0, True), (2, True), (np.nan, True):
        job.report_fields = pack_report(Report(), machine)
        assert job.has_failed is has_failed
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


# --- jobs ---------------------------------------------------------------------------------


def make_jobs(product, *operands):
    requests = [Request(*part) for part in PARTS[: len(operands)]]
    pairs = zip(requests, operands, strict=True)
    return [Job(request, 7, product, operand, 0.0) for request, operand in pairs]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("adjoint", "size"), [(False, 1), (False, 7), (False, 8192), (True, 7)])
def test_short_operands_are_sent_in_the_order(size, adjoint, dtype):
    """W is sent once, and coefficients for each job."""
    product = Product(adjoint, 1)
    first = np.arange(size, dtype=dtype).reshape(1, -1)
    second = np.array([[9]], dtype) if adjoint else first
    message, frames = pack_jobs(make_jobs(product, first, second))
    order, jobs, operands = unpack_order(np.frombuffer(message, np.int64))
    assert (order.step_or_threads, order.length, frames) == (7, operands.size, [])
    assert (jobs.step, jobs.product, jobs.parts) == (7, product, PARTS)
    assert operands.view(dtype).tolist() == [*range(size), *([9] if adjoint else [])]


@pytest.mark.parametrize("adjoint", [False, True])
def test_long_operands_are_sent_separately(adjoint):
    w = np.ones((1, 8193))
    second = np.zeros((1, 8193)) if adjoint else w
    message, frames = pack_jobs(make_jobs(Product(adjoint, 1), w, second))
    assert list(map(id, frames)) == [id(w), id(second)][: 1 + adjoint]
    order, jobs, operands = unpack_order(np.frombuffer(message, np.int64))
    assert (order.length, jobs.parts, operands.size) == (0, PARTS, 0)


@pytest.mark.parametrize("cuts", [(), (16,), (8, 8, 56)])
def test_an_answer_is_split_by_jobs(cuts):
    jobs = make_jobs(Product(), *np.zeros((2, 1, 1)))
    values = np.arange(8.0)  # of seven rows and one
    bounds = zip((0, *cuts), (*cuts, values.nbytes), strict=True)
    frames = [values.tobytes()[begin:end] for begin, end in bounds]
    reports = np.arange(16.0).tobytes()
    for answer in ([reports + frames[0], *frames[1:]], [reports, *frames]):
        fields, answers = unpack_answer(list(map(memoryview, answer)), jobs, 9, values.dtype)
        assert [report.machine for report in fields] == [0, 8]
        assert [np.concatenate(pieces).tolist() for pieces in answers] == [[*range(7)], [7]]


@pytest.mark.parametrize(
    ("sizes", "adjoint"),
    [((63,), False), ((64, 55), False), ((64, 64), False), ((64, 57, 7), True), ((120,), True)],
)
def test_an_answer_of_the_wrong_length_is_refused(sizes, adjoint):
    jobs = make_jobs(Product(adjoint, 1), np.zeros((1, 1)))
    with pytest.raises(ValueError):
        unpack_answer([memoryview(bytes(n)) for n in sizes], jobs, 8, np.dtype(np.float64))


ROWS = ((0, 2),)


class OneHostHub:
    """A hub with one host for four machines, which never answers."""

    clock, borrows = time, False

    def __init__(self):
        self.roster = Roster(lambda change: None)
        self.roster.add_vacant(range(1, 5))
        self.roster.add_host(4)
        for machine in range(1, 5):
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


def test_jobs_of_a_host_share_a_message_unless_their_terms_belong_to_different_sums(endpoint):
    lost_term = Term(9, ROWS)
    terms = [Term(1, ROWS), Term(2, ROWS), Term(3, ROWS, lost_term), Term(4, ROWS, lost_term)]
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


# --- a machine that has received a signal -------------------------------------------------


class RecordingConnection:
    """A connection that receives these messages (None for a time limit) and records those sent."""

    def __init__(self, *messages):
        self.messages = deque(messages)
        self.sent = []

    def send(self, kind, head=b"", frames=()):
        self.sent.append([kind, bytes(head), *map(bytes, frames)])

    def receive(self, seconds):
        return self.messages.popleft()


@pytest.fixture
def receive():
    """Return a function that receives the first order on a machine that has received SIGTERM."""
    with SignalRecorder() as earlier_signals:
        signal.raise_signal(signal.SIGTERM)

    def receive(*messages):
        connection = RecordingConnection(*messages)
        endpoint = SocketMachineEndpoint(connection, 1, earlier_signals)
        with SignalRecorder() as signals:
            return connection, endpoint, endpoint.receive_order(signals)

    return receive


def make_order(kind, parts=0, *numbers):
    return [ORDER, np.array([*Order(kind, parts), *numbers], dtype=np.int64).tobytes()]


def test_a_machine_leaves_even_if_the_master_sends_an_order_first(receive, tmp_path):
    manifest = cec_mpi.encode(np.ones((2, 2)), tmp_path / "store", 1, 1)
    opening = Opening(tmp_path / "store", manifest, (1,), MachineOptions(), (1, 1))
    messages = None, [*make_order(OrderKind.OPEN), pack_fields(opening)], [LEAVE_ACK]
    connection, endpoint, parsed = receive(*messages)
    assert isinstance(parsed, Open)
    with pytest.raises(ShutdownRequested, match="SIGTERM"):
        endpoint.send_open_report(OpenReport())
    assert connection.sent[0] == [LEAVE, b""]


def test_the_first_answer_reports_an_earlier_signal(receive):
    connection, endpoint, jobs = receive(make_order(OrderKind.MULTIPLY, 1, 3, 1, 0, 1))
    endpoint.send_answer(jobs, [np.zeros(1)], [Report(0.5)])
    kind, head = connection.sent[0]
    assert kind == ANSWER
    assert ReportFields(*np.frombuffer(head)[: ReportFields.size()]).leaving == 1
