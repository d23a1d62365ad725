"""Ctrl-C in a product of machines that are processes: the machines go on with the next product."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import cec_mpi
from helpers.products import check_products
from helpers.ranks import machines_here

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("no_launcher", "raising_interrupts"),
]


@pytest.fixture
def raising_interrupts():
    """Ctrl-C raises KeyboardInterrupt, whatever an earlier test has set."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press(seconds=0.3):
    """Press Ctrl-C in the main thread after this time."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def interrupt(multiply, X):
    press()
    multiply(X)


def stopped(machines):
    for machine in machines:
        machine.suspend()
    return machines


PRODUCTS = (
    lambda X: X @ np.ones(12),
    lambda X: X.H @ np.ones(31),
    lambda X: X @ np.ones((12, 5)),
    lambda X: X @ (1j * np.ones(12)),
)
OPTIONS = [{}, {"stragglers": 1}, {"check": True}, {"deadline": "x100"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_ctrl_c_in_a_product_raises_and_the_next_product_is_right(small_store, options):
    """The machines do not answer until the product has been interrupted."""
    with cec_mpi.open_operator(small_store.path, local=3, **options) as X:
        check_products(X, small_store.X)
        pids = X.pids
        for multiply in PRODUCTS:
            machines = stopped(machines_here())
            with pytest.raises(KeyboardInterrupt):
                interrupt(multiply, X)
            for machine in machines:
                machine.resume()
            check_products(X, small_store.X)
        assert X.pids == pids


def test_ctrl_c_raises_while_a_product_waits_for_machines(small_store):
    ticks = []

    def available(tick):
        ticks.append(tick)
        if len(ticks) == 3:
            press(0)
        return {1}

    options = {"availability": available, "wait": True, "tick_seconds": 0.1}
    with cec_mpi.open_operator(small_store.path, local=3, **options) as X:
        with pytest.raises(KeyboardInterrupt):
            X @ np.ones(12)
        X.available = {1, 2}
        check_products(X, small_store.X)


def test_ctrl_c_while_machines_are_awaited_raises_and_the_next_product_waits_again(
    small_store, tmp_path, start
):
    file = tmp_path / "run.json"
    X = cec_mpi.open_operator(small_store.path, accept=str(file))
    press()
    with pytest.raises(KeyboardInterrupt):
        X @ np.ones(12)
    joined = [start(["cec-mpi", "join", file, "--retry", "60"]) for _ in range(2)]
    check_products(X, small_store.X)
    X.close()
    for each in joined:
        each.terminate()  # waits for another run
        each.wait(60)


def test_machines_ignore_ctrl_c(small_store):
    with cec_mpi.open_operator(small_store.path, local=3) as X:
        check_products(X, small_store.X)
        pids = X.pids
        for pid in pids.values():
            os.kill(pid, signal.SIGINT)
        check_products(X, small_store.X)
        assert X.pids == pids


def test_a_second_ctrl_c_cuts_off_a_step_that_does_not_end(small_store):
    """A function for availability that hangs, for example."""

    def available(tick):
        press(0.1)
        press(1.6)
        time.sleep(60)
        return {1, 2, 3}

    with cec_mpi.open_operator(small_store.path, local=3, availability=available) as X:
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            X @ np.ones(12)
        assert time.monotonic() - begin < 50
        X.available = {1, 2, 3}
        check_products(X, small_store.X)


def test_a_handler_of_the_program_stays(small_store):
    received = []
    with cec_mpi.open_operator(small_store.path, local=3) as X:
        X.start()
        signal.signal(signal.SIGINT, lambda *_: received.append("own"))
        machines = stopped(machines_here()[:1])
        timers = [press(), threading.Timer(0.6, machines[0].resume)]
        timers[1].start()
        check_products(X, small_store.X)
        for timer in timers:
            timer.join()
    assert received == ["own"]


def test_after_a_product_ctrl_c_raises_as_in_any_program(small_store):
    with cec_mpi.open_operator(small_store.path, local=2) as X:
        check_products(X, small_store.X)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        check_products(X, small_store.X)
