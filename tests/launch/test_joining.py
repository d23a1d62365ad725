"""Machines that come as processes of their own, and leave as they like: steps stay right."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import psutil
import pytest

import cec_mpi
from cec_mpi.errors import InfeasibleError, InputError, MachineError
from cec_mpi.options.session import SessionOptions
from cec_mpi.records.recorder import read_steps
from cec_mpi.session.joining.master import reception
from cec_mpi.wire.messages import parting
from cec_mpi.wire.sockets.connection import Connection
from cec_mpi.wire.sockets.connection_file import read_connection_file
from cec_mpi.wire.sockets.frames import GOOD_BYE, HELLO, SAID, kind_and_head, said
from cec_mpi.wire.sockets.hello import Hello, here
from cec_mpi.wire.sockets.listener import Listener
from helpers import ROOT
from helpers.recording import Kept

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
LIMIT = 30  # seconds
UNWRITABLE = rb'{"problem": "\ud800", "shards": [], "rate": 0.0, "unseen": false, "unlogged": ""}'
STALE = {
    "format": "cec_mpi connection file",
    "version": 1,
    "at": [["127.0.0.1", 9]],
    "network": "elsewhere",
    **dict.fromkeys(["server_key", "public_key", "secret_key"], "0" * 40),
}


class Made:
    """An operator that machines join, with steps that are looked at."""

    def __init__(self, operator, X, recorder, tolerance=1e-10):
        self.operator, self.X, self.recorder = operator, X, recorder
        self.tolerance = tolerance
        self.random = np.random.default_rng(5)

    def step(self):
        rows, columns = self.X.shape
        w, v = self.random.standard_normal(columns), self.random.standard_normal(rows)
        np.testing.assert_allclose(self.operator @ w, self.X @ w, atol=self.tolerance)
        np.testing.assert_allclose(self.operator.rmatvec(v), self.X.T @ v, atol=self.tolerance)

    def until(self, condition):
        due = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < due, self.happened()
            self.step()

    def happened(self, *kinds):
        """Machines to which something of these kinds has happened."""
        events = self.recorder.happened
        return [event[kind] for event in events for kind in kinds if kind in event]

    def happened_where(self):
        """Hosts of those that joined."""
        return [event["host"] for event in self.recorder.happened if "joined" in event]


@pytest.fixture(scope="module")
def store(make_store):
    """Six machines, three of which are enough."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 6, 3)


@pytest.fixture
def conn(tmp_path):
    return tmp_path / "conn"


@pytest.fixture
def join(start, conn):
    """Start machines; their processes."""

    def join(count=1, *options, file=conn):
        return [start(["cec-mpi", "join", file, *map(str, options)]) for _ in range(count)]

    return join


@pytest.fixture
def accepting(conn):
    @contextmanager
    def accepting(store, tolerance=1e-10, **options):
        recorder = Kept()
        given = {"accept": str(conn), "recorder": recorder, **options}
        with cec_mpi.open_operator(store.path, None, **given) as operator:
            yield Made(operator, store.X, recorder, tolerance)

    return accepting


def codes(processes):
    return [process.wait(LIMIT) for process in processes]


def told(process):
    _, stderr = process.communicate(timeout=LIMIT)
    return stderr.removeprefix("cec-mpi: error: ")


def test_machines_join_and_leave_and_each_product_is_right(accepting, store, join, conn, capsys):
    with accepting(store, wait=True) as made:
        assert stat.S_IMODE(conn.stat().st_mode) == 0o600
        first = join(5)
        made.until(lambda: len(made.happened("joined")) == 5)
        first[0].kill()
        made.until(lambda: made.happened("lost"))
        first[1].send_signal(signal.SIGTERM)
        made.until(lambda: made.happened("leaving"))
        second = join(3)
        made.until(lambda: len(made.happened("joined")) == 8)
        gone = made.happened("lost", "leaving")
        assert sorted(made.happened("joined")) == sorted([1, 2, 3, 4, 5, 6, *gone])
        second[0].send_signal(signal.SIGUSR1)
        made.until(lambda: len(made.happened("leaving")) == 2)
        assert codes(second[:1]) == [6]
    assert codes(first) == [-signal.SIGKILL, 6, 0, 0, 0]
    assert codes(second[1:]) == [0, 0]
    assert not conn.exists()
    assert "listening for machines at" in capsys.readouterr().out


def test_who_is_one_too_many_waits_to_take_a_place(accepting, store, join):
    with accepting(store) as made:
        processes = join(6)
        made.until(lambda: len(made.happened("joined")) == 6)
        spare = join(1)
        time.sleep(1)
        processes[2].kill()
        made.until(lambda: len(made.happened("joined")) == 7)
        assert made.happened("joined")[6:] == made.happened("lost")
    assert codes(spare) == [0], told(spare[0])


def test_who_is_one_too_many_at_the_end_ends_as_the_others_do(accepting, store, join):
    with accepting(store) as made:
        processes = [join(1)[0] for _ in range(7)]
        assert all("joined the run of" in process.stdout.readline() for process in processes)
        made.until(lambda: len(made.happened("joined")) == 6)
        made.step()
    assert codes(processes) == [0] * 7, [told(process) for process in processes]


def test_who_comes_after_the_last_step_ends_as_the_others_do(accepting, store, join):
    with accepting(store) as made:
        first = join(3)
        made.step()
        late = join(1)[0]
        assert "joined" in late.stdout.readline()
        time.sleep(0.5)  # it says who it is, and nobody listens now
    assert codes([*first, late]) == [0] * 4, told(late)


def test_a_step_waits_for_machines_that_come_back(accepting, store, join):
    with accepting(store, wait=True) as made:
        processes = join(3)
        made.until(lambda: len(made.happened("joined")) == 3)
        for process in processes:
            process.kill()
        join(3)
        made.step()
        assert len(made.happened("lost")) == 3
        assert len(made.happened("joined")) == 6


def test_a_sample_is_compared_no_more_when_a_loss_in_the_step_leaves_too_few(
    accepting, store, join
):
    with accepting(store, wait=True, check="sample") as made:
        processes = join(4)
        made.until(lambda: len(made.happened("joined")) == 4)
        processes[0].send_signal(signal.SIGSTOP)
        killing = threading.Timer(0.3, processes[0].kill)
        killing.start()
        made.step()
        killing.join()
        made.until(lambda: made.happened("lost"))
    assert codes(processes) == [-signal.SIGKILL, 0, 0, 0]


def test_without_wait_a_run_ends_when_too_few_are_left(accepting, store, join):
    def lose_one():
        with accepting(store) as made:
            processes.extend(join(3))
            made.until(lambda: len(made.happened("joined")) == 3)
            processes[0].kill()
            made.until(lambda: False)

    processes = []
    with pytest.raises((InfeasibleError, MachineError)):
        lose_one()
    assert codes(processes)[1:] == [3, 3]


def test_two_stores_large_vectors_and_wrong_answers(accepting, make_store, join):
    """Vectors and answers in several pieces, and in one; float32; a second store meanwhile."""
    X = np.random.default_rng(6).standard_normal((90, 200_000), dtype=np.float32)
    large = make_store(X, 3, 2)
    small = make_store(np.random.default_rng(7).standard_normal((31, 12)), 3, 2)
    with accepting(large, tolerance=0.05) as made:
        join(2)
        made.until(lambda: len(made.happened("joined")) == 2)
        with made.operator.open(small.path) as Y:
            join(1)
            W = np.random.default_rng(8).standard_normal((12, 3))
            due = time.monotonic() + LIMIT
            while len(made.happened("joined")) < 3 and time.monotonic() < due:
                np.testing.assert_allclose(Y @ W, small.X @ W, atol=1e-10)
            Y @ W
            assert sorted(made.happened("joined")) == [1, 2, 3]  # none anew for the second store
            assert set(made.happened_where()) == {socket.gethostname()}
        W = np.random.default_rng(9).standard_normal((200_000, 2), dtype=np.float32)
        np.testing.assert_allclose(made.operator @ W, X @ W, atol=0.05)


WRONG = """
import sys
from cec_mpi import cli
from cec_mpi.machine.machine import Machine
work = Machine.work
def wrong(self, *given):
    done = work(self, *given)
    self.values[:] += 1
    return done
Machine.work = wrong
sys.exit(cli.main(["join", sys.argv[1], "--retry", "60"]))
"""


def test_a_machine_whose_answers_are_wrong_has_to_leave(accepting, store, join, start, conn):
    with accepting(store, check="parity", stragglers=3) as made:
        good = join(5)
        made.until(lambda: len(made.happened("joined")) == 5)
        for count in (1, 2):  # the second one, which has the number of the first, counts anew
            bad = start([sys.executable, "-c", WRONG, conn])
            made.until(lambda: len(made.happened("excluded")) == count)  # noqa: B023
            assert codes([bad]) == [3]
            assert told(bad).splitlines() == ["the master asks no more: wrong in 3 steps"]
        assert len(made.happened("wrong")) == 6
        good += join(1)
        made.until(lambda: len(made.happened("joined")) == 8)
        made.step()
    assert codes(good) == [0] * 6


def test_a_reason_that_cannot_be_written_ends_nothing(accepting, store, join, conn):
    with accepting(store) as made:
        processes = join(3)
        made.until(lambda: len(made.happened("joined")) == 3)
        connection = Connection(read_connection_file(conn))
        connection.send(HELLO, Hello(here(), "elsewhere", 1).packed())
        connection.send(SAID, UNWRITABLE)
        made.until(lambda: made.happened("lost") == [4])
        connection.close()
        made.step()
    assert codes(processes) == [0] * 3


def test_who_cannot_open_a_shard_is_followed_by_one_that_opens_another(store, start, tmp_path):
    shutil.copytree(store.path, tmp_path / "left")
    for number in (1, 3, 4, 5):
        (tmp_path / "left" / f"shard-{number:04d}.npy").unlink()
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    words = ["--out", "out", "--vectors", "W.npy", "--accept", "conn"]
    master = start(["cec-mpi", "run", "left", *words])
    assert "listening" in master.stdout.readline()
    first = start(["cec-mpi", "join", "conn"])
    assert "machine 1 on" in told(first)
    second = start(["cec-mpi", "join", "conn"])
    assert "joined" in second.stdout.readline()
    assert "this is machine 2 of" in second.stdout.readline()
    master.terminate()
    assert codes([master, first, second]) == [6, 3, 3]


def test_a_machine_has_no_more_shards_than_it_can(accepting, store, join):
    size = 200 * 60 * 8
    with accepting(store, shards_per_machine=[3, 1, 1, 1]) as made:
        join(1, "--shards-per-machine", 1)
        join(1, "--memory-per-machine", 2 * size)
        due = time.monotonic() + 1.5
        join(1, "--memory-per-machine", 4 * size)
        made.until(lambda: len(made.happened("joined")) == 3 and time.monotonic() > due)
        counts = made.recorder.common["shards_of_machine"]
        assert sorted(len(counts[n - 1]) for n in made.happened("joined")) == [1, 1, 3]


def test_strangers_cost_the_others_nothing(start, store, join, conn, tmp_path):
    """200 that say nothing, say what nobody understands, or hang up: more than files were open."""
    W = np.random.default_rng(5).standard_normal((400, 60))
    np.save(tmp_path / "W.npy", W)
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    run += ["--vectors", tmp_path / "W.npy", "--checkpoint-every", 20]
    master = start(["sh", "-c", 'ulimit -S -n 100 && exec "$@"', "sh", *run])
    assert "listening" in master.stdout.readline()
    machines, due = join(4), time.monotonic() + LIMIT
    while not (tmp_path / "out" / "checkpoint.npz").exists():
        assert time.monotonic() < due
        time.sleep(0.02)
    place = "127.0.0.1", read_connection_file(conn).places[-1][1]
    callers = []
    for number in range(200):
        callers.append(socket.create_connection(place))
        if number % 2:
            callers[-1].send(np.random.default_rng(number).bytes(1 + 40 * (number % 50)))
    for caller in callers[::5]:
        caller.close()
    assert codes([master, *machines]) == [0] * 5, told(master)
    for caller in callers:
        caller.close()
    np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), W @ store.X.T, atol=1e-10)
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert {kind for step in steps for event in step["events"] for kind in event} <= {
        "joined",
        "rank",
        "host",
    }


def test_nothing_grows_with_machines_that_come_and_go(accepting, store, join, conn):
    def come_and_go(times):
        for number in range(times):
            connection = Connection(read_connection_file(conn))
            connection.send(HELLO, Hello(here(), f"node{number}", number).packed())
            made.step()
            connection.close()
        made.step()
        return psutil.Process().num_fds(), psutil.Process().memory_info().rss

    with accepting(store) as made:
        join(4)
        made.until(lambda: len(made.happened("joined")) == 4)
        come_and_go(50)
        descriptors, size = come_and_go(50)
        later, larger = come_and_go(150)
        assert later <= descriptors
        assert larger - size < 150 * 10_000


def test_machines_take_over_no_more_shards_than_they_have_room_for(accepting, store, join):
    with accepting(store, adopt=True) as made:
        processes = [*join(1, "--shards-per-machine", 2), *join(1, "--memory-per-machine", "200K")]
        made.step()
        adopted = made.happened("adopted")
        assert 0 < len(adopted) == len(set(adopted))
    assert codes(processes) == [0] * 2


def test_what_a_machine_says_unasked_is_passed_over(accepting, store, join, conn, caplog):
    with accepting(store) as made:
        join(3)
        made.step()
        connection = Connection(read_connection_file(conn))
        connection.send(HELLO, Hello(here(), "odd", 1).packed())
        connection.send(SAID, said("what went wrong, too late"))
        connection.send(SAID, said(None))
        made.until(lambda: caplog.text.count("says what it is not asked") == 2)
        connection.close()
        made.step()


def test_a_campaign_of_machines_that_come_and_go(run):
    """A short run of the one in scripts."""
    script = ROOT / "scripts" / "campaigns" / "come_and_go.py"
    done = run([sys.executable, script, "--machines", 4, "--seed", 2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 machines came and went: 0 problems\n" in done.stdout


def test_a_wrong_key_is_met_with_silence(accepting, store, join, conn, tmp_path):
    import zmq

    with accepting(store) as made:
        public, secret = zmq.curve_keypair()
        content = json.loads(conn.read_text())
        wrong = {"public_key": public.decode(), "secret_key": secret.decode()}
        (tmp_path / "other").write_text(json.dumps(content | wrong))
        (tmp_path / "wrong").write_text(json.dumps(content | {"server_key": public.decode()}))
        processes = [*join(1, file=tmp_path / "other"), *join(1, file=tmp_path / "wrong")]
        join(3)
        made.until(lambda: all(process.poll() is not None for process in processes))
        for process in processes:
            assert "the master is reached nowhere: tried" in told(process)
            assert process.returncode == 3


def test_the_file_of_a_run_that_goes_on_is_left_alone(accepting, store, join, conn, run, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    words = ["--out", tmp_path / "out", "--vectors", tmp_path / "W.npy", "--accept", conn]
    with accepting(store) as made:
        processes = join(3)
        done = run(["cec-mpi", "run", store.path, *words])
        assert done.returncode == 2, done.stderr
        assert "another run listens there, expected a name of its own" in done.stderr
        made.step()
    assert codes(processes) == [0] * 3


def test_of_two_runs_that_begin_at_once_one_has_the_file(store, conn):
    receptions = [reception(SessionOptions(accept=str(conn))) for _ in range(2)]
    try:
        receptions[1].begin(store.path)
        written = conn.read_bytes()
        with pytest.raises(InputError, match="another run has begun to listen there"):
            receptions[0].begin(store.path)
    finally:
        receptions[0].close()
        assert conn.read_bytes() == written
        receptions[1].close()
    assert not conn.exists()


def test_the_file_is_gone_when_the_end_of_a_run_is_interrupted(
    accepting, store, join, conn, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    def step_once():
        with accepting(store) as made:
            made.step()
            monkeypatch.setattr(parting, "all_that_hear", interrupted)

    processes = join(3, "--retry", 2)
    with pytest.raises(KeyboardInterrupt):
        step_once()
    assert not conn.exists()
    assert codes(processes) == [3] * 3


FORKS = """
import os, sys
import numpy as np
import cec_mpi
with cec_mpi.open_operator(sys.argv[1], None, accept=sys.argv[2]) as X:
    first = X @ np.ones(60)
    child = os.fork()
    if not child:
        sys.exit("a forked process leaves")
    os.waitpid(child, 0)
    print(os.path.exists(sys.argv[2]), np.array_equal(X @ np.ones(60), first))
"""


def test_a_forked_process_ends_nothing(start, store, join, conn):
    program = start([sys.executable, "-c", FORKS, store.path, conn])
    machines = join(3, "--retry", LIMIT)
    assert codes([program, *machines]) == [0] * 4
    assert "True True" in program.stdout.read()


def test_machines_join_again_when_a_run_is_resumed(start, store, join, conn, tmp_path):
    np.save(tmp_path / "W.npy", np.random.default_rng(5).standard_normal((800, 60)))
    out = os.path.relpath(tmp_path / "out", store.path.parent)
    run = ["cec-mpi", "run", store.path.name, "--out", out, "--accept", conn]
    run += ["--wait", "--vectors", tmp_path / "W.npy", "--checkpoint-every", 10]
    checkpoint, beside = tmp_path / "out" / "checkpoint.npz", store.path.parent
    first = start(run, cwd=beside)  # machines start in another directory
    due = time.monotonic() + LIMIT
    while not conn.exists():
        assert time.monotonic() < due
        time.sleep(0.02)
    patient, others = join(3, "--retry", 30), join(2)
    while not checkpoint.exists():
        assert time.monotonic() < due
        time.sleep(0.02)
    first.kill()
    assert codes(others) == [3, 3]
    second = start([*run, "--resume"], cwd=beside)
    assert codes([second, *patient]) == [0, 0, 0, 0], told(second)
    found = np.load(tmp_path / "out" / "result.npy")
    np.testing.assert_allclose(found, np.load(tmp_path / "W.npy") @ store.X.T, atol=1e-10)
    header, _ = read_steps(tmp_path / "out" / "steps.jsonl")
    assert header["mpi_library"] == "none"
    assert len(list((tmp_path / "out" / "logs").glob("machine-*.log"))) >= 3


def test_a_run_that_is_stopped_lets_its_machines_go(start, store, join, conn, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    process = start([*run, "--vectors", tmp_path / "W.npy"])
    machines = join(2, "--retry", 30)
    assert all(_has_joined(machine) for machine in machines)
    process.terminate()
    assert process.wait(LIMIT) == 6
    machines[0].terminate()
    assert codes(machines[:1]) == [6], told(machines[0])
    assert not conn.exists()
    machines[1].send_signal(signal.SIGUSR1)
    assert codes(machines[1:]) == [6], told(machines[1])


def test_why_no_machine_can_join_is_told_where_the_run_waits(
    start, make_store, join, conn, tmp_path
):
    store = make_store(np.eye(60), 3, 2)
    for n in (1, 2):
        (store.path / f"shard-000{n}.npy").unlink()
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    master = start([*run, "--task", "power", "--wait"])
    for _ in range(2):
        (machine,) = join(1, "--retry", 30)
        assert codes([machine]) == [3], told(machine)
    master.terminate()
    assert master.wait(LIMIT) == 6
    lines = [line for line in master.stdout if "cannot join" in line]
    assert len(lines) == 2  # one was tried on another number
    assert "shard-0001.npy: missing" in lines[0]
    assert "shard-0002.npy: missing" in lines[1]


def test_a_run_that_is_interrupted_says_so_to_its_machines(start, store, join, conn, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    process = start([*run, "--vectors", tmp_path / "W.npy"])
    due = time.monotonic() + LIMIT
    while not conn.exists():
        assert time.monotonic() < due
        time.sleep(0.02)
    (machine,) = join()
    assert "joined the run of" in machine.stdout.readline()
    assert "this is machine 1" in machine.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert codes([process, machine]) == [130, 3]
    assert told(machine) == "the master has left: stopped by Ctrl-C\n"


def test_a_machine_that_is_told_to_leave_waits_for_no_other_run(join, conn):
    master = Listener(["127.0.0.1"], None)
    master.file.write(conn)
    (machine,) = join(1, "--retry", 10 * LIMIT)
    due = time.monotonic() + LIMIT
    for kind in (HELLO, GOOD_BYE):
        while (heard := master.receive()) is None:
            assert time.monotonic() < due
            time.sleep(0.01)
        assert kind_and_head(heard[1][0])[0] == kind
        machine.terminate()
    master.close()  # which lets nobody go before
    assert machine.wait(LIMIT) == 6, told(machine)


def _has_joined(machine):
    """Whether it says so, once it has said that it waits, if it does."""
    return any("joined the run of" in line for line in machine.stdout)


def test_a_run_that_compares_answers_says_that_it_waits_for_one_more(start, store, join, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", tmp_path / "conn"]
    run += ["--vectors", tmp_path / "W.npy", "--check", "parity", "--stragglers", 1]
    process = start(list(map(str, run)))
    assert any("waiting for 4 more machines (0 machines" in line for line in process.stdout)
    machines = join(3, "-q")
    assert any("waiting for 1 more machine (3 machines" in line for line in process.stdout)
    assert codes([process, *machines, *join(1, "-q")]) == [0] * 5


def test_a_machine_says_what_it_waits_for(start, store, join, conn, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((10, 60)))
    (machine,) = join(1, "--retry", 30)
    assert machine.stdout.readline() == f"{conn}: missing; waiting 30 s at most\n"
    run = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    process = start([*run, "--vectors", tmp_path / "W.npy"])
    others = join(2, "--retry", 30, "-q")
    assert machine.stdout.readline().startswith("joined the run of")
    assert codes([process, machine, *others]) == [0] * 4


def test_a_machine_leaves_when_it_is_told_while_it_connects(start, tmp_path):
    """As to a master that is stopped: its port takes connections, and nothing is said there."""
    with socket.create_server(("", 0)) as silent:
        port = silent.getsockname()[1]
        hosts = [[f"127.0.0.{number}", port] for number in range(1, 10)]
        (tmp_path / "conn").write_text(json.dumps(STALE | {"at": hosts}))
        machine = start(["cec-mpi", "join", "conn"])
        silent.accept()[0].close()
        machine.terminate()
        assert codes([machine]) == [6], told(machine)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["none"], 2, "none: missing (--retry SECONDS waits until a run writes it)"),
        (["none", "--retry", "0.5"], 3, "none: missing; waited 0.5 s"),
        ([""], 2, "'': expected the name of a file or directory"),
        (["."], 2, ".: a directory, expected a file"),
        (["other"], 2, "other is no connection file, as cec-mpi run --accept writes one"),
        (["stale"], 3, "the master is reached nowhere: tried port 9 of 127.0.0.1 (Connection refu"),
        (["odd"], 3, "tried port 9 of ü.. (no name of a host)"),
        (["stale", "--retry", "0"], 2, "argument --retry: '0': expected a positive number"),
        (["stale", "--shards-per-machine", "0"], 2, "expected a whole number of at least 1"),
        (["stale", "--memory-per-machine", "x"], 2, "expected a size"),
    ],
)
def test_what_join_refuses(run, tmp_path, words, code, expected):
    (tmp_path / "other").write_text("{}")
    (tmp_path / "stale").write_text(json.dumps(STALE))
    (tmp_path / "odd").write_text(json.dumps(STALE | {"at": [["ü..", 9]]}))
    done = run(["cec-mpi", "join", *words], cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--accept", "W.npy"], "accept W.npy: expected a new name, or an earlier connection file"),
        (["--accept", "no/conn"], "no is not a directory"),
        (["--accept", ""], "argument --accept: '': expected the name of a file or directory"),
        (["--accept", "conn", "--serial"], "--accept with --serial"),
        (["--accept", "conn", "--spares", "1"], "spares with accept"),
        (["--accept", "conn", "--replace", "spawn"], "replace spawn with accept"),
        (["--accept", "conn", "--ports", "9-3"], "'9-3': expected ports, as 50000-50100"),
        (["--accept", "conn", "--interface", "eth77"], "interface 'eth77': rank 0 on"),
        (["--accept", "conn", "--emulate-speeds", "1,1,1,1,1,1"], "expected a base too"),
        (["--accept", "conn", "--speeds", "a=1,b=2"], "speeds of hosts with accept"),
        (["--accept", "conn", "--shards-per-machine", "auto"], "auto: with accept, or all mach"),
        (
            ["--serial", "--ports", "5000"],
            "ports: expected on_loss='continue' (--on-loss continue) or accept (--accept FILE) too",
        ),
    ],
)
def test_what_a_run_that_accepts_refuses(run, store, tmp_path, words, expected):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    given = ["cec-mpi", "run", store.path, "--out", "out", "--vectors", "W.npy", *words]
    done = run(given, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "conn").exists()


def test_a_port_that_is_taken_is_told(run, store, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["--accept", "conn", "--ports", port, "--interface", "127.0.0.1"]
        given = ["cec-mpi", "run", store.path, "--out", "out", "--vectors", "W.npy", *words]
        done = run(given, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert (
        f"cannot listen at 127.0.0.1 at ports {port}-{port}: Address already in use" in done.stderr
    )
