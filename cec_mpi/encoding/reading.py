"""Reading of parts of X, and the errors for values that cannot be encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.scaling import (
    ZERO_ROW,
    compute_row_exponents,
    row_max_abs,
    row_min_abs_nonzero,
)
from cec_mpi.encoding.rounding import NO_ROUNDING, Rounding
from cec_mpi.encoding.sources import Matrix, Source
from cec_mpi.encoding.sources.source import read_error
from cec_mpi.errors import InputError
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.work import Runner, fit_memory


class NotEncodableError(InputError):
    """X cannot be encoded; a resume would fail in the same way."""


class MissingValuesError(NotEncodableError):
    """X has a missing value."""


def read_source(
    source: Source, start: int, stop: int, left: int, right: int, out: NDArray[Any]
) -> Rounding:
    """Read a slice like `Source.read`; an `InputError` becomes a `NotEncodableError`."""
    try:
        return source.read(start, stop, left, right, out)
    except OSError as error:
        raise read_error(source.name, error) from None
    except InputError as error:
        raise NotEncodableError(
            str(error)
        ) from error.__cause__  # what the array of the user raised


def check_unchanged(source: Matrix) -> None:
    """Raise if the files of X have changed since they were opened.

    Raises
    ------
    NotEncodableError
        The files have changed.
    """
    try:
        current_stamps = source.current_stamps()
    except OSError:
        current_stamps = ()
    if current_stamps != source.stamps:
        raise NotEncodableError(
            f"{source.name} changed during the encode: encode it when no other program writes to it"
        )


def read_part(
    source: Source, manifest: CodedManifest, part: int, start: int, left: int, out: NDArray[Any]
) -> Rounding:
    """Read rows of a part of X; rows after the end of X are zeros.

    Parameters
    ----------
    source : Source
    manifest : CodedManifest
    part, start, left : int
        Index of the part, first row in the part, and first column.
    out : (rows, columns) ndarray
    """
    first = min(part * manifest.grid.rows + start, manifest.rows)
    end = min(first + len(out), manifest.rows)
    out[end - first :] = 0
    if first == end:
        return NO_ROUNDING
    return read_source(source, first, end, left, left + out.shape[1], out[: end - first])


def non_finite_error(
    source: Source, manifest: CodedManifest, start: int, left: int, parts: NDArray[Any]
) -> NotEncodableError:
    """Return the error for rows of parts of X, (L, rows, columns), that are not finite."""
    part, row, column = np.argwhere(~np.isfinite(parts))[0].tolist()
    value = parts[part, row, column]
    row += part * manifest.grid.rows + start
    column += left
    entry = np.empty((1, 1), source.dtype)
    read_source(source, row, row + 1, column, column + 1, entry)
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(entry.astype(value.dtype)).all():  # unless X has changed since
            value = entry[0, 0]  # the original value may be finite but too large for the dtype
    error_class = MissingValuesError if np.isnan(value) else NotEncodableError
    return error_class(
        f"{source.name} holds {value} at {source.location(row, column)}, expected finite numbers "
        f"in the range of {manifest.dtype}"
    )


@dataclass
class RowMeasurement:
    """Work that measures the exponents of rows; a piece is a row of all parts of X.

    It reads all of X once before the encode, and is only needed if rows are longer than a block.
    """

    source: Source
    manifest: CodedManifest
    pieces: list[int]
    threads: int

    def size(self, piece: int) -> int:
        """Return the number of bytes to read."""
        return self.manifest.code.recovery * self.manifest.columns * self.manifest.itemsize

    def process(self, piece: int) -> tuple[int, NDArray[np.int16]]:
        """Return the row, and its exponents in all parts, (L,)."""
        row = piece
        grid, recovery = self.manifest.grid, self.manifest.code.recovery
        largest = np.zeros((recovery, 1), self.manifest.dtype)
        smallest = np.full(largest.shape, np.inf, self.manifest.dtype)
        for span in range(grid.blocks_across):
            block = grid.block(span)
            entries = np.empty((1, block.right - block.left), self.manifest.dtype)
            for part in range(recovery):
                read_part(self.source, self.manifest, part, row, block.left, entries)
                row_max = row_max_abs(entries, np.empty_like(entries))
                if not np.isfinite(row_max).all():
                    parts = np.zeros((part + 1, *entries.shape), entries.dtype)
                    parts[part] = entries
                    raise non_finite_error(self.source, self.manifest, row, block.left, parts)
                np.maximum(largest[part], row_max, out=largest[part])
                np.minimum(smallest[part], row_min_abs_nonzero(entries), out=smallest[part])
        return row, compute_row_exponents(largest, smallest)[:, 0]

    def flush(self) -> None:
        """Do nothing: this work writes no files."""


def measure_rows(
    source: Source,
    manifest: CodedManifest,
    rows_to_measure: NDArray[np.bool_],
    memory: int,
    runner: Runner,
) -> NDArray[np.int16]:
    """Return the exponents of the R rows of each part, (L, R), for rows longer than a block.

    Parameters
    ----------
    source : Source
    manifest : CodedManifest
    rows_to_measure : (R,) ndarray of bool
        The result has `ZERO_ROW` for other rows.
    memory : int
        Bytes that each process may use.
    runner : Runner
    """
    row_bytes = manifest.grid.block_columns * manifest.itemsize
    threads, _ = fit_memory(
        memory,
        runner.threads,
        array_count=4 + source.read_buffers,
        thread_bytes=0,
        min_bytes=row_bytes,
        process_bytes=source.fixed_bytes,
    )
    pieces = np.flatnonzero(rows_to_measure).tolist()
    exponents = np.full((manifest.code.recovery, manifest.grid.rows), ZERO_ROW, np.int16)
    for row, row_exponents in runner.run(RowMeasurement(source, manifest, pieces, threads)):
        exponents[:, row] = row_exponents
    return exponents
