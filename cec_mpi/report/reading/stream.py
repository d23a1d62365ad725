"""Records read in a stream, a chunk of steps after the other.

`cec_mpi.records.reading` checks each field of each line, which takes longer than all that a report
does with them. Here numbers are checked as they become arrays, and only where something is odd are
the lines read again by it, which says what is wrong and where.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.files.regular import open_regular
from cec_mpi.records.reading import LONGEST_LINE, check_lines
from cec_mpi.report.reading.chunks import Chunk, chunks_of
from cec_mpi.report.reading.fields import LISTED, ODD, Floats, OddError, check_machines

Piece = tuple[int, int]

_SMALLEST = 1 << 27  # bytes: what is smaller is read before a reader has started
_MOST = 3  # readers: this process is as fast with what they find
_SERVE = "from cec_mpi.report.reading.stream import serve; serve()"
_REQUEST = Struct("qq")
_PIECE, _LOOK = 1 << 22, 1 << 16  # bytes that are read at once, about


def chunks_in(file: int, pieces: Sequence[Piece]) -> Iterator[Chunk]:
    """Chunks of pieces of a file, each from one byte to before another.

    Raises
    ------
    one of ODD
        A line is not what a run writes.
    """
    readers = _started(file, pieces)
    try:
        for at, piece in enumerate(pieces):
            found = 0
            if readers:
                reader = readers[at % len(readers)]
                try:
                    for chunk in reader.answers():
                        found += 1
                        yield chunk
                    for later in pieces[at + len(readers) : at + len(readers) + 1]:
                        reader.ask(later)
                    continue
                except (EOFError, OSError, pickle.UnpicklingError):  # it has ended
                    _close(readers)
            yield from islice(_chunks_of(file, piece), found, None)
    finally:
        _close(readers)


def _chunks_of(file: int, piece: Piece) -> Iterator[Chunk]:
    begin, end = piece
    data = os.pread(file, end - begin, begin)
    if len(data) < end - begin:
        raise OddError("it was cut off while it was read")
    return chunks_of(data)


def serve() -> None:
    """Answer requests on standard input until it ends: what a reader does."""
    file, out = int(sys.argv[1]), sys.stdout.buffer
    while len(request := sys.stdin.buffer.read(_REQUEST.size)) == _REQUEST.size:
        odd = None
        try:
            for chunk in _chunks_of(file, _REQUEST.unpack(request)):
                pickle.dump(chunk, out, pickle.HIGHEST_PROTOCOL)
        except (*ODD, struct_error) as problem:
            odd = OddError(str(problem))
        pickle.dump(odd, out)
        out.flush()


class _Reader:
    """A process that reads pieces."""

    def __init__(self, file: int) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[file],
            env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
        )

    def ask(self, piece: Piece) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(_REQUEST.pack(*piece))
        self._process.stdin.flush()

    def answers(self) -> Iterator[Chunk]:
        """Chunks of the piece that it was asked for first."""
        assert self._process.stdout is not None
        while (found := pickle.load(self._process.stdout)) is not None:
            if isinstance(found, OddError):
                raise found
            yield found

    def close(self) -> None:
        self._process.kill()
        with suppress(BrokenPipeError), self._process:  # closes its pipes, and waits for its end
            pass


def _started(file: int, pieces: Sequence[Piece]) -> list[_Reader]:
    """Readers that were asked for the first pieces; none where they do not pay, or cannot start."""
    readers: list[_Reader] = []
    cores = len(os.sched_getaffinity(0))
    if cores < 2 or not pieces or pieces[-1][1] < _SMALLEST:
        return readers
    with suppress(OSError):
        given = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)  # apart from a reader's own 0, 1, 2
        try:
            for piece in pieces[: min(cores, _MOST)]:
                readers.append(_Reader(given))
                readers[-1].ask(piece)
        finally:
            os.close(given)
        return readers
    _close(readers)
    return readers


def _close(readers: list[_Reader]) -> None:
    while readers:
        readers.pop().close()


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Chunks of the steps of a run, each part with at least one, maybe without steps.

    A last line that was cut off is passed over: a run may be writing it.

    Raises
    ------
    InputError
        Names the file, the line, what was found and what was expected.
    """
    joiner = _Joiner()
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as stream:
            file = stream.fileno()
            for chunk in chunks_in(file, _pieces(file)):
                joiner.join(chunk)
                if chunk.steps or chunk.notes or chunk.begins:
                    yield chunk
        if joiner.header is None:
            raise OddError("it has no header")
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    except (*ODD, struct_error) as problem:
        check_lines(path)
        raise InputError(f"{path} is no record of steps that can be read: {problem}") from None


def _pieces(file: int) -> list[tuple[int, int]]:
    """Where pieces of a file begin and end: each but the last one with the end of a line."""
    size = os.fstat(file).st_size
    pieces = []
    begin = 0
    while begin < size:
        end = _after_line(file, begin + _PIECE, size)
        pieces.append((begin, end))
        begin = end
    return pieces


def _after_line(file: int, at: int, size: int) -> int:
    """Where the line ends that has a byte."""
    for begin in range(at, min(at + LONGEST_LINE, size), _LOOK):
        found = os.pread(file, _LOOK, begin).find(b"\n")
        if found >= 0:
            return begin + found + 1
    if at + LONGEST_LINE < size:
        raise OddError("it has a line that is too long")
    return size


class _Joiner:
    """Completes chunks by what they have from those before.

    Attributes
    ----------
    header : dict or None
        Of the part so far.
    """

    def __init__(self) -> None:
        self.header: dict[str, Any] | None = None
        self._steps, self._number = 0, -1.0
        self._time = ""
        self._numbers: dict[str, float] = {}
        self._row: Floats = np.empty(0)
        self._state: dict[str, Any] = {}

    def join(self, chunk: Chunk) -> None:
        """Complete a chunk, which follows those before.

        Raises
        ------
        one of ODD
            There are no steps as it needs them before it.
        """
        if chunk.begins:
            self.header, self._state, self._numbers = chunk.header, {}, {}
            self._row = np.empty(0)
        if self.header is None:
            if chunk.steps or chunk.notes:
                raise OddError("it has no header")
            return
        chunk.header, chunk.first = self.header, self._steps
        chunk.notes = [(self._steps + after, note) for after, note in chunk.notes]
        if not chunk.steps:
            return
        for name, values in chunk.numbers.items():
            if values[0] == -np.inf:
                values[values == -np.inf] = self._numbers[name]
            self._numbers[name] = values[-1]
        if not (np.diff(chunk.numbers["step"], prepend=self._number) > 0).all():
            raise OddError("its steps are not in ascending order")
        if not chunk.seconds.shape[1]:
            chunk.seconds = np.repeat(self._row[np.newaxis], chunk.steps, axis=0)
        if chunk.times[0] is None:
            chunk.times = [self._time if each is None else each for each in chunk.times]
        machines = chunk.seconds.shape[1]
        for stretch in chunk.stretches:
            before, self._state = self._state, {**self._state, **stretch.step}
            if self._state["store"] == -np.inf:
                self._state["store"] = before["store"]
            if not LISTED.keys() <= self._state.keys():
                raise OddError("it has a step without all its fields")
            stretch.step = self._state
            check_machines(stretch.step, machines)
        self._steps += chunk.steps
        self._number, self._time = chunk.numbers["step"][-1], chunk.times[-1]
        self._row = chunk.seconds[-1]
