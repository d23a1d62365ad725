"""Connections of machines to the master: addresses, keys, messages, losses."""

from __future__ import annotations

import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import zmq
from msgspec.structs import replace

from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import connection_from_secret, generate_keys
from cec_mpi.runtime.wire.sockets.listener import Listener
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection, MasterLostError
from cec_mpi.runtime.wire.sockets.messages import ANSWER, HEARTBEAT, HELLO, ORDER, copy_frames
from cec_mpi.runtime.wire.sockets.zeromq import (
    DISCONNECT_FRAME_BYTES,
    FRAME_BYTES,
    make_tracker,
    to_frames,
)
from helpers.waiting import LIMIT, wait_until

HEARTBEAT_TIMEOUT = 2.0  # seconds
SECRET = "a secret of some length"
TRANSPORTS = ("unix", "curve", "plain")
REFUSAL = "no answer, or different keys or encryption"

# A machine that returns the content of each message.
MACHINE = """
import sys
from pathlib import Path
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from cec_mpi.runtime.wire.sockets.messages import ANSWER, HELLO

connection = Connection(read_connection_file(Path(sys.argv[1])), heartbeat_timeout=1e3)
connection.send(HELLO, connection.address.encode())
while True:
    message = connection.receive(60)
    if message:
        connection.send(ANSWER, bytes(message[1]))
"""


@pytest.fixture
def listen():
    """Make a listener at 127.0.0.1; return it with a connection file for a transport."""
    listeners = []

    def listen(transport="unix", **options):
        listeners.append(Listener(["127.0.0.1"], None, encrypted=transport != "plain", **options))
        file = listeners[-1].file
        return listeners[-1], file if transport == "unix" else replace(file, socket_path="")

    yield listen
    for listener in listeners:
        listener.close()


@pytest.fixture
def start(tmp_path):
    """Start a machine in a process of its own."""
    processes = []

    def start(file):
        path = tmp_path / f"conn{len(processes)}"
        file.write(path)
        processes.append(subprocess.Popen([sys.executable, "-c", MACHINE, path]))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait(LIMIT)


def receive(listener):
    """Return the sender of the next message, and its frames as bytes."""
    peer, frames = wait_until(listener.receive)
    return peer, [bytes(frame) for frame in frames]


def receive_hello(listener):
    """Return the peer that has sent a hello, and track its connection."""
    peer, frames = receive(listener)
    assert frames[0].startswith(HELLO)
    listener.track_disconnect()
    return peer


def wait_for_disconnects(listener, peers):
    return set(wait_until(lambda: listener.find_disconnected(peers)))


# --- messages -----------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_are_sent_in_both_directions(listen, transport):
    listener, file = listen(transport)
    with closing(Connection(file)) as connection:
        address = f"Unix socket {file.socket_path}" if transport == "unix" else "127.0.0.1, port "
        assert connection.address.startswith(address)
        connection.send(HELLO, b"head", [bytes(FRAME_BYTES), b""])
        peer, frames = receive(listener)
        assert frames == [HELLO.ljust(8) + b"head", bytes(FRAME_BYTES), b""]
        sent = np.random.default_rng(1).standard_normal(FRAME_BYTES // 8)
        assert listener.send(peer, ORDER, b"order", to_frames(sent))
        kind, head, *frames = connection.receive(LIMIT)
        received = np.empty_like(sent)
        assert (kind, bytes(head)) == (ORDER, b"order")
        assert copy_frames(frames, received)
        np.testing.assert_array_equal(received, sent)
        assert connection.receive(0) is None


@pytest.mark.parametrize(
    ("transport", "next_signal"), [("unix", signal.SIGCONT), ("curve", signal.SIGKILL)]
)
def test_frames_are_released_when_a_machine_has_received_them_or_is_lost(
    listen, start, transport, next_signal
):
    """They are not copied, so their content must not change until then."""
    listener, file = listen(transport, heartbeat_timeout=1e3)
    process = start(file)
    peer = receive_hello(listener)
    process.send_signal(signal.SIGSTOP)
    frames = to_frames(np.zeros(64 * FRAME_BYTES // 8))
    tracker = make_tracker(frames)
    assert listener.send(peer, ORDER, b"order", frames)
    del frames
    time.sleep(0.3)
    assert not tracker.done
    process.send_signal(next_signal)
    wait_until(lambda: tracker.done)


@pytest.mark.parametrize("busy_transport", ["unix", "curve"])
def test_many_messages_on_one_socket_do_not_delay_those_on_another(listen, busy_transport):
    listener, unix = listen()
    files = unix, replace(unix, socket_path="")
    busy_file, idle_file = files if busy_transport == "unix" else files[::-1]
    with closing(Connection(busy_file)) as busy:
        busy.send(HELLO)
        peer = receive_hello(listener)
        for _ in range(200):
            busy.send(ANSWER)
    wait_until(lambda: not listener.send(peer, HEARTBEAT))  # then all messages have arrived
    receive(listener)
    with closing(Connection(idle_file)) as idle:
        idle.send(HELLO)
        for _ in range(199):
            time.sleep(0.01)  # while the message of the other machine arrives
            if receive(listener)[1][0].startswith(HELLO):
                return
    pytest.fail("a message has waited for all messages on the other socket")


def test_a_machine_receives_messages_that_were_sent_before_the_master_ended(listen):
    listener, file = listen()
    with closing(Connection(file)) as connection:
        connection.send(HELLO)
        assert listener.send(receive_hello(listener), ORDER, b"last")
        listener.close()
        assert bytes(connection.receive(LIMIT)[1]) == b"last"
        with pytest.raises(MasterLostError, match="the connection to the master has ended"):
            connection.receive(LIMIT)


@pytest.mark.parametrize("transport", ["unix", "curve"])
def test_a_frame_above_the_limit_ends_only_its_connection(listen, transport):
    listener, file = listen(transport)
    with closing(Connection(file)) as bad, closing(Connection(file)) as good:
        peers = []
        for connection in (bad, good):
            connection.send(HELLO)
            peers.append(receive_hello(listener))
        bad.send(ANSWER, b"", [bytes(DISCONNECT_FRAME_BYTES + 1)])
        assert wait_for_disconnects(listener, peers) == {peers[0]}
        with pytest.raises(MasterLostError):
            wait_until(lambda: bad.receive(1))
        assert listener.receive() is None
        good.send(ANSWER, b"", [bytes(FRAME_BYTES)])
        assert receive(listener)[0] == peers[1]


# --- losses -------------------------------------------------------------------------------


def test_a_suspended_machine_is_lost_only_over_tcp(listen, start):
    listener, unix = listen(heartbeat_timeout=HEARTBEAT_TIMEOUT)
    local = start(unix)
    local_peer = receive_hello(listener)
    remote = start(replace(unix, socket_path=""))
    remote_peer = receive_hello(listener)
    for process in (local, remote):
        process.send_signal(signal.SIGSTOP)
    assert wait_for_disconnects(listener, [local_peer, remote_peer]) == {remote_peer}
    assert listener.find_disconnected([local_peer]) == []
    assert listener.send(local_peer, ORDER, b"still connected")
    local.send_signal(signal.SIGCONT)
    assert receive(listener) == (local_peer, [ANSWER.ljust(8) + b"still connected"])


def test_a_machine_that_receives_nothing_for_a_long_time_stays_connected(listen):
    """Its computation may take longer than the heartbeat timeout, while the master sends."""
    timeout = 2 * HEARTBEAT_TIMEOUT  # enough for a busy computer
    listener, file = listen("curve", heartbeat_timeout=timeout)
    with closing(Connection(file, heartbeat_timeout=timeout)) as connection:
        connection.send(HELLO)
        peer = receive_hello(listener)
        for _ in range(3000):
            assert listener.send(peer, HEARTBEAT)
        assert listener.send(peer, ORDER)
        time.sleep(1.5 * timeout)
        assert listener.find_disconnected([peer]) == []
        assert connection.receive(LIMIT)[0] == ORDER


# --- keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["curve", "plain"])
@pytest.mark.parametrize("wrong", ["keys", "encryption"])
def test_wrong_keys_are_refused(listen, transport, wrong, caplog):
    caplog.set_level(logging.DEBUG)
    listener, file = listen(transport)
    other_keys = generate_keys()
    if wrong == "keys":
        bad_file = replace(file, public_key=other_keys.public_key, secret_key=other_keys.secret_key)
    else:
        bad_file = replace(file, encrypted=not file.encrypted)
    other_masters = [replace(file, server_key=other_keys.server_key)] * (transport == "curve")
    for refused_file in (bad_file, *other_masters):
        with pytest.raises(MasterLostError, match=REFUSAL):
            Connection(refused_file)
    with closing(Connection(file)) as connection:
        connection.send(HELLO)
        receive_hello(listener)
    assert file.secret_key.decode() not in caplog.text


@pytest.mark.parametrize("transport", ["curve", "plain"])
def test_a_secret_replaces_the_connection_file(listen, transport):
    listener, file = listen(transport, secret=SECRET)
    address = "localhost", file.addresses[0][1]
    with closing(
        Connection(connection_from_secret(*address, SECRET, file.encrypted))
    ) as connection:
        assert connection.address == f"localhost, port {address[1]}"
        connection.send(HELLO)
        receive_hello(listener)
    with pytest.raises(MasterLostError, match=REFUSAL):
        Connection(connection_from_secret(*address, f"{SECRET}.", file.encrypted))


def test_encryption_is_required(monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda feature: False)
    with pytest.raises(InputError, match=r"was built without encryption \(CURVE\)"):
        Listener(["127.0.0.1"], None)


# --- addresses ----------------------------------------------------------------------------


def test_only_the_owner_can_open_the_directory_of_the_unix_socket(listen):
    listener, file = listen()
    directory = Path(file.socket_path).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    listener.close()
    assert not directory.exists()


def test_a_temporary_directory_with_a_long_name_is_not_used(listen, tmp_path, monkeypatch):
    long_path = tmp_path / ("x" * 100)
    long_path.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long_path))
    _, file = listen()
    assert file.socket_path.startswith("/tmp/")
    assert list(long_path.iterdir()) == []
    with closing(Connection(file)) as connection:
        assert connection.address == f"Unix socket {file.socket_path}"


def test_a_host_without_disk_space_has_no_unix_socket(listen, monkeypatch):
    def fail(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", fail)
    _, file = listen()
    assert file.socket_path == ""
    Connection(file).close()


def test_machines_use_tcp_if_the_unix_socket_cannot_be_used(listen, tmp_path, monkeypatch):
    _, file = listen()
    with socket.socket(socket.AF_UNIX) as dead_socket:
        dead_socket.bind(str(tmp_path / "dead"))
    files = [replace(file, socket_path=str(tmp_path / name)) for name in ("dead", "missing")]
    for unusable_file in (*files, replace(file, network="elsewhere")):
        with closing(Connection(unusable_file)) as connection:
            assert connection.address.startswith("127.0.0.1, port ")
    monkeypatch.setattr(os, "geteuid", lambda: Path(file.socket_path).stat().st_uid + 1)
    with closing(Connection(file)) as connection:
        assert connection.address.startswith("127.0.0.1, port ")


def test_the_error_lists_all_addresses_and_the_socket_of_a_killed_master_is_removed(
    listen, tmp_path
):
    listener, file = listen()
    listener.close()
    path = tmp_path / "cec_mpi-1" / "master"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead_socket:
        dead_socket.bind(str(path))
    addresses = (*file.addresses, ("no such host", 1))
    with pytest.raises(MasterLostError) as error:
        Connection(replace(file, socket_path=str(path), addresses=addresses))
    assert f"tried Unix socket {path} (Connection refused); port" in str(error.value)
    assert "port 1 of no such host (" in str(error.value)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("host", "last"), [("localhost", "localhost"), ("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1")]
)
def test_the_master_listens_at_a_name_or_at_all_addresses(host, last):
    with closing(Listener([host], None)) as listener:
        assert listener.file.addresses[-1][0] == last
        with closing(Connection(replace(listener.file, socket_path=""))) as connection:
            connection.send(HELLO)
            receive_hello(listener)


def test_the_master_listens_only_at_the_chosen_address():
    with closing(Listener(["127.0.0.2"], None)) as listener:
        ((_, port),) = listener.file.addresses
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), LIMIT)


def test_an_address_that_cannot_be_used_is_named(listen):
    port = listen()[1].addresses[0][1]
    message = f"the master cannot listen on port {port} of 127.0.0.1: Address already in use"
    with pytest.raises(InputError, match=message):
        Listener(["127.0.0.1"], (port, port))
    with pytest.raises(InputError, match="the master cannot listen on no such host: "):
        Listener(["no such host"], None)
