"""Reading and writing of ``manifest.json``, which is validated strictly and written last.

A directory with a manifest is a complete store. Entries of the generator matrix have enough digits
to be read back bit for bit.
"""

from __future__ import annotations

import json
import math
import re
import stat
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from cec_mpi._version import __version__
from cec_mpi.errors import DamagedStoreError, StoreError
from cec_mpi.store.files.durable import publish
from cec_mpi.store.files.regular import NotAFileError, kind_of, read_regular
from cec_mpi.store.format.array_files import name_and_copy
from cec_mpi.store.format.checksums import publish_checksums
from cec_mpi.store.format.manifest import Checksums, ChecksumsEntry, Manifest, ShardEntry
from cec_mpi.store.kinds import convert_manifest
from cec_mpi.text import shorten

FORMAT = "cec_mpi store"
VERSION = 2
MANIFEST = "manifest.json"
MANIFEST_COPY = "manifest.copy.json"
SOURCE = "source.json"  # source and arguments of `encode`
INCOMPLETE = "incomplete.json"
INCOMPLETE_MANIFEST = "incomplete.manifest.json"
INCOMPLETE_CHECKSUMS = "incomplete.sums"
INCOMPLETE_EXPONENTS = "incomplete.exponents"
INCOMPLETE_MAXIMA = "incomplete.maxima"
JOURNAL = (
    INCOMPLETE,
    INCOMPLETE_MANIFEST,
    INCOMPLETE_CHECKSUMS,
    INCOMPLETE_EXPONENTS,
    INCOMPLETE_MAXIMA,
)
# Number of checksums in a file up to which `check_sizes` does nothing, because arrays with an entry
# for each block fit in memory.
_MAX_UNCHECKED_BLOCKS = 1 << 20
_HEADER_BYTES = 128  # of a file of checksums


def manifest_text(manifest: Manifest) -> str:
    """Return the text of ``manifest.json``, in which each list of numbers is a line."""
    content = {"format": FORMAT, "version": VERSION, "created_by": f"cec_mpi {__version__}"}
    content |= to_builtins(manifest)
    text = json.dumps(content | {"sha256": content_checksum(content)}, indent=2)
    # JSON strings have no line breaks.
    return re.sub(r"\[\n[^][{}\"]*\]", lambda match: " ".join(match[0].split()), text) + "\n"


def content_checksum(content: dict[str, Any]) -> str:
    """Return the checksum of the content of a manifest, independent of white space."""
    import hashlib  # the import is slow, and a machine does not need it

    fields = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def publish_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the copy of the manifest of a store, then the manifest; each atomically.

    The files that it names must exist on disk. The journal of an encode is deleted.
    """
    data = manifest_text(manifest).encode()
    publish(directory / MANIFEST_COPY, data)
    publish(directory / MANIFEST, data)
    remove_journal(directory)


def publish_generation(
    directory: Path, manifest: Manifest, shards: tuple[ShardEntry, ...], checksums: Checksums
) -> Manifest:
    """Replace the manifest of a store, and write its checksums under a new name.

    The checksums of the old manifest are kept for jobs that have just read it; older ones are
    deleted.
    """
    generation = manifest.checksums.generation
    new = replace(manifest, shards=shards, checksums=ChecksumsEntry.for_generation(generation + 1))
    publish_checksums(directory, new, checksums)
    publish_manifest(directory, new)
    for name in name_and_copy(ChecksumsEntry.for_generation(generation - 1).file):
        (directory / name).unlink(missing_ok=True)
    return new


def remove_journal(directory: Path) -> None:
    """Remove the files that only an incomplete store needs."""
    for name in JOURNAL:
        (directory / name).unlink(missing_ok=True)


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a store.

    Raises
    ------
    StoreError
        The directory is not a store, this version cannot read it, or its encode was interrupted.
    DamagedStoreError
        The manifest was altered, or is missing although its copy exists.
    """
    try:
        mode = directory.stat().st_mode
    except (OSError, ValueError):  # ValueError if the path is invalid
        raise StoreError(
            f"{directory} does not exist, expected a store (a directory made by cec-mpi encode)"
        ) from None
    if not stat.S_ISDIR(mode):
        raise StoreError(
            f"{directory} is {kind_of(mode)}, expected a store (a directory made by cec-mpi encode)"
        )
    try:
        return parse_manifest(directory / MANIFEST)
    except FileNotFoundError:
        if (directory / INCOMPLETE).exists() or not (directory / MANIFEST_COPY).exists():
            raise StoreError(_explain_missing(directory)) from None
        raise DamagedStoreError(
            f"{MANIFEST} is missing in {directory}: cec-mpi repair {directory} restores it from "
            f"{MANIFEST_COPY}"
        ) from None


def _explain_missing(directory: Path) -> str:
    try:
        content = json.loads(read_regular(directory / INCOMPLETE))
        return f"{directory} is incomplete, resume with: {content['resume_with']}"
    except FileNotFoundError:
        return f"{directory} is not a store: it has no {MANIFEST}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"{directory} is incomplete, and its {INCOMPLETE} is damaged: encode X again"


def parse_manifest(path: Path) -> Manifest:
    """Read and check one manifest file.

    Raises
    ------
    FileNotFoundError, StoreError, DamagedStoreError
        See `read_content`.
    """
    content = read_content(path)
    try:
        return convert_manifest(content)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedStoreError(f"{path} is damaged: {error}") from None


def read_content(path: Path) -> dict[str, Any]:
    """Read the content of a manifest file, and check its version and checksum.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    StoreError
        The file cannot be read, or this version does not support it.
    DamagedStoreError
        The file was altered.
    """
    try:
        content = json.loads(read_regular(path), parse_constant=_reject_constant)
        checksum = content_checksum(content) if isinstance(content, dict) else ""
    except FileNotFoundError:
        raise
    except NotAFileError as error:
        raise StoreError(f"{path} is {error.kind}, expected a file") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DamagedStoreError(f"{path} is damaged: {error}") from None
    if not checksum or content.get("format") != FORMAT:
        raise StoreError(f"{path} is not the manifest of a {FORMAT}")
    version = content.get("version")
    if type(version) is not int or version != VERSION:
        raise StoreError(
            f"{path} has version {shorten(version)}, but this version of cec_mpi reads only "
            f"{VERSION}: encode X again"
        )
    if content.get("sha256") != checksum:
        raise DamagedStoreError(f"{path} is damaged: it was altered after it was written")
    fields: dict[str, Any] = content
    return fields


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def check_sizes(directory: Path, manifest: Manifest, must_exist: bool = True) -> None:
    """Raise if a manifest states many blocks, but no file has the size that it states.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    must_exist : bool
        Whether to raise if all files are missing.

    Raises
    ------
    DamagedStoreError
        Names a file, its size and the expected size.
    """
    blocks = math.prod(manifest.checksums_shape)
    if blocks <= _MAX_UNCHECKED_BLOCKS:
        return
    expected = {shard.file: shard.bytes for shard in manifest.shards}
    expected |= dict.fromkeys(name_and_copy(manifest.checksums.file), _HEADER_BYTES + 8 * blocks)
    sizes = {name: size for name in expected if (size := _file_size(directory / name)) is not None}
    if any(size == expected[name] for name, size in sizes.items()):
        return
    if sizes or must_exist:
        name = next(iter(sizes or expected))
        problem = f"{sizes[name]} bytes" if sizes else "missing"
        raise DamagedStoreError(
            f"{directory / MANIFEST} is damaged: no file has the size that it states; {name} is "
            f"{problem}, expected {expected[name]} bytes"
        )


def _file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
