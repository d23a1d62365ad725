"""The connection file: its keys, and the addresses at which a master listens."""

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
    order_addresses,
    parse_address,
    read_connection_file,
)
from cec_mpi.runtime.wire.sockets.interfaces import (
    NetworkInterface,
    launcher_interfaces,
    listen_addresses,
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
    other_file = ConnectionFile((("node2", 50000),), "there", *KEYS, "", True, "")
    other_file.remove(path)
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
def test_a_file_of_another_format_is_neither_read_nor_replaced(path, content):
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


def test_an_address_without_a_host_is_refused():
    with pytest.raises(InputError, match=":50000: expected the host name"):
        connection_from_secret("", 50000, SECRET, True)


# --- addresses ----------------------------------------------------------------------------

INTERFACES = [
    NetworkInterface("lo", "127.0.0.1"),
    NetworkInterface("eth0", "10.1.0.7"),
    NetworkInterface("ib0", "10.2.0.7"),
    NetworkInterface("docker0", "172.17.0.1"),
    NetworkInterface("lo", "::1"),
    NetworkInterface("eth0", "fd00::7"),
]


@pytest.fixture
def interfaces(monkeypatch):
    path = "cec_mpi.runtime.wire.sockets.interfaces.list_interfaces"
    monkeypatch.setattr(path, lambda: INTERFACES)


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.0.0.7:65535", ("10.0.0.7", 65535)), ("[fd00::7]:1", ("fd00::7", 1)), ("*:5", ("", 5))],
)
def test_host_and_port_are_parsed(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "node1", "node1:", "node1:0", "node1:65536", f"node1:{'9' * 5000}", "node1:5x"),
        *("node1:\u0663", "node 1:5555", "fd00::7:5555", "[fd00::7]", "[]:5555"),
    ],
)
def test_an_invalid_address_is_refused(text):
    with pytest.raises(InputError, match="expected HOST:PORT with a port from 1 to 65535"):
        parse_address(text)


def test_loopback_addresses_are_tried_first_and_only_on_the_host_of_the_master():
    addresses = [("node1", 1), ("127.0.0.1", 1), ("10.0.0.1", 1), ("::1", 2)]
    expected = [addresses[n] for n in (1, 3, 0, 2)]
    assert order_addresses(addresses, True) == expected
    assert order_addresses(addresses, False) == expected[2:]
    assert order_addresses([("localhost", 1)], False) == [("localhost", 1)]


@pytest.mark.parametrize(
    ("interface", "addresses"),
    [
        ("eth0", ("10.1.0.7", "fd00::7")),
        ("10.2.0.7", ("10.2.0.7",)),
        ("10.1.0.7/8", ("10.1.0.7", "10.2.0.7")),
        ("ib0, fd00::/8", ("10.2.0.7", "fd00::7")),
        ("lo,eth0", ("127.0.0.1", "10.1.0.7", "::1", "fd00::7")),
        (None, ("10.2.0.7",)),
    ],
)
@pytest.mark.usefixtures("interfaces")
def test_the_option_precedes_the_interfaces_of_the_launcher(interface, addresses):
    assert listen_addresses(interface, {"FI_TCP_IFACE": "ib0"}) == addresses


@pytest.mark.parametrize("interface", ["eth1", "eth", "", ",", "10.3.0.0/16", "300.1.1.1"])
@pytest.mark.usefixtures("interfaces")
def test_an_unknown_interface_is_refused_with_a_list(interface):
    with pytest.raises(InputError) as error:
        listen_addresses(interface, {})
    assert f"interface {interface!r}" in str(error.value)
    assert "eth0 (10.1.0.7), ib0 (10.2.0.7), docker0 (172.17.0.1)" in str(error.value)


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, []),
        ({"OMPI_MCA_btl_tcp_if_include": "ib1,10.1.0.0/16"}, ["eth0"]),
        ({"OMPI_MCA_btl_tcp_if_exclude": "127.0.0.1/8,docker0"}, ["eth0", "ib0", "eth0"]),
        ({"MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE": "ib0"}, ["ib0"]),
        ({"HYDRA_BSTRAP_IFACE": "ib0"}, ["ib0"]),
        ({"UCX_NET_DEVICES": "mlx5_0:1,ib0"}, ["ib0"]),
        # No interface of this computer, or only loopback:
        ({"UCX_NET_DEVICES": "all"}, []),
        ({"OMPI_MCA_btl_tcp_if_include": "lo"}, []),
        ({"OMPI_MCA_btl_tcp_if_exclude": "eth7"}, []),
        ({"FI_TCP_IFACE": ""}, []),
    ],
)
@pytest.mark.usefixtures("interfaces")
def test_interfaces_of_the_launcher_are_found(environ, names):
    assert [interface.name for interface in launcher_interfaces(INTERFACES, environ)] == names
    if not names:
        assert listen_addresses(None, environ) == ("",)
