"""Arrays in HDF5 files and Zarr directories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from cec_mpi.encoding.sources.source import Source, stamps_of, unreadable
from cec_mpi.errors import InputError
from cec_mpi.files.formats import library
from cec_mpi.text import few

_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
_LISTED = 5


@dataclass(frozen=True)
class ContainerArray:
    """An array in a container, which is opened for each read."""

    kind: str
    path: Path
    inner: str

    def __getitem__(self, places: tuple[slice, slice]) -> Any:
        try:
            with _OPEN[self.kind](self.path, self.inner) as array:
                return array[places]
        except (OSError, MemoryError):
            raise
        except Exception as error:  # the libraries raise many kinds of errors for a damaged file
            name = f"{self.path}::{self.inner}" if self.inner else self.path
            raise unreadable(name, error) from None


def _source(kind: str, path: Path, inner: str, **known: Any) -> Source:
    return Source(
        name=f"{path}::{inner}" if inner else str(path),
        array=ContainerArray(kind, path, inner),
        **known,
    )


def hdf5_source(path: Path, inner: str) -> Source:
    """Return the source of a dataset of an HDF5 file, by default its only matrix."""
    h5py = library("h5py", path)
    try:
        stamps = stamps_of(path)
        with h5py.File(path, "r") as file:
            matrices: list[str] = []

            def collect(name: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset) and item.ndim == 2:
                    matrices.append(f"/{name}")

            if not inner:
                file.visititems(collect)
                inner = _only(path, matrices)
            if inner not in file:
                file.visititems(collect)
                raise InputError(
                    f"{path} has no dataset {inner}, expected one of {few(matrices, _LISTED)}"
                )
            dataset = file[inner]
            if not isinstance(dataset, h5py.Dataset):
                is_sparse = {"data", "indices", "indptr"} <= set(dataset)
                raise InputError(
                    f"{path}::{inner} is a sparse matrix, which is stored as copies of its rows: "
                    "expected no --recovery"
                    if is_sparse
                    else f"{path}::{inner} is a group, expected a dataset"
                )
            shape, dtype = dataset.shape, dataset.dtype
    except InputError:
        raise
    except Exception as error:
        raise unreadable(path, error) from None
    known = {"shape": tuple(shape or ()), "dtype": dtype}
    return _source("hdf5", path, inner, stamps=stamps, stamps_now=partial(stamps_of, path), **known)


def zarr_source(path: Path, inner: str) -> Source:
    """Return the source of a Zarr array, or of an array in a group, by default its only matrix."""
    zarr = library("zarr", path)
    try:
        node = zarr.open(path, mode="r")
        if not inner and isinstance(node, zarr.Group):
            matrices = [f"/{name}" for name, array in node.arrays() if array.ndim == 2]
            inner = _only(path, sorted(matrices))
        if inner:
            try:
                node = node[inner.strip("/")]
            except (KeyError, IndexError, ValueError):
                raise InputError(f"{path} has no array {inner}") from None
        if not isinstance(node, zarr.Array):
            raise InputError(f"{path}::{inner} is a group, expected an array")
        stamps = _stamps_within(path, inner)
        with _open_zarr(path, inner) as array:
            shape, dtype = array.shape, np.dtype(array.dtype)
    except InputError:
        raise
    except Exception as error:
        raise unreadable(path, error) from None
    known = {"shape": tuple(shape), "dtype": dtype}
    look = partial(_stamps_within, path, inner)
    return _source("zarr", path, inner, stamps=stamps, stamps_now=look, **known)


def _stamps_within(path: Path, inner: str) -> tuple[str, ...]:
    """Return one stamp for all files of a Zarr array."""
    directory = path / inner.strip("/")
    found = sorted(
        f"{file.relative_to(directory)} {stamps_of(file)[0]}"
        for file in directory.rglob("*")
        if file.is_file()
    )
    total = xxhash.xxh3_128_hexdigest("\n".join(found).encode(errors="surrogateescape"))
    return (f"{len(found)} files {total}",)


def is_zarr(path: Path) -> bool:
    """Whether a directory is a Zarr array or group."""
    return any((path / name).exists() for name in _ZARR_FILES)


def _only(path: Path, matrices: list[str]) -> str:
    if len(matrices) != 1:
        which = few(matrices, _LISTED)
        raise InputError(
            f"{path} has {len(matrices)} matrices ({which}): choose one with {path}::/NAME"
        )
    return matrices[0]


@contextmanager
def _open_hdf5(path: Path, inner: str) -> Iterator[Any]:
    with library("h5py", path).File(path, "r") as file:
        yield file[inner]


@contextmanager
def _open_zarr(path: Path, inner: str) -> Iterator[Any]:
    node = library("zarr", path).open(path, mode="r")
    yield node[inner.strip("/")] if inner else node


_OPEN = {"hdf5": _open_hdf5, "zarr": _open_zarr}
