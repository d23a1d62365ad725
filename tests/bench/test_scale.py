"""The model of what a step costs with few ranks and with many."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.bench.steps.scale import Scale, fit, fitted, modelled, sizes
from cec_mpi.errors import InputError
from cec_mpi.processes.places import Place

SHAPES = ("small", "tall", "wide")


@pytest.mark.parametrize("wire", ["collectives", "messages"])
@pytest.mark.parametrize(
    "costs", [[2e-4, 1e-5, 5e-5, 1e-9], [3e-4, 8e-5, 0.0, 2e-10], [0.0, 0.0, 1e-3, 1e-8]]
)
def test_a_fit_finds_the_model_that_steps_were_made_with(costs, wire):
    other = "messages" if wire == "collectives" else "collectives"
    made = {
        (ranks, wire, shape): modelled(costs, wire, ranks, shape, recovery=3)
        for ranks in sizes(64)
        for shape in SHAPES
    }
    made |= {(ranks, other, shape): 1.0 for ranks in sizes(64) for shape in SHAPES}
    found = fit(made, wire, recovery=3)
    assert min(found) >= 0
    for (ranks, which, shape), seconds in made.items():
        if which == wire:
            again = modelled(found, wire, ranks, shape, recovery=3)
            assert again == pytest.approx(seconds, rel=1e-6)
    if wire == "collectives":  # by messages as many are waited for with each number of ranks
        np.testing.assert_allclose(found, costs, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("cores", "nodes", "numbers", "said"),
    [
        (2, 1, [2, 4, 8, 12], "2 to 12 ranks, of which some share cores"),
        (4, 1, [2, 4], "2 to 4 ranks, each with a core of its own"),
        (64, 1, [2, 4, 8, 12], "2 to 12 ranks, each with a core of its own"),
        (4, 3, [2, 4, 8, 12], "2 to 12 ranks, each with a core of its own"),  # taken in turn
    ],
)
def test_the_model_is_fitted_to_ranks_that_share_no_core(cores, nodes, numbers, said):
    places = [
        Place(f"node{rank % nodes}", 12 // nodes, cores, cores, node=rank % nodes)
        for rank in range(12)
    ]
    assert fitted(sizes(12), places) == (numbers, said)


def test_too_few_ranks_are_refused():
    with pytest.raises(InputError, match="bench scale with 3 ranks: expected at least 4"):
        Scale().check(3)
