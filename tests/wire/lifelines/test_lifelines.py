"""Connections that say who is alive, and strangers that call where they are made."""

import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cec_mpi.wire.lifelines.handshake import RefusedError, call, shake_hands
from cec_mpi.wire.lifelines.lifelines import Lifeline, Lifelines

RANKS = range(1, 7)
CHILD = """
import json, sys, time
from cec_mpi.wire.lifelines.lifelines import Address, Lifeline
places, network, secret = json.loads(sys.stdin.readline())
line = Lifeline(Address(tuple(map(tuple, places)), network, bytes.fromhex(secret)), 7)
print(line.is_up, flush=True)
time.sleep(60)
"""


@pytest.fixture
def lifelines():
    found = Lifelines(range(1, 41), ("127.0.0.1",))
    yield found
    found.close()


@pytest.fixture
def strangers():
    """Connections that are open until the end of the test."""
    with ExitStack() as kept:

        def connect(address, count, said=b""):
            """So many of them, each of which says this."""
            found = []
            for _ in range(count):
                stranger = socket.create_connection(address.places[-1], 5)
                kept.callback(stranger.close)
                stranger.sendall(said)
                found.append(stranger)
            return found

        yield connect


def until(condition, limit=60.0):
    """Wait until something is so; returns whether it came to that."""
    due = time.monotonic() + limit
    while not (found := condition()) and time.monotonic() < due:
        time.sleep(0.005)
    return found


def gone(lifelines, limit=60.0):
    """Who is gone, as soon as anybody is."""
    return until(lifelines.gone, limit)


def called(address, ranks):
    """Lifelines of processes that call all at once."""
    lines = {}

    def call_as(rank):
        lines[rank] = Lifeline(address, rank)

    threads = [threading.Thread(target=call_as, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [lines[rank] for rank in ranks]


def claim(address, rank):
    """The connection of a process that says it is this rank, and knows the secret."""
    connection = socket.create_connection(address.places[-1], 5)
    try:
        shake_hands(connection, call(address.secret, rank), 5)
    except OSError:
        connection.close()
        raise
    return connection


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def next_file():
    """The number of the file that would be opened next: none is, when this is the limit."""
    number = os.dup(1)
    os.close(number)
    return number


def test_both_ends_see_that_the_other_is_closed(lifelines):
    lines = [Lifeline(lifelines.address, rank) for rank in (1, 2)]
    assert all(line.is_up for line in lines)
    lifelines.accept([1, 2])
    assert lifelines.gone() == []
    lines[1].close()
    assert gone(lifelines) == [2]
    assert not lines[0].is_cut
    lifelines.close()
    assert until(lambda: lines[0].is_cut)
    lines[0].close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_is_gone_at_once(lifelines, number):
    address = lifelines.address
    line = json.dumps([address.places, address.network, address.secret.hex()])
    words = [sys.executable, "-c", CHILD]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as child:
        try:
            child.stdin.write(f"{line}\n")
            child.stdin.flush()
            assert child.stdout.readline() == "True\n"
            lifelines.accept([7])
            assert gone(lifelines, 0.2) == []
            child.send_signal(number)
            assert gone(lifelines) == [7]
        finally:
            child.kill()


def test_a_rank_0_out_of_reach_is_said_so(lifelines):
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    line = Lifeline(replace(lifelines.address, places=(("127.0.0.1", free),)), 1)
    assert not line.is_up
    assert not line.is_cut


def echo(connection):
    while data := connection.recv(100):
        connection.sendall(data)


def say(*answers):
    """Send something for each message that comes."""

    def serve(connection):
        for answer in answers:
            connection.recv(100)
            connection.sendall(answer)

    return serve


@pytest.mark.parametrize(
    "serve",
    [echo, say(b"who are you?\n"), say(bytes(32), bytes(32)), say(), None],
    ids=["echo", "other", "zeros", "end", "silence"],
)
def test_somebody_else_at_an_address_is_not_taken_for_rank_0(lifelines, monkeypatch, serve):
    """As where each computer has a card with the same address, and a server of its own."""
    monkeypatch.setattr("cec_mpi.wire.lifelines.lifelines.HANDSHAKE_SECONDS", 0.3)
    monkeypatch.setattr("cec_mpi.wire.lifelines.lifelines._CALL_SECONDS", 0.5)
    with ExitStack() as kept:
        other = kept.enter_context(socket.create_server(("127.0.0.1", 0)))
        heard = []

        def answer():
            while True:
                try:
                    connection, _ = other.accept()
                except OSError:
                    return
                kept.callback(connection.close)
                if serve is not None:
                    try:
                        serve(connection)
                    except OSError as error:
                        heard.append(error)
                    connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        line = Lifeline(replace(lifelines.address, places=(other.getsockname()[:2],)), 5)
        assert not line.is_up
        assert not line.is_cut
        both = replace(
            lifelines.address, places=(other.getsockname()[:2], *lifelines.address.places)
        )
        monkeypatch.setattr("cec_mpi.wire.lifelines.lifelines.HANDSHAKE_SECONDS", 1.0)
        monkeypatch.setattr("cec_mpi.wire.lifelines.lifelines._CALL_SECONDS", 60.0)
        line = Lifeline(both, 5)  # and the next address is tried
        assert line.is_up
        line.close()
        other.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_all_callers_are_heard_however_many(lifelines):
    lines = called(lifelines.address, range(1, 41))
    lifelines.accept(range(1, 31), more=True)
    lifelines.accept(range(31, 41))
    assert lifelines.gone() == []
    for line in lines:
        line.close()
    found = set()
    while len(found) < 40 and (some := gone(lifelines)):
        found |= set(some)
    assert found == set(range(1, 41))


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, b"x" * 20), (60, b""), (400, b""), (60, b"cecm\1"), (300, b"?" * 44), (300, b"!" * 4000)],
    ids=["one", "silent", "very many", "half a hello", "nearly one", "garbage"],
)
def test_strangers_that_hold_on_keep_nobody_out(lifelines, strangers, count, said):
    with_limit(4096)
    strangers(lifelines.address, count, said)
    lines = called(lifelines.address, RANKS)
    assert [line.is_up for line in lines] == [True] * len(RANKS)
    lifelines.accept(RANKS)
    assert lifelines.gone() == []
    for line in lines:
        line.close()


def with_limit(least):
    """Let this process open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < least:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(least, hard), hard))


def test_strangers_that_send_slowly_and_go_on_calling_keep_nobody_out(lifelines):
    done = threading.Event()

    def attack():
        while not done.is_set():
            with ExitStack() as kept, suppress(OSError):
                mine = []
                while not done.is_set():
                    mine.append(socket.create_connection(lifelines.address.places[-1], 1))
                    kept.callback(mine[-1].close)
                    for each in mine[-30:]:
                        each.sendall(b"c")

    threads = [threading.Thread(target=attack) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        lines = called(lifelines.address, RANKS)
    finally:
        done.set()
        for thread in threads:
            thread.join(10)
    assert [line.is_up for line in lines] == [True] * len(RANKS)
    lifelines.accept(RANKS)
    for line in lines:
        line.close()


def test_strangers_are_shown_out_in_the_end_and_do_not_fill_the_log(
    lifelines, strangers, monkeypatch, caplog
):
    monkeypatch.setattr("cec_mpi.wire.lifelines.reception.HANDSHAKE_SECONDS", 0.2)
    caplog.set_level(logging.INFO)
    for stranger in strangers(lifelines.address, 30):
        assert stranger.recv(1) == b""
    told = [each.getMessage() for each in caplog.records]
    begins = [f"{count} callers were not heard, the last one from 127.0.0.1: " for count in (1, 10)]
    assert told == [f"{begin}it says too little" for begin in begins]


def test_a_rank_that_does_not_exist_is_refused(lifelines, caplog):
    for rank in (0, -1, 41, 2**40):
        with pytest.raises(RefusedError):
            claim(lifelines.address, rank)
    assert "knows the secret, but the claim to be 41 is refused" in caplog.text
    assert lifelines.address.secret.hex() not in caplog.text
    lifelines.expect(41)
    claim(lifelines.address, 41).close()


def test_a_rank_is_claimed_once(lifelines):
    first = claim(lifelines.address, 3)
    with pytest.raises(RefusedError):  # before it was accepted
        claim(lifelines.address, 3)
    lifelines.accept([3], more=True)
    with pytest.raises(RefusedError):  # and then
        claim(lifelines.address, 3)
    assert lifelines.gone() == []
    first.close()
    assert gone(lifelines) == [3]
    with pytest.raises(RefusedError):  # its number is not another one's
        claim(lifelines.address, 3)


def test_who_calls_again_before_it_was_accepted_is_heard(lifelines):
    """As a process whose first call was answered too late."""
    claim(lifelines.address, 3).close()
    second = Lifeline(lifelines.address, 3)
    assert second.is_up
    lifelines.accept([3])
    assert gone(lifelines, 0.1) == []
    second.close()
    assert gone(lifelines) == [3]


def test_who_was_answered_too_late_is_not_lost(lifelines):
    """It says that it has no connection: that one has ended says nothing of it."""
    claim(lifelines.address, 3).close()
    line = Lifeline(lifelines.address, 4)
    lifelines.accept([4])
    assert gone(lifelines, 0.2) == []
    line.close()


def test_too_few_files_for_a_while_keep_nobody_out(lifelines, caplog):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    caller = [sys.executable, "-c", CHILD]
    address = lifelines.address
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(caller, **pipes) as child:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (next_file(), hard))
            try:
                child.stdin.write(
                    f"{json.dumps([address.places, address.network, address.secret.hex()])}\n"
                )
                child.stdin.flush()
                assert until(lambda: "callers wait: Too many open files" in caplog.text)
                begun = time.process_time()
                time.sleep(0.6)
                busy = time.process_time() - begun
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert child.stdout.readline() == "True\n"
            lifelines.accept([7])
            assert lifelines.gone() == []
        finally:
            child.kill()
    assert busy < 0.3  # it waits, and does not try again and again
    assert caplog.text.count("callers wait: Too many open files") == 1


def test_a_caller_without_files_tries_again(lifelines, caplog):
    caplog.set_level(logging.INFO)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_file(), hard))

    def help_after_a_failure():
        failed.append(until(lambda: "Too many open files" in caplog.text))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    failed = []
    helper = threading.Thread(target=help_after_a_failure)
    helper.start()
    try:
        line = Lifeline(lifelines.address, 1)
    finally:
        helper.join()
    assert failed == [True]
    assert line.is_up
    line.close()


def test_an_error_while_callers_are_heard_is_not_the_end(lifelines, caplog, monkeypatch):
    """Whatever it is: here Python itself cannot do what it is asked to."""

    def fail(*_):
        raise MemoryError("none left")

    monkeypatch.setattr("cec_mpi.wire.lifelines.reception.listen", fail)
    socket.create_connection(lifelines.address.places[-1], 5).close()
    assert until(lambda: "none left" in caplog.text)
    monkeypatch.undo()
    line = Lifeline(lifelines.address, 1)
    assert line.is_up
    line.close()


def test_nothing_is_left_when_it_is_over(strangers):
    with_limit(4096)
    threads, files = threading.active_count(), open_files()
    for count in (0, 3, 300):
        lifelines = Lifelines(RANKS)
        mine = strangers(lifelines.address, count)
        half = strangers(lifelines.address, min(count, 20), b"cecm\1")
        lines = called(lifelines.address, RANKS)
        lifelines.accept(RANKS[:3], more=True)
        for line in lines:
            line.close()
        lifelines.close()
        lifelines.close()  # as at the end of a session that has failed
        for stranger in (*mine, *half):
            stranger.close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(lifelines.address.places[-1], 5)
    assert (threading.active_count(), open_files()) == (threads, files)


def test_where_nobody_can_listen_nothing_is_left():
    threads, files = threading.active_count(), open_files()
    with pytest.raises(OSError, match="assign"):
        Lifelines(RANKS, ("127.0.0.1", "192.0.2.77"))
    assert (threading.active_count(), open_files()) == (threads, files)


def test_it_listens_at_a_port_that_it_may_take_and_is_free():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        lifelines = Lifelines([1], ("127.0.0.1",), (port, port + 20))
        try:
            assert port < lifelines.address.places[0][1] <= port + 20
        finally:
            lifelines.close()
        with pytest.raises(OSError, match="in use"):
            Lifelines([1], ("127.0.0.1",), (port, port))


def test_the_secret_is_not_shown(lifelines):
    shown = f"{lifelines.address} {lifelines.address!r}"
    assert "127.0.0.1" in shown
    assert lifelines.address.secret.hex() not in shown
    assert repr(lifelines.address.secret) not in shown


def test_127_0_0_1_is_tried_where_it_is_rank_0s_own(lifelines):
    address = replace(lifelines.address, places=(("node1", 5), ("10.0.0.1", 5), ("127.0.0.1", 5)))
    hosts = [host for host, _ in address.seen_from(address.network)]
    assert hosts == ["127.0.0.1", "node1", "10.0.0.1"]
    assert [host for host, _ in address.seen_from("elsewhere")] == ["node1", "10.0.0.1"]
    # A process that cannot see where it is has the same one place to try.
    assert lifelines.address.seen_from("unknown") == list(lifelines.address.places)


@pytest.mark.parametrize("at", [("127.0.0.1",), ("127.0.0.1", "127.0.0.2"), ("",), ("::1",)])
def test_where_it_is_told_to_listen_it_is_reached_and_nowhere_else(at):
    if at == ("::1",) and not socket.has_dualstack_ipv6():
        at = ("127.0.0.1",)
    lifelines = Lifelines([1], at)
    try:
        line = Lifeline(lifelines.address, 1)
        assert line.is_up
        line.close()
        if at[0] == "127.0.0.1":
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("127.0.0.3", lifelines.address.places[0][1]), 5)
    finally:
        lifelines.close()
