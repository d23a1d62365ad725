"""The data of a page."""

import json
import os
import re

import pytest

from cec_mpi.report.data import page_data
from cec_mpi.report.page import render_page
from cec_mpi.report.recorded_run import Run
from cec_mpi.text import printable
from helpers.steps import step_of

WITHOUT_4 = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}


def data(*directories, steps=(), title="a run"):
    runs = [Run(str(directory), frozenset(steps)) for directory in directories]
    page = page_data(runs, title)
    json.dumps(page, allow_nan=False)
    return page


def test_stopped_and_interrupted_runs_are_distinguished(make_run):
    run = make_run([step_of(0), step_of(1), '{"kind": "checkpoint"}\n'])
    (entry,) = data(run)["runs"]
    assert entry["state"] == "stopped"
    assert entry["status"][0] == "The run stopped, and --resume continues it."
    (run / ".lock").touch()  # left by a killed process
    (entry,) = data(run)["runs"]
    assert entry["state"] == "interrupted"
    later = make_run([step_of(0), '{"kind": "checkpoint"}\n', step_of(1)], name="later")
    assert data(later)["runs"][0]["state"] == "interrupted"


def test_a_run_with_a_loss_has_its_event_and_assignments(make_run):
    lost = [{"lost": 4, "reason": "its process has ended"}]
    run = make_run([step_of(0), step_of(1, **WITHOUT_4, events=lost), step_of(2)])
    found = data(run)
    (entry,) = found["runs"]
    assert (entry["state"], entry["steps"], entry["bin_width"], entry["bin_count"]) == (
        "interrupted",
        3,
        1,
        3,
    )
    assert (entry["machines"], entry["recovery"], entry["rows"]) == (4, 2, 100)
    assert entry["hosts"] == ["node1", "node1", "node2", "node2"]
    assert entry["bin_starts"] == [0, 1, 2]
    assert entry["time"] == [1, 2, 3]
    assert entry["series"]["measured"] == {"value": [0.2, 0.2, 0.2]}
    assert entry["parts"]["compute"] == {"value": [0.2, 0.2, 0.2]}
    assert entry["parts"]["collect"]["value"] == pytest.approx([0.01] * 3)
    ((step, kind, machine, text),) = entry["events"]
    assert (step, found["kinds"][kind]["name"], machine) == (1, "lost", 4)
    assert text == "its process has ended"
    first, second, third = entry["assignments"]
    assert first["blocks"] == [(0, 50, [1, 2]), (50, 100, [3, 4])]
    assert first["loads"] == [50, 50, 50, 50]
    assert first["new_rows"] == {}
    assert (second["step"], second["last_step"], third["last_step"]) == (1, 1, 2)
    assert second["new_rows"] == {"1": [(50, 67)], "2": [(50, 67)], "3": [(0, 50)]}
    assert third["new_rows"] == {"3": [(66, 100)], "4": [(50, 100)]}
    assert second["speeds"] == [500, 500, 250, 250]
    assert entry["omitted"] == 0
    assert entry["speeds"]["by_machine"][3] == [250, None, 250]


def test_parts_never_exceed_their_step(make_run):
    """Reading delays steps 0 and 1 by 0.5 s; rank 0 waited for 0.4 s of it in step 1, 0 s in 2."""
    reading = {"load_seconds": [0.0, 0.6, 0.0, 0.5], "load_bytes": [0, 8, 0, 8]}
    hidden = {"load_seconds": [0.1, 0.0, 0.0, 0.0], "load_bytes": [8, 0, 0, 0]}
    run = make_run(
        [
            step_of(0, **reading, collect_seconds=0.75),
            step_of(1, **reading, collect_seconds=0.6),
            step_of(2, **hidden, collect_seconds=0.19),
        ]
    )
    (entry,) = data(run)["runs"]
    parts = {name: values["value"] for name, values in entry["parts"].items()}
    assert parts["compute"] == pytest.approx([0.2, 0.2, 0.19])
    assert parts["load"] == pytest.approx([0.5, 0.4, 0])
    assert parts["collect"] == pytest.approx([0.05, 0, 0])


def test_speeds_of_the_options_are_shown_first(make_run):
    """They are relative; the summary has the rows per second of speed 1."""
    header, summary = {"speeds": [2, 2, 1, 1.0]}, {"rows_per_second_per_speed": 250.5}
    run = make_run([step_of(0)], header=header, summary=summary)
    (entry,) = data(run)["runs"]
    assert entry["assignments"][0]["speeds"] == [501, 501, 250.5, 250.5]
    unfinished = make_run([step_of(0)], header=header, name="unfinished")
    assert data(unfinished)["runs"][0]["assignments"][0]["speeds"] == [None] * 4


def test_times_of_a_resumed_run_exclude_the_break(make_run):
    """The second part begins an hour later; this hour does not count."""
    late = {"time": "2026-01-02T04:04:08.500+00:00", "waited_ticks": 3, "waited_seconds": 3.25}
    progress = '{"kind": "progress", "values": {"residual": 0.5}}\n'
    run = make_run(
        [step_of(0), progress, step_of(1), '{"kind": "checkpoint"}\n'], [step_of(2, **late)]
    )
    text = (run / "steps.jsonl").read_text()
    start = text.rindex("2026-01-02T03:04:05")
    (run / "steps.jsonl").write_text(text[:start] + "2026-01-02T04:04:05" + text[start + 19 :])
    (entry,) = data(run)["runs"]
    assert entry["time"] == [1, 2, 5.5]
    assert (entry["checkpoints"], entry["resumptions"]) == ([1], [2])
    assert entry["progress"] == [{"name": "residual", "log": True, "step": [0], "value": [0.5]}]
    assert entry["parts"]["waiting"]["value"] == [0, 0, 3.25]
    assert entry["figures"][0]["note"] == "3 steps in 2 parts, resumed after 2 steps"


@pytest.mark.parametrize("event_steps", [{101, 1202}, set(range(2000))])
def test_assignments_around_events_and_requested_ones_are_kept(make_run, event_steps):
    steps = [
        step_of(n, **(WITHOUT_4 if n % 2 else {}), events=[{"late": 1}] * (n in event_steps))
        for n in range(2000)
    ]
    (entry,) = data(make_run(steps), steps=(77, 1680))["runs"]
    shown = [assignment["step"] for assignment in entry["assignments"]]
    required = {0, 77, 1680, 1999} | (event_steps if len(event_steps) == 2 else set())
    assert required <= set(shown)
    assert len(shown) <= 202
    assert shown == sorted(shown)
    assert entry["omitted"] == 2000 - len(shown)
    for assignment in entry["assignments"]:
        assert assignment["last_step"] == assignment["step"]
        assert assignment["loads"] == list(steps[assignment["step"]].rows)
        changed = {"3", "4"} if assignment["step"] % 2 == 0 else {"1", "2", "3"}
        assert set(assignment["new_rows"]) == (changed if assignment["step"] else set())


def test_hosts_of_machines_that_joined_are_listed(make_run):
    master_only = {"hosts": ["desk"], "machine_of_rank": [0]}
    joined = [{"joined": n, "rank": n, "host": f"spot{n}"} for n in range(1, 4)]
    rejoined = [{"joined": 2, "rank": n, "host": f"spot{n}"} for n in (7, 2, 8, 9)]
    unknown = [{"joined": 99, "rank": 4, "host": "far"}]
    run = make_run(
        [step_of(0, events=joined), step_of(1, events=rejoined + unknown)], header=master_only
    )
    (entry,) = data(run)["runs"]
    assert entry["hosts"] == ["spot1", "spot2, spot7, spot8, ... (4)", "spot3", ""]
    facts = {fact["label"]: fact["text"] for fact in entry["facts"]}
    assert facts["Hosts"] == "desk, spot1, spot2, spot7, spot8, ... (8)"


def test_names_do_not_break_the_page(make_run):
    hostile = "</script><script>alert(1)</script>&\u2028"
    steps = [step_of(0, events=[{"lost": 1, "reason": hostile}])]
    run = make_run(steps, name=os.fsdecode(b"\xff<"), header={"hosts": [hostile] * 5})
    found = data(run, title=hostile)
    text = render_page(found)
    (json_text,) = re.findall(r'<script[^>]* id="data"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert "<script>alert" not in text
    assert not set("<>&\u2028") & set(json_text)
    assert "/\\\\udcff\\u003c" in json_text
    assert json.loads(json_text)["runs"][0]["hosts"][0] == printable(hostile)
