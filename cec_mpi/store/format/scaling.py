"""How large numbers of X are: powers of two that rows were divided by, and sizes of columns.

Row k of part l of X is ``2 ** e[l, k]`` times the row that was encoded. Nothing else says what
the exponents are, so they have a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from cec_mpi.errors import DamagedStoreError
from cec_mpi.files.durable import publish
from cec_mpi.files.regular import check_regular, read_regular
from cec_mpi.store.format.array_files import ArrayFile, publish_array, with_copy
from cec_mpi.store.format.manifest import (
    COLUMN_SIZES,
    ROW_EXPONENTS,
    ArrayEntry,
    Manifest,
)


@dataclass(frozen=True)
class Scaling:
    """How X was scaled before it was encoded, and how large its columns are then.

    Attributes
    ----------
    exponents : (L, R) ndarray of int16, or None
        Row k of part l of X is ``2 ** exponents[l, k]`` times the row that was encoded; None
        where all rows are as they were.
    largest : (r,) ndarray of float64
        The largest absolute value in each column of the matrix that was encoded.
    typical : (r,) ndarray of float64
        Their root mean squares over the q rows of X.
    """

    exponents: NDArray[np.int16] | None
    largest: NDArray[np.float64]
    typical: NDArray[np.float64]


def publish_scaling(
    directory: Path, exponents: NDArray[np.int16] | None, sizes: NDArray[np.float64]
) -> tuple[ArrayEntry, ArrayEntry | None]:
    """Write both arrays and their copies; returns what the manifest says of them.

    Parameters
    ----------
    directory : Path
    exponents : (L, R) ndarray of int16, or None
    sizes : (2, r) ndarray of float64
        The largest absolute values, and below them the root mean squares.
    """
    publish_array(directory, COLUMN_SIZES, sizes)
    columns = ArrayEntry(COLUMN_SIZES, _sum(sizes))
    if exponents is None:
        return columns, None
    publish_array(directory, ROW_EXPONENTS, exponents)
    return columns, ArrayEntry(ROW_EXPONENTS, _sum(exponents))


def read_scaling(directory: Path, manifest: Manifest) -> Scaling:
    """Read exponents and sizes, each from its file or the copy.

    Raises
    ------
    DamagedStoreError
        Neither is as the manifest says: names both.
    """
    largest, typical = _read(directory, manifest.column_sizes, *_sizes_like(manifest))
    return Scaling(read_exponents(directory, manifest), largest, typical)


def read_exponents(directory: Path, manifest: Manifest) -> NDArray[np.int16] | None:
    """The exponents of rows; None where all rows are as they were.

    Raises
    ------
    DamagedStoreError
        As `read_scaling`.
    """
    if manifest.row_exponents is None:
        return None
    return _read(directory, manifest.row_exponents, *_exponents_like(manifest))


def scaling_problems(directory: Path, manifest: Manifest) -> dict[str, str]:
    """What is wrong with the files of exponents and sizes, and with their copies, by file."""
    return {
        name: problem
        for entry, shape, dtype in _arrays(manifest)
        for name in with_copy(entry.file)
        if (problem := _look_at(directory / name, entry, shape, dtype)[1])
    }


def restore_scaling(directory: Path, manifest: Manifest) -> tuple[list[str], list[str]]:
    """Make each file again from its copy, or the copy from the file.

    Returns
    -------
    restored, lost : list of str
        Names of files; those are lost that are damaged in both places.
    """
    restored, lost = [], []
    for entry, shape, dtype in _arrays(manifest):
        names = with_copy(entry.file)
        bad = [name for name in names if _look_at(directory / name, entry, shape, dtype)[1]]
        if len(bad) == len(names):
            lost += bad
        for name, other in zip(names, reversed(names), strict=True):
            if bad == [name]:
                check_regular(directory / name)
                publish(directory / name, read_regular(directory / other, most=None))
                restored.append(name)
    return restored, lost


def _exponents_like(manifest: Manifest) -> tuple[tuple[int, int], DTypeLike]:
    return (manifest.code.recovery, manifest.rows_per_shard), np.int16


def _sizes_like(manifest: Manifest) -> tuple[tuple[int, int], DTypeLike]:
    return (2, manifest.columns), np.float64


def _arrays(manifest: Manifest) -> list[tuple[ArrayEntry, tuple[int, int], DTypeLike]]:
    arrays = [(manifest.column_sizes, *_sizes_like(manifest))]
    if manifest.row_exponents is not None:
        arrays.append((manifest.row_exponents, *_exponents_like(manifest)))
    return arrays


def _read(
    directory: Path, entry: ArrayEntry, shape: tuple[int, int], dtype: DTypeLike
) -> NDArray[Any]:
    for name in with_copy(entry.file):
        array, problem = _look_at(directory / name, entry, shape, dtype)
        if not problem:
            return array
    names = " and ".join(with_copy(entry.file))
    raise DamagedStoreError(
        f"{directory}: {names} are missing or altered, and nothing else says what they said: "
        "bring one of them back, or encode X anew"
    )


def _look_at(
    path: Path, entry: ArrayEntry, shape: tuple[int, int], dtype: DTypeLike
) -> tuple[NDArray[Any], str]:
    """The array of a file, and what is wrong with it, or an empty text."""
    try:
        with ArrayFile(path, shape, dtype) as file:
            array = file.array()
    except DamagedStoreError as error:
        return np.empty(0), str(error)
    return array, "" if _sum(array) == entry.xxh3_128 else "altered, or of another store"


def _sum(array: NDArray[Any]) -> str:
    kind = array.dtype.newbyteorder("<")
    return str(xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array, kind).data))
