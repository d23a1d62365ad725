"""Checkpoints survive crashes and damage: a run resumes from a valid one or not at all."""

import io
import json
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.cli.run.checkpoints import (
    CheckpointFile,
    ResumeState,
    read_checkpoint,
)
from cec_mpi.errors import InputError
from cec_mpi.runtime.options.values import Interval
from cec_mpi.runtime.records.directory import has_checkpoint

ABOUT = {"task": "power", "options": {"tol": "1e-08"}, "shards": ["0123456789abcdef"]}
NEWEST, PREVIOUS_CHECKPOINT = "checkpoint.npz", "checkpoint.previous.npz"


def make_state(step):
    return {
        "w": np.random.default_rng(step).standard_normal(3),
        "step": np.array(step),
        "basis": np.asfortranarray(np.arange(4.0).reshape(2, 2) + 1j * step),
        "note": np.array("ok"),
    }


def make_checkpoint(directory, resumed=None):
    return CheckpointFile(directory, ABOUT, resumed or ResumeState({}), Interval(), lambda: 0)


def write(checkpoint, *steps):
    for step in steps:
        checkpoint.save(**make_state(step))
        assert checkpoint.write()


def are_equal(state, expected):
    return state.keys() == expected.keys() and all(
        state[name].dtype == value.dtype
        and state[name].shape == value.shape
        and state[name].tobytes() == value.tobytes()
        for name, value in expected.items()
    )


@pytest.fixture(scope="module")
def saved_twice(tmp_path_factory):
    """A directory with checkpoints 1 and 2."""
    directory = tmp_path_factory.mktemp("two")
    write(make_checkpoint(directory), 1, 2)
    return directory


@pytest.fixture(scope="module")
def newest(saved_twice):
    """Bytes of checkpoint 2."""
    return (saved_twice / NEWEST).read_bytes()


def read_with_newest(directory, content):
    """Return the state that a run resumes if the newest checkpoint has this content."""
    (directory / NEWEST).write_bytes(content)
    return read_checkpoint(directory, ABOUT)


def file_names(directory):
    return sorted(path.name for path in directory.iterdir())


def assert_valid(found):
    assert are_equal(found.state, make_state(1 if found.problem else 2))


@given(data=st.data())
def test_a_damaged_checkpoint_gives_no_wrong_state(saved_twice, newest, data):
    content = bytearray(newest)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(newest) - 1))] = data.draw(st.integers(0, 255))
    assert_valid(read_with_newest(saved_twice, content[: data.draw(st.integers(0, len(newest)))]))


def test_invalid_checkpoints_are_named(saved_twice, newest, tmp_path):
    np.savez(tmp_path / "old.npz", about=json.dumps({"version": 1, **ABOUT}), **{"state.w": 1})
    np.savez(tmp_path / "other.npz", w=1)
    np.save(tmp_path / "array.npy", 1)
    for content, message in (
        (b"", "not a complete .npz file"),
        (b"hello", "not a complete .npz file"),
        ((tmp_path / "other.npz").read_bytes(), "its description is missing"),
        ((tmp_path / "array.npy").read_bytes(), "not a complete .npz file"),
        ((tmp_path / "old.npz").read_bytes(), "version 1, expected 2"),
    ):
        found = read_with_newest(saved_twice, content)
        assert f"{saved_twice / NEWEST} cannot be read as a checkpoint" in found.problem
        assert message in found.problem
        assert PREVIOUS_CHECKPOINT in found.problem
        assert_valid(found)


def npy_header(shape, dtype="<f8"):
    """Return the header of an .npy file with this shape."""
    file = io.BytesIO()
    content = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, content)
    return file.getvalue()


def zip_file(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def overlapping_archive(times, size):
    """Return an archive whose members share the same bytes."""
    content = npy_header((size // 8,)) + bytes(size)
    single = zip_file([("a.npy", content)])
    offset = int.from_bytes(single[-6:-2], "little")  # of the directory
    entry = single[offset:-22]
    entries = b"".join(entry.replace(b"a.npy", b"%05d" % n) for n in range(times))
    counts = struct.pack("<HHII", times, times, len(entries), offset)
    return single[:offset] + entries + single[-22:-14] + counts + b"\0\0"


BOMBS = {
    "compressed": zip_file(
        [("state.w.npy", npy_header((1 << 24,)) + bytes(1 << 27))], zipfile.ZIP_DEFLATED
    ),
    "a member many times": overlapping_archive(1000, 1 << 17),
    "an array larger than its member": zip_file([("state.w.npy", npy_header((1 << 40,)) + b"12")]),
    "an array that no computer holds": zip_file([("state.w.npy", npy_header((1 << 62, 8)))]),
    "very many empty strings": zip_file([("state.w.npy", npy_header((1 << 62,), "|S0"))]),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_archives_that_expand_too_much_are_refused(saved_twice, newest, bomb):
    (saved_twice / NEWEST).write_bytes(BOMBS[bomb])
    tracemalloc.start()
    try:
        found = read_checkpoint(saved_twice, ABOUT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        (saved_twice / NEWEST).write_bytes(newest)
    assert "cannot be read as a checkpoint" in found.problem
    assert_valid(found)
    assert peak < 1 << 24


MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: None, f"{NEWEST} is missing"),
        (os.mkfifo, "expected a file"),
        (lambda path: (path.touch(), os.truncate(path, MEMORY + 1)), "of memory"),
    ],
)
def test_an_unreadable_checkpoint_leaves_the_previous_one(tmp_path, make, problem):
    write(make_checkpoint(tmp_path), 1, 2)
    (tmp_path / NEWEST).unlink()
    make(tmp_path / NEWEST)
    assert has_checkpoint(tmp_path)
    found = read_checkpoint(tmp_path, ABOUT)
    assert problem in found.problem
    assert_valid(found)


def test_two_damaged_checkpoints_are_refused(tmp_path):
    write(make_checkpoint(tmp_path), 1)
    (tmp_path / NEWEST).write_bytes(b"x")
    with pytest.raises(InputError, match=r"checkpoint\.npz cannot be read as .*--overwrite"):
        read_checkpoint(tmp_path, ABOUT)
    (tmp_path / PREVIOUS_CHECKPOINT).write_bytes(b"x")
    with pytest.raises(InputError, match=r"checkpoint\.npz .* and .*checkpoint\.previous\.npz"):
        read_checkpoint(tmp_path, ABOUT)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, damaged):
    write(make_checkpoint(tmp_path), 1, 2)
    if damaged:
        (tmp_path / NEWEST).write_bytes(b"x")
    for other in ({"task": "svd"}, {"options": {}}, {"shards": ["fedcba9876543210"]}):
        with pytest.raises(InputError, match="the same task, options and matrix"):
            read_checkpoint(tmp_path, ABOUT | other)


def test_a_damaged_checkpoint_never_replaces_the_previous_one(tmp_path):
    write(make_checkpoint(tmp_path), 1, 2)
    (tmp_path / NEWEST).write_bytes(b"x")
    before = (tmp_path / PREVIOUS_CHECKPOINT).read_bytes()
    checkpoint = make_checkpoint(tmp_path, read_checkpoint(tmp_path, ABOUT))
    write(checkpoint, 3)
    assert (tmp_path / PREVIOUS_CHECKPOINT).read_bytes() == before
    assert are_equal(read_checkpoint(tmp_path, ABOUT).state, make_state(3))
    write(checkpoint, 4)
    (tmp_path / NEWEST).unlink()
    assert are_equal(read_checkpoint(tmp_path, ABOUT).state, make_state(3))


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("links", ["links", "no links"])
def test_a_killed_write_leaves_a_valid_checkpoint(tmp_path, monkeypatch, links):
    """Kill the process at each call that changes a directory, in turn."""
    calls = ("link", "rename", "unlink", "fsync", "open")
    originals = {name: getattr(os, name) for name in calls}
    remaining = 0

    def kill_at(name):
        def call(*arguments, **options):
            nonlocal remaining
            if name == "link" and links == "no links":
                raise PermissionError(1, "Operation not permitted")
            remaining -= 1
            if remaining < 0:
                raise _Killed
            return originals[name](*arguments, **options)

        return call

    killed = 0
    for moment in range(100):
        directory = tmp_path / str(moment)
        directory.mkdir()
        checkpoint = make_checkpoint(directory)
        write(checkpoint, 1, 2)
        checkpoint.save(**make_state(3))
        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, kill_at(name))
            remaining = moment
            try:
                checkpoint.write()
            except _Killed:
                killed += 1
        found = read_checkpoint(directory, ABOUT)
        assert found.problem == ""
        assert are_equal(found.state, make_state(2)) or are_equal(found.state, make_state(3))
        write(make_checkpoint(directory, found), 4)  # despite partial files
        assert are_equal(read_checkpoint(directory, ABOUT).state, make_state(4))
        if remaining >= 0:
            break
    assert killed >= 5


@pytest.mark.parametrize(
    ("interval", "written"),
    [
        (Interval(), []),
        (Interval(steps=4), [4, 8, 12]),
        (Interval(seconds=60.0), [6, 12]),
    ],
)
def test_a_checkpoint_is_written_when_its_interval_has_passed(tmp_path, interval, written):
    moment = 0  # each step takes ten seconds
    checkpoint = CheckpointFile(
        tmp_path, ABOUT, ResumeState({}), interval, lambda: moment, lambda: 10.0 * moment
    )
    steps = []
    checkpoint.after_writing = lambda: steps.append(moment)
    for moment in range(1, 14):
        checkpoint.save(step=moment)
    assert steps == written
    assert checkpoint.wanted == bool(written)
    if written:
        assert checkpoint.every == written[0]


def test_a_function_in_a_state_is_called_only_when_the_checkpoint_is_written(tmp_path):
    checkpoint = make_checkpoint(tmp_path)
    calls = []
    for number in range(3):
        checkpoint.save(step=lambda number=number: calls.append(number) or number)
    assert calls == []
    assert checkpoint.write()
    assert calls == [2]
    assert read_checkpoint(tmp_path, ABOUT).state["step"] == 2


def test_a_finished_run_has_no_checkpoint(tmp_path):
    checkpoint = make_checkpoint(tmp_path)
    write(checkpoint, 1, 2)
    checkpoint.remove()
    assert file_names(tmp_path) == []
    assert not has_checkpoint(tmp_path)
    assert read_checkpoint(tmp_path, ABOUT) == ResumeState({})
    checkpoint.remove()
