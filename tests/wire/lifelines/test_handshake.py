"""Who does not know the secret passes for neither end of a handshake, whatever is sent."""

import random
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from cec_mpi.wire.lifelines.handshake import (
    SECRET_BYTES,
    Conversation,
    HandshakeError,
    RefusedError,
    SilenceError,
    call,
    listen,
    shake_hands,
)

SECRET = random.Random(0).randbytes(SECRET_BYTES)
HELLO, NONCE, PROOF = 45, 32, 32  # bytes of messages
LIMIT = 5.0


@pytest.fixture
def ends():
    """Two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        answerer, _ = listener.accept()
    for end in (caller, answerer):
        end.settimeout(LIMIT)
    with caller, answerer:
        yield caller, answerer


@contextmanager
def beside(connection, steps, seconds=LIMIT):
    """One end of a handshake in a thread; gives a list that has its error in the end, if any."""
    errors = []

    def drive():
        try:
            shake_hands(connection, steps, seconds)
        except OSError as error:
            errors.append(error)
            connection.close()

    thread = threading.Thread(target=drive)
    thread.start()
    yield errors
    thread.join(2 * LIMIT)
    assert not thread.is_alive()


def exactly(connection, count):
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        assert more
        found += more
    return found


def record(claim=3):
    """All that goes over the wire in a good handshake: hello, nonce, and both proofs."""
    messages = []
    calling, listening = call(SECRET, claim), listen(SECRET, lambda _: True)
    next(listening)
    message, _ = next(calling)
    for _ in range(2):
        messages.append(message)
        answer, _ = listening.send(message)
        messages.append(answer)
        if len(messages) < 4:
            message, _ = calling.send(answer)
    return messages


def test_both_ends_know_each_other_and_read_nothing_more(ends):
    caller, answerer = ends
    with beside(caller, call(SECRET, -7)) as errors:
        conversation = Conversation(answerer, listen(SECRET, lambda _: True))
        while not conversation.go_on():
            time.sleep(0.001)
    assert errors == []
    assert conversation.claim == -7
    answerer.sendall(b"then")
    caller.setblocking(True)
    assert exactly(caller, 4) == b"then"


def test_what_follows_is_left_to_who_asks_next(ends):
    caller, answerer = ends
    with beside(answerer, listen(SECRET, lambda _: True)) as errors:
        shake_hands(caller, call(SECRET, 1), LIMIT)
        caller.sendall(b"at once")
    assert errors == []
    answerer.setblocking(True)
    assert exactly(answerer, 7) == b"at once"


def test_the_secret_is_not_on_the_wire():
    said = b"".join(record())
    assert len(said) == HELLO + NONCE + 2 * PROOF
    assert not any(SECRET[i : i + 4] in said for i in range(SECRET_BYTES - 3))
    assert said != b"".join(record())


@pytest.mark.parametrize(
    "wrong",
    [b"", b"x" * SECRET_BYTES, SECRET[:-1], SECRET + b"x"],
    ids=["none", "other", "less", "more"],
)
def test_another_secret_is_met_with_silence(ends, wrong):
    caller, answerer = ends
    claims = []
    with beside(answerer, listen(SECRET, claims.append)) as errors:
        hello, _ = next(calling := call(wrong, 3))
        caller.sendall(hello)
        proof, _ = calling.send(exactly(caller, NONCE))
        caller.sendall(proof)
        assert caller.recv(1) == b""
    assert claims == []
    assert "does not know the secret" in str(errors[0])


def test_a_claim_that_is_not_granted_is_refused_by_who_knows_the_secret(ends):
    caller, answerer = ends
    refused = pytest.raises(RefusedError, match="to be 5")
    with beside(answerer, listen(SECRET, lambda claim: claim == 4)) as errors, refused:
        shake_hands(caller, call(SECRET, 5), LIMIT)
    assert isinstance(errors[0], RefusedError)


def test_a_caller_that_changes_its_claim_does_not_know_the_secret(ends):
    """As somebody in between who lets rank 3 in as rank 5."""
    caller, answerer = ends
    with beside(answerer, listen(SECRET, lambda _: True)) as errors:
        hello, _ = next(calling := call(SECRET, 3))
        changed = bytearray(hello)
        changed[HELLO - NONCE - 1] = 5
        caller.sendall(changed)
        caller.sendall(calling.send(exactly(caller, NONCE))[0])
        assert caller.recv(1) == b""
    assert "does not know the secret" in str(errors[0])


def test_a_recorded_caller_is_not_believed(ends):
    hello, _, proof, _ = record()
    caller, answerer = ends
    with beside(answerer, listen(SECRET, lambda _: True)) as errors:
        caller.sendall(hello + proof)
        assert len(exactly(caller, NONCE)) == NONCE
        assert caller.recv(1) == b""
    assert "does not know the secret" in str(errors[0])


def test_a_recorded_listener_is_not_believed(ends):
    _, nonce, _, welcome = record()
    caller, answerer = ends
    with beside(caller, call(SECRET, 3)) as errors:
        answerer.sendall(nonce + welcome)
        exactly(answerer, HELLO + PROOF)
    assert "somebody else answers" in str(errors[0])


def test_an_echo_is_not_believed(ends):
    caller, answerer = ends
    with beside(caller, call(SECRET, 3)) as errors:
        exactly(answerer, HELLO)
        answerer.sendall(bytes(NONCE))
        answerer.sendall(exactly(answerer, PROOF))
    assert "somebody else answers" in str(errors[0])


def test_a_caller_that_is_asked_by_another_caller_proves_nothing_to_it(ends):
    """Reflection: a proof of a caller is worth nothing as one of a listener."""
    caller, answerer = ends
    with beside(caller, call(SECRET, 3)) as errors:
        exactly(answerer, HELLO)
        answerer.sendall(bytes(NONCE))
        proof = exactly(answerer, PROOF)
        other = call(SECRET, 3)
        next(other)
        other.send(bytes(NONCE))
        with pytest.raises(HandshakeError, match="somebody else"):
            other.send(proof)
        answerer.sendall(proof)
    assert "somebody else answers" in str(errors[0])


def test_two_connections_to_one_listener_do_not_answer_each_other():
    """What the one is asked the other is not: nonces and claims are the listener's own."""
    first, second = (listen(SECRET, lambda _: True) for _ in range(2))
    hello = record()[0]
    nonces = []
    for steps in (first, second):
        next(steps)
        nonces.append(steps.send(hello)[0])
    assert nonces[0] != nonces[1]
    with pytest.raises(HandshakeError, match="does not know"):
        first.send(nonces[1])


@pytest.mark.parametrize(
    "said",
    [b"x", b"GET / HTTP/1.1\r\n" * 8, bytes(400), random.Random(1).randbytes(4000)],
    ids=["byte", "web", "zeros", "noise"],
)
def test_garbage_ends_it(ends, said):
    caller, answerer = ends
    with beside(answerer, listen(SECRET, lambda _: True), 0.3) as errors:
        caller.sendall(said)
    assert isinstance(errors[0], HandshakeError)


def test_another_version_is_named(ends):
    caller, answerer = ends
    with beside(answerer, listen(SECRET, lambda _: True)) as errors:
        hello = next(call(SECRET, 3))[0]
        caller.sendall(hello[:4] + b"\2" + hello[5:])
    assert "version 2 of the handshake, not 1" in str(errors[0])


def test_a_caller_that_leaves_at_any_byte_leaves_nobody_waiting(ends):
    hello, _, proof, _ = record()
    said = hello + proof
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for count in range(len(said) + 1):
            caller = socket.create_connection(listener.getsockname())
            answerer, _ = listener.accept()
            caller.sendall(said[:count])
            caller.shutdown(socket.SHUT_WR)
            with caller, answerer, pytest.raises(HandshakeError):
                shake_hands(answerer, listen(SECRET, lambda _: True), LIMIT)


def test_a_listener_that_leaves_at_any_byte_leaves_nobody_waiting():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for count in range(NONCE + PROOF):
            caller = socket.create_connection(listener.getsockname())
            answerer, _ = listener.accept()
            answerer.sendall(bytes(count))
            answerer.shutdown(socket.SHUT_WR)
            with caller, answerer, pytest.raises(SilenceError):
                shake_hands(caller, call(SECRET, 1), LIMIT)


@pytest.mark.parametrize("steps", [call(SECRET, 3), listen(SECRET, bool)], ids=["call", "listen"])
def test_who_sends_a_byte_now_and_then_has_no_more_time(ends, steps):
    slow, waits = ends
    done = threading.Event()

    def drip():
        while not done.wait(0.02):
            try:
                slow.sendall(b"c")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(SilenceError, match=r"within 0\.2 s"):
        shake_hands(waits, steps, 0.2)
    done.set()
    thread.join()


def test_messages_that_come_byte_by_byte_are_put_together(ends):
    caller, answerer = ends
    claims = []
    with beside(answerer, listen(SECRET, lambda claim: not claims.append(claim))) as errors:
        hello, _ = next(calling := call(SECRET, 12))
        for byte in hello:
            caller.sendall(bytes([byte]))
        proof, _ = calling.send(exactly(caller, NONCE))
        for byte in proof:
            caller.sendall(bytes([byte]))
        answer = exactly(caller, PROOF)
    assert (errors, claims) == ([], [12])
    with pytest.raises(StopIteration) as end:
        calling.send(answer)
    assert end.value.value == 12
