"""When the machines of an operator start and leave, in programs and notebooks."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

import cec_mpi
from cec_mpi.errors import InputError
from helpers.products import check_products
from helpers.ranks import machines_here

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("no_launcher")]

SECONDS = 60  # that machines may take to leave


def all_leave(machines):
    return psutil.wait_procs(machines, SECONDS)[1] == []


def test_machines_start_with_the_first_product(small_store):
    X = cec_mpi.open_operator(small_store.path, local=3)
    assert X.shape == small_store.X.shape
    assert "not started" in repr(X)
    assert machines_here() == []
    check_products(X, small_store.X)
    machines = machines_here()
    assert len(machines) == 3
    X.close()
    assert all_leave(machines)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_machines_leave_with_the_operator_also_if_they_are_stopped(small_store, is_deleted):
    X = cec_mpi.open_operator(small_store.path, local=2).start()
    machines = machines_here()
    machines[0].suspend()
    if is_deleted:
        del X
        gc.collect()
    else:
        X.close()
    assert all_leave(machines)


def test_a_cell_of_a_notebook_that_runs_again_replaces_its_machines(small_store):
    machines = []
    for _ in range(2):
        X = cec_mpi.open_operator(small_store.path, local=2)
        check_products(X, small_store.X, 1)
        machines += [each for each in machines_here() if each not in machines]
    X.close()
    assert len(machines) == 4
    assert all_leave(machines)


def test_an_operator_with_a_connection_file_listens_at_once(small_store, tmp_path, start):
    file = tmp_path / "run.json"
    X = cec_mpi.open_operator(small_store.path, accept=str(file))
    assert file.exists()
    joined = [start(["cec-mpi", "join", file]) for _ in range(2)]
    check_products(X, small_store.X, 1)
    X.close()
    assert not file.exists()
    assert [each.wait(SECONDS) for each in joined] == [0, 0]


NEVER_CLOSED = """
import numpy as np
import cec_mpi
X = cec_mpi.open_operator({store!r}, accept={file!r})
print(X @ np.ones(12))
"""


def test_machines_leave_a_program_that_never_closes_its_operator(small_store, tmp_path, start):
    file = str(tmp_path / "run.json")
    program = NEVER_CLOSED.format(store=str(small_store.path), file=file)
    master = start([sys.executable, "-c", program])
    joined = [start(["cec-mpi", "join", file, "--retry", "60s"]) for _ in range(2)]
    assert [process.wait(SECONDS) for process in joined] == [0, 0]
    assert "Exception" not in master.communicate(timeout=SECONDS)[1]
    assert master.returncode == 0


def test_closing_ends_the_wait_for_machines_of_another_thread(small_store, tmp_path):
    X = cec_mpi.open_operator(small_store.path, accept=str(tmp_path / "run.json"))
    errors = []

    def multiply():
        try:
            X @ np.ones(12)
        except InputError as error:
            errors.append(str(error))

    waiting = threading.Thread(target=multiply)
    waiting.start()
    X.close()
    waiting.join(SECONDS)
    assert errors
    assert "closed" in errors[0]


def resources():
    """File descriptors, threads, and mapped shards of this process."""
    gc.collect()
    process = psutil.Process()
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "shard-" in line]
    return process.num_fds(), process.num_threads(), mapped


@pytest.mark.parametrize(
    ("options", "rounds"),
    [({"accept": "run.json", "local": 2}, 4), ({}, 10)],
    ids=str,
)
def test_closed_operators_keep_nothing_open(small_store, tmp_path, monkeypatch, options, rounds):
    monkeypatch.chdir(tmp_path)
    kept, found = [], []
    *_, mapped_before = resources()  # by tracebacks that other tests have left
    for _ in range(rounds):
        X = cec_mpi.open_operator(small_store.path, **options)
        check_products(X, small_store.X, 1)
        X.close()
        kept.append(X)
        found.append(resources())
    more_files, more_threads = (found[-1][k] - found[1][k] for k in (0, 1))
    assert more_files < rounds - 2  # less than one for each operator: libraries keep some
    assert more_threads < rounds - 2
    assert found[-1][2] == mapped_before
    assert machines_here() == []


def test_closed_operators_release_shards_in_memory(make_store):
    store = make_store(np.ones((4000, 250)), 3, 2)  # shards of 4 MB
    memory = psutil.Process().memory_info
    kept, before = [], 0
    for number in range(15):
        X = cec_mpi.open_operator(store.path, shards="ram")
        check_products(X, store.X, 1)
        X.close()
        kept.append(X)
        before = before if number else memory().rss
    assert memory().rss - before < 80e6  # of 168 MB


PROGRAM = """
import os, signal, sys, threading
import numpy as np
import cec_mpi
X = cec_mpi.open_operator({store!r}, {options})
{body}
print("end of program", flush=True)
"""

BODIES = {
    "used": ("X @ np.ones(12)", 0),
    "not used": ("", 0),
    "kept elsewhere": ("sys.kept = [X, X @ np.ones(12)]; sys.kept.append(sys.kept)", 0),
    "exception": ("X @ np.ones(12); 1 / 0", 1),
    "interrupt in a product": (
        "X @ np.ones(12); os.kill(X.pids[1], signal.SIGSTOP); os.kill(X.pids[2], signal.SIGSTOP); "
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start(); X @ np.ones(12)",
        -signal.SIGINT,
    ),
    "with": ("with X: X @ np.ones(12); sys.exit(4)", 4),
    "thread": (
        "X @ np.ones(12); threading.Thread(target=lambda: X @ np.ones(12), daemon=True).start()",
        0,
    ),
    "machine killed": ("X @ np.ones(12); [os.kill(p, 9) for p in X.pids.values()]", 0),
    "machine stopped": ("X @ np.ones(12); os.kill(X.pids[1], signal.SIGSTOP)", 0),
}


LOCAL, ACCEPT, HERE = "local=2", "local=2, accept='run.json'", ""
CASES = [(case, LOCAL) for case in BODIES if case != "not used"]
CASES += [(case, ACCEPT) for case in ("not used", "exception")]
CASES += [(case, HERE) for case in ("exception", "thread")]


@pytest.mark.parametrize(("case", "options"), CASES)
def test_a_program_that_closes_nothing_ends_and_leaves_nothing_behind(
    small_store, tmp_path, run, case, options
):
    body, code = BODIES[case]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = tmp_path / "program.py"
    text = PROGRAM.format(store=str(small_store.path), body=body, options=options)
    program.write_text(text)
    done = run(
        [sys.executable, "-W", "ignore", str(program)],
        cwd=tmp_path,
        variables={"TMPDIR": str(scratch)},
    )
    assert done.returncode == code, done.stderr
    assert ("end of program" in done.stdout) == (code == 0)
    if case != "thread":  # whose product may be cut off
        assert done.stderr.count("Traceback") == (code in (1, -signal.SIGINT))
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("options", [{}, {"local": 2}])
def test_a_function_for_availability_is_called_once_for_each_tick(small_store, options):
    ticks = []

    def available(tick):
        ticks.append(tick)
        return {1, 2} if tick > 2 else {1}

    more = {"availability": available, "tick_seconds": 0.2, "wait": True}
    with cec_mpi.open_operator(small_store.path, **options, **more) as X:
        for _ in range(3):
            check_products(X, small_store.X, 1)
            assert X.available == (1, 2)
    assert max(ticks) > 2
    assert len(ticks) == len(set(ticks))


def test_a_step_that_failed_asks_the_function_for_availability_again(small_store):
    up = {1}
    X = cec_mpi.open_operator(small_store.path, availability=lambda tick: up)
    with pytest.raises(cec_mpi.errors.InfeasibleError):
        X @ np.ones(12)
    up.add(3)
    check_products(X, small_store.X, 1)
