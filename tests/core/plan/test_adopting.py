"""Who takes over shards that are away: compared with all that could be done."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.plan.adopting import Candidate, adopt, shares_of
from cec_mpi.core.plan.placement import Placement
from cec_mpi.errors import InfeasibleError

ROWS = 10


def least_time(candidates, more, copies):
    """Until each row has so many shards, when these are taken over: by halving, of one choice."""
    if sum(each.held + a for each, a in zip(candidates, more, strict=True)) < copies:
        return float("inf")
    low, high = 0.0, 1e7
    for _ in range(80):
        time = (low + high) / 2
        done = sum(each.done(a, time, ROWS) for each, a in zip(candidates, more, strict=True))
        low, high = (time, high) if done < copies * ROWS * (1 - 1e-12) else (low, time)
    return high


def can_be_read(able, more):
    """Whether machines can take over so many shards, each of those that it can read (Hall)."""
    places = [shards for shards, a in zip(able, more, strict=True) for _ in range(a)]
    return all(
        sum(set(shards) <= some for shards in places) <= len(some)
        for some in subsets(set().union(*able))
    )


def subsets(shards):
    each = sorted(shards)
    for chosen in product((False, True), repeat=len(each)):
        yield {shard for shard, is_in in zip(each, chosen, strict=True) if is_in}


@st.composite
def machines_and_shards(draw):
    """Own shards of machines, how many of the first are gone, and what the others can read."""
    counts = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    gone = draw(st.integers(1, len(counts) - 1))
    shards = sum(counts) + draw(st.integers(0, 2))
    held = range(sum(counts[:gone]) + 1, sum(counts) + 1)
    away = sorted(set(range(1, shards + 1)) - set(held))
    some = st.just(away) if draw(st.booleans()) else st.lists(st.sampled_from(away), unique=True)
    able = {n: tuple(sorted(draw(some))) for n in range(gone + 1, len(counts) + 1)}
    return counts, shards, able, [draw(st.integers(0, 4)) for _ in counts]


@given(machines_and_shards(), st.data())
def test_no_other_choice_ends_the_step_earlier(case, data):
    counts, shards, able, room = case
    copies = data.draw(st.integers(1, shards), "copies")
    candidates = {
        n: Candidate(
            mine,
            counts[n - 1],
            room[n - 1],
            data.draw(st.integers(1, 20), "speed"),
            data.draw(st.sampled_from([0.0, 0.1, 1.0, 10.0]), "seconds"),
        )
        for n, mine in able.items()
    }
    each = list(candidates.values())
    best = min(
        least_time(each, more, copies)
        for more in product(*(range(min(c.room, len(c.able)) + 1) for c in each))
        if can_be_read([c.able for c in each], more)
    )
    found = adopt(candidates, copies, ROWS)
    if best == float("inf"):
        assert found is None
        return
    taken = [len(mine) for mine in found.values()]
    assert least_time(each, taken, copies) == pytest.approx(best, rel=1e-6, abs=1e-9)
    check(found, able, room)


def check(found, able, room):
    """That each can have these shards, and no two the same."""
    taken = [shard for mine in found.values() for shard in mine]
    assert len(set(taken)) == len(taken)
    for n, mine in found.items():
        assert set(mine) <= set(able[n])
        assert len(mine) <= room[n - 1]


@given(machines_and_shards(), st.integers(0, 2), st.data())
def test_machines_take_over_enough_if_they_can(case, spare, data):
    """Compared with all choices: enough are left without any so many machines."""
    counts, shards, able, room = case
    recovery = data.draw(st.integers(1, shards), "recovery")
    placement = Placement(counts, shards)
    possible = any(
        sum(sorted(counts[n - 1] + a for n, a in zip(able, more, strict=True))[: len(able) - spare])
        >= recovery
        for more in product(*(range(room[n - 1] + 1) for n in able))
        if spare <= len(able) and can_be_read(list(able.values()), more)
    )
    given = placement, able, recovery, spare, [1.0] * len(counts), ROWS, [1.0] * len(counts), room
    if not possible:
        with pytest.raises(InfeasibleError, match="cannot take over"):
            shares_of(*given)
        return
    found = shares_of(*given)
    check(found, able, room)
    for n, mine in found.items():
        placement = placement.adopting(n, mine)
    assert placement.to_spare(recovery, tuple(able)) >= spare


def test_who_is_fast_takes_over_nothing_that_takes_long_to_read():
    slow, fast = Candidate((1, 2), 2, 9, 1, 0), Candidate((1, 2), 2, 9, 100, 1e6)
    assert adopt({3: slow, 4: fast}, 4, 100) == {3: [], 4: []}  # the two that they have are enough
    assert adopt({3: slow, 4: fast._replace(reading=1)}, 4, 100) == {3: [], 4: [1, 2]}


def test_one_machine_reads_what_another_cannot():
    """Machine 1 alone sees shard 3: it leaves shard 4 to machine 2, which is slower."""
    able = {1: (3, 4), 2: (4,)}
    assert shares_of(Placement.plain(4), able, 4, 0, [9.0] * 4, 5, [0.0] * 4, [1] * 4) == {
        1: [3],
        2: [4],
    }


def test_too_few_shards():
    with pytest.raises(InfeasibleError, match="2 machines with 2 shards cannot take over enough"):
        shares_of(Placement.plain(4), {1: (3,), 2: (3,)}, 4, 0, [1.0] * 4, 5, [0.0] * 4, [9] * 4)
