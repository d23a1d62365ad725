"""The worst set of machines is found where there are too many to measure them all."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.code.conditioning import measure_conditioning, search_worst
from cec_mpi.core.code.families import FAMILIES, matrices_of
from cec_mpi.core.code.mds import make_code

SMALL = 0.01  # of the effort


def exact_worst(generator):
    sets = np.array(list(combinations(range(len(generator)), generator.shape[1])))
    with np.errstate(divide="ignore"):
        numbers = np.linalg.cond(generator[sets])
    return tuple(sets[numbers.argmax()].tolist()), numbers.max()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("systematic", [False, True])
@pytest.mark.parametrize(("machines", "recovery"), [(6, 3), (9, 4), (12, 6), (14, 9), (9, 8)])
def test_the_worst_of_all_sets_is_found(family, systematic, machines, recovery):
    for generator in matrices_of(family, machines, recovery, systematic, seed=1)[:1]:
        _, number = exact_worst(generator)
        found = search_worst(generator, SMALL)
        assert found.number == pytest.approx(number, rel=1e-3)
        assert np.linalg.cond(generator[list(found.rows)]) == pytest.approx(number, rel=1e-3)


@given(st.data())
def test_a_search_finds_a_set_and_none_worse_than_the_worst(data):
    recovery = data.draw(st.integers(1, 5), "recovery")
    machines = data.draw(st.integers(recovery + 1, recovery + 5), "machines")
    entries = st.floats(-4, 4, width=32).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
    numbers = data.draw(
        st.lists(entries, min_size=machines * recovery, max_size=machines * recovery)
    )
    generator = np.array(numbers).reshape(machines, recovery)
    found = search_worst(generator, SMALL)
    assert list(found.rows) == sorted(set(found.rows))
    assert len(found.rows) == recovery
    assert 0 <= found.rows[0] <= found.rows[-1] < machines
    _, number = exact_worst(generator)
    worst = min(number, 1e15)  # from there on rounding decides
    assert found.number >= 0.99 * worst or found.number > 1e15
    assert found.number <= number * 1.001 or found.number > 1e15


@pytest.mark.parametrize("where", [(0, 1, 2), (3, 40, 59), (57, 58, 59)])
def test_rows_that_nearly_depend_on_each_other_are_found(where):
    rng = np.random.default_rng(3)
    generator = rng.standard_normal((60, 8))
    generator[where[2]] = generator[where[0]] - generator[where[1]]
    generator[where[2]] += 1e-9 * rng.standard_normal(8)
    found = search_worst(generator, 0.2)
    assert set(where) <= set(found.rows)
    assert found.number > 1e9


@pytest.mark.parametrize(
    ("machines", "recovery", "known"),
    [(30, 15, 2.0e6), (100, 10, 5.5e6)],
)
def test_sets_that_a_sample_misses_are_found(machines, recovery, known):
    (generator, *_) = matrices_of("orthonormal", machines, recovery, False, seed=0)
    found = measure_conditioning(generator)
    assert not found.complete
    assert found.worst > known
    worst = generator[[n - 1 for n in found.worst_machines]]
    assert np.linalg.cond(worst) == pytest.approx(found.worst, rel=1e-3)
    assert found.searched > found.measured


def test_a_known_set_is_taken_where_nothing_worse_is_found():
    rng = np.random.default_rng(5)
    generator = rng.standard_normal((300, 60))
    known = np.sort(rng.choice(300, 60, replace=False))
    generator[known[7]] = rng.standard_normal(59) @ generator[np.delete(known, 7)]
    generator[known[7]] += 1e-12 * rng.standard_normal(60)
    assert search_worst(generator, 1e-3).rows != tuple(known)
    assert search_worst(generator, 1e-3, known[None]).rows == tuple(known)


@pytest.mark.parametrize(
    "generator",
    [
        pytest.param(np.ones((9, 3)), id="equal rows"),
        pytest.param(np.zeros((9, 3)), id="zeros"),
        pytest.param(np.vander(np.arange(40.0), 20), id="entries up to 1e30"),
        pytest.param(np.vstack((np.eye(20), np.eye(20))), id="each row twice"),
        pytest.param(1e-310 * np.arange(12.0).reshape(6, 2) ** 2, id="subnormal"),
        pytest.param(1e300 * np.arange(1.0, 13.0).reshape(6, 2) ** 2, id="large"),
    ],
)
def test_matrices_that_are_no_code_have_a_worst_set_too(generator):
    found = search_worst(generator, SMALL)
    assert found.number > 10
    assert len(found.rows) == generator.shape[1]


def test_what_is_found_is_the_same_each_time():
    (generator, *_) = matrices_of("gaussian", 50, 20, False, seed=0)
    assert search_worst(generator, 0.1) == search_worst(generator, 0.1)


def test_auto_is_no_worse_than_a_family_where_sets_are_searched():
    auto = make_code(24, 12).conditioning
    assert not auto.complete
    assert auto.worst <= make_code(24, 12, "gaussian").conditioning.worst
