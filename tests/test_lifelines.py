"""Connections that say who is alive."""

import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from cec_mpi.runtime.lifelines import Lifeline, Lifelines

CHILD = """
import sys, time
from cec_mpi.runtime.lifelines import Address, Lifeline
line = Lifeline(Address((sys.argv[1],), int(sys.argv[2]), bytes.fromhex(sys.argv[3])), 7)
print(line.is_up, flush=True)
time.sleep(60)
"""


@pytest.fixture
def lifelines():
    found = Lifelines()
    yield found
    found.close()


def gone(lifelines, limit=5.0):
    """Who is gone, as soon as anybody is."""
    due = time.monotonic() + limit
    while time.monotonic() < due:
        found = lifelines.gone()
        if found:
            return found
        time.sleep(0.005)
    return []


def test_both_ends_see_that_the_other_is_closed(lifelines):
    lines = [Lifeline(lifelines.address, rank) for rank in (1, 2)]
    assert all(line.is_up for line in lines)
    lifelines.accept([1, 2])
    assert lifelines.gone() == []
    lines[1].close()
    assert gone(lifelines) == [2]
    assert not lines[0].is_cut
    lifelines.close()
    time.sleep(0.05)
    assert lines[0].is_cut
    lines[0].close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_is_gone_at_once(lifelines, number):
    _, port, token = lifelines.address
    words = [sys.executable, "-c", CHILD, "127.0.0.1", str(port), token.hex()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "True\n"
            lifelines.accept([7])
            assert gone(lifelines, 0.2) == []
            child.send_signal(number)
            assert gone(lifelines) == [7]
        finally:
            child.kill()


def test_strangers_are_not_heard(lifelines):
    port = lifelines.address.port
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"x" * 20)
        line = Lifeline(lifelines.address, 3)
        lifelines.accept([3])
        line.close()
        assert gone(lifelines) == [3]


def test_a_rank_0_out_of_reach_is_said_so(lifelines):
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    address = lifelines.address._replace(hosts=("127.0.0.1",), port=free)
    line = Lifeline(address, 1)
    assert not line.is_up
    assert not line.is_cut


@pytest.mark.parametrize("answer", [b"who are you?\n", b"", None], ids=["other", "end", "silence"])
def test_somebody_else_at_an_address_is_not_taken_for_rank_0(lifelines, monkeypatch, answer):
    """As where each computer has a card with the same address, and a server of its own."""
    monkeypatch.setattr("cec_mpi.runtime.lifelines._CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as other:
        calls = []

        def serve():
            connection, _ = other.accept()
            calls.append(connection)
            if answer is not None:
                connection.sendall(answer)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        port = other.getsockname()[1]
        line = Lifeline(lifelines.address._replace(hosts=("127.0.0.1",), port=port), 5)
        thread.join()
        calls[0].close()
    assert not line.is_up
    assert not line.is_cut


def test_all_callers_are_heard_however_many(lifelines):
    lines = [Lifeline(lifelines.address, rank) for rank in range(1, 41)]
    lifelines.accept(range(1, 31), more=True)
    lifelines.accept(range(31, 41))
    assert lifelines.gone() == []
    for line in lines:
        line.close()
    found = set()
    while some := gone(lifelines, 1.0):
        found |= set(some)
    assert found == set(range(1, 41))
