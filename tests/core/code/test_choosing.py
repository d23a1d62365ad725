"""The choice of well-conditioned machines, and extension of a code by one machine."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.code.conditioning import choose_machines, measure_conditioning
from cec_mpi.core.code.extension import add_row
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import InputError


def inverse_norm(generator, machines):
    return np.linalg.norm(np.linalg.inv(generator[np.array(machines) - 1]))


def assess_choice(code, redundancy, seed):
    """Choose L of L + `redundancy` machines; return their inverse norm relative to the best."""
    rng = np.random.default_rng(seed)
    machines = 1 + rng.choice(code.machines, code.recovery + redundancy, replace=False)
    chosen = choose_machines(code.generator, machines.tolist())
    assert list(chosen) == sorted(set(chosen) & set(machines.tolist()))
    subsets = combinations(machines, code.recovery)
    best = min(inverse_norm(code.generator, subset) for subset in subsets)
    return inverse_norm(code.generator, chosen) / best


@given(
    size=st.sampled_from([(6, 3), (10, 5), (20, 16), (9, 1)]),
    family=st.sampled_from(["fourier", "gaussian"]),
    seed=st.integers(0, 100),
)
def test_the_choice_from_l_plus_1_machines_is_optimal(size, family, seed):
    assert assess_choice(make_code(*size, family), 1, seed) <= 1.000001


@pytest.mark.parametrize("redundancy", [2, 4])
def test_the_choice_from_more_machines_is_nearly_optimal(redundancy):
    ratios = [assess_choice(make_code(12, 6, "gaussian"), redundancy, seed) for seed in range(20)]
    assert max(ratios) < 2
    assert np.median(ratios) < 1.05


def test_a_choice_needs_l_machines_whose_rows_may_be_singular():
    assert choose_machines(make_code(7, 4).generator, (6, 1, 7, 3)) == (1, 3, 6, 7)
    singular = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [0.0, 0.0]])
    assert len(choose_machines(singular, (1, 2, 3, 4))) == 2
    with pytest.raises(InputError, match="2 machines: expected at least 3"):
        choose_machines(np.ones((5, 3)), [1, 2])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("machines", "recovery"), [(3, 3), (4, 1), (6, 3), (10, 5)])
def test_a_new_row_is_as_well_conditioned_as_the_others(machines, recovery, family):
    code = make_code(machines, recovery, family)
    extended = add_row(code, np.float64)
    assert extended.machines == machines + 1
    assert np.array_equal(extended.generator[:-1], code.generator)
    assert extended.conditioning == measure_conditioning(extended.generator)
    new_code = make_code(machines + 1, recovery)
    limit = max(4 * new_code.conditioning.worst, 1.01 * code.conditioning.worst)
    assert extended.conditioning.worst <= limit


def test_six_added_rows_are_exact_repeatable_and_well_conditioned():
    code = make_code(6, 3, dtype=np.float32)
    for _ in range(6):
        extended = add_row(code, np.float32)
        row = extended.generator[-1]
        assert np.array_equal(row, row.astype(np.float32))
        assert np.array_equal(row, add_row(code, np.float32).generator[-1])
        code = extended
    assert code.conditioning.worst < 200


def test_the_worst_set_of_the_code_is_in_the_sample_of_the_extended_code():
    code = make_code(60, 4, "gaussian")
    conditioning = add_row(code, np.float64).conditioning
    assert not conditioning.complete
    ratio = conditioning.worst / code.conditioning.worst
    assert 1 - 1e-9 <= ratio <= 100
