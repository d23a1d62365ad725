"""Messages on a socket: a frame with its kind and a head, and more with bytes in pieces.

==========  ======================================================================
to machine
ORDER       an order, which is for jobs as `pack_jobs` returns it; then bytes that belong to it
ADMISSION     a `Admission`: whether the machine serves the store that it has opened
MEASURE     nothing; all machines are ready to measure their speeds
HEARTBEAT     nothing; it can be sent as long as the machine is connected
REFUSED     why the machine cannot join
LEAVE_ACK    nothing; the machine has said good-bye and may leave
FAILED      the machine's error: it gets no more jobs, and leaves
DISMISSED   why the machine is excluded for good: it leaves
to master
HELLO       who a machine is: a `Hello`
ANSWER      reports of the jobs of an order; then their values, or for X' V the sum of them, in the
            same frame if they are short
STATUS      what a machine reports: on a store that it opened, the error of a job, or that it is
            ready to measure its speed
PROGRESS    nothing; it copies the shard that it opens
LEAVE    nothing
==========  ======================================================================

Objects are JSON that msgspec validates (`processes.packing`).

The time of a small step is that of its messages: a short job and a short answer are one message
each. A long vector is not copied, but sent in frames of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from cec_mpi._version import __version__
from cec_mpi.core.plan.assignment import count_rows
from cec_mpi.runtime.processes.packing import unpack
from cec_mpi.runtime.processes.places import Count, Place
from cec_mpi.runtime.processes.start import fingerprint
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import (
    MAX_INLINE_VECTOR,
    Multiply,
    Opening,
    OpenReport,
    Order,
    Part,
    ReportFields,
)
from cec_mpi.text import printable

ORDER, ADMISSION, MEASURE, HEARTBEAT, REFUSED = b"O", b"V", b"M", b"T", b"R"
LEAVE_ACK, FAILED, DISMISSED = b"F", b"X", b"D"
HELLO, ANSWER, STATUS, PROGRESS, LEAVE = b"H", b"A", b"S", b"P", b"B"

_KIND_BYTES = 8  # bytes: keeps the numbers after it aligned

_MAX_TEXT_LENGTH = 1 << 16  # characters of what went wrong
_NUMBER = 8  # bytes
_HEADER = len(Order._fields)
_REPORT = struct.Struct(f"={ReportFields.size()}d")
_FLOAT64 = np.dtype(np.float64)
_MAX_NAME = 255  # characters of a name
_MAX_RATE = 1e15  # rows per second


def join_frame(kind: bytes, head: NDArray[Any] | bytes) -> bytes:
    """Return the first frame of a message: its kind and its head."""
    return kind.ljust(_KIND_BYTES) + bytes(head)


def split_frame(frame: memoryview) -> tuple[bytes, memoryview]:
    """Split the first frame of any message into kind and head."""
    return bytes(frame[:_KIND_BYTES]).rstrip(), frame[_KIND_BYTES:]


def copy_frames(frames: Sequence[Any], array: NDArray[Any]) -> bool:
    """Copy the bytes of frames into an array; False if they do not fill it exactly."""
    octets = array.reshape(-1).view(np.uint8)
    if sum(map(len, frames)) != octets.size:
        return False
    begin = 0
    for frame in frames:
        end = begin + len(frame)
        octets[begin:end] = np.frombuffer(frame, np.uint8)
        begin = end
    return True


def unpack_status(frame: Any) -> OpenReport | str | None:
    """Read a status; characters that a terminal would interpret are replaced.

    Raises
    ------
    ValueError
        It is not the status of a machine.
    """
    content: OpenReport | str | None = unpack(frame, OpenReport | str | None)  # type: ignore[arg-type]
    if not isinstance(content, OpenReport):
        return content and _text(content)
    names = ("problem", "shard", "log_problem", "cache_problem", "device")
    texts: Any = {name: _text(getattr(content, name)) for name in names}
    return replace(content, **texts, rate=content.rate if 0 <= content.rate < _MAX_RATE else 0.0)


def _text(content: str) -> str:
    return printable(content[:_MAX_TEXT_LENGTH], keep="\n")


def pack_jobs(jobs: Sequence[Job]) -> tuple[bytes, list[NDArray[Any]]]:
    """Return the order for jobs of one host, and the vectors that are sent behind it.

    An order has the number of rows of each machine, then the rows, then short vectors; its `length`
    is the size of these in bytes. X W has one vector, X' V has one for each job.
    """
    product, step = jobs[0].product, jobs[0].step
    operands = [job.operand for job in (jobs if product.adjoint else jobs[:1])]
    size = sum([operand.nbytes for operand in operands])
    length = size if size <= MAX_INLINE_VECTOR else 0
    numbers: list[int] = [*Order.for_step(product, len(jobs), step, length)]
    for job in jobs:
        numbers += job.machine, len(job.intervals)
    for job in jobs:
        for interval in job.intervals:
            numbers += interval
    head = struct.pack(f"={len(numbers)}q", *numbers)
    if not length:
        return head, operands
    return b"".join([head, *operands, bytes(-length % _NUMBER)]), []  # type: ignore[list-item]


def unpack_answer(
    frames: Sequence[memoryview], jobs: Sequence[Job], size: int, dtype: np.dtype[Any]
) -> tuple[list[ReportFields[float]], list[list[NDArray[Any]]]]:
    """Return the reports and the answers of jobs of one host, each in pieces that are not copied.

    Parameters
    ----------
    frames : sequence of memoryview
        Reports and values in the first one, values in the others.
    jobs : sequence of Job
    size : int
        Numbers of the sum X' V.
    dtype : dtype
        Of answers to X W.

    Raises
    ------
    ValueError
        They have another length than the answers to these jobs.
    """
    head, *others = frames
    end = _REPORT.size * len(jobs)
    if len(head) < end:
        raise ValueError("an answer without its reports")
    reports = [ReportFields(*numbers) for numbers in _REPORT.iter_unpack(head[:end])]
    adjoint, columns = jobs[0].product
    kind = _FLOAT64 if adjoint else dtype
    pieces = [np.frombuffer(frame, kind) for frame in (head[end:], *others) if len(frame)]
    sizes = [size] if adjoint else [job.count * columns for job in jobs]
    if sum([piece.size for piece in pieces]) != sum(sizes):
        raise ValueError("an answer of the wrong length")
    if len(sizes) == 1:
        return reports, [pieces] * len(jobs)
    return reports, [_pop_values(pieces, count) for count in sizes]


def _pop_values(pieces: list[NDArray[Any]], count: int) -> list[NDArray[Any]]:
    """Remove so many numbers from the beginning of pieces, and return them in pieces."""
    found = []
    while count:
        piece = pieces[0][:count]
        found.append(piece)
        count -= piece.size
        pieces[0] = pieces[0][piece.size :]
        if not pieces[0].size:
            del pieces[0]
    return found


def unpack_order(numbers: NDArray[np.int64]) -> tuple[Order, Multiply | None, NDArray[np.uint8]]:
    """Return an order, the job that it is, if it is one, and vectors that came with it."""
    order = Order(*numbers[:_HEADER].tolist())
    if not order.is_step:
        return order, None, np.empty(0, np.uint8)
    end = numbers.size - -(-order.length // _NUMBER)
    pairs = numbers[_HEADER:end].reshape(-1, 2).tolist()
    parts, begin = [], order.shard
    for machine, count in pairs[:begin]:
        parts.append(Part(machine, tuple((a, b) for a, b in pairs[begin : begin + count])))
        begin += count
    job = Multiply(order.step, order.product, tuple(parts))
    return order, job, numbers[end:].view(np.uint8)[: order.length]


def operand_shape(job: Multiply, opening: Opening) -> tuple[int, int]:
    """Return the shape of W, or of the coefficients of all parts of a job."""
    adjoint, columns = job.product
    rows = sum(count_rows(part.intervals or ()) for part in job.parts)
    return (rows, columns) if adjoint else (columns, opening.manifest.columns)


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
    machines : tuple of int
        The machines that it asks for, or carried before.
    count : int
        How many machines it carries.
    memory : int
        Bytes that their shards may take; by default any number.
    is_limited : bool
        Whether the user set it; otherwise it is a fraction of the free memory.
    device : str
        Devices that this is the memory of; empty for the main memory.
    """

    package: tuple[str, str, str]
    pid: Count
    place: Place
    rank: Count = 0
    machines: Annotated[tuple[Count, ...], Meta(max_length=1 << 16)] = ()
    count: Count = 1
    memory: Count = (1 << 62) - 1
    is_limited: bool = False
    device: str = ""

    @classmethod
    def unpack(cls, frame: Any) -> Hello:
        """Read the first message of a machine.

        Raises
        ------
        ValueError
            It is not such a message.
        """
        found = unpack(frame, cls)
        host, network = found.place.host[:_MAX_NAME], found.place.network[:_MAX_NAME]
        place = replace(found.place, host=printable(host), network=printable(network))
        return replace(found, place=place, device=printable(found.device[:_MAX_NAME]))


def package_fingerprint() -> tuple[str, str, str]:
    """Return version, digest and place of this package."""
    return __version__, *fingerprint()
