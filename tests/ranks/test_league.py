"""The contestants of the league on the ranks that are there: all find the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cec_mpi.bench.league import coded, dealt, fastest, restarted
from cec_mpi.bench.league.contestants import OURS, expected_of, make_stores
from cec_mpi.bench.league.work import Job, Outcome, State, make_matrix

pytestmark = pytest.mark.mpi(min_size=4)

SIZE = 45  # which two does not divide
EVENTS = [(1, 2, 3), (1, 3), (2, 3), (1, 2, 3), (1, 2)]
PLAYED = {OURS: coded, "cyclic": coded, "uncoded": dealt, "replicated": dealt, "fastest": fastest}


@pytest.fixture(scope="module")
def job(comm, shared_directory):
    directory = shared_directory / "league"
    made = Job(
        *(str(directory), SIZE, 2, (1.0, 2.0, 3.0)),
        base=1e5,
        available=tuple(machines for machines in EVENTS for _ in range(2)),
        power=5,
        seed=3,
    )
    if comm.rank == 0:
        directory.mkdir()
        make_matrix(directory / "X.npy", SIZE, 3)
        make_stores(made, PLAYED)
    comm.Barrier()
    return made


def check(job):
    """Rank 0: the numbers are those of NumPy; returns how it went."""
    outcome, found = Outcome.read(job), State(job)
    found.load(job.path("state.npz"))
    assert found.distance(expected_of(job)) < 1e-12
    return outcome


def test_numbers_that_are_none_are_far_from_all(comm, job):
    if comm.rank == 0:
        good, wrong = State(job), State(job)
        wrong.arrays["x"] = np.full(SIZE, np.nan)
        assert np.isnan(wrong.distance(good))


@pytest.mark.parametrize("name", PLAYED)
def test_each_way_gives_what_numpy_gives(comm, job, name):
    group = comm.Split(comm.rank < 4, comm.rank)
    if comm.rank < 4:
        PLAYED[name].play(group, replace(job, way=name))
    if comm.rank == 0:
        outcome = check(job)
        assert len(outcome.iteration_seconds) == len(job.available)
        assert len(outcome.event_seconds) == len(EVENTS) - 1
        products = job.power + 2 * (len(job.available) - job.power) + 1
        least = products * SIZE * 8 * 3  # w to two machines or more, and an answer
        assert outcome.moved > least
        if name == "uncoded":
            assert outcome.moved > least + SIZE * SIZE * 8 / 3
    group.Free()


def test_a_program_that_goes_on_from_its_checkpoint(comm, job):
    group = comm.Split(comm.rank < 3, comm.rank)
    both = replace(job, available=((1, 3),) * 4 + ((2, 3),) * 4)
    if comm.rank < 3:
        restarted.play(group, both, 0, 4)
        restarted.play(group, both, 4, 8)
    if comm.rank == 0:
        assert len(check(both).iteration_seconds) == 4
    group.Free()


def test_the_work_converges(comm, job):
    if comm.rank == 0:
        long = replace(job, available=((1, 2, 3),) * 120, power=60)
        found, X = expected_of(long), np.load(job.path("X.npy"))
        v, x = found.arrays["v"], found.arrays["x"]
        assert np.linalg.norm(X @ v - (v @ X @ v) * v) < 1e-8
        b = State(long).arrays["r"]
        assert np.linalg.norm(X.T @ (X @ x - b)) < 1e-8 * np.linalg.norm(b)


def test_work_that_goes_on_when_nothing_is_left_to_do(comm, job):
    if comm.rank == 0:
        done = expected_of(replace(job, available=((1, 2, 3),) * 200, power=0))
        with np.errstate(all="raise", under="ignore"):
            long = expected_of(replace(job, available=((1, 2, 3),) * 3000, power=0))
        assert all(np.isfinite(values).all() for values in long.arrays.values())
        assert np.allclose(long.arrays["x"], done.arrays["x"], rtol=1e-12)
