"""Manifest files: written at once, read with every doubt."""

from __future__ import annotations

import io
import json
import math
import stat
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np

from cec_mpi.core.checks.sensitivity import Sensitivity
from cec_mpi.core.code.conditioning import Conditioning
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.errors import DamagedStoreError, StoreError
from cec_mpi.files.durable import publish
from cec_mpi.files.regular import NotAFileError, kind_of, read_regular
from cec_mpi.store.format.grid import Grid
from cec_mpi.store.format.manifest import (
    CHECKSUM,
    COLUMN_SIZES,
    DTYPES,
    FORMAT,
    INCOMPLETE,
    JOURNAL,
    MANIFEST,
    MANIFEST_COPY,
    ROW_EXPONENTS,
    VERSION,
    ArrayEntry,
    Manifest,
    Rebuilt,
    ShardEntry,
    checksums_name,
    own_sum,
    rows_per_shard,
    shard_header,
    shard_name,
)

T = TypeVar("T")

_MOST_BYTES = (1 << 63) - 1  # that a file can have
_LEAST_BLOCK = 1 << 10  # bytes, where there are several; half of those that `make_grid` makes


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
    if content.get("version") != VERSION:
        raise StoreError(
            f"{path} has version {content.get('version')!r}: this program reads version {VERSION}"
        )
    try:
        manifest = _parse(content)
        _check(manifest, content, path)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedStoreError(f"{path} is damaged: {reason}") from None
    if content.get("sha256") != own_sum(content):
        raise DamagedStoreError(f"{path} is damaged: it was altered after it was written")
    return manifest


def _parse(content: dict[str, Any]) -> Manifest:
    described = content["code"]
    conditioning = dict(described["conditioning"])
    conditioning["worst_machines"] = tuple(conditioning["worst_machines"])
    code = MDSCode(
        described["generator"],
        str(described["family"]),
        bool(described["systematic"]),
        _typed(Conditioning(**conditioning)),
    )
    dtype = str(content["dtype"])
    columns = int(content["columns"])
    grid = Grid(
        int(content["rows_per_shard"]),
        columns,
        int(content["grid"]["block_rows"]),
        int(content["grid"]["block_columns"]),
    )
    return Manifest(
        rows=int(content["rows"]),
        columns=columns,
        dtype=dtype,
        rounded=_rounded(content["rounded"]),
        code=code,
        grid=grid,
        header=str(content["shard_header"]),
        checksums=str(content["checksums"]["file"]),
        shards=tuple(_shard_entry(shard) for shard in content["shards"]),
        column_sizes=_typed(ArrayEntry(**content["column_sizes"])),
        row_exponents=None
        if content["row_exponents"] is None
        else _typed(ArrayEntry(**content["row_exponents"])),
        sensitivity=_sensitivity(content["parity"]) if "parity" in content else None,
        column_names=_column_names(content.get("column_names", []), columns),
    )


def _rounded(given: Any) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"rounded is {given!r}")
    return given


def _column_names(names: Any, columns: int) -> tuple[str, ...]:
    good = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not good or len(names) not in (0, columns):
        raise ValueError(f"column_names has no name for each of {columns} columns")
    return tuple(names)


def _sensitivity(content: dict[str, Any]) -> Sensitivity:
    sizes = {
        name: math.inf if content[name] is None else content[name]
        for name in ("median", "detectable", "locatable")
    }
    machines = tuple(content["machines"])
    return _typed(Sensitivity(**{**content, **sizes, "machines": machines}))


def _shard_entry(content: dict[str, Any]) -> ShardEntry:
    rebuilt = tuple(_typed(Rebuilt(**rows)) for rows in content["rebuilt"])
    return _typed(ShardEntry(**{**content, "rebuilt": rebuilt}))


def _typed(entry: T) -> T:
    """Check that the fields of a dataclass have the types of their annotations."""
    for name, kind in get_type_hints(type(entry)).items():
        value = getattr(entry, name)
        expected = get_origin(kind) or kind
        if not isinstance(value, (int, float) if expected is float else expected):
            raise TypeError(f"{name} is {value!r}")
    return entry


def _check(manifest: Manifest, content: dict[str, Any], path: Path) -> None:
    code = manifest.code
    absurd = manifest.rows < 1 or manifest.columns < 1 or manifest.dtype not in DTYPES
    if absurd or manifest.shard_bytes > _MOST_BYTES:
        raise DamagedStoreError(
            f"{path} is damaged: a {manifest.rows} x {manifest.columns} matrix of {manifest.dtype}"
        )
    rows = rows_per_shard(manifest.rows, code.recovery)
    algorithm = content["checksums"].get("algorithm")
    generation = manifest.generation
    row_exponents = manifest.row_exponents or ArrayEntry(ROW_EXPONENTS)
    for what, found, expected in (
        ("machines", content.get("machines"), code.machines),
        ("recovery", content.get("recovery"), code.recovery),
        ("rows_per_shard", manifest.rows_per_shard, rows),
        ("shards", len(manifest.shards), code.machines),
        ("checksums", algorithm, CHECKSUM),
        ("checksums", manifest.checksums, checksums_name(generation)),
        ("shard_header", manifest.header, _header_like(manifest)),
        ("column_sizes", manifest.column_sizes.file, COLUMN_SIZES),
        ("row_exponents", row_exponents.file, ROW_EXPONENTS),
    ):
        if found != expected:
            raise DamagedStoreError(
                f"{path} is damaged: {what} is {found!r}, expected {expected!r}"
            )
    grid = manifest.grid
    whole = grid.block_columns == grid.columns or grid.block_rows == 1
    inside = 1 <= grid.block_rows <= grid.rows and 1 <= grid.block_columns <= grid.columns
    small = inside and grid.block_rows * grid.block_columns * manifest.itemsize < _LEAST_BLOCK
    if not (whole and inside) or (small and grid.count > 1):
        raise DamagedStoreError(
            f"{path} is damaged: blocks of {grid.block_rows} x {grid.block_columns}"
        )
    for n, shard in enumerate(manifest.shards, start=1):
        if shard.file != shard_name(n) or shard.bytes != manifest.shard_bytes:
            raise DamagedStoreError(
                f"{path} is damaged: shard {n} is {shard.file!r} of {shard.bytes} bytes, expected "
                f"{shard_name(n)!r} of {manifest.shard_bytes}"
            )


def _header_like(manifest: Manifest) -> str:
    """The header itself where it says what it must: other versions of NumPy may pad it."""
    try:
        file = io.BytesIO(manifest.header.encode("latin-1"))
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        rest = file.read()
    except Exception:  # it is parsed as Python: it can raise anything
        version, shape, fortran, dtype, rest = (0, 0), (), False, np.dtype(object), b""
    expected = (manifest.rows_per_shard, manifest.columns)
    little = np.dtype(manifest.dtype).newbyteorder("<")
    if (version, shape, fortran, dtype, rest) == ((1, 0), expected, False, little, b""):
        return manifest.header
    return shard_header(*expected, manifest.dtype)
