"""Pieces of large records read by processes of their own, as many as there are cores for.

A reader is asked for one piece after the other, and answers with its chunks. Where readers cannot
be started, or end early, this process reads the pieces itself.
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
from struct import Struct
from struct import error as struct_error

from cec_mpi.report.reading.chunks import Chunk, chunks_of
from cec_mpi.report.reading.fields import ODD, OddError

Piece = tuple[int, int]

_SMALLEST = 1 << 27  # bytes: what is smaller is read before a reader has started
_MOST = 3  # readers: this process is as fast with what they find
_SERVE = "from cec_mpi.report.reading.readers import serve; serve()"
_REQUEST = Struct("qq")


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
