"""Writing what a run leaves, and what is in a store: where that fails, one message names it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from cec_mpi.errors import InputError, ResultsError
from cec_mpi.files.replacing import create_new, open_own, replacing


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Write a file inside.

    Raises
    ------
    ResultsError
        It cannot be written, as on a disk that is full.
    """
    try:
        yield
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {reason_of(error)}") from None


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Write inside to a store, or to a file that is made of one.

    Raises
    ------
    InputError
        It cannot be written: the user has to give another place, or make room.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def store_all(contents: Mapping[Path, bytes]) -> None:
    """Put files in the places of others: all of them, or none where one cannot be written.

    Raises
    ------
    InputError
        As `storing`.
    """
    with ExitStack() as places:
        for path, content in contents.items():
            with storing(path):
                descriptor, _ = places.enter_context(replacing(path))
                with open(descriptor, "wb", closefd=False) as file:
                    file.write(content)
                os.fsync(descriptor)


@contextmanager
def open_lines(path: Path, more: bool) -> Iterator[IO[str]]:
    """A file of text that is open for writing inside, and whole after it.

    Parameters
    ----------
    path : Path
    more : bool
        It is there, and gets more lines; otherwise it is a new one.

    Raises
    ------
    ResultsError
        As `writing`.
    """
    with writing(path):
        descriptor = open_own(path, os.O_WRONLY | os.O_APPEND) if more else create_new(path)
        mode = "a" if more else "w"
        stream = open(path, mode, encoding="utf-8", opener=lambda *_: descriptor)  # noqa: SIM115
    try:
        yield stream
    except BaseException:
        with suppress(OSError):  # the same as before: what was not written is tried again
            stream.close()
        raise
    with writing(path):
        stream.close()


def reason_of(error: OSError) -> str:
    """Why a file cannot be written; NumPy says only how much of it was."""
    return error.strerror or f"{error} (the disk may be full)"
