"""Addresses of the master: HOST:PORT, names of this host, network interfaces."""

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import (
    order_addresses,
    parse_address,
)
from cec_mpi.runtime.wire.sockets.interfaces import (
    NetworkInterface,
    launcher_interfaces,
    listen_addresses,
)

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
def test_another_text_is_refused(text):
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
def test_interfaces_of_the_launcher(environ, names):
    assert [interface.name for interface in launcher_interfaces(INTERFACES, environ)] == names
    if not names:
        assert listen_addresses(None, environ) == ("",)
