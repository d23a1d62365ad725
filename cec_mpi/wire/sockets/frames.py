"""How a message is made of frames: one with its kind and a head, and more with bytes in pieces.

==========  ======================================================================
to machine
ORDER       an order as packed by `packed_job`; then bytes that belong to it
OBJECT      an object, pickled: only the master, who has shown its key, sends such
PRESENT     nothing; that it can be sent says that the machine is there
REFUSED     why it cannot join
FAREWELL    nothing; who has said good-bye may go
FAILED      what went wrong on it: it is asked no more, and leaves
DISMISSED   why it is not to come back: it leaves
to master
HELLO       who a machine is, as JSON
ANSWER      the report of a job; then its values, in the same frame where they are short
SAID        an object, as JSON
GOOD_BYE    nothing
==========  ======================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.text import printable
from cec_mpi.wire.opening import Opened

ORDER, OBJECT, PRESENT, REFUSED = b"O", b"P", b"T", b"R"
FAREWELL, FAILED, DISMISSED = b"F", b"X", b"D"
HELLO, ANSWER, SAID, GOOD_BYE = b"H", b"A", b"S", b"B"

PIECE = 1 << 20  # bytes of a frame: between two of them the other end hears that this one lives
MOST_IN_FRAME = 2 * PIECE  # and what may be around them

_KIND = 8  # bytes, so that numbers behind it lie as they should

_FIELDS = {
    "problem": str,
    "shards": list,
    "rate": float,
    "unseen": bool,
    "unlogged": str,
}
_MOST_TEXT = 1 << 16  # characters of what went wrong
_NOTHING = "nothing that a machine says"


def first(kind: bytes, head: NDArray[Any] | bytes) -> bytes:
    """The first frame of a message."""
    return kind.ljust(_KIND) + bytes(head)


def kind_and_head(frame: memoryview) -> tuple[bytes, memoryview]:
    """What is in the first frame of a message, which may be any."""
    return bytes(frame[:_KIND]).rstrip(), frame[_KIND:]


def pieces(content: NDArray[Any] | bytes) -> Iterator[NDArray[np.uint8]]:
    """The bytes of an array, which is contiguous, as frames; none where there are none."""
    if isinstance(content, bytes):
        content = np.frombuffer(content, np.uint8)
    room = content.reshape(-1).view(np.uint8)
    return (room[begin : begin + PIECE] for begin in range(0, room.size, PIECE))


def together(frames: Sequence[Any], out: NDArray[Any]) -> bool:
    """Put the bytes of frames into an array, one behind the other; False if they do not fill it."""
    room, done = out.reshape(-1).view(np.uint8), 0
    for frame in frames:
        size = len(frame)
        if done + size > room.size:
            return False
        if size:
            room[done : done + size] = np.frombuffer(frame, np.uint8)
        done += size
    return done == room.size


def said(content: Opened | str | None) -> bytes:
    """What a machine says, as JSON."""
    return json.dumps(asdict(content) if isinstance(content, Opened) else content).encode()


def heard(frame: bytes) -> Opened | str | None:
    """What a machine has said; nothing in it that a terminal would obey, or could not write.

    Raises
    ------
    ValueError
        It is nothing that a machine says.
    """
    try:
        content = json.loads(frame)
    except RecursionError:
        raise ValueError(_NOTHING) from None
    if content is None:
        return None
    if isinstance(content, str):
        return _text(content)
    if not isinstance(content, dict) or content.keys() != _FIELDS.keys():
        raise ValueError(_NOTHING)
    if not all(isinstance(content[name], kinds) for name, kinds in _FIELDS.items()):
        raise ValueError(_NOTHING)
    shards = tuple(content["shards"])
    if not all(isinstance(file, str) for file in shards):
        raise ValueError(_NOTHING)
    told = {name: _text(content[name]) for name in ("problem", "unlogged")}
    return Opened(**content | told | {"shards": shards})


def _text(content: str) -> str:
    return printable(content[:_MOST_TEXT], kept="\n")
