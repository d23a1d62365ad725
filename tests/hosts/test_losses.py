"""A process that is killed on another host: the run goes on, and finds the master by any name."""

import json
import sys
import threading

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from helpers.mpi_at_hand import library
from helpers.waiting import LIMIT, wait_until

pytestmark = pytest.mark.needs("hosts", "hosts-that-meet")


@pytest.fixture
def awkward(hosts):
    """What computers call themselves: 127.0.1.1, and a card with the same address on each."""
    kept = {}
    for host in hosts.names:
        file = hosts.directory / host / "hosts"
        kept[file] = text = file.read_text()
        own = next(line for line in text.splitlines() if line.endswith(host))
        file.write_text(text.replace(own, f"127.0.1.1 {host}"))
        assert hosts.on(host, "ip", "link", "add", "docker0", "type", "bridge").returncode == 0
        hosts.on(host, "ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
        hosts.on(host, "ip", "link", "set", "docker0", "up")
    yield
    for file, text in kept.items():
        file.write_text(text)
    for host in hosts.names:
        hosts.on(host, "ip", "link", "del", "docker0")


MASTER = """
import sys
from pathlib import Path
from cec_mpi.runtime.wire.sockets.interfaces import listen_addresses
from cec_mpi.runtime.wire.sockets.listener import Listener
listener = Listener(listen_addresses(*sys.argv[2:] or [None]), None)
listener.file.write(Path(sys.argv[1]))
print(*(name for name, _ in listener.file.addresses), flush=True)
while (heard := listener.receive()) is None:
    pass
print("heard", flush=True)
input()
listener.close()
"""
MACHINE = """
import sys
from pathlib import Path
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from cec_mpi.runtime.wire.sockets.messages import HELLO
connection = Connection(read_connection_file(Path(sys.argv[1])))
print(connection.address.partition(",")[0])
connection.send(HELLO)
connection.close()
"""


@pytest.fixture
def listens(hosts, tmp_path):
    """Have a master listen on the first host; returns the names that it has."""
    started = []

    def listens(*interface):
        master = hosts.begin("node1", sys.executable, "-c", MASTER, tmp_path / "conn", *interface)
        started.append(master)
        return master.stdout.readline().split()

    yield listens
    (master,) = started
    assert master.communicate("\n", timeout=LIMIT)[0] == "heard\n"


@pytest.fixture
def reached_at(hosts, tmp_path):
    """Where a machine on a host reaches the master."""

    def reached_at(host):
        done = hosts.on(host, sys.executable, "-c", MACHINE, tmp_path / "conn")
        return done.stdout.strip() or done.stderr

    return reached_at


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("seen_from_node3", "place"),
    [
        ("10.77.0.1 node1", "node1"),
        ("", "10.77.0.1"),  # a name that means nothing there
        ("10.77.0.2 node1", "10.77.0.1"),  # or something else
    ],
    ids=["known", "unknown", "misleading"],
)
@pytest.mark.usefixtures("awkward", "nothing_is_left")
def test_the_master_is_found_whatever_it_is_called(
    hosts, listens, reached_at, seen_from_node3, place
):
    (hosts.directory / "node3" / "hosts").write_text(f"127.0.1.1 node3\n{seen_from_node3}\n")
    assert listens() == ["node1", "10.77.0.1", "172.17.0.1", "127.0.0.1"]
    assert reached_at("node3") == place


CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


@pytest.mark.any_mpi
@pytest.mark.usefixtures("awkward", "nothing_is_left")
def test_the_master_listens_at_the_card_that_is_named_alone(hosts, listens, reached_at, tmp_path):
    assert listens("eth0") == ["10.77.0.1"]
    ((_, port),) = read_connection_file(tmp_path / "conn").addresses
    for other in ("172.17.0.1", "127.0.0.1"):
        done = hosts.on("node1", sys.executable, "-c", CONNECT, other, port)
        assert "refused" in done.stderr
    assert reached_at("node3") == "10.77.0.1"


@pytest.mark.any_mpi
def test_a_machine_says_that_it_cannot_reach_the_card_that_is_named(multiply):
    # Rank 0 exits with 4 and the machines with 3; MPICH's mpiexec returns 3 | 4
    code = 7 if library().startswith("MPICH") else 3
    run = multiply("--elastic", "--interface", "lo", "--start-timeout", 5, code=code)
    start = "cec-mpi: error: the master has not begun to listen within 5 s"
    messages = [message for message in run.messages if message.startswith(start)]
    assert 1 <= len(messages) <= 2  # the first two ranks say so
    assert all("of 127.0.0.1 (Connection refused)" in message for message in messages)
    assert not (run.out / "summary.json").exists()


@pytest.mark.usefixtures("awkward")
@pytest.mark.needs("ulfm")
def test_processes_that_are_killed_on_other_hosts(multiply):
    kills = ("--inject", "kill:2@3,kill:1@6")
    # The spare comes in time, and each machine has rows.
    slow = ("--speeds", "1,1,1", "--emulate-speeds", "1,1,1", "--emulate-base", 800)
    run = multiply(
        *("--elastic", *kills, *slow),
        ranks=(2, 1, 2),
        options=("--with-ft", "ulfm"),
    )
    events = [(step["step"], event) for step in run.steps for event in step["events"]]
    assert [(step, event["lost"]) for step, event in events if "lost" in event] == [(3, 2), (6, 1)]
    ((_, joined),) = [(step, event) for step, event in events if "joined" in event]
    assert joined.items() >= {"joined": 2, "rank": 4, "host": "node3"}.items()
    assert run.where()[2] == "node2"
    assert run.header["hosts"][4] == "node3"
    assert "cannot be reached" not in run.done.stderr


def test_a_process_that_is_stopped_on_another_host_ends_with_the_run(multiply):
    """Only the launcher can end it there. What it returns is its own; the results are whole."""
    run = multiply("--speeds", "1,1,1", "--deadline", 3, "--inject", "stop:3@3", code=None)
    events = [event for step in run.steps for event in step["events"]]
    assert [event for event in events if 3 in event.values()][-1] == {"late": 3}
    assert json.loads((run.out / "summary.json").read_text())["steps"] == 12


def when(is_so, do):
    """Do something in a thread as soon as this is so."""

    def watch():
        try:
            wait_until(is_so)
        finally:
            do()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.needs("ulfm")
def test_a_host_that_goes_dark_with_launched_machines_is_missed(hosts, multiply, made, tmp_path):
    """The launcher on it learns of the end when it can be reached again."""
    out = tmp_path / "out"
    slowly = ("--emulate-speeds", "1,1,1", "--emulate-base", 800)
    threads = [
        when((out / "checkpoint.npz").exists, lambda: hosts.link("node3", "cut", "yes")),
        when((out / "summary.json").exists, lambda: hosts.link("node3", "cut", "no")),
    ]
    run = multiply(
        *("--elastic", "--checkpoint-every", 2, *slowly),
        ranks=(3, 0, 1),
        options=("--with-ft", "ulfm"),
        code=None,
    )
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(np.load(out / "result.npy"), made.expected, atol=1e-9)
    events = [event for step in run.steps for event in step["events"]]
    assert {event.get("late") for event in events} >= {3}


def test_a_host_that_is_gone_ends_the_job_and_others_go_on_with_it(
    two_hosts, start, made, tmp_path
):
    """What the launcher returns is its own; what tells is that the summary is missing."""
    out = tmp_path / "out"
    words = ["run", made.store, "--out", out, f"vectors={made.vectors}", "--checkpoint-every", 2]
    slowly = ["--emulate-speeds", "1,1,1", "--emulate-base", 800]
    thread = when((out / "checkpoint.npz").exists, lambda: two_hosts.off("node2"))
    start(*words, *slowly, ranks=(3, 1), on=two_hosts)
    thread.join()
    assert not (out / "summary.json").exists()
    wait_until(lambda: not two_hosts.processes(), describe=two_hosts.processes)
    done = start(*words, "--resume", "--machines", "1,2", ranks=(3, 0), on=two_hosts)
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.load(out / "result.npy"), made.expected)
    available = [step["available"] for step in read_steps(out / "steps.jsonl")[1]]
    assert (available[0], available[-1]) == ([1, 2, 3], [1, 2])
