"""The manifest of a store: what the shards are and how they were coded.

``manifest.json`` is written last, so a directory that has one is a whole store. A person
can read it; Python and any other correct JSON reader give back the generator matrix bit
for bit, because its numbers are written with as many digits as they need.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np

from cec_mpi.core.conditioning import Conditioning
from cec_mpi.core.mds import MDSCode
from cec_mpi.errors import DamagedStoreError, InputError, StoreError

__all__ = [
    "DTYPES",
    "FORMAT",
    "MANIFEST",
    "VERSION",
    "Manifest",
    "ShardEntry",
    "rows_per_shard",
    "shard_name",
]

T = TypeVar("T")

FORMAT = "cec_mpi store"
VERSION = 1
MANIFEST = "manifest.json"
DTYPES = ("float32", "float64")


def shard_name(machine: int) -> str:
    """File name of the shard of a machine (numbers from 1)."""
    return f"shard-{machine:04d}.npy"


def rows_per_shard(rows: int, recovery: int) -> int:
    """R: the rows q of X in L equal parts, the last one padded."""
    return -(-rows // recovery)


@dataclass(frozen=True)
class ShardEntry:
    """What the manifest says of one shard file.

    Attributes
    ----------
    file : str
        Name within the store.
    bytes : int
        Size of the file.
    sha256 : str
        Checksum of the whole file.
    head_sha256 : str
        Checksum of its first 64 KiB: tells on opening that it is the right file.
    """

    file: str
    bytes: int
    sha256: str
    head_sha256: str


@dataclass(frozen=True)
class Manifest:
    """A store without its data.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of the matrix X.
    rows_per_shard : int
        R; X was padded with zero rows to ``recovery * rows_per_shard`` rows.
    dtype : str
        ``"float32"`` or ``"float64"``.
    code : MDSCode
        With the generator matrix, N and L.
    shards : tuple of ShardEntry
        Machines 1..N.
    """

    rows: int
    columns: int
    rows_per_shard: int
    dtype: str
    code: MDSCode
    shards: tuple[ShardEntry, ...]

    def to_json(self, created_by: str) -> str:
        """The text of ``manifest.json``."""
        code = self.code
        content: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "created_by": created_by,
            "rows": self.rows,
            "columns": self.columns,
            "machines": code.machines,
            "recovery": code.recovery,
            "rows_per_shard": self.rows_per_shard,
            "dtype": self.dtype,
            "code": {
                "family": code.family,
                "systematic": code.systematic,
                "conditioning": asdict(code.conditioning),
                "generator": code.generator.tolist(),
            },
            "shards": [asdict(shard) for shard in self.shards],
        }
        content["sha256"] = _own_sum(content)
        rows = ",\n      ".join(json.dumps(row) for row in code.generator.tolist())
        content["code"]["generator"] = "@generator"  # a row of the matrix is a line of text
        text = json.dumps(content, indent=2)
        return text.replace('"@generator"', f"[\n      {rows}\n    ]") + "\n"


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a store.

    Raises
    ------
    StoreError
        There is no store, or it is not one that this version reads.
    DamagedStoreError
        The manifest was altered.
    """
    try:
        present = directory.is_dir()
    except OSError:  # a name that no file can have
        present = False
    if not present:
        raise StoreError(f"{directory}: no such store (expected a directory that encode made)")
    path = directory / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{directory} is not a store: it has no {MANIFEST}") from None
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
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedStoreError(f"{path} is damaged: {reason}") from None
    _check(manifest, content, path)
    if content.get("sha256") != _own_sum(content):
        raise DamagedStoreError(f"{path} is damaged: it was altered after it was written")
    return manifest


def _own_sum(content: dict[str, Any]) -> str:
    """Checksum of all that a manifest says, however it is spaced."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


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
    return Manifest(
        rows=int(content["rows"]),
        columns=int(content["columns"]),
        rows_per_shard=int(content["rows_per_shard"]),
        dtype=str(content["dtype"]),
        code=code,
        shards=tuple(_typed(ShardEntry(**shard)) for shard in content["shards"]),
    )


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
    rows = rows_per_shard(manifest.rows, code.recovery)
    for name, found, expected in (
        ("machines", content.get("machines"), code.machines),
        ("recovery", content.get("recovery"), code.recovery),
        ("rows_per_shard", manifest.rows_per_shard, rows),
        ("shards", len(manifest.shards), code.machines),
    ):
        if found != expected:
            raise DamagedStoreError(f"{path} is damaged: {name} is {found}, expected {expected}")
    for n, shard in enumerate(manifest.shards, start=1):
        if shard.file != shard_name(n):
            raise DamagedStoreError(f"{path} is damaged: shard {n} is {shard.file!r}")
    if manifest.dtype not in DTYPES or manifest.rows < 1 or manifest.columns < 1:
        raise DamagedStoreError(
            f"{path} is damaged: a {manifest.rows} x {manifest.columns} matrix of {manifest.dtype}"
        )


def store_dtype(name: str | None, source: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the shards: as asked for, else float32 for up to 32-bit floats.

    Raises
    ------
    InputError
        A dtype that stores do not have.
    """
    if name is None:
        return np.dtype("float32" if source.kind == "f" and source.itemsize <= 4 else "float64")
    if name not in DTYPES:
        raise InputError(f"dtype {name!r}: expected one of {', '.join(DTYPES)}")
    return np.dtype(name)
