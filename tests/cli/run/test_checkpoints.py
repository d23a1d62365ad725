"""Checkpoints survive crashes and damage: runs continue from a valid one or not at all."""

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


def state_of(step):
    return {
        "w": np.random.default_rng(step).standard_normal(3),
        "done": np.array(step),
        "basis": np.asfortranarray(np.arange(4.0).reshape(2, 2) + 1j * step),
        "note": np.array("ok"),
    }


def checkpoint_in(directory, found=None):
    return CheckpointFile(directory, ABOUT, found or ResumeState({}), Interval(), lambda: 0)


def write(checkpoint, *steps):
    for step in steps:
        checkpoint.save(**state_of(step))
        assert checkpoint.write()


def are_equal(state, expected):
    return state.keys() == expected.keys() and all(
        state[name].dtype == value.dtype
        and state[name].shape == value.shape
        and state[name].tobytes() == value.tobytes()
        for name, value in expected.items()
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A directory with checkpoints 1 and 2."""
    directory = tmp_path_factory.mktemp("two")
    write(checkpoint_in(directory), 1, 2)
    return directory


@pytest.fixture(scope="module")
def newest(two):
    """Bytes of checkpoint 2."""
    return (two / NEWEST).read_bytes()


def read_with_newest(directory, content):
    """Return the state of a resumed run if the newest checkpoint has this content."""
    (directory / NEWEST).write_bytes(content)
    return read_checkpoint(directory, ABOUT)


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def assert_complete(found):
    assert are_equal(found.state, state_of(1 if found.problem else 2))


@given(data=st.data())
def test_a_damaged_checkpoint_gives_no_wrong_state(two, newest, data):
    content = bytearray(newest)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(newest) - 1))] = data.draw(st.integers(0, 255))
    assert_complete(read_with_newest(two, content[: data.draw(st.integers(0, len(newest)))]))


def test_invalid_checkpoints_are_named(two, newest, tmp_path):
    np.savez(tmp_path / "old.npz", about=json.dumps({"version": 1, **ABOUT}), **{"state.w": 1})
    np.savez(tmp_path / "other.npz", w=1)
    np.save(tmp_path / "array.npy", 1)
    for content, says in (
        (b"", "not a complete .npz file"),
        (b"hello", "not a complete .npz file"),
        ((tmp_path / "other.npz").read_bytes(), "its description is missing"),
        ((tmp_path / "array.npy").read_bytes(), "not a complete .npz file"),
        ((tmp_path / "old.npz").read_bytes(), "version 1, expected 2"),
    ):
        found = read_with_newest(two, content)
        assert f"{two / NEWEST} cannot be read as a checkpoint" in found.problem
        assert says in found.problem
        assert PREVIOUS_CHECKPOINT in found.problem
        assert_complete(found)


def npy_header(shape, dtype="<f8"):
    """Return the header of an .npy file with this shape."""
    file = io.BytesIO()
    content = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, content)
    return file.getvalue()


def archive(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        for name, content in members:
            made.writestr(name, content)
    return file.getvalue()


def overlapping(times, size):
    """Return an archive whose members share the same bytes."""
    content = npy_header((size // 8,)) + bytes(size)
    single = archive([("a.npy", content)])
    where = int.from_bytes(single[-6:-2], "little")  # of the list
    entry = single[where:-22]
    entries = b"".join(entry.replace(b"a.npy", b"%05d" % n) for n in range(times))
    ends = struct.pack("<HHII", times, times, len(entries), where)
    return single[:where] + entries + single[-22:-14] + ends + b"\0\0"


BOMBS = {
    "compressed": archive(
        [("state.w.npy", npy_header((1 << 24,)) + bytes(1 << 27))], zipfile.ZIP_DEFLATED
    ),
    "a member many times": overlapping(1000, 1 << 17),
    "an array larger than its member": archive([("state.w.npy", npy_header((1 << 40,)) + b"12")]),
    "an array that no computer holds": archive([("state.w.npy", npy_header((1 << 62, 8)))]),
    "very many of nothing": archive([("state.w.npy", npy_header((1 << 62,), "|S0"))]),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_archives_that_expand_too_much_are_refused(two, newest, bomb):
    (two / NEWEST).write_bytes(BOMBS[bomb])
    tracemalloc.start()
    try:
        found = read_checkpoint(two, ABOUT)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        (two / NEWEST).write_bytes(newest)
    assert "cannot be read as a checkpoint" in found.problem
    assert_complete(found)
    assert most < 1 << 24


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
    write(checkpoint_in(tmp_path), 1, 2)
    (tmp_path / NEWEST).unlink()
    make(tmp_path / NEWEST)
    assert has_checkpoint(tmp_path)
    found = read_checkpoint(tmp_path, ABOUT)
    assert problem in found.problem
    assert_complete(found)


def test_two_damaged_checkpoints_are_refused(tmp_path):
    write(checkpoint_in(tmp_path), 1)
    (tmp_path / NEWEST).write_bytes(b"x")
    with pytest.raises(InputError, match=r"checkpoint\.npz cannot be read as .*--overwrite"):
        read_checkpoint(tmp_path, ABOUT)
    (tmp_path / PREVIOUS_CHECKPOINT).write_bytes(b"x")
    with pytest.raises(InputError, match=r"checkpoint\.npz .* and .*checkpoint\.previous\.npz"):
        read_checkpoint(tmp_path, ABOUT)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, damaged):
    write(checkpoint_in(tmp_path), 1, 2)
    if damaged:
        (tmp_path / NEWEST).write_bytes(b"x")
    for other in ({"task": "svd"}, {"options": {}}, {"shards": ["fedcba9876543210"]}):
        with pytest.raises(InputError, match="the same task, options and matrix"):
            read_checkpoint(tmp_path, ABOUT | other)


def test_a_damaged_checkpoint_never_replaces_the_previous_one(tmp_path):
    write(checkpoint_in(tmp_path), 1, 2)
    (tmp_path / NEWEST).write_bytes(b"x")
    before = (tmp_path / PREVIOUS_CHECKPOINT).read_bytes()
    again = checkpoint_in(tmp_path, read_checkpoint(tmp_path, ABOUT))
    write(again, 3)
    assert (tmp_path / PREVIOUS_CHECKPOINT).read_bytes() == before
    assert are_equal(read_checkpoint(tmp_path, ABOUT).state, state_of(3))
    write(again, 4)
    (tmp_path / NEWEST).unlink()
    assert are_equal(read_checkpoint(tmp_path, ABOUT).state, state_of(3))


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("names", ["links", "no links"])
def test_a_killed_write_leaves_a_valid_checkpoint(tmp_path, monkeypatch, names):
    """The process is killed at each call that changes a directory, in turn."""
    calls = ("link", "rename", "unlink", "fsync", "open")
    whole = {name: getattr(os, name) for name in calls}
    left = 0

    def dying(name):
        def call(*arguments, **options):
            nonlocal left
            if name == "link" and names == "no links":
                raise PermissionError(1, "Operation not permitted")
            left -= 1
            if left < 0:
                raise _Killed
            return whole[name](*arguments, **options)

        return call

    killed = 0
    for moment in range(100):
        directory = tmp_path / str(moment)
        directory.mkdir()
        checkpoint = checkpoint_in(directory)
        write(checkpoint, 1, 2)
        checkpoint.save(**state_of(3))
        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, dying(name))
            left = moment
            try:
                checkpoint.write()
            except _Killed:
                killed += 1
        found = read_checkpoint(directory, ABOUT)
        assert found.problem == ""
        assert are_equal(found.state, state_of(2)) or are_equal(found.state, state_of(3))
        write(checkpoint_in(directory, found), 4)  # despite partial files
        assert are_equal(read_checkpoint(directory, ABOUT).state, state_of(4))
        if left >= 0:
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
        checkpoint.save(done=moment)
    assert steps == written
    assert checkpoint.wanted == bool(written)
    if written:
        assert checkpoint.every == written[0]


def test_a_function_is_called_when_the_checkpoint_is_written(tmp_path):
    checkpoint = checkpoint_in(tmp_path)
    calls = []
    for number in range(3):
        checkpoint.save(done=lambda number=number: calls.append(number) or number)
    assert calls == []
    assert checkpoint.write()
    assert calls == [2]
    assert read_checkpoint(tmp_path, ABOUT).state["done"] == 2


def test_a_finished_run_has_no_checkpoint(tmp_path):
    checkpoint = checkpoint_in(tmp_path)
    write(checkpoint, 1, 2)
    checkpoint.remove()
    assert names_in(tmp_path) == []
    assert not has_checkpoint(tmp_path)
    assert read_checkpoint(tmp_path, ABOUT) == ResumeState({})
    checkpoint.remove()
