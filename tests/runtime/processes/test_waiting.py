"""Waiting: awake for what comes soon, asleep for what does not, and on time."""

from __future__ import annotations

import os
import time
from itertools import count

import pytest

from cec_mpi.runtime.processes.waiting import MAX_SLEEP_SECONDS, PollTimer, WaitHistory, wait_for


class Clock:
    """Goes on while somebody sleeps, gives the core away, or is said to have worked."""

    tests = count(1)

    def __init__(self):
        # What other tests have learned, by any clock, is long ago.
        self.now = time.monotonic() + 1000.0 * next(Clock.tests)
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept.append(seconds)

    def work(self, seconds=1e-6):
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("cec_mpi.runtime.processes.waiting.time", clock)
    monkeypatch.setattr(os, "sched_yield", clock.work)
    return clock


class Due:
    """A request that is complete after some time, and whose test takes some."""

    def __init__(self, clock, seconds, takes=1e-6):
        self._clock, self._due, self._takes = clock, clock.now + seconds, takes

    def Test(self):
        self._clock.work(self._takes)
        return self._clock.now >= self._due


def test_after_a_long_wait_the_next_one_sleeps_and_after_a_short_one_it_does_not(clock):
    history = WaitHistory()
    awake = history.spin
    assert wait_for([Due(clock, 0), Due(clock, 0.02)], history=history)
    assert 0.02 <= history.last < 0.021
    assert history.spin < awake / 10
    assert wait_for([Due(clock, awake / 2)], history=history)
    assert history.spin == awake
    clock.slept.clear()
    assert wait_for([Due(clock, awake / 2)], history=history)
    assert clock.slept == []


def test_where_others_keep_the_core_all_waits_sleep_for_a_while(clock):
    history, another = WaitHistory(), WaitHistory()
    awake = another.spin
    assert wait_for([Due(clock, 0, takes=0.002)], history=history)
    assert another.spin < awake / 10
    clock.work(60)
    assert another.spin == awake


def test_where_things_come_one_by_one_the_longest_wait_is_expected(clock):
    history = WaitHistory()
    timer = PollTimer(history=history)
    clock.work(0.02)
    timer.restart()
    assert timer.elapsed() == 0
    timer.restart()
    assert history.last == 0
    timer.finish()
    assert history.last == pytest.approx(0.02)


def test_pauses_see_others_keep_the_core(clock):
    history = WaitHistory()
    awake = history.spin
    timer = PollTimer(history=history)
    timer.pause()
    clock.work(0.002)
    timer.pause()
    assert history.spin < awake / 10


def test_a_wait_that_is_given_up_leaves_the_rhythm(clock):
    history = WaitHistory()
    assert not wait_for([Due(clock, 60)], seconds=0.01, history=history)
    assert history.last == 0


def test_a_long_wait_is_slept_through_and_ends_on_time(clock):
    begin = clock.now
    wait_for([Due(clock, 0.3)])
    assert sum(clock.slept) > 0.95 * 0.3
    assert clock.now - begin < 0.3 + MAX_SLEEP_SECONDS + 1e-5


@pytest.mark.parametrize("longest", [MAX_SLEEP_SECONDS, 5e-3])
def test_sleeps_grow_to_the_longest(clock, longest):
    timer = PollTimer(max_sleep=longest)
    for _ in range(600):
        timer.pause()
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[0] < longest / 10
    assert clock.slept[-1] == longest
