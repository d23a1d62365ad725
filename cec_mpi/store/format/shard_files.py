"""Validation and creation of shard files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store.files.durable import check_free_space, read_at, write_at
from cec_mpi.store.files.regular import (
    NotAFileError,
    open_regular,
    raise_if_shortage,
    unreadable_reason,
)
from cec_mpi.store.files.replacing import LinkedFileError, open_in_place, replacing
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import plural


def find_file_problem(path: Path, manifest: Manifest) -> str:
    """Return the problem of the size or header of a shard file, or ''.

    Raises
    ------
    ShortageError
        The process or the computer lacks a resource.
    """
    try:
        os.close(open_checked(path, manifest, manifest.machine_of(path)))
    except DamagedStoreError as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def open_checked(path: Path, manifest: Manifest, machine: int) -> int:
    """Open a shard file, check its size and header, and return its descriptor.

    Raises
    ------
    DamagedStoreError
        The file is missing, or has another size or header.
    ShortageError
        See `find_file_problem`.
    """
    try:
        descriptor = open_regular(path)
    except OSError as error:
        raise DamagedStoreError(f"{path}: {unreadable_reason(error)}") from None
    problem = find_header_problem(descriptor, manifest, machine)
    if problem:
        os.close(descriptor)
        raise DamagedStoreError(f"{path}: {problem}")
    return descriptor


def find_header_problem(descriptor: int, manifest: Manifest, machine: int) -> str:
    """Return the problem of the size or header of an open shard file, or ''."""
    expected_size, expected_header = manifest.bytes_of(machine), manifest.header_of(machine)
    try:
        size = os.fstat(descriptor).st_size
        header = os.pread(descriptor, len(expected_header), 0)
    except OSError as error:
        return unreadable_reason(error)
    if size != expected_size:
        return f"{plural(size, 'byte')}, expected {expected_size}"
    return "" if header == expected_header else "its header differs from what was written"


def read_block(
    descriptor: int,
    path: Path,
    manifest: Manifest,
    machine: int,
    block: int,
    buffer: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8] | None:
    """Return the bytes of a block from an open shard file, or None if they cannot be read.

    Parameters
    ----------
    descriptor : int
    path : Path
    manifest : Manifest
    machine, block : int
        The machine of the file, and the index of the block.
    buffer : (block_bytes,) ndarray of uint8, optional
        Receives the bytes. Without it, a new array is allocated, which doubles the time.

    Raises
    ------
    ShortageError
        The process or the computer lacks a resource.
    """
    offset, size = manifest.block_extent(block, machine)
    data = np.empty(size, np.uint8) if buffer is None else buffer[:size]
    try:
        bytes_read = read_at(descriptor, data, offset)
    except OSError as error:
        raise_if_shortage(error, path)
        return None
    return data if bytes_read == size else None


def make_shard_file(
    directory: Path,
    manifest: Manifest,
    machine: int,
    read: Callable[[int], NDArray[Any] | None] = lambda block: None,
) -> str:
    """Create a shard file with its header and size, unless it exists and is writable in place.

    An existing file keeps its blocks, but a wrong header or size is corrected. A symbolic link, or
    a file with several hard links, is replaced by a new file; the target of the link does not
    change.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    machine : int
    read : callable
        Returns a block to copy into the file that replaces a link, or None.

    Returns
    -------
    str
        Description of the replaced link or file; empty if nothing was replaced.

    Raises
    ------
    InputError
        The path is a directory, a FIFO, a socket or a device, or the disk is full.
    """
    path = directory / manifest.shards[machine - 1].file
    header, size = manifest.header_of(machine), manifest.bytes_of(machine)
    link_kind = ""
    try:
        descriptor = open_in_place(path)
    except FileNotFoundError:
        pass
    except LinkedFileError as error:
        link_kind = error.kind
        check_free_space(path, size)
    except NotAFileError as error:
        raise InputError(f"{path} is {error.kind}, expected a file: remove it") from None
    else:
        try:
            if find_header_problem(descriptor, manifest, machine):
                write_at(descriptor, header, 0)
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return ""
    with replacing(path) as (descriptor, _):
        write_at(descriptor, header, 0)
        os.ftruncate(descriptor, size)
        for block in np.flatnonzero(manifest.blocks_held_by(machine)).tolist() if link_kind else ():
            data = read(block)
            if data is not None:
                write_at(descriptor, data, manifest.block_extent(block, machine)[0])
    return link_kind
