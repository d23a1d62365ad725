"""Programs that forget `with` or `if X is not None`, threads and forks under mpirun."""

from __future__ import annotations

import sys

import pytest

PROGRAM = """
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import mpi4py
{before}
from mpi4py import MPI

import cec_mpi

comm, store = MPI.COMM_WORLD, sys.argv[1]
w = np.ones(12)
{program}
print("after", flush=True)
"""


@pytest.fixture
def program(run, small_store, tmp_path):
    def program(text, before="", words=()):
        (tmp_path / "program.py").write_text(PROGRAM.format(program=text, before=before))
        command = ["mpirun", *words, "-n", 4, sys.executable, tmp_path / "program.py"]
        return run([*command, small_store.path])

    return program


BLOCK = """
with cec_mpi.open_operator(store, comm{options}) as X:
    {body}
"""
ULFM = ("--with-ft", "ulfm")


LATER, OTHERS = "if comm.rank == 1: time.sleep(1)\n    X @ w", "if comm.rank != 1: X.H"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("X @ w", ()),
        (LATER, ()),
        (OTHERS, ()),
        pytest.param("X @ w", ULFM, marks=pytest.mark.needs("ulfm")),
    ],
    ids=["at once", "one later", "not the first", "ulfm"],
)
def test_a_forgotten_condition_is_told_once_and_ends_all(program, body, words):
    done = program(BLOCK.format(options="", body=body), words=words)
    assert done.returncode == 1
    assert done.stderr.count("cec_mpi.errors.InputError") == 1
    assert "is a machine, on which X is None" in done.stderr
    assert "below `if X is not None:`" in done.stderr


def test_a_forgotten_condition_ends_rank_0_that_waits_behind_its_block(program):
    done = program(BLOCK.format(options=", stragglers=1", body="X @ w") + "comm.Barrier()")
    assert done.returncode == 1
    assert done.stderr.count("cec_mpi.errors.InputError") == 1
    assert "after" not in done.stdout


def test_what_a_machine_does_itself_in_the_block_is_its_own(program):
    body = """
    try:
        with cec_mpi.open_operator(store, comm) as X:
            if X is None and comm.rank == 2:
                np.ones((2, 3)) @ w
    except ValueError as error:
        print(type(error).__name__, flush=True)
    comm.Barrier()
    """
    done = program("if True:" + body)
    assert (done.returncode, done.told) == (0, "")
    assert done.stdout.count("ValueError") == 1
    assert done.stdout.count("after") == 4


@pytest.mark.parametrize("body", ["X @ w", "if comm.rank == 2: X.shape"], ids=["all", "one"])
def test_a_forgotten_with_is_told_once_and_ends_all(program, body):
    done = program(f"X = cec_mpi.open_operator(store, comm)\n{body}\ncomm.Barrier()")
    assert done.returncode == 1
    assert done.stderr.count("cec_mpi.errors.InputError") == 1
    assert "was used without with: expected `with open_operator(" in done.stderr
    assert "if X is not None:" in done.stderr


STARTED = """
X = cec_mpi.open_operator(store, comm).start()
if X is not None:
    print("shape", (X @ w).shape)
{then}
"""


def test_opened_by_hand_and_closed_twice(program):
    closing = "if X is not None:\n    X.close()\n    X.close()\ncomm.Barrier()"
    done = program(STARTED.format(then=closing) + STARTED.format(then=closing))
    assert (done.returncode, done.told) == (0, "")
    assert done.stdout.count("shape (31,)") == 2
    assert done.stdout.count("after") == 4


def test_opened_by_hand_and_never_closed(program):
    done = program(STARTED.format(then=""))
    assert (done.returncode, done.told) == (0, "")
    assert done.stdout.count("after") == 4


def test_opened_by_hand_and_left_with_an_error(program):
    done = program(STARTED.format(then="    raise KeyError('mine')\ncomm.Barrier()"))
    assert done.returncode == 1
    assert done.told.count("Traceback") == done.told.count("KeyError: 'mine'") == 1
    assert "after" not in done.stdout


def test_closed_within_the_with(program):
    body = """if X is not None:
        X @ w
        X.close()
        comm.Barrier()  # the machines are behind their block
        X.close()
if X is None:
    comm.Barrier()
"""
    done = program(BLOCK.format(options="", body=body))
    assert (done.returncode, done.told) == (0, "")
    assert done.stdout.count("after") == 4


# --- threads and forks ------------------------------------------------------------------------

THREADS = """
with cec_mpi.open_operator(store, comm{options}) as X:
    if X is not None:
        M = np.random.default_rng(1).standard_normal((31, 12))
        W = np.random.default_rng(5).standard_normal((12, 64))
        V = np.random.default_rng(6).standard_normal((31, 64))

        def work(i):
            if i % 5 == 4:
                return np.abs(X.H @ V[:, i % 64] - M.T @ V[:, i % 64]).max()
            if i % 20 == 10:
                with X.open(store) as Y:
                    return np.abs(Y @ W - M @ W).max()
            w = W[:, i % 64] * (1j if i % 7 == 3 else 1)
            return np.abs(X @ w - M @ w).max()

        with ThreadPoolExecutor(4) as pool:
            print("worst", max(pool.map(work, range(200))) < 1e-10, flush=True)
"""


@pytest.mark.parametrize(("options", "level"), [("", "multiple"), (", stragglers=1", "serialized")])
def test_products_from_several_threads_are_right(program, options, level):
    before = f"mpi4py.rc.thread_level = {level!r}"
    done = program(THREADS.format(options=options), before=before)
    assert (done.returncode, done.told) == (0, "")
    assert done.stdout.count("worst True") == 1


def test_a_thread_that_mpi_does_not_allow_is_refused(program):
    body = """if X is not None:
        with ThreadPoolExecutor(1) as pool:
            for call in lambda: X @ w, X.close, cec_mpi.open_operator(store, comm).start:
                print(pool.submit(call).exception(), flush=True)
        print("shape", (X @ w).shape, flush=True)
    """
    before = "mpi4py.rc.thread_level = 'funneled'"
    done = program(BLOCK.format(options="", body=body), before=before)
    assert (done.returncode, done.told) == (0, "")
    assert done.stdout.count("MPI_THREAD_FUNNELED, for its main thread alone") == 3
    assert "shape (31,)" in done.stdout


def test_forked_processes_are_refused_and_do_no_harm(program):
    body = """if X is not None:
        for child in (
            lambda: X @ w,
            lambda: cec_mpi.open_operator(store, comm).start(),
            lambda: sys.exit(5),
        ):
            process = os.fork()
            if not process:
                child()
            print("status", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
            print("shape", (X @ w).shape, flush=True)
    """
    done = program(BLOCK.format(options="", body=body))
    assert done.returncode == 0
    shape = "shape (31,)"
    lines = done.stdout.replace("after", "").split("\n")  # of four ranks at once, at the end
    told = [line for line in lines if line]
    assert told == ["status 1", shape, "status 1", shape, "status 5", shape]
    assert done.stderr.count("Traceback") == done.stderr.count("was forked from ") == 2


def test_a_step_that_was_cut_off_and_caught_is_told_once(program):
    body = """if X is not None:
        import signal
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            X @ w
        except KeyboardInterrupt:
            pass
    """
    slow = ", emulate_speeds=[1] * 3, emulate_base=0.1"
    done = program(BLOCK.format(options=slow, body=body))
    assert done.returncode == 3
    assert done.stderr.count("the step before was cut off half-way") == 1
    assert "NoneType" not in done.stderr
