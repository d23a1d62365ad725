"""Treatment of missing values: NaN in rows of X and in targets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.rounding import NO_ROUNDING, warn_of_rounding
from cec_mpi.encoding.sources.source import Source, StreamedMatrix, read_error
from cec_mpi.errors import InputError
from cec_mpi.store.files.durable import read_at, write_at
from cec_mpi.store.format.manifest import MissingValues
from cec_mpi.text import plural

_PIECE_BYTES = 16 << 20
_SUM_SCALE = 2.0**-64  # prevents overflow of sums


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStream(StreamedMatrix):
    """The rows of a source as a stream."""

    source: Source

    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Yield consecutive rows."""
        count, width = self.shape
        row_bytes = width * self.dtype.itemsize
        rows_at_once = max(1, _PIECE_BYTES // row_bytes)
        rounding = NO_ROUNDING
        for start in range(0, count, rows_at_once):
            stop = min(start + rows_at_once, count)
            rows = np.empty((stop - start, width), self.dtype)
            try:
                rounding += self.source.read(start, stop, 0, width, rows)
            except OSError as error:
                raise read_error(self.name, error) from None
            yield start, 0, rows
            if self.on_progress is not None:
                self.on_progress(stop * row_bytes, count * row_bytes)
        warn_of_rounding(self.name, rounding, self.dtype.name)


def stream_rows(source: Source) -> RowStream:
    """Return the rows of a source as a stream."""
    return RowStream(
        name=source.name,
        shape=source.shape,
        dtype=source.dtype,
        column_names=source.column_names,
        warning=source.warning,
        stamps=source.stamps,
        current_stamps=source.current_stamps,
        source=source,
    )


class MissingValueHandler:
    """Counts missing values while a matrix is read, and replaces them or drops their rows.

    With "mean", a row without a target value is dropped, because a mean of targets would be an
    invented observation. Means are over the remaining rows.

    Parameters
    ----------
    matrix : StreamedMatrix
    treatment : {"refuse", "drop-rows", "mean"}
    dtype : numpy.dtype
        Dtype of the shards.
    """

    def __init__(self, matrix: StreamedMatrix, treatment: str, dtype: np.dtype[Any]) -> None:
        self._matrix, self._treatment, self._dtype = matrix, treatment, dtype
        self._width = matrix.shape[1]
        self._first_message = self._advice = ""
        self._incomplete_rows: list[NDArray[np.int64]] = []
        self._dropped_rows: list[NDArray[np.int64]] = []
        # One entry per column of X, then per target:
        self._missing_counts = np.zeros(self._width + len(matrix.targets), np.int64)
        self._value_counts = self._missing_counts.copy()
        self._sums = np.zeros((2, len(self._missing_counts)))

    def add(self, row: int, column: int, values: NDArray[Any]) -> None:
        """Count missing values in a piece of the matrix.

        Raises
        ------
        InputError
            A number is infinite in the dtype of the shards.
        """
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(values.astype(self._dtype, copy=False))
        is_missing = None if is_finite.all() else np.isnan(values)
        if is_missing is not None:
            self._record_missing(row, column, values, is_missing, is_finite)
        if self._treatment == "mean":
            self._add_sums(column, values, is_missing)

    def _record_missing(
        self, row: int, column: int, values: NDArray[Any], is_missing: Any, is_finite: Any
    ) -> None:
        infinite = np.argwhere(~(is_finite | is_missing))
        if infinite.size:
            i, j = infinite[0].tolist()
            raise InputError(
                f"{self._matrix.name} holds {values[i, j]} at "
                f"{self._matrix.location(row + i, column + j)}, expected finite numbers in the "
                f"range of {self._dtype}"
            )
        rows = row + np.flatnonzero(is_missing.any(axis=1))
        if not self._first_message:
            i, j = np.argwhere(is_missing)[0].tolist()
            self._first_message = self._matrix.describe_missing(row + i, column + j)
            self._advice = self._matrix.drop_advice(column + j)
        self._incomplete_rows.append(rows)
        if self._treatment == "mean":
            rows = row + np.flatnonzero(self._lacks_target(column, is_missing))
        self._dropped_rows.append(rows)
        self._missing_counts[column : column + values.shape[1]] += is_missing.sum(axis=0)

    def _lacks_target(self, column: int, is_missing: Any) -> Any:
        """Return a mask of the rows of a piece without a target value."""
        return is_missing[:, max(0, self._width - column) :].any(axis=1)

    def _add_sums(self, column: int, piece: NDArray[Any], is_missing: Any) -> None:
        columns = slice(column, column + piece.shape[1])
        values = piece.astype(np.float64, copy=False)
        if is_missing is None:
            self._value_counts[columns] += len(values)
        else:
            kept = ~self._lacks_target(column, is_missing)
            values, is_missing = values[kept], is_missing[kept]
            values = np.where(is_missing, 0.0, values)
            self._value_counts[columns] += len(values) - is_missing.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            self._sums[:, columns] += values.sum(axis=0), (values * _SUM_SCALE).sum(axis=0)

    @property
    def summary(self) -> MissingValues:
        """Numbers of rows and columns with missing values, for the manifest."""
        return MissingValues(
            self._treatment,
            rows=len(_merge_rows(self._incomplete_rows)),
            columns=int(np.count_nonzero(self._missing_counts)),
            dropped=len(_merge_rows(self._dropped_rows)),
        )

    def check(self) -> None:
        """Raise if there are missing values and the treatment is "refuse".

        Raises
        ------
        InputError
            Names the first missing value, the numbers of rows and columns, and the other
            treatments.
        """
        if not self._first_message or self._treatment != "refuse":
            return
        summary = self.summary
        advice = self._advice if summary.columns == 1 else ""
        raise InputError(
            f"{self._first_message}, expected finite numbers: "
            f"{plural(summary.rows, 'row')} and {plural(summary.columns, 'column')} have missing "
            "values; --missing drop-rows drops these rows, --missing mean replaces the values with "
            f"the mean of the column{advice}"
        )

    def apply(self, rows: int, descriptor: int, targets: list[tuple[int, int]]) -> int:
        """Replace missing values in files or drop their rows; return the number of rows left.

        Parameters
        ----------
        rows : int
            Number of rows that were read.
        descriptor : int
            File with the rows of X.
        targets : list of (int, int)
            File of each target, and the offset of its first number.
        """
        if not self._first_message:
            return rows
        dropped = _merge_rows(self._dropped_rows)
        if len(dropped) == rows:
            raise InputError(
                f"{self._matrix.name} has missing values in all {plural(rows, 'row')}, so no rows "
                "remain"
            )
        means = self._means() if self._treatment == "mean" else None
        dtype = self._matrix.dtype
        row_count = _rewrite(descriptor, 0, rows, self._width, dtype, dropped, means)
        for target, offset in targets:
            _rewrite(target, offset, rows, 1, np.dtype("<f8"), dropped, None)
        return row_count

    def _means(self) -> NDArray[np.float64]:
        empty_columns = np.flatnonzero(self._value_counts[: self._width] == 0)
        if empty_columns.size:
            column = int(empty_columns[0])
            advice = self._matrix.drop_advice(column)
            raise InputError(
                f"{self._matrix.name} has no number in {self._matrix.describe_column(column)}, and "
                f"so no mean: {advice.removeprefix(', ') or 'leave this column out'}"
            )
        unscaled, scaled = self._sums[:, : self._width] / self._value_counts[: self._width]
        means: NDArray[np.float64]
        means = np.where(np.isfinite(unscaled), unscaled, scaled / _SUM_SCALE)
        return means


def summarise_missing(source: Source, dtype: np.dtype[Any]) -> str:
    """Read a matrix, and return the message for its missing values, or ''.

    Raises
    ------
    InputError
        The matrix cannot be read, or contains infinity.
    """
    rows = stream_rows(source)
    handler = MissingValueHandler(rows, "refuse", dtype)
    for row, column, values in rows.pieces(dtype):
        handler.add(row, column, values)
    try:
        handler.check()
    except InputError as error:
        return str(error)
    return ""


def _merge_rows(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.unique(np.concatenate([np.empty(0, np.int64), *rows]))


def _rewrite(
    descriptor: int,
    offset: int,
    rows: int,
    width: int,
    dtype: np.dtype[Any],
    dropped: NDArray[np.int64],
    means: NDArray[np.float64] | None,
) -> int:
    """Drop rows of a file and replace NaN with means, in place; return the number of rows."""
    row_bytes, rows_written = width * dtype.itemsize, 0
    rows_at_once = max(1, _PIECE_BYTES // row_bytes)
    for start in range(0, rows, rows_at_once):
        values = np.empty((min(rows_at_once, rows - start), width), dtype)
        if read_at(descriptor, values, offset + start * row_bytes) < values.nbytes:
            raise InputError("the temporary file of rows was truncated")
        low, high = np.searchsorted(dropped, (start, start + len(values)))
        kept = np.delete(values, dropped[low:high] - start, axis=0)
        if means is not None:
            kept = np.where(np.isnan(kept), means.astype(dtype), kept)
        if rows_written < start or means is not None or len(kept) < len(values):
            write_at(
                descriptor, np.ascontiguousarray(kept, dtype), offset + rows_written * row_bytes
            )
        rows_written += len(kept)
    os.ftruncate(descriptor, offset + rows_written * row_bytes)
    return rows_written
