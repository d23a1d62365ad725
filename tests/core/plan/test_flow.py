"""Maximum flows with capacities of more than 32 bits."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from cec_mpi.core.plan.flow import Network


@st.composite
def networks(draw):
    groups, machines = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    pairs = [(g, n) for g in range(groups) for n in range(machines)]
    pairs = draw(st.lists(st.sampled_from(pairs), unique=True))
    sizes = draw(st.lists(st.integers(1, 30), min_size=groups, max_size=groups))
    needed = draw(st.lists(st.integers(1, 3), min_size=groups, max_size=groups))
    capacities = draw(st.lists(st.integers(0, 40), min_size=machines, max_size=machines))
    return (
        np.multiply(sizes, needed),
        np.array([sizes[g] for g, _ in pairs], int),
        pairs,
        capacities,
    )


@example((np.array([9]), np.array([3, 3, 3]), [(0, 0), (0, 1), (0, 2)], [5, 2, 3]), 2**45 + 7)
@given(
    networks(), st.integers(0, 6).flatmap(lambda odd: st.sampled_from([2**27 + odd, 2**45 + odd]))
)
def test_the_maximum_flow_is_proportional_to_all_capacities(network, factor):
    supplies, pair_capacities, pairs, capacities = network
    machines, capacities = len(capacities), np.array(capacities)
    small = Network(supplies, pair_capacities, pairs, machines).max_flow(capacities)
    network = Network(supplies * factor, pair_capacities * factor, pairs, machines)
    flow = network.max_flow(capacities * factor)
    assert flow.sum() == small.sum() * factor
    assert ((flow >= 0) & (flow <= pair_capacities * factor)).all()
    group, machine = np.array(pairs, int).reshape(-1, 2).T
    assert (np.bincount(group, flow, supplies.size) <= supplies * factor).all()
    assert (np.bincount(machine, flow, machines) <= capacities * factor).all()
