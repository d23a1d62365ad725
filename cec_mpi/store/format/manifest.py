"""The manifest of a store: its shards, and how they were coded.

``manifest.json`` is written last, so a directory with a manifest is a complete store. It is
readable text. Correct JSON readers give back the generator matrix bit for bit, because its numbers
are written with all digits. ``docs/reference/store.md`` describes every field.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import DTypeLike, NDArray

from cec_mpi._version import __version__
from cec_mpi.core.accuracy.rounding import encoding_error
from cec_mpi.core.code.conditioning import Conditioning, condition_numbers
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.coded import CodedPlacement
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import DamagedStoreError, InputError, StoreError
from cec_mpi.store.files.durable import publish
from cec_mpi.store.files.npy import npy_header
from cec_mpi.store.files.regular import NotAFileError, kind_of, read_regular
from cec_mpi.store.format.array_files import with_copy
from cec_mpi.store.format.grid import Block, Grid
from cec_mpi.store.replicas.layout import (
    BLOCK_BYTES,
    Layout,
    content_of,
    file_name,
    layout_of,
    repetition,
)
from cec_mpi.text import plural, shown

_FEW = 1 << 20  # blocks in all shards: what is kept of each of them takes no memory to speak of
_HEADER = 128  # bytes of a file of checksums
_MOST_BYTES = (1 << 63) - 1  # that a file can have
_LEAST_BLOCK = 1 << 10  # bytes, where there are several; half of those that `make_grid` makes
_MOST_BLOCK = 16 << 20  # bytes; 16 times those that `make_grid` makes
_FEW_SETS, _FEW_PRODUCTS = 1_000, 10_000_000  # condition numbers that are measured again
FORMAT = "cec_mpi store"
VERSION = 2
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
CELLS = "cells.npy"
ROW_EXPONENTS = "row-exponents.npy"
CHECKSUM = "xxh3_64"
CREATED_BY = f"cec_mpi {__version__}"
DTYPES = ("float32", "float64")
_NAMED = 5  # intervals of rows that a message names

Count = Annotated[int, Meta(ge=1, le=_MOST_BYTES)]
Dtype = Annotated[str, Meta(pattern=r"\Afloat(32|64)\Z")]
Sum = Annotated[str, Meta(pattern=r"\A([0-9a-f]{32})?\Z")]  # empty in an incomplete store


def check_sizes(directory: Path, manifest: Manifest, needed: bool = True) -> None:
    """Check that at least one file has the size that a manifest of many blocks states.

    Parameters
    ----------
    directory : Path
    manifest : Manifest
    needed : bool
        Whether to raise also if files are missing, because this process will read them.

    Raises
    ------
    DamagedStoreError
        Names a file, its size and the expected size.
    """
    blocks = math.prod(manifest.sums_shape)
    if blocks <= _FEW or isinstance(manifest, CopiesManifest):
        return
    expected = {shard.file: manifest.shard_bytes for shard in manifest.shards}
    expected |= dict.fromkeys(with_copy(manifest.checksums), _HEADER + 8 * blocks)
    found = {name: size for name in expected if (size := _size(directory / name)) is not None}
    if any(size == expected[name] for name, size in found.items()):
        return
    if found or needed:
        name = next(iter(found or expected))
        what = f"{found[name]} bytes" if found else "missing"
        raise DamagedStoreError(
            f"{directory / MANIFEST} is damaged: no file has the size that it states, {name} is "
            f"{what}, expected {expected[name]} bytes"
        )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def manifest_of(content: dict[str, Any]) -> Manifest:
    """Return the manifest with this content, without checksum and version.

    Raises
    ------
    KeyError, TypeError, ValueError, OverflowError
        A field is missing, has another type, or is out of range.
    """
    facts = msgspec.convert(content, _Facts)
    manifest = _copies(content, facts) if "replicas" in content else _coded(content)
    machines = manifest.code.machines
    expected: Any
    for what, found, expected in (
        ("machines", facts.machines, machines),
        ("recovery", facts.recovery, manifest.code.recovery),
        ("shards", len(manifest.shards), machines),
        ("checksums", manifest.checksums, checksums_name(manifest.generation)),
        ("column_sizes", manifest.column_sizes.file, COLUMN_SIZES),
    ):
        if found != expected:
            raise ValueError(f"{what} is {shown(found)}, expected {shown(expected)}")
    for n, shard in enumerate(manifest.shards, start=1):
        name, size = manifest.file_of(n), manifest.bytes_of(n)
        if shard.file != name or shard.bytes != size or size > _MOST_BYTES:
            raise ValueError(
                f"shard {n} is {shown(shard.file)} of {shard.bytes} bytes, expected "
                f"{shown(name)} of {size}"
            )
    manifest.check()
    return manifest


def _coded(content: dict[str, Any]) -> CodedManifest:
    described = msgspec.convert(content["code"], _Described)
    known = {each.name for each in dataclasses.fields(Conditioning)}
    if unknown := content["code"]["conditioning"].keys() - known:
        raise ValueError(f"{shown(min(unknown))} is unknown")
    fields = {
        "checksums": msgspec.convert(content["checksums"], _Checksums).file,
        "code": _code(described),
        "grid": {
            "rows": content["rows_per_shard"],
            "columns": content["columns"],
            **content["grid"],
        },
        "header": content["shard_header"],
    }
    return msgspec.convert({**content, **fields}, CodedManifest)


def _copies(content: dict[str, Any], facts: _Facts) -> CopiesManifest:
    fields = {
        "checksums": msgspec.convert(content["checksums"], _Checksums).file,
        "replicas": layout_of(content["replicas"], facts.machines, facts.dtype, facts.rows),
    }
    return msgspec.convert({**content, **fields}, CopiesManifest)


def _code(described: _Described) -> MDSCode:
    """Return a code, after a check of what is said of it."""
    generator = np.array(described.generator, np.float64)
    if generator.ndim != 2 or not 1 <= generator.shape[1] <= generator.shape[0]:
        raise ValueError(f"a generator of shape {generator.shape}: expected (N, L), 1 <= L <= N")
    if not np.isfinite(generator).all():
        raise ValueError("the generator holds infinity")
    family, systematic, recovery = described.family, described.systematic, generator.shape[1]
    if family not in FAMILIES or (systematic and (generator[:recovery] != np.eye(recovery)).any()):
        raise ValueError(f"a{' systematic' * systematic} {shown(family)} code")
    _check_conditioning(described.conditioning, generator)
    return MDSCode(generator, family, systematic, described.conditioning)


def _check_machines(numbers: tuple[int, ...], count: int, machines: int) -> None:
    """Raise unless these are `count` different machines."""
    if len(set(numbers)) != len(numbers) or len(numbers) != count:
        raise ValueError(f"machines {shown(numbers)}: expected {count} different ones")
    if not all(1 <= n <= machines for n in numbers):
        raise ValueError(f"machines {shown(numbers)}: expected numbers from 1 to {machines}")


def _check_conditioning(stated: Conditioning, generator: NDArray[np.float64]) -> None:
    machines, recovery = generator.shape
    _check_machines(stated.worst_machines, recovery, machines)
    sets = math.comb(machines, recovery)
    few = sets <= _FEW_SETS and sets * recovery**3 <= _FEW_PRODUCTS
    every = combinations(range(machines), recovery)
    rows = every if few else [[n - 1 for n in stated.worst_machines]]
    worst = float(condition_numbers(generator[np.array(list(rows))]).max())
    rounding = 1e-6 + 10 * recovery * float(np.finfo(np.float64).eps) * worst
    if not math.isclose(stated.worst, worst, rel_tol=rounding):
        raise ValueError(f"worst condition number {stated.worst:g}: the generator has {worst:g}")
    if not (_is_count(stated, sets) and 0 < stated.median <= stated.worst * (1 + rounding)):
        raise ValueError(f"conditioning is {shown(stated)}")


def _is_count(stated: Conditioning, sets: int) -> bool:
    """Whether this number of sets is possible: all of them, or a sample."""
    return stated.measured == sets if stated.complete else 1 <= stated.measured <= sets


def _header_like(manifest: CodedManifest) -> str:
    """Return the header if it is equivalent: other versions of NumPy pad it differently."""
    try:
        file = io.BytesIO(manifest.header.encode("latin-1"))
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        rest = file.read()
    except Exception:  # the header is parsed as Python, which can raise anything
        version, shape, fortran, dtype, rest = (0, 0), (), False, np.dtype(object), b""
    expected = (manifest.rows_per_shard, manifest.columns)
    little = np.dtype(manifest.dtype).newbyteorder("<")
    if (version, shape, fortran, dtype, rest) == ((1, 0), expected, False, little, b""):
        return manifest.header
    return shard_header(*expected, manifest.dtype)


def shard_name(machine: int) -> str:
    """Return the file name of the shard of a machine (numbers start at 1)."""
    return f"shard-{machine:04d}.npy"


def checksums_name(generation: int) -> str:
    """Return the file name of all checksums; each repair writes the next generation."""
    return f"checksums-{generation}.npy"


def rows_per_shard(rows: int, recovery: int) -> int:
    """Return R: the q rows of X are divided into L equal parts, the last one padded."""
    return -(-rows // recovery)


def shard_header(rows: int, columns: int, dtype: str) -> str:
    """Return the header of each shard file, as Latin-1 text."""
    return array_header((rows, columns), dtype)


def array_header(shape: tuple[int, ...], dtype: str) -> str:
    """Return the header of an ``.npy`` file, as Latin-1 text."""
    return npy_header(shape, np.dtype(dtype).newbyteorder("<")).decode("latin-1")


class Rebuilt(Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of a shard that were computed from other shards.

    Attributes
    ----------
    start, stop : int
        Rows; `stop` is excluded.
    error_bound : float
        Upper bound of the difference between an entry and its value in exact arithmetic, relative
        to the largest of the L entries of X that are coded together there.
    """

    start: int
    stop: int
    error_bound: float


class ShardEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the manifest for one shard file.

    Attributes
    ----------
    file : str
        Name in the store.
    bytes : int
        Size of the file.
    xxh3_128 : str
        Checksum of the checksums of its blocks.
    rebuilt : tuple of Rebuilt
        Rows that were computed from other shards, in ascending order.
    """

    file: str
    bytes: int
    xxh3_128: Sum
    rebuilt: tuple[Rebuilt, ...]


class ArrayEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the manifest for an array beside the shards, which has a copy.

    Attributes
    ----------
    file : str
        Name within the store.
    xxh3_128 : str
        Checksum of the numbers.
    """

    file: str
    xxh3_128: Sum = ""


class MissingValues(Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the manifest for missing values of what was encoded.

    Attributes
    ----------
    treatment : {"drop-rows", "mean"}
        Whether their rows were left out, or the mean of their column took their place.
    rows, columns : int
        Number of rows, and of columns with targets, that had missing values.
    dropped : int
        Number of rows that were left out, which may have had a missing target.
    """

    treatment: Annotated[str, Meta(pattern=r"\A(drop-rows|mean)\Z")]
    rows: int = 0
    columns: int = 0
    dropped: int = 0


class _Checksums(Struct):
    """Which checksums a store has, and in which file."""

    algorithm: Literal["xxh3_64"]
    file: str


class _Facts(Struct):
    """What code, parts and shards of a store must fit."""

    rows: Count
    machines: Count
    dtype: Dtype
    recovery: Count = 1


class _Described(Struct):
    """What a manifest says of a code."""

    family: str
    systematic: bool
    conditioning: Conditioning
    generator: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Manifest(ABC):
    """Description of a store: what stores of a code and stores of copies have in common.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of the matrix X.
    dtype : str
        ``"float32"`` or ``"float64"``.
    rounded : bool
        Whether entries of X may have been rounded to this dtype.
    checksums : str
        Name of the file of checksums of all blocks.
    shards : tuple of ShardEntry
        Shards of machines 1..N.
    column_sizes : ArrayEntry
        Sizes of the encoded entries, by column.
    code : MDSCode
        Code, with the generator matrix, N and L. That of copies has L = 1.
    """

    rows: Count
    columns: Count
    dtype: Dtype
    rounded: bool
    checksums: str
    shards: tuple[ShardEntry, ...]
    column_sizes: ArrayEntry

    if TYPE_CHECKING:  # fields of one of the kinds of stores, and constants of the other

        @property
        def code(self) -> MDSCode: ...  # noqa: D102
        @property
        def row_exponents(self) -> ArrayEntry | None: ...  # noqa: D102
        @property
        def column_names(self) -> tuple[str, ...]: ...  # noqa: D102
        @property
        def missing(self) -> MissingValues | None: ...  # noqa: D102

    def __repr__(self) -> str:
        return f"<Manifest of {self.summary}>"

    @property
    @abstractmethod
    def summary(self) -> str:
        """What the store holds, in a few words."""

    @property
    @abstractmethod
    def copies(self) -> int | None:
        """Number of machines that hold each row, J; None in a store of a code."""

    @property
    @abstractmethod
    def enough(self) -> int:
        """Number of machines that can make a step, whichever they are: L, or N - J + 1."""

    @property
    @abstractmethod
    def placement(self) -> CodedPlacement | ReplicaPlacement:
        """Which machines are enough for a step, and who holds which rows of a sparse X."""

    @property
    @abstractmethod
    def rows_per_shard(self) -> int:
        """Number of rows of each shard, R; of copies all rows, of which a machine holds some."""

    @property
    @abstractmethod
    def sums_shape(self) -> tuple[int, int]:
        """Shape of the file of checksums."""

    @abstractmethod
    def file_of(self, machine: int) -> str:
        """Return the file name of the shard of a machine (numbers start at 1)."""

    @abstractmethod
    def bytes_of(self, machine: int) -> int:
        """Return the size of the shard file of a machine."""

    @abstractmethod
    def header_of(self, machine: int) -> bytes:
        """Return the header of the shard file of a machine."""

    @abstractmethod
    def rows_of_machine(self, machine: int) -> list[tuple[int, int]]:
        """Return the rows that the shard of a machine holds, as intervals."""

    @property
    @abstractmethod
    def held(self) -> NDArray[np.bool_]:
        """Which blocks each machine holds: (N, blocks)."""

    @property
    @abstractmethod
    def block_bytes(self) -> int:
        """Size of the largest block."""

    @abstractmethod
    def place_of_block(self, machine: int, number: int) -> tuple[int, int]:
        """Return where a block that a machine holds begins in its file, and its size, in bytes."""

    @abstractmethod
    def rows_of_block(self, number: int) -> tuple[int, int]:
        """Return the first row of a block, and the end of its rows."""

    @abstractmethod
    def sums_of(self, machine: int, sums: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the checksums of the blocks that a machine holds, from those of all blocks."""

    @abstractmethod
    def arrays(self) -> list[tuple[ArrayEntry, tuple[int, ...], DTypeLike]]:
        """Return the arrays beside the shards, with their shapes and dtypes."""

    @abstractmethod
    def check(self) -> None:
        """Raise if fields do not fit together.

        Raises
        ------
        ValueError
            Names what was found and what was expected.
        """

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return the fields of ``manifest.json``, without checksum and version."""

    @property
    def shard_errors(self) -> NDArray[np.float64]:
        """Error bounds of all shards, from encoding or from repair: (N,); see `answer_error`."""
        repaired = [max((m.error_bound for m in s.rebuilt), default=0.0) for s in self.shards]
        return np.maximum(encoding_error(self.code.generator, self.dtype), repaired)

    @property
    def generation(self) -> int:
        """Number of times that checksums were written, from 1."""
        return int(self.checksums.removeprefix("checksums-").removesuffix(".npy"))

    @property
    def itemsize(self) -> int:
        """Bytes of an entry of the shards."""
        return np.dtype(self.dtype).itemsize

    @property
    def shard_bytes(self) -> int:
        """Size of each shard file; of those of copies the largest."""
        return max(shard.bytes for shard in self.shards)

    def machine_of(self, path: Path) -> int:
        """The machine whose file, or a copy of it, has this name."""
        return 1 + [shard.file for shard in self.shards].index(path.name)

    def to_json(self) -> str:
        """Return the text of ``manifest.json``."""
        head = {"format": FORMAT, "version": VERSION, "created_by": CREATED_BY}
        content = {**head, **self.content()}
        return _text_of(content | {"sha256": own_sum(content)}) + "\n"


def _text_of(content: dict[str, Any]) -> str:
    """Return JSON in which a row of the generator, or all of a store of copies, is a line."""
    if "code" not in content:
        return json.dumps(content)
    code = content["code"]
    rows = ",\n      ".join(json.dumps(row) for row in code["generator"])
    text = json.dumps({**content, "code": {**code, "generator": []}}, indent=2)
    # No name can hold this: its quotes are escaped.
    return text.replace('"generator": []', f'"generator": [\n      {rows}\n    ]')


@dataclass(frozen=True, kw_only=True, repr=False)
class CodedManifest(Manifest):
    """Description of a store of a code.

    Attributes
    ----------
    code : MDSCode
        Code, with the generator matrix, N and L.
    grid : Grid
        Blocks of each shard, which also give R. X was padded with rows of zeros to L R rows.
    header : str
        Header of each shard file, as Latin-1 text.
    row_exponents : ArrayEntry or None
        Powers of two by which rows of X were divided; None if they were not.
    column_names : tuple of str
        Of the columns of X, if the table that was encoded had a header.
    missing : MissingValues or None
        How missing values were treated; None if they were refused.
    """

    code: MDSCode
    grid: Grid
    header: str
    row_exponents: ArrayEntry | None
    column_names: tuple[str, ...] = ()
    missing: MissingValues | None = None

    @property
    def summary(self) -> str:
        """What the store holds, in a few words."""
        return f"{self.rows}x{self.columns} {self.dtype}, {self.code.summary}"

    @property
    def copies(self) -> int | None:
        """None."""
        return None

    @property
    def enough(self) -> int:
        """Number of machines that can make a step, L."""
        return self.code.recovery

    @cached_property
    def placement(self) -> CodedPlacement:
        """Which machines are enough for a step."""
        return CodedPlacement(self.code.machines)

    @property
    def rows_per_shard(self) -> int:
        """Number of rows of each shard, R."""
        return self.grid.rows

    @property
    def sums_shape(self) -> tuple[int, int]:
        """Shape of the file of checksums: (N, blocks)."""
        return self.code.machines, self.grid.count

    def file_of(self, machine: int) -> str:
        """As `Manifest.file_of`."""
        return shard_name(machine)

    def bytes_of(self, machine: int) -> int:
        """As `Manifest.bytes_of`; all have the same."""
        return self.place(self.grid.rows * self.columns)

    def header_of(self, machine: int) -> bytes:
        """As `Manifest.header_of`; all have the same."""
        return self.header.encode("latin-1")

    def rows_of_machine(self, machine: int) -> list[tuple[int, int]]:
        """As `Manifest.rows_of_machine`: all."""
        return [(0, self.rows_per_shard)]

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which blocks each machine holds, (N, blocks): all."""
        return np.broadcast_to(np.True_, self.sums_shape)

    @property
    def block_bytes(self) -> int:
        """Size of the largest block."""
        return self.grid.block_rows * self.grid.block_columns * self.itemsize

    def place_of_block(self, machine: int, number: int) -> tuple[int, int]:
        """As `Manifest.place_of_block`; all machines have the same."""
        block = self.grid.block(number)
        return self.place(block.offset), block.size * self.itemsize

    def rows_of_block(self, number: int) -> tuple[int, int]:
        """As `Manifest.rows_of_block`, in a shard."""
        block = self.grid.block(number)
        return block.start, block.stop

    def sums_of(self, machine: int, sums: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """As `Manifest.sums_of`: all."""
        return sums

    def place(self, number: int) -> int:
        """Return the offset of an entry in a shard file, in bytes."""
        return len(self.header) + number * self.itemsize

    def size_of(self, blocks: Iterable[Block]) -> int:
        """Return the size of these blocks in all shards together, in bytes."""
        return sum(block.size for block in blocks) * self.itemsize * self.code.machines

    def arrays(self) -> list[tuple[ArrayEntry, tuple[int, ...], DTypeLike]]:
        """As `Manifest.arrays`: sizes of columns, and exponents of rows."""
        arrays: list[tuple[ArrayEntry, tuple[int, ...], DTypeLike]]
        arrays = [(self.column_sizes, (self.columns,), np.float64)]
        if self.row_exponents is not None:
            shape = self.code.recovery, self.rows_per_shard
            arrays.append((self.row_exponents, shape, np.int16))
        return arrays

    def check(self) -> None:
        """As `Manifest.check`."""
        grid, row_exponents = self.grid, self.row_exponents or ArrayEntry(ROW_EXPONENTS)
        expected: Any
        for what, found, expected in (
            ("rows_per_shard", self.rows_per_shard, rows_per_shard(self.rows, self.code.recovery)),
            ("shard_header", self.header, _header_like(self)),
            ("row_exponents", row_exponents.file, ROW_EXPONENTS),
        ):
            if found != expected:
                raise ValueError(f"{what} is {shown(found)}, expected {shown(expected)}")
        whole = grid.block_columns == grid.columns or grid.block_rows == 1
        inside = 1 <= grid.block_rows <= grid.rows and 1 <= grid.block_columns <= grid.columns
        size = grid.block_rows * grid.block_columns * self.itemsize
        small = inside and grid.count > 1 and size < _LEAST_BLOCK
        if not (whole and inside) or small or size > _MOST_BLOCK:
            raise ValueError(f"blocks of {grid.block_rows} x {grid.block_columns}")
        for n, shard in enumerate(self.shards, start=1):
            end = 0
            for mark in shard.rebuilt:
                inside = end <= mark.start < mark.stop <= grid.rows
                if not inside or not 0 <= mark.error_bound < math.inf:
                    raise ValueError(f"rebuilt of shard {n} has {shown(mark)}")
                end = mark.stop
        if len(self.column_names) not in (0, self.columns):
            raise ValueError(f"column_names: expected {self.columns}, one for each column")
        lost = self.missing or MissingValues("mean")
        good = 0 <= lost.dropped <= lost.rows and lost.columns >= 0
        if not good or (lost.rows > 0) != (lost.columns > 0):
            raise ValueError(f"missing is {shown(lost)}")

    def content(self) -> dict[str, Any]:
        """As `Manifest.content`."""
        code, fields = self.code, msgspec.to_builtins
        return {
            "rows": self.rows,
            "columns": self.columns,
            **({"column_names": list(self.column_names)} if self.column_names else {}),
            **({"missing": fields(self.missing)} if self.missing is not None else {}),
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
            "grid": {"block_rows": self.grid.block_rows, "block_columns": self.grid.block_columns},
            "checksums": {"algorithm": CHECKSUM, "file": self.checksums},
            "column_sizes": fields(self.column_sizes),
            "row_exponents": fields(self.row_exponents),
            "shard_header": self.header,
            "shards": fields(self.shards),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class CopiesManifest(Manifest):
    """Description of a store of copies of the rows of a sparse X.

    Attributes
    ----------
    replicas : Layout
        Where the parts of X are.
    column_exponent : int
        Exponent of the power of two that all sizes of columns are relative to.
    cells : ArrayEntry
        Rows and nonzeros before each cell of the parts.
    cell_count : int
        Number of cells.
    """

    replicas: Layout
    column_exponent: Annotated[int, Meta(gt=-1100, lt=1100)]
    cells: ArrayEntry
    cell_count: int

    row_exponents: ClassVar[None] = None
    column_names: ClassVar[tuple[()]] = ()
    missing: ClassVar[None] = None

    @property
    def summary(self) -> str:
        """What the store holds, in a few words."""
        layout = self.replicas
        held = f"{plural(layout.copies, 'copy')} on {plural(layout.machines, 'machine')}"
        return f"{self.rows}x{self.columns} {self.dtype}, {held}"

    @cached_property
    def code(self) -> MDSCode:
        """The code with L = 1 that gives all machines X."""
        return repetition(self.replicas.machines)

    @property
    def copies(self) -> int:
        """Number of machines that hold each row, J."""
        return self.replicas.copies

    @property
    def enough(self) -> int:
        """Number of machines that can make a step, whichever they are: N - J + 1."""
        return self.replicas.machines - self.replicas.copies + 1

    @cached_property
    def placement(self) -> ReplicaPlacement:
        """Which machines hold which rows."""
        layout = self.replicas
        return ReplicaPlacement(layout.holders, layout.bounds.tolist(), layout.machines)

    @property
    def rows_per_shard(self) -> int:
        """All rows of X, of which a machine holds some."""
        return self.rows

    @property
    def sums_shape(self) -> tuple[int, int]:
        """Shape of the file of checksums, (1, blocks): all copies of a block have the same."""
        return 1, self.replicas.blocks

    def file_of(self, machine: int) -> str:
        """As `Manifest.file_of`."""
        return file_name(machine)

    def bytes_of(self, machine: int) -> int:
        """As `Manifest.bytes_of`."""
        return self.replicas.file(machine).size

    def header_of(self, machine: int) -> bytes:
        """As `Manifest.header_of`."""
        return self.replicas.file(machine).header

    def rows_of_machine(self, machine: int) -> list[tuple[int, int]]:
        """As `Manifest.rows_of_machine`, in X."""
        bounds = self.replicas.bounds.tolist()
        return [(bounds[part], bounds[part + 1]) for part in self.replicas.held[machine - 1]]

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which blocks each machine holds: (N, blocks)."""
        return self.replicas.held_blocks

    @property
    def block_bytes(self) -> int:
        """Size of the largest block."""
        return BLOCK_BYTES

    def place_of_block(self, machine: int, number: int) -> tuple[int, int]:
        """As `Manifest.place_of_block`."""
        block = self.replicas.block(number)
        return self.replicas.file(machine).place(block), block.stop - block.start

    def rows_of_block(self, number: int) -> tuple[int, int]:
        """As `Manifest.rows_of_block`, in X: those of its part."""
        return self.replicas.rows_of(number)

    def sums_of(self, machine: int, sums: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """As `Manifest.sums_of`."""
        return self.replicas.sums_of(machine, sums)

    def arrays(self) -> list[tuple[ArrayEntry, tuple[int, ...], DTypeLike]]:
        """As `Manifest.arrays`: sizes of columns, and cells."""
        return [
            (self.column_sizes, (self.columns,), np.uint8),
            (self.cells, (2, self.cell_count + 1), np.int64),
        ]

    def check(self) -> None:
        """As `Manifest.check`."""
        if self.cells.file != CELLS:
            raise ValueError(f"cells is {shown(self.cells.file)}, expected {shown(CELLS)}")
        if not self.replicas.parts <= self.cell_count <= self.rows:
            raise ValueError(f"{self.cell_count} cells in {self.replicas.parts} parts")

    def content(self) -> dict[str, Any]:
        """As `Manifest.content`."""
        return {
            "rows": self.rows,
            "columns": self.columns,
            "machines": self.replicas.machines,
            "dtype": self.dtype,
            "rounded": self.rounded,
            "replicas": content_of(self.replicas),
            "cells": msgspec.to_builtins(self.cells),
            "cell_count": self.cell_count,
            "checksums": {"algorithm": CHECKSUM, "file": self.checksums},
            "column_sizes": msgspec.to_builtins(self.column_sizes),
            "column_exponent": self.column_exponent,
            "shards": msgspec.to_builtins(self.shards),
        }


def own_sum(content: dict[str, Any]) -> str:
    """Return the checksum of the content of a manifest, whatever its white space."""
    import hashlib  # here, because machines do not need it

    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def store_dtype(name: str | None, source: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of shards: the given one, or float32 for floats of up to 32 bits.

    Raises
    ------
    InputError
        Stores cannot have this dtype.
    """
    if name is None:
        return np.dtype("float32" if source.kind == "f" and source.itemsize <= 4 else "float64")
    if name not in DTYPES:
        raise InputError(f"dtype {name!r}: expected one of {', '.join(DTYPES)}")
    return np.dtype(name)


def rows_of(blocks: Iterable[int], manifest: Manifest) -> str:
    """Return the rows of a shard that these blocks hold, as text."""
    starts: list[list[int]] = []
    for number in sorted(blocks):
        start, stop = manifest.rows_of_block(number)
        if starts and starts[-1][1] >= start:
            starts[-1][1] = stop
        else:
            starts.append([start, stop])
    named = ", ".join(f"{start}..{stop - 1}" for start, stop in starts[:_NAMED])
    more = f" and {len(starts) - _NAMED} more intervals" if len(starts) > _NAMED else ""
    return f"rows {named}{more}"


def publish_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of a store atomically, after its copy.

    The files that it names must be on disk already. The journal of an encode is deleted.
    """
    data = manifest.to_json().encode()
    publish(directory / MANIFEST_COPY, data)
    publish(directory / MANIFEST, data)
    remove_journal(directory)


def remove_journal(directory: Path) -> None:
    """Remove files that only an incomplete store needs."""
    for name in JOURNAL:
        (directory / name).unlink(missing_ok=True)


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a store.

    Raises
    ------
    StoreError
        The directory is not a store, this version cannot read it, or its encode was interrupted.
    DamagedStoreError
        The manifest was altered, or is missing while its copy is good.
    """
    try:
        mode = directory.stat().st_mode
    except (OSError, ValueError):  # or a name that no file can have
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
            raise StoreError(_no_manifest(directory)) from None
        raise DamagedStoreError(
            f"{MANIFEST} is missing in {directory}: cec-mpi repair {directory} restores it from "
            f"{MANIFEST_COPY}"
        ) from None


def _no_manifest(directory: Path) -> str:
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
    FileNotFoundError
        The file does not exist.
    StoreError
        It cannot be read, or this version does not support it.
    DamagedStoreError
        It was altered.
    """
    try:
        content = json.loads(read_regular(path), parse_constant=_refuse)
    except FileNotFoundError:
        raise
    except NotAFileError as error:
        raise StoreError(f"{path} is {error.kind}, expected a file") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DamagedStoreError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StoreError(f"{path} is not the manifest of a {FORMAT}")
    version = content.get("version")
    if type(version) is not int or version != VERSION:
        raise StoreError(
            f"{path} has version {shown(version)}, but this version of cec_mpi reads only "
            f"{VERSION}: encode X again"
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


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
