"""The choice of the holders of parts, and its quality."""

from collections import Counter
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.replicas.holders import assess_placement, spread_copies
from cec_mpi.errors import InputError

SPEEDS = st.sampled_from(
    [
        st.integers(1, 9),  # shares may be exactly 1
        st.floats(0.05, 20),
        st.floats(5e-324, 1e300, allow_subnormal=True),
    ]
)


def exact_shares(speeds, copies):
    """Return the shares of the parts: proportional to the speeds, but at most 1."""
    descending = sorted(map(Fraction, speeds), reverse=True)
    for full in range(copies):  # the fastest machines hold all parts
        rate = (copies - full) / sum(descending[full:])
        if rate * descending[full] <= 1:
            return [min(Fraction(1), rate * Fraction(speed)) for speed in speeds]
    return [Fraction(1)] * len(speeds)


@settings(max_examples=60)
@given(
    st.integers(1, 20).flatmap(
        lambda n: SPEEDS.flatmap(lambda speed: st.lists(speed, min_size=n, max_size=n))
    ),
    st.integers(1, 200),
    st.integers(1, 6),
    st.data(),
)
def test_copies_are_on_different_machines_in_proportion_to_speeds(speeds, parts, orders, data):
    copies = data.draw(st.integers(1, len(speeds)))
    holders = spread_copies(parts, speeds, copies, orders)
    assert len(holders) == parts
    for machines in holders:
        assert list(machines) == sorted(set(machines))
        assert len(machines) == copies
        assert 1 <= machines[0] <= machines[-1] <= len(speeds)
    assert holders == spread_copies(parts, speeds, copies, orders)
    held_parts = Counter(chain(*holders))
    for machine, share in enumerate(exact_shares(speeds, copies), start=1):
        assert abs(held_parts[machine] - parts * share) <= min(orders, parts)  # 1 for each order


def test_more_orders_give_more_sets_of_holders():
    counts = [len(set(spread_copies(960, [1.0] * 12, 3, orders))) for orders in (1, 2, 4, 8)]
    assert counts == sorted(set(counts))
    assert counts[0] == 12 // 3


def test_the_quality_of_a_placement_is_that_of_brute_force():
    holders = spread_copies(64, [1.0] * 8, 3)
    quality = assess_placement(holders, [1.0] * 8, [1.0] * 64)
    sets = set(map(frozenset, holders))
    assert quality.holder_sets == len(sets)
    assert list(quality.loss_probability) == [3, 4, 5]
    for count, probability in quality.loss_probability.items():
        losses = list(combinations(range(1, 9), count))
        is_fatal = [any(machines <= set(subset) for machines in sets) for subset in losses]
        assert probability == pytest.approx(np.mean(is_fatal))
    assert 1 <= quality.mean_ratio <= quality.max_ratio


def test_the_loss_probability_of_many_machines_is_sampled():
    holders = tuple((n, n + 1, n + 2) for n in range(1, 30, 3))
    quality = assess_placement(holders, [1.0] * 30, [1.0] * 10)
    fatal_losses = 10 * 27 * 26 / 2  # a group of three, and any two of the other machines
    assert quality.loss_probability[5] == pytest.approx(fatal_losses / 142_506, abs=0.005)


def test_machines_that_hold_all_parts_have_the_ideal_makespan():
    quality = assess_placement(((1, 2, 3, 4),) * 8, [1.0, 2.0, 1.0, 4.0], [3.0] * 8)
    assert quality.loss_probability == {4: 1.0}
    assert quality.max_ratio == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, [1, 1], 3), "copies 3: expected from 1 to 2"),
        ((4, [1, 1], 0), "copies 0: expected from 1 to 2"),
        ((0, [1, 1], 1), "0 parts in 4 orders"),
        ((4, [1, 1], 1, 0), "4 parts in 0 orders"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        spread_copies(*arguments)
