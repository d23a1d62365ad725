import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from cec_mpi.bench.programs import run_to_end
from cec_mpi.bench.scratch import random_matrix, random_store, scratch
from cec_mpi.errors import InputError, MachineError
from cec_mpi.processes.launcher import without_launcher
from cec_mpi.store.reader import open_store

# A program that has started another one, and says which.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
open("child", "w").write(str(child.pid))
time.sleep(100)
"""


def wait_for(path):
    until = time.monotonic() + 30
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return path.read_text()


def is_over(process):
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_program_to_its_end(tmp_path):
    program = "import os; print(os.getcwd(), os.environ['THIS'])"
    environment = os.environ | {"THIS": "that"}
    printed = run_to_end([sys.executable, "-c", program], 60, tmp_path, environment)
    assert printed == f"{tmp_path} that\n"
    with pytest.raises(MachineError, match="ended with code 7"):
        run_to_end([sys.executable, "-c", "raise SystemExit(7)"], 60)


def test_a_program_that_takes_too_long_ends_with_all_that_it_has_started(tmp_path):
    for limit in (2, 8, 32):  # on a slow computer the program has not begun after two
        with pytest.raises(MachineError, match=rf"no end after {limit} seconds \(--limit\)"):
            run_to_end([sys.executable, "-c", PARENT], limit, tmp_path)
        if (tmp_path / "child").exists():
            break
    assert is_over(int((tmp_path / "child").read_text()))


def test_a_program_does_not_outlive_a_process_that_is_killed(tmp_path):
    program = """
import sys
from cec_mpi.bench.programs import run_to_end
child = "import os, time; open('child', 'w').write(str(os.getpid())); time.sleep(100)"
run_to_end([sys.executable, "-c", child], 100)
"""
    words = [sys.executable, "-c", program]
    process = subprocess.Popen(words, env=without_launcher(os.environ), cwd=tmp_path)
    child = int(wait_for(tmp_path / "child"))
    process.kill()
    process.wait()
    until = time.monotonic() + 30
    while not is_over(child):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_throwaway_directory_goes_when_a_signal_ends_its_process(tmp_path, number):
    program = f"""
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)  # as a rank has it
from cec_mpi.bench.scratch import scratch
with scratch({str(tmp_path)!r}) as directory:
    (directory / "some").write_text("more")
    open({str(tmp_path / "ready")!r}, "w").write("yes")
    time.sleep(100)
"""
    process = subprocess.Popen([sys.executable, "-c", program], env=without_launcher(os.environ))
    wait_for(tmp_path / "ready")
    process.send_signal(number)
    assert process.wait(30) == -number
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]


def test_a_throwaway_directory_goes_and_signals_are_as_before(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with suppress(KeyError), scratch(str(tmp_path)) as directory:
        (directory / "some").write_text("more")
        raise KeyError
    assert not list(tmp_path.iterdir())
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before
    with pytest.raises(InputError, match="is not a directory"), scratch(tmp_path / "none"):
        pass


def test_a_matrix_for_which_there_is_no_room(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(InputError, match=r"X.npy cannot be written: File too large"):
            random_matrix(tmp_path / "X.npy", 1000, 100, "float64", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_random_matrix(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr("cec_mpi.bench.scratch._PIECE", 1000)
    random_matrix(tmp_path / "X.npy", 50, 7, dtype, 3)
    X = np.load(tmp_path / "X.npy")
    assert (X.shape, X.dtype) == ((50, 7), dtype)
    np.testing.assert_array_equal(X, np.random.default_rng(3).random((50, 7)).astype(dtype))


def test_a_random_store(tmp_path):
    store = random_store(tmp_path, 60, 5, 4, 2, "float32", seed=3)
    manifest = open_store(store).manifest
    assert (manifest.rows, manifest.columns, manifest.dtype) == (60, 5, "float32")
    assert (manifest.code.machines, manifest.code.recovery) == (4, 2)
    assert store.parent == Path(tmp_path)
