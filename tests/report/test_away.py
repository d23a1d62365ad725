"""When machines left and came, and why: as the records say."""

import base64

import numpy as np
import pytest

from cec_mpi.report.gathered import Run
from cec_mpi.report.kinds import PREEMPTED, STATE_OF
from cec_mpi.report.words import words_of
from helpers.made_runs import step_of

THREE = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}
LOST = {"lost": 4, "reason": "gone"}


def words(run):
    return "\n".join(words_of(run))


@pytest.mark.parametrize("why", ["lost", "given up", "left", "excluded", "late", "not joined"])
def test_a_machine_is_on_the_map_and_beside_assignments_as_what_it_was(make_run, why):
    steps = [step_of(0), step_of(1, **THREE, why=why), step_of(2), step_of(3, **THREE)]
    run = Run(str(make_run(steps)))
    cells = np.frombuffer(base64.b64decode(run.bins.cells()), np.uint8).reshape(4, 4)[3]
    state = STATE_OF["lost" if why == "given up" else why]
    assert cells.tolist() == [cells[0], state, cells[0], PREEMPTED]
    assert cells[0] > 16
    _, away, _, preempted = run.assignments.chosen()
    assert (away.away, preempted.away) == ({why: {4: 1}}, {"preempted": {4: 3}})


def test_a_machine_that_was_lost_in_a_step_left_in_that_step(make_run):
    steps = [step_of(0), step_of(1, events=[LOST]), step_of(2, **THREE, why="lost"), step_of(3)]
    run = Run(str(make_run(steps)))
    assert (run.absences.left, run.absences.came, run.absences.preempted) == (1, 1, 0)
    assert run.absences.cut_short == {4: 1}
    assert "When machines left: machine 4 in step 1 (lost), back in step 3." in words(run)
    gone = Run(str(make_run(steps[:3], name="gone")))
    assert "machine 4 in step 1 (lost), not back in 2 steps to the end." in words(gone)


def test_a_machine_that_was_late_and_given_up_later(make_run):
    """A late one has not left."""
    given_up = {"given up": 4, "reason": "slow"}
    steps = [step_of(0), step_of(1, events=[{"late": 4}]), step_of(2, **THREE, why="late")]
    late = Run(str(make_run(steps, name="late")))
    assert (late.absences.left, late.absences.late) == (0, {4: 1})
    steps += [step_of(3, **THREE, why="given up", events=[given_up]), step_of(4)]
    run = Run(str(make_run(steps)))
    assert (run.absences.left, run.absences.came, run.absences.late) == (1, 1, {4: 1})
    assert "machine 4 in step 3 (given up), back in step 4." in words(run)


def test_a_machine_that_is_replaced_within_a_step_left_all_the_same(make_run):
    """It was available when each step began, but not throughout."""
    both = [LOST, {"joined": 4, "rank": 5}]
    run = Run(str(make_run([step_of(0), step_of(1, events=both), step_of(2)])))
    assert (run.absences.left, run.absences.came) == (1, 1)
    assert run.absences.cut_short == {4: 1}
    said = words(run)
    assert "3 throughout. Machines left 1 time and came 1 time." in said
    assert "machine 4 in step 1 (lost), back in the same step." in said


def test_a_machine_that_is_late_is_not_preempted(make_run):
    steps = [step_of(0), step_of(1, unanswered=[4])]
    steps += [step_of(n, **THREE, why="late") for n in range(2, 30)]
    run = Run(str(make_run(steps, header={"stragglers": 1})))
    assert (run.absences.left, run.absences.preempted) == (0, 0)
    assert (run.absences.late, run.absences.unanswered) == ({4: 28}, {4: 1})
    assert (
        "None left or came, but machine 4 was not available in 28 of 30 steps, as it was late with "
        "an earlier one.\nNo machine was lost or wrong." in words(run)
    )


def test_a_machine_that_was_preempted_is_not_listed(make_run):
    run = Run(str(make_run([step_of(0), step_of(1, **THREE), step_of(2)])))
    assert (run.absences.left, run.absences.came, run.absences.preempted) == (1, 1, 1)
    assert "Machines left 1 time and came 1 time, preempted." in words(run)
    assert "When machines left" not in words(run)


@pytest.mark.parametrize(
    ("resumed", "back"), [(step_of(2), 2), (step_of(2, **THREE, why="not joined"), None)]
)
def test_a_resumed_run_begins_with_whoever_is_there(make_run, resumed, back):
    run = Run(str(make_run([step_of(0), step_of(1, events=[LOST])], [resumed])))
    (absence,) = run.absences.known
    assert (absence.step, absence.back) == (1, back)
    assert run.absences.left == 1
