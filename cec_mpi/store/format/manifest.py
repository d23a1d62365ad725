"""The manifest of a store: what the shards are and how they were coded.

``manifest.json`` is written last, so a directory that has one is a whole store. A person
can read it; Python and any other correct JSON reader give back the generator matrix bit
for bit, because its numbers are written with as many digits as they need. Every field is
described in ``docs/reference/store.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cec_mpi._version import __version__
from cec_mpi.core.checks.sensitivity import Sensitivity
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.errors import InputError
from cec_mpi.files.npy import npy_header
from cec_mpi.store.format.grid import Block, Grid

FORMAT = "cec_mpi store"
VERSION = 1
MANIFEST = "manifest.json"
MANIFEST_COPY = "manifest.copy.json"
SOURCE = "source.json"  # of what and with which arguments a store was encoded
INCOMPLETE = "incomplete.json"
INCOMPLETE_MANIFEST = "incomplete.manifest.json"
INCOMPLETE_SUMS = "incomplete.sums"
INCOMPLETE_EXPONENTS = "incomplete.exponents"
INCOMPLETE_SIZES = "incomplete.sizes"
JOURNAL = (
    INCOMPLETE,
    INCOMPLETE_MANIFEST,
    INCOMPLETE_SUMS,
    INCOMPLETE_EXPONENTS,
    INCOMPLETE_SIZES,
)
COLUMN_SIZES = "column-sizes.npy"
ROW_EXPONENTS = "row-exponents.npy"
CHECKSUM = "xxh3_64"
CREATED_BY = f"cec_mpi {__version__}"
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
    return array_header((rows, columns), dtype)


def array_header(shape: tuple[int, ...], dtype: str) -> str:
    """The first bytes of an ``.npy`` file, up to its data, as Latin-1 text."""
    return npy_header(shape, np.dtype(dtype).newbyteorder("<")).decode("latin-1")


@dataclass(frozen=True)
class Rebuilt:
    """Rows of a shard that were computed from other shards.

    Attributes
    ----------
    start, stop : int
        The rows, `stop` excluded.
    error_bound : float
        How far an entry may be from what `encode` would have computed without rounding,
        relative to the largest entry of X at the same place of its L parts.
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
class ArrayEntry:
    """What the manifest says of an array beside the shards, which has a copy.

    Attributes
    ----------
    file : str
        Name within the store.
    xxh3_128 : str
        Checksum of its numbers.
    """

    file: str
    xxh3_128: str = ""


@dataclass(frozen=True)
class Manifest:
    """A store without its data.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of the matrix X.
    dtype : str
        ``"float32"`` or ``"float64"``.
    rounded : bool
        Whether numbers of X may have been rounded to this dtype.
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
    column_sizes : ArrayEntry
        How large the numbers are that were encoded, by column.
    row_exponents : ArrayEntry or None
        Powers of two that rows of X were divided by; None where they are as they were.
    sensitivity : Sensitivity or None
        How small an error the answers of more than L machines show; None in stores that
        were written before this was measured.
    column_names : tuple of str
        Of the columns of X, if the table that was encoded had a header.
    """

    rows: int
    columns: int
    dtype: str
    rounded: bool
    code: MDSCode
    grid: Grid
    header: str
    checksums: str
    shards: tuple[ShardEntry, ...]
    column_sizes: ArrayEntry
    row_exponents: ArrayEntry | None = None
    sensitivity: Sensitivity | None = None
    column_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Manifest of {self.summary}>"

    @property
    def summary(self) -> str:
        """What the store holds, in a few words."""
        return f"{self.rows}x{self.columns} {self.dtype}, {self.code.summary}"

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
        return self.place(self.grid.rows * self.columns)

    def place(self, number: int) -> int:
        """Where in a shard file a number of its data is, in bytes."""
        return len(self.header) + number * self.itemsize

    def size_of(self, blocks: Iterable[Block]) -> int:
        """Bytes of these blocks in all shards together."""
        return sum(block.size for block in blocks) * self.itemsize * self.code.machines

    def to_json(self) -> str:
        """The text of ``manifest.json``."""
        code = self.code
        content: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "created_by": CREATED_BY,
            "rows": self.rows,
            "columns": self.columns,
            **({"column_names": list(self.column_names)} if self.column_names else {}),
            "machines": code.machines,
            "recovery": code.recovery,
            "rows_per_shard": self.rows_per_shard,
            "dtype": self.dtype,
            "rounded": self.rounded,
            "code": {
                "family": code.family,
                "systematic": code.systematic,
                "conditioning": asdict(code.conditioning),
                "generator": code.generator.tolist(),
            },
            **self._parity(),
            "grid": {"block_rows": self.grid.block_rows, "block_columns": self.grid.block_columns},
            "checksums": {"algorithm": CHECKSUM, "file": self.checksums},
            "column_sizes": asdict(self.column_sizes),
            "row_exponents": None if self.row_exponents is None else asdict(self.row_exponents),
            "shard_header": self.header,
            "shards": [asdict(shard) for shard in self.shards],
        }
        content["sha256"] = own_sum(content)
        rows = ",\n      ".join(json.dumps(row) for row in code.generator.tolist())
        content["code"]["generator"] = []
        text = json.dumps(content, indent=2)
        # A row of the matrix is a line of text. No name can hold this: its quotes are escaped.
        return text.replace('"generator": []', f'"generator": [\n      {rows}\n    ]') + "\n"

    def _parity(self) -> dict[str, Any]:
        if self.sensitivity is None:
            return {}
        measured = asdict(self.sensitivity).items()
        return {
            "parity": {
                name: None if value == math.inf else value  # JSON has no infinity
                for name, value in measured
            }
        }


def own_sum(content: dict[str, Any]) -> str:
    """Checksum of all that a manifest says, however the text is spaced."""
    import hashlib  # now: machines, which are sent a manifest, do not need it

    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


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


_NAMED = 5  # intervals of rows that a message names


def rows_of(blocks: Iterable[int], manifest: Manifest) -> str:
    """The rows of a shard that these blocks hold, as a text."""
    starts: list[list[int]] = []
    for number in sorted(blocks):
        block = manifest.grid.block(number)
        if starts and starts[-1][1] >= block.start:
            starts[-1][1] = block.stop
        else:
            starts.append([block.start, block.stop])
    named = ", ".join(f"{start}..{stop - 1}" for start, stop in starts[:_NAMED])
    more = f" and {len(starts) - _NAMED} more intervals" if len(starts) > _NAMED else ""
    return f"rows {named}{more}"
