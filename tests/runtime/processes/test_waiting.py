"""Waits spin if a short wait is expected, sleep otherwise, and end in time."""

from __future__ import annotations

import os
import time
from itertools import count

import pytest

from cec_mpi.runtime.processes.waiting import MAX_SLEEP_SECONDS, PollTimer, WaitHistory, wait_for


class Clock:
    """A clock that advances by sleeps, yields and computations."""

    tests = count(1)

    def __init__(self):
        # Contention that other tests have recorded, with any clock, has passed.
        self.now = time.monotonic() + 1000.0 * next(Clock.tests)
        self.sleeps = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.sleeps.append(seconds)

    def advance(self, seconds=1e-6):
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("cec_mpi.runtime.processes.waiting.time", clock)
    monkeypatch.setattr(os, "sched_yield", clock.advance)
    return clock


class Request:
    """A request that is complete after some time, and whose test takes some time."""

    def __init__(self, clock, seconds, test_seconds=1e-6):
        self._clock, self._due, self._test_seconds = clock, clock.now + seconds, test_seconds

    def Test(self):
        self._clock.advance(self._test_seconds)
        return self._clock.now >= self._due


def test_a_wait_spins_after_a_short_wait_and_sleeps_after_a_long_one(clock):
    history = WaitHistory()
    long_spin = history.spin
    wait_for([Request(clock, 0), Request(clock, 0.02)], history=history)
    assert 0.02 <= history.last_wait < 0.021
    assert history.spin < long_spin / 10
    wait_for([Request(clock, long_spin / 2)], history=history)
    assert history.spin == long_spin
    clock.sleeps.clear()
    wait_for([Request(clock, long_spin / 2)], history=history)
    assert clock.sleeps == []


@pytest.mark.parametrize("by_pause", [False, True])
def test_waits_do_not_spin_for_a_while_after_contention(clock, by_pause):
    history, other_history = WaitHistory(), WaitHistory()
    long_spin = other_history.spin
    if by_pause:
        timer = PollTimer(history=history)
        timer.pause()
        clock.advance(0.002)
        timer.pause()
    else:
        wait_for([Request(clock, 0, test_seconds=0.002)], history=history)
    assert other_history.spin < long_spin / 10
    clock.advance(60)
    assert other_history.spin == long_spin


def test_a_long_wait_sleeps_and_ends_in_time(clock):
    begin = clock.now
    wait_for([Request(clock, 0.3)])
    assert sum(clock.sleeps) > 0.95 * 0.3
    assert clock.now - begin < 0.3 + MAX_SLEEP_SECONDS + 1e-5
