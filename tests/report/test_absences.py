"""Absences of machines with their reasons."""

import base64

import numpy as np
import pytest

from cec_mpi.report.headline import machine_table
from cec_mpi.report.recorded_run import Run
from cec_mpi.report.states import PREEMPTED, STATE_INDEX
from helpers.steps import step_of

THREE = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}
LOST = {"lost": 4, "reason": "gone"}


def left_text(run, machine=4):
    """Return the text on the absences of a machine in the table of machines."""
    table = machine_table(run)
    (row,) = [each for each in table["rows"] if each[0] == machine]
    labels = [column["label"] for column in table["columns"]]
    return dict(zip(labels, row[1:], strict=True)).get("Left", "")


@pytest.mark.parametrize("why", ["lost", "given up", "left", "excluded", "late", "not joined"])
def test_map_and_assignments_show_why_a_machine_is_absent(make_run, why):
    steps = [step_of(0), step_of(1, **THREE, why=why), step_of(2), step_of(3, **THREE)]
    run = Run(str(make_run(steps)))
    cells = np.frombuffer(base64.b64decode(run.bins.encode_cells()), np.uint8).reshape(4, 4)[3]
    state = STATE_INDEX["lost" if why == "given up" else why]
    assert cells.tolist() == [cells[0], state, cells[0], PREEMPTED]
    assert cells[0] > 16
    _, away, _, preempted = run.assignments.select()
    assert (away.absent, preempted.absent) == ({why: {4: 1}}, {"preempted": {4: 3}})


LATE = {"late": 4}
UNFINISHED = '{"kind":"unfinished","events":[{"lost":4,"reason":"gone"}]}\n'
LATE_STEPS = [step_of(0), step_of(1, events=[LATE]), step_of(2, **THREE, why="late")]
GIVEN_UP = step_of(3, **THREE, why="given up", events=[{"given up": 4, "reason": "slow"}])
ANSWERED_LATE = [
    step_of(0),
    step_of(1, unanswered=[4]),
    *(step_of(n, **THREE, why="late") for n in range(2, 30)),
]


@pytest.mark.parametrize(
    ("steps", "text", "counts"),
    [
        (
            [step_of(0), step_of(1, events=[LOST]), step_of(2, **THREE, why="lost"), step_of(3)],
            "step 1 (lost), returned in step 3",
            {"departure_steps": 1},
        ),
        (
            [step_of(0), step_of(1, events=[LOST]), step_of(2, **THREE, why="lost")],
            "step 1 (lost), not returned",
            {"departure_steps": 1},
        ),
        ([step_of(0), step_of(1), UNFINISHED], "step 1 (lost), not returned", {}),
        (
            [step_of(0), step_of(1, events=[LOST, {"joined": 4, "rank": 5}]), step_of(2)],
            "step 1 (lost), returned in the same step",
            {"departure_steps": 1},
        ),
        (LATE_STEPS, "step 1 (late), not returned", {"late_steps": 1}),
        (
            [*LATE_STEPS, GIVEN_UP, step_of(4)],
            "step 1 (late, given up), returned in step 4",
            {"late_steps": 1},
        ),
        (
            [step_of(0), step_of(1, **THREE), step_of(2)],
            "step 1 (preempted), returned in step 2",
            {},
        ),
        ([step_of(1, **THREE), step_of(2)], "", {}),
    ],
)
def test_absences_of_a_machine_with_their_reasons(make_run, steps, text, counts):
    run = Run(str(make_run(steps)))
    assert left_text(run) == text
    for name in ("late_steps", "departure_steps", "unanswered_steps"):
        assert getattr(run.absences, name) == ({4: counts[name]} if name in counts else {})


def test_with_stragglers_a_late_machine_has_not_left(make_run):
    run = Run(str(make_run(ANSWERED_LATE, header={"stragglers": 1})))
    assert (run.absences.late_steps, run.absences.unanswered_steps, left_text(run)) == (
        {4: 28},
        {4: 1},
        "",
    )


@pytest.mark.parametrize(
    ("resumed", "return_step"), [(step_of(2), 2), (step_of(2, **THREE, why="not joined"), None)]
)
def test_a_resumed_run_begins_with_the_machines_of_its_first_step(make_run, resumed, return_step):
    run = Run(str(make_run([step_of(0), step_of(1, events=[LOST])], [resumed])))
    (absence,) = run.absences.periods
    assert (absence.step, absence.return_step) == (1, return_step)
