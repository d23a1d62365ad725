"""When machines left and came, and why: as the records say."""

import base64

import numpy as np
import pytest

from cec_mpi.report.headline import machine_table
from cec_mpi.report.recorded_run import Run
from cec_mpi.report.states import PREEMPTED, STATE_OF
from helpers.made_runs import step_of

THREE = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}
LOST = {"lost": 4, "reason": "gone"}


def left(run, machine=4):
    """What the table of machines says of when it left."""
    table = machine_table(run)
    (row,) = [each for each in table["rows"] if each[0] == machine]
    labels = [column["label"] for column in table["columns"]]
    return dict(zip(labels, row[1:], strict=True)).get("Left", "")


@pytest.mark.parametrize("why", ["lost", "given up", "left", "excluded", "late", "not joined"])
def test_a_machine_is_on_the_map_and_beside_assignments_as_what_it_was(make_run, why):
    steps = [step_of(0), step_of(1, **THREE, why=why), step_of(2), step_of(3, **THREE)]
    run = Run(str(make_run(steps)))
    cells = np.frombuffer(base64.b64decode(run.bins.cells()), np.uint8).reshape(4, 4)[3]
    state = STATE_OF["lost" if why == "given up" else why]
    assert cells.tolist() == [cells[0], state, cells[0], PREEMPTED]
    assert cells[0] > 16
    _, away, _, preempted = run.assignments.select()
    assert (away.absent, preempted.absent) == ({why: {4: 1}}, {"preempted": {4: 3}})


def test_a_machine_that_was_lost_in_a_step_left_in_that_step(make_run):
    steps = [step_of(0), step_of(1, events=[LOST]), step_of(2, **THREE, why="lost"), step_of(3)]
    run = Run(str(make_run(steps)))
    assert run.absences.cut_short == {4: 1}
    assert left(run) == "step 1 (lost), returned in step 3"
    gone = Run(str(make_run(steps[:3], name="gone")))
    assert left(gone) == "step 1 (lost), not returned"


def test_a_loss_in_a_last_step_that_did_not_end_is_told(make_run):
    line = '{"kind":"unfinished","events":[{"lost":4,"reason":"gone"}]}\n'
    run = Run(str(make_run([step_of(0), step_of(1), line])))
    assert left(run) == "step 1 (lost), not returned"
    assert [event[2] for event in run.events] == [4]


def test_a_machine_that_was_late_and_given_up_later(make_run):
    given_up = {"given up": 4, "reason": "slow"}
    steps = [step_of(0), step_of(1, events=[{"late": 4}]), step_of(2, **THREE, why="late")]
    late = Run(str(make_run(steps, name="late")))
    assert (left(late), late.absences.late) == ("step 1 (late), not returned", {4: 1})
    steps += [step_of(3, **THREE, why="given up", events=[given_up]), step_of(4)]
    run = Run(str(make_run(steps)))
    assert (left(run), run.absences.late) == ("step 1 (late, given up), returned in step 4", {4: 1})


def test_a_machine_that_is_replaced_within_a_step_left_all_the_same(make_run):
    """It was available when each step began, but not throughout."""
    both = [LOST, {"joined": 4, "rank": 5}]
    run = Run(str(make_run([step_of(0), step_of(1, events=both), step_of(2)])))
    assert run.absences.cut_short == {4: 1}
    assert left(run) == "step 1 (lost), returned in the same step"


def test_stragglers_have_not_left(make_run):
    steps = [step_of(0), step_of(1, unanswered=[4])]
    steps += [step_of(n, **THREE, why="late") for n in range(2, 30)]
    run = Run(str(make_run(steps, header={"stragglers": 1})))
    assert (run.absences.late, run.absences.unanswered, left(run)) == ({4: 28}, {4: 1}, "")


def test_a_machine_that_is_preempted_has_left_if_it_was_there(make_run):
    steps = [step_of(0), step_of(1, **THREE), step_of(2)]
    assert left(Run(str(make_run(steps)))) == "step 1 (preempted), returned in step 2"
    assert left(Run(str(make_run(steps[1:], name="later")))) == ""


@pytest.mark.parametrize(
    ("resumed", "back"), [(step_of(2), 2), (step_of(2, **THREE, why="not joined"), None)]
)
def test_a_resumed_run_begins_with_whoever_is_there(make_run, resumed, back):
    run = Run(str(make_run([step_of(0), step_of(1, events=[LOST])], [resumed])))
    (absence,) = run.absences.entries
    assert (absence.step, absence.return_step) == (1, back)
