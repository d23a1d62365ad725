"""A cache of shards on a local disk.

Each user has a directory in the cache to which nobody else can write, so that nobody else can plant
links or files in it. Each shard has a directory there, named after its checksum and size, because a
store that is encoded again or repaired has different shards. A process that uses or makes a copy
holds a shared lock on its directory; removal needs an exclusive lock. The modification time of the
directory is the time of the last use.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from cec_mpi.errors import DamagedStoreError, InputError
from cec_mpi.store.files.durable import check_free_space, locked
from cec_mpi.store.files.regular import kind_of
from cec_mpi.store.files.replacing import DIR_FLAGS, is_writable_in_place
from cec_mpi.store.format.array_files import copy_file
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.reader import Store
from cec_mpi.store.shard import Holding, Shard, Verification

if TYPE_CHECKING:
    from cec_mpi.store.devices import Device

_DIRECTORY_NAME = re.compile(r"[0-9a-f]{32}-[0-9]+")
_GROUP_OR_OTHER_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def check_cache_location(cache: Path, directories: Mapping[str, Path]) -> None:
    """Raise if a cache is inside a directory of a store or run.

    Parameters
    ----------
    cache : Path
    directories : mapping of str to Path
        Directories by their description in the message.

    Raises
    ------
    InputError
        Names both directories.
    """
    for name, directory in directories.items():
        if cache.resolve().is_relative_to(directory.resolve()):
            raise InputError(
                f"--cache {cache} is inside the {name} {directory}: expected a directory elsewhere"
            )


def open_cached(
    store: Store,
    machine: int,
    holding: Holding,
    verify: Verification,
    cache: Path,
    limit: int | None,
    check_cancelled: Callable[[], None],
    device: Device | None,
) -> Shard:
    """Open the copy of a shard in a cache; first make it if it is missing or damaged.

    All blocks of the copy are compared with their checksums.

    Parameters
    ----------
    store : Store
    machine : int
    holding, verify
        See `Store.open_shard`.
    cache : Path
        Directory of the cache, which is created if it does not exist.
    limit : int or None
        Limit for the size of all copies in bytes. The least recently used copies that no process
        uses are removed.
    check_cancelled : callable
        Called often while a shard is copied; it may raise to cancel the copy.
    device : Device or None
        See `Store.open_shard`.

    Raises
    ------
    DamagedStoreError
        The new copy does not match the manifest, or the store is damaged.
    InputError
        The limit or the free space is too small, a path is not a directory, or other users can
        change the directory.
    OSError
        The directory cannot be used.
    """
    entry = store.manifest.shards[machine - 1]
    user_directory = _make_user_directory(cache)
    directory = user_directory / _directory_name(store.manifest, machine)
    copy = directory / entry.file
    lock = _reserve(user_directory, directory, entry.bytes, limit)
    try:
        with locked(directory):
            try:
                shard = _open_verified(store, machine, holding, verify, copy, device)
            except DamagedStoreError:
                copy.unlink(missing_ok=True)
                check_free_space(copy, entry.bytes)
                copy_file(store.path / entry.file, copy, check_cancelled)
                shard = _open_verified(store, machine, holding, verify, copy, device)
    except BaseException:
        os.close(lock)
        raise
    weakref.finalize(shard, os.close, lock)
    return shard


def _make_user_directory(cache: Path) -> Path:
    """Create the directory of this user in a cache, unless it exists, and return it."""
    directory = cache / f"cec_mpi-{os.geteuid()}"
    for path in (*reversed(cache.parents), cache):
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is {kind_of(path.stat().st_mode)}, expected a directory")
    cache.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    is_owned = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_owned or status.st_mode & _GROUP_OR_OTHER_WRITABLE:
        raise InputError(f"{directory} is not a directory to which only this user can write")
    return directory


def _directory_name(manifest: Manifest, machine: int) -> str:
    """Return the name of the directory of a shard, unique to its content."""
    entry = manifest.shards[machine - 1]
    content = entry.xxh3_128.encode() + manifest.header_of(machine)
    return f"{xxhash.xxh3_128_hexdigest(content)}-{entry.bytes}"


def _parse_size(directory: Path) -> int:
    return int(directory.name.partition("-")[2])


def _reserve(user_directory: Path, directory: Path, size: int, limit: int | None) -> int:
    """Free up space for a copy; return a descriptor that holds a shared lock on its directory."""
    with locked(user_directory), ExitStack() as stack:
        other_directories = [
            path
            for path in user_directory.iterdir()
            if _DIRECTORY_NAME.fullmatch(path.name) and path != directory
        ]
        other_directories.sort(key=lambda path: path.lstat().st_mtime_ns)
        total = size + sum(map(_parse_size, other_directories))
        for other in other_directories:
            has_copy = any(other.glob("shard-*"))
            if (not has_copy or (limit is not None and total > limit)) and _remove_unused(other):
                total -= _parse_size(other)
        if limit is not None and total > limit:
            others = f", and copies in use take up {total - size}" if total > size else ""
            raise InputError(f"--cache-limit is {limit} bytes, but the shard has {size}{others}")
        directory.mkdir(exist_ok=True)
        os.utime(directory)
        lock = os.open(directory, DIR_FLAGS)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_SH)
        stack.pop_all()
        return lock


def _remove_unused(directory: Path) -> bool:
    """Remove a complete or partial copy; return False if a process uses it."""
    lock = os.open(directory, DIR_FLAGS)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(directory)
        return True
    finally:
        os.close(lock)


def _open_verified(
    store: Store,
    machine: int,
    holding: Holding,
    verify: Verification,
    copy: Path,
    device: Device | None,
) -> Shard:
    """Open a copy after verifying all of its blocks."""
    if not is_writable_in_place(copy):
        raise DamagedStoreError(f"{copy}: missing, or a link")
    shard = store.open_shard(machine, copy=copy)
    shard.load(store.manifest.rows_of_machine(machine))
    if (holding, verify, device) == ("mmap", "first-read", None):
        return shard
    return store.open_shard(machine, holding, verify, copy, device)
