"""Waiting: awake for what comes soon, asleep for what does not, and on time."""

from __future__ import annotations

import threading
import time

import pytest

from cec_mpi.processes.waiting import LONGEST_SLEEP, Patience, Rhythm, wait_for


class Due:
    """A request that is complete at some time."""

    def __init__(self, seconds):
        self._due = time.monotonic() + seconds

    def Test(self):
        return time.monotonic() >= self._due


@pytest.fixture(autouse=True)
def uncrowded(monkeypatch):
    monkeypatch.setattr(Rhythm, "_crowded_until", 0.0)


def test_after_a_long_wait_the_next_one_sleeps_and_after_a_short_one_it_does_not():
    rhythm = Rhythm()
    awake = rhythm.spin
    assert wait_for([Due(0), Due(0.02)], rhythm=rhythm)
    assert rhythm.last >= 0.02
    assert rhythm.spin < awake / 10
    assert wait_for([], rhythm=rhythm)
    assert rhythm.last < 0.02


class Busy(Due):
    """A request whose test takes long: others have the core meanwhile."""

    def Test(self):
        time.sleep(0.002)
        return super().Test()


def test_where_others_keep_the_core_all_waits_sleep_for_a_while(monkeypatch):
    monkeypatch.setattr("cec_mpi.processes.waiting._CROWDED", 60.0)
    rhythm, another = Rhythm(), Rhythm()
    awake = another.spin
    assert wait_for([Busy(0)], rhythm=rhythm)
    assert another.spin < awake / 10
    monkeypatch.setattr(Rhythm, "_crowded_until", 0.0)
    assert another.spin == awake


def test_where_things_come_one_by_one_the_longest_wait_is_expected():
    rhythm = Rhythm()
    patience = Patience(rhythm=rhythm)
    time.sleep(0.02)
    patience.again()
    assert patience.waited() < 0.02
    patience.again()
    assert rhythm.last == 0
    patience.over()
    assert 0.02 <= rhythm.last < 1


def test_pauses_see_others_keep_the_core(monkeypatch):
    monkeypatch.setattr("cec_mpi.processes.waiting._CROWDED", 60.0)
    rhythm = Rhythm()
    awake = rhythm.spin
    patience = Patience(rhythm=rhythm)
    patience.pause()
    time.sleep(0.002)
    patience.pause()
    assert rhythm.spin < awake / 10


def test_a_wait_that_is_given_up_leaves_the_rhythm():
    rhythm = Rhythm()
    assert not wait_for([Due(60)], seconds=0.01, rhythm=rhythm)
    assert rhythm.last == 0


def test_a_thread_that_waits_sleeps():
    spent = []

    def wait():
        begin = time.thread_time()
        wait_for([Due(0.3)])
        spent.append(time.thread_time() - begin)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert spent[0] < 0.15


@pytest.mark.parametrize("longest", [LONGEST_SLEEP, 5e-3])
def test_sleeps_grow_to_the_longest(longest):
    slept = []
    patience = Patience(longest=longest)
    for _ in range(400):
        begin = time.monotonic()
        patience.pause()
        slept.append(time.monotonic() - begin)
    assert sorted(slept)[-50] >= longest
