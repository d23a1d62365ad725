"""Check and create files of shards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.files.durable import check_room, write_at
from cec_mpi.files.regular import NotAFileError, open_regular, why_unreadable
from cec_mpi.files.replacing import NotOwnError, open_own, replacing
from cec_mpi.store.format.grid import Block
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.replicas.layout import FileLayout
from cec_mpi.text import plural


def problem_on_opening(path: Path, manifest: Manifest) -> str:
    """Return the problem of a shard file, by its size and header, or an empty text.

    Raises
    ------
    ShortageError
        The process or the computer lacks a resource.
    """
    try:
        if manifest.replicas is None:
            os.close(open_checked(path, manifest))
        else:
            os.close(open_parts(path, manifest.replicas.file(manifest.machine_of(path))))
    except DamagedStoreError as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def open_checked(path: Path, manifest: Manifest) -> int:
    """Open a shard file, check its size and header, and return its descriptor.

    Raises
    ------
    DamagedStoreError
        The file is missing, or has another size or header.
    ShortageError
        See `problem_on_opening`.
    """
    return _open(path, manifest.shard_bytes, manifest.header.encode("latin-1"))


def problem_of(descriptor: int, manifest: Manifest) -> str:
    """What the size or the header of an open shard file has against it."""
    return _problem(descriptor, manifest.shard_bytes, manifest.header.encode("latin-1"))


def open_parts(path: Path, file: FileLayout) -> int:
    """Open the file of a machine in a store of replicas, as `open_checked` does."""
    return _open(path, file.size, file.header)


def problem_of_parts(descriptor: int, file: FileLayout) -> str:
    """What an open file of parts has against it, as `problem_of`."""
    return _problem(descriptor, file.size, file.header)


def _open(path: Path, expected: int, expected_header: bytes) -> int:
    try:
        descriptor = open_regular(path)
    except OSError as error:
        raise DamagedStoreError(f"{path}: {why_unreadable(error)}") from None
    problem = _problem(descriptor, expected, expected_header)
    if problem:
        os.close(descriptor)
        raise DamagedStoreError(f"{path}: {problem}")
    return descriptor


def _problem(descriptor: int, expected: int, expected_header: bytes) -> str:
    try:
        size = os.fstat(descriptor).st_size
        header = os.pread(descriptor, len(expected_header), 0)
    except OSError as error:
        return why_unreadable(error)
    if size != expected:
        return f"{plural(size, 'byte')}, expected {expected}"
    return "" if header == expected_header else "its header differs from what was written"


def make_shard_file(
    directory: Path,
    manifest: Manifest,
    machine: int,
    read: Callable[[Block], NDArray[Any] | None] = lambda block: None,
) -> str:
    """Make sure that a shard file exists with its header and size and can be changed in place.

    The numbers of such a file stay. A link, or a file with several names, is replaced by a new
    file; its target is unchanged.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    machine : int
    read : callable
        Returns a block to copy into a new file, or None.

    Returns
    -------
    str
        What was replaced; empty if nothing was.

    Raises
    ------
    InputError
        It is a directory, a FIFO, a socket or a device, or the disk is full.
    """
    path = directory / manifest.shards[machine - 1].file
    header = manifest.header.encode("latin-1")
    kind = ""
    try:
        descriptor = open_own(path)
    except FileNotFoundError:
        pass
    except NotOwnError as error:
        kind = error.kind
        check_room(path, manifest.shard_bytes)
    except NotAFileError as error:
        raise InputError(f"{path} is {error.kind}, expected a file: remove it") from None
    else:
        try:
            if problem_of(descriptor, manifest):
                write_at(descriptor, header, 0)
                os.ftruncate(descriptor, manifest.shard_bytes)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return ""
    with replacing(path) as (descriptor, _):
        write_at(descriptor, header, 0)
        os.ftruncate(descriptor, manifest.shard_bytes)
        for block in map(manifest.grid.block, range(manifest.grid.count if kind else 0)):
            rows = read(block)
            if rows is not None:
                write_at(descriptor, rows, manifest.place(block.offset))
    return kind
