"""What a step costs, and from where on the master is the bottleneck."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cec_mpi.core.step.costs import StepCosts, terms_of

BARE = StepCosts(6, 1e-4, 1e8, 2e9, recovery=3, fixed=0, each=0, decode=0)


@pytest.mark.parametrize(("machines", "depth"), [(1, 1), (2, 2), (3, 2), (6, 3), (7, 3), (8, 4)])
def test_messages_go_along_a_tree(machines, depth):
    assert terms_of(machines, 1, 100, 100).messages == depth + 1
    assert terms_of(machines, 1, 100, 10_000).messages == 2 * depth + 1
    assert terms_of(machines, 1, 100_000, 100).messages == depth + 2


def test_how_often_w_leaves_the_master():
    for columns, several_nodes, copies in (
        (500, True, 3),  # along the tree
        (10_000, True, 1),  # in parts that machines pass on
        (10_000, False, 6),  # all copy it from the same memory
    ):
        sent = terms_of(6, 3, 1000, columns, several_nodes).bytes
        assert sent == 8 * (copies * columns + 1000)


def test_a_step_by_hand():
    # Six machines: three messages in a row for header and w, one for the answers.
    assert BARE.overhead(1000, 500) == pytest.approx(4e-4 + 8 * (3 * 500 + 1000) / 1e8)
    assert BARE.computation(1000, 500) == pytest.approx(8 * 1000 * 500 / 2e9)
    costs = replace(BARE, fixed=1e-3, each=1e-4, decode=1e-8)
    more = 1e-3 + 6e-4 + 3 * 1000 * 1e-8
    assert costs.overhead(1000, 500) == pytest.approx(BARE.overhead(1000, 500) + more)


@pytest.mark.parametrize("seed", range(20))
def test_a_smaller_matrix_computes_shorter_and_a_larger_one_longer(seed):
    rng = np.random.default_rng(seed)
    latency, bandwidth, rate = 10.0 ** rng.uniform([-6, 6, 8], [-2, 11, 13])
    costs = StepCosts(int(rng.integers(1, 1000)), latency, bandwidth, rate)
    n = costs.even()
    assert costs.computation(n, n) >= costs.overhead(n, n)
    assert costs.computation(n - 1, n - 1) < costs.overhead(n - 1, n - 1)


def test_with_few_columns_more_rows_do_not_help():
    few = BARE.fewest_columns()
    assert few == math.ceil(2e9 / 1e8)
    rows = 10**12
    assert BARE.overhead(rows, few - 1) > BARE.computation(rows, few - 1)
    assert BARE.overhead(rows, few + 1) < BARE.computation(rows, few + 1)


@pytest.mark.parametrize("seed", range(10))
def test_more_machines_than_the_best_number_are_slower(seed):
    rng = np.random.default_rng(seed)
    latency, bandwidth, one = 10.0 ** rng.uniform([-6, 7, 9], [-4, 10, 10])
    rows, columns = rng.integers(100, 20_000, size=2).tolist()
    costs = StepCosts(6, latency, bandwidth, 6 * one, recovery=3)

    def seconds(machines):
        several = replace(costs, machines=machines, rate=machines * one)
        return several.overhead(rows, columns) + several.computation(rows, columns)

    best = costs.most_machines(rows, columns)
    least = min(map(seconds, range(3, 3000)))
    assert best >= 3
    assert seconds(best) <= 1.01 * least
