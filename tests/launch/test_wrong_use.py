"""Programs without `with` or `if X is not None`, with threads or interrupts, under mpirun."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from helpers.mpi_at_hand import continuing_mpirun

PROGRAM = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
{mpi}
import cec_mpi
store, w = sys.argv[1], np.ones(12)
{program}
print("after", flush=True)
"""
MPI = """
import mpi4py
{before}
from mpi4py import MPI
comm = MPI.COMM_WORLD
"""


@pytest.fixture(scope="module")
def store(make_store):
    """Two machines, one of which is enough."""
    return make_store(np.random.default_rng(1).standard_normal((31, 12)), 2, 1)


@pytest.fixture
def program(run, store, tmp_path):
    """Return a function that runs a program, by default on a master and two machines."""

    def program(text, before="", launcher=("mpirun", "-n", 3), with_mpi=True):
        mpi = MPI.format(before=before) if with_mpi else ""
        (tmp_path / "program.py").write_text(PROGRAM.format(program=text, mpi=mpi))
        return run([*launcher, sys.executable, "program.py", store.path], cwd=tmp_path)

    return program


def block(body, options=""):
    return f"with cec_mpi.open_operator(store, comm{options}) as X:\n    {body}\n"


def test_a_machine_that_uses_x_ends_all_ranks(program):
    body = "if comm.rank == 1: time.sleep(1)\n    X @ w"
    done = program(block(body) + "comm.Barrier()")
    assert done.returncode == 1
    assert 1 <= done.stderr.count("is a machine, where X is None") <= 2  # two ranks have raised
    assert "under `if X is not None:`" in done.stderr
    assert "after" not in done.stdout


STARTED = """
X = cec_mpi.open_operator(store, comm).start()
if X is not None:
    print("shape", (X @ w).shape)
{then}
"""


def test_an_operator_that_is_started_and_not_closed_ends_with_its_program(program):
    done = program(STARTED.format(then=""))
    assert (done.returncode, done.errors) == (0, "")
    assert done.stdout.count("after") == 3


def test_an_exception_after_start_ends_all_ranks(program):
    done = program(STARTED.format(then="    raise KeyError('mine')\ncomm.Barrier()"))
    assert done.returncode == 1
    assert done.errors.count("Traceback") == done.errors.count("KeyError: 'mine'") == 1
    assert "after" not in done.stdout


# --- threads and interrupts -------------------------------------------------------------------


def test_calls_from_threads_that_mpi_does_not_allow_are_refused(program):
    body = """if X is not None:
        with ThreadPoolExecutor(1) as pool:
            for call in lambda: X @ w, X.close, cec_mpi.open_operator(store, comm).start:
                print(pool.submit(call).exception(), flush=True)
        print("shape", (X @ w).shape, flush=True)
    """
    before = "mpi4py.rc.thread_level = 'funneled'"
    done = program(block(body), before=before)
    assert (done.returncode, done.errors) == (0, "")
    assert done.stdout.count("MPI_THREAD_FUNNELED, so that only its main thread") == 3
    assert "shape (31,)" in done.stdout


def test_ctrl_c_on_rank_0_raises_after_the_step_and_the_next_product_is_right(program):
    body = """if X is not None:
        import signal, threading
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            X @ w
            time.sleep(60)  # if the computer is too busy to interrupt the step
        except KeyboardInterrupt:
            print("interrupted")
        print("shape", (X @ w).shape, flush=True)
    """
    slow = ", emulate_speeds=[1] * 2, emulate_base=15"  # rows per second
    done = program(block(body, slow))
    assert (done.returncode, done.errors) == (0, "")
    assert done.stdout.startswith("interrupted\nshape (31,)\n")


@pytest.mark.any_mpi
def test_an_interrupted_step_whose_exception_is_caught_gives_one_message(program):
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
    slow = ", emulate_speeds=[1] * 2, emulate_base=0.1"
    done = program(block(body, slow))
    assert done.returncode == 3
    assert done.stderr.count("the previous step was interrupted") == 1
    assert "NoneType" not in done.stderr


# --- elastic: no process has MPI --------------------------------------------------------------

ELASTIC_BLOCK = 'with cec_mpi.open_operator(store, accept="conn") as X:\n    {body}\n'


def test_an_elastic_program_opens_operators_one_after_the_other_under_a_launcher(program, tmp_path):
    """The program may import MPI if it does not initialise it."""
    body = "if X is not None: print('shape', (X @ w).shape, flush=True)"
    done = program(2 * ELASTIC_BLOCK.format(body=body), before="mpi4py.rc.initialize = False")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.count("shape (31,)") == 2
    assert done.stdout.count("after") == 3
    assert not (tmp_path / "conn").exists()


def test_an_elastic_program_that_raises_ends_all_processes(program, tmp_path):
    body = "if X is not None: raise KeyError('mine')"
    launcher = (*continuing_mpirun(), "-n", 3)
    done = program(ELASTIC_BLOCK.format(body=body), launcher=launcher, with_mpi=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("KeyError: 'mine'") == 1
    assert not (tmp_path / "conn").exists()


@pytest.mark.any_mpi
def test_an_elastic_program_in_which_mpi_has_started_is_refused(program, tmp_path):
    text = ELASTIC_BLOCK.format(body="print('opened')")
    done = program(text, launcher=("mpirun", "-n", 2))
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("cec_mpi.errors.InputError") == 1
    assert "`import mpi4py; mpi4py.rc.initialize = False` before" in done.stderr
    assert "opened" not in done.stdout
    assert not (tmp_path / "conn").exists()
