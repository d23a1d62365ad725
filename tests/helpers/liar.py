"""A process that joins a run as a machine, and lies about what it is and what it computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
from cec_mpi.errors import CecError
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.processes.packing import pack, unpack_fields
from cec_mpi.runtime.processes.places import detect_place
from cec_mpi.runtime.wire.orders import Multiply, Opening, OpenReport, OrderKind, pack_report
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection
from cec_mpi.runtime.wire.sockets.messages import (
    ANSWER,
    HELLO,
    LEAVE,
    ORDER,
    STATUS,
    Hello,
    copy_frames,
    operand_shape,
    package_fingerprint,
    unpack_order,
)

Message = tuple[bytes, bytes]
Lie = Callable[[np.random.Generator, np.ndarray, np.ndarray], Iterator[Message]]
NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-300, 1e300, 2.0**62)


def answer(report: np.ndarray, values: np.ndarray) -> Message:
    """A whole answer."""
    return ANSWER, report.tobytes() + values.tobytes()


def wrong_rows(random, report, values):
    chosen = random.random(values.size) < random.choice([0.01, 0.5, 1.0])
    values[chosen | (np.arange(values.size) == 0)] += random.choice([1e-3, 1.0, 1e6])
    yield answer(report, values)


def other_rows(random, report, values):
    yield answer(report, np.roll(values, 1 + random.integers(values.size)) + 1e-3)


def scaled(random, report, values):
    yield answer(report, values * random.choice([0.0, -1.0, 2.0, 1e150]) + 1e-3)


def not_a_number(random, report, values):
    values[random.integers(values.size)] = random.choice(NUMBERS[:3])
    yield answer(report, values)


def another_length(random, report, values):
    size = int(random.choice([0, 1, values.size - 1, values.size + 1, 10 * values.size]))
    yield answer(report, np.resize(values, size))


def no_report(random, report, values):
    yield ANSWER, report.tobytes()[: random.integers(report.nbytes)]


def another_machine(random, report, values):
    report[0] = random.choice([0, 1, 7, -1, *NUMBERS])
    yield answer(report, values)


def impossible_report(random, report, values):
    for number in range(1, report.size):
        report[number] = random.choice(NUMBERS)
    yield answer(report, values)


def impossible_times(random, report, values):
    report[1:4] = random.choice(NUMBERS, 3)
    yield answer(report, values)


def answered_twice(random, report, values):
    yield answer(report, values)
    for _ in range(random.integers(1, 20)):
        yield answer(report, values + 1.0)


def answered_before(random, report, values):
    """The answer to an earlier step."""
    yield answer(report, random.standard_normal(values.size))


def flood(random, report, values):
    for number in range(int(random.choice([50, 2000]))):
        yield [(STATUS, pack("x")), (ANSWER, b"1"), (b"?", b"?"), (LEAVE, b"")][number % 4]
    yield answer(report, values)


def nonsense(random, report, values):
    for content in (b"[" * 10**5, b"{}", b"[1]", b"1e999", b"\xff", pack("x" * 10**5)):
        yield STATUS, content
    yield answer(report, values)


def huge_frame(random, report, values):
    yield ANSWER, bytes(4 << 20)


def no_answer(random, report, values):
    yield from ()


ANSWERS: tuple[Lie, ...] = (
    wrong_rows,
    other_rows,
    scaled,
    not_a_number,
    another_length,
    no_report,
    another_machine,
    impossible_report,
    impossible_times,
    answered_twice,
    answered_before,
    flood,
    nonsense,
    huge_frame,
    no_answer,
)


def hello(random: np.random.Generator) -> bytes:
    """Return a hello message whose fields are mostly wrong."""
    fields = asdict(Hello(package_fingerprint(), int(random.integers(1, 1 << 20)), detect_place()))
    if random.random() < 0.5:
        place = fields["place"]
        name = random.choice(["cores", "ranks", "own_cores", "node", "memory", "group"])
        place[name] = int(random.choice([0, 1, 1 << 40, (1 << 62) - 1]))
        fields["machines"] = [int(random.choice([0, 1, 6, 7, 1 << 40]))]
        fields["count"] = int(random.choice([1, 1, 1, 0, 2, 1 << 40]))
        fields["rank"] = int(random.choice([0, 1, 1 << 40]))
        place["host"] = str(random.choice(["node1", "x" * 10**5, "\x1b[2J", ""]))
    return pack(fields)


def opened(random: np.random.Generator) -> OpenReport:
    """What it reports on a store; sometimes without a shard."""
    rate = float(random.choice(NUMBERS))
    return OpenReport(shard=str(random.choice(["file", "file", ""])), rate=rate)


class Liar(threading.Thread):
    """A process that joins, and answers each job with a lie.

    Parameters
    ----------
    path : Path
        The connection file.
    store : path
    lie : callable
        See `ANSWERS`.
    random : numpy.random.Generator
    """

    def __init__(self, path: Path, store: Any, lie: Lie, random: np.random.Generator) -> None:
        super().__init__()
        self._connection = Connection(read_connection_file(path))
        self._store = cec_mpi.open_store(store)
        self._lie, self._random = lie, random
        self._opening: Opening | None = None
        self._machine = 0
        self.jobs = 0
        self.ended = ""
        self.leaves = threading.Event()

    def run(self) -> None:
        self._connection.send(HELLO, hello(self._random))
        try:
            while not self.leaves.is_set():
                message = self._connection.receive(0.05)
                if message is not None and message[0] == ORDER:
                    self._obey(*message[1:])
        except CecError as error:  # it is excluded, or cut off
            self.ended = str(error)
        self._connection.close()

    def end(self) -> None:
        self.leaves.set()
        self.join()

    def _obey(self, head: Any, *frames: Any) -> None:
        order, job, content = unpack_order(np.frombuffer(head, np.int64))
        if order.kind == OrderKind.OPEN:
            self._opening = unpack_fields(b"".join(frames), Opening)
            self._machine = order.shard
            self._connection.send(STATUS, pack(opened(self._random)))
        elif job is not None:
            self.jobs += 1
            values = self._right(job, content, frames)
            report = np.array(pack_report(Report(1e-3), self._machine), dtype=np.float64)
            for kind, rest in self._lie(self._random, report, values):
                self._connection.send(kind, rest)

    def _right(self, job: Multiply, content: Any, frames: Any) -> np.ndarray:
        opening = self._opening
        assert opening is not None
        vector = np.empty(operand_shape(job, opening), opening.arithmetic)
        copy_frames([content] if content.size else frames, vector)
        shard = self._store.shard(self._machine)
        rows = np.concatenate([shard[start:stop] for start, stop in job.parts[0].intervals or ()])
        found = rows.T @ vector if job.product.adjoint else rows @ vector.T
        return np.ascontiguousarray(found, dtype=np.float64).ravel()
