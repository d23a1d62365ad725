"""The master's sockets: who is heard, who is gone, and what is left when they are closed."""

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
from cec_mpi.runtime.wire.sockets.connection_file import connection_from_key, generate_keys
from cec_mpi.runtime.wire.sockets.listener import Listener
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection, MasterLostError
from cec_mpi.runtime.wire.sockets.messages import ANSWER, HELLO, ORDER, copy_frames
from cec_mpi.runtime.wire.sockets.zeromq import MAX_READ_BYTES, PIECE_BYTES, make_tracker, to_frames
from helpers.waiting import LIMIT
from helpers.waiting import wait_until as until

SILENCE = 2.0  # seconds after which a stopped machine counts as gone over TCP
SECRET = "a secret of some length"
WAYS = ("unix", "curve", "plain")

# Says hello, and answers what it is sent.
MACHINE = """
import sys
from pathlib import Path
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from cec_mpi.runtime.wire.sockets.messages import ANSWER, HELLO

connection = Connection(read_connection_file(Path(sys.argv[1])), heartbeat_timeout=1e3)
connection.send(HELLO, connection.address.encode())
while True:
    heard = connection.receive(60)
    if heard:
        connection.send(ANSWER, bytes(heard[1]))
"""


@pytest.fixture
def listen():
    """Make a listener at 127.0.0.1."""
    made = []

    def listen(**options):
        made.append(Listener(["127.0.0.1"], None, **options))
        return made[-1]

    yield listen
    for listener in made:
        listener.close()


@pytest.fixture
def start(tmp_path):
    """Start a machine, a process of its own, with this connection file."""
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


def over(way, listen, **options):
    """A listener, and a file with which machines come this way."""
    listener = listen(encrypted=way != "plain", **options)
    return listener, listener.file if way == "unix" else replace(listener.file, local="")


def hear(listener):
    """The next message, as the caller and bytes."""
    caller, frames = until(listener.receive)
    return caller, [bytes(frame) for frame in frames]


def known(listener):
    """Who has said hello."""
    caller, frames = hear(listener)
    assert frames[0].startswith(HELLO)
    listener.track_disconnect()
    return caller


@pytest.mark.parametrize("way", WAYS)
def test_messages_go_both_ways(listen, way):
    listener, file = over(way, listen)
    with closing(Connection(file)) as connection:
        place = f"Unix socket {file.local}" if way == "unix" else "127.0.0.1, port "
        assert connection.address.startswith(place)
        connection.send(HELLO, b"head", [bytes(PIECE_BYTES), b""])
        caller, frames = hear(listener)
        assert frames == [HELLO.ljust(8) + b"head", bytes(PIECE_BYTES), b""]
        sent = np.random.default_rng(1).standard_normal(PIECE_BYTES // 8)
        assert listener.send(caller, ORDER, b"order", to_frames(sent))
        kind, head, *frames = connection.receive(LIMIT)
        found = np.empty_like(sent)
        assert (kind, bytes(head)) == (ORDER, b"order")
        assert copy_frames(frames, found)
        np.testing.assert_array_equal(found, sent)
        assert connection.receive(0) is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL])
def test_what_is_sent_is_released_when_a_machine_has_it_or_is_lost(listen, start, way, then):
    """Until then it is not copied, so that it must not change."""
    listener, file = over(way, listen, heartbeat_timeout=1e3)
    process = start(file)
    caller = known(listener)
    process.send_signal(signal.SIGSTOP)
    frames = to_frames(np.zeros(64 * PIECE_BYTES // 8))
    tracker = make_tracker(frames)
    assert listener.send(caller, ORDER, b"order", frames)
    del frames
    time.sleep(0.3)
    assert not tracker.done
    process.send_signal(then)
    until(lambda: tracker.done)


def test_callers_of_both_sockets_have_names_of_their_own(listen):
    listener, file = over("unix", listen)
    files = [file, replace(file, local="")] * 2
    connections = [Connection(file) for file in files]
    callers = []
    for number, connection in enumerate(connections):
        connection.send(HELLO)
        callers.append(known(listener))
        assert listener.send(callers[-1], ORDER, b"%d" % number)
    for number, connection in enumerate(connections):
        assert bytes(connection.receive(LIMIT)[1]) == b"%d" % number
    assert len(set(callers)) == 4
    connections.pop(1).close()
    assert until(lambda: listener.find_disconnected(callers)) == [callers.pop(1)]
    connections.pop(1).close()
    assert until(lambda: listener.find_disconnected(callers)) == [callers.pop(1)]
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("many", ["unix", "curve"])
def test_many_messages_on_one_socket_do_not_delay_the_other(listen, many):
    listener, file = over("unix", listen)
    other = replace(file, local="")
    busy, idle = (file, other) if many == "unix" else (other, file)
    with closing(Connection(busy)) as busy, closing(Connection(idle)) as idle:
        for _ in range(500):
            busy.send(ANSWER)
        hear(listener)
        idle.send(HELLO)
        due = time.monotonic() + LIMIT
        while not hear(listener)[1][0].startswith(HELLO):
            busy.send(ANSWER)  # so that there are always more
            assert time.monotonic() < due


def test_the_last_message_arrives(listen):
    listener, file = over("unix", listen)
    with closing(Connection(file)) as connection:
        connection.send(HELLO)
        caller = known(listener)
        assert listener.send(caller, ORDER, b"last")
        listener.close()
        assert bytes(connection.receive(LIMIT)[1]) == b"last"
        with pytest.raises(MasterLostError, match="the connection to the master has ended"):
            connection.receive(LIMIT)


@pytest.mark.parametrize("way", ["curve", "plain"])
@pytest.mark.parametrize("wrong", ["keys", "encryption"])
def test_wrong_keys_are_refused(listen, way, wrong, caplog):
    caplog.set_level(logging.DEBUG)
    listener, file = over(way, listen)
    other = generate_keys()
    if wrong == "keys":
        bad = replace(file, public_key=other.public_key, secret_key=other.secret_key)
    else:
        bad = replace(file, encrypted=not file.encrypted)
    with pytest.raises(MasterLostError, match="no answer, or different keys or encryption"):
        Connection(bad)
    with closing(Connection(file)) as connection:
        connection.send(HELLO)
        known(listener)
    assert file.secret_key.decode() not in caplog.text


def test_a_master_with_other_keys_is_refused(listen):
    _, file = over("curve", listen)
    with pytest.raises(MasterLostError, match="no answer, or different keys"):
        Connection(replace(file, server_key=generate_keys().server_key))


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_a_process_shows_at_once(listen, start, way):
    listener, file = over(way, listen, heartbeat_timeout=1e3)
    processes = [start(file), start(file)]
    callers = [known(listener) for _ in processes]
    assert listener.find_disconnected(callers) == []
    assert listener.send(callers[0], ORDER, b"first")
    hear(listener)
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    gone: set[bytes] = set()
    until(lambda: len(gone.update(listener.find_disconnected(callers)) or gone) == 2)


def test_a_stopped_machine_is_gone_over_tcp_alone(listen, start):
    listener, local = over("unix", listen, heartbeat_timeout=SILENCE)
    here = start(local)
    caller = known(listener)
    there = start(replace(local, local=""))
    other = known(listener)
    for process in (here, there):
        os.kill(process.pid, signal.SIGSTOP)
    assert until(lambda: listener.find_disconnected([caller, other])) == [other]
    time.sleep(SILENCE)
    assert listener.find_disconnected([caller]) == []
    assert listener.send(caller, ORDER, b"still there")
    os.kill(here.pid, signal.SIGCONT)
    assert hear(listener) == (caller, [ANSWER.ljust(8) + b"still there"])


@pytest.mark.parametrize("way", WAYS)
def test_a_frame_above_the_limit_ends_its_connection_alone(listen, way):
    listener, file = over(way, listen)
    with closing(Connection(file)) as bad, closing(Connection(file)) as good:
        bad.send(HELLO)
        callers = [known(listener)]
        good.send(HELLO)
        callers.append(known(listener))
        bad.send(ANSWER, b"", [bytes(MAX_READ_BYTES + 1)])
        assert until(lambda: listener.find_disconnected(callers)) == callers[:1]
        with pytest.raises(MasterLostError):
            until(lambda: bad.receive(1))
        assert listener.receive() is None
        good.send(ANSWER, b"", [bytes(PIECE_BYTES)])
        assert hear(listener)[0] == callers[1]


def test_nobody_else_can_open_the_directory_of_the_socket(listen):
    listener, file = over("unix", listen)
    directory = Path(file.local).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    listener.close()
    assert not directory.exists()


def test_a_temporary_directory_with_a_long_name_is_not_used(listen, tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    _, file = over("unix", listen)
    assert file.local.startswith("/tmp/")
    assert list(long.iterdir()) == []
    with closing(Connection(file)) as connection:
        assert connection.address == f"Unix socket {file.local}"


def test_a_host_without_space_for_a_unix_socket_has_tcp(listen, monkeypatch):
    monkeypatch.setattr("tempfile.mkdtemp", no_room)
    _, file = over("unix", listen)
    assert file.local == ""
    with closing(Connection(file)) as connection:
        assert connection.address.startswith("127.0.0.1, port ")


def no_room(**_):
    raise OSError(28, "No space left on device")


def test_a_unix_socket_that_is_dead_or_elsewhere_is_not_used(listen, tmp_path):
    _, file = over("unix", listen)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    for other in (
        replace(file, local=str(tmp_path / "dead")),
        replace(file, local=str(tmp_path / "missing")),
        replace(file, network="elsewhere"),
    ):
        with closing(Connection(other)) as connection:
            assert connection.address.startswith("127.0.0.1, port ")


def test_the_socket_of_another_user_is_not_used(listen, monkeypatch):
    _, file = over("unix", listen)
    monkeypatch.setattr(os, "geteuid", lambda: Path(file.local).stat().st_uid + 1)
    with closing(Connection(file)) as connection:
        assert connection.address.startswith("127.0.0.1, port ")


def test_all_addresses_that_were_tried_are_named(listen, tmp_path):
    listener, file = over("unix", listen)
    listener.close()
    path = str(tmp_path / "dead")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    places = (*file.addresses, ("no such host", 1))
    with pytest.raises(MasterLostError) as shown:
        Connection(replace(file, local=path, addresses=places))
    assert f"tried Unix socket {path} (Connection refused); port" in str(shown.value)
    assert "port 1 of no such host (" in str(shown.value)


def test_the_attempt_can_be_ended(listen):
    _, file = over("unix", listen)

    def look():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Connection(file, look)


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_secret_stands_for_the_file(listen, encrypted):
    listener = listen(encrypted=encrypted, secret=SECRET)
    port = listener.file.addresses[0][1]
    with closing(Connection(connection_from_key("localhost", port, SECRET, encrypted))) as machine:
        assert machine.address == f"localhost, port {port}"
        machine.send(HELLO)
        known(listener)
    with pytest.raises(MasterLostError, match="no answer, or different keys"):
        Connection(connection_from_key("localhost", port, f"{SECRET}.", encrypted))


def test_it_listens_at_a_name_or_at_all_addresses():
    for host, expected in ("localhost", "localhost"), ("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"):
        with closing(Listener([host], None)) as listener:
            assert listener.file.addresses[-1][0] == expected
            with closing(Connection(replace(listener.file, local=""))) as connection:
                connection.send(HELLO)
                known(listener)


def test_an_address_that_it_cannot_listen_at_is_named(listen):
    port = listen().file.addresses[0][1]
    with pytest.raises(InputError) as shown:
        Listener(["127.0.0.1"], (port, port))
    assert str(shown.value) == (
        f"the master cannot listen on port {port} of 127.0.0.1: Address already in use"
    )
    with pytest.raises(InputError, match=r"the master cannot listen on no such host: "):
        Listener(["no such host"], None)


def test_encryption_is_needed(monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda feature: False)
    with pytest.raises(InputError, match=r"was built without encryption \(CURVE\)"):
        Listener(["127.0.0.1"], None)
