"""What fast machines would have to hold, compared with the best that any holding allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.holding.gaining import gain_of
from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.holding.planner import plan_holding


@given(data=st.data())
def test_a_plan_takes_as_long_as_is_said_before_and_after(data):
    counts = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=5), "shards")
    shards, size, rows = sum(counts), len(counts), 1000
    recovery = data.draw(st.integers(1, shards), "recovery")
    speeds = [data.draw(st.integers(1, 30)) for _ in counts]
    room = [data.draw(st.integers(0, shards)) for _ in counts]
    holding, everyone = Holding.consecutive(counts), range(1, size + 1)
    found = gain_of(holding, everyone, speeds, recovery, shards, room)
    assert found.after <= found.before * (1 + 1e-9)
    for machine, mine in found.taken.items():
        assert not set(mine) & set(holding.of(machine))
        assert len(mine) <= room[machine - 1]
    both = enumerate(holding.shards, start=1)
    more = Holding(tuple(tuple(sorted({*mine, *found.taken.get(n, ())})) for n, mine in both))
    for held, time in ((holding, found.before), (more, found.after)):
        plan = plan_holding(held, everyone, speeds, recovery, rows)
        assert plan.bound == pytest.approx(time * rows, rel=1e-9)


@given(st.integers(2, 8), st.integers(2, 40), st.data())
def test_beside_one_fast_machine_all_are_done_at_once(slow, speed, data):
    """Then nothing is shorter than all work over all speeds."""
    shards = slow + 1
    recovery = data.draw(st.integers(1, shards))
    speeds = [1] * slow + [speed]
    holding = Holding.consecutive([1] * shards)
    given_all = holding, range(1, shards + 1), speeds, recovery, shards
    found = gain_of(*given_all, [shards] * shards)
    assert found.after == pytest.approx(recovery / sum(speeds), rel=0.02)


def test_nothing_is_taken_over_where_there_is_no_room_or_no_need():
    holding = Holding.consecutive([1] * 4)
    assert gain_of(holding, (1, 2, 3, 4), (1, 1, 1, 1), 3, 4, [3] * 4).taken == {}
    assert gain_of(holding, (1, 2, 3, 4), (1, 1, 1, 9), 3, 4, [0] * 4).taken == {}


def test_shards_that_nobody_has_are_taken_first():
    holding = Holding.consecutive([1] * 6)
    found = gain_of(holding, (1, 2, 3, 4), (2, 3, 4, 50), 3, 6, [5] * 6)
    assert found.taken[4] == (5, 6)
