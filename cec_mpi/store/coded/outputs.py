"""Formats of decoded matrices.

Threads of all ranks write X to a raw binary file; an ``.npy`` file and a contiguous HDF5 dataset
have this layout. For text and Zarr one process then converts the file.
"""

from __future__ import annotations

import csv
import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.blocks import Outcome, check_outcomes
from cec_mpi.store.coded.blocks import CodedBlocks
from cec_mpi.store.coded.manifest import CodedManifest, shard_header
from cec_mpi.store.files.durable import FileCache, check_free_space, make_file, read_at
from cec_mpi.store.files.formats import DELIMITERS, HDF5_SUFFIXES, import_library, parse_delimiter
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.files.replacing import sync
from cec_mpi.store.files.saving import convert_to_input_error
from cec_mpi.store.format.manifest import Checksums
from cec_mpi.store.format.scaling import RowExponents, find_exponents
from cec_mpi.store.output import Output
from cec_mpi.store.work import Runner

FORMATS = ".npy, .csv, .tsv, .h5 (file.h5::/dataset) or .zarr (group.zarr::/array)"
_SLAB_BYTES = 4 << 20
_CONTAINER_SUFFIXES = (*HDF5_SUFFIXES, ".zarr")

_MIN_NUMBER_BYTES = 2  # of a number and its delimiter


@dataclass
class DecodeWork:
    """Work that decodes X; pieces are lists of blocks.

    Attributes
    ----------
    directory : Path
    manifest : CodedManifest
    checksums : (N, blocks) ndarray of uint64
        Checksums of good blocks; 0 for others.
    target : Path
        File to write; it exists with its final size.
    data_offset : int
        Offset of X in the file, in bytes.
    exponents : RowExponents or None
        Rows of X are multiplied by two to the power of these.
    memory, threads : int
        Bytes that each process may use, and its maximum number of threads.
    """

    directory: Path
    manifest: CodedManifest
    checksums: Checksums
    target: Path
    data_offset: int
    exponents: RowExponents | None
    memory: int
    threads: int

    def __post_init__(self) -> None:
        self.blocks = CodedBlocks(self.directory, self.manifest, self.checksums)
        self.pieces = self.blocks.pieces(range(self.manifest.block_count))
        self.threads = self.blocks.fit_threads(self.memory, self.threads)

    def size(self, piece: list[int]) -> int:
        """Return the number of bytes to read."""
        return self.blocks.total_bytes(piece)

    def process(self, piece: list[int]) -> list[Outcome]:
        """Decode blocks, and return their outcomes."""
        with convert_to_input_error(self.target), FileCache(self.target.parent) as files:
            return [self._decode(block, files) for block in piece]

    def flush(self) -> None:
        """Sync the file to disk."""
        sync(self.target)

    def _decode(self, block: int, files: FileCache) -> Outcome:
        manifest, contents = self.manifest, self.blocks.read_consistent(block)
        if not contents.is_consistent:
            return Outcome(block, disagreeing=tuple(contents.by_machine))
        if len(contents.by_machine) < manifest.recovery:
            return Outcome(block, is_lost=True)
        parts, bounds = self.blocks.decode(contents)
        if self.exponents is not None:
            parts = _apply_exponents(parts, self.exponents.read(*manifest.rows_of(block)))
        grid, end = manifest.grid, manifest.rows * manifest.columns
        for part, entries in enumerate(parts):
            first = part * grid.rows * grid.columns + grid.block(block).offset
            data = entries[: max(0, end - first)]  # without padding
            files.write(self.target.name, data, self.data_offset + first * manifest.itemsize)
        return Outcome(block, error_bound=max(bounds), faulty=contents.faulty)


@dataclass(frozen=True)
class NpyOutput(Output):
    """The file of a decoded matrix, in the format ``.npy``.

    Attributes
    ----------
    path : Path
        File or directory to create.
    """

    path: Path

    library: ClassVar[str] = ""  # required by the format

    def size(self, manifest: CodedManifest) -> int:
        """See `Output.size`."""
        return len(manifest.shard_header) + _data_bytes(manifest)

    def write(self, blocks: CodedBlocks, partial: Path, memory: int, runner: Runner) -> float:
        """See `Output.write`; threads of all processes decode."""
        directory, manifest, threads = blocks.directory, blocks.manifest, runner.threads
        exponents = find_exponents(directory, manifest)
        with self.open_raw_file(partial, manifest) as (raw, data_offset):
            work = DecodeWork(
                directory, manifest, blocks.checksums, raw, data_offset, exponents, memory, threads
            )
            outcomes = [outcome for piece in runner.run(work) for outcome in piece]
            check_outcomes(outcomes, directory, manifest, "decoded")
        bound: float = max(outcome.error_bound for outcome in outcomes)
        return bound

    @contextmanager
    def open_raw_file(self, partial: Path, manifest: CodedManifest) -> Iterator[tuple[Path, int]]:
        """Yield a raw binary file for X, and the offset of X in it.

        When the context ends, the file `partial` is complete.
        """
        header = shard_header(manifest.rows, manifest.columns, manifest.dtype).encode("latin-1")
        make_file(partial, header, len(header) + _data_bytes(manifest))
        yield partial, len(header)


@dataclass(frozen=True)
class HDF5Output(NpyOutput):
    """A contiguous dataset in a new HDF5 file."""

    dataset: str
    library = "h5py"

    @contextmanager
    def open_raw_file(self, partial: Path, manifest: CodedManifest) -> Iterator[tuple[Path, int]]:
        """Create a dataset without values; yield the file and the offset of the dataset in it."""
        h5py = import_library(self.library, self.path, "written")
        try:
            with h5py.File(partial, "x") as file:
                layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                layout.set_layout(h5py.h5d.CONTIGUOUS)
                layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
                layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
                links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
                links.set_create_intermediate_group(True)
                dataset = h5py.h5d.create(
                    file.id,
                    self.dataset.encode(errors="surrogateescape"),
                    h5py.h5t.py_create(np.dtype(manifest.dtype).newbyteorder("<")),
                    h5py.h5s.create_simple((manifest.rows, manifest.columns)),
                    layout,
                    links,
                )
                data_offset = int(dataset.get_offset())
        except OSError:
            raise
        except Exception as error:  # the library raises many types of errors
            raise InputError(f"{self.path}::{self.dataset} cannot be created: {error}") from None
        if partial.stat().st_size < data_offset + _data_bytes(manifest):
            os.truncate(partial, data_offset + _data_bytes(manifest))
        yield partial, data_offset


@dataclass(frozen=True)
class _ConvertedOutput(NpyOutput, ABC):
    """An output that is converted from a temporary raw file."""

    @contextmanager
    def open_raw_file(self, partial: Path, manifest: CodedManifest) -> Iterator[tuple[Path, int]]:
        """Yield a temporary file and the offset 0; convert the file when the context ends."""
        raw = partial.with_name(f"{partial.name}.raw")
        try:
            make_file(raw, b"", _data_bytes(manifest))
            yield raw, 0
            with raw.open("rb") as file:
                self.convert(_RawRows(file.fileno(), manifest), partial)
        finally:
            raw.unlink(missing_ok=True)

    @abstractmethod
    def convert(self, rows: _RawRows, partial: Path) -> None:
        """Write all rows in this format."""


@dataclass(frozen=True)
class TableOutput(_ConvertedOutput):
    """A text table: exact numbers, and column names if X has them."""

    delimiter: str

    def size(self, manifest: CodedManifest) -> int:
        """Return the minimum size: the temporary file, and a digit and a delimiter per number."""
        return _data_bytes(manifest) + _MIN_NUMBER_BYTES * manifest.rows * manifest.columns

    def convert(self, rows: _RawRows, partial: Path) -> None:
        """Write a line for each row."""
        manifest = rows.manifest
        with partial.open("x", encoding="utf-8", newline="") as file:
            if manifest.column_names:
                file.write(self._header(manifest.column_names))
            for start, slab in rows.slabs():
                # astype(str) writes the digits that a float32 needs; tolist() would widen it.
                cells = slab.tolist() if slab.itemsize == 8 else slab.astype(str).tolist()
                for row in cells:
                    file.write(self.delimiter.join(map(str, row)) + "\n")
                if not start:  # the first slab: estimate the size of the others
                    remaining = manifest.rows - len(slab)
                    check_free_space(self.path, file.tell() * remaining // len(slab))

    def _header(self, names: tuple[str, ...]) -> str:
        # Quoted, so that encode reads cells such as `2019`, `#` or `?` as names.
        file = io.StringIO()
        writer = csv.writer(
            file, delimiter=self.delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL
        )
        writer.writerow(names)
        text = file.getvalue()
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the name of a column contains {text[error.start]!r}, which UTF-8 cannot "
                "represent: decode X to .npy"
            ) from None
        return text


@dataclass(frozen=True)
class ZarrOutput(_ConvertedOutput):
    """A Zarr array, or an array in a Zarr group."""

    dataset: str
    library = "zarr"

    def size(self, manifest: CodedManifest) -> int:
        """Return the size of the temporary file and of an array without compression."""
        return 2 * _data_bytes(manifest)

    def convert(self, rows: _RawRows, partial: Path) -> None:
        """Write chunks of whole rows, or of parts of one row."""
        zarr = import_library(self.library, self.path, "written")
        manifest = rows.manifest
        width = min(manifest.columns, _SLAB_BYTES // manifest.itemsize)
        try:
            array = zarr.create_array(
                partial,
                name=self.dataset.strip("/") or None,
                shape=(manifest.rows, manifest.columns),
                chunks=(rows.rows_per_slab, width),
                dtype=manifest.dtype,
            )
            for start, slab in rows.slabs():
                array[start : start + len(slab)] = slab
        except OSError:
            raise
        except Exception as error:  # the library raises many types of errors
            raise InputError(f"{self.path}::{self.dataset} cannot be created: {error}") from None


class _RawRows:
    """Rows of X in a raw binary file."""

    def __init__(self, descriptor: int, manifest: CodedManifest) -> None:
        self.manifest = manifest
        self._descriptor = descriptor
        self._row_bytes = manifest.columns * manifest.itemsize
        self.rows_per_slab = min(manifest.rows, max(1, _SLAB_BYTES // self._row_bytes))

    def slabs(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the index of the first row of each slab of `rows_per_slab` rows, and the slab."""
        manifest = self.manifest
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        for start in range(0, manifest.rows, self.rows_per_slab):
            height = min(self.rows_per_slab, manifest.rows - start)
            slab = np.empty((height, manifest.columns), dtype)
            if read_at(self._descriptor, slab, start * self._row_bytes) < slab.nbytes:
                raise InputError("the temporary file of decoded rows was truncated")
            yield start, slab


def open_output(out: str | os.PathLike[str], delimiter: str | None = None) -> NpyOutput:
    """Return the output for a file; its name determines the format.

    Parameters
    ----------
    out : path
        ``.npy``, ``.csv``, ``.tsv``, ``file.h5::/dataset`` (by default ``/X``), ``array.zarr``
        or ``group.zarr::/array``.
    delimiter : str, optional
        Delimiter of a text table, which may then have any name.

    Raises
    ------
    InputError
        The name implies none of these formats, the delimiter is invalid or not for this format, or
        the library of the format is not installed.
    """
    text = str(as_path(out))
    path, separator, dataset = _split_container_path(text)
    suffix = path.suffix.lower()
    if separator and not dataset.strip("/"):
        raise InputError(f"{text}: expected the name of a dataset after ::, such as ::/X")
    delimiter = None if delimiter is None else parse_delimiter(delimiter)
    output: NpyOutput | None = None
    if suffix in HDF5_SUFFIXES:
        output = HDF5Output(path, f"/{dataset.strip('/') or 'X'}")
    elif suffix == ".zarr":
        output = ZarrOutput(path, dataset)
    elif suffix == ".npy" and not separator:
        output = NpyOutput(path)
    elif suffix in DELIMITERS and not separator:
        output = TableOutput(path, delimiter or DELIMITERS[suffix])
    elif delimiter is not None and not separator:
        output = TableOutput(path, delimiter)
    if output is None:
        raise InputError(f"{text}: decode cannot write this format, expected {FORMATS}")
    if delimiter is not None and not isinstance(output, TableOutput):
        raise InputError(f"delimiter is only for text tables (.csv, .tsv), not for {text}")
    if output.library:
        import_library(output.library, output.path, "written")
    return output


def _split_container_path(text: str) -> tuple[Path, str, str]:
    """Split a text into a container's path, ``::`` and a dataset; the path may contain ``::``."""
    suffixes = "|".join(map(re.escape, _CONTAINER_SUFFIXES))
    match = re.match(rf"(.*?(?:{suffixes}))(::)(.*)", text, re.DOTALL | re.IGNORECASE)
    path, separator, dataset = match.groups() if match else (text, "", "")
    return Path(path), separator, dataset


def _data_bytes(manifest: CodedManifest) -> int:
    return manifest.rows * manifest.columns * manifest.itemsize


def _apply_exponents(parts: NDArray[Any], exponents: NDArray[np.int16]) -> NDArray[Any]:
    """Multiply rows of parts of X, (L, entries), by powers of two, (L, rows)."""
    rows = parts.reshape(*exponents.shape, -1)
    largest = np.finfo(rows.dtype).max
    with np.errstate(over="ignore", under="ignore"):
        product = np.ldexp(rows, exponents.astype(np.int32)[..., np.newaxis])
    # X is finite, so only rounding can make a value overflow.
    finite: NDArray[Any] = np.clip(product, -largest, largest)
    return finite.reshape(parts.shape)
