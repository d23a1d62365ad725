"""A rank of an elastic run: whom it serves, how long it looks, and its exit code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from msgspec import structs

from cec_mpi.core.elastic.events import MachineExcluded
from cec_mpi.errors import InputError
from cec_mpi.runtime.session.machine import end_note
from cec_mpi.runtime.wire.sockets.hub import SocketHub
from cec_mpi.runtime.wire.sockets.listener import Listener
from helpers.waiting import LIMIT, wait_until

pytestmark = pytest.mark.usefixtures("no_launcher")

JOB = "7.0"
RANK = f"""
import sys
from pathlib import Path
from cec_mpi.runtime.session.machine import serve_as_rank

file = Path(sys.argv[1])
sys.exit(serve_as_rank(file, file, int(sys.argv[2]), {JOB!r}, float(sys.argv[3])))
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "conn.json"


@pytest.fixture
def start(file):
    """Start a rank that looks for this connection file."""
    started = []

    def start(rank=1, seconds=LIMIT):
        command = [sys.executable, "-c", RANK, file, str(rank), str(seconds)]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=LIMIT)


@pytest.fixture
def listen(file):
    """A master that has written the file."""
    listeners = []

    def listen():
        listeners.append(Listener(["127.0.0.1"], None))
        hub = SocketHub(listeners[-1], file, job=JOB)
        hub.listen(prints=False)
        return hub, listeners[-1]

    yield listen
    for listener in listeners:
        listener.close()


def ended(process):
    """The exit code, and what it has said."""
    _, said = process.communicate(timeout=LIMIT)
    return process.returncode, said


def test_a_rank_waits_for_the_file_of_its_job_and_serves_until_the_end(start, listen, file):
    other = Listener(["127.0.0.1"], None)
    try:
        structs.replace(other.file, job="6.0").write(file)  # of the job before
        process = start(rank=2)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        file.unlink()
        hub, _ = listen()
        assert len(hub.gather(lambda: 1, 1, LIMIT)) == 2
        hub.stop(InputError("the master has said why"))
    finally:
        other.close()
    assert ended(process) == (0, "")


def test_a_rank_that_finds_no_master_in_time_says_so(start):
    code, said = ended(start(seconds=0.2))
    assert code == 3
    assert "the master has not begun to listen within 0.2 s" in said
    assert said.count("\n") == 1


LAUNCHER = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", *sys.argv[1:]]) as rank:
    print(rank.pid, flush=True)
"""


def test_a_rank_whose_launcher_has_ended_leaves(file):
    command = [sys.executable, "-c", LAUNCHER, RANK, file, "1", "600"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as launcher:
        status = Path("/proc", launcher.stdout.readline().strip(), "status")
        wait_until(lambda: handles(status, signal.SIGUSR1))  # it has begun to serve
        launcher.kill()
        assert launcher.communicate(timeout=LIMIT) == ("", "")  # the rank has ended, too


def handles(status, number):
    (mask,) = re.findall(r"^SigCgt:\s+(\w+)$", status.read_text(), re.MULTILINE)
    return int(mask, 16) >> (number - 1) & 1


def test_a_rank_that_comes_when_the_run_is_over_leaves(start, file):
    process = start()
    over = threading.Event()

    def leave_notes():
        while not over.is_set():
            with end_note(file, "another job"), end_note(file, JOB):
                pass

    notes = threading.Thread(target=leave_notes)
    notes.start()
    try:
        assert ended(process) == (0, "")
    finally:
        over.set()
        notes.join()
    assert list(file.parent.iterdir()) == []


def test_a_rank_that_connects_when_the_run_ends_leaves(start, listen, file):
    _, listener = listen()
    process = start()
    wait_until(listener.receive)  # it has connected, and is not heard
    with end_note(file, JOB):
        file.unlink()
        listener.close()
    assert ended(process) == (0, "")


def test_a_signal_ends_a_rank(start, listen):
    hub, _ = listen()
    process = start()
    hub.gather(lambda: 1, 1, LIMIT)
    process.send_signal(signal.SIGTERM)

    def has_left():
        list(hub.events())
        return process.poll() is not None

    wait_until(has_left)
    assert ended(process) == (0, "")


def test_a_rank_whose_answers_were_wrong_leaves_and_is_no_failure(start, listen):
    hub, _ = listen()
    process = start()
    hub.gather(lambda: 1, 1, LIMIT)
    hub.roster.add_vacant([1])
    hub.roster.assign(1, 1)
    hub.roster.mark_joined(1, 1)
    hub.exclude(1, "wrong in 3 steps", MachineExcluded)
    assert ended(process) == (0, "")


@pytest.mark.parametrize("keeps_file", [True, False])
def test_a_rank_whose_master_died_says_so(keeps_file, start, listen, file):
    hub, listener = listen()
    process = start()
    hub.gather(lambda: 1, 1, LIMIT)
    if not keeps_file:
        file.unlink()
    listener.close()
    code, said = ended(process)
    assert code == 3
    assert "master" in said
    assert said.count("\n") == 1


def test_only_the_first_ranks_say_that_their_master_died(start, listen, file):
    _, listener = listen()
    listener.close()
    left = [ended(start(rank, seconds=0.2)) for rank in (1, 2, 3)]
    assert [code for code, _ in left] == [3, 3, 3]
    assert ["master" in said for _, said in left] == [True, True, False]
    assert list(file.parent.iterdir()) == [file]
