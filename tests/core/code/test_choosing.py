"""Of more than L machines those are chosen that decode best."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.core.code.mds import make_code


def norm(generator, machines):
    return np.linalg.norm(np.linalg.inv(generator[[n - 1 for n in machines]]))


def best(generator, machines, recovery):
    return min(norm(generator, some) for some in combinations(machines, recovery))


@given(
    size=st.sampled_from([(6, 3), (10, 5), (20, 16), (9, 1)]),
    family=st.sampled_from(["fourier", "gaussian"]),
    seed=st.integers(0, 100),
)
def test_with_one_to_spare_no_set_is_better(size, family, seed):
    code = make_code(*size, family)
    rng = np.random.default_rng(seed)
    given_ = 1 + rng.choice(code.machines, code.recovery + 1, replace=False)
    chosen = choose_machines(code.generator, given_.tolist())
    assert list(chosen) == sorted(set(chosen) & set(given_.tolist()))
    assert len(chosen) == code.recovery
    expected = best(code.generator, given_, code.recovery)
    assert norm(code.generator, chosen) <= 1.000001 * expected


@pytest.mark.parametrize("spare", [2, 3, 4])
def test_with_more_to_spare_it_is_close_to_the_best(spare):
    code = make_code(12, 6, "gaussian")
    ratios = []
    for seed in range(30):
        machines = 1 + np.random.default_rng(seed).choice(12, 6 + spare, replace=False)
        chosen = choose_machines(code.generator, machines.tolist())
        ratios.append(norm(code.generator, chosen) / best(code.generator, machines, 6))
    assert max(ratios) < 2
    assert np.median(ratios) < 1.05


def test_without_a_choice_all_are_chosen_and_singular_ones_too():
    assert choose_machines(make_code(7, 4).generator, (6, 1, 7, 3)) == (1, 3, 6, 7)
    generator = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [0.0, 0.0]])
    assert len(choose_machines(generator, (1, 2, 3, 4))) == 2
