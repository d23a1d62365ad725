"""Who takes over shards that are away: compared with all that could be done."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.holding.adopting import adopt
from cec_mpi.core.holding.holding import Holding
from cec_mpi.core.holding.planner import plan_holding
from cec_mpi.errors import InfeasibleError, InputError


def least_time(counts, more, speeds, seconds, work, rows):
    """Until so many rows are done when these shards are taken over: by halving, of one choice."""
    most = sum(c + a for c, a in zip(counts, more, strict=True)) * rows
    if most < work:
        return float("inf")
    low, high = 0.0, 1e7
    for _ in range(80):
        time = (low + high) / 2
        done = sum(
            min(s * max(0.0, time - a * q), (c + a) * rows)
            for c, a, s, q in zip(counts, more, speeds, seconds, strict=True)
        )
        low, high = (time, high) if done < work * (1 - 1e-12) else (low, time)
    return high


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_no_other_choice_ends_the_step_earlier(data):
    counts = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4), "shards")
    gone = data.draw(st.integers(1, len(counts) - 1), "gone")
    shards, rows = sum(counts) + data.draw(st.integers(0, 2)), 10
    recovery = data.draw(st.integers(1, shards), "recovery")
    size = len(counts)
    speeds = [data.draw(st.integers(1, 20)) for _ in counts]
    seconds = [data.draw(st.sampled_from([0.0, 0.1, 1.0, 10.0])) for _ in counts]
    room = [data.draw(st.integers(0, 4)) for _ in counts]
    available = tuple(range(gone + 1, size + 1))
    holding = Holding.consecutive(counts)
    held = {shard for n in available for shard in holding.of(n)}
    away = tuple(sorted(set(range(1, shards + 1)) - held))
    given = holding, available, speeds, recovery, rows, away, seconds, room
    choices = [
        more
        for more in product(*(range(room[n - 1] + 1) for n in available))
        if sum(more) <= len(away)
    ]
    work = recovery * rows
    parts = counts[gone:], speeds[gone:], seconds[gone:]
    best = min(least_time(parts[0], more, *parts[1:], work, rows) for more in choices)
    if best == float("inf"):
        with pytest.raises(InfeasibleError, match="room for"):
            adopt(*given)
        return
    found = adopt(*given)
    assert found.seconds == pytest.approx(best, rel=1e-6, abs=1e-9)
    taken = [shard for mine in found.taken for shard in mine]
    assert len(set(taken)) == len(taken)
    assert not held & set(taken)
    assert all(len(mine) <= most for mine, most in zip(found.taken, room, strict=True))
    assert not any(found.taken[:gone])
    holding = found.added_to(holding)  # and a plan can be made of it
    plan = plan_holding(holding, available, speeds, recovery, rows)
    assert sum(plan.loads) == recovery * rows


def test_who_is_fast_takes_over_nothing_that_takes_long_to_read():
    holding = Holding.consecutive([1, 1, 2, 2])
    slowly = adopt(holding, (3, 4), (1, 1, 1, 100), 4, 100, (1, 2), (0, 0, 0, 1e6), (9,) * 4)
    assert slowly.taken == ((), (), (), ())  # the two that there are are enough
    quickly = adopt(holding, (3, 4), (1, 1, 1, 100), 4, 100, (1, 2), (0, 0, 0, 1), (9,) * 4)
    assert quickly.taken == ((), (), (), (1, 2))


def test_what_cannot_be_is_refused():
    holding = Holding.consecutive([2, 1])
    with pytest.raises(InfeasibleError, match="1 machine is available, with 1 shard and room"):
        adopt(holding, (2,), (1, 1), 3, 10, (1, 2), (1, 1), (1, 1))
    with pytest.raises(InputError, match="machine 2 reads a shard in nan s"):
        adopt(holding, (2,), (1, 1), 1, 10, (1, 2), (1, float("nan")), (1, 1))
