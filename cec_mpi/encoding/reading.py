"""Read parts of X for encoding, and report its errors."""

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
from cec_mpi.errors import InputError
from cec_mpi.store.coded.manifest import CodedManifest
from cec_mpi.store.work import Runner, fit_memory


class NotEncodableError(InputError):
    """X cannot be encoded."""


class MissingValuesError(NotEncodableError):
    """X has a missing value."""


def read_source(
    source: Source, start: int, stop: int, left: int, right: int, out: NDArray[Any]
) -> Rounding:
    """Read as `Source.read` does, but raise `NotEncodableError` for bad input."""
    try:
        return source.read(start, stop, left, right, out)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{source.name} cannot be read: {reason}") from None
    except InputError as error:
        raise NotEncodableError(str(error)) from error.__cause__  # raised by the user's array


def check_unchanged(source: Matrix) -> None:
    """Raise if the files of X have changed since they were opened.

    Raises
    ------
    NotEncodable
        The files have changed.
    """
    try:
        now = source.stamps_now()
    except OSError:
        now = ()
    if now != source.stamps:
        raise NotEncodableError(
            f"{source.name} changed during the encode: encode it when no other program writes to it"
        )


def read_part(
    source: Source, manifest: CodedManifest, part: int, start: int, left: int, out: NDArray[Any]
) -> Rounding:
    """Read rows of a part of X, with zeros after the end of X.

    Parameters
    ----------
    source : Source
    manifest : CodedManifest
    part, start, left : int
        Number of the part, first row in the part, and first column.
    out : (rows, columns) ndarray
    """
    first = min(part * manifest.grid.rows + start, manifest.rows)
    end = min(first + len(out), manifest.rows)
    out[end - first :] = 0
    if first == end:
        return NO_ROUNDING
    return read_source(source, first, end, left, left + out.shape[1], out[: end - first])


def describe_non_finite(
    source: Source, manifest: CodedManifest, start: int, left: int, parts: NDArray[Any]
) -> NotEncodableError:
    """Return the error for rows of parts of X, (L, rows, columns), that are not finite."""
    part, row, column = np.argwhere(~np.isfinite(parts))[0].tolist()
    found = parts[part, row, column]
    row += part * manifest.grid.rows + start
    column += left
    entry = np.empty((1, 1), source.dtype)
    read_source(source, row, row + 1, column, column + 1, entry)
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(entry.astype(found.dtype)).all():  # otherwise it has changed meanwhile
            found = entry[0, 0]  # the original value, which may be too large for the dtype
    kind = MissingValuesError if np.isnan(found) else NotEncodableError
    return kind(
        f"{source.name} holds {found} at {source.where(row, column)}, expected finite numbers in "
        f"the range of {manifest.dtype}"
    )


@dataclass
class RowMeasurement:
    """Work that finds the exponents of long rows; pieces are ``(start, stop)``.

    For rows that are longer than a block, X is read completely before encoding.
    """

    source: Source
    manifest: CodedManifest
    pieces: list[tuple[int, int]]
    threads: int

    def size(self, piece: tuple[int, int]) -> int:
        """Bytes that are read."""
        start, stop = piece
        rows = self.manifest.code.recovery * (stop - start)
        return rows * self.manifest.columns * self.manifest.itemsize

    def do(self, piece: tuple[int, int]) -> tuple[int, NDArray[np.int16]]:
        """Return the number of the first row, and exponents of rows of all parts, (L, rows)."""
        start, stop = piece
        grid, recovery = self.manifest.grid, self.manifest.code.recovery
        largest = np.zeros((recovery, stop - start), self.manifest.dtype)
        least = np.full(largest.shape, np.inf, self.manifest.dtype)
        for span in range(grid.across):
            block = grid.block(span)
            rows = np.empty((1, stop - start, block.right - block.left), self.manifest.dtype)
            for part in range(recovery):
                read_part(self.source, self.manifest, part, start, block.left, rows[0])
                found = row_max_abs(rows[0], np.empty_like(rows[0]))
                if not np.isfinite(found).all():
                    parts = np.zeros((part + 1, *rows.shape[1:]), rows.dtype)
                    parts[part] = rows[0]
                    raise describe_non_finite(self.source, self.manifest, start, block.left, parts)
                np.maximum(largest[part], found, out=largest[part])
                np.minimum(least[part], row_min_abs_nonzero(rows[0]), out=least[part])
        return start, compute_row_exponents(largest, least)

    def flush(self) -> None:
        """Nothing was written."""


def measure_rows(
    source: Source, manifest: CodedManifest, wanted: NDArray[np.bool_], memory: int, runner: Runner
) -> NDArray[np.int16]:
    """Return the exponents of rows that are longer than a block, (L, R).

    Parameters
    ----------
    source : Source
    manifest : CodedManifest
    wanted : (R,) ndarray of bool
        Rows to measure; the result has `ZERO_ROW` for the others.
    memory : int
        Bytes that each process may use.
    runner : Runner
    """
    width = manifest.grid.block_columns * manifest.itemsize
    threads, _ = fit_memory(memory, runner.threads, 4 + source.copies, 0, width, 1, source.held)
    pieces = [(k, k + 1) for k in np.flatnonzero(wanted).tolist()]
    exponents = np.full((manifest.code.recovery, manifest.grid.rows), ZERO_ROW, np.int16)
    for start, found in runner.run(RowMeasurement(source, manifest, pieces, threads)):
        exponents[:, start : start + found.shape[1]] = found
    return exponents
