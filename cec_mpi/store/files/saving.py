"""Writing of files, with errors that name the file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from cec_mpi.errors import InputError, ResultsError
from cec_mpi.store.files.replacing import create_or_replace, open_in_place, replacing


@contextmanager
def convert_to_results_error(path: Path) -> Iterator[None]:
    """Convert errors of writing a file in this context to `ResultsError`.

    Raises
    ------
    ResultsError
        The file cannot be written, for example because the disk is full.
    """
    try:
        yield
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {reason_of(error)}") from None


@contextmanager
def convert_to_input_error(path: Path) -> Iterator[None]:
    """Convert errors of writing a store, or a file from a store, to `InputError`.

    Raises
    ------
    InputError
        The file cannot be written; the user must choose another path or free space.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write either all files, or none if one cannot be written.

    Raises
    ------
    InputError
        See `convert_to_input_error`.
    """
    with ExitStack() as stack:
        for path, content in contents.items():
            with convert_to_input_error(path):
                descriptor, _ = stack.enter_context(replacing(path))
                with open(descriptor, "wb", closefd=False) as file:
                    file.write(content)
                os.fsync(descriptor)


@contextmanager
def open_text(path: Path, append: bool) -> Iterator[IO[str]]:
    """Yield a text file to write to.

    Parameters
    ----------
    path : Path
    append : bool
        Whether to append to an existing file instead of creating a new one.

    Raises
    ------
    ResultsError
        See `convert_to_results_error`.
    """
    with convert_to_results_error(path):
        descriptor = (
            open_in_place(path, os.O_WRONLY | os.O_APPEND) if append else create_or_replace(path)
        )
        mode = "a" if append else "w"
        stream = open(path, mode, encoding="utf-8", opener=lambda *_: descriptor)  # noqa: SIM115
    try:
        yield stream
    except BaseException:
        with suppress(OSError):  # flushes, and may fail in the same way
            stream.close()
        raise
    with convert_to_results_error(path):
        stream.close()


def reason_of(error: OSError) -> str:
    """Return the reason for a write error; errors of NumPy lack `strerror`."""
    return error.strerror or f"{error} (the disk may be full)"
