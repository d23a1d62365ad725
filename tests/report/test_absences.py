"""When machines left, and why, as far as the records tell."""

import base64

import numpy as np
import pytest

from cec_mpi.report.gathered import Run
from cec_mpi.report.kinds import MARKED, PREEMPTED, STATE_OF
from cec_mpi.report.words import words_of
from helpers.made_runs import step_of

THREE = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}
LOST = {"lost": 4, "reason": "gone"}
UNCOUNTED = {"seconds": (0.1, 0.1, 0.2, 0), "rows": (50, 50, 50, 0), "available": (1, 2, 3, 4)}
ASKED = [[0, 50], [0, 50], [50, 100], [50, 100]]


def words(run):
    return "\n".join(words_of(run))


def away(run):
    return [each for each in run.events if MARKED[each[1]].kind == "away"]


def test_a_machine_that_was_late_and_then_gone_is_an_event_and_a_sentence(make_run):
    steps = [step_of(0), step_of(1, events=[{"late": 4}]), *(step_of(n, **THREE) for n in (2, 3))]
    run = Run(str(make_run(steps)))
    ((step, _, machine, text),) = away(run)
    assert (step, machine) == (2, 4)
    assert text == "answered late in step 1; not there from then on, 2 steps"
    said = "When machines left: machine 4 after step 1 (late), not back in 2 steps to the end."
    assert said in words(run)
    back = Run(str(make_run([*steps, step_of(4), step_of(5)], name="back")))
    assert away(back)[0][3] == "answered late in step 1; not there until step 4, 2 steps"
    assert "machine 4 after step 1 (late), back in step 4." in words(back)


def test_a_machine_that_left_on_a_warning_is_no_preempted_one(make_run):
    """On the map, from the step on in which it is away until it is back."""
    steps = [step_of(0), step_of(1, events=[{"leaving": 4, "reason": "told to"}])]
    steps += [step_of(2, **THREE), step_of(3, **THREE), step_of(4), step_of(5, **THREE)]
    run = Run(str(make_run(steps)))
    cells = np.frombuffer(base64.b64decode(run.bins.cells()), np.uint8).reshape(4, 6)[3]
    left = STATE_OF["leaving"]
    assert cells.tolist() == [cells[0], cells[0], left, left, cells[0], PREEMPTED]
    assert cells[0] > 16


def test_a_machine_that_was_late_and_given_up_later(make_run):
    """Why it was away at first, since when, and when more was known."""
    given_up = {"given up": 4, "reason": "slow"}
    steps = [step_of(0), step_of(1, events=[{"late": 4}]), step_of(2, **THREE)]
    steps += [step_of(3, **THREE, events=[given_up]), step_of(4)]
    assert "machine 4 after step 1 (late; given up in step 3), back in step 4." in words(
        Run(str(make_run(steps)))
    )


def test_a_machine_that_is_replaced_within_a_step_left_all_the_same(make_run):
    """It was available when each step began, but not throughout."""
    both = [LOST, {"joined": 4, "rank": 5}]
    run = Run(str(make_run([step_of(0), step_of(1, events=both), step_of(2)])))
    assert (run.absences.left, run.absences.came) == (1, 1)
    assert run.absences.cut_short == {4: 1}
    said = words(run)
    assert "3 throughout. Machines left 1 time and came 1 time." in said
    assert "machine 4 in step 1 (lost), back in the same step." in said


def test_a_machine_whose_answer_did_not_count_is_not_preempted(make_run):
    """In step 1 it had not answered in time: from then on it is at work on that."""
    steps = [step_of(0), step_of(1, **UNCOUNTED, assignment=ASKED)]
    steps += [step_of(n, **THREE) for n in range(2, 30)]
    run = Run(str(make_run(steps, header={"stragglers": 1})))
    assert (run.absences.left, run.absences.preempted) == (0, 0)
    assert run.absences.silent == {4: 28}
    assert (
        "None left or came, but machine 4 was not available in 28 of 30 steps, while an answer to "
        "an earlier step had not come.\nNo machine was lost or wrong." in words(run)
    )
    assert len(away(run)) == 1
    assert run.assignments.chosen()[-1].reasons == {4: "silent"}
    few = Run(str(make_run(steps[:10], name="few", header={"stragglers": 1})))
    assert away(few) == []  # which says nothing
    assert few.absences.silent == {4: 8}


def test_a_machine_of_which_nothing_is_known_was_preempted(make_run):
    run = Run(str(make_run([step_of(0), step_of(1, **THREE), step_of(2)])))
    assert (run.absences.left, run.absences.came, run.absences.preempted) == (1, 1, 1)
    assert "Machines left 1 time and came 1 time, preempted." in words(run)
    assert "When machines left" not in words(run)
    assert run.assignments.chosen()[1].reasons == {}


@pytest.mark.parametrize(("resumed", "back"), [(step_of(2), 2), (step_of(2, **THREE), None)])
def test_a_resumed_run_begins_with_whoever_is_there(make_run, resumed, back):
    run = Run(str(make_run([step_of(0), step_of(1, events=[LOST])], [resumed])))
    (absence,) = run.absences.known
    assert (absence.step, absence.why, absence.back) == (1, "lost", back)
    assert run.absences.left == 1
