"""Manifest files: written at once, validated strictly when they are read."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from cec_mpi.errors import DamagedStoreError, StoreError
from cec_mpi.files.durable import publish
from cec_mpi.files.regular import NotAFileError, kind_of, read_regular
from cec_mpi.store.format.manifest import (
    FORMAT,
    INCOMPLETE,
    JOURNAL,
    MANIFEST,
    MANIFEST_COPY,
    VERSION,
    Manifest,
    own_sum,
)
from cec_mpi.store.format.manifest_content import manifest_of
from cec_mpi.text import shown


def publish_manifest(directory: Path, manifest: Manifest) -> None:
    """Make this the manifest of a store, at once, and its copy just before.

    What it names must be on the disk before. The journal of an encode is over with it.
    """
    data = manifest.to_json().encode()
    publish(directory / MANIFEST_COPY, data)
    publish(directory / MANIFEST, data)
    remove_journal(directory)


def remove_journal(directory: Path) -> None:
    """Remove what only an incomplete store needs."""
    for name in JOURNAL:
        (directory / name).unlink(missing_ok=True)


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a store.

    Raises
    ------
    StoreError
        There is no store, or it is not one that this version reads, or its encode was
        interrupted.
    DamagedStoreError
        The manifest was altered, or is missing beside a good copy of it.
    """
    try:
        mode = directory.stat().st_mode
    except (OSError, ValueError):  # or a name that no file can have
        raise StoreError(
            f"{directory}: no such store (expected a directory that encode made)"
        ) from None
    if not stat.S_ISDIR(mode):
        raise StoreError(f"{directory} is {kind_of(mode)}: expected a directory that encode made")
    try:
        return parse_manifest(directory / MANIFEST)
    except FileNotFoundError:
        if (directory / INCOMPLETE).exists() or not (directory / MANIFEST_COPY).exists():
            raise StoreError(_no_manifest(directory)) from None
        raise DamagedStoreError(
            f"{directory} has lost its {MANIFEST}: cec-mpi repair {directory} restores it "
            f"from {MANIFEST_COPY}"
        ) from None


def _no_manifest(directory: Path) -> str:
    try:
        content = json.loads(read_regular(directory / INCOMPLETE))
        return f"{directory} is incomplete, resume with: {content['resume_with']}"
    except FileNotFoundError:
        return f"{directory} is not a store: it has no {MANIFEST}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"{directory} is incomplete, and its {INCOMPLETE} is damaged: encode it anew"


def parse_manifest(path: Path) -> Manifest:
    """Read and check one manifest file.

    Raises
    ------
    FileNotFoundError
        There is none.
    StoreError
        It cannot be read, or is not one that this version reads.
    DamagedStoreError
        It was altered.
    """
    try:
        content = json.loads(read_regular(path))
    except FileNotFoundError:
        raise
    except NotAFileError as error:
        raise StoreError(f"{path} is {error.kind}: expected a file") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DamagedStoreError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StoreError(f"{path} is not the manifest of a {FORMAT}")
    version = content.get("version")
    if type(version) is not int or version != VERSION:
        raise StoreError(
            f"{path} has version {shown(version)}: this program reads version {VERSION}"
        )
    try:
        if content.get("sha256") != own_sum(content):
            raise ValueError("it was altered after it was written")
        return manifest_of(content)
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedStoreError(f"{path} is damaged: {reason}") from None
