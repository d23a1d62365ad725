"""A record of steps that is read while it is written."""

from __future__ import annotations

import json
import os

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.records.reading import RecordFollower
from cec_mpi.runtime.records.step import StepRecord
from helpers.steps import header, step, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "steps.jsonl"


def numbers(lines):
    return [line.step if isinstance(line, StepRecord) else "header" for line in lines]


def test_only_new_and_complete_lines_are_returned(path):
    follower = RecordFollower(path)
    assert (follower.read_new(), follower.exists) == ((False, []), False)
    write(path, header(), step(0), header(), step(1))
    assert numbers(follower.read_new()[1]) == ["header", 0, "header", 1]
    assert (follower.read_new(), follower.exists) == ((False, []), True)
    line = json.dumps(step(2)) + "\n"
    with path.open("a", buffering=1) as file:
        for part in (line[:100], line[100:200]):
            file.write(part)
            file.flush()
            assert follower.read_new() == (False, [])
        file.write(line[200:])
    assert numbers(follower.read_new()[1]) == [2]


def test_a_large_record_is_read_in_parts(path):
    write(path, header(), *map(step, range(50)))
    follower, lines, parts = RecordFollower(path), [], 0
    while not parts or follower.unread_bytes:
        lines += follower.read_new(1000)[1]
        parts += 1
    assert numbers(lines) == ["header", *range(50)]
    assert parts > 10


def test_a_replaced_or_shortened_record_is_read_from_its_beginning(path):
    write(path, header(), step(0), step(1))
    follower = RecordFollower(path)
    follower.read_new()
    other = path.with_name("other")
    write(other, header(), step(0))
    os.replace(other, path)  # noqa: PTH105
    is_replaced, lines = follower.read_new()
    assert (is_replaced, numbers(lines)) == (True, ["header", 0])
    write(path, header())
    is_replaced, lines = follower.read_new()
    assert (is_replaced, numbers(lines)) == (True, ["header"])
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
