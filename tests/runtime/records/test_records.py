"""What a run leaves behind: a line per step as it happens, a summary, a directory."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import asdict, fields, replace

from cec_mpi.core.elastic.events import MachineJoined, MachineLate, MachineLeft, MachineLost
from cec_mpi.errors import InputError
from cec_mpi.runtime.records.directory import (
    discard_earlier,
    move_results_aside,
    prepare_directory,
    read_summary,
    restore_results,
)
from cec_mpi.runtime.records.events import KIND_OF
from cec_mpi.runtime.records.lines import DEFAULTS, LineWriter
from cec_mpi.runtime.records.recorder import Recorder, read_steps, resume_steps
from cec_mpi.runtime.records.step import StepRecord
from cec_mpi.store.files.durable import locked

RESULTS = [
    "steps.jsonl",
    "summary.json",
    "result.npy",
    "checkpoint.npz",
    "checkpoint.previous.npz",
]


def record(step, measured=0.5, predicted=None, waited=0, changed=False, events=()):
    return StepRecord(
        step=step,
        tick=step + waited,
        time="2026-01-02T03:04:05.678+00:00",
        waited_ticks=waited,
        available=(1, 3),
        adjoint=False,
        columns=1,
        rows=[4, 0, 6],
        seconds=[0.1, 0.0, measured],
        load_seconds=[0.5, 0.0, 0.0],
        load_bytes=[800, 0, 0],
        predicted_makespan=predicted,
        measured_makespan=measured,
        bound=predicted,
        hindsight_makespan=measured / 1.25,
        announce_seconds=0.01,
        share_seconds=0.02,
        collect_seconds=measured + 0.01,
        decode_seconds=0.03,
        bytes={"announce": 24, "share": 80, "collect": 160},
        plan_changed=changed,
        condition=2.5,
        cancellation=2.0,
        events=list(events),
        assignment=[[0, 4], [], [0, 4, 6, 8]],
        away={"preempted": {2: 0}},
    )


class Clock:
    """Goes on when a test says so."""

    now = 100.0

    def monotonic(self):
        return self.now


def test_records_are_on_disk_as_soon_as_they_happen_and_ten_times_a_second(tmp_path):
    path, clock = tmp_path / "steps.jsonl", Clock()
    with path.open("w") as stream:
        recorder = Recorder(clock=clock)
        recorder.header({"rows": 10})
        recorder.write_to(stream)
        (header,) = (json.loads(line) for line in path.read_text().splitlines())
        assert datetime.fromisoformat(header.pop("started")).tzinfo == UTC
        assert header == {"kind": "header", "version": 4, "rows": 10}
        for step in range(3):
            clock.now += 0.1
            recorder.step(record(step))
            assert path.read_text().endswith("}\n")
            assert len(path.read_text().splitlines()) == step + 2
            assert json.loads(path.read_text().splitlines()[-1])["step"] == step
        for step in range(3, 100):
            recorder.step(record(step))
            assert path.read_text().endswith("}\n")
        recorder.step(record(100, events=[{"late": 1}]))
        assert len(path.read_text().splitlines()) == 102
        recorder.step(record(101))
        recorder.checkpoint()
        assert len(path.read_text().splitlines()) == 104
        recorder.step(record(102))
        recorder.end()
        assert len(path.read_text().splitlines()) == 105


def test_the_summary_adds_up_the_steps():
    recorder = Recorder()
    recorder.step(record(0, 0.5, changed=True))
    recorder.step(record(1, 0.4, 0.2, waited=3))
    recorder.step(record(2, 0.6, 0.6, waited=1, changed=True))
    recorder.step(record(3, 0.9, 0.3))
    assert recorder.summary() == {
        "steps": 4,
        "waited_ticks": 4,
        "plan_changes": 2,
        "events": dict.fromkeys(KIND_OF, 0),
        "compute_seconds": pytest.approx(2.4),
        "median_makespan": pytest.approx(0.55),
        "median_measured_over_predicted": pytest.approx(2.0),
        "median_regret": pytest.approx(0.25),
    }


def test_events_are_counted_also_those_of_a_step_that_did_not_end(tmp_path):
    lost, joined = {"lost": 3, "reason": "gone"}, {"joined": 3, "rank": 7}
    path = tmp_path / "steps.jsonl"
    recorder = Recorder()
    with path.open("w") as stream:
        recorder.write_to(stream)
        recorder.step(record(0, events=[{"late": 2}, {"late": 1}]))
        recorder.add_event(MachineLost(3, "gone"))  # its step could not end
        recorder.add_event(MachineJoined(3, rank=7))
        recorder.add_event(MachineLate(2))
        recorder.step(record(1))
    steps = read_steps(path)[1]
    assert steps[1]["events"] == [lost, joined, {"late": 2}]
    none = dict.fromkeys(KIND_OF, 0)
    counts = {**none, "lost": 1, "joined": 1, "late": 3}
    assert recorder.summary()["events"] == counts
    assert Recorder(earlier=resume_steps(path)).summary()["events"] == counts


def test_events_of_a_last_step_that_did_not_end_are_recorded(tmp_path):
    path = tmp_path / "steps.jsonl"
    recorder = Recorder()
    with path.open("w") as stream:
        recorder.write_to(stream)
        recorder.step(record(0))
        recorder.add_event(MachineLost(3, "gone"))
        recorder.end()
    assert recorder.events == {("lost", 3): 1}
    assert json.loads(path.read_text().splitlines()[-1]) == {
        "kind": "unfinished",
        "events": [{"lost": 3, "reason": "gone"}],
    }
    resumed = Recorder(earlier=resume_steps(path))
    assert resumed.events == resumed.earlier_events == recorder.events


def test_machines_that_leave_because_a_signal_stops_the_run_are_not_recorded(tmp_path):
    recorder = Recorder()
    recorder.step(record(0, events=[{"left": 1, "reason": "its job ends"}]))
    recorder.is_stopped = lambda: True
    recorder.step(record(1, events=[{"left": 2, "reason": "a signal"}, {"late": 3}]))
    recorder.add_event(MachineLeft(3, "a signal"))
    recorder.end()
    assert recorder.events == {("left", 1): 1, ("late", 3): 1}


def test_the_summary_of_nothing():
    summary = Recorder().summary()
    assert summary["steps"] == summary["compute_seconds"] == 0
    assert summary["median_makespan"] is summary["median_measured_over_predicted"] is None
    assert json.dumps(summary)


# --- the directory ------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["new", "new/below/deep", "there"])
def test_a_directory_without_results_is_made_or_taken(tmp_path, name, overwrite):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("mine")
    prepare_directory(tmp_path / name, overwrite)
    assert (tmp_path / name).is_dir()
    assert (tmp_path / "there" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", RESULTS)
def test_a_directory_with_results_is_refused_and_untouched(tmp_path, name):
    (tmp_path / name).write_text("results")
    with pytest.raises(InputError, match=rf"holds .*\({name}\).*--overwrite"):
        prepare_directory(tmp_path, allow_existing=False)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "results"


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["steps.jsonl", "summary.json", "result.npy"], "holds results"),
        (["result.npy"], "holds results"),
        (["steps.jsonl", "checkpoint.npz"], "holds an incomplete run .*: --resume continues it, "),
        (["steps.jsonl", "result.npy"], "holds an incomplete run .*: --resume restarts it, "),
    ],
)
def test_a_run_that_was_interrupted_differs_from_one_that_is_done(tmp_path, names, says):
    for name in names:
        (tmp_path / name).write_text('{"kind": "header"}\n{"kind": "step"}\n')
    with pytest.raises(InputError, match=says):
        prepare_directory(tmp_path, allow_existing=False)


def test_overwrite_removes_results_and_nothing_else(tmp_path):
    for name in [*RESULTS, "notes.txt"]:
        (tmp_path / name).write_text("old")
    prepare_directory(tmp_path, allow_existing=True)
    move_results_aside(tmp_path)
    discard_earlier(tmp_path)
    assert not (tmp_path / ".earlier").exists()
    assert not [name for name in RESULTS if (tmp_path / name).exists()]
    assert (tmp_path / "notes.txt").read_text() == "old"


@pytest.mark.parametrize("text", ["", '{"kind":"header"', '{"kind":"header","version":4}\n'])
def test_a_run_that_was_killed_before_its_first_step_is_in_nobodys_way(tmp_path, text):
    (tmp_path / "steps.jsonl").write_text(text)
    (tmp_path / "result.npy").write_text("of no step")
    (tmp_path / ".lock").touch()
    prepare_directory(tmp_path, allow_existing=False)
    with locked(tmp_path, "busy"), pytest.raises(InputError, match="holds an incomplete run"):
        prepare_directory(tmp_path, allow_existing=False)
    for name in ("summary.json", "checkpoint.npz", ".earlier"):
        (tmp_path / name).mkdir() if name == ".earlier" else (tmp_path / name).touch()
        with pytest.raises(InputError, match="holds"):
            prepare_directory(tmp_path, allow_existing=False)
        (tmp_path / name).rmdir() if name == ".earlier" else (tmp_path / name).unlink()
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('\n{"kind": "step"')
    with pytest.raises(InputError, match="holds an incomplete run"):
        prepare_directory(tmp_path, allow_existing=False)


def test_a_run_that_came_to_nothing_gives_the_earlier_results_back(tmp_path):
    for name in [*RESULTS, "extra.npy", "notes.txt"]:
        (tmp_path / name).write_text("old")
    (tmp_path / "summary.json").write_text('{"arrays": ["result", "extra"]}')
    move_results_aside(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".earlier", "notes.txt"]
    (tmp_path / "steps.jsonl").write_text("new")
    restore_results(tmp_path)
    assert (tmp_path / "steps.jsonl").read_text() == "old"
    assert (tmp_path / "extra.npy").read_text() == "old"
    assert not (tmp_path / ".earlier").exists()


def test_a_run_killed_while_it_overwrites_leaves_no_checkpoint_without_records(
    tmp_path, monkeypatch
):
    move, left = Path.rename, []

    def move_until_killed(path, target):
        if not left.pop():
            raise KeyboardInterrupt
        return move(path, target)

    monkeypatch.setattr(Path, "rename", move_until_killed)
    for moved in range(len(RESULTS)):
        directory = tmp_path / str(moved)
        directory.mkdir()
        for name in RESULTS:
            (directory / name).touch()
        left[:] = [False] + [True] * moved
        with pytest.raises(KeyboardInterrupt):
            move_results_aside(directory)
        if (directory / "checkpoint.npz").exists():
            assert (directory / "steps.jsonl").exists()
    assert not (directory / "checkpoint.npz").exists()


@pytest.mark.parametrize("mark", ["manifest.json", "incomplete.json"])
@pytest.mark.parametrize("name", [".", "below"])
def test_a_store_is_no_directory_for_results(tmp_path, mark, name):
    (tmp_path / mark).write_text("{}")
    with pytest.raises(InputError, match="is a store, or in a store"):
        prepare_directory(tmp_path / name, allow_existing=True)
    assert [path.name for path in tmp_path.iterdir()] == [mark]


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_the_place_of_the_directory(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=rf"{name} cannot be used for results"):
        prepare_directory(tmp_path / name, allow_existing=True)
    assert (tmp_path / "file").read_text() == "mine"


# --- lines --------------------------------------------------------------------------------


def lines_of(*records):
    writer = LineWriter()
    writer.header({})
    return [json.loads(writer.step(each)) for each in records]


def test_a_line_leaves_out_what_is_as_on_the_line_before():
    first, second, third = lines_of(
        record(0), record(1, measured=0.75), replace(record(2), rows=[4, 0, 8], available=(3,))
    )
    assert list(first)[:3] == ["kind", "step", "tick"]
    assert set(first) == {"kind", *(field.name for field in fields(StepRecord))} - set(DEFAULTS)
    assert {name for name in second if second[name] != first.get(name)} == {
        *("step", "tick", "seconds", "measured_makespan", "hindsight_makespan"),
        "collect_seconds",
    }
    assert set(second) == {"kind", "step", "tick", "seconds", "measured_makespan"} | {
        "hindsight_makespan",
        "collect_seconds",
    }
    assert (third["rows"], third["available"]) == ([4, 0, 8], [3])
    assert "assignment" not in third


@given(name=st.binary().map(os.fsdecode))
@example(name="caf\udce9")
@example(name="\udce9\U0001f600\\udce9\ud83d\\")
def test_names_that_are_not_utf_8_are_written_as_escapes(name):
    line = LineWriter().header({"shard_files": [name]})
    shown = name.encode(errors="backslashreplace").decode()
    assert msgspec.json.decode(line)["shard_files"] == json.loads(line)["shard_files"] == [shown]


def test_what_is_measured_ends_at_a_nanosecond():
    odd = replace(
        record(0),
        seconds=[0.1234567894321, 0.0, 3.0000000004],
        announce_seconds=1.23456789e-7,
        cancellation=1.23456789e-17,
        hindsight_makespan=1e-7 / 3,
    )
    (line,) = lines_of(odd)
    assert line["seconds"] == [0.123456789, 0.0, 3.0]
    assert line["announce_seconds"] == 1.23e-7
    assert line["cancellation"] == odd.cancellation
    assert line["hindsight_makespan"] == odd.hindsight_makespan
    machines = [each / 7 for each in range(200)]
    (line,) = lines_of(replace(odd, seconds=machines))
    assert line["seconds"] == [round(each, 9) for each in machines]


@given(
    st.lists(
        st.builds(
            lambda changes, events: {**changes, "events": events},
            st.fixed_dictionaries(
                {},
                optional={
                    "rows": st.lists(st.integers(0, 3), min_size=3, max_size=3),
                    "available": st.sets(st.integers(1, 3)).map(sorted).map(tuple),
                    "seconds": st.lists(st.integers(0, 9).map(float), min_size=3, max_size=3),
                    "condition": st.none() | st.floats(1, 9),
                    "waited_ticks": st.integers(0, 2),
                    "plan_changed": st.booleans(),
                    "assignment": st.sampled_from([[[], [], []], [[0, 2], [], [5, 6]]]),
                },
            ),
            st.lists(st.builds(lambda n: {"late": n}, st.integers(1, 3)), max_size=2),
        ),
        max_size=8,
    ),
    st.sets(st.integers(0, 7)),
)
def test_whole_steps_come_back_whatever_was_left_out(tmp_path_factory, changes, resumed):
    path = tmp_path_factory.mktemp("steps") / "steps.jsonl"
    recorder, written = Recorder(), []
    with path.open("w") as stream:
        recorder.write_to(stream)
        for step, each in enumerate(changes):
            if step in resumed:
                recorder.write_to(stream)
            recorder.progress(residual=1 / (step + 1), other=float("nan"))
            recorder.step(replace(record(step), **each))
            recorder.checkpoint()
            written.append({"kind": "step", **asdict(replace(record(step), **each))})
    found = read_steps(path)[1]
    assert found == [{**each, "available": list(each["available"])} for each in written]


# --- reading ------------------------------------------------------------------------------


HEADER = '{"kind": "header", "version": 4, "rows": 3}\n'


def line_of(number=0, **changes):
    """A step as it is written, with other values; a field that is to be ... is left out."""
    content = {"kind": "step", **asdict(record(number)), **changes}
    return json.dumps({name: value for name, value in content.items() if value is not ...}) + "\n"


STEP = line_of()


NO_RECORDS = {
    "empty": "",
    "blank": "\n",
    "text": "hello\n",
    "bytes": "\udcff\udcfe\n",
    "no header": STEP,
    "header last": STEP + HEADER,
    "list": "[1, 2]\n",
    "number": "3\n",
    "cut": HEADER + "{",
    "a step that is none": HEADER + "3\n",
}


@pytest.mark.parametrize("name", NO_RECORDS)
def test_what_is_no_record_of_steps_is_refused_by_name(tmp_path, name):
    path = tmp_path / "steps.jsonl"
    path.write_text(NO_RECORDS[name], errors="surrogateescape")
    with pytest.raises(InputError, match=r"steps\.jsonl"):
        read_steps(path)


HOSTILE = {
    "text as a number": line_of(step="0"),
    "true as a number": line_of(5, tick=True),
    "a fraction of a step": line_of(step=0.5),
    "a negative tick": line_of(5, tick=-1),
    "a step without bounds": line_of(step=10**40),
    "a step of five thousand digits": line_of(step=7).replace('"step": 7', f'"step": {"7" * 5000}'),
    "a tick of null": line_of(5, tick=None),
    "text as a time": line_of(5, measured_makespan="0.5"),
    "no time": line_of(5, measured_makespan=None),
    "a time that is infinite": line_of(5, measured_makespan=float("inf")),
    "a time that is no number": line_of(5, measured_makespan=float("nan")),
    "a time that overflows": line_of(5).replace(
        '"predicted_makespan": null', '"predicted_makespan": 1e999'
    ),
    "a time of a whole number without bounds": line_of(5, hindsight_makespan=10**400),
    "a time that cannot be added": line_of(5, measured_makespan=1e308),
    "a time before the beginning": line_of(5, measured_makespan=-1.0),
    "a list for a number": line_of(5, waited_ticks=[1]),
    "a number for a list": line_of(5, rows=3),
    "text in a list": line_of(5, rows=[4, "0", 6]),
    "a list that is too short": line_of(5, seconds=[0.1]),
    "a machine that there is not": line_of(5, available=[1, 4]),
    "a machine twice": line_of(5, available=[1, 1]),
    "no list of machines": line_of(5, available="13"),
    "a number for an object": line_of(5, bytes=3),
    "text in an object": line_of(5, bytes={"share": "80"}),
    "an event that is none": line_of(5, events=["lost"]),
    "an event of no kind": line_of(5, events=[{"moved": 2}]),
    "an event of nothing": line_of(5, events=[{}]),
    "a machine that is away for no reason": line_of(5, away={"asleep": {2: 0}}),
    "a machine away that there is not": line_of(5, away={"lost": {4: 0}}),
    "a delay that ends before it begins": line_of(5, delays={1: -1.0}),
    "no machine that delays": line_of(5, delays={"all": 1.0}),
    "a word for yes or no": line_of(5, plan_changed="false"),
    "a list for a step": "[1]\n",
    "nothing": "\n",
    "another kind": line_of(5, kind="stop"),
    "a kind that is a list": line_of(5, kind=["step"]),
    "brackets without end": "[" * 100_000 + "\n",
    "half a line": '{"kind": "step", "step"\n',
    "bytes": "\udcff\udcfe\n",
    "no step": line_of(5, step=...),
    "an assignment that is none": line_of(5, assignment=3),
    "an assignment of another number of machines": line_of(5, assignment=[[0, 4]]),
    "an interval without an end": line_of(5, assignment=[[0], [], []]),
    "an interval backwards": line_of(5, assignment=[[4, 0], [], []]),
    "fewer machines than there were": line_of(5, rows=[4, 6]),
    "progress of nothing": '{"kind": "progress"}\n',
    "progress that is text": '{"kind": "progress", "known": {"residual": "0.1"}}\n',
    "records of an older version": '{"kind": "header", "rows": 3}\n',
    "records of a later version": '{"kind": "header", "version": 5}\n',
    "records of a version that is none": '{"kind": "header", "version": true}\n',
    **{
        f"no {field.name} after a header": HEADER + line_of(5, **{field.name: ...})
        for field in fields(StepRecord)
        if field.name not in DEFAULTS
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_step_that_is_none_is_refused_by_line_and_nothing_is_cut_off(tmp_path, name):
    path = tmp_path / "steps.jsonl"
    content = HEADER + line_of(0) + HOSTILE[name] + line_of(9) + '{"kind": "step", "st'
    path.write_text(content, errors="surrogateescape")
    before = path.read_bytes()
    number = 3 + HOSTILE[name].startswith(HEADER)
    with pytest.raises(InputError, match=rf"steps\.jsonl, line {number}[:, ]") as refused:
        resume_steps(path)
    assert "--overwrite" in str(refused.value)
    assert len(str(refused.value)) < 600 + len(str(tmp_path))
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("numbers", [(0, 0), (0, 1, 1), (1, 0), (0, 2, 1)])
def test_steps_twice_or_out_of_order_are_refused(tmp_path, numbers):
    path = tmp_path / "steps.jsonl"
    path.write_text(HEADER + "".join(map(line_of, numbers)))
    with pytest.raises(InputError, match="expected ascending step numbers"):
        resume_steps(path)


@pytest.mark.parametrize("version", [None, 1, 3, 5, "3"])
def test_records_of_another_version_are_refused_as_such(tmp_path, version):
    path = tmp_path / "steps.jsonl"
    header = {"kind": "header"} | ({} if version is None else {"version": version})
    path.write_text(json.dumps(header) + "\n")
    found = repr(version or 1)
    with pytest.raises(InputError, match=rf"line 1 begins .* version {found}: expected version 4"):
        read_steps(path)


def test_what_no_file_is_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "/dev/zero"):
        for read in (read_steps, resume_steps):
            with pytest.raises(InputError, match="expected a file"):
                read(tmp_path / name)


def test_every_number_that_a_run_writes_can_be_read_again(tmp_path):
    path = tmp_path / "steps.jsonl"
    odd = record(0, measured=0.0, predicted=float("inf"))
    written = replace(odd, condition=float("inf"), cancellation=float("inf"), available=(), tick=7)
    with path.open("w") as stream:
        recorder = Recorder()
        recorder.write_to(stream)
        recorder.step(written)
    assert resume_steps(path).steps[0].condition is None


def test_a_record_without_steps(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text(HEADER)
    assert read_steps(path) == ({"kind": "header", "version": 4, "rows": 3}, [])


# --- going on -----------------------------------------------------------------------------


def test_a_run_goes_on_with_the_steps_of_the_one_before(tmp_path):
    path = tmp_path / "steps.jsonl"
    with path.open("w") as stream:
        first = Recorder()
        first.header({"rows": 10})
        first.write_to(stream)
        for step in range(3):
            first.step(record(step))
        stream.write('{"kind": "step", "step"')  # killed while it wrote
    earlier = resume_steps(path)
    assert [step.step for step in earlier.steps] == [0, 1, 2]
    recorder = Recorder(earlier=earlier)
    assert (recorder.steps, recorder.next_step, recorder.next_tick) == (3, 3, 3)
    assert recorder.summary()["compute_seconds"] == pytest.approx(1.5)
    with path.open("a") as stream:
        recorder.header({"rows": 10})
        recorder.write_to(stream)
        recorder.step(record(3))
    header, steps = read_steps(path)
    assert (header["kind"], header["rows"]) == ("header", 10)
    assert [step["step"] for step in steps] == [0, 1, 2, 3]
    assert recorder.steps == 4


def test_a_record_that_is_missing(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_steps(tmp_path / "steps.jsonl")
    with pytest.raises(InputError, match=r"cannot be read: No such file.*--overwrite"):
        resume_steps(tmp_path / "steps.jsonl")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"task": "cg"}', {"task": "cg"}),
        ("[]", None),
        ("[", None),
        (None, None),
        ('{"run": []}', None),
        ('{"run": "cg"}', None),
        ("[" * 100_000, None),
        ("\x00", None),
    ],
)
def test_the_summary_of_a_directory(tmp_path, text, found):
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    assert read_summary(tmp_path) == found


def test_a_summary_that_is_no_file_is_none(tmp_path):
    os.mkfifo(tmp_path / "summary.json")
    assert read_summary(tmp_path) is None


def test_names_of_arrays_that_no_run_has_written_are_passed_over(tmp_path):
    (tmp_path / "summary.json").write_text('{"arrays": ["../mine", ["u"], 3, null, "u"]}')
    for name in ("u.npy", "None.npy"):
        (tmp_path / name).write_text("")
    (tmp_path.parent / "mine.npy").write_text("")
    move_results_aside(tmp_path)
    assert sorted(path.name for path in (tmp_path / ".earlier").iterdir()) == [
        "summary.json",
        "u.npy",
    ]
    assert (tmp_path.parent / "mine.npy").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"step": "0"}, 'line 2, field "step": expected `int`, got `str`'),
        ({"seconds": [0.1, -1.0, 0.5]}, r'line 2, field "seconds\[1\]": expected `float` >= 0.0'),
        (
            {"rows": [4, 6]},
            'line 2, field "seconds": expected 2 entries .*, got 3',
        ),
        ({"away": {"asleep": {2: 0}}}, r"line 2: Invalid enum value 'asleep' - at .*`\$\.away`"),
    ],
)
def test_an_error_names_line_and_field(tmp_path, changes, says):
    path = tmp_path / "steps.jsonl"
    path.write_text(HEADER + line_of(0, **changes))
    with pytest.raises(InputError, match=says):
        read_steps(path)
