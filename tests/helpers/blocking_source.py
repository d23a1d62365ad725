"""A matrix whose last rows block their reader until a test releases them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import zarr

from helpers.waiting import wait_until

COLUMNS = 4
_CHUNK = 1 << 13  # rows; encode reads at least as many at once


class BlockingSource:
    """A Zarr array whose last chunk is a pipe.

    Attributes
    ----------
    path : Path
    rows : int
    """

    def __init__(self, directory: Path, rows: int = 3 << 18) -> None:
        self.path, self.rows = directory / "X.zarr", rows
        shape, chunks = (rows, COLUMNS), (_CHUNK, COLUMNS)
        array = zarr.create_array(self.path, shape=shape, chunks=chunks, dtype="float64")
        array[:] = np.random.default_rng(8).standard_normal(shape)
        self._last, self._content = self.path / f"c/{rows // _CHUNK - 1}/0", directory / "last"
        self._last.rename(self._content)
        os.mkfifo(self._last)

    def await_reader(self) -> int:
        """Wait until a process reads the last rows; return the pipe from which it reads."""

        def open_pipe() -> int | None:
            with suppress(OSError):  # no process reads
                return os.open(self._last, os.O_WRONLY | os.O_NONBLOCK)
            return None

        return wait_until(open_pipe)

    def release(self, pipe: int) -> None:
        """Write the last rows to the pipe."""
        data = self._content.read_bytes()
        os.set_blocking(pipe, True)
        with os.fdopen(pipe, "wb") as stream:
            stream.write(data)
