"""Messages on sockets: frames, the first of which has the kind of the message, then its head.

===========  =================================================================================
to hosts
ORDER        an order (of jobs: see `pack_jobs`), then its payload or the operands of jobs
ADMISSION    an `Admission`: whether the host may serve the store that it has opened
MEASURE      empty; all hosts are ready to measure speeds
HEARTBEAT    empty; tests the connection, and is ignored
REFUSED      why the host cannot join
LEAVE_ACK    empty; the host may leave, as it has announced
FAILED       why the host gets no more jobs after an error: it must leave
DISMISSED    why the host is excluded for good: it must leave
to master
HELLO        a `Hello`
ANSWER       reports of the jobs of an order, then their values or, for X' V, their sum; short
             values are in the first frame
STATUS       a report on an opened store, the error of a job, or null when the host is ready to
             measure its speed
PROGRESS     empty; the host copies the shard that it opens
LEAVE        empty; the host leaves after it has answered its jobs
===========  =================================================================================

Objects are JSON that msgspec validates (`processes.packing`).

Messages dominate the time of a small step, so a short job and a short answer are one frame each. A
long vector is not copied, but sent in frames of its own.
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
from cec_mpi.runtime.processes.resources import Natural, ProcessInfo
from cec_mpi.runtime.processes.start import fingerprint
from cec_mpi.runtime.wire.jobs import Job
from cec_mpi.runtime.wire.orders import (
    MAX_INLINE_OPERAND,
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

_KIND_BYTES = 8  # a multiple of 8, so that numbers in the head are aligned

_MAX_TEXT_LENGTH = 1 << 16  # characters of an error
_NUMBER_BYTES = 8
_HEADER_LENGTH = len(Order._fields)
_REPORT_STRUCT = struct.Struct(f"={ReportFields.size()}d")
_FLOAT64 = np.dtype(np.float64)
_MAX_NAME_LENGTH = 255  # characters
_MAX_RATE = 1e15  # rows per second


def join_frame(kind: bytes, head: NDArray[Any] | bytes) -> bytes:
    """Return the first frame of a message from its kind and head."""
    return kind.ljust(_KIND_BYTES) + bytes(head)


def split_frame(frame: memoryview) -> tuple[bytes, memoryview]:
    """Return the kind and head of the first frame of a message."""
    return bytes(frame[:_KIND_BYTES]).rstrip(), frame[_KIND_BYTES:]


def copy_frames(frames: Sequence[Any], array: NDArray[Any]) -> bool:
    """Copy the bytes of frames into an array; return False if they do not fill it exactly."""
    if sum(map(len, frames)) != array.nbytes:
        return False
    if frames:
        octets = array.reshape(-1).view(np.uint8)
        np.concatenate([np.frombuffer(frame, np.uint8) for frame in frames], out=octets)
    return True


def unpack_status(frame: Any) -> OpenReport | str | None:
    """Decode a status; replace characters that a terminal would interpret.

    Raises
    ------
    ValueError
        The status is not valid.
    """
    content: OpenReport | str | None = unpack(frame, OpenReport | str | None)  # type: ignore[arg-type]
    if not isinstance(content, OpenReport):
        return content and _sanitize(content)
    names = ("problem", "shard_path", "log_problem", "cache_problem", "device")
    texts: Any = {name: _sanitize(getattr(content, name)) for name in names}
    return replace(content, **texts, rate=content.rate if 0 <= content.rate < _MAX_RATE else 0.0)


def _sanitize(text: str) -> str:
    return printable(text[:_MAX_TEXT_LENGTH], keep="\n")


def pack_jobs(jobs: Sequence[Job]) -> tuple[bytes, list[NDArray[Any]]]:
    """Return the order for jobs of one host, and the operands that are sent in other frames.

    After the header, the integers of `Order`, come the machine and number of intervals of each job,
    then the intervals, then short operands, whose size in bytes is the `length` of the order. Jobs
    of X W share one operand; jobs of X' V have one each.
    """
    product, step = jobs[0].product, jobs[0].step
    operands = [job.operand for job in (jobs if product.adjoint else jobs[:1])]
    size = sum([operand.nbytes for operand in operands])
    length = size if size <= MAX_INLINE_OPERAND else 0
    numbers: list[int] = [*Order.for_step(product, step, length, len(jobs))]
    for job in jobs:
        numbers += job.machine, len(job.intervals)
    for job in jobs:
        for interval in job.intervals:
            numbers += interval
    head = struct.pack(f"={len(numbers)}q", *numbers)
    if not length:
        return head, operands
    return b"".join([head, *operands, bytes(-length % _NUMBER_BYTES)]), []  # type: ignore[list-item]


def unpack_answer(
    frames: Sequence[memoryview], jobs: Sequence[Job], sum_size: int, dtype: np.dtype[Any]
) -> tuple[list[ReportFields[float]], list[list[NDArray[Any]]]]:
    """Return the reports and answers of jobs of one host; the pieces of answers are not copied.

    Parameters
    ----------
    frames : sequence of memoryview
        Reports and values in the first frame, values in the others.
    jobs : sequence of Job
    sum_size : int
        Number of values of the sum X' V.
    dtype : dtype
        Dtype of answers to X W.

    Raises
    ------
    ValueError
        The length is not that of the answers to these jobs.
    """
    head, *others = frames
    end = _REPORT_STRUCT.size * len(jobs)
    if len(head) < end:
        raise ValueError("an answer without its reports")
    reports = [ReportFields(*numbers) for numbers in _REPORT_STRUCT.iter_unpack(head[:end])]
    adjoint, columns = jobs[0].product
    dtype = _FLOAT64 if adjoint else dtype
    pieces = [np.frombuffer(frame, dtype) for frame in (head[end:], *others) if len(frame)]
    sizes = [sum_size] if adjoint else [job.row_count * columns for job in jobs]
    if sum([piece.size for piece in pieces]) != sum(sizes):
        raise ValueError("an answer of the wrong length")
    if len(sizes) == 1:
        return reports, [pieces] * len(jobs)
    return reports, [_pop_values(pieces, count) for count in sizes]


def _pop_values(pieces: list[NDArray[Any]], count: int) -> list[NDArray[Any]]:
    """Remove the first `count` values of consecutive pieces; return them as pieces."""
    removed = []
    while count:
        piece = pieces[0][:count]
        removed.append(piece)
        count -= piece.size
        pieces[0] = pieces[0][piece.size :]
        if not pieces[0].size:
            del pieces[0]
    return removed


def unpack_order(head: NDArray[np.int64]) -> tuple[Order, Multiply | None, NDArray[np.uint8]]:
    """Return the header of an order, its jobs (None if it has none), and short operands."""
    order = Order(*head[:_HEADER_LENGTH].tolist())
    if not order.is_step:
        return order, None, np.empty(0, np.uint8)
    end = head.size - -(-order.length // _NUMBER_BYTES)
    pairs = head[_HEADER_LENGTH:end].reshape(-1, 2).tolist()
    parts, begin = [], order.machine_or_count
    for machine, count in pairs[:begin]:
        intervals = tuple((start, stop) for start, stop in pairs[begin : begin + count])
        parts.append(Part(machine, intervals))
        begin += count
    jobs = Multiply(order.step_or_threads, order.product, tuple(parts))
    return order, jobs, head[end:].view(np.uint8)[: order.length]


def operand_shape(jobs: Multiply, opening: Opening) -> tuple[int, int]:
    """Return the shape of W', or of the coefficients of all parts of the jobs."""
    adjoint, columns = jobs.product
    rows = sum(count_rows(part.intervals or ()) for part in jobs.parts)
    return (rows, columns) if adjoint else (columns, opening.manifest.columns)


@dataclass(frozen=True)
class Hello:
    """The first message of a host.

    Attributes
    ----------
    package : tuple of str
        Version of the package, digest of its files, and their directory.
    process : ProcessInfo
        Its computer and resources, from `detect_process`.
    initial_rank : int
        Its rank among the processes that the launcher or the master has started for the run; 0 for
        any other process.
    machines : tuple of int
        Machines that it requests, or has carried before.
    slots : int
        Number of machines that it carries by default.
    memory : int
        Bytes for their shards; by default unlimited.
    has_memory_option : bool
        Whether the user has set `memory`; otherwise it is a fraction of the free memory.
    device : str
        Devices whose memory this is; empty for the main memory.
    """

    package: tuple[str, str, str]
    process: ProcessInfo
    initial_rank: Natural = 0
    machines: Annotated[tuple[Natural, ...], Meta(max_length=1 << 16)] = ()
    slots: Natural = 1
    memory: Natural = (1 << 62) - 1
    has_memory_option: bool = False
    device: str = ""

    @classmethod
    def unpack(cls, frame: Any) -> Hello:
        """Decode the first message of a host.

        Raises
        ------
        ValueError
            The message is not valid.
        """
        hello = unpack(frame, cls)
        names = hello.process.host_name, hello.process.network, hello.device
        host_name, network, device = (printable(name[:_MAX_NAME_LENGTH]) for name in names)
        process = replace(hello.process, host_name=host_name, network=network)
        return replace(hello, process=process, device=device)


def package_fingerprint() -> tuple[str, str, str]:
    """Return the version of this package, the digest of its files, and their directory."""
    return __version__, *fingerprint()
