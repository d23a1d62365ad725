"""The manifest of a store: its shards, and how they were coded.

``manifest.json`` is written last, so a directory with a manifest is a complete store. It is
readable text. Correct JSON readers give back the generator matrix bit for bit, because its numbers
are written with all digits. ``docs/reference/store.md`` describes every field.
"""

from __future__ import annotations

import io
import json
import math
import re
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from cec_mpi._version import __version__
from cec_mpi.core.accuracy.rounding import encoding_error
from cec_mpi.core.code.conditioning import Conditioning, condition_numbers
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.coded import CodedPlacement
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import DamagedStoreError, InputError, StoreError
from cec_mpi.files.durable import publish
from cec_mpi.files.npy import npy_header
from cec_mpi.files.regular import NotAFileError, kind_of, read_regular
from cec_mpi.store.format.array_files import with_copy
from cec_mpi.store.format.grid import Block, Grid
from cec_mpi.store.replicas.layout import (
    Layout,
    content_of,
    file_name,
    layout_of,
    repetition,
)
from cec_mpi.text import plural, shown

_FEW = 1 << 20  # blocks in all shards: what is kept of each of them takes no memory to speak of
_HEADER = 128  # bytes of a file of checksums
T = TypeVar("T")
_MOST_BYTES = (1 << 63) - 1  # that a file can have
_LEAST_BLOCK = 1 << 10  # bytes, where there are several; half of those that `make_grid` makes
_MOST_BLOCK = 16 << 20  # bytes; 16 times those that `make_grid` makes
_SUM = re.compile("([0-9a-f]{32})?")  # empty in an incomplete store
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
    blocks = manifest.grid.count * manifest.code.machines
    if blocks <= _FEW or manifest.replicas is not None:
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
    KeyError, TypeError, ValueError, AttributeError, OverflowError
        A field is missing, has another type, or is out of range.
    """
    if "replicas" in content:
        return _replicas_of(content)
    described = content["code"]
    columns = _typed(int, content, "columns")
    row_exponents = content["row_exponents"]
    generator = _generator(described["generator"])
    recovery = generator.shape[1]
    family, systematic = _typed(str, described, "family"), _typed(bool, described, "systematic")
    if family not in FAMILIES or (systematic and (generator[:recovery] != np.eye(recovery)).any()):
        raise ValueError(f"a{' systematic' * systematic} {shown(family)} code")
    manifest = Manifest(
        rows=_typed(int, content, "rows"),
        columns=columns,
        dtype=_typed(str, content, "dtype"),
        rounded=_typed(bool, content, "rounded"),
        code=MDSCode(
            generator,
            family,
            systematic,
            _conditioning(described["conditioning"], generator),
        ),
        grid=Grid(
            _typed(int, content, "rows_per_shard"),
            columns,
            _typed(int, content["grid"], "block_rows"),
            _typed(int, content["grid"], "block_columns"),
        ),
        header=_typed(str, content, "shard_header"),
        checksums=_typed(str, content["checksums"], "file"),
        shards=tuple(_shard_entry(shard) for shard in _typed(list, content, "shards")),
        column_sizes=_checked(ArrayEntry(**content["column_sizes"])),
        row_exponents=None if row_exponents is None else _checked(ArrayEntry(**row_exponents)),
        column_names=_column_names(content.get("column_names", []), columns),
        missing=_missing(content["missing"]) if "missing" in content else None,
    )
    _check(manifest, content)
    return manifest


def _replicas_of(content: dict[str, Any]) -> Manifest:
    """The manifest of a store of replicas with this content, see `manifest_of`."""
    rows, columns = _typed(int, content, "rows"), _typed(int, content, "columns")
    machines, dtype = _typed(int, content, "machines"), _typed(str, content, "dtype")
    if rows < 1 or columns < 1 or machines < 1 or dtype not in DTYPES:
        raise ValueError(f"a {rows} x {columns} matrix of {shown(dtype)} on {machines} machines")
    layout = layout_of(content["replicas"], machines, dtype, rows)
    manifest = replica_manifest(
        layout,
        columns=columns,
        rounded=_typed(bool, content, "rounded"),
        checksums=_typed(str, content["checksums"], "file"),
        shards=tuple(_shard_entry(shard) for shard in _typed(list, content, "shards")),
        column_sizes=_checked(ArrayEntry(**content["column_sizes"])),
        column_exponent=_typed(int, content, "column_exponent"),
        cells=_checked(ArrayEntry(**content["cells"])),
        cell_count=_typed(int, content, "cell_count"),
    )
    expected: Any
    for what, found, expected in (
        ("shards", len(manifest.shards), machines),
        ("checksums", content["checksums"].get("algorithm"), CHECKSUM),
        ("checksums", manifest.checksums, checksums_name(manifest.generation)),
        ("column_sizes", manifest.column_sizes.file, COLUMN_SIZES),
        ("cells", manifest.cells and manifest.cells.file, CELLS),
    ):
        if found != expected:
            raise ValueError(f"{what} is {shown(found)}, expected {shown(expected)}")
    if not -1100 < manifest.column_exponent < 1100:
        raise ValueError(f"column_exponent is {manifest.column_exponent}")
    if not layout.parts <= manifest.cell_count <= rows:
        raise ValueError(f"{manifest.cell_count} cells in {layout.parts} parts")
    for n, shard in enumerate(manifest.shards, start=1):
        size = layout.file(n).size
        if shard.file != file_name(n) or shard.bytes != size or size > _MOST_BYTES:
            raise ValueError(
                f"shard {n} is {shown(shard.file)} of {shard.bytes} bytes, expected "
                f"{shown(file_name(n))} of {size}"
            )
    return manifest


def replica_manifest(
    layout: Layout,
    *,
    columns: int,
    rounded: bool,
    checksums: str,
    shards: tuple[ShardEntry, ...],
    column_sizes: ArrayEntry,
    column_exponent: int,
    cells: ArrayEntry,
    cell_count: int,
) -> Manifest:
    """The manifest of a store of replicas: its only part in the sense of codes is X itself."""
    rows = int(layout.bounds[-1])
    return Manifest(
        rows=rows,
        columns=columns,
        dtype=layout.dtype,
        rounded=rounded,
        code=repetition(layout.machines),
        grid=Grid(rows, columns, rows, columns),
        header="",
        checksums=checksums,
        shards=shards,
        column_sizes=column_sizes,
        column_exponent=column_exponent,
        replicas=layout,
        cells=cells,
        cell_count=cell_count,
    )


def _typed(kind: type[T], content: dict[str, Any], name: str) -> T:
    """Return a field that has exactly this type."""
    value = content[name]
    if type(value) is not kind:
        raise TypeError(f"{name} is {shown(value)}")
    return value


def _checked(entry: T) -> T:
    """Check that the fields of a dataclass have exactly the types of their annotations."""
    for name, kind in get_type_hints(type(entry)).items():
        value = getattr(entry, name)
        expected = (int, float) if kind is float else (get_origin(kind) or kind,)
        if type(value) not in expected or (kind is float and math.isnan(value)):
            raise TypeError(f"{name} is {shown(value)}")
        if name == "xxh3_128" and not _SUM.fullmatch(value):
            raise ValueError(f"{name} is {shown(value)}")
    return entry


def _generator(rows: Any) -> NDArray[np.float64]:
    """Return N x L finite numbers, from lists of numbers and of nothing else."""
    for row in rows:
        if type(row) is not list or any(type(value) not in (int, float) for value in row):
            raise TypeError(f"a row of the generator is {shown(row)}")
    generator = np.array(rows, np.float64)
    if generator.ndim != 2 or not 1 <= generator.shape[1] <= generator.shape[0]:
        raise ValueError(f"a generator of shape {generator.shape}: expected (N, L), 1 <= L <= N")
    if not np.isfinite(generator).all():
        raise ValueError("the generator holds infinity")
    return generator


def _machines(numbers: Any, count: int, machines: int) -> tuple[int, ...]:
    """Return `count` different machines, or raise."""
    right = isinstance(numbers, (list, tuple)) and all(type(n) is int for n in numbers)
    if not right or len(set(numbers)) != len(numbers) or len(numbers) != count:
        raise ValueError(f"machines {shown(numbers)}: expected {count} different ones")
    if not all(1 <= n <= machines for n in numbers):
        raise ValueError(f"machines {shown(numbers)}: expected numbers from 1 to {machines}")
    return tuple(numbers)


def _conditioning(content: dict[str, Any], generator: NDArray[np.float64]) -> Conditioning:
    machines, recovery = generator.shape
    worst_machines = _machines(content["worst_machines"], recovery, machines)
    stated = _checked(Conditioning(**{**content, "worst_machines": worst_machines}))
    sets = math.comb(machines, recovery)
    few = sets <= _FEW_SETS and sets * recovery**3 <= _FEW_PRODUCTS
    rows = combinations(range(machines), recovery) if few else [[n - 1 for n in worst_machines]]
    worst = float(condition_numbers(generator[np.array(list(rows))]).max())
    rounding = 1e-6 + 10 * recovery * float(np.finfo(np.float64).eps) * worst
    if not math.isclose(stated.worst, worst, rel_tol=rounding):
        raise ValueError(f"worst condition number {stated.worst:g}: the generator has {worst:g}")
    if not (_is_count(stated, sets) and 0 < stated.median <= stated.worst * (1 + rounding)):
        raise ValueError(f"conditioning is {shown(content)}")
    return stated


def _is_count(stated: Conditioning, sets: int) -> bool:
    """Whether this number of sets is possible: all of them, or a sample."""
    return stated.measured == sets if stated.complete else 1 <= stated.measured <= sets


def _shard_entry(content: dict[str, Any]) -> ShardEntry:
    rebuilt = tuple(_checked(Rebuilt(**rows)) for rows in _typed(list, content, "rebuilt"))
    return _checked(ShardEntry(**{**content, "rebuilt": rebuilt}))


def _column_names(names: Any, columns: int) -> tuple[str, ...]:
    good = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not good or len(names) not in (0, columns):
        raise ValueError(f"column_names: expected {columns} names, one for each column")
    return tuple(names)


def _missing(content: dict[str, Any]) -> MissingValues:
    found = _checked(MissingValues(**content))
    good = found.treatment in ("drop-rows", "mean") and 0 <= found.dropped <= found.rows
    if not good or found.columns < 0 or (found.rows > 0) != (found.columns > 0):
        raise ValueError(f"missing is {shown(content)}")
    return found


def _check(manifest: Manifest, content: dict[str, Any]) -> None:
    code, grid = manifest.code, manifest.grid
    absurd = manifest.rows < 1 or manifest.columns < 1 or manifest.dtype not in DTYPES
    if absurd or manifest.shard_bytes > _MOST_BYTES:
        raise ValueError(
            f"a {manifest.rows} x {manifest.columns} matrix of {shown(manifest.dtype)}"
        )
    rows = rows_per_shard(manifest.rows, code.recovery)
    row_exponents = manifest.row_exponents or ArrayEntry(ROW_EXPONENTS)
    expected: Any
    for what, found, expected in (
        ("machines", _typed(int, content, "machines"), code.machines),
        ("recovery", _typed(int, content, "recovery"), code.recovery),
        ("rows_per_shard", manifest.rows_per_shard, rows),
        ("shards", len(manifest.shards), code.machines),
        ("checksums", content["checksums"].get("algorithm"), CHECKSUM),
        ("checksums", manifest.checksums, checksums_name(manifest.generation)),
        ("shard_header", manifest.header, _header_like(manifest)),
        ("column_sizes", manifest.column_sizes.file, COLUMN_SIZES),
        ("row_exponents", row_exponents.file, ROW_EXPONENTS),
    ):
        if found != expected:
            raise ValueError(f"{what} is {shown(found)}, expected {shown(expected)}")
    whole = grid.block_columns == grid.columns or grid.block_rows == 1
    inside = 1 <= grid.block_rows <= grid.rows and 1 <= grid.block_columns <= grid.columns
    size = grid.block_rows * grid.block_columns * manifest.itemsize
    small = inside and grid.count > 1 and size < _LEAST_BLOCK
    if not (whole and inside) or small or size > _MOST_BLOCK:
        raise ValueError(f"blocks of {grid.block_rows} x {grid.block_columns}")
    for n, shard in enumerate(manifest.shards, start=1):
        if shard.file != shard_name(n) or shard.bytes != manifest.shard_bytes:
            raise ValueError(
                f"shard {n} is {shown(shard.file)} of {shard.bytes} bytes, expected "
                f"{shown(shard_name(n))} of {manifest.shard_bytes}"
            )
        end = 0
        for mark in shard.rebuilt:
            inside = end <= mark.start < mark.stop <= grid.rows
            if not inside or not 0 <= mark.error_bound < math.inf:
                raise ValueError(f"rebuilt of shard {n} has {shown(mark)}")
            end = mark.stop


def _header_like(manifest: Manifest) -> str:
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


@dataclass(frozen=True)
class Rebuilt:
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


@dataclass(frozen=True)
class ShardEntry:
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
    xxh3_128: str
    rebuilt: tuple[Rebuilt, ...] = ()


@dataclass(frozen=True)
class ArrayEntry:
    """Entry of the manifest for an array beside the shards, which has a copy.

    Attributes
    ----------
    file : str
        Name within the store.
    xxh3_128 : str
        Checksum of the numbers.
    """

    file: str
    xxh3_128: str = ""


@dataclass(frozen=True)
class MissingValues:
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

    treatment: str
    rows: int = 0
    columns: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class Manifest:
    """Description of a store.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of the matrix X.
    dtype : str
        ``"float32"`` or ``"float64"``.
    rounded : bool
        Whether entries of X may have been rounded to this dtype.
    code : MDSCode
        Code, with the generator matrix, N and L.
    grid : Grid
        Blocks of each shard, which also give R. X was padded with rows of zeros to L R rows.
    header : str
        Header of each shard file, as Latin-1 text.
    checksums : str
        Name of the file of checksums of all blocks.
    shards : tuple of ShardEntry
        Shards of machines 1..N.
    column_sizes : ArrayEntry
        Sizes of the encoded entries, by column.
    row_exponents : ArrayEntry or None
        Powers of two by which rows of X were divided; None if they were not.
    column_names : tuple of str
        Of the columns of X, if the table that was encoded had a header.
    missing : MissingValues or None
        How missing values were treated; None if they were refused.
    replicas : Layout or None
        Where the parts of a sparse X are; None in stores of a code. Such a store has the code
        with L = 1, each machine has some of the R = q rows, and `grid` and `header` say nothing.
    column_exponent : int
        Of such a store: of the power of two that all sizes of columns are relative to.
    cells : ArrayEntry or None
        Rows and nonzeros before each cell of the parts.
    cell_count : int
        How many cells there are.
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
    column_names: tuple[str, ...] = ()
    missing: MissingValues | None = None
    replicas: Layout | None = None
    column_exponent: int = 0
    cells: ArrayEntry | None = None
    cell_count: int = 0

    def __repr__(self) -> str:
        return f"<Manifest of {self.summary}>"

    @property
    def summary(self) -> str:
        """What the store holds, in a few words."""
        if self.replicas is not None:
            copies, machines = self.replicas.copies, self.replicas.machines
            held = f"{plural(copies, 'copy')} on {plural(machines, 'machine')}"
            return f"{self.rows}x{self.columns} {self.dtype}, {held}"
        return f"{self.rows}x{self.columns} {self.dtype}, {self.code.summary}"

    @property
    def enough(self) -> int:
        """Number of machines that can make a step, whichever they are: L, or N - J + 1."""
        if self.replicas is not None:
            return self.replicas.machines - self.replicas.copies + 1
        return self.code.recovery

    @cached_property
    def placement(self) -> CodedPlacement | ReplicaPlacement:
        """Which machines are enough for a step, and who holds which rows of a sparse X."""
        if self.replicas is None:
            return CodedPlacement(self.code.machines)
        layout = self.replicas
        return ReplicaPlacement(layout.holders, layout.bounds.tolist(), layout.machines)

    @property
    def shard_errors(self) -> NDArray[np.float64]:
        """Error bounds of all shards, from encoding or from repair: (N,); see `answer_error`."""
        repaired = [max((m.error_bound for m in s.rebuilt), default=0.0) for s in self.shards]
        return np.maximum(encoding_error(self.code.generator, self.dtype), repaired)

    @property
    def rows_per_shard(self) -> int:
        """Number of rows of each shard, R."""
        return self.grid.rows

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
        """Size of each shard file; of those of replicas the largest."""
        if self.replicas is not None:
            return max(shard.bytes for shard in self.shards)
        return self.place(self.grid.rows * self.columns)

    def machine_of(self, path: Path) -> int:
        """The machine whose file, or a copy of it, has this name."""
        return 1 + [shard.file for shard in self.shards].index(path.name)

    def header_of(self, machine: int) -> bytes:
        """Return the header of the shard file of a machine."""
        if self.replicas is not None:
            return self.replicas.file(machine).header
        return self.header.encode("latin-1")

    def rows_of_machine(self, machine: int) -> list[tuple[int, int]]:
        """Return the rows that the shard of a machine holds, as intervals."""
        if self.replicas is None:
            return [(0, self.rows_per_shard)]
        bounds = self.replicas.bounds.tolist()
        return [(bounds[part], bounds[part + 1]) for part in self.replicas.held[machine - 1]]

    def place(self, number: int) -> int:
        """Return the offset of an entry in a shard file, in bytes."""
        return len(self.header) + number * self.itemsize

    def size_of(self, blocks: Iterable[Block]) -> int:
        """Return the size of these blocks in all shards together, in bytes."""
        return sum(block.size for block in blocks) * self.itemsize * self.code.machines

    def to_json(self) -> str:
        """Return the text of ``manifest.json``."""
        code = self.code
        head = {"format": FORMAT, "version": VERSION, "created_by": CREATED_BY}
        if self.replicas is not None:
            assert self.cells is not None
            content: dict[str, Any] = {
                **head,
                "rows": self.rows,
                "columns": self.columns,
                "machines": code.machines,
                "dtype": self.dtype,
                "rounded": self.rounded,
                "replicas": content_of(self.replicas),
                "cells": asdict(self.cells),
                "cell_count": self.cell_count,
                "checksums": {"algorithm": CHECKSUM, "file": self.checksums},
                "column_sizes": asdict(self.column_sizes),
                "column_exponent": self.column_exponent,
                "shards": [asdict(shard) for shard in self.shards],
            }
            return json.dumps(content | {"sha256": own_sum(content)}) + "\n"
        content = {
            **head,
            "rows": self.rows,
            "columns": self.columns,
            **({"column_names": list(self.column_names)} if self.column_names else {}),
            **({"missing": asdict(self.missing)} if self.missing is not None else {}),
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
        if manifest.replicas is not None:
            start, stop = manifest.replicas.rows_of(number)
        else:
            block = manifest.grid.block(number)
            start, stop = block.start, block.stop
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
        content = json.loads(read_regular(path))
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
