"""What a run leaves behind: a line per step as it happens, a summary, a directory."""

import json
from dataclasses import fields

import pytest

from cec_mpi.errors import InputError
from cec_mpi.records import (
    Recorder,
    StepRecord,
    keep_results,
    prepare_directory,
    read_steps,
    read_summary,
    restore_results,
    resume_steps,
    set_results_aside,
)

RESULTS = [
    "steps.jsonl",
    "summary.json",
    "result.npy",
    "checkpoint.npz",
    "checkpoint.previous.npz",
]


def record(step, measured=0.5, predicted=None, waited=0, changed=False):
    return StepRecord(
        step=step,
        tick=step + waited,
        waited_ticks=waited,
        available=(1, 3),
        store=0,
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
        error_bound=1e-12,
        events=[],
    )


def test_each_record_is_on_disk_as_soon_as_it_happens(tmp_path):
    path = tmp_path / "steps.jsonl"
    with path.open("w") as stream:
        recorder = Recorder()
        recorder.header({"rows": 10})
        recorder.write_to(stream)
        assert [json.loads(line) for line in path.read_text().splitlines()] == [
            {"kind": "header", "rows": 10}
        ]
        for step in range(3):
            recorder.step(record(step))
            assert path.read_text().endswith("}\n")
            assert len(path.read_text().splitlines()) == step + 2
            assert json.loads(path.read_text().splitlines()[-1])["step"] == step


def test_a_step_is_one_json_object_with_every_field(tmp_path):
    path = tmp_path / "steps.jsonl"
    with path.open("w") as stream:
        recorder = Recorder()
        recorder.write_to(stream)
        recorder.step(record(0, predicted=0.25))
    header, steps = read_steps(path)
    assert header == {"kind": "header"}
    assert set(steps[0]) == {"kind", *(field.name for field in fields(StepRecord))}
    assert steps[0]["kind"] == "step"
    assert steps[0]["available"] == [1, 3]
    assert steps[0]["rows"] == [4, 0, 6]
    assert steps[0]["predicted_makespan"] == 0.25
    assert steps[0]["bytes"] == {"announce": 24, "share": 80, "collect": 160}


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
        "compute_seconds": pytest.approx(2.4),
        "median_makespan": pytest.approx(0.55),
        "median_measured_over_predicted": pytest.approx(2.0),
        "median_regret": pytest.approx(0.25),
    }


def test_the_summary_of_nothing():
    summary = Recorder().summary()
    assert summary["steps"] == summary["compute_seconds"] == 0
    assert summary["median_makespan"] is summary["median_measured_over_predicted"] is None
    assert json.dumps(summary)


def test_a_display_sees_every_record():
    seen = []
    recorder = Recorder(watch=seen.append)
    recorder.header({})
    records = [record(0), record(1)]
    for each in records:
        recorder.step(each)
    assert seen == records


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
    with pytest.raises(InputError, match=rf"holds results \({name}\).*--overwrite"):
        prepare_directory(tmp_path, used=False)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "results"


def test_overwrite_removes_results_and_nothing_else(tmp_path):
    for name in [*RESULTS, "notes.txt"]:
        (tmp_path / name).write_text("old")
    prepare_directory(tmp_path, used=True)
    set_results_aside(tmp_path)
    keep_results(tmp_path)
    assert not (tmp_path / ".earlier").exists()
    assert not [name for name in RESULTS if (tmp_path / name).exists()]
    assert (tmp_path / "notes.txt").read_text() == "old"


def test_a_run_that_came_to_nothing_gives_the_earlier_results_back(tmp_path):
    for name in [*RESULTS, "extra.npy", "notes.txt"]:
        (tmp_path / name).write_text("old")
    (tmp_path / "summary.json").write_text('{"arrays": ["result", "extra"]}')
    set_results_aside(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".earlier", "notes.txt"]
    (tmp_path / "steps.jsonl").write_text("new")
    restore_results(tmp_path)
    assert (tmp_path / "steps.jsonl").read_text() == "old"
    assert (tmp_path / "extra.npy").read_text() == "old"
    assert not (tmp_path / ".earlier").exists()


def test_a_store_is_no_directory_for_results(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="is a store"):
        prepare_directory(tmp_path, used=True)


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_the_place_of_the_directory(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=rf"{name} cannot be used for results"):
        prepare_directory(tmp_path / name, used=True)
    assert (tmp_path / "file").read_text() == "mine"


# --- reading ------------------------------------------------------------------------------


HEADER = '{"kind": "header", "rows": 3}\n'
STEP = '{"kind": "step", "step": 0}\n'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"hello\n",
        b"\xff\xfe\n",
        STEP.encode(),
        (STEP + HEADER).encode(),
        b"[1, 2]\n",
        b"3\n",
        (HEADER + "{").encode(),
        (HEADER + "3\n").encode(),
    ],
    ids=[
        "empty",
        "blank",
        "text",
        "bytes",
        "no header",
        "header last",
        "list",
        "number",
        "cut",
        "a step that is none",
    ],
)
def test_what_is_no_record_of_steps_is_refused_by_name(tmp_path, content):
    path = tmp_path / "steps.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"steps\.jsonl"):
        read_steps(path)


@pytest.mark.parametrize("name", ["absent.jsonl", "."])
def test_a_record_that_cannot_be_read(tmp_path, name):
    with pytest.raises(InputError, match="cannot be read"):
        read_steps(tmp_path / name)


def test_a_record_without_steps(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text(HEADER)
    assert read_steps(path) == ({"kind": "header", "rows": 3}, [])


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
    steps = resume_steps(path)
    assert [step["step"] for step in steps] == [0, 1, 2]
    recorder = Recorder(earlier=steps)
    assert (recorder.steps, recorder.next_step, recorder.next_tick) == (3, 3, 3)
    assert recorder.summary()["compute_seconds"] == pytest.approx(1.5)
    with path.open("a") as stream:
        recorder.header({"rows": 10})
        recorder.write_to(stream)
        recorder.step(record(3))
    header, steps = read_steps(path)
    assert header == {"kind": "header", "rows": 10}
    assert [step["step"] for step in steps] == [0, 1, 2, 3]
    assert recorder.steps == 4


def test_steps_that_are_missing_cannot_be_gone_on_with(tmp_path):
    with pytest.raises(InputError, match="cannot be gone on with"):
        resume_steps(tmp_path / "steps.jsonl")


@pytest.mark.parametrize(
    ("text", "found"), [('{"task": "cg"}', {"task": "cg"}), ("[]", None), ("[", None), (None, None)]
)
def test_the_summary_of_a_directory(tmp_path, text, found):
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    assert read_summary(tmp_path) == found
