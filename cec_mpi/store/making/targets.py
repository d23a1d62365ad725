"""Columns of a table that are no part of X: each goes to an ``.npy`` file of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cec_mpi.files.appearing import appearing
from cec_mpi.files.durable import check_room, make_file, write_at
from cec_mpi.files.replacing import sync
from cec_mpi.store.format.manifest import array_header
from cec_mpi.store.making.reading import NotEncodable, read_source
from cec_mpi.store.sources import Source, TableSource
from cec_mpi.store.work import Runner, fit_memory

_TOGETHER = 32  # stretches of the file in a piece, about 8 MiB of text
_MEMORY_FOR_TEXT = 16 << 20  # of a thread


@dataclass
class Extracting:
    """The work of writing one column of a table into a file."""

    source: TableSource  # of this column alone
    target: Path
    header_bytes: int
    threads: int
    pieces: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        marks = [int(row) for row in self.source.rows[:-1:_TOGETHER]]
        ends = [*marks[1:], self.source.shape[0]]
        self.pieces = list(zip(marks, ends, strict=True))

    def size(self, piece: tuple[int, int]) -> int:
        """Bytes of text that are read, about."""
        start, stop = piece
        return int(self.source.places[-1]) * (stop - start) // self.source.shape[0]

    def do(self, piece: tuple[int, int]) -> None:
        """Write some rows."""
        start, stop = piece
        column = np.empty((stop - start, 1), "<f8")
        read_source(self.source, start, stop, 0, 1, column)
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size:
            row = int(bad[0])
            raise NotEncodable(
                f"{self.source.name} holds {column[row, 0]} at {self.source.where(start + row, 0)}"
                ", a target: expected finite numbers"
            )
        descriptor = os.open(self.target, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_at(descriptor, column, self.header_bytes + start * column.itemsize)
        finally:
            os.close(descriptor)

    def flush(self) -> None:
        """Have the file on the disk."""
        sync(self.target)


@contextmanager
def publishing_targets(source: Source, memory: int, runner: Runner, again: bool) -> Iterator[None]:
    """Write the targets of a table, if it has some; they appear at the end of the block.

    Parameters
    ----------
    source : Source
    memory : int
        Bytes that each process may take.
    runner : Runner
    again : bool
        Whether they may take the place of those of an interrupted encode.

    Raises
    ------
    NotEncodable
        A target is no finite number.
    InputError
        There is no room, or a file has come into being meanwhile.
    """
    with ExitStack() as stack:
        if isinstance(source, TableSource):
            for column, file in source.targets:
                partial = stack.enter_context(appearing(file, again=again))
                _write(source.only(column), file, partial, memory, runner)
        yield


def _write(source: TableSource, file: Path, partial: Path, memory: int, runner: Runner) -> None:
    header = array_header((source.shape[0],), "float64").encode("latin-1")
    size = len(header) + 8 * source.shape[0]
    check_room(file, size)
    make_file(partial, header, size)
    threads, _ = fit_memory(memory, runner.threads, 1, _MEMORY_FOR_TEXT, 1, 1)
    runner.run(Extracting(source, partial, len(header), threads))
