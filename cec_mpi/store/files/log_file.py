"""The log file of this process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from cec_mpi.store.files.replacing import create_or_replace
from cec_mpi.store.files.saving import reason_of
from cec_mpi.text import printable


@contextmanager
def log_file(
    path: Path | None, on_failure: Callable[[str], None] = lambda problem: None
) -> Iterator[None]:
    """Write this process's log to a new file; without a path, do nothing.

    Parameters
    ----------
    path : Path or None
    on_failure : callable
        Called once with the reason if the log cannot be written, now or later.
    """
    if path is None:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _LogFileHandler(path, on_failure)
    except OSError as error:
        on_failure(f"{path} cannot be written: {reason_of(error)}")
        yield
        return
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("cec_mpi")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):  # buffered lines could not be written
            handler.close()


class _Formatter(logging.Formatter):
    """Escapes characters that UTF-8 cannot represent or that a terminal would interpret."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


class _LogFileHandler(logging.FileHandler):
    """A log handler that stops at the first error, without a traceback for each line."""

    def __init__(self, path: Path, on_failure: Callable[[str], None]) -> None:
        self._path = path
        super().__init__(path)
        self._on_failure = on_failure
        self._is_writable = True

    def _open(self) -> TextIOWrapper:
        return os.fdopen(create_or_replace(self._path), "w", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_writable:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._is_writable = False
        self._on_failure(f"{self._path} cannot be written: {reason_of(error)}")
