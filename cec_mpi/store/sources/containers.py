"""Arrays in HDF5 files and Zarr directories, read by their own libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.sources.base import FileSource, fill, library, stamp, unreadable
from cec_mpi.text import few

HDF5_SUFFIXES = (".h5", ".hdf5", ".he5", ".hdf")
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class ContainerSource(FileSource):
    """An array in a container: anything that is sliced as NumPy arrays are."""

    kind: str
    inner: str

    @property
    def name(self) -> str:
        """Path and place within."""
        return f"{self.path}::{self.inner}" if self.inner else str(self.path)

    def stamps_now(self) -> tuple[str, ...]:
        """Of the file, or of all files of the array."""
        return (_stamp_all(self.path, self.inner) if self.kind == "zarr" else stamp(self.path),)

    def read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        """Read a rectangle."""
        try:
            with _OPEN[self.kind](self.path, self.inner) as array:
                fill(out, array[start:stop, left:right])
        except (OSError, MemoryError):
            raise
        except Exception as error:  # the libraries raise many kinds for a damaged file
            raise unreadable(self.name, error) from None


def hdf5_source(path: Path, inner: str) -> ContainerSource:
    """A dataset of an HDF5 file; its only matrix when none is named."""
    h5py = library("h5py", path)
    try:
        stamps = (stamp(path),)
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
                    f"{path} has no dataset {inner}: its matrices are {few(matrices, _LISTED)}"
                )
            dataset = file[inner]
            if not isinstance(dataset, h5py.Dataset):
                raise InputError(f"{path}::{inner} is a group: expected a dataset")
            shape, dtype = dataset.shape, dataset.dtype
    except InputError:
        raise
    except Exception as error:
        raise unreadable(path, error) from None
    return ContainerSource(
        kind="hdf5",
        path=path,
        inner=inner,
        shape=tuple(shape or ()),
        dtype=dtype,
        stamps=stamps,
    )


def zarr_source(path: Path, inner: str) -> ContainerSource:
    """A Zarr array, or an array in a Zarr group; its only matrix when none is named."""
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
            raise InputError(f"{path}::{inner} is a group: expected an array")
        stamps = (_stamp_all(path, inner),)
        with _open_zarr(path, inner) as array:
            shape, dtype = array.shape, np.dtype(array.dtype)
    except InputError:
        raise
    except Exception as error:
        raise unreadable(path, error) from None
    return ContainerSource(
        kind="zarr", path=path, inner=inner, shape=tuple(shape), dtype=dtype, stamps=stamps
    )


def _stamp_all(path: Path, inner: str) -> str:
    """A stamp of all files of a Zarr array, which can be many."""
    directory = path / inner.strip("/")
    found = sorted(
        f"{file.relative_to(directory)} {stamp(file)}"
        for file in directory.rglob("*")
        if file.is_file()
    )
    total = xxhash.xxh3_128_hexdigest("\n".join(found).encode(errors="surrogateescape"))
    return f"{len(found)} files {total}"


def is_zarr(path: Path) -> bool:
    """Whether a directory is a Zarr array or group."""
    return any((path / name).exists() for name in _ZARR_FILES)


def _only(path: Path, matrices: list[str]) -> str:
    if len(matrices) != 1:
        which = few(matrices, _LISTED)
        raise InputError(f"{path} has {len(matrices)} matrices ({which}): name one, {path}::/NAME")
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
