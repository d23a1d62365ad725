"""Facts, figures and machines in the head of a report, and absences of machines."""

import base64

import numpy as np
import pytest

from cec_mpi.report.breakdown import time_breakdown
from cec_mpi.report.cyclic import cyclic_comparison
from cec_mpi.report.headline import (
    key_figures,
    machine_table,
    run_facts,
    run_warnings,
    status_sentences,
)
from cec_mpi.report.recorded_run import Run
from cec_mpi.report.states import PREEMPTED, STATE_INDEX
from helpers.steps import step_of

WITHOUT_4 = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}
LOST = {"lost": 4, "reason": "gone"}
LOADED = {"load_seconds": [0.5, 0.5, 0.5, 0.5], "load_bytes": [4000] * 4}


def status_text(directory):
    return "\n".join(status_sentences(Run(str(directory))))


def facts(directory):
    return {fact["label"]: fact["text"] for fact in run_facts(Run(str(directory)))}


def figures(directory):
    return [tuple(figure) for figure in key_figures(Run(str(directory)))]


def table(directory):
    """Return the table of machines as a dict by machine of dicts by column."""
    found = machine_table(Run(str(directory)))
    labels = [column["label"] for column in found["columns"]]
    return {row[0]: dict(zip(labels, row[1:], strict=True)) for row in found["rows"]}


def test_the_head_of_a_report_has_facts_figures_and_machines(make_run):
    """Machines 3 and 4 have half the speed, and as many rows: the optimum is 0.125 s per step."""
    run = make_run(
        [step_of(n, **(LOADED if n == 0 else {"load_seconds": [0.0] * 4})) for n in range(10)],
        summary={"task": "power", "converged": True, "warnings": ["mind the gap"]},
    )
    assert status_sentences(Run(str(run))) == ["power converged."]
    assert figures(run) == [
        ("Duration", "10.0 s", "10 steps"),
        ("Time lost", "0 s", ""),
        (
            "Imbalance",
            "60.0 %",
            "Computing took 2.00 s; the optimal assignment for the measured speeds takes 1.25 s.",
        ),
    ]
    assert next(iter(table(run))) == 3
    assert table(run)[3] == {
        "Delay": pytest.approx(0.75),
        "Delay by slowness": pytest.approx(0.75),
        "Steps as slowest": 10,
        "Over plan": pytest.approx(0.5),
        "Computing": pytest.approx(2),
        "Rows": 500,
        "Available": 1,
    }
    compared = cyclic_comparison(Run(str(run)))
    assert (compared["steps"], compared["text"]) == (10, "the same")
    assert run_warnings(Run(str(run))) == ["mind the gap"]
    found = facts(run)
    assert found["X"] == "200 x 10, float64"
    assert found["Code"] == "cauchy: any 2 of 4 machines suffice"
    assert found["Hosts"] == "front, node1, node2"


def test_a_store_of_copies_has_no_code(make_run):
    run = make_run([step_of(0)], header={"copies": 2})
    assert facts(run)["Copies"] == "each row is on 2 machines: any 3 of 4 machines suffice"
    assert "Code" not in facts(run)
    assert cyclic_comparison(Run(str(run))) is None


def test_steps_with_tiny_loads_are_not_compared(make_run):
    few = {"rows": (99, 99, 1, 1), "seconds": (0.1, 0.1, 0.3, 0.3)}
    run = make_run([step_of(n, **few) for n in range(3)])
    assert Run(str(run)).time_totals.compared_steps == 0
    assert "The time of the cyclic assignment is unknown" in status_text(run)
    some = make_run([step_of(0, **few), step_of(1)], name="some")
    assert Run(str(some)).time_totals.compared_steps == 1
    assert cyclic_comparison(Run(str(some)))["steps"] == 1


def test_reading_counts_only_as_far_as_it_delays_a_step(make_run):
    """Machine 2 takes 9.1 s instead of 0.2 s; machine 1 reads for 0.1 s without a delay."""
    reading = {"load_seconds": [0.1, 9.0, 0.0, 0.0], "load_bytes": [8, 80, 0, 0]}
    unnoticed = {"load_seconds": [0.1, 0.05, 0.0, 0.0], "load_bytes": [8, 8, 0, 0]}
    no_reading = {"load_seconds": [0.0] * 4, "load_bytes": [0] * 4}
    steps = [step_of(0, **reading), step_of(1, **no_reading), step_of(2, **reading)]
    run = make_run([*steps, step_of(3, **unnoticed)])
    assert Run(str(run)).time_totals.reading_delays == pytest.approx([0, 8.9, 0, 0])
    assert table(run)[2]["Delay by reading"] == pytest.approx(8.9)


def test_stalls_are_charged_to_the_machines_that_cause_them(make_run):
    """A stall is the part of the collection without reading and computing: 0.4 s in step 3."""
    step_events = [
        {"late": 1},
        {"unresponsive": 4, "reason": "slow"},
        {"late": 1},
        {"joined": 2, "rank": 2},
    ]
    run = make_run(
        [
            step_of(0, events=[{"joined": 2, "rank": 2}]),
            step_of(1),
            step_of(2, **WITHOUT_4, collect_seconds=2.02, events=[LOST], delays={4: 1.81}),
            step_of(
                3, **WITHOUT_4, collect_seconds=0.6, events=step_events, delays={1: 0.3, 4: 0.3}
            ),
            step_of(4, events=[{"wrong": 3}]),
            step_of(5, delays={2: 0.005}),
        ]
    )
    totals = Run(str(run)).time_totals
    events = "1 lost, 2 joined, 1 unresponsive, 2 missed deadlines, 1 wrong answer"
    assert facts(run)["Events"] == events
    assert totals.stall_delays == pytest.approx([0.2, 0, 0, 1.81 + 0.2], abs=1e-9)
    assert totals.stall_seconds == pytest.approx([0, 0, 1.81, 0.4, 0, 0], abs=1e-9)
    assert figures(run)[1][1:] == (
        "2.33 s (38.8 %)",
        # Losses: 1.81 s and half of 0.4 s. Preemption: a sixth of two steps of 0.125 s without
        # machine 4. Lateness: the other half, and the time of step 3 above its optimum.
        "2.01 s losses, 0.04 s preemption, 0.28 s lateness",
    )
    assert next(iter(table(run))) == 4


def test_waiting_for_machines_is_reported(make_run):
    late = {"time": "2026-01-02T03:04:24.000+00:00", "waited_ticks": 17, "waited_seconds": 17.75}
    line = (
        '{"kind":"waiting","time":"2026-01-02T03:04:08+00:00","missing":1,"available":[1],'
        '"absence_reasons":{"4":"lost","2":"not joined"}}\n'
    )
    run = make_run([step_of(0), line, step_of(1, **late), step_of(20)])
    assert figures(run)[1][2] == "17.75 s waiting"
    assert table(run)[4]["Delay by absence"] == pytest.approx(17.75)
    (note,) = [
        part["note"] for part in time_breakdown(Run(str(run)))["parts"] if part["part"] == "waiting"
    ]
    assert note == (
        "too few were available for 1 step; longest 17.8 s for step 1, which needed 1 more "
        "machine; missing: machine 4 (lost)"
    )


def test_a_step_that_waits_for_a_lost_machine_is_waiting(make_run):
    line = (
        '{"kind":"waiting","time":"2026-01-02T03:04:08+00:00","missing":1,"available":[1],'
        '"absence_reasons":{"4":"lost"}}\n'
    )
    events = [LOST, {"joined": 4, "rank": 5}]
    long = step_of(1, collect_seconds=3.21, events=events, delays={4: 3.0})
    run = make_run([step_of(0), line, long])
    assert figures(run)[1][2] == "0.08 s losses, 3.00 s waiting"
    assert table(run)[4]["Left"] == "step 1 (lost), returned in the same step"


def test_unused_answers_are_not_compared(make_run):
    """In step 1 the time of machine 4 is unknown, because its answer was not used."""
    reading = {"load_seconds": [0.5, 0.0, 0.0, 0.0], "load_bytes": [400, 0, 0, 0]}
    steps = [step_of(0), step_of(1, **WITHOUT_4), step_of(2, **reading)]
    run = make_run(steps, header={"stragglers": 1})
    totals = Run(str(run)).time_totals
    assert (totals.hindsight_steps, totals.compared_steps, totals.slowness_delays.tolist()) == (
        0,
        0,
        [0] * 4,
    )
    text = status_text(run)
    assert "Unused answers are not recorded" in text
    assert cyclic_comparison(Run(str(run))) is None
    assert figures(run)[2] == ("Imbalance", "unknown", "")
    assert "What equal loads" not in text


def test_with_stragglers_machines_are_sorted_by_missing_answers(make_run):
    """Machine 4 does not answer steps 1 and 4 in time, and is late in steps 2 and 3."""
    assignment = [[0, 50], [0, 50], [50, 100], [50, 100]]
    all_available = {"available": (1, 2, 3, 4), "assignment": assignment, "absent_since": {}}
    silent = WITHOUT_4 | all_available | {"unanswered": [4]}
    other = {"rows": (50, 50, 0, 50), **all_available, "unanswered": [3]}
    lost = {"events": [{"lost": 2, "reason": "gone"}], "rows": (50, 0, 50, 50), "unanswered": []}
    steps = [
        step_of(0),
        step_of(1, **silent),
        step_of(2, **WITHOUT_4, why="late"),
        step_of(3, **WITHOUT_4, why="late"),
    ]
    steps += [step_of(4, **silent), step_of(5, **other), step_of(6, **{**silent, **lost})]
    run = Run(str(make_run(steps, header={"stragglers": 1})))
    assert run.absences.unanswered_steps == {4: 2, 3: 1}  # a lost machine is not late
    rows = machine_table(run)["rows"]
    assert [row[0] for row in rows[:2]] == [4, 3]
    assert (run.absences.unanswered_steps[4], run.absences.late_steps[4]) == (2, 2)


def test_a_step_that_loses_most_machines_has_no_optimum(make_run):
    events = [{"lost": n, "reason": "gone"} for n in (2, 3, 4)]
    run = make_run([step_of(0), step_of(1, seconds=(0.325, 0, 0, 0), events=events)])
    assert figures(run)[1][1:] == ("200.0 ms (10.0 %)", "200.0 ms losses")


def test_steps_without_times_have_no_slowest_machine(make_run):
    run = make_run([step_of(n, seconds=(0,) * 4, hindsight_makespan=None) for n in range(2)])
    assert Run(str(run)).time_totals.slowest_steps.tolist() == [0] * 4
    assert "Delay" not in table(run)[1]


def test_a_machine_without_time_is_not_infinitely_fast(make_run):
    """In step 0 machine 1 computes 50 rows in a time that its clock cannot measure."""
    run = make_run([step_of(0, seconds=(0, 0.1, 0.2, 0.2)), step_of(1)])
    totals = Run(str(run)).time_totals
    assert (totals.compared_steps, totals.measured_seconds) == (1, pytest.approx(0.2))
    assert totals.cyclic_seconds == pytest.approx(0.2)


def test_facts_state_the_cost_of_restarts_and_the_digits(make_run):
    """Decoding takes 3 ms a step; a machine is away in step 1, and back in step 2: two changes."""
    worst = {"condition_number": 1e4, "cancellation": 10.0}
    run = make_run([step_of(0), step_of(1, **WITHOUT_4), step_of(2, **worst), step_of(3)])
    assert facts(run)["Restarting"] == (
        "slower without a code if a restart after each of 2 changes had taken more than 6.00 ms "
        "(decoding took 12.0 ms)"
    )
    assert facts(run)["Digits"] == "at least about 10 are correct in all steps"
    assert "Restarting" not in facts(make_run([step_of(0)], name="one"))


# --- absences -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["lost", "unresponsive", "left", "excluded", "late", "not joined"]
)
def test_map_and_assignments_show_why_a_machine_is_absent(make_run, reason):
    steps = [step_of(0), step_of(1, **WITHOUT_4, why=reason), step_of(2), step_of(3, **WITHOUT_4)]
    run = Run(str(make_run(steps)))
    cells = np.frombuffer(base64.b64decode(run.bins.encode_cells()), np.uint8).reshape(4, 4)[3]
    state = STATE_INDEX["lost" if reason == "unresponsive" else reason]
    assert cells.tolist() == [cells[0], state, cells[0], PREEMPTED]
    assert cells[0] > 16
    _, absent, _, preempted = run.assignments.select()
    assert (absent.absent, preempted.absent) == ({reason: {4: 1}}, {"preempted": {4: 3}})


LATE = {"late": 4}
UNFINISHED = '{"kind":"unfinished","events":[{"lost":4,"reason":"gone"}]}\n'
LATE_STEPS = [step_of(0), step_of(1, events=[LATE]), step_of(2, **WITHOUT_4, why="late")]
UNRESPONSIVE = step_of(
    3, **WITHOUT_4, why="unresponsive", events=[{"unresponsive": 4, "reason": "slow"}]
)
ANSWERED_LATE = [
    step_of(0),
    step_of(1, unanswered=[4]),
    *(step_of(n, **WITHOUT_4, why="late") for n in range(2, 30)),
]


@pytest.mark.parametrize(
    ("steps", "text", "counts"),
    [
        (
            [
                step_of(0),
                step_of(1, events=[LOST]),
                step_of(2, **WITHOUT_4, why="lost"),
                step_of(3),
            ],
            "step 1 (lost), returned in step 3",
            {"departure_steps": 1},
        ),
        (
            [step_of(0), step_of(1, events=[LOST]), step_of(2, **WITHOUT_4, why="lost")],
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
            [*LATE_STEPS, UNRESPONSIVE, step_of(4)],
            "step 1 (late, unresponsive), returned in step 4",
            {"late_steps": 1},
        ),
        (
            [step_of(0), step_of(1, **WITHOUT_4), step_of(2)],
            "step 1 (preempted), returned in step 2",
            {},
        ),
        ([step_of(1, **WITHOUT_4), step_of(2)], "", {}),
    ],
)
def test_absences_of_a_machine_are_listed_with_their_reasons(make_run, steps, text, counts):
    directory = make_run(steps)
    assert table(directory)[4].get("Left", "") == text
    run = Run(str(directory))
    for name in ("late_steps", "departure_steps", "unanswered_steps"):
        assert getattr(run.absences, name) == ({4: counts[name]} if name in counts else {})


def test_with_stragglers_a_late_machine_has_not_left(make_run):
    directory = make_run(ANSWERED_LATE, header={"stragglers": 1})
    absences = Run(str(directory)).absences
    assert (absences.late_steps, absences.unanswered_steps) == ({4: 28}, {4: 1})
    assert table(directory)[4].get("Left", "") == ""


@pytest.mark.parametrize(
    ("resumed", "return_step"), [(step_of(2), 2), (step_of(2, **WITHOUT_4, why="not joined"), None)]
)
def test_a_resumed_run_begins_with_the_machines_of_its_first_step(make_run, resumed, return_step):
    run = Run(str(make_run([step_of(0), step_of(1, events=[LOST])], [resumed])))
    (absence,) = run.absences.periods
    assert (absence.step, absence.return_step) == (1, return_step)
