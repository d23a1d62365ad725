"""Machines that really are slower: what slows them, what is measured, and that nothing stays."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cec_mpi.bench.slower.limits import NoGroups, be_slow, find_parent, limit_group, slowed
from cec_mpi.bench.slower.makespan import Makespan
from cec_mpi.cli import main
from cec_mpi.errors import InputError
from cec_mpi.processes.launcher import without_launcher
from helpers.commands import environment

SIZES = ["--speeds=3,2,1", "--recovery=2", "--rows=600", "--columns=40", "--vectors=8"]
SMALL = ["makespan", *SIZES]
V1 = "proc /proc proc rw 0 0\ncgroup /cg/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n"


def groups_can_be_made():
    try:
        with slowed([0.5], "cgroup"):
            return True
    except InputError:
        return False


def of_this_process(pid):
    """Control groups that a process has made and not removed."""
    parent, _ = find_parent()
    return list(parent.glob(f"cec-mpi-bench-{pid}"))


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No launcher, and a temporary directory of its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in set(os.environ) - set(without_launcher(os.environ)):
        if name.startswith(("OMPI_COMM", "PMI")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("way", ["auto", "neighbour"])
def test_it_prints_makespans_over_the_optimum(alone, capsys, tmp_path, way):
    code = main(["bench", *SMALL, "--turns", "3", "--learning", "2", "--slow-by", way, "--json"])
    found = capsys.readouterr()
    assert (code, found.err) == (0, "")
    figures = {each["name"]: each for each in json.loads(found.out)["figures"]}
    by = "cgroup" if way == "auto" and groups_can_be_made() else "neighbour"
    for name in (f"makespan, slowed by {by}", "cyclic", "the first step, at equal speeds"):
        assert figures[name]["over"] == "the optimum in hindsight"
        assert figures[name]["low"] > 1 - 1e-9
    assert figures["makespan"]["unit"] == "s"
    assert list(tmp_path.iterdir()) == []


def test_shares_leave_room_and_none_is_more_than_a_core():
    cores = len(os.sched_getaffinity(0))
    shares = Makespan(speeds="4,2,1,1", recovery=1).shares()
    assert max(shares) <= 1
    assert sum(shares) <= 0.8 * cores + 1e-9
    assert shares[0] == pytest.approx(4 * shares[3])
    with pytest.raises(InputError, match="--recovery 3: expected at most 2"):
        Makespan(speeds="1,2", recovery=3).measure()


def test_where_control_groups_are():
    own = "3:cpuset:/\n2:cpu,cpuacct:/user/me\n0::/other\n"
    assert find_parent(V1, own) == (Path("/cg/cpu,cpuacct/user/me"), False)
    with pytest.raises(NoGroups, match="no cpu controller"):
        find_parent("proc /proc proc rw 0 0\n", own)


def test_where_control_groups_of_version_2_are(tmp_path):
    mounts = f"cgroup2 {tmp_path} cgroup2 rw 0 0\n"
    (tmp_path / "slice" / "me").mkdir(parents=True)
    (tmp_path / "slice" / "cgroup.subtree_control").write_text("memory pids\n")
    with pytest.raises(NoGroups):
        find_parent(mounts, "0::/slice/me\n")
    (tmp_path / "slice" / "cgroup.subtree_control").write_text("cpu memory\n")
    assert find_parent(mounts, "0::/slice/me\n") == (tmp_path / "slice", True)
    limit_group(tmp_path, 0.25, is_v2=True)
    assert (tmp_path / "cpu.max").read_text() == "2500 10000"
    limit_group(tmp_path, 0.5, is_v2=False)
    assert (tmp_path / "cpu.cfs_quota_us").read_text() == "5000"


def test_a_process_joins_its_group(tmp_path):
    be_slow({"group": str(tmp_path)})
    assert (tmp_path / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.skipif(not groups_can_be_made(), reason="no control groups here")
def test_groups_of_a_process_that_was_killed_go_with_the_next():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    parent, _ = find_parent()
    left = parent / f"cec-mpi-bench-{ended.pid}"
    left.mkdir()
    (left / "machine-1").mkdir()
    with slowed([0.5], "cgroup"):
        assert not left.exists()


def test_busy_neighbours_go_with_the_end():
    before = set(psutil.Process().children())
    with slowed([0.4, 0.4, 0.1], "neighbour") as (way, told):
        assert way == "neighbour"
        assert len(set(psutil.Process().children()) - before) == len(os.sched_getaffinity(0))
        assert [each["nice"] for each in told] == [0, 0, 6]
        program = f"from cec_mpi.bench.slower.limits import *; be_slow({told[2]})"
        program += "; import os; print(os.nice(0), *os.sched_getaffinity(0))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stdout.split() == [str(os.nice(0) + 6), str(told[2]["core"])]
    assert not set(psutil.Process().children()) - before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_a_signal_ends_it(tmp_path, number):
    words = [*SMALL, "--turns", "100000", "--directory", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "cec_mpi", "bench", *words],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    by = time.monotonic() + 60
    started = []
    while len(started) < 5:  # mpirun and its ranks
        assert time.monotonic() < by
        assert process.poll() is None
        started = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert list(tmp_path.iterdir()) == []
    if groups_can_be_made():
        assert of_this_process(process.pid) == []
