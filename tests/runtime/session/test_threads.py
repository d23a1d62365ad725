"""Threads that use one operator: their products come one after the other, and are right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.locks import FairLock
from helpers.interrupts import interrupted_between
from helpers.waiting import LIMIT

SECONDS = 60  # that a thread may take


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((1201, 60))


@pytest.fixture(scope="module")
def store(X, tmp_path_factory):
    path = tmp_path_factory.mktemp("store")
    np.save(path / "X.npy", X)
    cec_mpi.encode(path / "X.npy", path / "store", 6, 3)
    return path / "store"


@pytest.fixture(scope="module")
def other(X, tmp_path_factory):
    path = tmp_path_factory.mktemp("other")
    np.save(path / "X.npy", X.T)
    cec_mpi.encode(path / "X.npy", path / "store", 4, 2)
    return path / "store"


def wrong(found, expected):
    """How many of these are not what they should be."""
    return sum(
        bool(np.linalg.norm(one - two) > 1e-10 * np.linalg.norm(two))
        for one, two in zip(found, expected, strict=True)
    )


def test_all_kinds_of_products_mix_on_two_operators(store, other, X):
    rng = np.random.default_rng(2)
    recorder = Recorder()
    with (
        cec_mpi.open_operator(store, None, recorder=recorder) as A,
        cec_mpi.open_operator(other, None, recorder=recorder) as B,
        ThreadPoolExecutor(8) as pool,
    ):
        kinds = [
            (lambda v: A @ v, X, ()),
            (lambda v: A.H @ v, X.T, ()),
            (lambda v: A @ v, X, (3,)),
            (lambda v: A.T @ v, X.T, (5,)),
            (lambda v: A @ (v + 1j * v), X + 1j * X, ()),
            (lambda v: B @ v, X.T, ()),
            (lambda v: B.rmatvec(v), X, ()),
            (lambda v: (A.H @ A) @ v, X.T @ X, ()),
        ]
        works = []
        for i in range(160):
            product, matrix, more = kinds[i % len(kinds)]
            works.append((product, matrix, rng.standard_normal((matrix.shape[1], *more))))
        found = list(pool.map(lambda work: work[0](work[2]), works))
    assert wrong(found, [matrix @ v for _, matrix, v in works]) == 0
    assert recorder.summary()["steps"] == 160 + 160 // len(kinds)


# --- whose turn it is -----------------------------------------------------------------------


def until_waiting(number):
    """Wait until so many threads have asked for a turn that others have."""
    due = time.monotonic() + SECONDS
    asking = FairLock.run.__code__
    while sum(frame.f_code is asking for frame in sys._current_frames().values()) < number:
        assert time.monotonic() < due
        time.sleep(0.001)


def test_turns_come_in_the_order_of_requests():
    turns, order, threads = FairLock(), [], []

    def take(number):
        turns.run(lambda: order.append(number))

    def start_all():
        for number in range(20):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            until_waiting(number + 1)
        assert order == []

    turns.run(start_all)
    for thread in threads:
        thread.join(SECONDS)
    assert order == list(range(20))


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, whatever a test before has made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("who", ["first", "middle", "last"])
def test_an_interrupt_takes_back_a_turn_that_was_waited_for(who):
    """Ctrl-C comes to the main thread, which is this one."""
    turns, order = FairLock(), []
    holds, may_end = threading.Event(), threading.Event()

    def hold():
        holds.set()
        may_end.wait(SECONDS)

    def take(number):
        turns.run(lambda: order.append(number))

    def interrupt():
        until_waiting(ahead_of_us + 1)
        if who != "last":
            behind.start()
            until_waiting(ahead_of_us + 2)
        os.kill(os.getpid(), signal.SIGINT)

    behind = threading.Thread(target=take, args=("behind",))
    ahead = threading.Thread(target=take, args=("ahead",))
    holder = threading.Thread(target=turns.run, args=(hold,))
    killer = threading.Thread(target=interrupt)
    holder.start()
    assert holds.wait(SECONDS)
    ahead_of_us = int(who != "first")
    if ahead_of_us:
        ahead.start()
        until_waiting(1)
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        take("never")
    may_end.set()
    for thread in (holder, killer, ahead, behind):
        if thread.ident is not None:
            thread.join(SECONDS)
            assert not thread.is_alive()
    assert order == {"first": ["behind"], "middle": ["ahead", "behind"], "last": ["ahead"]}[who]
    turns.run(lambda: None)  # nothing is left of it


@pytest.mark.parametrize("busy", [False, True])
def test_an_interrupt_at_any_moment_leaves_turns_to_all(busy):
    """Busy: another thread has its turn meanwhile, and a third one comes behind this one."""

    def hold():
        holds.set()
        time.sleep(0.004)

    def follow():
        time.sleep(0.002)
        turns.run(lambda: None)

    place, cut = -1, True
    while cut:
        place += 1
        turns, holds = FairLock(), threading.Event()
        threads = []
        if busy:
            threads = [threading.Thread(target=each) for each in (lambda: turns.run(hold), follow)]  # noqa: B023
            for thread in threads:
                thread.daemon = True
                thread.start()
            assert holds.wait(SECONDS)
        cut = interrupted_between(place, FairLock, lambda: turns.run(lambda: None))  # noqa: B023
        turns.run(lambda: None)
        threads.append(threading.Thread(target=turns.run, args=(lambda: None,), daemon=True))
        threads[-1].start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), f"interrupted at {place}"
    assert place > 10


class Gate:
    """An availability at which steps of other threads wait until it is open."""

    def __init__(self):
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, tick):
        if threading.current_thread() is not threading.main_thread():
            self.reached.set()
            self.open.wait(SECONDS)
        return range(1, 7)


@pytest.fixture
def gate():
    return Gate()


@contextmanager
def signal_while_one_waits(number):
    def send():
        until_waiting(1)
        os.kill(os.getpid(), number)

    killer = threading.Thread(target=send)
    killer.start()
    yield
    killer.join(SECONDS)


@pytest.mark.usefixtures("interruptible")
def test_a_product_that_was_interrupted_while_it_waited_made_no_step(store, X, gate):
    recorder = Recorder()
    with (
        cec_mpi.open_operator(store, None, availability=gate, recorder=recorder) as A,
        ThreadPoolExecutor(1) as pool,
    ):
        found = pool.submit(lambda: A @ np.ones(60))
        assert gate.reached.wait(SECONDS)
        with signal_while_one_waits(signal.SIGINT), pytest.raises(KeyboardInterrupt):
            A @ np.ones(60)
        gate.open.set()
        assert wrong([found.result(SECONDS), A @ np.ones(60)], [X.sum(axis=1)] * 2) == 0
    assert recorder.steps == 2


# --- callers that would wait for ever, or spoil what others do --------------------------------


def test_a_function_for_availability_cannot_make_a_product(store, X):
    def available(tick):
        if tick == 1:
            A @ np.ones(60)
        return range(1, 7)

    with cec_mpi.open_operator(store, None, availability=available) as A:
        A @ np.ones(60)
        with pytest.raises(InputError, match="in the middle of a step"):
            A @ np.ones(60)
        A.available = {1, 2, 3}
        assert wrong([A @ np.ones(60)], [X.sum(axis=1)]) == 0


def test_a_recorder_cannot_use_the_operator_but_may_set_available(store, X):
    def watch(record):
        A.available = {1, 2, 3} if len(A.available) == 6 else None
        if record.step == 2:
            A.H @ np.ones(1201)

    with cec_mpi.open_operator(store, None, recorder=Recorder(watch)) as A:
        A @ np.ones(60)
        A @ np.ones(60)
        with pytest.raises(InputError, match="in the middle of a step"):
            A @ np.ones(60)
        assert wrong([A @ np.ones(60)], [X.sum(axis=1)]) == 0


def test_a_handler_of_signals_cannot_make_a_product_while_its_thread_waits(store, gate):
    """It would wait for the turn that comes after the one that it interrupts."""
    message = []

    def handler(number, frame):
        try:
            A @ np.ones(60)
        except InputError as error:
            message.append(str(error))
        gate.open.set()

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        with (
            cec_mpi.open_operator(store, None, availability=gate) as A,
            ThreadPoolExecutor(1) as pool,
        ):
            pool.submit(lambda: A @ np.ones(60))
            assert gate.reached.wait(SECONDS)
            with signal_while_one_waits(signal.SIGUSR2):
                A @ np.ones(60)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert len(message) == 1
    assert "in the middle of a step" in message[0]


def test_products_that_wait_when_the_operator_closes_are_refused(store, X, gate):
    def go_on_when_the_end_waits_too():
        until_waiting(4)
        gate.open.set()

    with ThreadPoolExecutor(5) as pool:
        with cec_mpi.open_operator(store, None, availability=gate) as A:
            found = [pool.submit(lambda: A @ np.ones(60))]
            assert gate.reached.wait(SECONDS)
            found += [pool.submit(lambda: A @ np.ones(60)) for _ in range(3)]
            until_waiting(3)
            pool.submit(go_on_when_the_end_waits_too)
        ended = [future.exception(SECONDS) for future in found]
    assert ended[0] is None  # its step had begun
    assert wrong([found[0].result()], [X.sum(axis=1)]) == 0
    for error in ended[1:]:
        assert isinstance(error, InputError)
        assert "closed" in str(error)


def test_the_end_of_the_operator_ends_a_thread_that_waits_for_machines(store):
    looked = threading.Semaphore(0)

    def available(tick):
        looked.release()
        return {1}

    options = {"availability": available, "wait": True, "tick_seconds": 0.05}
    with ThreadPoolExecutor(1) as pool:
        with cec_mpi.open_operator(store, None, **options) as A:
            found = pool.submit(lambda: A @ np.ones(60))
            for _ in range(3):
                assert looked.acquire(timeout=SECONDS)
            assert not found.done()
        with pytest.raises(InputError, match="closed"):
            found.result(SECONDS)


def in_a_child(work):
    """What a forked process says."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        try:
            text = work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(into, text.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


def test_a_forked_process_is_refused_and_its_parent_goes_on(store, X):
    with cec_mpi.open_operator(store, None) as A:
        A @ np.ones(60)
        for work in (
            lambda: str(A @ np.ones(60)),
            lambda: str(A.H @ np.ones((1201, 2))),
            lambda: str(A @ (1j * np.ones(60))),
        ):
            message = in_a_child(work)
            assert message.startswith("InputError: process ")
            assert f"forked from process {os.getpid()}" in message
        assert wrong([A @ np.ones(60)], [X.sum(axis=1)]) == 0


def test_a_forked_process_opens_an_operator_of_its_own(store, X):
    def own():
        with cec_mpi.open_operator(store, None) as mine:
            return str(wrong([mine @ np.ones(60)], [X.sum(axis=1)]))

    with cec_mpi.open_operator(store, None) as A:
        A @ np.ones(60)
        assert in_a_child(own) == "0"


LEAVES = """
import multiprocessing, os, sys
import numpy as np
import cec_mpi

def fails():
    raise KeyError("mine")

ways = (lambda: sys.exit(0), lambda: sys.exit(3), lambda: os._exit(4), fails, lambda: None)
parent, store, w = os.getpid(), sys.argv[1], np.ones(60)
started = cec_mpi.open_operator(store, None).start()
with cec_mpi.open_operator(store, None) as A, cec_mpi.open_operator(store, None) as B:
    first = A @ w
    for leave in ways:
        process = os.fork()
        if not process:
            leave()
            break
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        print(code, all(np.allclose(X @ w, first) for X in (started, A, B)), flush=True)
    else:
        process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(6,))
        process.start()
        process.join()
        print(process.exitcode, np.allclose(A @ w, first))
if os.getpid() == parent:
    started.close()
    print("closed")
"""


def test_a_forked_process_leaves_as_any_other(store):
    """However it leaves the block: it says nothing of its own, and its parent goes on."""
    command = [sys.executable, "-c", LEAVES, store]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == "0 True\n3 True\n4 True\n1 True\n0 True\n6 True\nclosed\n"
    assert "KeyError: 'mine'" in done.stderr
    assert (done.stderr.count("Traceback"), done.stderr.count("ignored")) == (1, 0)
