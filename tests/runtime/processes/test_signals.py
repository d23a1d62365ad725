"""Shutdown signals are recorded as long as a recorder is active."""

import os
import signal
import time
from contextlib import suppress

import pytest

from cec_mpi.runtime.processes.ending import SignalRecorder, exit_on_signal
from helpers.waiting import LIMIT

SHUTDOWN = (signal.SIGTERM, signal.SIGUSR1)


@pytest.fixture
def handled():
    """Signals that other handlers have handled, which were set before."""
    numbers = []
    previous = {
        number: signal.signal(number, lambda n, _: numbers.append(n)) for number in SHUTDOWN
    }
    yield numbers
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("numbers", [SHUTDOWN, SHUTDOWN[::-1] * 2])
def test_the_first_signal_is_recorded_instead_of_handled(handled, numbers):
    with suppress(ArithmeticError), SignalRecorder() as signals:
        assert signals.first_signal is None
        for number in numbers:
            signal.raise_signal(number)
        assert signals.first_signal is numbers[0]
        raise ArithmeticError
    assert handled == []
    signal.raise_signal(numbers[0])
    assert handled == [numbers[0]]


def test_a_second_sigterm_is_handled(handled):
    with SignalRecorder(exit_on_second_sigterm=True) as signals:
        for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM):
            signal.raise_signal(number)
        assert handled == []
        assert not signals.must_end
        signal.raise_signal(signal.SIGTERM)
        assert handled == [signal.SIGTERM]
        assert signals.must_end
        assert signals.first_signal is signal.SIGUSR1
    signal.raise_signal(signal.SIGUSR1)
    assert handled == [signal.SIGTERM, signal.SIGUSR1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("handler", [signal.SIG_DFL, exit_on_signal])
def test_a_process_can_be_ended_while_it_is_forked(handler):
    previous = signal.signal(signal.SIGTERM, handler)
    try:
        with SignalRecorder():
            for _ in range(30):
                child = os.fork()
                if not child:
                    time.sleep(LIMIT)
                    os._exit(0)
                os.kill(child, signal.SIGTERM)  # usually before the child has begun
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, previous)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_has_the_previous_handlers():
    """A handler of Python would not be called while the process waits for a lock."""
    numbers = (*SHUTDOWN, signal.SIGINT)
    previous = [signal.getsignal(number) for number in numbers]
    with SignalRecorder(), SignalRecorder(ignore_interrupts=True) as signals:
        child = os.fork()
        if not child:
            os._exit([signal.getsignal(number) for number in numbers] != previous)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        signal.raise_signal(signal.SIGUSR1)
        assert signals.first_signal is signal.SIGUSR1


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_a_hangup_is_recorded_unless_it_is_ignored(handler):
    previous = signal.signal(signal.SIGHUP, handler)
    try:
        with SignalRecorder(include_hangup=True) as signals:
            signal.raise_signal(signal.SIGHUP)
            assert (signals.first_signal is None) == (handler is signal.SIG_IGN)
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, previous)
