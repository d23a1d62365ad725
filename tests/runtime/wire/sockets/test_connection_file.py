"""The connection file and the keys in it."""

from __future__ import annotations

import json
import os
import stat

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import (
    ConnectionFile,
    Key,
    check_connection_path,
    connection_from_secret,
    derive_keys,
    generate_keys,
    read_connection_file,
)

KEYS = Key(b"s" * 40), Key(b"p" * 40), Key(b"k" * 40)
SECRET = "a secret of some length"
ADDRESSES = ("node1", 50000), ("fd00::7", 50001)
FILE = ConnectionFile(
    ADDRESSES, "here", *KEYS, socket_path="/tmp/x/master", encrypted=False, job_id="12.3"
)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "conn").touch(0o644)
    FILE.write(tmp_path / "conn")
    return tmp_path / "conn"


def test_the_file_is_read_as_it_was_written_and_only_by_its_owner(path):
    assert read_connection_file(path) == FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not any(key.decode() in repr(FILE) for key in KEYS)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_refused(path, mode):
    path.chmod(mode)
    with pytest.raises(InputError, match=f"can be written by other users .mode {mode:o}"):
        read_connection_file(path)


def test_the_file_of_another_user_is_refused_even_by_root(path, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 0 if owner else 1000)
    with pytest.raises(InputError, match=f"belongs to user {owner}: expected a file of your own"):
        read_connection_file(path)


def test_a_run_removes_only_its_own_file(path):
    other = ConnectionFile((("node2", 50000),), "there", *KEYS, "", True, "")
    other.remove(path)
    assert read_connection_file(path) == FILE
    FILE.remove(path)
    assert not path.exists()
    FILE.remove(path)


MISSING = object()
INVALID = {
    "at": (
        *([], [["node1", 0]], [["node1", 5.5]], "node1", [["", 50000]], [["node1\n", 50000]]),
        *([["x" * 5000, 50000]], [["node1", 50000, 1]], 5, MISSING),
    ),
    "network": (None, MISSING),
    "local": (5, "relative", f"/{'x' * 107}", "/\0", MISSING),
    "encrypted": (1, MISSING),
    "job": (12, "x" * 5000, MISSING),
    "more": (1,),
    "server_key": ("short", MISSING),
    "secret_key": ("#" * 40, 3, MISSING),
    "public_key": (40 * "~", MISSING),
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [(name, value, "is a damaged connection file") for name in INVALID for value in INVALID[name]]
    + [
        ("format", "another", "is not a connection file"),
        ("version", 1, "has version 1: "),
    ],
)
def test_an_invalid_field_is_refused(path, name, value, message):
    content = json.loads(path.read_text()) | {name: value}
    path.write_text(json.dumps({key: v for key, v in content.items() if v is not MISSING}))
    with pytest.raises(InputError, match=message):
        read_connection_file(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"[" * 5000])
def test_another_file_is_neither_read_nor_replaced(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a connection file"):
        read_connection_file(path)
    with pytest.raises(InputError, match="expected a new name, or an earlier connection file"):
        check_connection_path(path)
    with pytest.raises(InputError, match="is a directory: expected the connection file of a run"):
        check_connection_path(path.parent)


def test_the_master_and_machines_derive_the_same_keys_from_a_secret():
    keys = derive_keys(SECRET, True)
    assert keys == derive_keys(SECRET, True)
    assert len({*keys, *derive_keys(SECRET, False), *derive_keys(f"{SECRET}.", True)}) == 12
    file = connection_from_secret("node1", 50000, SECRET, True)
    assert file == ConnectionFile((("node1", 50000),), "", keys[0], *keys[2:], "", True, "")
    assert not connection_from_secret("node1", 50000, SECRET, False).encrypted
    random_keys = {*generate_keys(), *generate_keys()}
    assert len(random_keys) == 8
    assert set(map(len, random_keys)) == set(map(len, keys))


@pytest.mark.parametrize(
    ("secret", "count"), [("", "0 characters"), ("x", "1 character"), ("15 letters long", "15 ch")]
)
def test_a_short_secret_is_refused_and_not_printed(secret, count):
    with pytest.raises(InputError) as error:
        connection_from_secret("node1", 50000, secret, True)
    assert f"CEC_MPI_KEY has {count}" in str(error.value)
    assert "expected at least 16; python -c 'import secrets; print(" in str(error.value)
    assert "15 letters long" not in str(error.value)


def test_machines_need_the_host_of_the_master():
    with pytest.raises(InputError, match=":50000: expected the host name"):
        connection_from_secret("", 50000, SECRET, True)
