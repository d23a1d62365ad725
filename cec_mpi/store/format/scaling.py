"""Arrays next to the shards: exponents of rows, sizes of columns, and cells of a sparse X.

They cannot be computed from the shards, so each file has a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.scaling import ZERO_ROW
from cec_mpi.errors import DamagedStoreError
from cec_mpi.store.files.regular import check_regular
from cec_mpi.store.format.array_files import ArrayFile, copy_file, name_and_copy
from cec_mpi.store.format.manifest import ArrayEntry, Manifest

_MAX_EXPONENT = 1100  # more than any exponent of float64


@dataclass(frozen=True)
class Scaling:
    """Scaling of the rows of X before encoding, and sizes of the scaled columns.

    Attributes
    ----------
    exponents : (L, R) ndarray of int16, or None
        Row k of part l of X is ``2 ** exponents[l, k]`` times the encoded row. `ZERO_ROW` for
        rows of zeros; None if rows were not scaled.
    column_sizes : (r,) ndarray of float64
        Largest absolute value in each column of the scaled matrix.
    """

    exponents: NDArray[np.int16] | None
    column_sizes: NDArray[np.float64]


def read_scaling(directory: Path, manifest: Manifest) -> Scaling:
    """Read the exponents of rows and the sizes of columns from their files or the copies.

    Raises
    ------
    DamagedStoreError
        Neither a file nor its copy matches the manifest; the message names both.
    """
    sizes = manifest.convert_sizes(read_array(directory, *manifest.arrays()[0]))
    if not (np.isfinite(sizes) & (sizes >= 0)).all():
        raise _damaged_error(directory / manifest.column_sizes.file, "finite sizes of at least 0")
    exponents = None
    if manifest.row_exponents is not None:
        exponents = read_array(directory, *manifest.arrays()[1])
        _check_exponents(directory / manifest.row_exponents.file, exponents)
    return Scaling(exponents, sizes)


@dataclass(frozen=True)
class RowExponents:
    """Exponents of rows in a file.

    Attributes
    ----------
    path : Path
    shape : tuple of int
        (L, R).
    """

    path: Path
    shape: tuple[int, int]

    def read(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the exponents of rows ``start..stop`` of all parts of X, (L, rows)."""
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
    entry, _, dtype = manifest.arrays()[1]
    shape = manifest.code.recovery, manifest.rows_per_shard
    for name in name_and_copy(entry.file):
        if not _find_problem(directory / name, entry, shape, dtype):
            return RowExponents(directory / name, shape)
    raise _lost_error(directory, entry)


def unrecoverable_files(problems: Mapping[str, str], manifest: Manifest) -> list[str]:
    """Return the files that are damaged, and whose copies are also damaged."""
    pairs = [name_and_copy(entry.file) for entry, _, _ in manifest.arrays()]
    return [name for pair in pairs if problems.keys() >= set(pair) for name in pair]


def find_array_problems(directory: Path, manifest: Manifest) -> dict[str, str]:
    """Return the problems of the arrays next to the shards, and of their copies, by file."""
    return {
        name: problem
        for entry, shape, dtype in manifest.arrays()
        for name in name_and_copy(entry.file)
        if (problem := _find_problem(directory / name, entry, shape, dtype))
    }


def restore_arrays(directory: Path, manifest: Manifest) -> tuple[list[str], list[str]]:
    """Restore each file from its copy, or the copy from the file.

    Returns
    -------
    restored, lost : list of str
        Names of restored files, and of damaged files whose copies are also damaged.
    """
    restored, lost = [], []
    for entry, shape, dtype in manifest.arrays():
        names = name_and_copy(entry.file)
        damaged = [name for name in names if _find_problem(directory / name, entry, shape, dtype)]
        if len(damaged) == len(names):
            lost += damaged
        elif damaged:
            (target,) = damaged
            (source,) = set(names) - {target}
            check_regular(directory / target)
            copy_file(directory / source, directory / target)
            restored.append(target)
    return restored, lost


def read_array(
    directory: Path, entry: ArrayEntry, shape: tuple[int, ...], dtype: DTypeLike
) -> NDArray[Any]:
    """Read an array from its file or the copy.

    Raises
    ------
    DamagedStoreError
        Neither the file nor its copy matches the manifest; the message names both.
    """
    for name in name_and_copy(entry.file):
        try:
            with ArrayFile(directory / name, shape, dtype) as file:
                array = file.read()
        except DamagedStoreError:
            continue
        if xxhash.xxh3_128_hexdigest(array.data) == entry.xxh3_128:
            return array.astype(dtype, copy=False)
    raise _lost_error(directory, entry)


def _find_problem(path: Path, entry: ArrayEntry, shape: tuple[int, ...], dtype: DTypeLike) -> str:
    """Return the problem of a file, or ''."""
    try:
        with ArrayFile(path, shape, dtype) as file:
            checksum = file.compute_checksum()
    except DamagedStoreError as error:
        return str(error)
    return "" if checksum == entry.xxh3_128 else "altered, or from another store"


def _check_exponents(path: Path, exponents: NDArray[np.int16]) -> None:
    if ((exponents != ZERO_ROW) & (abs(exponents) > _MAX_EXPONENT)).any():
        raise _damaged_error(path, f"exponents up to {_MAX_EXPONENT}")


def _damaged_error(path: Path, expected: str) -> DamagedStoreError:
    return DamagedStoreError(f"{path} is damaged: expected {expected}")


def _lost_error(directory: Path, entry: ArrayEntry) -> DamagedStoreError:
    names = " and ".join(name_and_copy(entry.file))
    return DamagedStoreError(
        f"{directory}: {names} are missing or altered and cannot be restored: copy one of them "
        "back from a backup, or encode X again"
    )
