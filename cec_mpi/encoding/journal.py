"""The journal of an incomplete store.

Until the manifest is written, the directory has a journal: the command that resumes the encode, its
source and arguments, the manifest without checksums, the checksums of the written blocks, the
exponents of rows, and the column maxima.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import string
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from cec_mpi.encoding.bands import Bands
from cec_mpi.encoding.sources import Matrix
from cec_mpi.errors import InputError, StoreError
from cec_mpi.store.coded.grid import Block
from cec_mpi.store.coded.manifest import ROW_EXPONENTS, CodedManifest
from cec_mpi.store.files.durable import locked, make_file, publish, read_at
from cec_mpi.store.files.regular import open_regular, read_regular
from cec_mpi.store.files.replacing import (
    create_or_replace,
    is_writable_in_place,
    open_in_place,
    sync,
)
from cec_mpi.store.format.array_files import name_and_copy, publish_pieces
from cec_mpi.store.format.checksums import publish_checksums, shard_checksum
from cec_mpi.store.format.manifest import COLUMN_MAXIMA, ArrayEntry
from cec_mpi.store.format.shard_files import make_shard_file
from cec_mpi.store.manifest_files import (
    INCOMPLETE,
    INCOMPLETE_CHECKSUMS,
    INCOMPLETE_EXPONENTS,
    INCOMPLETE_MANIFEST,
    INCOMPLETE_MAXIMA,
    JOURNAL,
    MANIFEST_COPY,
    SOURCE,
    manifest_text,
    publish_manifest,
    read_content,
    read_manifest,
)

_PIECE_BYTES = 1 << 20


def create_store(
    directory: Path,
    skeleton: CodedManifest,
    matrix: Matrix,
    arguments: dict[str, Any],
    resume_command: str,
) -> None:
    """Create the directory of a store atomically, with its journal.

    Parameters
    ----------
    directory : Path
    skeleton : CodedManifest
        Manifest without checksums.
    matrix : Matrix
    arguments : dict of str to object
        Arguments of `encode` that a resume must repeat.
    resume_command : str

    Raises
    ------
    InputError
        Another process has just created the directory.
    """
    parent = directory.absolute().parent
    prefix = f".{directory.name}.new-"
    _remove_abandoned(parent, prefix)
    staging = parent / f"{prefix}{secrets.token_hex(8)}"
    staging.mkdir()
    try:
        with locked(staging, f"{staging} is in use"):
            _write_store_files(staging, skeleton, matrix, arguments, resume_command)
            staging.rename(directory)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        if getattr(error, "errno", 0) in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise InputError(f"{directory} exists: another process has just created it") from None
        raise
    sync(parent)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove temporary directories that killed processes left behind."""
    for path in parent.iterdir():
        if path.name.startswith(prefix) and _is_staging(path, path.name.removeprefix(prefix)):
            with suppress(InputError, OSError), locked(path, "it is in use"):
                shutil.rmtree(path)


def _is_staging(directory: Path, token: str) -> bool:
    """Return whether a directory looks like one that `create_store` has not renamed yet."""
    prefixes = (*JOURNAL, SOURCE, "shard-", ".")
    return (
        set(token) <= set(string.hexdigits)
        and directory.is_dir()
        and not directory.is_symlink()
        and all(path.name.startswith(prefixes) for path in directory.iterdir())
    )


def _write_store_files(
    directory: Path,
    skeleton: CodedManifest,
    matrix: Matrix,
    arguments: dict[str, Any],
    resume_command: str,
) -> None:
    header = skeleton.header_of(1)
    for shard in skeleton.shards:
        make_file(directory / shard.file, header, skeleton.shard_bytes)
    for name, size in _progress_files(skeleton).items():
        make_file(directory / name, b"", size)
    publish(directory / INCOMPLETE_MANIFEST, manifest_text(skeleton).encode())
    origin = {"arguments": arguments, "source": list(matrix.stamps)}
    publish(directory / SOURCE, json.dumps(origin, indent=2).encode())
    state = {
        "description": "an encode that is running or was interrupted",
        "resume_with": resume_command,
    }
    publish(directory / INCOMPLETE, json.dumps(state, indent=2).encode())


def read_skeleton(directory: Path, matrix: Matrix, arguments: dict[str, Any]) -> CodedManifest:
    """Return the manifest, without checksums, of an incomplete store.

    Raises
    ------
    InputError
        The directory is not an incomplete store, its journal is damaged, or it was started with
        another X or other arguments.
    StoreError
        The manifest of a complete store is damaged, or this version cannot read it.
    """
    try:
        if not (directory / INCOMPLETE).exists():
            raise FileNotFoundError
        recorded_arguments, recorded_stamps = _read_origin(directory)
        skeleton = msgspec.convert(read_content(directory / INCOMPLETE_MANIFEST), CodedManifest)
    except FileNotFoundError:
        if (directory / MANIFEST_COPY).exists():
            read_manifest(directory)  # raises if the directory is a damaged complete store
        raise InputError(
            f"{directory} exists, but is not an incomplete store: choose another name"
        ) from None
    except (StoreError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{directory} cannot be resumed because its journal is damaged: remove it"
        ) from None
    _check_origin(directory, matrix, arguments, recorded_arguments, recorded_stamps)
    return skeleton


def resume(directory: Path, matrix: Matrix, arguments: dict[str, Any]) -> CodedManifest:
    """Read the skeleton, and make the files of the store writable and full-size."""
    skeleton = read_skeleton(directory, matrix, arguments)
    if (skeleton.rows, skeleton.columns) != matrix.shape:
        if not matrix.stamps:
            raise InputError(f"{directory} was started with another X: remove it and encode again")
        raise InputError(f"{directory} cannot be resumed because its journal is damaged: remove it")
    for machine in range(1, skeleton.machines + 1):
        make_shard_file(directory, skeleton, machine)
    for name, size in _progress_files(skeleton).items():
        path = directory / name
        descriptor = open_in_place(path) if is_writable_in_place(path) else create_or_replace(path)
        try:  # blocks without a record are encoded again
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)
    return skeleton


def _progress_files(skeleton: CodedManifest) -> dict[str, int]:
    """Return the files of the journal that record written blocks, and their sizes in bytes."""
    sizes = {
        INCOMPLETE_CHECKSUMS: 8 * checksums_per_block(skeleton) * skeleton.grid.count,
        INCOMPLETE_MAXIMA: Bands(skeleton.grid).file_bytes,
    }
    if skeleton.row_exponents is not None:
        sizes[INCOMPLETE_EXPONENTS] = 2 * skeleton.code.recovery * skeleton.grid.rows
    return sizes


def check_same_origin(directory: Path, matrix: Matrix, arguments: dict[str, Any]) -> None:
    """Raise unless a complete store was made from this X with these arguments.

    Raises
    ------
    InputError
        The store has another origin, or an unknown one.
    """
    if not matrix.stamps:
        raise InputError(
            f"{directory} is complete, but may have been made from another version of "
            f"{matrix.name}: choose another name for the store"
        )
    try:
        recorded_arguments, recorded_stamps = _read_origin(directory)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{directory} is complete: there is nothing to resume") from None
    _check_origin(directory, matrix, arguments, recorded_arguments, recorded_stamps)


def _read_origin(directory: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return the recorded arguments and stamps; a damaged file raises many types of errors."""
    origin = json.loads(read_regular(directory / SOURCE))
    return dict(origin["arguments"]), list(origin["source"])


def _check_origin(
    directory: Path,
    matrix: Matrix,
    arguments: dict[str, Any],
    recorded_arguments: dict[str, Any],
    recorded_stamps: list[Any],
) -> None:
    for name, value in arguments.items():
        if recorded_arguments.get(name) != value:
            raise InputError(
                f"{directory} was started with {name} {recorded_arguments.get(name)}, not {value}: "
                "use the same arguments, or remove it"
            )
    if recorded_stamps != list(matrix.stamps):
        raise InputError(
            f"{matrix.name} has changed since {directory} was started: remove {directory} and "
            "encode again"
        )


def discard(directory: Path, skeleton: CodedManifest) -> None:
    """Remove the files of an incomplete store, and its directory if that has no other files."""
    shard_files = [shard.file for shard in skeleton.shards]
    arrays = (*name_and_copy(COLUMN_MAXIMA), *name_and_copy(ROW_EXPONENTS), skeleton.checksums.file)
    for name in (*shard_files, *JOURNAL, SOURCE, *arrays, MANIFEST_COPY, ".lock"):
        (directory / name).unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        directory.rmdir()


def finish(directory: Path, skeleton: CodedManifest, is_rounded: bool) -> CodedManifest:
    """Complete a store whose blocks are on disk: write its other files, and the manifest last."""
    checksums, _ = read_checksums(directory, skeleton)
    shards = tuple(
        replace(shard, xxh3_128=shard_checksum(row))
        for shard, row in zip(skeleton.shards, checksums, strict=True)
    )
    sync(directory)
    maxima = Bands(skeleton.grid).column_maxima(directory / INCOMPLETE_MAXIMA)
    shape: tuple[int, ...] = (skeleton.columns,)
    digest = publish_pieces(directory, COLUMN_MAXIMA, shape, np.dtype(np.float64), maxima)
    column_maxima = ArrayEntry(COLUMN_MAXIMA, digest)
    manifest = replace(skeleton, shards=shards, column_maxima=column_maxima, rounded=is_rounded)
    if skeleton.row_exponents is not None:
        exponents = _iter_exponents(directory)
        shape = (skeleton.code.recovery, skeleton.grid.rows)
        digest = publish_pieces(directory, ROW_EXPONENTS, shape, np.dtype(np.int16), exponents)
        manifest = replace(manifest, row_exponents=ArrayEntry(ROW_EXPONENTS, digest))
    publish_checksums(directory, manifest, checksums)
    publish_manifest(directory, manifest)
    return manifest


def checksums_per_block(skeleton: CodedManifest) -> int:
    """Return the number of checksums per block: one per shard, and one for row exponents."""
    return skeleton.machines + (skeleton.row_exponents is not None)


def read_checksums(
    directory: Path, skeleton: CodedManifest
) -> tuple[NDArray[np.uint64], NDArray[np.uint64] | None]:
    """Return the checksums of written blocks; 0 for blocks that are not written.

    Returns
    -------
    shards : (N, blocks) ndarray
    exponents : (blocks,) ndarray, or None
        Checksums of row exponents.
    """
    checksums = np.frombuffer(read_regular(directory / INCOMPLETE_CHECKSUMS, max_bytes=None), "<u8")
    checksums = checksums.reshape(skeleton.grid.count, checksums_per_block(skeleton)).T
    machines = skeleton.machines
    return checksums[:machines], checksums[machines] if len(checksums) > machines else None


def read_exponents(directory: Path, skeleton: CodedManifest, block: Block) -> NDArray[np.int16]:
    """Return the row exponents of an encoded block, (L, rows)."""
    exponents = np.zeros((skeleton.code.recovery, block.stop - block.start), "<i2")
    descriptor = open_regular(directory / INCOMPLETE_EXPONENTS)
    try:
        for part, row in enumerate(exponents):
            read_at(descriptor, row, 2 * (part * skeleton.grid.rows + block.start))
    finally:
        os.close(descriptor)
    return exponents


def _iter_exponents(directory: Path) -> Iterator[NDArray[np.int16]]:
    with os.fdopen(open_regular(directory / INCOMPLETE_EXPONENTS), "rb") as file:
        while data := file.read(_PIECE_BYTES):
            yield np.frombuffer(data, "<i2")
