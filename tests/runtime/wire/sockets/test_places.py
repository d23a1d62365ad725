"""Places: of this host, and as users write them."""

from __future__ import annotations

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import (
    local_addresses,
    order_addresses,
    parse_listen,
)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("node1:1", ("node1", 1)),
        ("10.0.0.7:65535", ("10.0.0.7", 65535)),
        ("[fd00::7]:5555", ("fd00::7", 5555)),
        (":5555", ("", 5555)),
        ("*:5555", ("", 5555)),
    ],
)
def test_a_place_is_read(text, place):
    assert parse_listen(text) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node1",
        "node1:",
        "node1:0",
        "node1:65536",
        f"node1:{'9' * 5000}",
        "node1:-1",
        "node1:5x",
        "node1:\u0663",
        "node1:5555 ",
        "node 1:5555",
        "a:b:5555",
        "fd00::7:5555",
        "[fd00::7]",
        "[]:5555",
    ],
)
def test_another_text_is_refused(text):
    with pytest.raises(InputError, match="expected HOST:PORT with a port from 1 to 65535"):
        parse_listen(text)


def test_the_host_itself_is_tried_first_where_it_is_the_masters():
    places = [("node1", 1), ("127.0.0.1", 1), ("10.0.0.1", 1), ("::1", 2)]
    assert order_addresses(places, True) == [places[1], places[3], places[0], places[2]]
    assert order_addresses(places, False) == [places[0], places[2]]
    assert order_addresses([("localhost", 1)], False) == [("localhost", 1)]


def test_this_host_is_named_once_and_itself_last():
    names = local_addresses()
    assert len(set(names)) == len(names)
    assert names[-1] == "127.0.0.1"
