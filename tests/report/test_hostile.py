"""Chunks of steps, and records with invalid values."""

import copy
import json
import random

import numpy as np
import pytest

from cec_mpi.errors import InputError
from cec_mpi.report.assignments import find_blocks, new_rows_by_machine
from cec_mpi.report.chunks import MAX_STEPS, read_chunks
from cec_mpi.report.data import page_data
from cec_mpi.report.live.console import render_lines
from cec_mpi.report.live.table import top_lines
from cec_mpi.report.live.watched_run import WatchedRun
from cec_mpi.report.page import render_page
from cec_mpi.report.recorded_run import Run
from cec_mpi.runtime.records.lines import LineFormatter
from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.runtime.records.step import Checkpoint, Progress, Unfinished, Waiting
from helpers.steps import HEADER, step_of

WITHOUT_4 = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.2, 0.2, 0)}
ODD = [None, True, False, 0, 1, -1, 7, 2**53 - 1, 2**53, 2**63, 2**64, 10**400, 0.5, -0.5, 1.0, 3.0]
ODD += [1e-31, 1e31, 1e300, 1e308, float("inf"), float("nan"), "x", "5", "true", [], [1], [[1]], {}]
ODD += [[0.5, True], {"a": 1}, {"a": True}, {"late": 1}, [{"late": 1}], [[0, 4], [], [], []]]


EVENTS = [{"late": 1}, {"lost": 2, "reason": "gone"}, {"joined": 2, "rank": 7, "host": "node9"}]
EVENTS += [{"unresponsive": 4}, {"left": 3}, {"excluded": 1, "reason": "wrong"}, {"wrong": 2}]


def record_lines():
    """Return records of each kind, with events of each kind and two headers."""
    writer = LineFormatter()
    lines = [writer.header(HEADER)]
    for n in range(7):
        more = dict(WITHOUT_4) if n in (1, 2) else {}
        more |= {"events": EVENTS} if n == 2 else {}
        more |= {"condition_number": None, "cancellation": None} if n == 3 else {}
        more |= {"delays": {4: 0.5}, "unanswered": [1, 2]} if n == 4 else {}
        lines.append(writer.step(step_of(n, **more)))
        if n == 3:
            lines += [writer.note(Progress({"residual": 0.5})), writer.header(HEADER)]
    waiting = Waiting(
        time=HEADER["started"], missing=1, available=(1, 2), absence_reasons={3: "lost"}
    )
    notes = Checkpoint(), waiting, Unfinished([{"lost": 1, "reason": "gone"}, {"left": 4}])
    return [json.loads(line) for line in [*lines, *map(writer.note, notes)]]


def containers_and_keys(value):
    """Yield the container and the key of each value."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from containers_and_keys(value[key])


def mutate(lines, chance):
    """Return lines in which one value or line is changed, removed or repeated."""
    lines = copy.deepcopy(lines)
    kind = chance.random()
    if kind < 0.05:
        del lines[chance.randrange(len(lines))]
    elif kind < 0.1:
        lines.insert(chance.randrange(len(lines)), copy.deepcopy(chance.choice(lines)))
    else:
        line = chance.choice(lines)
        container, key = chance.choice(list(containers_and_keys(line)))
        if kind < 0.2:
            del container[key]
        elif kind < 0.3 and isinstance(container, list):
            container.insert(key, chance.choice(ODD))
        else:
            container[key] = chance.choice(ODD)
    return lines


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_record_is_shown_or_refused_in_one_message(tmp_path, seed):
    chance, lines = random.Random(seed), record_lines()
    messages = []
    for _ in range(100):
        changed = mutate(lines, chance)
        text = "".join(json.dumps(line) + "\n" for line in changed)
        (tmp_path / "steps.jsonl").write_text(text)
        for render in (
            lambda: render_page(page_data([Run(str(tmp_path))], "")),
            lambda: render_top(tmp_path),
        ):
            try:
                assert render()
            except InputError as problem:
                messages.append(str(problem))
    assert 20 < len(messages) < 200
    assert not [
        message
        for message in messages
        if "\n" in message or ("line " not in message and "header" not in message)
    ]


def render_top(directory):
    run = WatchedRun(directory)
    run.read()
    return render_lines(top_lines(run, 120, None), 120, "utf-8")


@pytest.mark.parametrize("max_steps", [1, 2, MAX_STEPS])
def test_chunks_of_any_size_have_the_numbers_of_the_lines(tmp_path, max_steps):
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in record_lines()))
    _, steps = read_steps(path)
    remaining = iter(steps)
    for chunk in read_chunks(path, max_steps):
        delays, unanswered = dict(chunk.delays), dict(chunk.unanswered)
        for row, index in enumerate(chunk.stretch_index):
            step, stretch = next(remaining), chunk.stretches[index]
            for name, values in chunk.step_columns.items():
                assert values[row] == step[name] or (step[name] is None and np.isnan(values[row]))
            for name in ("rows", "available", "load_seconds", "load_bytes"):
                assert stretch.first_step[name].tolist() == step[name]
            assert stretch.first_step["assignment"].to_lists() == step["assignment"]
            assert stretch.first_step["payload_bytes"] == sum(step["payload_bytes"].values())
            assert stretch.first_step["absent_since"] == step["absent_since"]
            assert (stretch.first_step["events"] if row == stretch.begin else []) == step["events"]
            assert (chunk.timestamps[row], chunk.compute_seconds[row].tolist()) == (
                step["time"],
                step["compute_seconds"],
            )
            assert delays.get(row, {}) == step["delays"]
            assert unanswered.get(row, []) == step["unanswered"]
    assert next(remaining, None) is None


def test_an_assignment_that_is_too_large_is_omitted_with_a_warning(make_run):
    bounds = [3 * n + end for n in range(100_000) for end in (0, 1)]
    nested = [[n, 10_000 - n] for n in range(2000)]
    rows = {"rows": [4] * 2000, "seconds": [0.5] * 2000}
    run = Run(str(make_run([step_of(0), step_of(1, assignment=[bounds, [], [], []]), step_of(2)])))
    (entry,) = page_data([run], "x")["runs"]
    assert [assignment["step"] for assignment in entry["assignments"]] == [0, 2]
    assert "1 assignment is too large to show." in entry["warnings"]
    assert entry["omitted"] == 1
    crossing = Run(str(make_run([step_of(0, **rows, assignment=nested)], name="nested")))
    (entry,) = page_data([crossing], "x")["runs"]
    assert entry["assignments"] == []
    assert "1 assignment is too large to show." in entry["warnings"]


def test_moved_rows_of_many_intervals_take_linear_time():
    new = [2 * n + end for n in range(50_000) for end in (0, 1)]
    old = [4 * n + end for n in range(25_000) for end in (0, 1)]
    assert new_rows_by_machine([new], [old]) == {
        "1": [(4 * n + 2, 4 * n + 3) for n in range(25_000)]
    }
    assert len(find_blocks([new])) == 50_000
