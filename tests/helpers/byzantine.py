"""A Byzantine machine, which joins a run with a false hello and sends false answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
from cec_mpi.errors import CecError
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.processes.packing import pack, unpack_fields
from cec_mpi.runtime.processes.resources import detect_process
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
FalseAnswer = Callable[[np.random.Generator, np.ndarray, np.ndarray], Iterator[Message]]
NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-300, 1e300, 2.0**62)


def pack_answer(report: np.ndarray, values: np.ndarray) -> Message:
    """Return an answer as a message."""
    return ANSWER, report.tobytes() + values.tobytes()


def wrong_values(random, report, values):
    is_wrong = random.random(values.size) < random.choice([0.01, 0.5, 1.0])
    values[is_wrong | (np.arange(values.size) == 0)] += random.choice([1e-3, 1.0, 1e6, 1e150])
    yield pack_answer(report, values)


def wrong_rows(random, report, values):
    yield pack_answer(report, np.roll(values, 1 + random.integers(values.size)) + 1e-3)


def nonfinite_values(random, report, values):
    values[random.integers(values.size)] = random.choice(NUMBERS[:3])
    yield pack_answer(report, values)


def wrong_length(random, report, values):
    size = int(random.choice([0, 1, values.size - 1, values.size + 1, 10 * values.size]))
    yield pack_answer(report, np.resize(values, size))


def truncated_report(random, report, values):
    yield ANSWER, report.tobytes()[: random.integers(report.nbytes)]


def wrong_machine(random, report, values):
    report[0] = random.choice([0, 1, 7, -1, *NUMBERS])
    yield pack_answer(report, values)


def impossible_report(random, report, values):
    report[1:] = random.choice(NUMBERS, report.size - 1)
    yield pack_answer(report, values)


def repeated_answer(random, report, values):
    yield pack_answer(report, values)
    for _ in range(random.integers(1, 20)):
        yield pack_answer(report, values + 1.0)


def flood_of_invalid_messages(random, report, values):
    for content in (b"[" * 10**5, b"{}", b"[1]", b"1e999", b"\xff", pack("x" * 10**5)):
        yield STATUS, content
    for number in range(int(random.choice([50, 2000]))):
        yield [(STATUS, pack("x")), (ANSWER, b"1"), (b"?", b"?"), (LEAVE, b"")][number % 4]
    yield pack_answer(report, values)


def huge_frame(random, report, values):
    yield ANSWER, bytes(4 << 20)


def no_answer(random, report, values):
    yield from ()


FALSE_ANSWERS: tuple[FalseAnswer, ...] = (
    wrong_values,
    wrong_rows,
    nonfinite_values,
    wrong_length,
    truncated_report,
    wrong_machine,
    impossible_report,
    repeated_answer,
    flood_of_invalid_messages,
    huge_frame,
    no_answer,
)


def make_hello(random: np.random.Generator) -> bytes:
    """Return a hello message, which has wrong fields half of the time."""
    process = replace(detect_process(), pid=int(random.integers(1, 1 << 20)))
    fields = asdict(Hello(package_fingerprint(), process))
    if random.random() < 0.5:
        process_fields = fields["process"]
        name = random.choice(["cores", "ranks", "own_cores", "node", "memory", "group"])
        process_fields[name] = int(random.choice([0, 1, 1 << 40, (1 << 62) - 1]))
        fields["machines"] = [int(random.choice([0, 1, 6, 7, 1 << 40]))]
        fields["slots"] = int(random.choice([1, 1, 1, 0, 2, 1 << 40]))
        fields["initial_rank"] = int(random.choice([0, 1, 1 << 40]))
        process_fields["host_name"] = str(random.choice(["node1", "x" * 10**5, "\x1b[2J", ""]))
    return pack(fields)


def make_open_report(random: np.random.Generator) -> OpenReport:
    """Return a false report of an opened shard, or of none."""
    rate = float(random.choice(NUMBERS))
    return OpenReport(shard_path=str(random.choice(["file", "file", ""])), rate=rate)


class ByzantineMachine(threading.Thread):
    """A machine that joins a run and sends a false answer to each job.

    Parameters
    ----------
    path : Path
        The connection file.
    store : path
    false_answer : callable
        One of `FALSE_ANSWERS`.
    random : numpy.random.Generator
    """

    def __init__(
        self, path: Path, store: Any, false_answer: FalseAnswer, random: np.random.Generator
    ) -> None:
        super().__init__()
        self._connection = Connection(read_connection_file(path))
        self._store = cec_mpi.open_store(store)
        self._false_answer, self._random = false_answer, random
        self._opening: Opening | None = None
        self._machine = 0
        self.jobs = 0
        self._should_stop = threading.Event()

    def run(self) -> None:
        self._connection.send(HELLO, make_hello(self._random))
        with suppress(CecError):  # it is excluded or disconnected
            while not self._should_stop.is_set():
                message = self._connection.receive(0.05)
                if message is not None and message[0] == ORDER:
                    self._handle_order(*message[1:])
        self._connection.close()

    def stop(self) -> None:
        self._should_stop.set()
        self.join()

    def _handle_order(self, header: Any, *frames: Any) -> None:
        order, job, operand = unpack_order(np.frombuffer(header, np.int64))
        if order.kind == OrderKind.OPEN:
            self._opening = unpack_fields(b"".join(frames), Opening)
            self._machine = order.machine_or_count
            self._connection.send(STATUS, pack(make_open_report(self._random)))
        elif job is not None:
            self.jobs += 1
            values = self._correct_values(job, operand, frames)
            report = np.array(pack_report(Report(1e-3), self._machine), dtype=np.float64)
            for kind, content in self._false_answer(self._random, report, values):
                self._connection.send(kind, content)

    def _correct_values(self, job: Multiply, operand: Any, frames: Any) -> np.ndarray:
        opening = self._opening
        assert opening is not None
        vector = np.empty(operand_shape(job, opening), opening.arithmetic)
        copy_frames([operand] if operand.size else frames, vector)
        shard = self._store.shard(self._machine)
        rows = np.concatenate([shard[start:stop] for start, stop in job.parts[0].intervals or ()])
        values = rows.T @ vector if job.product.adjoint else rows @ vector.T
        return np.ascontiguousarray(values, dtype=np.float64).ravel()
