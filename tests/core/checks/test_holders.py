"""Without how many machines answers are enough, and which further ones are."""

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import make_code
from cec_mpi.core.checks.parity import Holders, Observation, ParityChecker

COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def machines_of(counts):
    bounds = np.cumsum([1, *counts]).tolist()
    return [tuple(range(a, b)) for a, b in pairwise(bounds)]


def mates_of(counts):
    machines = machines_of(counts)
    return lambda shard: next(mine for mine in machines if shard in mine)


def left_without(shards, spare, machines):
    """The fewest that are left of these shards without so many machines."""
    some = combinations(machines, min(spare, len(machines)))
    return min(len(set(shards) - {n for mine in gone for n in mine}) for gone in some)


@given(COUNTS, st.integers(1, 6), st.data())
def test_machines_to_spare_are_those_of_brute_force(counts, recovery, data):
    machines = machines_of(counts)
    shards = data.draw(st.sets(st.integers(1, sum(counts))))
    found = Holders(recovery, mates_of(counts)).to_spare(sorted(shards))
    enough = [
        spare
        for spare in range(len(counts) + 1)
        if left_without(shards, spare, machines) >= recovery
    ]
    assert found == max(enough, default=-1)
    for spare in range(len(counts) + 1):
        assert Holders(recovery, mates_of(counts)).are_enough(spare, shards) == (spare <= found)


@given(COUNTS, st.integers(1, 6), st.integers(0, 3), st.data())
def test_further_shards_are_enough_and_few(counts, recovery, spare, data):
    machines = machines_of(counts)
    there = data.draw(st.lists(st.integers(1, sum(counts)), unique=True))
    able = tuple(n for n in range(1, sum(counts) + 1) if n not in there)
    if left_without(there, spare, machines) >= recovery:
        return
    holders = Holders(recovery, mates_of(counts))
    needed, eligible = holders.further(there, spare, able)
    assert set(eligible) <= set(able)
    if len(eligible) < needed:  # all that there are would not be enough
        assert left_without([*there, *able], spare, machines) < recovery
        return
    for chosen in combinations(eligible, needed):  # whichever of them
        assert left_without([*there, *chosen], spare, machines) >= recovery
    assert not any(
        left_without([*there, *chosen], spare, machines) >= recovery
        for size in range(needed)
        for chosen in combinations(able, size)
    )


@given(COUNTS, st.integers(1, 6), st.integers(0, 3), st.data())
def test_with_one_shard_each_it_is_a_matter_of_numbers(counts, recovery, spare, data):
    shards = data.draw(st.sets(st.integers(1, 9)))
    alone, several = Holders(recovery), Holders(recovery, lambda shard: (shard,))
    assert alone.to_spare(shards) == several.to_spare(shards) == max(-1, len(shards) - recovery)
    assert alone.of(shards) == several.of(shards) == [(n,) for n in sorted(shards)]


@given(st.integers(0, 3), st.floats(-6, 6), st.integers(0, 99))
def test_the_machine_whose_shards_are_wrong_is_named(wrong, exponent, seed):
    """Of eight shards on four machines, with L = 2: all may be wrong that one answers."""
    counts = (2, 2, 2, 2)
    rng, mine = np.random.default_rng(seed), machines_of(counts)[wrong]
    code = make_code(8, 2)
    answers = code.generator @ rng.standard_normal((2, 5))
    checker = ParityChecker(code.generator, "float64", 30, mates=mates_of(counts))
    assert checker.locate([Observation(tuple(range(1, 9)), answers, 10.0)]).agree
    answers[np.array(mine) - 1] += 10.0**exponent * rng.standard_normal((2, 5))
    assert checker.locate([Observation(tuple(range(1, 9)), answers, 10.0)]).wrong == mine
    fewer = Observation(tuple(range(1, 7)), answers[:6], 10.0)  # too few to be certain
    assert checker.locate([fewer]).wrong == ()
