"""When the machines of an operator start and leave, in programs and notebooks."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

import cec_mpi
from cec_mpi.errors import InputError, MachineError
from cec_mpi.runtime.records.recorder import Recorder
from helpers.processes import find_local_machines
from helpers.products import check_products

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("no_launcher")]

LEAVE_LIMIT = 60  # seconds for machines to leave


def have_all_left(machines):
    return psutil.wait_procs(machines, LEAVE_LIMIT)[1] == []


def test_machines_are_processes_from_the_first_product_until_close(small_store):
    X = cec_mpi.open_operator(small_store.path, local=3)
    assert X.shape == small_store.X.shape
    assert "not started" in repr(X)
    assert find_local_machines() == []
    check_products(X, small_store.X)
    machines = find_local_machines()
    assert {machine.pid for machine in machines} == set(X.pids.values())
    assert X.pids.keys() == {1, 2, 3}
    X.available = {1, 3}
    check_products(X, small_store.X)
    X.close()
    assert have_all_left(machines)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_machines_leave_with_the_operator_even_if_they_are_stopped(small_store, is_deleted):
    X = cec_mpi.open_operator(small_store.path, local=2).start()
    machines = find_local_machines()
    machines[0].suspend()
    if is_deleted:
        del X
        gc.collect()
    else:
        X.close()
    assert have_all_left(machines)


def test_closing_ends_the_wait_for_machines_in_another_thread(small_store, tmp_path):
    file = tmp_path / "run.json"
    X = cec_mpi.open_operator(small_store.path, accept=str(file))
    assert file.exists()  # machines may join before the first product
    errors = []

    def multiply():
        try:
            X @ np.ones(12)
        except InputError as error:
            errors.append(str(error))

    thread = threading.Thread(target=multiply)
    thread.start()
    X.close()
    thread.join(LEAVE_LIMIT)
    assert "closed" in errors[0]
    assert not file.exists()


def test_joined_machines_leave_a_program_that_never_closes_its_operator(
    small_store, tmp_path, start
):
    file = str(tmp_path / "run.json")
    program = (
        "import numpy as np, cec_mpi\n"
        f"X = cec_mpi.open_operator({str(small_store.path)!r}, accept={file!r})\n"
        "print(X @ np.ones(12))"
    )
    master = start([sys.executable, "-c", program])
    machines = [start(["cec-mpi", "join", file, "--retry", "60s"]) for _ in range(2)]
    assert [machine.wait(LEAVE_LIMIT) for machine in machines] == [0, 0]
    assert "Exception" not in master.communicate(timeout=LEAVE_LIMIT)[1]
    assert master.returncode == 0


def test_a_forked_process_cannot_use_the_machines_and_does_not_stop_them(small_store):
    with cec_mpi.open_operator(small_store.path, local=2) as X:
        child = os.fork()
        if not child:
            try:
                with X:
                    X @ np.ones(12)
            except InputError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        check_products(X, small_store.X, 1)


def test_an_operator_does_not_open_without_any_machine(small_store, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    X = cec_mpi.open_operator(small_store.path, local=2)
    with pytest.raises(MachineError, match="all machines of this run have ended"):
        X.start()


@pytest.mark.filterwarnings("error", "ignore:oversubscribed")
def test_a_warning_that_is_raised_does_not_end_the_run(make_store):
    store = make_store(np.arange(240.0).reshape(20, 12), 3, 2)
    shard = store.path / "shard-0002.npy"
    shard.write_bytes(shard.read_bytes()[:-200] + bytes(200))
    records = []
    with cec_mpi.open_operator(store.path, local=3, recorder=Recorder(records.append)) as X:
        with pytest.raises(UserWarning, match=r"shard-0002\.npy: rows .*cec-mpi repair"):
            X @ np.ones(12)
        assert len(records) == 1
        check_products(X, store.X)


# --- resources ----------------------------------------------------------------------------


def resources():
    """Return the numbers of file descriptors and threads, and the mapped shards."""
    gc.collect()
    process = psutil.Process()
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "shard-" in line]
    return process.num_fds(), process.num_threads(), mapped


@pytest.mark.parametrize("options", [{"accept": "run.json", "local": 2}, {}], ids=str)
def test_closed_operators_release_resources(small_store, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    operators, usages, rounds = [], [], 4
    *_, mapped = resources()  # by tracebacks of other tests
    for _ in range(rounds):
        X = cec_mpi.open_operator(small_store.path, **options)
        check_products(X, small_store.X, 1)
        X.close()
        operators.append(X)
        usages.append(resources())
    for k in (0, 1):  # libraries keep a few, but fewer than one per operator
        assert usages[-1][k] - usages[1][k] < rounds - 2
    assert usages[-1][2] == mapped
    assert find_local_machines() == []


PROGRAM = """
import os, signal, sys, threading
import numpy as np
import cec_mpi
X = cec_mpi.open_operator({store!r}, {options})
{body}
print("end of program", flush=True)
"""
MULTIPLY = "X @ np.ones(12); "
BODIES = {
    "in a cycle": (
        f"{MULTIPLY} sys.kept = [X, X @ np.ones(12)]; sys.kept.append(sys.kept)",
        "local=2, accept='run.json'",
        0,
    ),
    "exception": (f"{MULTIPLY} 1 / 0", "local=2", 1),
    "interrupt in a product": (
        f"{MULTIPLY} [os.kill(X.pids[n], signal.SIGSTOP) for n in (1, 2)]; "
        f"threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start(); {MULTIPLY}",
        "local=2",
        -signal.SIGINT,
    ),
    "thread": (
        f"{MULTIPLY} threading.Thread(target=lambda: X @ np.ones(12), daemon=True).start()",
        "local=2",
        0,
    ),
    "machine stopped": (f"{MULTIPLY} os.kill(X.pids[1], signal.SIGSTOP)", "local=2", 0),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_program_without_close_ends_and_leaves_nothing(small_store, tmp_path, run, name):
    body, options, code = BODIES[name]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = PROGRAM.format(store=str(small_store.path), body=body, options=options)
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = run(command, cwd=tmp_path, variables={"TMPDIR": str(scratch)})
    assert done.returncode == code, done.stderr
    assert ("end of program" in done.stdout) == (code == 0)
    if name != "thread":  # its product may be interrupted
        assert done.stderr.count("Traceback") == (code in (1, -signal.SIGINT))
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "run.json").exists()


# --- availability -------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"local": 2}])
def test_a_function_for_availability_is_called_once_per_tick(small_store, options):
    ticks = []

    def available(tick):
        ticks.append(tick)
        return {1, 2} if tick > 2 else {1}

    options |= {"availability": available, "tick_seconds": 0.2, "wait": True}
    with cec_mpi.open_operator(small_store.path, **options) as X:
        for _ in range(3):
            check_products(X, small_store.X, 1)
            assert X.available == (1, 2)
    assert max(ticks) > 2
    assert len(ticks) == len(set(ticks))


def test_a_failed_step_calls_the_function_for_availability_again(small_store):
    machines = {1}
    X = cec_mpi.open_operator(small_store.path, availability=lambda tick: machines)
    with pytest.raises(cec_mpi.errors.InfeasibleError):
        X @ np.ones(12)
    machines.add(3)
    check_products(X, small_store.X, 1)
