"""What a manifest says, validated strictly before anything relies on it."""

from __future__ import annotations

import io
import math
import re
from itertools import combinations
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.sensitivity import Sensitivity
from cec_mpi.core.code.conditioning import Conditioning
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.code.worst import condition_numbers
from cec_mpi.store.format.grid import Grid
from cec_mpi.store.format.manifest import (
    CHECKSUM,
    COLUMN_SIZES,
    DTYPES,
    ROW_EXPONENTS,
    ArrayEntry,
    Manifest,
    Rebuilt,
    ShardEntry,
    checksums_name,
    rows_per_shard,
    shard_header,
    shard_name,
)
from cec_mpi.text import shown

T = TypeVar("T")

_MOST_BYTES = (1 << 63) - 1  # that a file can have
_LEAST_BLOCK = 1 << 10  # bytes, where there are several; half of those that `make_grid` makes
_MOST_BLOCK = 16 << 20  # bytes; 16 times those that `make_grid` makes
_SUM = re.compile("([0-9a-f]{32})?")  # empty in an incomplete store
_MOST_COMPARED = 1 << 53  # sets
_FEW_SETS, _FEW_PRODUCTS = 1_000, 10_000_000  # condition numbers that are measured again


def manifest_of(content: dict[str, Any]) -> Manifest:
    """Return the manifest with this content, apart from its checksum and version.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError, OverflowError
        A field is missing, has another type, or is out of range.
    """
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
        sensitivity=_sensitivity(content["parity"]) if "parity" in content else None,
        column_names=_column_names(content.get("column_names", []), columns),
    )
    _check(manifest, content)
    _check_parity(manifest)
    return manifest


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
    """Return this many different machines."""
    right = isinstance(numbers, (list, tuple)) and all(type(n) is int for n in numbers)
    if not right or len(set(numbers)) != len(numbers) or len(numbers) != count:
        raise ValueError(f"{shown(numbers)} are not {count} different machines")
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
    possible = 0 <= stated.searched < _MOST_COMPARED and not (stated.complete and stated.searched)
    if not (
        _is_count(stated, sets) and possible and 0 < stated.median <= stated.worst * (1 + rounding)
    ):
        raise ValueError(f"conditioning is {shown(content)}")
    return stated


def _sensitivity(content: dict[str, Any]) -> Sensitivity:
    sizes = {
        name: math.inf if content[name] is None else content[name]
        for name in ("median", "detectable", "locatable")
    }
    machines = tuple(content["machines"])
    return _checked(Sensitivity(**{**content, **sizes, "machines": machines}))


def _is_count(stated: Conditioning | Sensitivity, sets: int) -> bool:
    """Whether so many sets can have been measured: all of them, or a sample."""
    return stated.measured == sets if stated.complete else 1 <= stated.measured <= sets


def _check_parity(manifest: Manifest) -> None:
    found, code = manifest.sensitivity, manifest.code
    if found is None:
        return
    count = code.recovery + 1 if code.machines > code.recovery else 0
    _machines(found.machines, count, code.machines)
    sizes = (found.median, found.detectable, found.locatable, found.least_weight, found.measured)
    sets = math.comb(code.machines, code.recovery) if count else 0
    if (
        not _is_count(found, sets)
        or min(sizes) < 0
        or found.least_weight > 1
        or found.median > found.detectable
    ):
        raise ValueError(f"parity is {shown(found)}")


def _shard_entry(content: dict[str, Any]) -> ShardEntry:
    rebuilt = tuple(_checked(Rebuilt(**rows)) for rows in _typed(list, content, "rebuilt"))
    return _checked(ShardEntry(**{**content, "rebuilt": rebuilt}))


def _column_names(names: Any, columns: int) -> tuple[str, ...]:
    good = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not good or len(names) not in (0, columns):
        raise ValueError(f"column_names has no name for each of {columns} columns")
    return tuple(names)


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
