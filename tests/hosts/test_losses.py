"""A process that is killed on another host: the run goes on, and finds rank 0 by any name."""

import json
import sys
import threading
import time

import numpy as np
import pytest

from cec_mpi.records.recorder import read_steps

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


RANK_0 = """
import json, sys
from cec_mpi.processes.launch.cards import where_to_listen
from cec_mpi.wire.lifelines.lifelines import Lifelines
interface = sys.argv[1] if len(sys.argv) > 1 else None
lines = Lifelines([7], where_to_listen(interface, False, False, {}))
address = lines.address
print(json.dumps([address.places, address.network, address.secret.hex()]), flush=True)
input()
lines.accept([7])
while not (gone := lines.gone()):
    pass
print(gone)
"""
CALLER = """
import json, logging, sys
from cec_mpi.wire.lifelines.lifelines import Address, Lifeline
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
places, network, secret = json.loads(sys.argv[1])
line = Lifeline(Address(tuple(map(tuple, places)), network, bytes.fromhex(secret)), 7)
print(line.is_up)
"""


@pytest.mark.parametrize(
    ("seen_from_node3", "reached_at"),
    [
        ("10.77.0.1 node1", "node1"),
        ("", "10.77.0.1"),  # a name that means nothing there
        ("10.77.0.2 node1", "10.77.0.1"),  # or something else
    ],
    ids=["known", "unknown", "misleading"],
)
@pytest.mark.usefixtures("awkward", "nothing_is_left")
def test_rank_0_is_found_whatever_it_is_called(hosts, seen_from_node3, reached_at):
    (hosts.directory / "node3" / "hosts").write_text(f"127.0.1.1 node3\n{seen_from_node3}\n")
    with hosts.begin("node1", sys.executable, "-c", RANK_0) as rank_0:
        address = rank_0.stdout.readline()
        names = [name for name, _ in json.loads(address)[0]]
        assert names == ["node1", "10.77.0.1", "172.17.0.1", "127.0.0.1"]
        done = hosts.on("node3", sys.executable, "-c", CALLER, address)
        said = done.stdout.splitlines()
        assert said[-2:] == [f"rank 0 is reached at {reached_at}", "True"]
        assert rank_0.communicate("\n", timeout=20)[0] == "[7]\n"


CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


@pytest.mark.usefixtures("awkward", "nothing_is_left")
def test_rank_0_listens_at_the_card_that_is_named_alone(hosts):
    with hosts.begin("node1", sys.executable, "-c", RANK_0, "eth0") as rank_0:
        address = rank_0.stdout.readline()
        ((name, port),) = json.loads(address)[0]
        assert name == "10.77.0.1"
        for other in ("172.17.0.1", "127.0.0.1"):
            done = hosts.on("node1", sys.executable, "-c", CONNECT, other, port)
            assert "refused" in done.stderr
        done = hosts.on("node3", sys.executable, "-c", CALLER, address)
        assert done.stdout.splitlines()[-2:] == ["rank 0 is reached at 10.77.0.1", "True"]
        assert rank_0.communicate("\n", timeout=20)[0] == "[7]\n"


def test_a_card_that_other_hosts_cannot_reach_is_refused(multiply):
    run = multiply("--on-loss", "continue", "--interface", "lo", code=2)
    (message,) = run.messages
    assert message.startswith("cec-mpi: error: interface 'lo': lo (127.0.0.1)")
    assert message.endswith("for processes of node1 alone, and machines run on other hosts too")
    assert not (run.out / "summary.json").exists()


@pytest.mark.usefixtures("awkward")
@pytest.mark.needs("ulfm")
def test_processes_that_are_killed_on_other_hosts(multiply):
    kills = ("--inject", "kill:5@3,kill:3@6")
    slow = ("--emulate-speeds", "1,1,1,1,1,1", "--emulate-base", 400)  # the spare comes in time
    run = multiply(
        *("--on-loss", "continue", "--spares", 1, *kills, *slow),
        ranks=(3, 3, 2),
        options=("--with-ft", "ulfm", "--mca", "btl_tcp_if_include", "eth0"),
    )
    events = [(step["step"], event) for step in run.steps for event in step["events"]]
    assert [(step, event["lost"]) for step, event in events if "lost" in event] == [(3, 5), (6, 3)]
    ((_, joined),) = [(step, event) for step, event in events if "joined" in event]
    assert joined == {"joined": 5, "rank": 7, "host": "node3"}
    assert run.where()[5] == "node2"
    assert run.header["hosts"][7] == "node3"
    assert "cannot be reached" not in run.done.stderr


def test_a_process_that_is_stopped_on_another_host_ends_with_the_run(multiply):
    """Only the launcher can end it there. What it returns is its own; the results are whole."""
    run = multiply("--deadline", 3, "--inject", "stop:6@3", code=None)
    events = [event for step in run.steps for event in step["events"]]
    assert [event for event in events if 6 in event.values()] == [{"late": 6}]
    assert json.loads((run.out / "summary.json").read_text())["steps"] == 12


def test_a_host_that_is_gone_ends_the_job_and_others_go_on_with_it(
    two_hosts, start, made, tmp_path
):
    """What the launcher returns is its own; what tells is that the summary is missing."""
    out = tmp_path / "out"
    words = ["run", made.store, "--out", out, "--vectors", made.vectors, "--checkpoint-every", 2]
    slowly = ["--emulate-speeds", "1,1,1,1,1,1", "--emulate-base", 400]

    def pull_the_plug():
        due = time.monotonic() + 40
        while not (out / "checkpoint.npz").exists() and time.monotonic() < due:
            time.sleep(0.05)
        two_hosts.off("node2")

    thread = threading.Thread(target=pull_the_plug)
    thread.start()
    start(*words, *slowly, ranks=(4, 3), on=two_hosts)
    thread.join()
    assert not (out / "summary.json").exists()
    due = time.monotonic() + 10
    while (left := two_hosts.processes()) and time.monotonic() < due:
        time.sleep(0.1)
    assert not left
    done = start(*words, "--resume", "--machines", "1,2,3", ranks=(4, 0), on=two_hosts)
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.load(out / "result.npy"), made.expected)
    available = [step["available"] for step in read_steps(out / "steps.jsonl")[1]]
    assert (available[0], available[-1]) == ([1, 2, 3, 4, 5, 6], [1, 2, 3])
