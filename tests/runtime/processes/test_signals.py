"""Signals that warn are noted for as long as somebody looks at the note."""

import os
import signal
import threading
import time

import pytest

from cec_mpi.runtime.processes.ending import SignalRecorder
from helpers.waiting import LIMIT

WARNINGS = (signal.SIGTERM, signal.SIGUSR1)


@pytest.fixture
def earlier():
    """Signals that came to the handlers that were there before."""
    came = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in WARNINGS}
    yield came
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", WARNINGS)
def test_a_signal_is_noted_in_place_of_what_it_did_before(earlier, number):
    with SignalRecorder() as signals:
        assert signals.received is None
        signal.raise_signal(number)
        assert signals.received is number
    assert earlier == []
    signal.raise_signal(number)
    assert earlier == [number]


def test_the_first_of_several_is_named(earlier):
    with SignalRecorder() as signals:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
            signal.raise_signal(number)
        assert signals.received is signal.SIGUSR1
    assert earlier == []


def test_a_second_sigterm_does_what_it_did_before(earlier):
    with SignalRecorder(exit_on_second=True) as signals:
        for number in (signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM):
            signal.raise_signal(number)
        assert earlier == []
        assert not signals.must_end
        signal.raise_signal(signal.SIGTERM)
        assert earlier == [signal.SIGTERM]
        assert signals.must_end
        assert signals.received is signal.SIGUSR1
    signal.raise_signal(signal.SIGUSR1)
    assert earlier == [signal.SIGTERM, signal.SIGUSR1]


def test_handlers_come_back_after_an_exception(earlier):
    with pytest.raises(ArithmeticError), SignalRecorder():
        raise ArithmeticError
    signal.raise_signal(signal.SIGUSR1)
    assert earlier == [signal.SIGUSR1]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_process_that_is_being_forked_can_be_ended():
    with SignalRecorder():
        for _ in range(200):
            child = os.fork()
            if not child:
                time.sleep(LIMIT)
                os._exit(0)
            os.kill(child, signal.SIGTERM)  # most often before the child has begun
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_has_the_handlers_from_before():
    """A handler of Python would not be called while the process waits for a lock."""
    before = [signal.getsignal(number) for number in (*WARNINGS, signal.SIGINT)]
    with SignalRecorder(), SignalRecorder(ignore_interrupts=True) as signals:
        child = os.fork()
        if not child:
            after = [signal.getsignal(number) for number in (*WARNINGS, signal.SIGINT)]
            os._exit(after != before)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        signal.raise_signal(signal.SIGUSR1)
        assert signals.received is signal.SIGUSR1


def test_who_sleeps_sleeps_on():
    with SignalRecorder() as signals:
        main = threading.get_ident()
        alarm = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR1))
        alarm.start()
        begin = time.monotonic()
        time.sleep(0.2)
        assert time.monotonic() - begin >= 0.2
        alarm.join()
        assert signals.received is signal.SIGUSR1


def test_a_terminal_that_is_gone_is_noted_where_that_is_not_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalRecorder(include_hangup=True) as signals:
            signal.raise_signal(signal.SIGHUP)
            assert signals.received is None
        signal.signal(signal.SIGHUP, signal.default_int_handler)
        with SignalRecorder(include_hangup=True) as signals:
            signal.raise_signal(signal.SIGHUP)
            assert signals.received is signal.SIGHUP
        assert signal.getsignal(signal.SIGHUP) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGHUP, before)
