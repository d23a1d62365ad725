"""Runs whose hosts carry missing machines as well (``--adopt``), and give them back."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.joined import error_of, exit_codes

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
SOON = 0.2


@pytest.fixture(scope="module")
def store(make_store):
    """Three machines, all of which are needed."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 3, 3)


def carried(made):
    """The machines of each host that is there, by its rank."""
    host_of = {}
    for event in made.recorder.happened:
        if "joined" in event:
            host_of[event["joined"]] = event["rank"]
        for kind in ("lost", "left", "given up"):
            host_of.pop(event.get(kind), None)
    return {rank: {n for n in host_of if host_of[n] == rank} for rank in host_of.values()}


def test_the_last_of_six_processes_ends_the_run(start, make_store, tmp_path):
    six = make_store(np.random.default_rng(4).standard_normal((600, 60)), 6, 4)
    W = np.random.default_rng(5).standard_normal((40, 60))
    np.save(tmp_path / "W.npy", W)
    gone = "kill:2@4,leave:4@8,kill:1@12,leave:6@16,kill:3@20"
    words = ["--out", "out", "vectors=W.npy", "--local", 6, "--adopt", SOON, "--inject", gone]
    words += ["--speeds", "1,1,1,1,1,1"]  # with learned ones a machine may have no rows
    run = start(["cec-mpi", "run", six.path, *map(str, words)])
    assert exit_codes([run]) == [0], error_of(run)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), W @ six.X.T, atol=1e-10)
    header, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    last = header["machine_of_rank"].index(5)
    joined = [event for step in steps for event in step["events"] if "joined" in event]
    assert [event["rank"] for event in joined[-3:]] == [last] * 3
    assert len(steps[-1]["available"]) == 4


@pytest.mark.parametrize(
    ("leaving", "leaves_first"), [(signal.SIGTERM, "adopter"), (signal.SIGKILL, "newcomer")]
)
def test_machines_are_given_back_and_hosts_leave_in_any_order(
    accepting, store, join, leaving, leaves_first
):
    with accepting(store, adopt=SOON) as made:
        (adopter,) = join(1)
        made.step()
        assert carried(made) == {1: {1, 2, 3}}
        (newcomer,) = join(1)
        made.until(lambda: 2 in carried(made))
        assert sorted(map(len, carried(made).values())) == [1, 2]
        leaver, stayer, rank = adopter, newcomer, 2
        if leaves_first == "newcomer":
            leaver, stayer, rank = newcomer, adopter, 1
        leaver.send_signal(leaving)
        made.until(lambda: carried(made) == {rank: {1, 2, 3}})
        others = join(2)
        made.until(lambda: sorted(map(len, carried(made).values())) == [1, 1, 1])
        stayer.send_signal(leaving)
        made.until(lambda: carried(made).keys() == {3, 4} and len(carried(made)[3]) != 0)
        made.step()
    code = 6 if leaving is signal.SIGTERM else -leaving
    assert exit_codes([leaver, stayer, *others]) == [code, code, 0, 0], error_of(others[0])


def test_a_host_carries_no_more_than_its_memory_is_for(accepting, store, join):
    with accepting(store, adopt=SOON) as made:
        first = join(3, "--memory", "150K")  # a shard has 96 kB
        made.until(lambda: len(made.happened("joined")) == 3)
        first[0].kill()
        second = join(1, "--memory", "150K")
        made.until(lambda: len(made.happened("joined")) == 4)
        made.step()
        assert sorted(map(len, carried(made).values())) == [1, 1, 1]
    assert exit_codes([*first, *second]) == [-signal.SIGKILL, 0, 0, 0]


def test_a_machine_is_given_back_to_a_process_that_was_stopped(accepting, store, join):
    with accepting(store, adopt=SOON, deadline=0.1) as made:
        processes = join(3)
        made.until(lambda: len(carried(made)) == 3)
        processes[0].send_signal(signal.SIGSTOP)
        made.until(lambda: len(carried(made)) == 2)
        processes[0].send_signal(signal.SIGCONT)
        made.until(lambda: len(carried(made)) == 3)
    assert exit_codes(processes) == [0] * 3
