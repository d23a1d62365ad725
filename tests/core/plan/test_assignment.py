"""Algorithm 1, the cyclic baseline, and the Assignment that both return."""

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.paper import algorithm_1
from cec_mpi.core.plan.assignment import Assignment, Block
from cec_mpi.core.plan.load import whole_row_load
from cec_mpi.core.plan.schemes import cyclic, heterogeneous
from cec_mpi.errors import InfeasibleError, InputError

both_schemes = pytest.mark.parametrize(
    "plan",
    [
        lambda available, machines_per_row: heterogeneous(
            available, [3, 2, 1][: len(available)], machines_per_row
        ),
        lambda available, machines_per_row: cyclic(available, machines_per_row, 3),
    ],
    ids=["heterogeneous", "cyclic"],
)


def blocks_of_the_paper(available, loads, machines_per_row):
    """[(alpha_f, P_f)]."""
    blocks = algorithm_1(dict(zip(available, loads, strict=True)), machines_per_row)
    return [(block.alpha, set(block.P)) for block in blocks]


def sizes_and_sets(plan):
    return [(block.stop - block.start, set(block.machines)) for block in plan.blocks]


def rows_of(plan, machine):
    """Rows of one machine, straight from the blocks."""
    mine = [block for block in plan.blocks if machine in block.machines]
    return sorted(row for block in mine for row in range(block.start, block.stop))


@st.composite
def fillable(draw):
    """(available, loads, machines_per_row): loads of at most R, machines_per_row * R in sum."""
    machines = draw(st.integers(1, 9))
    machines_per_row = draw(st.integers(1, machines))
    rows = draw(st.integers(1, draw(st.sampled_from([2, 6, 50, 10_000]))))
    loads = [draw(st.integers(0, rows)) for _ in range(machines)]
    short = machines_per_row * rows - sum(loads)
    for n in draw(st.permutations(range(machines))):
        step = max(-loads[n], min(rows - loads[n], short))
        loads[n] += step
        short -= step
    available = sorted(draw(st.sets(st.integers(1, 40), min_size=machines, max_size=machines)))
    return tuple(available), loads, machines_per_row


@st.composite
def planned(draw):
    """(available, loads, machines_per_row) with the optimal loads of machines of any speeds."""
    speed = draw(st.sampled_from([st.integers(1, 3), st.floats(0.5, 8), st.floats(1e-9, 1e9)]))
    speeds = draw(st.lists(speed, min_size=1, max_size=9))
    machines_per_row = draw(st.integers(1, len(speeds)))
    loads = whole_row_load(speeds, machines_per_row, draw(st.integers(1, 500)))
    return tuple(range(1, len(speeds) + 1)), loads.tolist(), machines_per_row


# --- Algorithm 1 --------------------------------------------------------------------------


@settings(max_examples=120)
@given(st.one_of(fillable(), planned()))
def test_algorithm_1_keeps_its_promises_and_is_the_one_of_the_paper(case):
    available, loads, machines_per_row = case
    plan = heterogeneous(available, loads, machines_per_row)
    rows = sum(loads) // machines_per_row
    blocks = plan.blocks
    assert len(blocks) <= len(available)
    assert all(len(set(block.machines)) == machines_per_row for block in blocks)
    assert all(block.stop - block.start >= 1 for block in blocks)
    along = sorted(blocks, key=lambda block: block.start)
    assert [block.start for block in along] == [0, *(block.stop for block in along[:-1])]
    assert along[-1].stop == rows == plan.rows
    met = dict.fromkeys(available, 0)
    for block in blocks:
        for n in block.machines:
            met[n] += block.stop - block.start
    assert list(met.values()) == loads == plan.loads.tolist()
    assert sizes_and_sets(plan) == blocks_of_the_paper(available, loads, machines_per_row)


@pytest.mark.parametrize("machines_per_row", [1, 10, 150, 299])
@pytest.mark.parametrize("fastest", [1, 1000])
def test_algorithm_1_of_many_machines_is_the_one_of_the_paper(machines_per_row, fastest):
    speeds = np.random.default_rng(machines_per_row).integers(1, fastest + 1, 300)
    loads = whole_row_load(speeds, machines_per_row, 1000)
    everyone = tuple(range(1, 301))
    plan = heterogeneous(everyone, loads, machines_per_row)
    assert sizes_and_sets(plan) == blocks_of_the_paper(everyone, loads.tolist(), machines_per_row)


def test_more_rows_than_memory_holds_do_not_overflow():
    plan = heterogeneous((1, 2, 3), [2**61] * 3, 2)
    assert sizes_and_sets(plan) == [(2**60, {1, 3}), (2**60, {1, 2}), (2**60, {2, 3})]


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param([3, 2, 2], id="sum is no multiple of the machines_per_row"),
        pytest.param([4, 1, 1], id="more rows than there are on one machine"),
        pytest.param([3, 3, 1, -1], id="negative"),
        pytest.param([0, 0, 0], id="no rows"),
    ],
)
def test_loads_that_no_assignment_meets_are_refused(loads):
    with pytest.raises(InputError, match=f"sum {sum(loads)} cannot be met"):
        heterogeneous(tuple(range(1, len(loads) + 1)), loads, 2)


@both_schemes
@pytest.mark.parametrize(("available", "machines_per_row"), [((1, 2), 4), ((), 1)])
def test_fewer_machines_than_a_row_needs_are_infeasible(plan, available, machines_per_row):
    message = f"{len(available)} machines available: each row needs {machines_per_row}"
    with pytest.raises(InfeasibleError, match=message) as caught:
        plan(available, machines_per_row)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("scheme", "arguments", "message"),
    [
        (heterogeneous, ((1, 2), [3, 2, 1], 2), "3 loads for 2 available machines"),
        (heterogeneous, ((3, 1, 2), [3, 2, 1], 2), "expected ascending numbers from 1"),
        (cyclic, ((1, 1, 2), 2, 3), "expected ascending numbers from 1"),
        (cyclic, ((1, 2), 1, 0), "0 rows per shard"),
    ],
)
def test_what_a_scheme_cannot_assign_is_refused(scheme, arguments, message):
    with pytest.raises(InputError, match=message):
        scheme(*arguments)


# --- the cyclic baseline ------------------------------------------------------------------


@settings(max_examples=60)
@given(st.sets(st.integers(1, 50), min_size=1, max_size=12), st.data(), st.integers(1, 60))
def test_cyclic_blocks_and_loads(numbers, data, rows):
    available = sorted(numbers)
    count = len(available)
    machines_per_row = data.draw(st.integers(1, count))
    plan = cyclic(available, machines_per_row, rows)
    bounds = [b * rows // count for b in range(count + 1)]
    assert plan.blocks == tuple(
        Block(
            bounds[b],
            bounds[b + 1],
            tuple(sorted(available[(b + k) % count] for k in range(machines_per_row))),
        )
        for b in range(count)
        if bounds[b] < bounds[b + 1]
    )
    assert plan.loads.tolist() == [len(rows_of(plan, n)) for n in available]
    assert plan.loads.max() - plan.loads.min() <= 1
    assert plan.loads.sum() == machines_per_row * rows


# --- the Assignment -----------------------------------------------------------------------


def small_plan(**changes):
    fields = {
        "available": (1, 2, 4),
        "loads": [3, 2, 1],
        "starts": [0, 1],
        "stops": [1, 3],
        "machines": [[1, 4], [1, 2]],
    }
    return Assignment(**{**fields, **changes})


@st.composite
def assignments(draw):
    """Assignments with their blocks in any place along the rows."""
    available, loads, machines_per_row = draw(fillable())
    blocks = heterogeneous(available, loads, machines_per_row).blocks
    along = draw(st.permutations(range(len(blocks))))
    starts, stops, row = [0] * len(blocks), [0] * len(blocks), 0
    for f in along:
        starts[f], row = row, row + blocks[f].stop - blocks[f].start
        stops[f] = row
    return Assignment(available, loads, starts, stops, [block.machines for block in blocks])


@settings(max_examples=60)
@given(assignments())
def test_intervals_are_the_rows_of_a_machine_merged_and_ascending(plan):
    alone = [plan.intervals(machine) for machine in range(1, max(plan.available) + 2)]
    for machine, intervals in enumerate(alone, start=1):
        assert [row for start, stop in intervals for row in range(start, stop)] == rows_of(
            plan, machine
        )
        assert all(start < stop for start, stop in intervals)
        assert all(before[1] < after[0] for before, after in pairwise(intervals))
        assert plan.count(machine) == sum(stop - start for start, stop in intervals)
    assert alone == [plan.intervals(machine) for machine in range(1, plan.available[-1] + 2)]
    assert plan.all_intervals() == {n: plan.intervals(n) for n in plan.available}


@settings(max_examples=60)
@given(assignments())
def test_positions_find_each_blocks_answers_in_the_answers_of_all_machines(plan):
    answers = [(n, row) for n in plan.available for row in rows_of(plan, n)]
    for block, positions in zip(plan.blocks, plan.positions.tolist(), strict=True):
        for machine, position in zip(block.machines, positions, strict=True):
            size = block.stop - block.start
            assert answers[position : position + size] == [
                (machine, row) for row in range(block.start, block.stop)
            ]


def test_positions_with_machine_numbers_beyond_16_bits():
    near = heterogeneous((1, 2, 3, 5), [4, 4, 6, 7], 3)
    far = heterogeneous((5, 65_536, 65_537, 200_000), [4, 4, 6, 7], 3)
    assert np.array_equal(near.positions, far.positions)


@given(assignments())
def test_an_assignment_survives_the_wire(plan):
    array = plan.to_array()
    again = Assignment.from_array(array)
    assert array.dtype == np.int64
    assert array.ndim == 1
    assert again == plan
    assert again.blocks == plan.blocks
    assert again.available == plan.available
    assert again.loads.tolist() == plan.loads.tolist()


def test_what_comes_off_the_wire_is_checked():
    array = small_plan().to_array()
    with pytest.raises(InputError, match=f"{array.size - 1} numbers: expected {array.size}"):
        Assignment.from_array(array[:-1])
    array[-1] = 9
    with pytest.raises(InputError, match="not available"):
        Assignment.from_array(array)


def test_assignments_are_compared_and_hashed_by_value_also_as_copies():
    plan = small_plan()
    pickled = pickle.loads(pickle.dumps(plan))
    for again in (small_plan(), copy.copy(plan), copy.deepcopy(plan), pickled):
        assert plan == again
        assert hash(plan) == hash(again)
    for changes in (
        {"starts": [2, 0], "stops": [3, 2]},
        {"available": (1, 2, 5), "machines": [[1, 5], [1, 2]]},
        {"available": (1, 2, 3, 4), "loads": [3, 2, 0, 1]},
    ):
        assert plan != small_plan(**changes)
    assert plan != plan.blocks


@pytest.mark.parametrize("name", ["rows", "loads", "blocks", "something"])
def test_attributes_of_an_assignment_cannot_be_set(name):
    with pytest.raises(AttributeError):
        setattr(small_plan(), name, 1)


@pytest.mark.parametrize("name", ["loads", "starts", "stops", "machines", "positions"])
def test_arrays_of_an_assignment_cannot_be_changed(name):
    array = getattr(small_plan(), name)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0


@pytest.mark.parametrize("writeable", [True, False], ids=["array", "read-only view"])
def test_an_assignment_keeps_no_hold_on_what_it_was_made_of(writeable):
    loads = np.array([3, 2, 1])
    given_loads = loads[:]
    given_loads.flags.writeable = writeable
    plan = small_plan(loads=given_loads)
    loads[0] = 99
    array = plan.to_array()
    again = Assignment.from_array(array)
    array[:] = 0
    assert plan == again == small_plan()
    assert given_loads.flags.writeable == writeable


def test_counts_are_zero_for_preempted_machines():
    plan = small_plan()
    assert [plan.count(n) for n in (1, 2, 3, 4, 5)] == [3, 2, 0, 1, 0]
    assert plan.counts(6).tolist() == [3, 2, 0, 1, 0, 0]
    assert plan.intervals(3) == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"starts": [0, 2]}, "do not partition"),
        ({"starts": [0, 0]}, "do not partition"),
        ({"stops": [0, 3]}, "do not partition"),
        ({"starts": [0, 0], "stops": [0, 3], "loads": [3, 3, 0]}, "do not partition"),
        ({"starts": [0, 1], "stops": [1, 0]}, "do not partition"),
        ({"stops": [1, 4]}, "machine 1 is assigned 4 rows: expected 3"),
        ({"machines": [[1, 1], [1, 2]]}, "twice or out of order"),
        ({"machines": [[4, 1], [1, 2]]}, "twice or out of order"),
        ({"machines": [[1, 5], [1, 2]]}, "not available"),
        ({"machines": [[0, 4], [1, 2]]}, "not available"),
        ({"machines": [[1, 3], [1, 2]]}, "machine 3 is assigned 1 row: expected 0"),
        ({"loads": [3, 2]}, "2 loads for 3 available machines"),
        ({"available": ()}, "expected ascending numbers from 1"),
        ({"available": (0, 1, 2)}, "expected ascending numbers from 1"),
        ({"available": (1, 4, 2)}, "expected ascending numbers from 1"),
        ({"stops": [3]}, "2 starts and 1 stops"),
        ({"starts": [[0, 1]], "stops": [[1, 3]]}, "starts"),
        ({"machines": [[1, 4]]}, r"shape \(1, 2\): expected \(2, 2\)"),
        ({"machines": [[], []]}, r"shape \(2, 0\)"),
        ({"starts": [], "stops": [], "machines": np.zeros((0, 2))}, r"shape \(0, 2\)"),
    ],
)
def test_an_assignment_that_is_not_one_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        small_plan(**changes)


@pytest.mark.parametrize("wrong", [(1, 4), (2, 2), (2, 1)])
def test_one_wrong_block_among_very_many_is_refused(wrong):
    blocks = 300_000
    machines = np.tile((1, 2), (blocks, 1))
    machines[-1] = wrong
    starts = np.arange(blocks)
    with pytest.raises(InputError, match="block"):
        Assignment((1, 2, 3), [1, 1, 1], starts, starts + 1, machines)


def test_machine_numbers_beyond_32_bits_are_refused():
    with pytest.raises(InputError, match="too large"):
        Assignment((1, 2), [1, 1], [0], [1], [[1, 2**32 + 2]])
