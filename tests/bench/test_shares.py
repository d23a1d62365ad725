"""Rows without a code: each is computed once, on machines that hold it, as fast as can be."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.bench.league.shares import Dealt, Replicated, grouped
from cec_mpi.core.plan.load import makespan, whole_row_load

SPEEDS = (2.0, 1.0, 3.0, 1.0, 4.0, 2.5)
ROWS = 60
EVENTS = st.lists(st.sets(st.integers(1, 6), min_size=1).map(sorted), min_size=1, max_size=8)


def followed(dealer, events):
    """Each event's deal, when every machine holds what it is to compute, and nothing more."""
    held = {n: set(dealer.starts_with(n).tolist()) for n in range(1, 7)}
    for available in events:
        deal = dealer.deal(available)
        assert list(deal) == available
        for n, share in deal.items():
            rows, new, gone = (set(each.tolist()) for each in share)
            assert not new & (held[n] - gone)  # nothing is sent twice
            held[n] = held[n] - gone | new
            assert rows <= held[n]
        computed = np.concatenate([share.rows for share in deal.values()])
        assert sorted(computed.tolist()) == list(range(ROWS))
        yield available, deal, held


@given(EVENTS)
def test_dealt_rows_are_computed_once_and_in_the_least_time(events):
    before, had = {}, {}
    for available, deal, held in followed(Dealt(ROWS, SPEEDS), events):
        speeds = [SPEEDS[n - 1] for n in available]
        loads = [deal[n].rows.size for n in available]
        assert makespan(loads, speeds) == makespan(whole_row_load(speeds, 1, ROWS), speeds)
        assert all(held[n] == set(deal[n].rows.tolist()) for n in available)
        if before and set(available) <= set(before):  # somebody went, and nobody came
            moved = sum(share.new.size for share in deal.values())
            least = [max(0, len(held[n]) - had[n]) for n in available]
            assert moved == sum(least)
        before, had = dict.fromkeys(available), {n: len(held[n]) for n in available}


def test_a_machine_that_comes_back_has_its_rows_still():
    dealt = Dealt(ROWS, SPEEDS)
    first = dealt.deal([1, 2, 3, 4, 5, 6])
    dealt.deal([1, 2, 3, 4, 5])
    back = dealt.deal([1, 2, 3, 4, 5, 6])
    assert back[6].rows.tolist() == first[6].rows.tolist()
    assert all(share.new.size == 0 for n, share in back.items() if n == 6)


@given(EVENTS, st.integers(1, 6))
def test_replicated_rows_are_computed_once_and_move_where_no_copy_is_left(events, groups):
    replicated = Replicated(ROWS, SPEEDS, groups)
    blocks = {n: set(replicated.starts_with(n).tolist()) for n in range(1, 7)}
    assert set().union(*blocks.values()) == set(range(ROWS))
    for available, deal, _ in followed(replicated, events):
        here = set().union(*(blocks[n] for n in available))
        for n in available:
            rows = set(deal[n].rows.tolist())
            assert rows & here <= blocks[n]
            assert not set(deal[n].new.tolist()) & here


def test_groups_with_copies_are_as_fast_as_each_other():
    of_experiments = grouped([1.0, 2.0] * 10, 10)
    totals = np.bincount(list(of_experiments.values()), [1 + (n % 2 == 0) for n in of_experiments])
    assert totals.tolist() == [3.0] * 10
    for speeds, groups in ([20.0, 1, 1, 1, 1, 1], 3), ([1.0, 1, 2], 2), ([1.0, 5], 2):
        of = grouped(speeds, groups)
        counts = np.bincount(list(of.values()), minlength=groups)
        assert sorted(of) == list(range(1, len(speeds) + 1))
        assert counts.min() >= 1
        assert counts.max() == -(-len(speeds) // groups)
    deal = Replicated(90, [1.0, 1, 2, 2], 2).deal([1, 2, 3, 4])
    assert [deal[n].rows.size for n in (1, 2, 3, 4)] == [15, 15, 30, 30]
