"""Frames: what is sent in pieces comes together, and nonsense is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cec_mpi.runtime.processes.packing import pack
from cec_mpi.runtime.processes.places import detect_place
from cec_mpi.runtime.wire.orders import OpenReport
from cec_mpi.runtime.wire.sockets.messages import (
    ORDER,
    Hello,
    copy_frames,
    join_frame,
    package_fingerprint,
    split_frame,
    unpack_status,
)
from cec_mpi.runtime.wire.sockets.zeromq import PIECE_BYTES, to_frames


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES // 8, PIECE_BYTES // 8 + 1, PIECE_BYTES // 2])
def test_pieces_are_joined(size):
    sent = np.random.default_rng(1).standard_normal(size)
    frames = [frame.bytes for frame in to_frames(sent)]
    assert all(0 < len(frame) <= PIECE_BYTES for frame in frames)
    found = np.full(size, np.nan)
    assert copy_frames(frames, found)
    np.testing.assert_array_equal(found, sent)


def test_numbers_lie_behind_the_kind():
    numbers = np.arange(4.0)
    kind, head = split_frame(memoryview(join_frame(ORDER, numbers)))
    assert kind == ORDER
    np.testing.assert_array_equal(np.frombuffer(head), numbers)


def test_frames_that_do_not_fill_an_array_are_refused():
    room = np.zeros(3)
    assert not copy_frames([bytes(16)], room)
    assert not copy_frames([bytes(16), bytes(16)], room)
    assert copy_frames([bytes(16), b"", bytes(8)], room)


@pytest.mark.parametrize(
    "content", [None, "it raised", OpenReport("", "a", 2.5, True, False, "full")]
)
def test_the_status_of_a_machine_comes_as_it_was_sent(content):
    assert unpack_status(pack(content)) == content


def test_the_status_of_a_machine_can_be_written_to_any_terminal():
    bad = "a\x1b[2J\ud800\nb"
    assert unpack_status(pack(bad)) == "a\\x1b[2J\\ud800\nb"
    names = ("problem", "shard", "log_problem", "cache_problem")
    status = unpack_status(pack(OpenReport(**dict.fromkeys(names, bad), rate=np.inf)))
    assert status == OpenReport(**dict.fromkeys(names, "a\\x1b[2J\\ud800\nb"))
    hello = Hello(package_fingerprint(), 1, replace(detect_place(), host=bad))
    assert Hello.unpack(pack(hello)).place.host == "a\\x1b[2J\\ud800\\nb"


@pytest.mark.parametrize(
    "content",
    [1, [], [None]]
    + [
        {**json.loads(pack(OpenReport())), **wrong}
        for wrong in ({"shard": [1]}, {"shard": 1}, {"rate": "fast"}, {"shard_missing": 2})
    ],
)
def test_a_status_that_no_machine_sends_is_refused(content):
    with pytest.raises(ValueError):
        unpack_status(json.dumps(content).encode())


@pytest.mark.parametrize("read", [unpack_status, Hello.unpack])
def test_what_is_too_deep_to_be_read_is_refused(read):
    with pytest.raises(ValueError):
        read(b"[" * 100_000)


def test_a_hello_comes_as_it_was_sent():
    hello = Hello(package_fingerprint(), 12, detect_place(), 3, (2, 5), 4, 10**9, True)
    assert Hello.unpack(pack(hello)) == hello


SENT = json.loads(pack(Hello(package_fingerprint(), 1, detect_place())))
WRONG = {
    "package": [["1"], None, "1"],
    "pid": ["many", -1, None, float("inf"), [1]],
    "rank": [-1, 1 << 62, "first"],
    "machines": [-1, {}, [-1], ["1"], [1] * 10**5],
    "count": [-1, None, [2]],
    "memory": [-1, 1 << 62],
    "place": [
        None,
        "node1",
        {},
        SENT["place"] | {"ranks": -1},
        SENT["place"] | {"core_numbers": [0] * 10**5},
    ],
}


@pytest.mark.parametrize(
    "content",
    [None, "hello", {}, [SENT]]
    + [SENT | {name: value} for name, values in WRONG.items() for value in values]
    + [{key: value for key, value in SENT.items() if key != name} for name in ("pid", "place")],
)
def test_what_is_no_hello_is_refused(content):
    with pytest.raises(ValueError):
        Hello.unpack(json.dumps(content).encode())


def test_a_name_of_a_computer_has_an_end():
    hello = Hello(package_fingerprint(), 1, replace(detect_place(), host="a" * 10**6))
    assert Hello.unpack(pack(hello)).place.host == "a" * 255
