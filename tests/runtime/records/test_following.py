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


def add(path, text):
    with path.open("a") as file:
        file.write(text)


def test_each_time_only_what_is_new(path):
    write(path, header(), step(0))
    following = RecordFollower(path)
    assert numbers(following.read_new()[1]) == ["header", 0]
    assert following.read_new() == (False, [])
    add(path, json.dumps(step(1)) + "\n" + json.dumps(step(2)) + "\n")
    assert numbers(following.read_new()[1]) == [1, 2]


def test_a_line_without_an_end_is_waited_for(path):
    write(path, header())
    following = RecordFollower(path)
    following.read_new()
    line = json.dumps(step(0)) + "\n"
    for place in range(0, len(line) - 1, 100):
        add(path, line[place : place + 100])
        if place + 100 < len(line):
            assert following.read_new() == (False, [])
    assert numbers(following.read_new()[1]) == [0]


def test_a_large_record_is_read_in_parts(path):
    write(path, header(), *map(step, range(50)))
    following, found, parts = RecordFollower(path), [], 0
    while True:
        _, lines = following.read_new(1000)
        found += lines
        parts += 1
        if not following.unread_bytes:
            break
    assert numbers(found) == ["header", *range(50)]
    assert parts > 10


def test_a_record_that_is_not_there_yet(path):
    following = RecordFollower(path)
    assert following.read_new() == (False, [])
    assert not following.exists
    write(path, header())
    assert numbers(following.read_new()[1]) == ["header"]
    assert following.exists


def test_another_record_in_its_place_is_read_anew(path):
    write(path, header(), step(0), step(1))
    following = RecordFollower(path)
    following.read_new()
    other = path.with_name("other")
    write(other, header(), step(0))
    os.replace(other, path)  # noqa: PTH105
    is_replaced, lines = following.read_new()
    assert (is_replaced, numbers(lines)) == (True, ["header", 0])
    write(path, header())  # the same file, shorter
    is_replaced, lines = following.read_new()
    assert (is_replaced, numbers(lines)) == (True, ["header"])
    path.unlink()
    assert following.read_new() == (True, [])


def test_a_run_that_goes_on_has_a_header_of_its_own(path):
    write(path, header(), step(0), header(), step(1))
    assert numbers(RecordFollower(path).read_new()[1]) == ["header", 0, "header", 1]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2: Expected `object`, got `array`"),
        ('{"kind": "step"}', "line 2 has no "),
        ('{"kind": "other"}', 'line 2, field "kind": invalid value ' + "'other'"),
    ],
)
def test_what_no_run_writes(path, line, says):
    write(path, header())
    add(path, f"{line}\n")
    with pytest.raises(InputError, match=r"steps\.jsonl, ") as caught:
        RecordFollower(path).read_new()
    assert says in str(caught.value)


def test_what_is_no_file(path):
    path.mkdir()
    with pytest.raises(InputError, match="is a directory: expected a file"):
        RecordFollower(path).read_new()
