"""Losses of processes and hosts, and machines on other hosts that find the master."""

import sys
import threading

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.mpi_at_hand import library
from helpers.waiting import LIMIT, wait_until

pytestmark = pytest.mark.needs("hosts", "mpi-across-hosts")


@pytest.fixture
def ambiguous_addresses(hosts):
    """Let each host resolve its own name to 127.0.1.1, and give all hosts a common address."""
    original_texts = {}
    for host in hosts.names:
        file = hosts.directory / host / "hosts"
        original_texts[file] = text = file.read_text()
        entry = next(line for line in text.splitlines() if line.endswith(host))
        file.write_text(text.replace(entry, f"127.0.1.1 {host}"))
        assert hosts.run(host, "ip", "link", "add", "docker0", "type", "bridge").returncode == 0
        hosts.run(host, "ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
        hosts.run(host, "ip", "link", "set", "docker0", "up")
    yield
    for file, text in original_texts.items():
        file.write_text(text)
    for host in hosts.names:
        hosts.run(host, "ip", "link", "del", "docker0")


MASTER = """
import sys
from pathlib import Path
from cec_mpi.runtime.wire.sockets.interfaces import listen_addresses
from cec_mpi.runtime.wire.sockets.listener import Listener
listener = Listener(listen_addresses(None), None)
listener.file.write(Path(sys.argv[1]))
print(*(name for name, _ in listener.file.addresses), flush=True)
while listener.receive() is None:
    pass
print("received", flush=True)
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


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("names_on_node3", "address"),
    [
        ("10.77.0.1 node1", "node1"),
        ("", "10.77.0.1"),
        ("10.77.0.2 node1", "10.77.0.1"),
    ],
    ids=["known", "unknown", "misleading"],
)
@pytest.mark.usefixtures("ambiguous_addresses", "no_survivors")
def test_a_machine_reaches_the_master_by_name_or_by_address(
    hosts, tmp_path, names_on_node3, address
):
    (hosts.directory / "node3" / "hosts").write_text(f"127.0.1.1 node3\n{names_on_node3}\n")
    master = hosts.start("node1", sys.executable, "-c", MASTER, tmp_path / "conn")
    assert master.stdout.readline() == "node1 10.77.0.1 172.17.0.1 127.0.0.1\n"
    result = hosts.run("node3", sys.executable, "-c", MACHINE, tmp_path / "conn")
    assert result.stdout == f"{address}\n", result.stderr
    assert master.communicate("\n", timeout=LIMIT)[0] == "received\n"


@pytest.mark.any_mpi
def test_machines_report_that_the_chosen_interface_is_unreachable(multiply):
    # Rank 0 exits with 4 and the machines with 3; MPICH's mpiexec returns 3 | 4
    code = 7 if library().startswith("MPICH") else 3
    run = multiply("--elastic", "--interface", "lo", "--start-timeout", 5, code=code)
    start = "cec-mpi: error: the master has not begun to listen within 5 s"
    messages = [message for message in run.messages if message.startswith(start)]
    assert 1 <= len(messages) <= 2  # of the first two ranks
    assert all("of 127.0.0.1 (Connection refused)" in message for message in messages)
    assert not (run.out / "summary.json").exists()


@pytest.mark.usefixtures("ambiguous_addresses")
@pytest.mark.needs("ulfm")
def test_a_run_continues_after_processes_on_other_hosts_were_killed(multiply):
    kills = ("--inject", "kill:2@3,kill:1@6")
    # Slow machines: the spare joins before the end, and each machine has rows.
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
    assert run.hosts_of_machines()[2] == "node2"
    assert run.header["hosts"][4] == "node3"
    assert "cannot be reached" not in run.result.stderr


def call_when(condition, function):
    """Call a function in a thread as soon as a condition is true."""

    def watch():
        try:
            wait_until(condition)
        finally:
            function()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.needs("ulfm")
def test_a_run_continues_while_a_host_of_its_machines_is_unreachable(
    hosts, multiply, inputs, tmp_path
):
    """The host is reachable again at the end, so that the launcher can end, too."""
    out = tmp_path / "out"
    slow_machines = ("--emulate-speeds", "1,1,1", "--emulate-base", 800)
    threads = [
        call_when((out / "checkpoint.npz").exists, lambda: hosts.set_link("node3", "cut", "yes")),
        call_when((out / "summary.json").exists, lambda: hosts.set_link("node3", "cut", "no")),
    ]
    run = multiply(
        *("--elastic", "--checkpoint-every", 2, *slow_machines),
        ranks=(3, 0, 1),
        options=("--with-ft", "ulfm"),
        code=None,
    )
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(np.load(out / "result.npy"), inputs.expected, atol=1e-9)
    events = [event for step in run.steps for event in step["events"]]
    assert {event.get("late") for event in events} >= {3}


def test_a_lost_host_ends_a_run_in_lockstep_and_other_hosts_resume_it(
    two_hosts, start, inputs, tmp_path
):
    """The launcher may return any exit code; the summary is missing."""
    out = tmp_path / "out"
    args = ["run", inputs.store, "--out", out, f"vectors={inputs.vectors}"]
    args += ["--checkpoint-every", 2]
    slow_machines = ["--emulate-speeds", "1,1,1", "--emulate-base", 800]
    thread = call_when((out / "checkpoint.npz").exists, lambda: two_hosts.switch_off("node2"))
    start(*args, *slow_machines, ranks=(3, 1), hosts=two_hosts)
    thread.join()
    assert not (out / "summary.json").exists()
    wait_until(lambda: not two_hosts.processes(), describe=two_hosts.processes)
    result = start(*args, "--resume", "--machines", "1,2", ranks=(3, 0), hosts=two_hosts)
    assert result.returncode == 0, result.stderr
    assert np.allclose(np.load(out / "result.npy"), inputs.expected)
    available = [step["available"] for step in read_steps(out / "steps.jsonl")[1]]
    assert (available[0], available[-1]) == ([1, 2, 3], [1, 2])
