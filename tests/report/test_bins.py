"""Bins, assignments and comparisons, checked step by step."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.plan.schemes import assign_cyclically, assign_loads, cyclic_loads
from cec_mpi.report.assignments import find_blocks, new_rows_by_machine
from cec_mpi.report.bins import bin_series
from cec_mpi.report.recorded_run import Run
from cec_mpi.report.states import STATES
from cec_mpi.runtime.records.events import KINDS
from cec_mpi.runtime.records.lines import LineFormatter
from helpers.steps import HEADER, step_of

KIND = {kind.name: index for index, kind in enumerate(KINDS)}
STATE = {state.name: index for index, state in enumerate(STATES)}


@given(st.lists(st.none() | st.floats(0, 9), max_size=40), st.sampled_from([2, 4, 8]))
def test_a_bin_has_the_minimum_median_and_maximum(values, width):
    found = bin_series(np.array(values, float), width)
    for start in range(0, len(values), width):
        known = [value for value in values[start : start + width] if value is not None]
        expected = (min(known), float(np.median(known)), max(known)) if known else (None,) * 3
        actual = tuple(found[name][start // width] for name in ("min", "median", "max"))
        assert actual == pytest.approx(expected, rel=1e-5) if known else actual == expected


@st.composite
def plans(draw):
    count = draw(st.integers(2, 7))
    available = draw(st.sets(st.integers(1, count), min_size=2).map(sorted).map(tuple))
    copies = draw(st.integers(1, len(available)))
    rows = draw(st.integers(1, 60))
    is_by_load = draw(st.booleans())
    plan = assign_cyclically(available, copies, rows)
    if is_by_load:
        plan = assign_loads(available, plan.loads, copies)
    bounds = [[x for pair in plan.intervals(n) for x in pair] for n in range(1, count + 1)]
    return plan, bounds


def rows_by_machine(bounds):
    return [
        {row for a, b in zip(pairs[::2], pairs[1::2], strict=True) for row in range(a, b)}
        for pairs in bounds
    ]


@given(plans())
def test_blocks_have_the_machines_of_their_intervals(plan_and_bounds):
    plan, bounds = plan_and_bounds
    by_row = {}
    for block in plan.blocks:
        by_row |= {row: list(block.machines) for row in range(block.start, block.stop)}
    found = {}
    for start, stop, machines in find_blocks(bounds):
        assert start < stop
        found |= dict.fromkeys(range(start, stop), machines)
    assert found == by_row


BOUNDS = st.sets(st.integers(0, 30)).map(lambda rows: sorted(rows)[: len(rows) // 2 * 2])


@given(BOUNDS, BOUNDS)
def test_moved_rows_are_new_to_the_machine(old, new):
    found = new_rows_by_machine([new], [old]).get("1", [])
    moved = [row for start, stop in found for row in range(start, stop)]
    (old_rows, new_rows) = rows_by_machine([old, new])
    assert sorted(new_rows - old_rows) == moved


LOADS = [(50, 50, 50, 50), (67, 67, 66, 0), (0, 100, 100, 0), (100, 0, 50, 50), (80, 80, 40, 0)]
EVENTS = [{"lost": 2, "reason": "gone"}, {"joined": 2, "rank": 5}, {"late": 1}, {"wrong": 4}]
EVENTS += [{"left": 3}, {"unresponsive": 1, "reason": "x"}]
REASONS = ["preempted", "late", "lost", "unresponsive", "left", "excluded", "not joined"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(LOADS),
            st.integers(1, 9),
            st.lists(st.sampled_from(EVENTS), max_size=2),
            st.integers(1, 30),
            st.sampled_from(REASONS),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sets(st.integers(1, 11), max_size=2),
)
def test_bins_of_any_run_have_the_sums_of_their_steps(tmp_path_factory, stretches, resumes):
    """Sums, cells, events and comparisons of any run, in at most 64 bins."""
    rng = np.random.default_rng(0)
    writer, steps = LineFormatter(), []
    text = writer.header(HEADER)
    for number, (rows, pace, events, count, reason) in enumerate(stretches):
        if number in resumes:
            text += writer.header(HEADER)
        for _ in range(count):
            seconds = [n * pace * rng.uniform(1, 2) / 1e4 for n in rows]
            step = step_of(len(steps), seconds=seconds, rows=rows, events=events, why=reason)
            text, events = text + writer.step(step), []
            steps.append(step)
    directory = tmp_path_factory.mktemp("run")
    (directory / "steps.jsonl").write_text(text)
    run = Run(str(directory), max_bins=64)
    width, count = run.bins.width, run.bins.count
    assert (width == 1) == (len(steps) <= 64)
    assert count == -(-len(steps) // width) <= 64
    cells = np.frombuffer(base64.b64decode(run.bins.encode_cells()), np.uint8).reshape(4, count)
    for bin_ in range(count):
        group = steps[bin_ * width : (bin_ + 1) * width]
        assert run.bins.seconds[bin_] == pytest.approx(
            np.sum([step.compute_seconds for step in group], axis=0), abs=1e-7
        )
        assert (
            run.bins.rows[bin_].tolist() == np.sum([step.rows for step in group], axis=0).tolist()
        )
        for n in range(4):
            marks = {next(iter(e)) for s in group for e in s.events if n + 1 in e.values()}
            marks &= {"lost", "wrong", "late"}
            if marks:
                assert cells[n, bin_] == min(STATE[name] for name in marks)
            elif not any(n + 1 in step.available for step in group):
                reasons = {
                    reason
                    for step in group
                    for reason, machines in step.absent_since.items()
                    if n + 1 in machines
                }
                states = {
                    STATE[reason.replace("unresponsive", "lost")]
                    for reason in reasons - {"preempted"}
                }
                assert cells[n, bin_] == min(states, default=STATE["preempted"])
            else:
                share = sum(step.rows[n] for step in group) / (100 * len(group))
                assert cells[n, bin_] == round(16 + share * 239)
    texts = {"lost": "gone", "joined": "rank 5", "unresponsive": "x"}
    assert run.events == [
        (step.step, KIND[kind], event[kind], texts.get(kind, ""))
        for step in steps
        for event in step.events
        for kind in [next(iter(event))]
    ]
    cyclic_total = sum(_slowest(step, cyclic_loads(len(step.available), 2, 100)) for step in steps)
    assert run.time_totals.compared_steps == len(steps)
    assert run.time_totals.cyclic_seconds == pytest.approx(cyclic_total, abs=1e-6)
    changes = [0] + [
        n for n in range(1, len(steps)) if steps[n].assignment != steps[n - 1].assignment
    ]
    assert run.assignments.first_steps == changes
    assert [assignment.index for assignment in run.assignments.select()] == changes


def _slowest(step, loads):
    indices = [n - 1 for n in step.available]
    return max(
        step.compute_seconds[n] / step.rows[n] * load
        for n, load in zip(indices, loads, strict=False)
    )
