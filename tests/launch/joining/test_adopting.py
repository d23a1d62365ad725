"""Hosts adopt missing machines (``--adopt``), and give them back to new hosts."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from cec_mpi.runtime.records.recorder import read_steps
from helpers.processes import await_error, await_exit_codes

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
DELAY = 0.2  # seconds after which hosts adopt a machine


@pytest.fixture(scope="module")
def store(make_store):
    """Three machines, all of which are needed."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 3, 3)


def machines_by_host(checked):
    """Return the machines of each connected host by its rank."""
    rank_of = {}
    for event in checked.recorder.all_events:
        if "joined" in event:
            rank_of[event["joined"]] = event["rank"]
        for kind in ("lost", "left", "unresponsive"):
            rank_of.pop(event.get(kind), None)
    return {rank: {n for n in rank_of if rank_of[n] == rank} for rank in rank_of.values()}


def test_the_last_of_six_processes_completes_the_run(start, make_store, tmp_path):
    store = make_store(np.random.default_rng(4).standard_normal((600, 60)), 6, 4)
    W = np.random.default_rng(5).standard_normal((40, 60))
    np.save(tmp_path / "W.npy", W)
    losses = "kill:2@4,leave:4@8,kill:1@12,leave:6@16,kill:3@20"
    words = ["--out", "out", "vectors=W.npy", "--local", 6, "--adopt", DELAY, "--inject", losses]
    words += ["--speeds", "1,1,1,1,1,1"]  # with learned speeds a machine may have no rows
    run = start(["cec-mpi", "run", store.path, *map(str, words)])
    assert await_exit_codes([run]) == [0], await_error(run)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "result.npy"), W @ store.X.T, atol=1e-10)
    header, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    last = header["machine_of_rank"].index(5)
    joined = [event for step in steps for event in step["events"] if "joined" in event]
    assert [event["rank"] for event in joined[-3:]] == [last] * 3
    assert len(steps[-1]["available"]) == 4


def test_adopted_machines_move_when_hosts_join_and_leave(open_accepting, store, join):
    with open_accepting(store, adopt=DELAY) as checked:
        (adopter,) = join(1)
        checked.step()
        assert machines_by_host(checked) == {1: {1, 2, 3}}
        (newcomer,) = join(1)
        checked.run_until(lambda: 2 in machines_by_host(checked))
        assert sorted(map(len, machines_by_host(checked).values())) == [1, 2]
        newcomer.kill()
        checked.run_until(lambda: machines_by_host(checked) == {1: {1, 2, 3}})
        later_hosts = join(2)
        checked.run_until(lambda: sorted(map(len, machines_by_host(checked).values())) == [1, 1, 1])
        adopter.terminate()
        checked.run_until(lambda: machines_by_host(checked).keys() == {3, 4})
        checked.step()
    codes = [-signal.SIGKILL, 6, 0, 0]
    assert await_exit_codes([newcomer, adopter, *later_hosts]) == codes, await_error(later_hosts[0])


def test_an_adopted_machine_returns_to_a_host_that_was_suspended(open_accepting, store, join):
    with open_accepting(store, adopt=DELAY, deadline=0.1) as checked:
        processes = join(3)
        checked.run_until(lambda: len(machines_by_host(checked)) == 3)
        processes[0].send_signal(signal.SIGSTOP)
        checked.run_until(lambda: len(machines_by_host(checked)) == 2)
        processes[0].send_signal(signal.SIGCONT)
        checked.run_until(lambda: len(machines_by_host(checked)) == 3)
    assert await_exit_codes(processes) == [0] * 3
