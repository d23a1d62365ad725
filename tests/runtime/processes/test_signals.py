"""Signals that warn are noted for as long as somebody looks at the note."""

import signal
import threading
import time

import pytest

from cec_mpi.runtime.processes.ending import SignalRecorder

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
