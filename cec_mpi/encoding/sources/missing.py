"""Missing values: NaN in rows of X, and in targets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.encoding.rounding import NO_ROUNDING, warn_of_rounding
from cec_mpi.encoding.sources.source import Source, StreamedMatrix, unreadable
from cec_mpi.errors import InputError
from cec_mpi.store.files.durable import read_at, write_at
from cec_mpi.store.format.manifest import MissingValues
from cec_mpi.text import plural

_PIECE_BYTES = 16 << 20
_SUM_SCALE = 2.0**-64  # sums of scaled numbers cannot overflow


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStream(StreamedMatrix):
    """The rows of a matrix with slices, read once."""

    source: Source

    def pieces(self, dtype: np.dtype[Any]) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """Read some rows at a time."""
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
                raise unreadable(self.name, error) from None
            yield start, 0, rows
            if self.watch is not None:
                self.watch(stop * row_bytes, count * row_bytes)
        warn_of_rounding(self.name, rounding, self.dtype.name)


def stream_rows(source: Source) -> RowStream:
    """Return the rows of a matrix with slices, to read them once."""
    return RowStream(
        name=source.name,
        shape=source.shape,
        dtype=source.dtype,
        column_names=source.column_names,
        warning=source.warning,
        stamps=source.stamps,
        stamps_now=source.stamps_now,
        source=source,
    )


class MissingFinder:
    """Counts missing values while a matrix is read, and replaces them or removes their rows.

    A row without a target value is always removed, because a mean of targets would be an
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
        self._rows: list[NDArray[np.int64]] = []
        self._dropped: list[NDArray[np.int64]] = []
        # Of each column of X and each target:
        self._missing = np.zeros(self._width + len(matrix.targets), np.int64)
        self._present = self._missing.copy()
        self._sums = np.zeros((2, len(self._missing)))

    def add(self, row: int, column: int, values: NDArray[Any]) -> None:
        """Look for missing values in some rows and columns.

        Raises
        ------
        InputError
            A number is infinite in the dtype of the shards.
        """
        with np.errstate(over="ignore"):
            finite = np.isfinite(values.astype(self._dtype, copy=False))
        holes = None if finite.all() else np.isnan(values)
        if holes is not None:
            self._record_missing(row, column, values, holes, finite)
        if self._treatment == "mean":
            self._add_sums(column, values, holes)

    def _record_missing(
        self, row: int, column: int, values: NDArray[Any], holes: Any, finite: Any
    ) -> None:
        wrong = np.argwhere(~(finite | holes))
        if wrong.size:
            at, across = wrong[0].tolist()
            raise InputError(
                f"{self._matrix.name} holds {values[at, across]} at "
                f"{self._matrix.where(row + at, column + across)}, expected finite numbers in the "
                f"range of {self._dtype}"
            )
        found = row + np.flatnonzero(holes.any(axis=1))
        if not self._first_message:
            at, across = np.argwhere(holes)[0].tolist()
            self._first_message = self._matrix.describe_missing(row + at, column + across)
            self._advice = self._matrix.drop_advice(column + across)
        self._rows.append(found)
        if self._treatment == "mean":
            found = row + np.flatnonzero(holes[:, max(0, self._width - column) :].any(axis=1))
        self._dropped.append(found)
        self._missing[column : column + values.shape[1]] += holes.sum(axis=0)

    def _add_sums(self, column: int, values: NDArray[Any], holes: Any) -> None:
        columns = slice(column, column + values.shape[1])
        numbers = values.astype(np.float64, copy=False)
        if holes is None:
            self._present[columns] += len(values)
        else:
            kept = ~holes[:, max(0, self._width - column) :].any(axis=1)
            numbers, holes = numbers[kept], holes[kept]
            numbers = np.where(holes, 0.0, numbers)
            self._present[columns] += len(numbers) - holes.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            self._sums[:, columns] += numbers.sum(axis=0), (numbers * _SUM_SCALE).sum(axis=0)

    @property
    def found(self) -> MissingValues:
        """What was found, for the manifest."""
        return MissingValues(
            self._treatment,
            rows=len(_merge_rows(self._rows)),
            columns=int(np.count_nonzero(self._missing)),
            dropped=len(_merge_rows(self._dropped)),
        )

    def check(self) -> None:
        """Raise if missing values were found and are refused.

        Raises
        ------
        InputError
            Says where the first one is, how many rows and columns are concerned, and what to do.
        """
        if not self._first_message or self._treatment != "refuse":
            return
        found = self.found
        advice = self._advice if found.columns == 1 else ""
        raise InputError(
            f"{self._first_message}, expected finite numbers: "
            f"{plural(found.rows, 'row')} and {plural(found.columns, 'column')} have missing "
            "values; --missing drop-rows leaves these rows out, --missing mean puts the mean of "
            f"the column in their place{advice}"
        )

    def treat(self, rows: int, descriptor: int, targets: list[tuple[int, int]]) -> int:
        """Treat missing values in files of numbers, and return how many rows remain.

        Parameters
        ----------
        rows : int
            Rows that were read.
        descriptor : int
            File with the rows of X.
        targets : list of (int, int)
            Files with a target, and the offset of its first number.
        """
        if not self._first_message:
            return rows
        dropped = _merge_rows(self._dropped)
        if len(dropped) == rows:
            raise InputError(
                f"{self._matrix.name} has missing values in all of its {plural(rows, 'row')}: "
                "no row is left"
            )
        means = self._means() if self._treatment == "mean" else None
        kind = self._matrix.dtype
        left = _rewrite(descriptor, 0, rows, self._width, kind, dropped, means)
        for target, begin in targets:
            _rewrite(target, begin, rows, 1, np.dtype("<f8"), dropped, None)
        return left

    def _means(self) -> NDArray[np.float64]:
        empty = np.flatnonzero(self._present[: self._width] == 0)
        if empty.size:
            column = int(empty[0])
            advice = self._matrix.drop_advice(column)
            raise InputError(
                f"{self._matrix.name} has no number in {self._matrix.column(column)}, so that it "
                f"has no mean: {advice.removeprefix(', ') or 'leave this column out'}"
            )
        present = self._present[: self._width]
        plain, scaled = self._sums[:, : self._width] / present
        means: NDArray[np.float64] = np.where(np.isfinite(plain), plain, scaled / _SUM_SCALE)
        return means


def describe_missing(source: Source, dtype: np.dtype[Any]) -> str:
    """Return why a matrix with missing values is refused; empty if it has none. All of it is read.

    Raises
    ------
    InputError
        It cannot be read, or also holds infinity.
    """
    rows = stream_rows(source)
    finder = MissingFinder(rows, "refuse", dtype)
    for row, column, values in rows.pieces(dtype):
        finder.add(row, column, values)
    try:
        finder.check()
    except InputError as error:
        return str(error)
    return ""


def _merge_rows(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.unique(np.concatenate([np.empty(0, np.int64), *rows]))


def _rewrite(
    descriptor: int,
    begin: int,
    rows: int,
    width: int,
    kind: np.dtype[Any],
    dropped: NDArray[np.int64],
    means: NDArray[np.float64] | None,
) -> int:
    """Leave rows of a file out, and replace NaN by means, in place; return the number of rows."""
    row_bytes, done = width * kind.itemsize, 0
    rows_at_once = max(1, _PIECE_BYTES // row_bytes)
    for start in range(0, rows, rows_at_once):
        numbers = np.empty((min(rows_at_once, rows - start), width), kind)
        if read_at(descriptor, numbers, begin + start * row_bytes) < numbers.nbytes:
            raise InputError("the temporary file of rows was truncated")
        low, high = np.searchsorted(dropped, (start, start + len(numbers)))
        kept = np.delete(numbers, dropped[low:high] - start, axis=0)
        if means is not None:
            kept = np.where(np.isnan(kept), means.astype(kind), kept)
        if done < start or means is not None or len(kept) < len(numbers):
            write_at(descriptor, np.ascontiguousarray(kept, kind), begin + done * row_bytes)
        done += len(kept)
    os.ftruncate(descriptor, begin + done * row_bytes)
    return done
