"""The manifest of a store: what the shards are and how they were coded.

``manifest.json`` is written last, so a directory that has one is a whole store. A person
can read it; Python and any other correct JSON reader give back the generator matrix bit
for bit, because its numbers are written with as many digits as they need. Every field is
described in ``docs/store.md``.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np

import cec_mpi
from cec_mpi.core.conditioning import Conditioning
from cec_mpi.core.mds import MDSCode
from cec_mpi.errors import DamagedStoreError, InputError, StoreError
from cec_mpi.store.files import publish
from cec_mpi.store.grid import Grid

__all__ = [
    "DTYPES",
    "FORMAT",
    "INCOMPLETE",
    "INCOMPLETE_MANIFEST",
    "INCOMPLETE_SUMS",
    "JOURNAL",
    "MANIFEST",
    "MANIFEST_COPY",
    "VERSION",
    "Manifest",
    "Rebuilt",
    "ShardEntry",
    "checksums_name",
    "parse_manifest",
    "publish_manifest",
    "read_manifest",
    "remove_journal",
    "rows_per_shard",
    "shard_header",
    "shard_name",
    "store_dtype",
]

T = TypeVar("T")

FORMAT = "cec_mpi store"
VERSION = 1
MANIFEST = "manifest.json"
MANIFEST_COPY = "manifest.copy.json"
INCOMPLETE = "incomplete.json"
INCOMPLETE_MANIFEST = "incomplete.manifest.json"
INCOMPLETE_SUMS = "incomplete.sums"
JOURNAL = (INCOMPLETE, INCOMPLETE_MANIFEST, INCOMPLETE_SUMS)
CHECKSUM = "xxh3_64"
CREATED_BY = f"cec_mpi {cec_mpi.__version__}"
DTYPES = ("float32", "float64")


def shard_name(machine: int) -> str:
    """File name of the shard of a machine (numbers from 1)."""
    return f"shard-{machine:04d}.npy"


def checksums_name(generation: int) -> str:
    """File name of the checksums of all blocks; each repair makes the next generation."""
    return f"checksums-{generation}.npy"


def rows_per_shard(rows: int, recovery: int) -> int:
    """R: the rows q of X in L equal parts, the last one padded."""
    return -(-rows // recovery)


def shard_header(rows: int, columns: int, dtype: str) -> str:
    """The first bytes of each shard file, up to its data, as Latin-1 text."""
    described = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(dtype).newbyteorder("<")),
        "fortran_order": False,
        "shape": (rows, columns),
    }
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue().decode("latin-1")


@dataclass(frozen=True)
class Rebuilt:
    """Rows of a shard that were computed from other shards.

    Attributes
    ----------
    start, stop : int
        The rows, `stop` excluded.
    error_bound : float
        How far an entry may be from what `encode` would have computed without rounding,
        relative to the largest entry of X in the same rows.
    """

    start: int
    stop: int
    error_bound: float


@dataclass(frozen=True)
class ShardEntry:
    """What the manifest says of one shard file.

    Attributes
    ----------
    file : str
        Name within the store.
    bytes : int
        Size of the file.
    xxh3_128 : str
        Checksum of the checksums of its blocks: as long as it holds, each of them does.
    rebuilt : tuple of Rebuilt
        Rows that `encode` did not write, ascending.
    """

    file: str
    bytes: int
    xxh3_128: str
    rebuilt: tuple[Rebuilt, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """A store without its data.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of the matrix X.
    dtype : str
        ``"float32"`` or ``"float64"``.
    code : MDSCode
        With the generator matrix, N and L.
    grid : Grid
        The blocks of each shard, and with them R: X was padded with zero rows to L R.
    header : str
        The first bytes of each shard file, up to its data, as Latin-1 text.
    checksums : str
        Name of the file with the checksums of all blocks.
    shards : tuple of ShardEntry
        Machines 1..N.
    """

    rows: int
    columns: int
    dtype: str
    code: MDSCode
    grid: Grid
    header: str
    checksums: str
    shards: tuple[ShardEntry, ...]

    @property
    def rows_per_shard(self) -> int:
        """R."""
        return self.grid.rows

    @property
    def generation(self) -> int:
        """How often checksums were written, from 1."""
        return int(self.checksums.removeprefix("checksums-").removesuffix(".npy"))

    @property
    def itemsize(self) -> int:
        """Bytes of a number in the shards."""
        return np.dtype(self.dtype).itemsize

    @property
    def shard_bytes(self) -> int:
        """Size of each shard file."""
        return len(self.header) + self.grid.rows * self.columns * self.itemsize

    def to_json(self) -> str:
        """The text of ``manifest.json``."""
        code = self.code
        content: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "created_by": CREATED_BY,
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
            "grid": {
                "block_rows": self.grid.block_rows,
                "block_columns": self.grid.block_columns,
            },
            "checksums": {"algorithm": CHECKSUM, "file": self.checksums},
            "shard_header": self.header,
            "shards": [asdict(shard) for shard in self.shards],
        }
        content["sha256"] = _own_sum(content)
        rows = ",\n      ".join(json.dumps(row) for row in code.generator.tolist())
        content["code"]["generator"] = "@generator"  # a row of the matrix is a line of text
        text = json.dumps(content, indent=2)
        return text.replace('"@generator"', f"[\n      {rows}\n    ]") + "\n"


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
        present = directory.is_dir()
    except OSError:  # a name that no file can have
        present = False
    if not present:
        raise StoreError(f"{directory}: no such store (expected a directory that encode made)")
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
        content = json.loads((directory / INCOMPLETE).read_text(encoding="utf-8"))
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
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
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
        code=code,
        grid=grid,
        header=str(content["shard_header"]),
        checksums=str(content["checksums"]["file"]),
        shards=tuple(_shard_entry(shard) for shard in content["shards"]),
    )


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
    if manifest.dtype not in DTYPES or manifest.rows < 1 or manifest.columns < 1:
        raise DamagedStoreError(
            f"{path} is damaged: a {manifest.rows} x {manifest.columns} matrix of {manifest.dtype}"
        )
    rows = rows_per_shard(manifest.rows, code.recovery)
    algorithm = content["checksums"].get("algorithm")
    generation = manifest.generation
    for what, found, expected in (
        ("machines", content.get("machines"), code.machines),
        ("recovery", content.get("recovery"), code.recovery),
        ("rows_per_shard", manifest.rows_per_shard, rows),
        ("shards", len(manifest.shards), code.machines),
        ("checksums", algorithm, CHECKSUM),
        ("checksums", manifest.checksums, checksums_name(generation)),
        ("shard_header", manifest.header, _header_like(manifest)),
    ):
        if found != expected:
            raise DamagedStoreError(
                f"{path} is damaged: {what} is {found!r}, expected {expected!r}"
            )
    grid = manifest.grid
    whole = grid.block_columns == grid.columns or grid.block_rows == 1
    if not (
        whole and 1 <= grid.block_rows <= grid.rows and 1 <= grid.block_columns <= grid.columns
    ):
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
    except (ValueError, UnicodeEncodeError):
        version, shape, fortran, dtype, rest = (0, 0), (), False, np.dtype(object), b""
    expected = (manifest.rows_per_shard, manifest.columns)
    little = np.dtype(manifest.dtype).newbyteorder("<")
    if (version, shape, fortran, dtype, rest) == ((1, 0), expected, False, little, b""):
        return manifest.header
    return shard_header(*expected, manifest.dtype)


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
