"""Names and addresses: of this host, of the master seen from a machine, and as users write them."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import suppress

from cec_mpi.errors import InputError
from cec_mpi.processes.places import cards
from cec_mpi.text import shown

ALL_ADDRESSES = ("", "0.0.0.0", "::")  # what stands for all addresses of a host
MOST_PORT = (1 << 16) - 1

_HOST_AND_PORT = re.compile(r"(?:\[([^\s\[\]]+)\]|([^\s\[\]:]*)):([0-9]{1,5})")


def own_names() -> list[str]:
    """Return names and addresses that this host may be known by, and last 127.0.0.1."""
    found = [socket.gethostname(), socket.getfqdn()]
    with suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(found[0], None)]
    with suppress(OSError):
        found += [card.address for card in cards()]
    others = [name for name in dict.fromkeys(found) if not is_loopback(name)]
    return [*others, "127.0.0.1"]


def seen_from(places: Sequence[tuple[str, int]], same_network: bool) -> list[tuple[str, int]]:
    """Sort the places where the master may listen in the order in which to try them.

    Parameters
    ----------
    places : sequence of (str, int)
        Names or addresses, the likeliest first, each with a port.
    same_network : bool
        Whether 127.0.0.1 is the master's own (`network_here`).

    Examples
    --------
    >>> places = [("node1", 5555), ("127.0.0.1", 5555)]
    >>> seen_from(places, True)
    [('127.0.0.1', 5555), ('node1', 5555)]
    >>> seen_from(places, False)
    [('node1', 5555)]
    """
    near = [place for place in places if is_loopback(place[0])]
    far = [place for place in places if place not in near]
    return near + far if same_network or not far else far


def is_loopback(host: str) -> bool:
    """Whether an address is that of the host itself."""
    return host in ("::1", "localhost") or host.startswith("127.")


def parse_listen(text: str) -> tuple[str, int]:
    """Split the text HOST:PORT.

    Parameters
    ----------
    text : str
        An IPv6 address is in brackets. No host, or ``*``, stands for all addresses of this host.

    Returns
    -------
    host : str
        Empty for all addresses.
    port : int

    Raises
    ------
    InputError
        The text has another form.

    Examples
    --------
    >>> parse_listen("node1:5555"), parse_listen("[::1]:5555"), parse_listen(":5555")
    (('node1', 5555), ('::1', 5555), ('', 5555))
    """
    found = _HOST_AND_PORT.fullmatch(text)
    if not found or not 0 < int(found[3]) <= MOST_PORT:
        raise InputError(
            f"{shown(text)}: expected HOST:PORT with a port from 1 to {MOST_PORT}, for "
            "example node1:5555 or [::1]:5555"
        )
    host = found[1] or found[2]
    return "" if host == "*" else host, int(found[3])
