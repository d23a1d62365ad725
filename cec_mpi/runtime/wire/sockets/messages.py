"""Messages on a socket: a frame with its kind and a head, and more with bytes in pieces.

==========  ======================================================================
to machine
ORDER       an order as packed by `packed_job`; then bytes that belong to it
VERDICT     a `Verdict`: whether the machine serves the store that it has opened
MEASURE     nothing; all machines are ready to measure their speeds
PRESENT     nothing; it can be sent as long as the machine is connected
REFUSED     why the machine cannot join
FAREWELL    nothing; the machine has said good-bye and may leave
FAILED      the machine's error: it gets no more jobs, and leaves
DISMISSED   why the machine is excluded for good: it leaves
to master
HELLO       who a machine is: a `Hello`
ANSWER      the report of a job; then its values, in the same frame where they are short
STATUS      what a machine reports: on a store that it opened, the error of a job, or that it is
            ready to measure its speed
GOOD_BYE    nothing
==========  ======================================================================

Objects are JSON that msgspec validates (`processes.packing`).

The time of a small step is that of its messages: a short job and a short answer are one message
each. A long vector is not copied, but sent in frames of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi._version import __version__
from cec_mpi.core.plan.assignment import Ints, count_rows
from cec_mpi.runtime.processes.packing import unpack
from cec_mpi.runtime.processes.places import Place
from cec_mpi.runtime.processes.start import fingerprint
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import (
    SHORT_ANSWERS,
    SHORT_VECTOR,
    Multiply,
    Opened,
    Opening,
    Order,
)
from cec_mpi.text import printable

ORDER, VERDICT, MEASURE, PRESENT, REFUSED = b"O", b"V", b"M", b"T", b"R"
FAREWELL, FAILED, DISMISSED = b"F", b"X", b"D"
HELLO, ANSWER, STATUS, GOOD_BYE = b"H", b"A", b"S", b"B"

_KIND = 8  # bytes, so that numbers behind it lie as they should

_MOST_TEXT = 1 << 16  # characters of what went wrong
_NUMBER = 8  # bytes
_HEADER = len(Order._fields)
_MOST_NAME = 255  # characters of a name
_MOST_NUMBER = 1 << 62
_MOST_RATE = 1e15  # rows per second


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


def unpack_status(frame: Any) -> Opened | str | None:
    """Read a status; characters that a terminal would interpret are replaced.

    Raises
    ------
    ValueError
        It is not the status of a machine.
    """
    content: Opened | str | None = unpack(frame, Opened | str | None)  # type: ignore[arg-type]
    match content:
        case str():
            return _text(content)
        case Opened():
            return replace(
                content,
                problem=_text(content.problem),
                unlogged=_text(content.unlogged),
                uncached=_text(content.uncached),
                rate=content.rate if 0 <= content.rate < _MOST_RATE else 0.0,
            )
    return None


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
    rows = count_rows(order.intervals)
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

    @classmethod
    def unpack(cls, frame: Any) -> Hello:
        """Read the first message of a machine.

        Raises
        ------
        ValueError
            It is not such a message.
        """
        found = unpack(frame, cls)
        numbers = [*vars(found).values(), *vars(found.place).values()]
        if not all(0 <= n < _MOST_NUMBER for n in numbers if isinstance(n, int)):
            raise ValueError("a number out of range")
        names = (printable(name[:_MOST_NAME]) for name in (found.place.host, found.place.network))
        host, network = names
        return replace(found, place=replace(found.place, host=host, network=network))


def package_here() -> tuple[str, str, str]:
    """Return version, digest and place of this package."""
    return __version__, *fingerprint()
