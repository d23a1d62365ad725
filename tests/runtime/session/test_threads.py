"""Threads and forked processes that use one operator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.locks import FairLock
from helpers.interrupts import interrupt_between_calls
from helpers.waiting import LIMIT

SECONDS = 60  # time limit of a thread
X = np.random.default_rng(0).standard_normal((1201, 60))
ONES, SUM = np.ones(60), X.sum(axis=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "X"
    cec_mpi.encode(X, path, 6, 3)
    return path


def test_products_of_several_threads_and_operators_are_right(store, tmp_path):
    cec_mpi.encode(X.T, tmp_path / "XT", 4, 2)
    rng, recorder = np.random.default_rng(2), Recorder()
    with (
        cec_mpi.open_operator(store, None, recorder=recorder) as A,
        cec_mpi.open_operator(tmp_path / "XT", None, recorder=recorder) as B,
        ThreadPoolExecutor(8) as pool,
    ):
        products = [
            (lambda v: A @ v, X, ()),
            (lambda v: A.H @ v, X.T, ()),
            (lambda v: A @ v, X, (3,)),
            (lambda v: A.T @ v, X.T, (5,)),
            (lambda v: A @ (v + 1j * v), X + 1j * X, ()),
            (lambda v: B @ v, X.T, ()),
            (lambda v: B.rmatvec(v), X, ()),
            (lambda v: (A.H @ A) @ v, X.T @ X, ()),
        ] * 12
        vectors = [rng.standard_normal((M.shape[1], *shape)) for _, M, shape in products]
        results = pool.map(lambda product, v: product[0](v), products, vectors)
        for result, (_, M, _), v in zip(results, products, vectors, strict=True):
            np.testing.assert_allclose(result, M @ v, atol=1e-8)
    assert recorder.summary()["steps"] == 96 + 12


# --- the lock -------------------------------------------------------------------------------


def await_threads(number):
    """Wait until this many threads wait in `FairLock.run`."""
    due = time.monotonic() + SECONDS
    code = FairLock.run.__code__
    while sum(frame.f_code is code for frame in sys._current_frames().values()) < number:
        assert time.monotonic() < due
        time.sleep(0.001)


def test_threads_acquire_the_lock_in_the_order_of_their_calls():
    lock, order, threads = FairLock(), [], []

    def start_all():
        for number in range(20):
            threads.append(threading.Thread(target=lock.run, args=(order.append, number)))
            threads[-1].start()
            await_threads(number + 1)
        assert order == []

    lock.run(start_all)
    for thread in threads:
        thread.join(SECONDS)
    assert order == list(range(20))


@pytest.mark.parametrize("is_busy", [False, True])
def test_an_interrupt_at_any_moment_leaves_the_lock_usable(is_busy):
    """If busy, another thread holds the lock, and a third one requests it later."""
    order = []

    def hold():
        is_held.set()
        time.sleep(0.004)
        order.append("held")

    def follow():
        is_held.wait(SECONDS)
        time.sleep(0.002)
        lock.run(order.append, "followed")

    place, was_interrupted = -1, True
    while was_interrupted:
        place += 1
        lock, is_held = FairLock(), threading.Event()
        targets = [lambda: lock.run(hold), follow] if is_busy else []  # noqa: B023
        threads = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in threads:
            thread.start()
        assert not is_busy or is_held.wait(SECONDS)
        run = lambda: lock.run(lambda: None)  # noqa: B023, E731
        was_interrupted = interrupt_between_calls(place, FairLock, run)
        run()
        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), f"interrupted at {place}"
    assert order == ["held", "followed"] * (is_busy * (place + 1))
    assert place > 10


def test_a_signal_handler_cannot_acquire_the_lock_for_which_its_thread_waits():
    lock, messages = FairLock(), []
    is_held, may_end = threading.Event(), threading.Event()

    def hold():
        is_held.set()
        may_end.wait(SECONDS)

    def handle(number, frame):
        with pytest.raises(InputError) as error:
            lock.run(print)
        messages.append(str(error.value))
        may_end.set()

    def interrupt():
        await_threads(1)
        os.kill(os.getpid(), signal.SIGUSR2)

    previous = signal.signal(signal.SIGUSR2, handle)
    try:
        with ThreadPoolExecutor(2) as pool:
            pool.submit(lock.run, hold)
            assert is_held.wait(SECONDS)
            pool.submit(interrupt)
            lock.run(lambda: None)
    finally:
        signal.signal(signal.SIGUSR2, previous)
    assert "in the middle of a step" in messages[0]


# --- callbacks and the end of the operator ----------------------------------------------------


class Gate:
    """An availability callback at which steps of other threads wait until the gate is open."""

    def __init__(self):
        self.is_reached, self.is_open = threading.Event(), threading.Event()

    def __call__(self, tick):
        if threading.current_thread() is not threading.main_thread():
            self.is_reached.set()
            self.is_open.wait(SECONDS)
        return range(1, 7)


@pytest.fixture
def gate():
    return Gate()


@pytest.mark.parametrize("callback", ["availability", "recorder"])
def test_callbacks_of_a_step_cannot_compute_products(store, callback):
    def available(tick):
        if tick == 1:
            A @ ONES
        return range(1, 7)

    def watch(record):
        A.available = {1, 2, 3} if len(A.available) == 6 else None  # which is allowed
        if record.step == 1:
            A.H @ np.ones(1201)

    options = {"availability": available, "recorder": Recorder(watch)}
    with cec_mpi.open_operator(store, None, **{callback: options[callback]}) as A:
        A @ ONES
        with pytest.raises(InputError, match="in the middle of a step"):
            A @ ONES
        A.available = {1, 2, 3}
        np.testing.assert_allclose(A @ ONES, SUM)


def test_products_that_wait_for_the_lock_are_refused_when_the_operator_closes(store, gate):
    def open_gate_when_close_waits():
        await_threads(4)
        gate.is_open.set()

    with ThreadPoolExecutor(5) as pool:
        with cec_mpi.open_operator(store, None, availability=gate) as A:
            first = pool.submit(lambda: A @ ONES)
            assert gate.is_reached.wait(SECONDS)
            waiting = [pool.submit(lambda: A @ ONES) for _ in range(3)]
            await_threads(3)
            pool.submit(open_gate_when_close_waits)
        np.testing.assert_allclose(first.result(SECONDS), SUM)
    for future in waiting:
        with pytest.raises(InputError, match="closed"):
            future.result(SECONDS)


def test_a_product_that_waits_for_machines_is_refused_when_the_operator_closes(store):
    queries = threading.Semaphore(0)

    def available(tick):
        queries.release()
        return {1}

    options = {"availability": available, "wait": True, "tick_seconds": 0.05}
    with ThreadPoolExecutor(1) as pool:
        with cec_mpi.open_operator(store, None, **options) as A:
            future = pool.submit(lambda: A @ ONES)
            for _ in range(3):
                assert queries.acquire(timeout=SECONDS)
            assert not future.done()
        with pytest.raises(InputError, match="closed"):
            future.result(SECONDS)


# --- forks ------------------------------------------------------------------------------------


PROGRAM = """
import multiprocessing, os, sys
import numpy as np
import cec_mpi

def fail():
    raise KeyError("mine")

def multiply():
    with cec_mpi.open_operator(store, None) as B:
        assert np.allclose(B @ w, first)

parent, store, w = os.getpid(), sys.argv[1], np.ones(60)
started = cec_mpi.open_operator(store, None).start()
with cec_mpi.open_operator(store, None) as A:
    first = A @ w
    for leave in (lambda: sys.exit(3), fail, multiply):
        process = os.fork()
        if not process:
            for product in (lambda: A @ w, lambda: A @ (1j * w)):
                try:
                    product()
                except cec_mpi.errors.InputError as error:
                    print(f"forked from process {parent}" in str(error), flush=True)
            leave()
            break
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        print(code, all(np.allclose(X @ w, first) for X in (started, A)), flush=True)
    else:
        process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(6,))
        process.start()
        process.join()
        print(process.exitcode, np.allclose(A @ w, first))
if os.getpid() == parent:
    started.close()
    print("closed")
"""


def test_a_forked_process_needs_its_own_operator_and_its_exit_does_not_affect_others(store):
    command = [sys.executable, "-c", PROGRAM, store]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    refusals = "True\nTrue\n"
    codes = [f"{refusals}{code} True\n" for code in (3, 1, 0)]
    assert done.stdout == "".join([*codes, "6 True\nclosed\n"])
    assert "KeyError: 'mine'" in done.stderr
    assert (done.stderr.count("Traceback"), done.stderr.count("ignored")) == (1, 0)
