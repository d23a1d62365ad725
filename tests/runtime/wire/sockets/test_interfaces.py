"""Which network interfaces rank 0 listens at."""

import socket

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.interfaces import (
    NetworkInterface,
    launcher_interfaces,
    list_interfaces,
    listen_addresses,
)

HERE = [
    NetworkInterface("lo", "127.0.0.1"),
    NetworkInterface("eth0", "10.1.0.7"),
    NetworkInterface("ib0", "10.2.0.7"),
    NetworkInterface("docker0", "172.17.0.1"),
    NetworkInterface("lo", "::1"),
    NetworkInterface("eth0", "fd00::7"),
]


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("cec_mpi.runtime.wire.sockets.interfaces.list_interfaces", lambda: HERE)


def test_the_cards_of_this_computer_can_be_listened_at():
    found = list_interfaces()
    assert NetworkInterface("lo", "127.0.0.1") in found
    assert {interface.name for interface in found} <= {name for _, name in socket.if_nameindex()}
    for interface in found:
        family = socket.AF_INET6 if ":" in interface.address else socket.AF_INET
        socket.create_server((interface.address, 0), family=family).close()


@pytest.mark.parametrize(
    ("interface", "addresses"),
    [
        ("eth0", ("10.1.0.7", "fd00::7")),
        ("10.2.0.7", ("10.2.0.7",)),
        ("10.0.0.0/8", ("10.1.0.7", "10.2.0.7")),
        ("10.1.0.7/16", ("10.1.0.7",)),
        ("ib0, fd00::/8", ("10.2.0.7", "fd00::7")),
        ("lo,eth0", ("127.0.0.1", "10.1.0.7", "::1", "fd00::7")),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_card_that_the_user_names_is_taken(interface, addresses):
    environ = {"OMPI_MCA_btl_tcp_if_include": "docker0"}
    assert listen_addresses(interface, environ) == addresses


@pytest.mark.parametrize(
    "interface", ["eth1", "eth", "", ",", "10.3.0.0/16", "10.1.0.8", "300.1.1.1"]
)
@pytest.mark.usefixtures("here")
def test_a_card_that_is_not_there_is_refused_with_those_that_are(interface):
    with pytest.raises(InputError) as error:
        listen_addresses(interface, {})
    assert f"interface {interface!r}" in str(error.value)
    assert "eth0 (10.1.0.7), ib0 (10.2.0.7), docker0 (172.17.0.1)" in str(error.value)


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, []),
        ({"OMPI_MCA_btl_tcp_if_include": "ib0"}, ["ib0"]),
        ({"OMPI_MCA_btl_tcp_if_include": "ib1,10.1.0.0/16"}, ["eth0"]),
        ({"OMPI_MCA_btl_tcp_if_exclude": "127.0.0.1/8,docker0"}, ["eth0", "ib0", "eth0"]),
        ({"MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE": "ib0"}, ["ib0"]),
        ({"HYDRA_BSTRAP_IFACE": "ib0"}, ["ib0"]),
        ({"FI_TCP_IFACE": "ib0"}, ["ib0"]),
        ({"UCX_NET_DEVICES": "mlx5_0:1,ib0"}, ["ib0"]),
        # What says nothing of the interfaces of this computer:
        ({"UCX_NET_DEVICES": "all"}, []),
        ({"UCX_NET_DEVICES": "mlx5_0:1"}, []),
        ({"OMPI_MCA_btl_tcp_if_include": "eth7"}, []),
        ({"OMPI_MCA_btl_tcp_if_include": "lo"}, []),
        ({"OMPI_MCA_btl_tcp_if_exclude": "eth7"}, []),
        ({"FI_TCP_IFACE": ""}, []),
    ],
)
def test_the_cards_that_the_launcher_names_are_taken(environ, names):
    assert [interface.name for interface in launcher_interfaces(HERE, environ)] == names


@pytest.mark.usefixtures("here")
def test_where_the_launcher_names_nothing_all_cards_are_taken():
    assert listen_addresses(None, {}) == ("",)
    assert listen_addresses(None, {"FI_TCP_IFACE": "eth7"}) == ("",)


@pytest.mark.usefixtures("here")
def test_the_cards_of_the_launcher_are_taken_where_the_user_names_none():
    assert listen_addresses(None, {"FI_TCP_IFACE": "ib0"}) == ("10.2.0.7",)
    assert listen_addresses("lo", {"FI_TCP_IFACE": "ib0"}) == ("127.0.0.1", "::1")
