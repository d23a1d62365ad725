"""What a page is given: everything that happened, and nothing that is not so."""

import json
import os
import re

import pytest

from cec_mpi.errors import InputError
from cec_mpi.report.data import About, page_data
from cec_mpi.report.page import page
from cec_mpi.report.recorded_run import Run
from cec_mpi.store.files.durable import locked
from cec_mpi.text import printable
from helpers.made_runs import step_of

GONE = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}


def data(*directories, asked=(), title="a run"):
    runs = [Run(str(each), frozenset(asked)) for each in directories]
    found = page_data(runs, About(title))
    json.dumps(found, allow_nan=False)
    return found


def test_a_run_that_stopped_can_be_resumed_and_one_that_was_killed_broke_off(make_run):
    run = make_run([step_of(0), step_of(1), '{"kind": "checkpoint"}\n'])
    (one,) = data(run)["runs"]
    assert one["state"] == "stopped"
    assert one["status"][0] == "The run stopped, and --resume continues it."
    (run / ".lock").touch()  # which whoever is killed leaves
    (one,) = data(run)["runs"]
    assert one["state"] == "interrupted"
    later = make_run([step_of(0), '{"kind": "checkpoint"}\n', step_of(1)], name="later")
    assert data(later)["runs"][0]["state"] == "interrupted"


def test_a_run_with_a_loss(make_run):
    lost = [{"lost": 4, "reason": "its process has ended"}]
    run = make_run([step_of(0), step_of(1, **GONE, events=lost), step_of(2)])
    found = data(run)
    (one,) = found["runs"]
    assert (one["state"], one["steps"], one["bin"], one["bins"]) == ("interrupted", 3, 1, 3)
    assert (one["machines"], one["recovery"], one["rows"]) == (4, 2, 100)
    assert one["names"] == ["node1", "node1", "node2", "node2"]
    assert one["at"] == [0, 1, 2]
    assert one["time"] == [1, 2, 3]
    assert one["series"]["measured"] == {"value": [0.2, 0.2, 0.2]}
    assert one["parts"]["compute"] == {"value": [0.2, 0.2, 0.2]}
    assert one["parts"]["collect"]["value"] == pytest.approx([0.01] * 3)
    ((step, kind, machine, text),) = one["events"]
    assert (step, found["kinds"][kind]["kind"], machine) == (1, "lost", 4)
    assert text == "its process has ended"
    first, second, third = one["assignments"]
    assert first["blocks"] == [(0, 50, [1, 2]), (50, 100, [3, 4])]
    assert first["loads"] == [50, 50, 50, 50]
    assert first["moved"] == {}
    assert (second["step"], second["until"], third["until"]) == (1, 1, 2)
    assert second["moved"] == {"1": [(50, 67)], "2": [(50, 67)], "3": [(0, 50)]}
    assert third["moved"] == {"3": [(66, 100)], "4": [(50, 100)]}
    assert second["speeds"] == [500, 500, 250, 250]
    assert one["omitted"] == 0
    assert one["speeds"]["machines"][3] == [250, None, 250]


def test_parts_are_never_more_than_the_step(make_run):
    """Reading holds up steps 0 and 1 for 0.5 s; rank 0 saw 0.4 s of it in step 1, 0 in 2."""
    reading = {"load_seconds": [0.0, 0.6, 0.0, 0.5], "load_bytes": [0, 8, 0, 8]}
    hidden = {"load_seconds": [0.1, 0.0, 0.0, 0.0], "load_bytes": [8, 0, 0, 0]}
    run = make_run(
        [
            step_of(0, **reading, collect_seconds=0.75),
            step_of(1, **reading, collect_seconds=0.6),
            step_of(2, **hidden, collect_seconds=0.19),
        ]
    )
    (one,) = data(run)["runs"]
    parts = {name: values["value"] for name, values in one["parts"].items()}
    assert parts["compute"] == pytest.approx([0.2, 0.2, 0.19])
    assert parts["load"] == pytest.approx([0.5, 0.4, 0])
    assert parts["collect"] == pytest.approx([0.05, 0, 0])


def test_speeds_that_were_given_are_those_of_the_first_assignment(make_run):
    """They are relative; the run has found what 1 stands for."""
    header, summary = {"speeds": [2, 2, 1, 1.0]}, {"rows_per_second_per_speed": 250.5}
    run = make_run([step_of(0)], header=header, summary=summary)
    (one,) = data(run)["runs"]
    assert one["assignments"][0]["speeds"] == [501, 501, 250.5, 250.5]
    going = make_run([step_of(0)], header=header, name="going")
    assert data(going)["runs"][0]["assignments"][0]["speeds"] == [None] * 4


def test_machines_that_are_not_preempted_are_not_said_to_be(make_run):
    late = step_of(1, events=[{"late": 4}])
    (one,) = data(make_run([step_of(0), late, step_of(2, **GONE, why="late")]))["runs"]
    assert one["assignments"][-1]["away"] == {"4": "late"}
    (one,) = data(make_run([step_of(0), step_of(1, **GONE)], name="preempted"))["runs"]
    assert one["assignments"][-1]["away"] == {"4": "preempted"}


def test_a_machine_that_was_lost_and_replaced_was_not_there_throughout(make_run):
    both = [{"lost": 4, "reason": "gone"}, {"joined": 4, "rank": 5}]
    (one,) = data(make_run([step_of(0), step_of(1, events=both), step_of(2), step_of(3)]))["runs"]
    columns = [each["label"] for each in one["by_machine"]["columns"]]
    (row,) = [each for each in one["by_machine"]["rows"] if each[0] == 4]
    assert dict(zip(columns, row[1:], strict=True))["Available"] == 0.75


def test_stalls_are_in_the_table_of_machines(make_run):
    lost = [{"lost": 4, "reason": "gone"}]
    run = make_run(
        [
            step_of(0),
            step_of(
                1,
                **GONE,
                available=(1, 2, 3, 4),
                away={},
                collect_seconds=2.21,
                events=lost,
                delays={4: 2.0},
            ),
        ]
    )
    (one,) = data(run)["runs"]
    assert one["by_machine"]["columns"][0]["label"] == "Delay"
    # 2 s of delay; 0.075 s over the optimum in each step, that of the loss charged to machine 4,
    # without which the optimum is 1.2 times as long
    assert [row[:2] for row in one["by_machine"]["rows"][:2]] == [
        [4, pytest.approx(2.075 + 0.125 * (1 - 1 / 1.2))],
        [3, pytest.approx(0.075)],
    ]


def test_with_stragglers_the_table_begins_with_who_did_not_answer(make_run):
    asked = [[0, 50], [0, 50], [50, 100], [50, 100]]
    silent = {"rows": (50, 50, 50, 0), "available": (1, 2, 3, 4), "assignment": asked}
    silent |= {"away": {}, "unanswered": [4]}
    steps = [step_of(0), step_of(1, **silent), step_of(2, **GONE, why="late")]
    (one,) = data(make_run(steps, header={"stragglers": 1}))["runs"]
    labels = [each["label"] for each in one["by_machine"]["columns"]]
    first = dict(zip(labels, one["by_machine"]["rows"][0][1:], strict=True))
    assert one["by_machine"]["rows"][0][0] == 4
    assert (first["Steps unanswered"], first["Steps late"]) == (1, 1)
    assert first["Delay"] == pytest.approx(0.1)  # half of a step: three for each row, of three
    assert one["by_machine"]["caption"] == "Machines, in descending order of missing answers"


def test_a_resumed_run_is_one_axis(make_run):
    """The second part begins an hour later, and that hour is no time of the run."""
    late = {"time": "2026-01-02T04:04:08.500+00:00", "waited_ticks": 3, "waited_seconds": 3.25}
    progress = '{"kind": "progress", "known": {"residual": 0.5}}\n'
    run = make_run(
        [step_of(0), progress, step_of(1), '{"kind": "checkpoint"}\n'], [step_of(2, **late)]
    )
    text = (run / "steps.jsonl").read_text()
    at = text.rindex("2026-01-02T03:04:05")
    (run / "steps.jsonl").write_text(text[:at] + "2026-01-02T04:04:05" + text[at + 19 :])
    (one,) = data(run)["runs"]
    assert one["time"] == [1, 2, 5.5]
    assert (one["checkpoints"], one["resumes"]) == ([1], [2])
    assert one["progress"] == [{"name": "residual", "log": True, "step": [0], "value": [0.5]}]
    assert one["parts"]["waiting"]["value"] == [0, 0, 3.25]
    assert one["figures"][0]["note"] == "3 steps in 2 parts, resumed after 2 steps"


def test_a_run_that_still_goes(make_run):
    run = make_run([step_of(0), step_of(1)], summary={"task": "power"})
    with (run / "steps.jsonl").open("a") as stream:
        stream.write('{"kind":"step","step":2,"se')  # it is being written
    with locked(run, "busy"):
        (one,) = data(run)["runs"]
        assert (one["state"], one["steps"]) == ("running", 2)
    assert data(run)["runs"][0]["state"] == "done"


def test_assignments_asked_for_are_kept_where_all_have_events(make_run):
    late = [{"late": 4}]
    steps = [step_of(t, **(GONE if t % 2 else {}), events=late) for t in range(2000)]
    (one,) = data(make_run(steps), asked=(101, 1250))["runs"]
    shown = {each["step"] for each in one["assignments"]}
    assert {0, 101, 1250, 1999} <= shown
    assert len(shown) <= 202


def test_assignments_around_events_and_asked_for_are_kept(make_run):
    steps = []
    for n in range(2000):
        more = GONE if n % 2 else {}
        events = [{"late": 1}] if n in (101, 1202) else []
        steps.append(step_of(n, **more, events=events))
    (one,) = data(make_run(steps), asked=(77, 1680))["runs"]
    shown = [each["step"] for each in one["assignments"]]
    assert {0, 77, 101, 1202, 1680, 1999} <= set(shown)
    assert len(shown) <= 202
    assert shown == sorted(shown)
    assert one["omitted"] == 2000 - len(shown)
    for each in one["assignments"]:
        assert each["until"] == each["step"]
        assert each["loads"] == list(steps[each["step"]].rows)
        since = {"3", "4"} if each["step"] % 2 == 0 else {"1", "2", "3"}
        assert set(each["moved"]) == (since if each["step"] else set())


HOSTILE = "</script><script>alert(1)</script><!-- & \u2028 {data} {title}"


def test_hostile_names_stay_text(make_run):
    run = make_run(
        [step_of(0, events=[{"lost": 1, "reason": HOSTILE}, {"joined": 2, "host": HOSTILE}])],
        summary={"task": HOSTILE, "warnings": [HOSTILE]},
        header={"hosts": [HOSTILE] * 5, "scheme": HOSTILE},
    )
    found = data(run, title=HOSTILE)
    text = page(found)
    assert "<script>alert" not in text
    (inside,) = re.findall(r'<script[^>]* id="data"[^>]*>(.*?)</script>', text, re.S)
    assert not set("<>&") & set(inside)
    one = found["runs"][0]
    drawn = [[*event[:3], printable(event[3])] for event in one["events"]]
    assert json.loads(inside)["runs"][0]["events"] == drawn
    assert one["names"][0] == HOSTILE
    assert one["events"][0][3] == HOSTILE
    assert "script" in one["events"][1][3]


def test_machines_that_joined_have_the_hosts_on_which_they_were(make_run):
    alone = {"hosts": ["desk"], "machine_of_rank": [0]}
    joined = [{"joined": n, "rank": n, "host": f"spot{n}"} for n in range(1, 4)]
    again = [{"joined": 2, "rank": n, "host": f"spot{n}"} for n in (7, 2, 8, 9)]
    odd = [{"joined": 99, "rank": 4, "host": "far"}]
    run = make_run([step_of(0, events=joined), step_of(1, events=again + odd)], header=alone)
    (found,) = data(run)["runs"]
    assert found["names"] == ["spot1", "spot2, spot7, spot8, ... (4)", "spot3", ""]
    facts = {each["label"]: each["text"] for each in found["facts"]}
    assert facts["Hosts"] == "desk, spot1, spot2, spot7, spot8, ... (8)"


def test_a_host_that_carried_several_machines_is_named_with_its_rank(make_run):
    two = {"hosts": ["desk", "spot", "spot"], "machine_of_rank": [0, 1, 2]}
    adopted = [{"lost": 1, "reason": "gone"}, {"joined": 1, "rank": 2, "host": "spot"}]
    run = make_run([step_of(0), step_of(1, events=adopted)], header=two)
    (found,) = data(run)["runs"]
    assert found["names"][:2] == ["spot, spot (rank 2)", "spot (rank 2)"]


def test_machines_on_devices_are_named_with_them(make_run):
    two = {
        "hosts": ["desk", "a", "b"],
        "machine_of_rank": [0, 1, 2],
        "devices": ["", "", "jax:cpu"],
    }
    joined = [{"joined": 1, "rank": 3, "host": "c", "device": "torch:cuda:0"}]
    run = make_run([step_of(0), step_of(1, events=joined)], header=two)
    (found,) = data(run)["runs"]
    assert found["names"][:2] == ["a, c torch:cuda:0", "b jax:cpu"]


def test_names_that_are_no_text_do_not_break_the_page(make_run):
    found = data(make_run([step_of(0)], name=os.fsdecode(b"\xff<")))
    assert b"/\\\\udcff\\u003c" in page(found).encode()


def test_a_directory_that_is_none(tmp_path):
    with pytest.raises(InputError, match="does not exist: expected the directory of the results"):
        Run(str(tmp_path / "absent"))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is not a directory"):
        Run(str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"contains no run: expected steps\.jsonl in it"):
        Run(str(tmp_path))
    os.mkfifo(tmp_path / "steps.jsonl")
    with pytest.raises(InputError, match="expected a file"):
        Run(str(tmp_path))
