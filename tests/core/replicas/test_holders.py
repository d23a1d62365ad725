"""Which machines hold which parts of a sparse X, and what that comes to."""

from collections import Counter
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.replicas.holders import assess_placement, spread_copies
from cec_mpi.errors import InputError

KINDS_OF_SPEEDS = [
    st.integers(1, 9),  # shares of exactly 1, which rounding misses
    st.floats(0.05, 20),
    st.floats(5e-324, 1e300, allow_subnormal=True),
]


@st.composite
def requests(draw):
    machines = draw(st.integers(1, 20))
    kind = draw(st.sampled_from(KINDS_OF_SPEEDS))
    speeds = draw(st.lists(kind, min_size=machines, max_size=machines))
    return (
        draw(st.integers(1, 200)),
        speeds,
        draw(st.integers(1, machines)),
        draw(st.integers(1, 6)),
    )


def exact_shares(speeds, copies):
    """Of all parts that each machine should hold: in proportion to its speed, at most 1."""
    fastest = sorted(map(Fraction, speeds), reverse=True)
    shares = [Fraction(1)] * len(speeds)
    for full in range(copies):  # machines that hold everything
        rate = (copies - full) / sum(fastest[full:])
        if rate * fastest[full] <= 1:
            shares = [min(Fraction(1), rate * Fraction(speed)) for speed in speeds]
            break
    return shares


@settings(max_examples=100)
@given(requests())
def test_each_part_is_on_different_machines(request):
    parts, speeds, copies, orders = request
    holders = spread_copies(parts, speeds, copies, orders)
    assert len(holders) == parts
    for each in holders:
        assert len(each) == len(set(each)) == copies
        assert list(each) == sorted(each)
        assert 1 <= each[0] <= each[-1] <= len(speeds)
    assert holders == spread_copies(parts, speeds, copies, orders)
    held = Counter(chain(*holders))
    for machine, share in enumerate(exact_shares(speeds, copies), start=1):
        assert abs(held[machine] - parts * share) <= min(orders, parts)  # one for each order


def test_a_machine_that_just_holds_all_parts_gets_each_once():
    """Six times 3 is the sum of the speeds, so the fifth machine holds exactly all."""
    holders = spread_copies(48, [1, 4, 4, 2, 6, 1], 3, orders=5)
    assert all(each[0] < each[1] < each[2] for each in holders)
    assert sum(5 in each for each in holders) == 48


def test_more_orders_have_more_sets_of_holders():
    counts = [len(set(spread_copies(960, [1.0] * 12, 3, orders))) for orders in (1, 2, 4, 8)]
    assert counts == sorted(counts)
    assert counts[0] == 4  # N / J


def test_figures_of_a_spread_are_those_of_brute_force():
    holders = spread_copies(64, [1.0] * 8, 3)
    found = assess_placement(holders, [1.0] * 8, [1.0] * 64)
    sets = set(map(frozenset, holders))
    assert found.holder_sets == len(sets)
    assert sorted(found.loss_probability) == [3, 4, 5]
    for gone, probability in found.loss_probability.items():
        all_of_them = [set(some) for some in combinations(range(1, 9), gone)]
        fatal = sum(any(each <= some for each in sets) for some in all_of_them)
        assert probability == pytest.approx(fatal / len(all_of_them))
    assert 1 <= found.mean_ratio <= found.max_ratio


def test_a_sample_of_losses_is_close_to_all():
    """Of 30 machines there are 142,506 sets of five."""
    holders = tuple((n, n + 1, n + 2) for n in range(1, 30, 3))  # ten groups of three
    found = assess_placement(holders, [1.0] * 30, [1.0] * 10)
    ten_times = 10 * 27 * 26 / 2  # a group and any two: no two groups are in five machines
    assert found.loss_probability[5] == pytest.approx(ten_times / 142_506, abs=0.005)


def test_machines_that_hold_all_of_it_are_never_slower():
    found = assess_placement(((1, 2, 3, 4),) * 8, [1.0, 2.0, 1.0, 4.0], [3.0] * 8)
    assert found.loss_probability == {4: 1.0}
    assert found.mean_ratio == pytest.approx(1, rel=1e-6)
    assert found.max_ratio == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, [1, 1], 3), "copies 3: expected from 1 to 2"),
        ((4, [1, 1], 0), "copies 0: expected from 1 to 2"),
        ((4, [], 1), "speeds have shape"),
        ((4, [1, -1], 1), "-1"),
        ((4, [1, np.inf], 1), "inf"),
        ((0, [1, 1], 1), "0 parts in 4 orders"),
        ((4, [1, 1], 1, 0), "4 parts in 0 orders"),
    ],
)
def test_what_cannot_be_spread(arguments, message):
    with pytest.raises(InputError, match=message):
        spread_copies(*arguments)
