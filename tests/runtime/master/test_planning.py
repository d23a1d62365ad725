"""Whole runs step on a clock of the test's own: no machine, no wire and no second is needed."""

from __future__ import annotations

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.demand import CodedDemand
from cec_mpi.core.plan.coded import CodedPlacement
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.speeds import FixedSpeeds, SpeedEstimator
from cec_mpi.errors import InfeasibleError
from cec_mpi.runtime.availability.models import PAPER_AVAILABLE, ListedAvailability
from cec_mpi.runtime.master.planning import StepPlanner
from cec_mpi.runtime.master.schedule import Schedule
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.roster import Roster

SPEEDS = np.array([2.0, 2.0, 3.0, 3.0, 4.0, 4.0])  # the paper's, in rows per second
EVERYONE, RECOVERY, ROWS = (1, 2, 3, 4, 5, 6), 3, 420


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def planner_of(ticks, speeds=None, rows=ROWS, **options):
    schedule = Schedule(ListedAvailability(ticks), EVERYONE, **options)
    speeds = speeds or FixedSpeeds(SPEEDS, CodedDemand(6, RECOVERY, rows))
    return StepPlanner(schedule, speeds, CodedPlacement(6), RECOVERY)


def run(steps, count, clock=None):
    """Plans and makespans of so many steps, of machines as fast as they should be."""
    for _ in range(count):
        step = steps.plan(steps.next())
        steps.begin(step)
        rows = step.plan.assignment.counts(6)
        seconds = rows / SPEEDS
        if clock is not None:
            clock.now += seconds.max()
        yield step, steps.learn(step, rows, seconds)


def test_the_papers_run_with_the_speeds_that_are_given():
    done = list(run(planner_of(PAPER_AVAILABLE), 6))
    available = [*PAPER_AVAILABLE, *PAPER_AVAILABLE[-1:] * 2]
    assert [step.available for step, _ in done] == available
    assert [step.number for step, _ in done] == list(range(6))
    for step, _ in done:
        alone = plan_step(step.available, SPEEDS, RECOVERY, ROWS)
        assert step.plan.assignment == alone.assignment
        assert step.plan.makespan == alone.makespan
    assert [step.plan_changed for step, _ in done] == [True] * 4 + [False] * 2
    assert [known.predicted for _, known in done] == [None, 84, 120, 210, 210, 210]
    assert [known.bound for _, known in done] == [None, 84, 120, 210, 210, 210]
    assert [known.hindsight for _, known in done] == pytest.approx([70, 84, 120, 210, 210, 210])


def test_speeds_are_learned_from_the_first_step_on():
    steps = planner_of(PAPER_AVAILABLE, SpeedEstimator(CodedDemand(6, RECOVERY, 42000)), rows=42000)
    (first, known), *others = run(steps, 6)
    assert first.speeds == (1.0,) * 6
    assert known.predicted is None
    for step, known in others:
        alone = plan_step(step.available, SPEEDS, RECOVERY, 42000)
        assert step.speeds == pytest.approx(SPEEDS / 3)
        np.testing.assert_allclose(
            step.plan.assignment.counts(6), alone.assignment.counts(6), atol=1
        )
        assert known.predicted == pytest.approx(alone.makespan, rel=1e-3)
        assert known.hindsight == pytest.approx(alone.bound, rel=1e-3)


def test_ticks_of_a_clock_pass_while_machines_compute_and_are_waited_for():
    clock = Clock()
    ticks = [EVERYONE, (1, 2, 3, 5, 6), (1, 2), EVERYONE]
    steps = planner_of(ticks, tick_seconds=100.0, wait=True, clock=clock)
    done, begun = [], []
    for step, known in run(steps, 4, clock):
        done.append((step.tick, step.waited_ticks))
        begun.append(clock.now - 1000 - known.hindsight)
    # 70 s each with all machines; the second begins in tick 0 too, the third finds tick 1.
    assert done == [(0, 0), (0, 0), (1, 0), (3, 1)]
    assert begun == pytest.approx([0, 70, 140, 300], abs=0.2)


def test_no_machine_is_waited_for_in_vain():
    clock = Clock()
    steps = planner_of([EVERYONE, (1, 2)], tick_seconds=10.0, wait=True, clock=clock)
    assert len(list(run(steps, 1, clock))) == 1
    with pytest.raises(InfeasibleError, match="2 machines are available at tick 7"):
        steps.next()
    assert clock.now == 1070


def test_a_step_that_was_not_begun_is_planned_again():
    steps = planner_of([(1, 2, 3), EVERYONE])
    first, again = (steps.plan(steps.next()) for _ in range(2))
    assert (first.number, first.available) == (again.number, again.available)
    assert first.plan_changed
    steps.begin(again)
    after = steps.plan(steps.next())
    assert (after.number, after.available) == (1, EVERYONE)


def test_stragglers_have_rows_computed_more_often_where_machines_are_there():
    steps = planner_of([EVERYONE])
    for more, copies in ((0, 3), (2, 5), (3, 6)):
        assert steps.plan(steps.next(more), more).plan.assignment.machines_per_row == copies
    steps = planner_of([(1, 2, 3, 4)])
    assert steps.plan(steps.next(), 2).plan.assignment.machines_per_row == 4
    with pytest.raises(InfeasibleError, match="a step needs 5"):
        steps.next(2)


def test_there_is_no_hindsight_if_answers_do_not_count():
    """Machines that were too late have shown no speed, and the best assignment would use them."""
    steps = planner_of([EVERYONE])
    steps.uses_all_answers = False
    ((_, known),) = run(steps, 1)
    assert known.hindsight is None
    steps.uses_all_answers = True
    ((_, known),) = run(steps, 1)
    assert known.hindsight == pytest.approx(70)


@pytest.mark.parametrize("speeds", ["learn", tuple(SPEEDS)])
def test_it_predicts_what_a_run_has_recorded(tmp_path, speeds):
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((1260, 50)))
    cec_mpi.encode(tmp_path / "X.npy", tmp_path / "store", 6, RECOVERY)
    records = []
    with cec_mpi.open_operator(
        tmp_path / "store",
        None,
        availability=ListedAvailability(PAPER_AVAILABLE, repeat=True),
        speeds=speeds,
        recorder=Recorder(watch=records.append),
    ) as X:
        for step in range(24):
            (X.rmatvec if step % 3 else X.matvec)(np.ones(X.shape[0 if step % 3 else 1]))
    schedule = Schedule(ListedAvailability([record.available for record in records]), EVERYONE)
    manifest = cec_mpi.open_store(tmp_path / "store").manifest
    steps = StepPlanner.of(
        manifest,
        schedule,
        None if speeds == "learn" else speeds,
        "heterogeneous",
    )
    for record in records:
        step = steps.plan(steps.next())
        steps.begin(step)
        assert step.plan_changed == record.plan_changed
        assert step.plan.assignment.counts(6).tolist() == record.rows
        step.product = Product(record.adjoint, record.columns)
        known = steps.learn(step, record.rows, record.seconds)
        assert known.predicted == record.predicted_makespan
        assert (known.bound, known.hindsight) == (record.bound, record.hindsight_makespan)


def joins(roster, machine, host):
    rank = roster.add_host(name=host).rank
    roster.assign(rank, machine)
    roster.mark_joined(rank, machine)


def test_who_joins_on_a_host_that_is_known_begins_with_its_speed():
    """Of each store that the session has, whichever made the step in which it joined."""
    roster = Roster(lambda change: None)
    roster.add_vacant(EVERYONE)
    for n in EVERYONE:
        joins(roster, n, f"node{n}")
    steps = planner_of([EVERYONE], SpeedEstimator(CodedDemand(6, RECOVERY, ROWS)), roster=roster)
    step = [step for step, _ in run(steps, 8)][-1]
    assert step.speeds == pytest.approx(SPEEDS / 3)
    for machine, host in ((6, "node1"), (1, "node6"), (2, "new")):
        roster.remove_host(roster.host_of(machine).rank, "gone")
        joins(roster, machine, host)
    assert steps.plan(steps.next()).speeds == pytest.approx(np.array([4, 3, 3, 3, 4, 2]) / 3)
