"""Plans of runs with a simulated clock, without machines."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi.core.demand import CodedDemand
from cec_mpi.core.plan.placement import CodedPlacement
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.speeds import FixedSpeeds, SpeedEstimator
from cec_mpi.errors import InfeasibleError
from cec_mpi.runtime.availability.models import PAPER_AVAILABLE, ListedAvailability
from cec_mpi.runtime.master.planning import StepPlanner
from cec_mpi.runtime.master.schedule import Schedule
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


def planner_of(ticks, speeds=None, **options):
    schedule = Schedule(ListedAvailability(ticks), EVERYONE, **options)
    speeds = speeds or FixedSpeeds(SPEEDS, CodedDemand(6, RECOVERY, ROWS))
    return StepPlanner(schedule, speeds, CodedPlacement(6), RECOVERY)


def run(steps, count, clock=None):
    """Yield steps and their makespans, for machines with these speeds."""
    for _ in range(count):
        step = steps.plan(steps.next_step())
        steps.begin(step)
        rows = step.plan.assignment.row_counts(6)
        seconds = rows / SPEEDS
        if clock is not None:
            clock.now += seconds.max()
        yield step, steps.learn(step, rows, seconds)


def test_the_run_of_the_paper_with_known_speeds():
    done = list(run(planner_of(PAPER_AVAILABLE), 6))
    available = [*PAPER_AVAILABLE, *PAPER_AVAILABLE[-1:] * 2]
    assert [(step.number, step.available) for step, _ in done] == list(enumerate(available))
    for step, _ in done:
        plan = plan_step(step.available, SPEEDS, RECOVERY, ROWS)
        assert (step.plan.assignment, step.plan.makespan) == (plan.assignment, plan.makespan)
    assert [step.plan_changed for step, _ in done] == [True] * 4 + [False] * 2
    assert [makespans.predicted for _, makespans in done] == [None, 84, 120, 210, 210, 210]
    assert [makespans.bound for _, makespans in done] == [None, 84, 120, 210, 210, 210]
    hindsight = [makespans.hindsight for _, makespans in done]
    assert hindsight == pytest.approx([70, 84, 120, 210, 210, 210])


def test_ticks_pass_while_machines_compute_and_while_a_step_waits():
    clock = Clock()
    ticks = [EVERYONE, (1, 2, 3, 5, 6), (1, 2), EVERYONE]
    steps = planner_of(ticks, tick_seconds=100.0, wait=True, clock=clock)
    done, begins = [], []
    for step, makespans in run(steps, 4, clock):
        done.append((step.tick, step.waited_ticks))
        begins.append(clock.now - 1000 - makespans.hindsight)
    # 70 s each with all machines; the second begins in tick 0 too, the third in tick 1.
    assert done == [(0, 0), (0, 0), (1, 0), (3, 1)]
    assert begins == pytest.approx([0, 70, 140, 300], abs=0.2)


def test_a_step_does_not_wait_if_no_later_tick_has_enough_machines():
    clock = Clock()
    steps = planner_of([EVERYONE, (1, 2)], tick_seconds=10.0, wait=True, clock=clock)
    assert len(list(run(steps, 1, clock))) == 1
    with pytest.raises(InfeasibleError, match="2 machines are available at tick 7"):
        steps.next_step()
    assert clock.now == 1070


def test_a_step_that_has_not_begun_is_planned_again():
    steps = planner_of([(1, 2, 3), EVERYONE])
    first, again = (steps.plan(steps.next_step()) for _ in range(2))
    assert (first.number, first.available) == (again.number, again.available)
    assert first.plan_changed
    steps.begin(again)
    following = steps.plan(steps.next_step())
    assert (following.number, following.available) == (1, EVERYONE)


def test_stragglers_add_machines_per_row_if_available():
    steps = planner_of([EVERYONE])
    for stragglers, machines_per_row in ((0, 3), (2, 5), (3, 6)):
        plan = steps.plan(steps.next_step(stragglers), stragglers).plan
        assert plan.assignment.machines_per_row == machines_per_row
    steps = planner_of([(1, 2, 3, 4)])
    assert steps.plan(steps.next_step(), 2).plan.assignment.machines_per_row == 4
    with pytest.raises(InfeasibleError, match="a step needs 5"):
        steps.next_step(2)
    steps.uses_all_answers = False  # the speeds of machines with unused answers are unknown
    ((_, makespans),) = run(steps, 1)
    assert makespans.hindsight is None


def join(roster, machine, host):
    rank = roster.add_host(name=host).rank
    roster.assign(rank, machine)
    roster.mark_joined(rank, machine)


def test_a_machine_that_joins_on_a_known_host_has_the_learned_speed():
    roster = Roster(lambda change: None)
    roster.add_vacant(EVERYONE)
    for n in EVERYONE:
        join(roster, n, f"node{n}")
    steps = planner_of([EVERYONE], SpeedEstimator(CodedDemand(6, RECOVERY, ROWS)), roster=roster)
    (first, makespans), *_, (last, _) = run(steps, 8)
    assert (first.speeds, makespans.predicted) == ((1.0,) * 6, None)
    assert last.speeds == pytest.approx(SPEEDS / 3)
    for machine, host in ((6, "node1"), (1, "node6"), (2, "new")):
        roster.remove_host(roster.host_of(machine).rank, "gone")
        join(roster, machine, host)
    assert steps.plan(steps.next_step()).speeds == pytest.approx(np.array([4, 3, 3, 3, 4, 2]) / 3)
