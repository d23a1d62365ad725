"""The record of a run: lines for steps and events, and totals."""

import json
import os
import time
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from cec_mpi.core.elastic.events import MachineJoined, MachineLate, MachineLeft, MachineLost
from cec_mpi.errors import InputError
from cec_mpi.runtime.records.events import KINDS_BY_NAME
from cec_mpi.runtime.records.lines import DEFAULTS, LineFormatter
from cec_mpi.runtime.records.reading import RecordFollower
from cec_mpi.runtime.records.recorder import Recorder, RunningMedian, read_steps, resume_steps
from cec_mpi.runtime.records.step import FIELDS, StepRecord
from helpers.steps import header, record, step, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "steps.jsonl"


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


# --- the recorder -------------------------------------------------------------------------


def test_lines_are_complete_and_flushed_ten_times_a_second(path):
    def read():
        text = path.read_text()
        assert text.endswith("}\n")
        return [json.loads(line) for line in text.splitlines()]

    clock = Clock()
    with path.open("w") as stream:
        recorder = Recorder(clock=clock)
        recorder.set_header({"rows": 10})
        recorder.write_to(stream)
        (header,) = read()
        assert datetime.fromisoformat(header.pop("started")).tzinfo == UTC
        assert header == {"kind": "header", "version": 4, "rows": 10}
        for number in range(3):
            clock.now += 0.1
            recorder.record_step(record(number))
            assert [line["step"] for line in read()[1:]] == list(range(number + 1))
        for number in range(3, 100):
            recorder.record_step(record(number))
            read()
        recorder.record_step(record(100, events=[{"late": 1}]))
        assert len(read()) == 102
        recorder.record_step(record(101))
        recorder.record_checkpoint()
        assert len(read()) == 104
        recorder.record_step(record(102))
        clock.now += 0.1
        recorder.flush_if_due()
        assert len(read()) == 105


def test_timestamps_ascend_even_if_the_clock_is_set(monkeypatch):
    clock = Clock()
    recorder = Recorder(clock=clock)
    recorder.set_header({})
    timestamps = [recorder.header["started"]]
    for year in (2040, 1990):
        monkeypatch.setattr(time, "time", datetime(year, 1, 1, tzinfo=UTC).timestamp)
        clock.now += 1
        timestamps.append(recorder.timestamp())
    first, *later = map(datetime.fromisoformat, timestamps)
    assert [(moment - first).total_seconds() for moment in later] == [1, 2]


def test_the_summary_has_totals_and_medians():
    recorder = Recorder()
    assert recorder.summary() == dict.fromkeys(recorder.summary()) | {
        **{"steps": 0, "waited_ticks": 0, "plan_changes": 0, "compute_seconds": 0.0},
        "events": dict.fromkeys(KINDS_BY_NAME, 0),
    }
    for number, (measured, predicted, ticks, is_changed) in enumerate(
        [(0.5, None, 0, True), (0.4, 0.2, 3, False), (0.6, 0.6, 1, True), (0.9, 0.3, 0, False)]
    ):
        makespans = {"measured_makespan": measured, "predicted_makespan": predicted}
        makespans["hindsight_makespan"] = measured / 1.25
        recorder.record_step(
            record(number, **makespans, waited_ticks=ticks, plan_changed=is_changed)
        )
    assert recorder.summary() == {
        "steps": 4,
        "waited_ticks": 4,
        "plan_changes": 2,
        "events": dict.fromkeys(KINDS_BY_NAME, 0),
        "compute_seconds": pytest.approx(2.4),
        "median_makespan": pytest.approx(0.55),
        "median_measured_over_predicted": pytest.approx(2.0),
        "median_regret": pytest.approx(0.25),
    }


def test_events_belong_to_the_next_step_or_to_an_unfinished_one(path):
    recorder = Recorder()
    with path.open("w") as stream:
        recorder.write_to(stream)
        recorder.record_step(record(0, events=[{"late": 2}, {"late": 1}]))
        recorder.add_event(MachineLost(3, "gone"))
        recorder.add_event(MachineJoined(3, rank=7))
        recorder.record_step(record(1))
        recorder.add_event(MachineLate(2))
        recorder.finish()
    lost, joined = {"lost": 3, "reason": "gone"}, {"joined": 3, "rank": 7}
    assert [line["events"] for line in read_steps(path)[1]] == [
        [{"late": 2}, {"late": 1}],
        [lost, joined],
    ]
    last = {"kind": "unfinished", "events": [{"late": 2}]}
    assert json.loads(path.read_text().splitlines()[-1]) == last
    counts = {**dict.fromkeys(KINDS_BY_NAME, 0), "lost": 1, "joined": 1, "late": 3}
    resumed = Recorder(earlier_run=resume_steps(path))
    assert recorder.summary()["events"] == resumed.summary()["events"] == counts
    assert resumed.events == resumed.earlier_events == recorder.events


def test_machines_that_leave_after_a_signal_to_the_run_are_not_recorded():
    recorder = Recorder()
    recorder.record_step(record(0, events=[{"left": 1, "reason": "its job ends"}]))
    recorder.is_stopped = lambda: True
    recorder.record_step(record(1, events=[{"left": 2, "reason": "a signal"}, {"late": 3}]))
    recorder.add_event(MachineLeft(3, "a signal"))
    recorder.finish()
    assert recorder.events == {("left", 1): 1, ("late", 3): 1}


def test_a_resumed_run_continues_the_numbers_and_totals(path):
    with path.open("w") as stream:
        first = Recorder()
        first.set_header({"rows": 10})
        first.write_to(stream)
        for number in range(3):
            first.record_step(record(number, measured_makespan=0.5))
        stream.write('{"kind": "step", "step"')  # the run was killed
    recorder = Recorder(earlier_run=resume_steps(path))
    assert (recorder.steps, recorder.next_step, recorder.next_tick) == (3, 3, 3)
    assert recorder.summary()["compute_seconds"] == pytest.approx(1.5)
    with path.open("a") as stream:
        recorder.set_header({"rows": 10})
        recorder.write_to(stream)
        recorder.record_step(record(3))
    header, steps = read_steps(path)
    assert (header["kind"], header["rows"]) == ("header", 10)
    assert [line["step"] for line in steps] == [0, 1, 2, 3]
    assert recorder.steps == 4


# --- medians ------------------------------------------------------------------------------


MANY = 10_001  # more numbers than have an exact median


def running_median(numbers):
    median = RunningMedian()
    for number in numbers:
        median.add(number)
    return median


@settings(max_examples=4)  # each adds 20,000 numbers
@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=60))
def test_the_median_is_exact_for_few_numbers_and_close_for_many(numbers):
    expected = float(np.median(numbers))
    assert running_median(numbers).value == pytest.approx(expected, rel=1e-15)
    many = numbers * (MANY // len(numbers) + 1)  # with the same median
    assert running_median(many).value == pytest.approx(expected, rel=3e-3, abs=0)
    assert running_median(sorted(many)).value == running_median(many).value


@pytest.mark.parametrize(("number", "limit"), [(0.0, 1e-12), (1e300, 1e12)])
def test_numbers_out_of_range_are_clipped(number, limit):
    numbers = [1.0] * MANY + [number] * (MANY + 2)
    assert running_median(numbers).value == pytest.approx(limit, rel=0.2)


# --- lines --------------------------------------------------------------------------------


def format_lines(*records):
    writer = LineFormatter()
    writer.header({})
    return [json.loads(writer.step(record)) for record in records]


def test_a_line_omits_defaults_and_unchanged_fields():
    first, second = format_lines(record(0), record(1, condition_number=2.0, plan_changed=True))
    assert list(first)[:3] == ["kind", "step", "tick"]
    assert set(first) == {"kind", *FIELDS} - set(DEFAULTS)
    assert set(second) == {"kind", "step", "tick", "time", "condition_number", "plan_changed"}


@given(name=st.binary().map(os.fsdecode))
@example(name="\udce9\U0001f600\\udce9\ud83d\\")
def test_names_that_are_not_utf_8_are_escaped(name):
    line = LineFormatter().header({"shard_files": [name]})
    escaped = name.encode(errors="backslashreplace").decode()
    assert msgspec.json.decode(line)["shard_files"] == json.loads(line)["shard_files"] == [escaped]


def test_times_are_rounded_to_nanoseconds():
    original = record(
        0,
        compute_seconds=[0.1234567894321, 0.0, 3.0000000004, 1e7 / 3, 0, 0],
        announce_seconds=1.23456789e-7,
        cancellation=1.23456789e-17,
        hindsight_makespan=1e-7 / 3,
    )
    (line,) = format_lines(original)
    assert line["compute_seconds"] == [0.123456789, 0.0, 3.0, 1e7 / 3, 0, 0]
    assert line["announce_seconds"] == 1.23e-7
    assert line["cancellation"] == original.cancellation
    assert line["hindsight_makespan"] == original.hindsight_makespan


CHANGES = {
    "rows": st.lists(st.integers(0, 3), min_size=3, max_size=3),
    "available": st.sets(st.integers(1, 3)).map(sorted).map(tuple),
    "compute_seconds": st.lists(st.integers(0, 9).map(float), min_size=3, max_size=3),
    "condition_number": st.none() | st.floats(1, 9),
    "waited_ticks": st.integers(0, 2),
    "plan_changed": st.booleans(),
    "assignment": st.sampled_from([[[], [], []], [[0, 2], [], [5, 6]]]),
    "events": st.lists(st.builds(lambda n: {"late": n}, st.integers(1, 3)), max_size=2),
}


@given(
    st.lists(st.fixed_dictionaries({}, optional=CHANGES), max_size=8), st.sets(st.integers(0, 7))
)
def test_written_steps_are_read_with_all_fields(tmp_path_factory, changes, resumed_steps):
    path = tmp_path_factory.mktemp("steps") / "steps.jsonl"
    steps = [record(number, 3, **change) for number, change in enumerate(changes)]
    recorder = Recorder()
    with path.open("w") as stream:
        recorder.write_to(stream)
        for step in steps:
            if step.step in resumed_steps:
                recorder.write_to(stream)
            recorder.record_progress(residual=1 / (step.step + 1), other=float("nan"))
            recorder.record_step(step)
            recorder.record_checkpoint()
    assert read_steps(path)[1] == [
        {"kind": "step", **asdict(step), "available": list(step.available)} for step in steps
    ]


def test_numbers_that_are_not_finite_are_read_as_null(path):
    with path.open("w") as stream:
        recorder = Recorder()
        recorder.write_to(stream)
        recorder.record_step(replace(record(0), condition_number=float("inf")))
    assert resume_steps(path).steps[0].condition_number is None


# --- reading ------------------------------------------------------------------------------


HEADER = '{"kind": "header", "version": 4, "rows": 3}\n'


def make_line(number=5, **changes):
    """Return a line with all fields of a step of three machines; ``...`` omits a field."""
    content = step(number, 3, **changes)
    return json.dumps({name: value for name, value in content.items() if value is not ...}) + "\n"


@pytest.mark.parametrize(
    "text", ["", "\n", "hello\n", "\udcff\udcfe\n", make_line(), make_line() + HEADER, HEADER + "{"]
)
def test_files_that_are_not_records_are_rejected_by_name(path, text):
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(InputError, match=r"steps\.jsonl"):
        read_steps(path)


MALFORMED = [  # a line, and the message after its number
    (make_line(step="0"), ', field "step": expected `int`, got `str`'),
    (make_line().replace('"step": 5', f'"step": {"7" * 5000}'), ', field "step": '),
    (make_line(measured_makespan=float("inf")), " is not JSON"),
    (make_line(measured_makespan=1e308), ', field "measured_makespan": expected `float` <= 1e'),
    (make_line(compute_seconds=[0.1]), ', field "rows": expected 1 entry'),
    (make_line(available=[1, 4]), ', field "available": expected distinct machines of 1..3'),
    (make_line(available=[1, 1]), ', field "available": expected distinct machines of 1..3'),
    (make_line(time="noon"), ": Expected a time in ISO 8601, got 'noon'"),
    (make_line(events=[{"moved": 2}]), ', field "events'),
    (make_line(events=[{"reason": "x"}]), ', field "events": expected a kind of event first'),
    (make_line(absent_since={"lost": {4: 0}}), ', field "absent_since": expected machines of 1..3'),
    (make_line(assignment=[[0], [], []]), ', field "assignment": expected ascending bounds'),
    (make_line(kind="stop"), ', field "kind": invalid value'),
    (make_line(step=...), ' has no "step"'),
    (HEADER + make_line(rows=...), ' has no "rows": expected a step of version 4'),
    (make_line(0), " is step 0 after step 0: expected ascending step numbers"),
    ('{"kind": "header", "rows": 3}\n', " begins records of version 1: expected version 4"),
    ('{"kind": "header", "version": 5}\n', " begins records of version 5"),
    ("[" * 100_000 + "\n", ""),
    ("\udcff\udcfe\n", " is not JSON"),
    ("{" * (1 << 18) + "\n", " has more than 131072 braces"),
    (" " * (1 << 25) + "\n", " has 33554432 bytes or more"),
]


@pytest.mark.parametrize(("line", "message"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_line_is_rejected_by_number_and_field(path, line, message):
    text = HEADER + make_line(0) + line + make_line(9) + '{"kind": "step", "st'
    path.write_text(text, errors="surrogateescape")
    before = path.read_bytes()
    number = 3 + line.startswith(HEADER)
    with pytest.raises(InputError, match=rf"steps\.jsonl, line {number}{message}") as error:
        resume_steps(path)
    assert "--overwrite" in str(error.value)
    assert len(str(error.value)) < 600 + len(str(path))
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before


def test_anything_but_a_regular_file_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "/dev/zero", "absent"):
        message = "cannot be read: No such file" if name == "absent" else "expected a file"
        for read in (read_steps, resume_steps):
            with pytest.raises(InputError, match=message):
                read(tmp_path / name)


# --- reading while steps are written -----------------------------------------------------------


def step_numbers(lines):
    return [line.step if isinstance(line, StepRecord) else "header" for line in lines]


def test_only_new_and_complete_lines_are_returned(path):
    follower = RecordFollower(path)
    assert (follower.read_new(), follower.exists) == ((False, []), False)
    write(path, header(), step(0), header(), step(1))
    assert step_numbers(follower.read_new()[1]) == ["header", 0, "header", 1]
    assert (follower.read_new(), follower.exists) == ((False, []), True)
    line = json.dumps(step(2)) + "\n"
    with path.open("a", buffering=1) as file:
        for part in (line[:100], line[100:200]):
            file.write(part)
            file.flush()
            assert follower.read_new() == (False, [])
        file.write(line[200:])
    assert step_numbers(follower.read_new()[1]) == [2]


def test_a_large_record_is_read_in_parts(path):
    write(path, header(), *map(step, range(50)))
    follower, lines, parts = RecordFollower(path), [], 0
    while not parts or follower.unread_bytes:
        lines += follower.read_new(1000)[1]
        parts += 1
    assert step_numbers(lines) == ["header", *range(50)]
    assert parts > 10


def test_a_replaced_or_shortened_record_is_read_from_its_beginning(path):
    write(path, header(), step(0), step(1))
    follower = RecordFollower(path)
    follower.read_new()
    replacement = path.with_name("replacement")
    write(replacement, header(), step(0))
    os.replace(replacement, path)  # noqa: PTH105
    is_replaced, lines = follower.read_new()
    assert (is_replaced, step_numbers(lines)) == (True, ["header", 0])
    write(path, header())
    is_replaced, lines = follower.read_new()
    assert (is_replaced, step_numbers(lines)) == (True, ["header"])
    path.unlink()
    assert follower.read_new() == (True, [])


def test_errors_name_the_file_and_the_line(path):
    write(path, header())
    with path.open("a") as file:
        file.write("[]\n")
    with pytest.raises(InputError, match=r"steps\.jsonl, line 2: Expected `object`, got `array`"):
        RecordFollower(path).read_new()
    path.write_bytes(b" " * ((1 << 25) + 1))
    with pytest.raises(InputError, match="has a line of more than 33554432 bytes"):
        RecordFollower(path).read_new(1 << 26)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="is a directory: expected a file"):
        RecordFollower(path).read_new()
