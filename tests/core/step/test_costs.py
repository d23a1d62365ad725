"""What a step costs besides its products."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cec_mpi.core.step.costs import StepCosts, terms_of

BARE = StepCosts(6, 1e-4, 1e8, recovery=3, fixed=0, each=0, decode=0)


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
    costs = replace(BARE, fixed=1e-3, each=1e-4, decode=1e-8)
    more = 1e-3 + 6e-4 + 3 * 1000 * 1e-8
    assert costs.overhead(1000, 500) == pytest.approx(BARE.overhead(1000, 500) + more)
