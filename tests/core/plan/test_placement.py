"""Which machine has which shards, and rows of shards as rows of machines."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from cec_mpi.core.demand import CodedDemand, optimum
from cec_mpi.core.plan.placement import Placement, spread
from cec_mpi.core.plan.planner import Planner
from cec_mpi.core.speeds import GivenSpeeds, SpeedEstimator, hindsight_makespan
from cec_mpi.errors import InfeasibleError, InputError

COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@given(COUNTS, st.integers(0, 3), st.integers(1, 9), st.randoms(use_true_random=False))
def test_rows_of_shards_are_those_of_machines_one_behind_the_other(counts, left, rows, random):
    placement = Placement(counts, sum(counts) + left)
    chosen = {
        n: sorted(random.sample(range(rows), random.randint(0, rows)))
        for n in range(1, sum(counts) + 1)
    }
    of_shards = {n: tuple((row, row + 1) for row in some) for n, some in chosen.items() if some}
    stacked = placement.stacked(of_shards, rows)
    for machine in range(1, placement.machines + 1):
        mine = placement.of(machine)
        expected = [k * rows + row for k, n in enumerate(mine) for row in chosen[n]]
        intervals = stacked.get(machine, ())
        if not placement.is_plain:
            assert all(a[1] < b[0] for a, b in itertools.pairwise(intervals))
        assert [row for start, stop in intervals for row in range(start, stop)] == expected
        parts = list(placement.split(machine, intervals, rows))
        assert [(n, row) for n, a, b in parts for row in range(a, b)] == [
            (n, row) for n in mine for row in chosen[n]
        ]
        assert all(placement.holder(n) == machine for n in mine)
    loads = [len(chosen.get(n, ())) for n in range(1, placement.shards + 1)]
    assert placement.rows(loads).tolist() == [
        sum(loads[n - 1] for n in placement.of(m)) for m in range(1, placement.machines + 1)
    ]


@given(COUNTS, st.integers(1, 12))
def test_how_many_machines_can_be_missing(counts, recovery):
    placement = Placement(counts, sum(counts))
    if recovery <= sum(counts):
        spare = placement.to_spare(recovery)
        left = sorted(counts)[: len(counts) - spare]
        assert sum(left) >= recovery > sum(left[:-1])
        best = placement.largest(spare + 1)
        assert sum(counts[n - 1] for n in best) == sum(sorted(counts)[len(counts) - spare - 1 :])
        assert placement.to_spare(recovery, best[:0]) == -1
    assert placement.largest(99) == tuple(range(1, len(counts) + 1))


def test_one_shard_each_is_plain_and_changes_nothing():
    placement = Placement.plain(3)
    assert placement == Placement((1, 1, 1), 3) != Placement((1, 1), 3)
    assert placement.is_plain
    assert not Placement((1, 1), 3).is_plain
    intervals = {1: ((0, 4),), 3: ((1, 2),)}
    assert placement.stacked(intervals, 9) == intervals
    assert placement.of_all((1, 3)) == (1, 3)
    found = pickle.loads(pickle.dumps(Placement((2, 1), 4)))
    assert found == Placement((2, 1), 4)
    assert hash(found) == hash(Placement((2, 1), 4))
    assert repr(found) == "<Placement of 3 shards on 2 machines>"


@pytest.mark.parametrize("counts", [(), (0, 2), (2, 3)])
def test_what_cannot_be_is_refused(counts):
    with pytest.raises(InputError, match="expected at least 1 on each, and at most 4 on all"):
        Placement(counts, 4)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 12), st.data())
def test_shards_are_spread_by_speed(speeds, more, data):
    shards = len(speeds) + more
    room = data.draw(st.lists(st.integers(1, 9), min_size=len(speeds), max_size=len(speeds)))
    found = spread(shards, speeds, 1, room)
    assert all(1 <= c <= most for c, most in zip(found, room, strict=True))
    assert sum(found) == min(shards, sum(room))
    for c, s in zip(found, speeds, strict=True):  # no shard would be better elsewhere
        for d, t, most in zip(found, speeds, room, strict=True):
            assert c == 1 or d == most or (c - 1) / s <= d / t


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 12), st.data())
def test_memory_is_filled_before_others_get_more(speeds, more, data):
    shards = len(speeds) + more
    memory = data.draw(st.lists(st.integers(0, 9), min_size=len(speeds), max_size=len(speeds)))
    found = spread(shards, speeds, 1, memory=memory)
    assert sum(found) == shards
    over = any(c > max(1, m) for c, m in zip(found, memory, strict=True))
    assert not over or all(c >= m for c, m in zip(found, memory, strict=True))
    assert spread(shards, speeds, 1, memory=[shards] * len(speeds)) == spread(shards, speeds, 1)


def test_spreading_what_cannot_be_spread():
    with pytest.raises(InputError, match="3 machines for 2 shards"):
        spread(2, [1, 1, 1], 1)
    with pytest.raises(InfeasibleError, match="machine 2 has no room for one shard"):
        spread(6, [1, 1], 1, [3, 0])
    with pytest.raises(InfeasibleError, match="room for 3 shards: a step needs 4"):
        spread(6, [1, 1], 4, [2, 1])


@given(COUNTS, st.data())
def test_the_best_makespan_is_that_of_the_linear_program(counts, data):
    shards = np.array(counts)
    copies = data.draw(st.integers(1, int(shards.sum())))
    speeds = np.array(
        data.draw(st.lists(st.integers(1, 20), min_size=len(counts), max_size=len(counts))),
        dtype=float,
    )
    rows = 12
    time, loads = optimum(speeds, np.zeros(speeds.size), copies, rows, shards)
    most = [(0, c * rows) for c in counts]
    found = linprog(
        [*[0] * speeds.size, 1],
        A_ub=np.column_stack([np.eye(speeds.size), -speeds]),
        b_ub=np.zeros(speeds.size),
        A_eq=[[*[1] * speeds.size, 0]],
        b_eq=[copies * rows],
        bounds=[*most, (0, None)],
    )
    assert time == pytest.approx(found.fun, rel=1e-9)
    assert loads.sum() == pytest.approx(copies * rows)
    assert (loads <= shards * rows + 1e-9).all()
    given_speeds = GivenSpeeds(speeds, CodedDemand(len(speeds), copies, rows, counts))
    everyone = tuple(range(1, len(counts) + 1))
    given_speeds.observe("w", loads, loads / speeds / 3)
    assert given_speeds.bound("w", everyone) == pytest.approx(time / 3, rel=1e-6)
    seconds = (loads + 1) / speeds
    hindsight = hindsight_makespan(
        loads + 1, seconds, CodedDemand(len(loads + 1), copies, rows, counts)
    )
    assert hindsight == pytest.approx(time, rel=1e-9)


def test_too_few_shards_are_refused():
    with pytest.raises(InfeasibleError):
        Planner(4, 30, placement=Placement((2, 1, 3), 6)).plan((1, 2), (1.0, 1.0, 1.0))
    with pytest.raises(InfeasibleError):
        GivenSpeeds([1.0, 1.0], CodedDemand(2, 4, 30, [2, 1]))
    speeds = SpeedEstimator(CodedDemand(2, 3, 30, [2, 1]))
    assert speeds.plan_speeds((1,)) == (1.0, 1.0)
    assert hindsight_makespan([30, 0], [1.0, 0.0], CodedDemand(len([30, 0]), 3, 30, [2, 1])) is None


def test_learned_speeds_of_machines_with_several_shards_give_the_best_plan():
    """Speeds 1,1,1,1,1,20 and L = 4: with one shard the fast machine would be at its cap."""
    counts, true = (1, 1, 1, 1, 1, 7), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 20.0]) * 1000
    everyone, rows = (1, 2, 3, 4, 5, 6), 3000
    speeds = SpeedEstimator(CodedDemand(6, 4, rows, counts))
    planner = Planner(4, rows, placement=Placement(counts, 12))
    for _ in range(5):
        plan = planner.plan(everyone, speeds.plan_speeds(everyone))
        loads = plan.counts(6)
        speeds.observe("w", loads, loads / true)
    best = optimum(true, np.zeros(6), 4, rows, np.array(counts))[0]
    assert max(loads / true) <= best * 1.01
    assert best == pytest.approx(4 * rows / 25_000)
