"""Messages on a socket: a frame with its kind and a head, and more with bytes in pieces.

==========  ======================================================================
to machine
ORDER       an order as packed by `packed_job`; then bytes that belong to it
OBJECT      an object, pickled; only the master sends it, after it has shown its key
PRESENT     nothing; it can be sent as long as the machine is connected
REFUSED     why the machine cannot join
FAREWELL    nothing; the machine has said good-bye and may leave
FAILED      the machine's error: it gets no more jobs, and leaves
DISMISSED   why the machine is excluded for good: it leaves
to master
HELLO       who a machine is, as JSON
ANSWER      the report of a job; then its values, in the same frame where they are short
SAID        an object, as JSON: a report on a store, or the error before an answer
GOOD_BYE    nothing
==========  ======================================================================

The time of a small step is that of its messages: a short job and a short answer are one message
each. A long vector is not copied, but sent in frames of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi._version import __version__
from cec_mpi.core.plan.assignment import Ints
from cec_mpi.core.step.product import SHORT_ANSWERS, SHORT_VECTOR
from cec_mpi.processes.places import Place
from cec_mpi.processes.together import fingerprint
from cec_mpi.text import printable
from cec_mpi.wire.jobs import Job
from cec_mpi.wire.orders import Multiply, Opened, Opening, Order

ORDER, OBJECT, PRESENT, REFUSED = b"O", b"P", b"T", b"R"
FAREWELL, FAILED, DISMISSED = b"F", b"X", b"D"
HELLO, ANSWER, SAID, GOOD_BYE = b"H", b"A", b"S", b"B"

_KIND = 8  # bytes, so that numbers behind it lie as they should

_FIELDS = {
    "problem": str,
    "shard": str,
    "rate": float,
    "unseen": bool,
    "damaged": bool,
    "unlogged": str,
    "uncached": str,
}
_MOST_TEXT = 1 << 16  # characters of what went wrong
_NOTHING = "not a message of a machine"
_NUMBER = 8  # bytes
_HEADER = len(Order._fields)
_MOST_NAME = 255  # characters of a name
_MOST_NUMBER = 1 << 62


def first(kind: bytes, head: NDArray[Any] | bytes) -> bytes:
    """Return the first frame of a message."""
    return kind.ljust(_KIND) + bytes(head)


def kind_and_head(frame: memoryview) -> tuple[bytes, memoryview]:
    """Split the first frame of any message into kind and head."""
    return bytes(frame[:_KIND]).rstrip(), frame[_KIND:]


def copy_frames(frames: Sequence[Any], out: NDArray[Any]) -> bool:
    """Copy the bytes of frames into an array; False if they do not fill it exactly."""
    octets, done = out.reshape(-1).view(np.uint8), 0
    for frame in frames:
        size = len(frame)
        if done + size > octets.size:
            return False
        if size:
            octets[done : done + size] = np.frombuffer(frame, np.uint8)
        done += size
    return done == octets.size


def encode_report(content: Opened | str | None) -> bytes:
    """Return a message of a machine as JSON."""
    return json.dumps(asdict(content) if isinstance(content, Opened) else content).encode()


def decode_report(frame: bytes) -> Opened | str | None:
    """Read a message of a machine; characters that a terminal would interpret are replaced.

    Raises
    ------
    ValueError
        It is not a message of a machine.
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
    told = {name: _text(content[name]) for name in ("problem", "unlogged", "uncached")}
    return Opened(**content | told)


def _text(content: str) -> str:
    return printable(content[:_MOST_TEXT], kept="\n")


def goes_with_order(content: NDArray[Any]) -> bool:
    """Whether the vector of a job is short enough to be sent with its order."""
    return content.nbytes <= SHORT_VECTOR


def packed_job(
    order: Order, intervals: Iterable[tuple[int, int]], content: NDArray[Any]
) -> NDArray[np.int64]:
    """Return the order of a job with its rows, and with its vector if that is short.

    The `length` of the order is the size of the vector in bytes.
    """
    rows = chain(*intervals)
    if not goes_with_order(content):
        return np.array([*order, *rows], dtype=np.int64)
    head = [*order._replace(length=content.nbytes), *rows]
    packed = np.zeros(len(head) + -(-content.nbytes // _NUMBER), dtype=np.int64)
    packed[: len(head)] = head
    packed[len(head) :].view(np.uint8)[: content.nbytes] = content.reshape(-1).view(np.uint8)
    return packed


def packed(job: Job, content: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    """Return the order of a job, and the vector that is sent behind it, if it is long."""
    header = Order.of(job.product, job.machine, job.step)
    numbers = packed_job(header, job.intervals, content)
    return numbers, None if goes_with_order(content) else content


def unpacked_job(numbers: NDArray[np.int64]) -> tuple[Order, Ints, NDArray[np.uint8]]:
    """Split a packed job into the order, its rows as pairs, and its vector if that is short.

    For an order that is not a step, the numbers behind its header are returned as rows.
    """
    order = Order(*numbers[:_HEADER].tolist())
    if not order.is_step:
        return order, numbers[_HEADER:], np.empty(0, np.uint8)
    along = order.length
    end = numbers.size - -(-along // _NUMBER)
    content = numbers[end:].view(np.uint8)[:along]
    return order, numbers[_HEADER:end].reshape(-1, 2), content


def job_of(order: Order, pairs: Ints) -> Multiply | None:
    """Return the job of an unpacked order; None for an order that is not a job."""
    if order.is_step:
        intervals = tuple(map(tuple, pairs.tolist()))
        return Multiply(order.step, order.shard, order.product, intervals)
    return None


def shape_for(order: Multiply, opening: Opening) -> tuple[int, int]:
    """Return the shape of the vector of a job."""
    adjoint, columns = order.product
    assert order.intervals is not None
    rows = sum(stop - start for start, stop in order.intervals)
    return (rows, columns) if adjoint else (columns, opening.manifest.columns)


def goes_with_report(values: NDArray[Any]) -> bool:
    """Whether an answer is short enough to be sent with its report."""
    return values.nbytes <= SHORT_ANSWERS


@dataclass(frozen=True)
class Hello:
    """The first message of a machine.

    Attributes
    ----------
    package : tuple of str
        Version, digest of its files, and where they are.
    pid : int
    place : Place
        Where it runs, as this process sees it.
    rank : int
        Its rank in the master's launcher; 0 if it was started otherwise.
    machine : int
        The machine that it asks to be, or was before; 0 for any.
    """

    package: tuple[str, str, str]
    pid: int
    place: Place
    rank: int = 0
    machine: int = 0

    def packed(self) -> bytes:
        """Return the message as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, frame: Any) -> Hello:
        """Read the first message of a machine.

        Raises
        ------
        ValueError
            It is not such a message.
        """
        try:
            found = json.loads(bytes(frame))
            version, digest, where = map(str, found.pop("package"))
            told = found.pop("place")
            names = [printable(str(told.pop(name))[:_MOST_NAME]) for name in ("host", "network")]
            numbers = {name: _number(value) for name, value in told.items()}
            others = {name: _number(value) for name, value in found.items()}
            place = Place(names[0], network=names[1], **numbers)
            return cls((version, digest, where), place=place, **others)
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError):
            raise ValueError("not a hello") from None


def _number(value: Any) -> int:
    number = int(value)
    if not 0 <= number < _MOST_NUMBER:
        raise ValueError("a number out of range")
    return number


def package_here() -> tuple[str, str, str]:
    """Return version, digest and place of this package."""
    return __version__, *fingerprint()
