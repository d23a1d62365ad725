"""Messages on sockets: they arrive as they were sent, and invalid ones are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cec_mpi.core.elastic.events import Request
from cec_mpi.runtime.processes.packing import pack
from cec_mpi.runtime.processes.resources import detect_process
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import OpenReport, Part
from cec_mpi.runtime.wire.sockets.messages import (
    Hello,
    copy_frames,
    pack_jobs,
    package_fingerprint,
    unpack_answer,
    unpack_order,
    unpack_status,
)
from cec_mpi.runtime.wire.sockets.zeromq import FRAME_BYTES, to_frames

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


@pytest.mark.parametrize(
    "status", [None, "it raised", OpenReport("", "a", 2.5, True, False, "full")]
)
def test_a_status_and_a_hello_arrive_as_they_were_sent(status):
    assert unpack_status(pack(status)) == status
    assert Hello.unpack(pack(HELLO)) == HELLO


def test_texts_are_safe_for_terminals_and_names_are_short():
    assert unpack_status(pack(UNSAFE)) == "a\\x1b[2J\\ud800\nb"
    names = ("problem", "shard_path", "log_problem", "cache_problem")
    status = unpack_status(pack(OpenReport(**dict.fromkeys(names, UNSAFE), rate=np.inf)))
    assert status == OpenReport(**dict.fromkeys(names, "a\\x1b[2J\\ud800\nb"))
    for name, expected in (UNSAFE, "a\\x1b[2J\\ud800\\nb"), ("a" * 10**6, "a" * 255):
        hello = replace(HELLO, process=replace(HELLO.process, host_name=name))
        assert Hello.unpack(pack(hello)).process.host_name == expected


REPORT, VALID = json.loads(pack(OpenReport())), json.loads(pack(HELLO))
PROCESS = VALID["process"]
INVALID_REPORT = {"shard_path": [1], "rate": "fast", "is_shard_missing": 2}
INVALID_HELLO = {
    "package": [["1"], None],
    "launcher_rank": [-1, 1 << 62],
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
    [(unpack_status, 1), (unpack_status, [None]), (Hello.unpack, {}), (Hello.unpack, [VALID])]
    + [(unpack_status, REPORT | {name: value}) for name, value in INVALID_REPORT.items()]
    + [
        (Hello.unpack, VALID | {name: value})
        for name, values in INVALID_HELLO.items()
        for value in values
    ],
)
def test_an_invalid_message_is_refused(unpack, content):
    with pytest.raises(ValueError):
        unpack(json.dumps(content).encode())
    with pytest.raises(ValueError):
        unpack(b"[" * 100_000)


# --- jobs ---------------------------------------------------------------------------------


def jobs_of(product, *operands):
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
    message, separate = pack_jobs(jobs_of(product, first, second))
    order, jobs, operands = unpack_order(np.frombuffer(message, np.int64))
    assert (order.step_or_threads, order.length, separate) == (7, operands.size, [])
    assert (jobs.step, jobs.product, jobs.parts) == (7, product, PARTS)
    assert operands.view(dtype).tolist() == [*range(size), *([9] if adjoint else [])]


@pytest.mark.parametrize("adjoint", [False, True])
def test_long_operands_are_sent_separately(adjoint):
    w = np.ones((1, 8193))
    second = np.zeros((1, 8193)) if adjoint else w
    message, separate = pack_jobs(jobs_of(Product(adjoint, 1), w, second))
    assert list(map(id, separate)) == [id(w), id(second)][: 1 + adjoint]
    order, jobs, operands = unpack_order(np.frombuffer(message, np.int64))
    assert (order.length, jobs.parts, operands.size) == (0, PARTS, 0)


@pytest.mark.parametrize("cuts", [(), (16,), (8, 8, 56)])
def test_an_answer_is_split_by_jobs(cuts):
    jobs = jobs_of(Product(), *np.zeros((2, 1, 1)))
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
    jobs = jobs_of(Product(adjoint, 1), np.zeros((1, 1)))
    with pytest.raises(ValueError):
        unpack_answer([memoryview(bytes(n)) for n in sizes], jobs, 8, np.dtype(np.float64))
