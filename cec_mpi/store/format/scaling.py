"""Exponents of rows and largest magnitudes of columns, in files next to the shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.scaling import ZERO_ROW
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.format.array_files import ArrayFile, find_undamaged_file, read_array
from cec_mpi.store.format.manifest import Manifest

_MAX_EXPONENT = 1100  # more than any exponent of float64


@dataclass(frozen=True)
class Scaling:
    """Scaling of the rows of X before encoding, and largest magnitudes in the scaled columns.

    Attributes
    ----------
    exponents : (L, R) ndarray of int16, or None
        Row k of part l of X is ``2 ** exponents[l, k]`` times the encoded row. `ZERO_ROW` for
        rows of zeros; None if rows were not scaled.
    column_maxima : (r,) ndarray of float64
        Largest absolute value in each column of the scaled matrix.
    """

    exponents: NDArray[np.int16] | None
    column_maxima: NDArray[np.float64]


def read_scaling(directory: Path, manifest: Manifest) -> Scaling:
    """Read the exponents of rows and largest magnitudes of columns from their files or copies.

    Raises
    ------
    DamagedStoreError
        Neither a file nor its copy matches the manifest, and the message names both; or a number
        is out of range.
    """
    maxima = manifest.convert_maxima(read_array(directory, *manifest.arrays()[0]))
    if not (np.isfinite(maxima) & (maxima >= 0)).all():
        path = directory / manifest.column_maxima.file
        raise _damaged_error(path, "finite numbers of at least 0")
    exponents = None
    if manifest.row_exponents is not None:
        exponents = read_array(directory, *manifest.arrays()[1])
        _check_exponents(directory / manifest.row_exponents.file, exponents)
    return Scaling(exponents, maxima)


@dataclass(frozen=True)
class RowExponents:
    """A file with the exponents of rows.

    Attributes
    ----------
    path : Path
    shape : tuple of int
        (L, R).
    """

    path: Path
    shape: tuple[int, int]

    def read(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the exponents of rows ``start:stop`` of all parts of X, (L, rows)."""
        try:
            with ArrayFile(self.path, self.shape, np.int16) as file:
                exponents = file.read_columns(start, stop)
        except DamagedStoreError as error:
            raise DamagedStoreError(f"{self.path}: {error}") from None
        _check_exponents(self.path, exponents)
        return exponents


def find_exponents(directory: Path, manifest: Manifest) -> RowExponents | None:
    """Return the row exponents in an undamaged file; None if rows were not scaled.

    Raises
    ------
    DamagedStoreError
        See `read_scaling`.
    """
    if manifest.row_exponents is None:
        return None
    path = find_undamaged_file(directory, *manifest.arrays()[1])
    return RowExponents(path, (manifest.code.recovery, manifest.rows_per_shard))


def _check_exponents(path: Path, exponents: NDArray[np.int16]) -> None:
    if ((exponents != ZERO_ROW) & (abs(exponents) > _MAX_EXPONENT)).any():
        raise _damaged_error(path, f"exponents from -{_MAX_EXPONENT} to {_MAX_EXPONENT}")


def _damaged_error(path: Path, expected: str) -> DamagedStoreError:
    return DamagedStoreError(f"{path} is damaged: expected {expected}")
