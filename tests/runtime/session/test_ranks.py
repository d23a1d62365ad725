"""A rank of an elastic run: the run that it serves, its messages and its exit code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from cec_mpi.core.elastic.events import MachineExcluded
from cec_mpi.errors import InputError
from cec_mpi.runtime.session.host import end_note
from cec_mpi.runtime.wire.sockets.hub import SocketHub
from cec_mpi.runtime.wire.sockets.listener import Listener
from helpers.waiting import LIMIT, wait_until

pytestmark = pytest.mark.usefixtures("no_launcher")

JOB = "7.0"
RANK = f"""
import sys
from pathlib import Path
from cec_mpi.runtime.session.host import serve_as_rank

file = Path(sys.argv[1])
sys.exit(serve_as_rank(file, file, int(sys.argv[2]), {JOB!r}, float(sys.argv[3])))
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "conn.json"


@pytest.fixture
def start(file):
    """Return a function that starts a rank with this connection file."""
    processes = []

    def start(rank=1, seconds=LIMIT):
        command = [sys.executable, "-c", RANK, file, str(rank), str(seconds)]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=LIMIT)


@pytest.fixture
def listen(file):
    """Return a function that opens a hub with this connection file."""
    listeners = []

    def listen():
        listeners.append(Listener(["127.0.0.1"], None))
        hub = SocketHub(listeners[-1], file, job_id=JOB)
        hub.listen(show_command=False)
        return hub, listeners[-1]

    yield listen
    for listener in listeners:
        listener.close()


def finish(process):
    """Wait for a rank, and return its exit code and its messages."""
    _, errors = process.communicate(timeout=LIMIT)
    return process.returncode, errors


def test_ranks_wait_for_the_file_of_their_job_and_exit_with_code_0(start, listen, file):
    other_listener = Listener(["127.0.0.1"], None)
    try:
        structs.replace(other_listener.file, job_id="6.0").write(file)  # of an earlier job
        ranks = [start(rank) for rank in (1, 2, 3)]
        with pytest.raises(subprocess.TimeoutExpired):
            ranks[0].wait(1)
    finally:
        other_listener.close()
    file.unlink()
    hub, _ = listen()
    assert len(hub.await_processes(lambda: 3, 3, LIMIT)) == 4

    def await_exits(number):
        def have_exited():
            list(hub.events())
            return sum(rank.poll() is not None for rank in ranks) == number

        wait_until(have_exited)

    hub.roster.add_vacant([1])
    hub.roster.assign(1, 1)
    hub.roster.mark_joined(1, 1)
    hub.exclude(1, "wrong in 3 steps", MachineExcluded)
    await_exits(1)
    next(rank for rank in ranks if rank.poll() is None).send_signal(signal.SIGTERM)
    await_exits(2)
    hub.stop(InputError("the master prints this"))
    assert [finish(rank) for rank in ranks] == [(0, "")] * 3


def test_only_the_first_ranks_print_that_no_master_has_started(start, file):
    ranks = [start(rank, seconds=0.2) for rank in (1, 2, 3)]
    codes, messages = zip(*map(finish, ranks), strict=True)
    assert codes == (3, 3, 3)
    for message in messages[:2]:
        assert "the master has not begun to listen within 0.2 s" in message
        assert message.count("\n") == 1
    assert messages[2] == ""
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("keeps_file", [True, False])
def test_a_rank_prints_that_its_master_has_died(keeps_file, start, listen, file):
    hub, listener = listen()
    process = start()
    hub.await_processes(lambda: 1, 1, LIMIT)
    if not keeps_file:
        file.unlink()
    listener.close()
    code, message = finish(process)
    assert code == 3
    assert "master" in message
    assert message.count("\n") == 1


def test_end_notes_make_late_ranks_leave(start, listen, file):
    _, listener = listen()
    connected_rank = start()
    wait_until(listener.receive)  # the hub does not answer
    with end_note(file, JOB):
        file.unlink()
        listener.close()
        late_rank = start(rank=2)
        assert [finish(connected_rank), finish(late_rank)] == [(0, "")] * 2
    assert list(file.parent.iterdir()) == []


LAUNCHER = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", *sys.argv[1:]]) as rank:
    print(rank.pid, flush=True)
"""


def test_a_rank_leaves_if_its_launcher_has_ended(file):
    command = [sys.executable, "-c", LAUNCHER, RANK, file, "1", "600"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as launcher:
        status = Path("/proc", launcher.stdout.readline().strip(), "status")
        wait_until(lambda: handles_signal(status, signal.SIGUSR1))  # the rank has begun to serve
        launcher.kill()
        assert launcher.communicate(timeout=LIMIT) == ("", "")  # after the rank has ended


def handles_signal(status, number):
    (mask,) = re.findall(r"^SigCgt:\s+(\w+)$", status.read_text(), re.MULTILINE)
    return int(mask, 16) >> (number - 1) & 1
