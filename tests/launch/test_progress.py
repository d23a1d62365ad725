"""What is seen of a run while it goes on: on a terminal through a launcher, and in a file."""

from __future__ import annotations

import os
import pty
import time

import numpy as np
import pytest


def arrivals(descriptor):
    """What comes, and when: a list of (seconds, text)."""
    begin, found = time.monotonic(), []
    while True:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        found.append((time.monotonic() - begin, data.decode()))
    return found


@pytest.fixture
def slow_run(small_store, tmp_path):
    """The words of a run of some seconds: each of 40 steps takes 0.1 s."""
    np.save(tmp_path / "W.npy", np.ones((40, small_store.columns)))
    slowly = ["--speeds", "1,1,1", "--emulate-speeds", "1,1,1", "--emulate-base", "105"]
    words = ["--out", str(tmp_path / "out"), "--vectors", str(tmp_path / "W.npy"), *slowly]
    launcher = ["mpirun", "-n", str(small_store.machines + 1)]
    return [*launcher, "cec-mpi", "run", str(small_store.path), *words]


def test_steps_are_shown_on_a_terminal_while_they_are_made(start, slow_run):
    ours, theirs = pty.openpty()
    process = start([*slow_run, "-v"], stderr=theirs, stdout=theirs)
    os.close(theirs)
    shown = arrivals(ours)
    os.close(ours)
    assert process.wait(timeout=60) == 0
    seen = [when for when, text in shown if " of 3 machines, " in text]
    assert seen[-1] - seen[0] > 1  # not all at once
    assert shown[-1][0] - seen[0] > 2  # nor at the end
    text = "".join(text for _, text in shown).replace("\r\x1b[K", "")
    assert text.rstrip().endswith("--out report.html")
    assert text.count("matvec is done: 40 steps on 3 machines, ") == 1


@pytest.mark.any_mpi
def test_a_short_run_shows_nothing_elsewhere_but_how_it_ended(run, slow_run):
    done = run(slow_run)
    assert (done.returncode, done.told) == (0, "")
    first, last, report = done.stdout.splitlines()
    assert first.startswith("matvec is done: 40 steps on 3 machines, ")
    assert last.endswith("out (result.npy, summary.json)")
    assert report.startswith("report: cec-mpi report ")


@pytest.mark.any_mpi
def test_a_quiet_run_shows_nothing(run, slow_run):
    done = run([*slow_run, "-q"])
    assert (done.returncode, done.told, done.stdout) == (0, "", "")
