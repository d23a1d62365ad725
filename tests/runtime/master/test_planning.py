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
ALL_MACHINES, RECOVERY, ROWS = (1, 2, 3, 4, 5, 6), 3, 420


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def make_planner(ticks, speeds=None, **options):
    schedule = Schedule(ListedAvailability(ticks), ALL_MACHINES, **options)
    speeds = speeds or FixedSpeeds(SPEEDS, CodedDemand(6, RECOVERY, ROWS))
    return StepPlanner(schedule, speeds, CodedPlacement(6), RECOVERY)


def run_steps(planner, count, clock=None):
    """Yield steps and their makespans, for machines with the speeds above."""
    for _ in range(count):
        step = planner.plan(planner.next_step())
        planner.begin(step)
        rows = step.plan.assignment.row_counts(6)
        seconds = rows / SPEEDS
        if clock is not None:
            clock.now += seconds.max()
        yield step, planner.learn(step, rows, seconds)


def test_the_run_of_the_paper_with_known_speeds():
    results = list(run_steps(make_planner(PAPER_AVAILABLE), 6))
    available = [*PAPER_AVAILABLE, *PAPER_AVAILABLE[-1:] * 2]
    assert [(step.number, step.available) for step, _ in results] == list(enumerate(available))
    for step, _ in results:
        plan = plan_step(step.available, SPEEDS, RECOVERY, ROWS)
        assert (step.plan.assignment, step.plan.makespan) == (plan.assignment, plan.makespan)
    assert [step.plan_changed for step, _ in results] == [True] * 4 + [False] * 2
    assert [makespans.predicted for _, makespans in results] == [None, 84, 120, 210, 210, 210]
    assert [makespans.bound for _, makespans in results] == [None, 84, 120, 210, 210, 210]
    hindsight = [makespans.hindsight for _, makespans in results]
    assert hindsight == pytest.approx([70, 84, 120, 210, 210, 210])


def test_ticks_pass_while_machines_compute_and_while_a_step_waits():
    clock = Clock()
    ticks = [ALL_MACHINES, (1, 2, 3, 5, 6), (1, 2), ALL_MACHINES]
    planner = make_planner(ticks, tick_seconds=100.0, wait=True, clock=clock)
    results, start_times = [], []
    for step, makespans in run_steps(planner, 4, clock):
        results.append((step.tick, step.waited_ticks))
        start_times.append(clock.now - 1000 - makespans.hindsight)
    # A step of all machines takes 70 s: the second also begins in tick 0, the third in tick 1.
    assert results == [(0, 0), (0, 0), (1, 0), (3, 1)]
    assert start_times == pytest.approx([0, 70, 140, 300], abs=0.2)


def test_a_step_does_not_wait_if_no_later_tick_has_enough_machines():
    clock = Clock()
    planner = make_planner([ALL_MACHINES, (1, 2)], tick_seconds=10.0, wait=True, clock=clock)
    assert len(list(run_steps(planner, 1, clock))) == 1
    with pytest.raises(InfeasibleError, match="2 machines are available at tick 7"):
        planner.next_step()
    assert clock.now == 1070


def test_a_step_that_has_not_begun_is_planned_again():
    planner = make_planner([(1, 2, 3), ALL_MACHINES])
    first, second = (planner.plan(planner.next_step()) for _ in range(2))
    assert (first.number, first.available) == (second.number, second.available)
    assert first.plan_changed
    planner.begin(second)
    third = planner.plan(planner.next_step())
    assert (third.number, third.available) == (1, ALL_MACHINES)


def test_stragglers_add_machines_per_row_if_available():
    planner = make_planner([ALL_MACHINES])
    for stragglers, machines_per_row in ((0, 3), (2, 5), (3, 6)):
        plan = planner.plan(planner.next_step(stragglers), stragglers).plan
        assert plan.assignment.machines_per_row == machines_per_row
    planner = make_planner([(1, 2, 3, 4)])
    assert planner.plan(planner.next_step(), 2).plan.assignment.machines_per_row == 4
    with pytest.raises(InfeasibleError, match="a step needs 5"):
        planner.next_step(2)
    planner.uses_all_answers = False  # the speeds of machines with unused answers are unknown
    ((_, makespans),) = run_steps(planner, 1)
    assert makespans.hindsight is None


def join(roster, machine, host):
    rank = roster.add_host(name=host).rank
    roster.assign(rank, machine)
    roster.mark_joined(rank, machine)


def test_a_machine_that_joins_on_a_known_host_has_the_speed_of_that_host():
    roster = Roster(lambda change: None)
    roster.add_vacant(ALL_MACHINES)
    for n in ALL_MACHINES:
        join(roster, n, f"node{n}")
    estimator = SpeedEstimator(CodedDemand(6, RECOVERY, ROWS))
    planner = make_planner([ALL_MACHINES], estimator, roster=roster)
    (first, makespans), *_, (last, _) = run_steps(planner, 8)
    assert (first.speeds, makespans.predicted) == ((1.0,) * 6, None)
    assert last.speeds == pytest.approx(SPEEDS / 3)
    for machine, host in ((6, "node1"), (1, "node6"), (2, "new")):
        roster.remove_host(roster.host_of(machine).rank, "gone")
        join(roster, machine, host)
    speeds = planner.plan(planner.next_step()).speeds
    assert speeds == pytest.approx(np.array([4, 3, 3, 3, 4, 2]) / 3)
