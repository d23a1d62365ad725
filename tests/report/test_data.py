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

GONE = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}


def data(*directories, asked=(), title="a run"):
    runs = [Run(str(each), frozenset(asked)) for each in directories]
    found = page_data(runs, title)
    json.dumps(found, allow_nan=False)
    return found


def test_stopped_and_interrupted_runs(make_run):
    run = make_run([step_of(0), step_of(1), '{"kind": "checkpoint"}\n'])
    (one,) = data(run)["runs"]
    assert one["state"] == "stopped"
    assert one["status"][0] == "The run stopped, and --resume continues it."
    (run / ".lock").touch()  # left by a killed process
    (one,) = data(run)["runs"]
    assert one["state"] == "interrupted"
    later = make_run([step_of(0), '{"kind": "checkpoint"}\n', step_of(1)], name="later")
    assert data(later)["runs"][0]["state"] == "interrupted"


def test_a_run_with_a_loss(make_run):
    lost = [{"lost": 4, "reason": "its process has ended"}]
    run = make_run([step_of(0), step_of(1, **GONE, events=lost), step_of(2)])
    found = data(run)
    (one,) = found["runs"]
    assert (one["state"], one["steps"], one["bin_width"], one["bin_count"]) == (
        "interrupted",
        3,
        1,
        3,
    )
    assert (one["machines"], one["recovery"], one["rows"]) == (4, 2, 100)
    assert one["hosts"] == ["node1", "node1", "node2", "node2"]
    assert one["bin_starts"] == [0, 1, 2]
    assert one["time"] == [1, 2, 3]
    assert one["series"]["measured"] == {"value": [0.2, 0.2, 0.2]}
    assert one["parts"]["compute"] == {"value": [0.2, 0.2, 0.2]}
    assert one["parts"]["collect"]["value"] == pytest.approx([0.01] * 3)
    ((step, kind, machine, text),) = one["events"]
    assert (step, found["kinds"][kind]["name"], machine) == (1, "lost", 4)
    assert text == "its process has ended"
    first, second, third = one["assignments"]
    assert first["blocks"] == [(0, 50, [1, 2]), (50, 100, [3, 4])]
    assert first["loads"] == [50, 50, 50, 50]
    assert first["new_rows"] == {}
    assert (second["step"], second["last_step"], third["last_step"]) == (1, 1, 2)
    assert second["new_rows"] == {"1": [(50, 67)], "2": [(50, 67)], "3": [(0, 50)]}
    assert third["new_rows"] == {"3": [(66, 100)], "4": [(50, 100)]}
    assert second["speeds"] == [500, 500, 250, 250]
    assert one["omitted"] == 0
    assert one["speeds"]["by_machine"][3] == [250, None, 250]


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
    (one,) = data(run)["runs"]
    parts = {name: values["value"] for name, values in one["parts"].items()}
    assert parts["compute"] == pytest.approx([0.2, 0.2, 0.19])
    assert parts["load"] == pytest.approx([0.5, 0.4, 0])
    assert parts["collect"] == pytest.approx([0.05, 0, 0])


def test_speeds_of_the_options_are_shown_first(make_run):
    """They are relative; the summary has the rows per second of speed 1."""
    header, summary = {"speeds": [2, 2, 1, 1.0]}, {"rows_per_second_per_speed": 250.5}
    run = make_run([step_of(0)], header=header, summary=summary)
    (one,) = data(run)["runs"]
    assert one["assignments"][0]["speeds"] == [501, 501, 250.5, 250.5]
    going = make_run([step_of(0)], header=header, name="going")
    assert data(going)["runs"][0]["assignments"][0]["speeds"] == [None] * 4


def test_times_of_a_resumed_run_exclude_the_break(make_run):
    """The second part begins an hour later; this hour does not count."""
    late = {"time": "2026-01-02T04:04:08.500+00:00", "waited_ticks": 3, "waited_seconds": 3.25}
    progress = '{"kind": "progress", "values": {"residual": 0.5}}\n'
    run = make_run(
        [step_of(0), progress, step_of(1), '{"kind": "checkpoint"}\n'], [step_of(2, **late)]
    )
    text = (run / "steps.jsonl").read_text()
    at = text.rindex("2026-01-02T03:04:05")
    (run / "steps.jsonl").write_text(text[:at] + "2026-01-02T04:04:05" + text[at + 19 :])
    (one,) = data(run)["runs"]
    assert one["time"] == [1, 2, 5.5]
    assert (one["checkpoints"], one["resumptions"]) == ([1], [2])
    assert one["progress"] == [{"name": "residual", "log": True, "step": [0], "value": [0.5]}]
    assert one["parts"]["waiting"]["value"] == [0, 0, 3.25]
    assert one["figures"][0]["note"] == "3 steps in 2 parts, resumed after 2 steps"


@pytest.mark.parametrize("with_events", [{101, 1202}, set(range(2000))])
def test_assignments_around_events_and_requested_ones_are_kept(make_run, with_events):
    steps = [
        step_of(n, **(GONE if n % 2 else {}), events=[{"late": 1}] * (n in with_events))
        for n in range(2000)
    ]
    (one,) = data(make_run(steps), asked=(77, 1680))["runs"]
    shown = [each["step"] for each in one["assignments"]]
    wanted = {0, 77, 1680, 1999} | (with_events if len(with_events) == 2 else set())
    assert wanted <= set(shown)
    assert len(shown) <= 202
    assert shown == sorted(shown)
    assert one["omitted"] == 2000 - len(shown)
    for each in one["assignments"]:
        assert each["last_step"] == each["step"]
        assert each["loads"] == list(steps[each["step"]].rows)
        since = {"3", "4"} if each["step"] % 2 == 0 else {"1", "2", "3"}
        assert set(each["new_rows"]) == (since if each["step"] else set())


def test_hosts_of_machines_that_joined(make_run):
    alone = {"hosts": ["desk"], "machine_of_rank": [0]}
    joined = [{"joined": n, "rank": n, "host": f"spot{n}"} for n in range(1, 4)]
    again = [{"joined": 2, "rank": n, "host": f"spot{n}"} for n in (7, 2, 8, 9)]
    odd = [{"joined": 99, "rank": 4, "host": "far"}]
    run = make_run([step_of(0, events=joined), step_of(1, events=again + odd)], header=alone)
    (found,) = data(run)["runs"]
    assert found["hosts"] == ["spot1", "spot2, spot7, spot8, ... (4)", "spot3", ""]
    facts = {each["label"]: each["text"] for each in found["facts"]}
    assert facts["Hosts"] == "desk, spot1, spot2, spot7, spot8, ... (8)"


def test_names_do_not_break_the_page(make_run):
    hostile = "</script><script>alert(1)</script>&\u2028"
    steps = [step_of(0, events=[{"lost": 1, "reason": hostile}])]
    run = make_run(steps, name=os.fsdecode(b"\xff<"), header={"hosts": [hostile] * 5})
    found = data(run, title=hostile)
    text = render_page(found)
    (inside,) = re.findall(r'<script[^>]* id="data"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert "<script>alert" not in text
    assert not set("<>&\u2028") & set(inside)
    assert "/\\\\udcff\\u003c" in inside
    assert json.loads(inside)["runs"][0]["hosts"][0] == printable(hostile)
