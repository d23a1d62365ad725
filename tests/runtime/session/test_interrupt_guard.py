"""Ctrl-C in a product: it raises, and the machines continue with the next product."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import cec_mpi
from helpers.processes import find_local_machines
from helpers.products import check_products

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("no_launcher", "default_interrupts"),
]


@pytest.fixture
def default_interrupts():
    """Ctrl-C raises KeyboardInterrupt."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def press_ctrl_c(seconds=0.3):
    """Press Ctrl-C in the main thread after this time."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


PRODUCTS = (
    lambda X: X @ np.ones(12),
    lambda X: X.H @ np.ones(31),
    lambda X: X @ np.ones((12, 5)),
    lambda X: X @ (1j * np.ones(12)),
)


def test_ctrl_c_in_a_product_raises_and_the_next_product_is_correct(small_store):
    with cec_mpi.open_operator(small_store.path, local=3, check=True) as X:
        check_products(X, small_store.X)
        pids = X.pids
        for product in PRODUCTS:
            machines = find_local_machines()
            for machine in machines:
                machine.suspend()
            press_ctrl_c()
            with pytest.raises(KeyboardInterrupt):
                product(X)
            for machine in machines:
                machine.resume()
            check_products(X, small_store.X)
        for pid in pids.values():
            os.kill(pid, signal.SIGINT)  # machines ignore it
        check_products(X, small_store.X)
        assert X.pids == pids


def test_ctrl_c_raises_during_a_wait_or_a_callback(small_store):
    ticks = []

    def wait(tick):
        ticks.append(tick)
        if len(ticks) == 3:
            press_ctrl_c(0)
        return {1}

    def hang(tick):
        press_ctrl_c(0.1)
        press_ctrl_c(1.6)  # a second Ctrl-C is not delayed
        time.sleep(1e6)

    options = {"wait": True, "tick_seconds": 0.1}
    for available in (wait, hang):
        with cec_mpi.open_operator(
            small_store.path, local=3, availability=available, **options
        ) as X:
            with pytest.raises(KeyboardInterrupt):
                X @ np.ones(12)
            X.available = {1, 2}
            check_products(X, small_store.X)


def test_ctrl_c_raises_while_machines_are_awaited(small_store, tmp_path, start):
    file = tmp_path / "run.json"
    X = cec_mpi.open_operator(small_store.path, accept=str(file))
    press_ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        X @ np.ones(12)
    machines = [start(["cec-mpi", "join", file, "--retry", "60"]) for _ in range(2)]
    check_products(X, small_store.X)
    X.close()
    for machine in machines:
        machine.terminate()  # it waits for another run
        machine.wait(60)


def test_handlers_of_the_program_are_not_replaced(small_store):
    received = []
    with cec_mpi.open_operator(small_store.path, local=3) as X:
        check_products(X, small_store.X)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, lambda *_: received.append("program"))
        machine = find_local_machines()[0]
        machine.suspend()
        timers = [press_ctrl_c(), threading.Timer(0.6, machine.resume)]
        timers[1].start()
        check_products(X, small_store.X)
        for timer in timers:
            timer.join()
    assert received == ["program"]
