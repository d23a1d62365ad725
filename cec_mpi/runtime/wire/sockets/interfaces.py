"""The network interfaces on which the master can listen."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from cec_mpi.errors import InputError

# Variables in which launchers list interfaces for ranks, by name, address or network. Open MPI
# does not pass the option for its own daemons (prte_if_include) to ranks, and srun sets none.
_INCLUDE_VARIABLES = (
    "OMPI_MCA_btl_tcp_if_include",
    "MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE",  # MPICH, from -iface and HYDRA_IFACE
    "HYDRA_BSTRAP_IFACE",  # Intel MPI, from -iface and I_MPI_HYDRA_IFACE
    "FI_TCP_IFACE",
    "UCX_NET_DEVICES",
)
_EXCLUDE_VARIABLE = "OMPI_MCA_btl_tcp_if_exclude"


class NetworkInterface(NamedTuple):
    """A network interface with one of its addresses; each address has its own object.

    Attributes
    ----------
    name : str
    address : str
        An IPv4 address, or an IPv6 address that is not link-local.
    """

    name: str
    address: str

    @property
    def is_loopback(self) -> bool:
        """Whether it is a loopback address."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def is_link_local(self) -> bool:
        """Whether it is a link-local IPv6 address, valid only with the name of an interface."""
        address = ipaddress.ip_address(self.address)
        return address.version == 6 and address.is_link_local


def listen_addresses(
    interface: str | None, environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the addresses on which the master listens; an empty string stands for all.

    Parameters
    ----------
    interface : str or None
        Names of interfaces, addresses, or networks such as 10.0.0.0/8, separated by commas. If
        None, the interfaces that the launcher selects for ranks, or all if it selects none.
    environ : mapping of str to str
        Environment variables.

    Raises
    ------
    InputError
        No interface matches, or the interfaces cannot be listed.
    """
    if interface is not None:
        try:
            interfaces = list_interfaces()
        except OSError as error:
            raise InputError(
                f"interface {interface!r}: the network interfaces cannot be listed: {error}"
            ) from None
        matches = match_interfaces(str(interface), interfaces)
        if not matches:
            raise InputError(
                f"interface {interface!r}: rank 0 on {socket.gethostname()} has "
                f"{_format_interfaces(interfaces)}; expected their names, addresses or networks, "
                "for example eth0, 10.0.0.7 or 10.0.0.0/8"
            )
        return _unique_addresses(matches)
    try:
        return _unique_addresses(launcher_interfaces(list_interfaces(), environ)) or ("",)
    except OSError:
        return ("",)


def launcher_interfaces(
    interfaces: Sequence[NetworkInterface], environ: Mapping[str, str]
) -> list[NetworkInterface]:
    """Return the interfaces that the launcher selects for ranks; empty if it selects none.

    Unknown names, and variables that list only loopback interfaces, are ignored.

    Examples
    --------
    >>> addresses = {"lo": "127.0.0.1", "eth0": "10.1.0.7", "docker0": "172.17.0.1"}
    >>> interfaces = [NetworkInterface(name, address) for name, address in addresses.items()]
    >>> launcher_interfaces(interfaces, {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/8"})
    [NetworkInterface(name='eth0', address='10.1.0.7')]
    """
    for variable in _INCLUDE_VARIABLES:
        included = match_interfaces(environ.get(variable, ""), interfaces)
        if not all(interface.is_loopback for interface in included):
            return included
    excluded = match_interfaces(environ.get(_EXCLUDE_VARIABLE, ""), interfaces)
    if not excluded:
        return []
    return [
        interface
        for interface in interfaces
        if interface not in excluded and not interface.is_loopback
    ]


def match_interfaces(text: str, interfaces: Iterable[NetworkInterface]) -> list[NetworkInterface]:
    """Return the interfaces in a list of names, addresses and networks.

    Examples
    --------
    >>> pairs = [("eth0", "10.1.0.7"), ("eth0", "fd00::7"), ("ib0", "10.2.0.7")]
    >>> interfaces = [NetworkInterface(name, address) for name, address in pairs]
    >>> [interface.address for interface in match_interfaces("fd00::7,10.2.0.0/16", interfaces)]
    ['fd00::7', '10.2.0.7']
    >>> [interface.address for interface in match_interfaces("eth0", interfaces)]
    ['10.1.0.7', 'fd00::7']
    """
    matchers = [_make_matcher(word) for word in filter(None, map(str.strip, text.split(",")))]
    return [interface for interface in interfaces if any(match(interface) for match in matchers)]


def _make_matcher(word: str) -> Callable[[NetworkInterface], bool]:
    with suppress(ValueError):
        network = ipaddress.ip_network(word, strict=False)  # a single address becomes a network
        return lambda interface: ipaddress.ip_address(interface.address) in network
    return lambda interface: interface.name == word


def _unique_addresses(interfaces: Iterable[NetworkInterface]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(interface.address for interface in interfaces))


def _format_interfaces(interfaces: Iterable[NetworkInterface]) -> str:
    return (
        ", ".join(f"{interface.name} ({interface.address})" for interface in interfaces)
        or "no network interface"
    )


def list_interfaces() -> list[NetworkInterface]:
    """Return the network interfaces of this computer, once for each address.

    Raises
    ------
    OSError
        The operating system refuses to list interfaces.
    """
    import psutil  # only the master needs it

    interfaces = []
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.family in (socket.AF_INET, socket.AF_INET6):
                interface = NetworkInterface(name, address.address.partition("%")[0])
                if not interface.is_link_local:
                    interfaces.append(interface)
    return interfaces
