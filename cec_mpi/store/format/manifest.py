"""Base class of the manifests of all kinds of stores.

A store consists of blocks, which are numbered from 0. The shard file of a machine has some or all
blocks. Each block has a checksum, and can be computed from the same block in other files. The
operations on stores depend only on this interface. ``docs/reference/store.md`` describes every
field.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from msgspec import Meta, Struct, StructMeta
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import encoding_error_bound
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.placement import CodedPlacement
from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InputError
from cec_mpi.text import plural, shorten

COLUMN_MAXIMA = "column-maxima.npy"
DTYPES = ("float32", "float64")
_MAX_INT64 = (1 << 63) - 1
_MAX_INTERVALS = 5  # in a message

Count = Annotated[int, Meta(ge=1, le=_MAX_INT64)]
Dtype = Annotated[str, Meta(pattern=r"\Afloat(32|64)\Z")]
Checksum = Annotated[str, Meta(pattern=r"\A([0-9a-f]{32})?\Z")]  # empty in an incomplete store
ErrorBound = Annotated[float, Meta(ge=0, le=1.7976931348623157e308)]
Checksums = NDArray[np.uint64]


class RebuiltRows(Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of a shard that were computed from other shards.

    Attributes
    ----------
    start, stop : int
        Rows; `stop` is excluded.
    error_bound : float
        Upper bound on the difference between an entry and its value in exact arithmetic, relative
        to the largest of the L entries of X that it combines.
    """

    start: int
    stop: int
    error_bound: ErrorBound


class ShardEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the manifest for one shard file.

    Attributes
    ----------
    file : str
        Name in the store.
    bytes : int
        Size of the file.
    xxh3_128 : str
        Checksum of the checksums of the blocks.
    rebuilt : tuple of RebuiltRows
        Rows that were computed from other shards, in ascending order.
    """

    file: str
    bytes: int
    xxh3_128: Checksum
    rebuilt: tuple[RebuiltRows, ...]


class ArrayEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the manifest for an array next to the shards, whose file has a copy.

    Attributes
    ----------
    file : str
        Name in the store.
    xxh3_128 : str
        Checksum of the entries.
    """

    file: str
    xxh3_128: Checksum = ""


class ChecksumsEntry(Struct, frozen=True):
    """Entry of the manifest for the checksums of all blocks.

    Attributes
    ----------
    algorithm : {"xxh3_64"}
    file : str
        Name in the store, which includes the generation.
    """

    algorithm: Literal["xxh3_64"]
    file: Annotated[str, Meta(pattern=r"\Achecksums-[1-9][0-9]{0,17}\.npy\Z")]

    @classmethod
    def for_generation(cls, generation: int) -> Self:
        """Return the entry of a generation."""
        return cls("xxh3_64", f"checksums-{generation}.npy")

    @property
    def generation(self) -> int:
        """Number of this version of the checksums, from 1; restoring a file does not change it."""
        return int(self.file.removeprefix("checksums-").removesuffix(".npy"))


class MissingValues(Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of the manifest for missing values of the source.

    Attributes
    ----------
    treatment : {"drop-rows", "mean"}
        Whether rows with missing values were dropped, or each missing value was replaced by
        the mean of its column.
    rows, columns : int
        Numbers of rows and columns with missing values; targets count as columns.
    dropped : int
        Number of dropped rows. With "mean", these are the rows with a missing target.
    """

    treatment: Annotated[str, Meta(pattern=r"\A(drop-rows|mean)\Z")]
    rows: int = 0
    columns: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        is_valid = 0 <= self.dropped <= self.rows and self.columns >= 0
        if not is_valid or (self.rows > 0) != (self.columns > 0):
            raise ValueError(f"missing is {shorten(self)}")


class _AbstractStructMeta(StructMeta, ABCMeta):
    pass


class Manifest(Struct, frozen=True, kw_only=True, dict=True, metaclass=_AbstractStructMeta):
    """The content of ``manifest.json``: the description of a store.

    Each kind of store has a subclass with further fields; see `store.kinds`.

    Attributes
    ----------
    rows, columns : int
        Shape (q, r) of the matrix X.
    machines : int
        N.
    dtype : str
        ``"float32"`` or ``"float64"``.
    rounded : bool
        Whether entries of X may have been rounded to this dtype.
    checksums : ChecksumsEntry
        Checksums of all blocks.
    column_maxima : ArrayEntry
        Largest absolute value of each encoded column.
    shards : tuple of ShardEntry
        Shards of machines 1..N.

    Raises
    ------
    ValueError
        Fields are inconsistent. The message has the value and the expected one.
    """

    rows: Count
    columns: Count
    machines: Count
    dtype: Dtype
    rounded: bool
    checksums: ChecksumsEntry
    column_maxima: ArrayEntry
    shards: tuple[ShardEntry, ...]

    suffix: ClassVar[str] = ".npy"
    """Suffix of shard files."""
    compares_shards: ClassVar[bool] = False
    """Whether shards are compared with each other, because wrong rows may match a checksum."""

    def __post_init__(self) -> None:
        check_field("shards", len(self.shards), self.machines)
        check_field("column_maxima", self.column_maxima.file, COLUMN_MAXIMA)
        self.check()
        check_field("machines", self.machines, self.code.machines)
        for n, shard in enumerate(self.shards, start=1):
            name, size = self.file_of(n), self.bytes_of(n)
            if shard.file != name or shard.bytes != size or size > _MAX_INT64:
                raise ValueError(
                    f"shard {n} is {shorten(shard.file)} of {shard.bytes} bytes, expected "
                    f"{shorten(name)} of {size}"
                )

    def __repr__(self) -> str:
        return f"<Manifest of {self.summary}>"

    # Every kind of store must define the following.

    @abstractmethod
    def check(self) -> None:
        """Raise a ValueError if the fields of this kind of store are inconsistent."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """Short description of the store."""

    @property
    @abstractmethod
    def code(self) -> MDSCode:
        """Code, with the generator matrix, N and L; in a replicated store L = 1."""

    @property
    @abstractmethod
    def rows_per_shard(self) -> int:
        """Number of rows of each shard, R; in a replicated store the number of rows of X."""

    @property
    @abstractmethod
    def block_count(self) -> int:
        """Number of blocks."""

    @property
    @abstractmethod
    def block_bytes(self) -> int:
        """Size of the largest block."""

    @abstractmethod
    def bytes_of(self, machine: int) -> int:
        """Return the size of the shard file of a machine (counted from 1)."""

    @abstractmethod
    def header_of(self, machine: int) -> bytes:
        """Return the header of the shard file of a machine."""

    @abstractmethod
    def block_extent(self, block: int, machine: int) -> tuple[int, int]:
        """Return the offset and the size of a block in the file of a machine."""

    @abstractmethod
    def rows_of(self, block: int) -> tuple[int, int]:
        """Return the rows ``(start, stop)`` of a block."""

    @abstractmethod
    def extend(self, seed: int) -> Self:
        """Return the manifest with one more machine, whose shard has no checksums yet."""

    # A kind of store may override the following.

    @property
    def copies(self) -> int | None:
        """Number of machines that hold each row, J; None for a code."""
        return None

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of X; empty if the source had none."""
        return ()

    @property
    def missing(self) -> MissingValues | None:
        """Treatment of missing values; None if they were not allowed."""
        return None

    @property
    def row_exponents(self) -> ArrayEntry | None:
        """Powers of two by which rows of X were divided; None if they were not."""
        return None

    @property
    def sufficient_machines(self) -> int:
        """Smallest n such that any n machines suffice for a step."""
        return self.code.recovery

    @property
    def placement(self) -> CodedPlacement | ReplicaPlacement:
        """Placement of shards or parts on machines."""
        return CodedPlacement(self.machines)

    @property
    def distribution(self) -> dict[str, Any]:
        """Distribution of X, as fields of a `Scenario` of the simulation."""
        return {"recovery": self.code.recovery, "code": self.code}

    @property
    def accurate_along(self) -> tuple[str, ...]:
        """Directions ("rows", "columns") in which bad scaling of X does not reduce accuracy."""
        return ("columns",) if self.row_exponents is None else ("rows",)

    @property
    def checksums_shape(self) -> tuple[int, int]:
        """Shape of the file of checksums: (N, blocks); in a replicated store (1, blocks)."""
        return self.machines, self.block_count

    @classmethod
    def file_of(cls, machine: int) -> str:
        """Return the name of the shard file of a machine."""
        return f"shard-{machine:04d}{cls.suffix}"

    def blocks_held_by(self, machine: int) -> NDArray[np.bool_]:
        """Return a mask of the blocks that a machine holds, (blocks,)."""
        mask: NDArray[np.bool_] = self.block_placement[machine - 1]
        return mask

    @cached_property
    def block_placement(self) -> NDArray[np.bool_]:
        """Mask of the blocks that each machine holds, (N, blocks)."""
        return np.broadcast_to(np.True_, (self.machines, self.block_count))

    def rows_of_machine(self, machine: int) -> list[tuple[int, int]]:
        """Return the rows in the shard of a machine, as intervals."""
        return [(0, self.rows_per_shard)]

    def arrays(self) -> list[tuple[ArrayEntry, tuple[int, ...], DTypeLike]]:
        """Return the arrays next to the shards, with their shapes and dtypes."""
        return [(self.column_maxima, (self.columns,), np.float64)]

    def convert_maxima(self, stored: NDArray[Any]) -> NDArray[np.float64]:
        """Return the column maxima from the content of their file."""
        return stored

    def merge_rebuilt(
        self, old: tuple[RebuiltRows, ...], bounds: Mapping[int, float]
    ) -> tuple[RebuiltRows, ...]:
        """Return the field ``rebuilt`` of a shard after blocks were rebuilt.

        Parameters
        ----------
        old : tuple of RebuiltRows
            Previous value of the field.
        bounds : mapping of int to float
            Error bounds by block.
        """
        return ()

    def read_parts(self, directory: Path) -> tuple[Parts, ReplicaPlacement] | None:
        """Read the parts of a sparse X and their placement; None if all rows cost the same."""
        return None

    @property
    def shard_errors(self) -> NDArray[np.float64]:
        """Bounds on the errors of the entries of all shards, (N,); see `answer_error_bound`."""
        rebuilt_bounds = [
            max((rows.error_bound for rows in shard.rebuilt), default=0.0) for shard in self.shards
        ]
        return np.maximum(encoding_error_bound(self.code.generator, self.dtype), rebuilt_bounds)

    @property
    def itemsize(self) -> int:
        """Bytes per entry of a shard."""
        return np.dtype(self.dtype).itemsize

    @cached_property
    def shard_bytes(self) -> int:
        """Size of the largest shard file."""
        return max(shard.bytes for shard in self.shards)

    def machine_of(self, path: Path) -> int:
        """Return the machine of a shard file or a copy of it."""
        return 1 + [shard.file for shard in self.shards].index(path.name)

    def describe_rows(self, blocks: Iterable[int]) -> str:
        """Return the intervals of rows of these blocks, as text."""
        intervals: list[list[int]] = []
        for start, stop in map(self.rows_of, sorted(blocks)):
            if intervals and intervals[-1][1] >= start:
                intervals[-1][1] = stop
            else:
                intervals.append([start, stop])
        text = ", ".join(f"{start}..{stop - 1}" for start, stop in intervals[:_MAX_INTERVALS])
        if len(intervals) > _MAX_INTERVALS:
            text += f" and {plural(len(intervals) - _MAX_INTERVALS, 'more interval')}"
        return f"rows {text}"

    def describe_lost(self, blocks: Iterable[int]) -> str:
        """Return a message about blocks that cannot be rebuilt."""
        return f"{self.describe_rows(blocks)} of X are lost, because no machine has a good copy"


def check_field(field: str, value: Any, expected: Any) -> None:
    """Raise a ValueError if a field has another value."""
    if value != expected:
        raise ValueError(f"{field} is {shorten(value)}, expected {shorten(expected)}")


def store_dtype(name: str | None, source_dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of shards: `name`, or by default float32 for floats of up to 32 bits.

    Raises
    ------
    InputError
        Stores cannot have this dtype.
    """
    if name is None:
        is_single = source_dtype.kind == "f" and source_dtype.itemsize <= 4
        return np.dtype("float32" if is_single else "float64")
    if name not in DTYPES:
        raise InputError(f"dtype {name!r}: expected one of {', '.join(DTYPES)}")
    return np.dtype(name)
