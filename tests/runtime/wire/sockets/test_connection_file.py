"""The connection file: read as it was written, by its owner alone, and nothing else for it."""

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
    connection_from_key,
    derive_keys,
    generate_keys,
    read_connection_file,
)

KEYS = Key(b"s" * 40), Key(b"p" * 40), Key(b"k" * 40)
SECRET = "a secret of some length"


@pytest.fixture
def file():
    places = ("node1", 50000), ("fd00::7", 50001)
    return ConnectionFile(places, "here", *KEYS, local="/tmp/x/master", encrypted=False, job="12.3")


def test_it_is_read_as_it_was_written(file, tmp_path):
    file.write(tmp_path / "conn")
    assert read_connection_file(tmp_path / "conn") == file


def test_its_owner_alone_can_read_it(file, tmp_path):
    (tmp_path / "conn").touch(0o644)
    file.write(tmp_path / "conn")
    assert stat.S_IMODE((tmp_path / "conn").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_what_others_can_write_is_refused(file, tmp_path, mode):
    file.write(tmp_path / "conn")
    (tmp_path / "conn").chmod(mode)
    with pytest.raises(InputError, match=f"can be written by other users .mode {mode:o}"):
        read_connection_file(tmp_path / "conn")


def test_the_file_of_another_user_is_refused_even_by_root(file, tmp_path, monkeypatch):
    file.write(tmp_path / "conn")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 0 if owner else 1000)
    with pytest.raises(InputError, match=f"belongs to user {owner}: expected a file of your own"):
        read_connection_file(tmp_path / "conn")


def test_its_keys_are_not_shown(file):
    assert not any(key.decode() in repr(file) for key in KEYS)


def test_a_run_removes_its_own_alone(file, tmp_path):
    other = ConnectionFile((("node2", 50000),), "there", *KEYS, "", True, "")
    file.write(tmp_path / "conn")
    other.remove(tmp_path / "conn")
    assert read_connection_file(tmp_path / "conn") == file
    file.remove(tmp_path / "conn")
    assert not (tmp_path / "conn").exists()
    file.remove(tmp_path / "conn")


NO_PLACES = (
    [], [["node1", 0]], [["node1", 5.5]], [["node1", float("inf")]], "node1", [["", 50000]],
    [["node1\n", 50000]], [["x" * 5000, 50000]], [["node1", 50000, 1]], 5,
)  # fmt: skip
DAMAGED = {
    "at": NO_PLACES,
    "network": (None,),
    "local": (5, None, "relative", f"/{'x' * 107}", "/\0"),
    "encrypted": (1,),
    "job": (12, "x" * 5000),
    "more": (1,),
    "server_key": ("short",),
    "secret_key": ("#" * 40, 3),
    "public_key": (40 * "~",),
}
MISSING = object()


def read_with(file, path, name, value):
    """Read a file in which one field has another value, or is missing."""
    file.write(path)
    content = json.loads(path.read_text()) | {name: value}
    path.write_text(json.dumps({key: each for key, each in content.items() if each is not MISSING}))
    return read_connection_file(path)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in DAMAGED for value in DAMAGED[name]]
)
def test_a_field_that_cannot_be_is_refused(file, tmp_path, name, value):
    with pytest.raises(InputError, match="is a damaged connection file"):
        read_with(file, tmp_path / "conn", name, value)


@pytest.mark.parametrize("name", sorted(DAMAGED.keys() - {"more"}))
def test_a_file_without_one_of_its_fields_is_refused(file, tmp_path, name):
    with pytest.raises(InputError, match="is a damaged connection file"):
        read_with(file, tmp_path / "conn", name, MISSING)


def test_a_file_of_another_format_or_version_is_refused(file, tmp_path):
    with pytest.raises(InputError, match="is not a connection file"):
        read_with(file, tmp_path / "conn", "format", "another")
    with pytest.raises(InputError, match="has version 1: expected 2"):
        read_with(file, tmp_path / "conn", "version", 1)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"[" * 5000])
def test_another_file_is_neither_read_nor_replaced(tmp_path, content):
    path = tmp_path / "conn"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a connection file"):
        read_connection_file(path)
    with pytest.raises(InputError, match="expected a new name, or an earlier connection file"):
        check_connection_path(path)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a directory: expected the connection file of a run"):
        check_connection_path(tmp_path)


def test_both_ends_derive_the_same_keys_from_a_secret():
    keys = derive_keys(SECRET, True)
    assert keys == derive_keys(SECRET, True)
    assert len({*keys, *derive_keys(SECRET, False), *derive_keys(f"{SECRET}.", True)}) == 12
    assert all(len(key) == len(own) for key, own in zip(keys, generate_keys(), strict=True))
    file = connection_from_key("node1", 50000, SECRET, True)
    assert file == ConnectionFile((("node1", 50000),), "", keys[0], *keys[2:], "", True, "")
    assert not connection_from_key("node1", 50000, SECRET, False).encrypted


def test_random_keys_are_new():
    assert len({*generate_keys(), *generate_keys()}) == 8


@pytest.mark.parametrize("secret", ["", "x", "fifteen letters"])
def test_a_short_secret_is_refused_and_not_shown(secret):
    with pytest.raises(InputError) as text:
        connection_from_key("node1", 50000, secret, True)
    count = len(secret)
    assert f"CEC_MPI_KEY has {count} character{'s' * (count != 1)}: expected at least 16" in str(
        text.value
    )
    assert "python -c 'import secrets; print(secrets.token_urlsafe(32))'" in str(text.value)
    assert "fifteen letters" not in str(text.value)


def test_a_machine_needs_the_name_of_a_host():
    with pytest.raises(InputError, match=":50000 has no host"):
        connection_from_key("", 50000, SECRET, True)
