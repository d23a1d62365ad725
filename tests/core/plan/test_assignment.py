"""Algorithm 1, the cyclic scheme, and assignments."""

import copy
import pickle
from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.plan.assignment import Assignment, Block
from cec_mpi.core.plan.load import whole_row_load
from cec_mpi.core.plan.schemes import assign_cyclically, assign_loads, order_blocks
from cec_mpi.errors import InfeasibleError, InputError


def assigned_rows(assignment, machine):
    """Return the rows of the blocks of a machine."""
    blocks = [block for block in assignment.blocks if machine in block.machines]
    return sorted(row for block in blocks for row in range(block.start, block.stop))


@st.composite
def feasible_loads(draw):
    """Draw machines, loads up to R rows with sum machines_per_row * R, and machines_per_row."""
    machines = draw(st.integers(1, 9))
    machines_per_row = draw(st.integers(1, machines))
    rows = draw(st.integers(1, draw(st.sampled_from([2, 6, 50, 10_000]))))
    loads = [draw(st.integers(0, rows)) for _ in range(machines)]
    missing = machines_per_row * rows - sum(loads)
    for n in draw(st.permutations(range(machines))):
        change = max(-loads[n], min(rows - loads[n], missing))
        loads[n] += change
        missing -= change
    available = sorted(draw(st.sets(st.integers(1, 40), min_size=machines, max_size=machines)))
    return tuple(available), loads, machines_per_row


@st.composite
def assignments(draw):
    """Draw an assignment whose blocks are in any order along the rows."""
    available, loads, machines_per_row = draw(feasible_loads())
    blocks = assign_loads(available, loads, machines_per_row).blocks
    starts, stops, row = [0] * len(blocks), [0] * len(blocks), 0
    for f in draw(st.permutations(range(len(blocks)))):
        starts[f], row = row, row + blocks[f].stop - blocks[f].start
        stops[f] = row
    return Assignment(available, loads, starts, stops, [block.machines for block in blocks])


# --- schemes ------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.sets(st.integers(1, 50), min_size=1, max_size=12), st.data(), st.integers(1, 60))
def test_cyclic_blocks_and_loads(machines, data, rows):
    available, count = sorted(machines), len(machines)
    machines_per_row = data.draw(st.integers(1, count))
    assignment = assign_cyclically(available, machines_per_row, rows)
    bounds = [b * rows // count for b in range(count + 1)]
    assert assignment.blocks == tuple(
        Block(
            bounds[b],
            bounds[b + 1],
            tuple(sorted(available[(b + k) % count] for k in range(machines_per_row))),
        )
        for b in range(count)
        if bounds[b] < bounds[b + 1]
    )
    assert assignment.loads.tolist() == [len(assigned_rows(assignment, n)) for n in available]
    assert assignment.loads.max() - assignment.loads.min() <= 1


@pytest.mark.parametrize(
    ("scheme", "arguments", "error", "message"),
    [
        (assign_loads, ((1, 2, 3), [3, 2, 2], 2), InputError, "sum 7 cannot be met"),
        (assign_loads, ((1, 2, 3), [4, 1, 1], 2), InputError, "sum 6 cannot be met"),
        (assign_loads, ((1, 2, 3, 4), [3, 3, 1, -1], 2), InputError, "sum 6 cannot be met"),
        (assign_loads, ((1, 2, 3), [0, 0, 0], 2), InputError, "sum 0 cannot be met"),
        (assign_loads, ((1, 2), [3, 2, 1], 2), InputError, "3 loads for 2 available machines"),
        (assign_loads, ((3, 1, 2), [3, 2, 1], 2), InputError, "numbers in ascending order"),
        (assign_loads, ((1, 2), [3, 2], 4), InfeasibleError, "2 machines available: each row"),
        (assign_cyclically, ((1, 2), 4, 3), InfeasibleError, "2 machines available: each row"),
    ],
)
def test_invalid_arguments_of_schemes_are_rejected(scheme, arguments, error, message):
    with pytest.raises(error, match=message):
        scheme(*arguments)


# --- the order of blocks along the rows: few intervals for each machine ------------------------


@pytest.mark.parametrize(
    ("available", "expected"),
    [((1, 2, 3, 4, 5, 6), 7), ((1, 2, 3, 5, 6), 6), ((1, 2, 3, 5), 5), ((2, 3, 5), 3)],
)
def test_the_example_of_the_paper_has_the_fewest_intervals(available, expected):
    speeds = (2, 2, 3, 3, 4, 4)  # the example of the paper, Section III
    loads = whole_row_load([speeds[n - 1] for n in available], 3, 420)
    assignment = assign_loads(available, loads, 3)
    counts = [
        3
        + sum(len(set(after.machines) - set(before.machines)) for before, after in pairwise(order))
        for order in permutations(assignment.blocks)
    ]
    assert sum(len(assignment.intervals(n)) for n in available) == expected == min(counts)


@pytest.mark.parametrize(
    ("blocks", "machines_per_row"), [(1, 9), (40, 1), (40, 40), (250, 9), (300, 9), (3000, 40)]
)
def test_neighbouring_blocks_share_machines(blocks, machines_per_row):
    """The order is a greedy path, or for more than 256 blocks by the most frequent machines."""
    rng = np.random.default_rng(blocks)
    available = np.sort(rng.choice(np.arange(1, 500), 60, replace=False))
    machines = np.array(
        [np.sort(rng.choice(available, machines_per_row, replace=False)) for _ in range(blocks)],
        dtype=np.int32,
    )
    sets = [set(block) for block in machines.tolist()]
    if blocks <= 256:
        expected, remaining = [0], list(range(1, blocks))
        while remaining:
            last = sets[expected[-1]]
            expected.append(max(remaining, key=lambda block: len(sets[block] & last)))
            remaining.remove(expected[-1])
    else:
        counts = Counter(machines.ravel().tolist())
        keys = [sorted((-counts[machine], machine) for machine in block)[:8] for block in sets]
        expected = sorted(range(blocks), key=keys.__getitem__)
    assert order_blocks(machines, available.tolist()).tolist() == expected


# --- assignments --------------------------------------------------------------------------


def small_assignment(**changes):
    fields = {
        "available": (1, 2, 4),
        "loads": [3, 2, 1],
        "starts": [0, 1],
        "stops": [1, 3],
        "machines": [[1, 4], [1, 2]],
    }
    return Assignment(**{**fields, **changes})


@settings(max_examples=60)
@given(assignments())
def test_intervals_are_the_merged_rows_of_each_machine(assignment):
    machines = range(1, assignment.available[-1] + 2)
    intervals = {machine: assignment.intervals(machine) for machine in machines}
    counts = assignment.row_counts(machines[-1])
    for machine in machines:
        rows = assigned_rows(assignment, machine)
        assert [row for start, stop in intervals[machine] for row in range(start, stop)] == rows
        assert all(before[1] < after[0] for before, after in pairwise(intervals[machine]))
        assert assignment.row_count(machine) == counts[machine - 1] == len(rows)
    all_intervals = assignment.all_intervals()
    assert all_intervals == {n: intervals[n] for n in assignment.available}
    assert intervals == {n: assignment.intervals(n) for n in machines}  # cached


@settings(max_examples=60)
@given(assignments())
def test_positions_are_those_of_blocks_in_concatenated_answers(assignment):
    answers = [(n, row) for n in assignment.available for row in assigned_rows(assignment, n)]
    for block, positions in zip(assignment.blocks, assignment.positions.tolist(), strict=True):
        rows = range(block.start, block.stop)
        for machine, position in zip(block.machines, positions, strict=True):
            assert answers[position : position + len(rows)] == [(machine, row) for row in rows]


def test_positions_do_not_depend_on_large_machine_numbers():
    small_numbers = assign_loads((1, 2, 3, 5), [4, 4, 6, 7], 3)
    large_numbers = assign_loads((5, 65_536, 65_537, 200_000), [4, 4, 6, 7], 3)
    assert np.array_equal(small_numbers.positions, large_numbers.positions)


@given(assignments())
def test_an_assignment_is_restored_from_its_array_pickle_or_copy(assignment):
    array = assignment.to_array()
    assert (array.dtype, array.ndim) == (np.int64, 1)
    pickled = pickle.loads(pickle.dumps(assignment))
    for restored in (Assignment.from_array(array), pickled, copy.deepcopy(assignment)):
        assert restored == assignment
        assert hash(restored) == hash(assignment)
        assert restored.blocks == assignment.blocks
        assert restored.loads.tolist() == assignment.loads.tolist()


def test_an_invalid_array_is_rejected():
    array = small_assignment().to_array()
    with pytest.raises(InputError, match=f"{array.size - 1} numbers: expected {array.size}"):
        Assignment.from_array(array[:-1])
    with pytest.raises(InputError, match="2 numbers: expected at least 3"):
        Assignment.from_array(array[:2])
    array[-1] = 9
    with pytest.raises(InputError, match="not available"):
        Assignment.from_array(array)


@pytest.mark.parametrize("is_writeable", [True, False], ids=["array", "read-only view"])
def test_an_assignment_is_immutable(is_writeable):
    loads = np.array([3, 2, 1])
    argument = loads[:]
    argument.flags.writeable = is_writeable
    assignment = small_assignment(loads=argument)
    loads[0] = 99
    array = assignment.to_array()
    restored = Assignment.from_array(array)
    array[:] = 0
    assert assignment == restored == small_assignment()
    assert assignment != small_assignment(starts=[2, 0], stops=[3, 2])
    assert argument.flags.writeable == is_writeable
    for name in ("loads", "starts", "stops", "machines", "positions"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(assignment, name)[0] = 0
    with pytest.raises(AttributeError):
        assignment.rows = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"starts": [0, 2]}, "do not partition"),
        ({"starts": [0, 0], "stops": [0, 3], "loads": [3, 3, 0]}, "do not partition"),
        ({"stops": [1, 4]}, "machine 1 is assigned 4 rows: expected 3"),
        ({"machines": [[1, 1], [1, 2]]}, "twice or out of order"),
        ({"machines": [[1, 5], [1, 2]]}, "not available"),
        ({"machines": [[0, 4], [1, 2]]}, "not available"),
        ({"machines": [[1, 3], [1, 2]]}, "machine 3 is assigned 1 row: expected 0"),
        ({"machines": [[1, 2**32 + 2]]}, "too large"),
        ({"loads": [3, 2]}, "2 loads for 3 available machines"),
        ({"loads": [3.0, 2.0, 1.0]}, "loads of an assignment are float64: expected whole numbers"),
        ({"available": ()}, "expected positive numbers in ascending order"),
        ({"stops": [3]}, r"shapes \(2,\) and \(1,\): expected two vectors"),
        ({"machines": [[1, 4]]}, r"shape \(1, 2\): expected \(2, 2\)"),
        ({"starts": [], "stops": [], "machines": np.zeros((0, 2))}, r"shape \(0, 2\)"),
    ],
)
def test_invalid_assignments_are_rejected(changes, message):
    with pytest.raises(InputError, match=message):
        small_assignment(**changes)


def test_one_invalid_block_of_many_is_rejected():
    blocks = 300_000
    starts, machines = np.arange(blocks), np.tile((1, 2), (blocks, 1))
    machines[-1] = 2, 1
    with pytest.raises(InputError, match="block"):
        Assignment((1, 2, 3), [1, 1, 1], starts, starts + 1, machines)
