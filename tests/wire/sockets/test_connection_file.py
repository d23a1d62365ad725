"""The connection file: read as it was written, by its owner alone, and nothing else for it."""

from __future__ import annotations

import json
import stat

import pytest

from cec_mpi.errors import InputError
from cec_mpi.wire.sockets.connection_file import (
    ConnectionFile,
    check_place,
    read_connection_file,
)

KEYS = b"s" * 40, b"p" * 40, b"k" * 40


@pytest.fixture
def file():
    return ConnectionFile((("node1", 50000), ("fd00::7", 50001)), "here", *KEYS)


def test_it_is_read_as_it_was_written(file, tmp_path):
    file.write(tmp_path / "conn")
    assert read_connection_file(tmp_path / "conn") == file


def test_its_owner_alone_can_read_it(file, tmp_path):
    (tmp_path / "conn").touch(0o644)
    file.write(tmp_path / "conn")
    assert stat.S_IMODE((tmp_path / "conn").stat().st_mode) == 0o600


def test_its_keys_are_not_shown(file):
    assert not any(key.decode() in repr(file) for key in KEYS)


def test_a_run_removes_its_own_alone(file, tmp_path):
    other = ConnectionFile((("node2", 50000),), "there", *KEYS)
    file.write(tmp_path / "conn")
    other.remove(tmp_path / "conn")
    assert read_connection_file(tmp_path / "conn") == file
    file.remove(tmp_path / "conn")
    assert not (tmp_path / "conn").exists()
    file.remove(tmp_path / "conn")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "another"}, "is no connection file"),
        ({"version": 2}, "has version 2: expected 1"),
        ({"at": []}, "is damaged"),
        ({"at": [["node1", 0]]}, "is damaged"),
        ({"at": [["node1", 5.5]]}, "is damaged"),
        ({"at": [["node1", float("inf")]]}, "is damaged"),
        ({"at": "node1"}, "is damaged"),
        ({"server_key": "short"}, "is damaged"),
        ({"secret_key": "#" * 40}, "is damaged"),
        ({"secret_key": 3}, "is damaged"),
        ({"public_key": 40 * "~"}, "is damaged"),
    ],
)
def test_what_is_none_is_refused(file, tmp_path, change, told):
    path = tmp_path / "conn"
    file.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=told):
        read_connection_file(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"[" * 5000])
def test_another_file_is_neither_read_nor_replaced(tmp_path, content):
    path = tmp_path / "conn"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no connection file"):
        read_connection_file(path)
    with pytest.raises(InputError, match="expected a new name, or an earlier connection file"):
        check_place(path)


def test_a_directory_is_told(tmp_path):
    with pytest.raises(InputError, match="a directory, expected a file"):
        check_place(tmp_path)
