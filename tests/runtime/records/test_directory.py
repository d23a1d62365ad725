"""The directory of a run, which may contain results of an earlier run."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.records.directory import (
    discard_earlier_results,
    move_results_aside,
    prepare_directory,
    read_summary,
    remove_if_rejected,
    restore_results,
)
from cec_mpi.store.files.durable import locked

RESULTS = ["steps.jsonl", "summary.json", "result.npy", "checkpoint.npz", "checkpoint.previous.npz"]
HEADER = '{"kind":"header","version":4}\n'


def create_files(directory, files, text="old"):
    for name in files:
        (directory / name).write_text(text)


def list_names(directory):
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["steps.jsonl", "summary.json", "result.npy"], "holds results"),
        (["result.npy"], r"holds results \(result.npy\): use --resume, --overwrite or another"),
        (["steps.jsonl"], "holds an incomplete run .*: --resume restarts it, .*--overwrite"),
        (["checkpoint.npz"], "holds an incomplete run .*: --resume continues it, "),
        (["checkpoint.previous.npz"], "holds an incomplete run .*: --resume continues it, "),
    ],
)
def test_results_are_not_overwritten_without_the_option(tmp_path, files, message):
    create_files(tmp_path, files, f'{HEADER}{{"kind": "step"}}\n')
    with pytest.raises(InputError, match=message):
        prepare_directory(tmp_path, allow_existing=False)
    assert list_names(tmp_path) == set(files)
    prepare_directory(tmp_path, allow_existing=True)


@pytest.mark.parametrize(
    ("existing", "name", "message"),
    [
        ("manifest.json", ".", "is a store, or in a store"),
        ("incomplete.json", "below", "is a store, or in a store"),
        ("file", "file", "file cannot be used for results: it is a file"),
        ("file", "file/below", "file/below cannot be used for results"),
    ],
)
def test_results_are_not_written_to_stores_or_files(tmp_path, existing, name, message):
    create_files(tmp_path, [existing])
    with pytest.raises(InputError, match=message):
        prepare_directory(tmp_path / name, allow_existing=True)
    assert list_names(tmp_path) == {existing}


def test_logs_are_not_written_through_a_link(tmp_path):
    (tmp_path / "logs").symlink_to("/tmp")
    with pytest.raises(InputError, match="logs is a link"):
        prepare_directory(tmp_path, allow_existing=True)


@pytest.mark.parametrize("text", ["", '{"kind":"header"', HEADER])
def test_a_run_that_was_killed_before_its_first_step_is_overwritten(tmp_path, text):
    create_files(tmp_path, ["steps.jsonl"], text)
    create_files(tmp_path, ["result.npy", ".lock"])
    prepare_directory(tmp_path, allow_existing=False)
    with locked(tmp_path, "busy"), pytest.raises(InputError, match="holds an incomplete run"):
        prepare_directory(tmp_path, allow_existing=False)
    (tmp_path / ".earlier").mkdir()
    with pytest.raises(InputError, match="holds"):
        prepare_directory(tmp_path, allow_existing=False)


def test_a_rejected_run_leaves_no_directory(tmp_path):
    path = tmp_path / "new" / "run"

    def reject(files, is_locked=False):
        with ExitStack() as stack, remove_if_rejected(path):
            prepare_directory(path, allow_existing=False)
            create_files(path, files)
            if is_locked:
                stack.enter_context(locked(path, "busy"))
            raise InputError("wrong")

    for files, is_locked in (([], False), (["notes.txt"], False), ([], True)):
        with pytest.raises(InputError, match="wrong"):
            reject(files, is_locked)
        assert path.parent.exists() == (is_locked or files != [])
        assert (path / "logs").exists() == is_locked


def test_earlier_results_are_moved_and_discarded_or_restored(tmp_path):
    (tmp_path.parent / "mine.npy").write_text("")
    for finish, expected in ((restore_results, "old"), (discard_earlier_results, "new")):
        create_files(tmp_path, [*RESULTS, "extra.npy", "None.npy", "notes.txt"])
        arrays = '{"arrays": ["result", "extra", "../mine", ["u"], 3, null]}'
        create_files(tmp_path, ["summary.json"], arrays)
        move_results_aside(tmp_path)
        assert list_names(tmp_path) == {".earlier", "None.npy", "notes.txt"}
        create_files(tmp_path, ["steps.jsonl"], "new")
        finish(tmp_path)
        assert (tmp_path / "steps.jsonl").read_text() == expected
        assert (tmp_path / "extra.npy").exists() == (expected == "old")
        assert not (tmp_path / ".earlier").exists()
    assert (tmp_path.parent / "mine.npy").exists()


def test_a_kill_while_results_are_moved_leaves_no_checkpoint_without_records(tmp_path, monkeypatch):
    move, remaining_moves = Path.rename, 0

    def move_or_be_killed(path, target):
        nonlocal remaining_moves
        if not remaining_moves:
            raise KeyboardInterrupt
        remaining_moves -= 1
        return move(path, target)

    monkeypatch.setattr(Path, "rename", move_or_be_killed)
    for moves in range(len(RESULTS)):
        directory = tmp_path / str(moves)
        directory.mkdir()
        create_files(directory, RESULTS)
        remaining_moves = moves
        with pytest.raises(KeyboardInterrupt):
            move_results_aside(directory)
        names = list_names(directory)
        assert "steps.jsonl" in names or "checkpoint.npz" not in names
    assert not (directory / "checkpoint.npz").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"task": "cg"}', {"task": "cg"}),
        *((text, None) for text in ("[]", "[", None, '{"run": "cg"}', "[" * 100_000, "\x00")),
    ],
)
def test_an_invalid_summary_is_read_as_none(tmp_path, text, expected):
    if text is None:
        os.mkfifo(tmp_path / "summary.json")
    else:
        create_files(tmp_path, ["summary.json"], text)
    assert read_summary(tmp_path) == expected
